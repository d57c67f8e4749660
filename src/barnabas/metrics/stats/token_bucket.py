"""The token bucket (KIP-599)."""

from __future__ import annotations

from barnabas.metrics.config import MetricConfig
from barnabas.metrics.stats.sampled import SET_BACK_MS
from barnabas.metrics.units import TimeUnit

_UNLIMITED = float(2**63 - 1)


class TokenBucket:
    """A credit that is refilled steadily and spent by recorded values. Controller mutations are limited with it.

    The quota's bound is the refill rate. The capacity is the refill of all windows together, ``samples * window *
    bound``: the burst. Recording first refills for the time since the last call, then spends. Recording never fails:
    the credit may become negative, and then the quota is violated until enough has been refilled.

    Why not a `Rate`? One large value keeps a rate above its bound as long as its sample counts. Take a bound of 5 per
    second over 100 samples of one second, and one request that creates 560 partitions:

    * As a rate that is 560 / 100 = 5.6 per second, and the throttle time is (5.6 - 5) / 5 * 100 = 12 seconds. But the
      sample stays, so after 12 seconds the rate is as high as before; it falls only when the sample becomes obsolete,
      after 100 seconds.
    * The bucket holds 500. Now it has -60 tokens, and after 60 / 5 = 12 seconds it is back at zero.

    A negative value returns tokens, up to the capacity. Without a quota nothing is counted and the credit is the
    largest float. A bucket starts empty in 1970, so by now it is full.
    """

    __slots__ = ("_last_update_ms", "_tokens", "unit")

    def __init__(self, unit: TimeUnit = TimeUnit.SECONDS) -> None:
        self.unit = unit
        self._tokens = 0.0
        self._last_update_ms = 0

    def record(self, config: MetricConfig, value: float, time_ms: int) -> None:
        if config.quota is None:
            return
        burst = self._refill(config, config.quota.bound, time_ms)
        self._tokens = min(burst, self._tokens - value)

    def measure(self, config: MetricConfig, now_ms: int) -> float:
        """Returns the remaining tokens; negative if the quota is exhausted."""
        if config.quota is None:
            return _UNLIMITED
        self._refill(config, config.quota.bound, now_ms)
        return self._tokens

    def _refill(self, config: MetricConfig, per_unit: float, now_ms: int) -> float:
        """Adds the tokens since the last call, and returns the capacity."""
        unit = self.unit
        burst = config.samples * unit.from_milliseconds(config.window_ms) * per_unit
        elapsed_ms = now_ms - self._last_update_ms
        if elapsed_ms < -max(config.samples * config.window_ms, SET_BACK_MS):
            elapsed_ms = 0  # the clock was set back; that must not drain the bucket
        self._tokens = min(burst, self._tokens + per_unit * unit.from_milliseconds(elapsed_ms))
        self._last_update_ms = now_ms
        return burst

    def __repr__(self) -> str:
        return f"TokenBucket({self._tokens!r} tokens at {self._last_update_ms})"
