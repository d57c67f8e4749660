"""Which core the I/O thread runs on, where there are two, and the broker needs one of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final

ANYWHERE: Final = -1
CORES: Final = 2
"""With more of them, the system finds an idle one for everybody."""


class CoreSharing:
    """Keeps the I/O thread on the core of the thread that fills tables, while a broker on this machine takes them.

    The two threads of a producer take turns, as both need the interpreter. The broker does not: it can write one batch
    while the next one is made. But the system does not know. An answer wakes the I/O thread up, and it takes that for
    the end of what the broker had to do, so that thread gets the broker's core, and the broker waits, while the other
    core has nothing to do. On a machine with two cores that costs a quarter of the rate.

    The application's thread stays where the system has it: it is the I/O thread that follows. It may run anywhere again
    as soon as nothing is in flight. Only Linux says where a thread is, and lets it choose.
    """

    __slots__ = ("_allowed", "_at", "_core", "_wanted")

    def __init__(self, allowed: set[int], core: Callable[[], int]) -> None:
        self._allowed = allowed
        self._core = core
        self._wanted = self._at = ANYWHERE

    @classmethod
    def if_useful(cls) -> CoreSharing | None:
        """None on other machines than those."""
        if sys.platform != "linux":
            return None
        allowed = os.sched_getaffinity(0)
        return cls(allowed, _system_call_for_core()) if len(allowed) == CORES else None

    @property
    def is_bound(self) -> bool:
        return self._at != ANYWHERE

    def fills_here(self) -> None:
        """The application's thread is making a batch."""
        self._wanted = self._core()

    def follow(self) -> None:
        """The I/O thread goes to where that was."""
        if self._wanted != self._at:
            self._go(self._wanted)

    def let_go(self) -> None:
        """The I/O thread has nothing to wait for."""
        self._wanted = ANYWHERE
        self._go(ANYWHERE)

    def _go(self, core: int) -> None:
        self._at = core
        try:
            os.sched_setaffinity(0, self._allowed if core == ANYWHERE else {core})
        except OSError:  # somebody has taken that core away from us: wherever the system wants
            self._wanted = ANYWHERE


def _system_call_for_core() -> Callable[[], int]:
    """``sched_getcpu``, which Python's ``os`` does not have: the number of the core that the calling thread runs on."""
    import ctypes  # takes milliseconds to load, and only send_table needs it

    call: Callable[[], int] = ctypes.CDLL(None).sched_getcpu
    return call


__all__ = ["ANYWHERE", "CORES", "CoreSharing"]
