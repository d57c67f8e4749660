"""Readiness of sockets to read or write. Only this module knows the platform's mechanism.

Linux has epoll; everything else uses :mod:`selectors`, which picks kqueue on macOS. Both are level-triggered: a socket
is reported until it has been read, so a socket that must not be read is unregistered, not merely ignored.
"""

from __future__ import annotations

import os
import select
import selectors
import socket
import threading
from contextlib import suppress
from functools import partial
from typing import Protocol

from barnabas._kernels import sockets

READ = 1
WRITE = 4
_HANGUP = 0x18
"""EPOLLERR and EPOLLHUP: always reported, and treated as readable, because a read reveals the error."""


READABLE = READ | _HANGUP


class Poller(Protocol):
    """Watches file descriptors; belongs to one thread."""

    def register(self, fd: int, events: int) -> None: ...

    def modify(self, fd: int, events: int) -> None: ...

    def unregister(self, fd: int) -> None: ...

    def poll(self, timeout_ms: float) -> list[tuple[int, int]]:
        """Returns file descriptors and their readiness (``READ | WRITE``); waits at most this long."""
        ...

    def close(self) -> None: ...


class EpollPoller:
    """Uses epoll, on Linux."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self.register = self._epoll.register
        self.modify = self._epoll.modify
        self.unregister = self._epoll.unregister
        self.poll = partial(sockets.wait, self._epoll)

    def close(self) -> None:
        self._epoll.close()


class PortablePoller:
    """Uses :mod:`selectors`, on any platform."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def register(self, fd: int, events: int) -> None:
        self._selector.register(fd, self._translate(events))

    def modify(self, fd: int, events: int) -> None:
        self._selector.modify(fd, self._translate(events))

    def unregister(self, fd: int) -> None:
        self._selector.unregister(fd)

    def close(self) -> None:
        self._selector.close()

    def poll(self, timeout_ms: float) -> list[tuple[int, int]]:
        return [
            (
                key.fd,
                (READ if events & selectors.EVENT_READ else 0) | (WRITE if events & selectors.EVENT_WRITE else 0),
            )
            for key, events in self._selector.select(timeout_ms / 1000)
        ]

    @staticmethod
    def _translate(events: int) -> int:
        return (selectors.EVENT_READ if events & READ else 0) | (selectors.EVENT_WRITE if events & WRITE else 0)


class Waker(Protocol):
    """Ends the wait of a poller from another thread."""

    fd: int
    """The descriptor that the poller reports after a wakeup."""

    def wake(self) -> None:
        """Ends the current wait, or the next one."""
        ...

    def drain(self) -> None:
        """Called when the descriptor was reported."""
        ...

    def close(self) -> None: ...


class EventfdWaker:
    """Uses an eventfd. epoll reports it once per write, so nothing must be read."""

    def __init__(self, poller: EpollPoller) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        """Guards ``fd`` against being closed during a write: the number could be reused, and the write would go to
        another file. No other lock is taken inside."""
        poller.register(self.fd, READ | select.EPOLLET)

    def wake(self) -> None:
        with self._lock:
            if self.fd >= 0:  # otherwise nothing is waiting
                # This releases the interpreter lock on purpose, so that the woken thread can start. A thread that finds
                # the lock taken sleeps again, which costs one more thread switch.
                os.eventfd_write(self.fd, 1)

    def drain(self) -> None: ...

    def close(self) -> None:
        with self._lock:
            fd, self.fd = self.fd, -1
            if fd >= 0:
                os.close(fd)


class SocketWaker:
    """Uses a socket pair, on any platform."""

    def __init__(self, poller: Poller) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self.fd = self._reader.fileno()
        poller.register(self.fd, READ)

    def wake(self) -> None:
        with suppress(BlockingIOError, OSError):  # full: it will wake up anyway; closed: nothing waits
            self._writer.send(b"\0")

    def drain(self) -> None:
        with suppress(BlockingIOError):
            while len(self._reader.recv(4096)) == 4096:
                pass

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


def make_waker(poller: Poller) -> Waker:
    return EventfdWaker(poller) if isinstance(poller, EpollPoller) and hasattr(os, "eventfd") else SocketWaker(poller)


def make_poller() -> Poller:
    return EpollPoller() if hasattr(select, "epoll") else PortablePoller()


def readable(events: int) -> int:
    return events & (READ | _HANGUP)


def writable(events: int) -> int:
    return events & WRITE
