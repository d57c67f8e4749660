"""Places the I/O thread on a machine with two cores, of which the broker needs one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final

ANYWHERE: Final = -1
CORES: Final = 2
"""With more cores, the system finds an idle one for each thread."""


class CoreSharing:
    """Keeps the I/O thread on the core of the thread that fills tables, while a broker on this machine takes them.

    The two threads of a producer take turns, because both need the interpreter. The broker can write one batch while
    the next one is made. But the scheduler does not know that: a response wakes the I/O thread on the broker's core, as
    if the broker were finished. Then the broker waits while the other core is idle. On a machine with two cores that
    costs a quarter of the rate.

    The application's thread stays on its core, and the I/O thread follows it. The I/O thread may run anywhere again as
    soon as nothing is in flight. Only Linux reports a thread's core and lets it choose.
    """

    __slots__ = ("_allowed", "_at", "_core", "_wanted")

    def __init__(self, allowed: set[int], core: Callable[[], int]) -> None:
        self._allowed = allowed
        self._core = core
        self._wanted = self._at = ANYWHERE

    @classmethod
    def if_useful(cls) -> CoreSharing | None:
        """Returns an instance on such machines, else None."""
        if sys.platform != "linux":
            return None
        allowed = os.sched_getaffinity(0)
        return cls(allowed, _system_call_for_core()) if len(allowed) == CORES else None

    @property
    def is_bound(self) -> bool:
        return self._at != ANYWHERE

    def fills_here(self) -> None:
        """Records the core of the application's thread, which is making a batch."""
        self._wanted = self._core()

    def follow(self) -> None:
        """Moves the I/O thread to that core."""
        if self._wanted != self._at:
            self._go(self._wanted)

    def let_go(self) -> None:
        """Lets the I/O thread run on any core, because nothing is in flight."""
        self._wanted = ANYWHERE
        self._go(ANYWHERE)

    def _go(self, core: int) -> None:
        self._at = core
        try:
            os.sched_setaffinity(0, self._allowed if core == ANYWHERE else {core})
        except OSError:  # the core was taken from this process: run anywhere
            self._wanted = ANYWHERE


def _system_call_for_core() -> Callable[[], int]:
    """Returns ``sched_getcpu``, which ``os`` lacks: the number of the calling thread's core."""
    import ctypes  # takes milliseconds to load, and only send_table needs it

    call: Callable[[], int] = ctypes.CDLL(None).sched_getcpu
    return call


__all__ = ["ANYWHERE", "CORES", "CoreSharing"]
