"""Throttles the I/O of the cleaner."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from barnabas.common.clock import Clock
from barnabas.metrics.yammer.meter import Meter

logger = logging.getLogger(__name__)

CHECK_INTERVAL_MS: Final = 300

_NS_PER_MS: Final = 1_000_000
_NS_PER_SECOND: Final = 1_000_000_000
_LONGEST_PAUSE_MS: Final = 3_600_000.0
"""A thread checks again after an hour. (A tiny rate would otherwise cause a pause of years.)"""

Pause = Callable[[float], object]
"""Waits for a number of milliseconds, or less if the thread is shut down."""


class CleanerThrottler:
    """Limits the total bytes per second of all cleaner threads.

    Every 300 ms it compares the observed bytes with the desired rate. Processing N bytes at the rate R takes N / R; if
    less time than that has passed, the threads wait for the difference. (This is the formula of
    `barnabas.metrics.throttle.throttle_time` for quotas: (O - T) / T * W, with O = N / W and T = R.)

    Kafka sleeps with the lock held, so that the other threads block on the lock. Here the end of the pause is stored,
    and each thread waits for it on its own: without a lock, and interruptible by a shutdown.
    """

    def __init__(self, desired_rate_per_second: float, clock: Clock, meter: Meter) -> None:
        self.desired_rate_per_second = desired_rate_per_second
        self._clock = clock
        self._meter = meter
        self._lock = threading.Lock()
        """Guards the fields below. Only the clock is called inside it."""
        self._period_start_ns = clock.nanoseconds()
        self._observed = 0
        self._resume_ns = self._period_start_ns

    def maybe_throttle(self, observed: int, pause: Pause) -> None:
        """Records bytes read or written, and waits if the rate is exceeded."""
        self._meter.mark(observed)
        wait_ns = self._note(observed)
        if wait_ns > 0:
            pause(min(wait_ns / _NS_PER_MS, _LONGEST_PAUSE_MS))

    def _note(self, observed: int) -> float:
        rate = self.desired_rate_per_second
        with self._lock:
            self._observed += observed
            now = self._clock.nanoseconds()
            elapsed = now - self._period_start_ns
            if elapsed > CHECK_INTERVAL_MS * _NS_PER_MS and self._observed > 0:
                missing = self._observed * _NS_PER_SECOND / rate - elapsed if rate > 0 else float("inf")
                if missing > 0:
                    logger.debug("%d bytes in %d ns are too quick for %s a second", self._observed, elapsed, rate)
                    self._resume_ns = now + int(min(missing, _LONGEST_PAUSE_MS * _NS_PER_MS))
                # The next period begins at the end of the pause.
                self._period_start_ns = max(now, self._resume_ns)
                self._observed = 0
            return self._resume_ns - now
