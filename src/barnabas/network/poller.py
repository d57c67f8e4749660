"""Readiness: which sockets can be read or written. The one module that knows how the platform tells.

Linux has epoll; everything else goes through :mod:`selectors`, which picks kqueue on macOS. Both are level-triggered:
a socket is reported again and again until it has been read, so a socket that must not be read is taken out, not merely
ignored.
"""

from __future__ import annotations

import os
import select
import selectors
import socket
import threading
from contextlib import suppress
from typing import Protocol

from barnabas._kernels import sockets

_wait = sockets.wait
READ = 1
WRITE = 4
_HANGUP = 0x18
"""EPOLLERR and EPOLLHUP: reported unasked, and reported here as readable, because reading tells what happened."""


READABLE = READ | _HANGUP


class Poller(Protocol):
    """Watches file descriptors; belongs to one thread."""

    def register(self, fd: int, events: int) -> None: ...

    def modify(self, fd: int, events: int) -> None: ...

    def unregister(self, fd: int) -> None: ...

    def poll(self, timeout_ms: float) -> list[tuple[int, int]]:
        """File descriptors and what they are ready for (``READ | WRITE``); waits for the first one that long."""
        ...

    def close(self) -> None: ...


class EpollPoller:
    """epoll, on Linux."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self.register = self._epoll.register
        self.modify = self._epoll.modify
        self.unregister = self._epoll.unregister

    def poll(self, timeout_ms: float) -> list[tuple[int, int]]:
        return _wait(self._epoll, timeout_ms)

    def close(self) -> None:
        self._epoll.close()


class PortablePoller:
    """Whatever :mod:`selectors` has to offer."""

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
    """What the poller reports when it was woken."""

    def wake(self) -> None:
        """Ends the wait that is under way, or the next one."""
        ...

    def drain(self) -> None:
        """Called when it was reported."""
        ...

    def close(self) -> None: ...


class EventfdWaker:
    """An eventfd, which epoll reports once for each time that it was written to: there is nothing to be read."""

    def __init__(self, poller: EpollPoller) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        """Guards ``fd`` against being closed while it is written to: the number is used again, and the write would go
        to whatever file has it then. Nothing else is locked inside."""
        poller.register(self.fd, READ | select.EPOLLET)

    def wake(self) -> None:
        with self._lock:
            if self.fd >= 0:  # else nobody is waiting
                # This gives the interpreter lock away, on purpose: whoever is woken can start with it. One that finds
                # it taken goes back to sleep, which is one more switch of threads.
                os.eventfd_write(self.fd, 1)

    def drain(self) -> None: ...

    def close(self) -> None:
        with self._lock:
            fd, self.fd = self.fd, -1
            if fd >= 0:
                os.close(fd)


class SocketWaker:
    """Two sockets, on any platform."""

    def __init__(self, poller: Poller) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self.fd = self._reader.fileno()
        poller.register(self.fd, READ)

    def wake(self) -> None:
        with suppress(BlockingIOError, OSError):  # full: it will wake up anyway; closed: nobody is waiting
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
