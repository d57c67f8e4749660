"""Computes throttle times from violations of quotas.

All of them are whole milliseconds, rounded half up.
"""

from __future__ import annotations

import math

from barnabas.metrics.sensor import QuotaViolationError
from barnabas.metrics.stats import TokenBucket

_FOREVER_MS = 2**63 - 1


def throttle_time(violation: QuotaViolationError, time_ms: int) -> int:
    """Returns the time after which a rate is back at its bound, if nothing more is recorded.

    The rate O was observed over a window W; the bound is T. Stretching the window by X brings it down to T when
    O * W / (W + X) = T, so X = (O - T) / T * W. W is the divisor that the rate itself was computed with.
    """
    excess = _divided(violation.value - violation.bound, violation.bound)
    return _rounded(excess * violation.metric.window_size(time_ms))


def bounded_throttle_time(violation: QuotaViolationError, max_throttle_ms: int, time_ms: int) -> int:
    """Limits the throttle time: request and connection-rate quotas throttle for one window at most."""
    return min(throttle_time(violation, time_ms), max_throttle_ms)


def token_bucket_throttle_time(violation: QuotaViolationError) -> int:
    """Returns the time after which the missing tokens have been refilled."""
    if not isinstance(violation.metric.measurable, TokenBucket):
        raise TypeError(f"{violation.metric.name} is not a token bucket: {violation.metric.measurable!r}")
    return _rounded(_divided(-violation.value, violation.bound) * 1_000)


def _divided(value: float, bound: float) -> float:
    """Divides by a bound, which may be zero: such a quota stays violated forever."""
    if bound != 0:
        return value / bound
    return math.copysign(math.inf, value) if value else math.nan


def _rounded(milliseconds: float) -> int:
    if math.isnan(milliseconds):
        return 0
    if math.isinf(milliseconds):
        return _FOREVER_MS if milliseconds > 0 else -_FOREVER_MS - 1
    whole = math.floor(milliseconds)
    return min(max(whole + (milliseconds - whole >= 0.5), -_FOREVER_MS - 1), _FOREVER_MS)
