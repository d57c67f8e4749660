"""Limits a loop to a rate."""

from __future__ import annotations

import math
from typing import Final

from barnabas.common.clock import Clock

LEAST_PAUSE_MS: Final = 2.0
"""The shortest pause. Shorter ones take longer than requested."""


class Pace:
    """Limits its caller to ``rate`` operations a second, on average since the start.

    A caller that was delayed by something else catches up with a burst. ``catch_up_ms`` limits that burst to the
    operations of that much time.
    """

    def __init__(self, rate: float | None, clock: Clock, catch_up_ms: float = math.inf) -> None:
        self._interval_ns = None if rate is None else 1e9 / rate
        self._catch_up_ms = catch_up_ms
        self._clock = clock
        self._started: float = clock.nanoseconds()

    def wait_for(self, count: int) -> None:
        """Blocks until operation number ``count``, counted from 0, is due."""
        if self._interval_ns is None:
            return
        ahead_ms = (self._started + count * self._interval_ns - self._clock.nanoseconds()) / 1e6
        if ahead_ms >= LEAST_PAUSE_MS:
            self._clock.sleep(ahead_ms)
        elif -ahead_ms > self._catch_up_ms:
            self._started += (-ahead_ms - self._catch_up_ms) * 1e6
