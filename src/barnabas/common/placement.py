"""Pins threads to a core.

Under the global interpreter lock the threads of a request path take turns; they never run Python at the same time. If
the kernel spreads them over several cores, each turn begins with waking a core, which costs more than the turn. Threads
on one core avoid that. The price is that their system calls no longer overlap, and that they cannot move when another
process uses that core.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

log = logging.getLogger(__name__)

Placement = Callable[[], None]
"""Called by each thread of a group when it starts."""


def anywhere() -> None:
    """Leaves the placement of a thread to the kernel."""


def on_one_core(core: int | None = None) -> Placement:
    """Returns a function that pins its threads to one core: the given one, or the last that this process may use.

    The last, because the first ones tend to serve interrupts. Does nothing if the platform does not support it.
    """
    if not hasattr(os, "sched_setaffinity"):
        log.info("Cannot pin threads to a core on this platform")
        return anywhere
    allowed = os.sched_getaffinity(0)
    chosen = max(allowed) if core is None else core
    if chosen not in allowed:
        raise ValueError(f"core {chosen} is not available to this process, which may use {sorted(allowed)}")

    def place() -> None:
        os.sched_setaffinity(0, {chosen})  # 0 is the calling thread

    return place
