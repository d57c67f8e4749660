"""Where threads run.

Under the global interpreter lock the threads of a request path take turns; they never run Python at the same time.
When the kernel spreads them over several cores, each turn begins with waking a core, and that costs more than the
turn. A group of threads that is kept on one core hands over without it. The price is that their system calls no longer
overlap either, and that they cannot move when something else takes that core.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

log = logging.getLogger(__name__)

Placement = Callable[[], None]
"""Called by each thread of a group when it starts."""


def anywhere() -> None:
    """Leaves a thread where the kernel puts it."""


def on_one_core(core: int | None = None) -> Placement:
    """Keeps all threads that call what this returns on one core: the given one, or the last that this process may use.

    The last, because the first ones tend to serve the interrupts. Where the platform cannot do it, nothing happens.
    """
    if not hasattr(os, "sched_setaffinity"):
        log.info("Cannot pin threads to a core on this platform")
        return anywhere
    allowed = os.sched_getaffinity(0)
    chosen = max(allowed) if core is None else core
    if chosen not in allowed:
        raise ValueError(f"core {chosen} is not available to this process, which may use {sorted(allowed)}")

    def place() -> None:
        os.sched_setaffinity(0, {chosen})  # of the calling thread alone

    return place
