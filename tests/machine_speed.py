"""How slow the machine is because of what else it does, for tests that limit a time."""

from __future__ import annotations

import time

CPU_S = 0.1


def slowdown() -> float:
    """How much longer than its CPU time this process takes for some work, because of what else the machine does."""
    started, before = time.perf_counter(), time.thread_time()
    while time.thread_time() - before < CPU_S:
        pass
    return max((time.perf_counter() - started) / (time.thread_time() - before), 1.0)
