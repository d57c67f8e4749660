"""Exponential back-off: the delay before the next attempt."""

from __future__ import annotations

import math
from random import Random


class ExponentialBackoff:
    """Computes delays that grow with each failed attempt, up to a limit, with random jitter.

    With 50 ms, a factor of 2, at most 1000 ms and a jitter of 0.2, attempt 0 waits 40 to 60 ms, attempt 1 waits 80 to
    120, attempt 4 waits 640 to 960, and from attempt 5 on it is 800 to 1000 ms. The jitter keeps a thousand clients of
    a broker that went down from reconnecting in the same millisecond.
    """

    __slots__ = ("_initial", "_jitter", "_max", "_max_exponent", "_multiplier", "_random")

    def __init__(self, initial_ms: int, multiplier: float, max_ms: int, jitter: float, random: Random) -> None:
        if initial_ms < 0 or max_ms < 0 or multiplier < 1 or not 0 <= jitter < 1:
            raise ValueError(
                f"a back-off from {initial_ms} to {max_ms} ms by a factor of {multiplier} with a jitter of {jitter}"
            )
        self._initial = min(initial_ms, max_ms)
        self._multiplier = multiplier
        self._max = max_ms
        self._jitter = jitter
        self._random = random
        # The attempt that reaches the limit. A larger exponent could overflow.
        growing = max_ms > initial_ms and multiplier > 1
        self._max_exponent = math.log(max_ms / max(initial_ms, 1), multiplier) if growing else 0.0

    def backoff(self, attempts: int) -> int:
        """Milliseconds to wait after this many failed attempts; never more than the limit."""
        if self._max_exponent == 0:
            return self._initial
        term = self._initial * self._multiplier ** min(attempts, self._max_exponent)
        factor = self._random.uniform(1 - self._jitter, 1 + self._jitter) if self._jitter else 1.0
        return min(int(factor * term), self._max)

    def __repr__(self) -> str:
        return f"ExponentialBackoff({self._initial} to {self._max} ms, x{self._multiplier}, jitter {self._jitter})"
