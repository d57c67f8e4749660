"""Readiness: which sockets can be read or written. The one module that knows how the platform tells.

Linux has epoll; everything else goes through :mod:`selectors`, which picks kqueue on macOS. Both are level-triggered:
a socket is reported again and again until it has been read, so a socket that must not be read is taken out, not merely
ignored.
"""

from __future__ import annotations

import select
import selectors
from typing import Protocol

READ = 1
WRITE = 4
_HANGUP = 0x18
"""EPOLLERR and EPOLLHUP: reported unasked, and reported here as readable, because reading tells what happened."""


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

    MAX_EVENTS = 512

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self.register = self._epoll.register
        self.modify = self._epoll.modify
        self.unregister = self._epoll.unregister
        self.close = self._epoll.close

    def poll(self, timeout_ms: float) -> list[tuple[int, int]]:
        return self._epoll.poll(timeout_ms / 1000, self.MAX_EVENTS)


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


def make_poller() -> Poller:
    return EpollPoller() if hasattr(select, "epoll") else PortablePoller()


def readable(events: int) -> int:
    return events & (READ | _HANGUP)


def writable(events: int) -> int:
    return events & WRITE
