"""The usage of quotas, and the throttle time that more usage would cause.

``barnabas quotas explain`` and the ``/quotas`` page use it to explain why a client is throttled.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, Self

from barnabas.common.dataclass import dataclass, replace
from barnabas.metrics.sensor import Sensor
from barnabas.metrics.stats import TokenBucket
from barnabas.quota.client_quota_manager import MAX_THROTTLE_MS, NO_LIMIT, ClientQuotaManager
from barnabas.quota.client_request_quota_manager import ClientRequestQuotaManager
from barnabas.quota.quota_type import ClientQuotaType

_UNCAPPED: Final = frozenset({ClientQuotaType.PRODUCE.key, ClientQuotaType.FETCH.key})


@dataclass(frozen=True, slots=True)
class QuotaUsage:
    """The usage of a group of clients that share a quota, at one moment."""

    key: str
    """The quota key, for example ``producer_byte_rate``."""
    tags: Mapping[str, str]
    """The clients."""
    limit: float | None
    """Per second; None for no limit."""
    usage: float
    """Per second. For a token bucket: the remaining tokens."""
    window_ms: int
    """The period of the average. For a token bucket: its capacity, as time at the rate of the limit."""
    is_token_bucket: bool = False
    max_throttle_ms: int = MAX_THROTTLE_MS
    throttle_time_ms: float | None = None
    """The mean throttle time; None if the clients were not throttled recently."""

    def after(self, amount: float) -> QuotaUsage:
        """Returns the usage after this additional amount."""
        if self.is_token_bucket:
            return replace(self, usage=self.usage - amount)
        return replace(self, usage=self.usage + amount * 1_000 / self.window_ms)

    @property
    def throttle_ms(self) -> int:
        """Returns the throttle time of a client now.

        It is computed as for a request: the excess over the limit, as time at the rate of the limit.
        """
        if self.limit is None:
            return 0
        excess = -self.usage * 1_000 if self.is_token_bucket else (self.usage - self.limit) * self.window_ms
        return max(0, min(math.floor(excess / self.limit + 0.5), self.max_throttle_ms))

    @classmethod
    def unused(cls, key: str, limit: float, samples: int, window_ms: int) -> Self:
        """Returns the usage of idle clients: their windows are empty, their bucket is full."""
        if key == ClientQuotaType.CONTROLLER_MUTATION.key:
            return cls(key, {}, limit, samples * window_ms / 1_000 * limit, samples * window_ms, is_token_bucket=True)
        cap_ms = MAX_THROTTLE_MS if key in _UNCAPPED else window_ms
        return cls(key, {}, limit, 0.0, max(samples - 1, 1) * window_ms, max_throttle_ms=cap_ms)

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "tags": dict(self.tags),
            "limit": self.limit,
            "usage": self.usage,
            "window_ms": self.window_ms,
            "is_token_bucket": self.is_token_bucket,
            "max_throttle_ms": self.max_throttle_ms,
            "throttle_time_ms": self.throttle_time_ms,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Parses the output of `to_json`; raises KeyError, TypeError or ValueError for anything else."""
        return cls(
            key=str(data["key"]),
            tags={str(name): str(value) for name, value in data["tags"].items()},
            limit=None if data["limit"] is None else float(data["limit"]),
            usage=float(data["usage"]),
            window_ms=int(data["window_ms"]),
            is_token_bucket=bool(data["is_token_bucket"]),
            max_throttle_ms=int(data["max_throttle_ms"]),
            throttle_time_ms=None if data["throttle_time_ms"] is None else float(data["throttle_time_ms"]),
        )


def usage_of(managers: Iterable[ClientQuotaManager], now_ms: int) -> list[QuotaUsage]:
    """Returns the usage of all groups of clients. Several managers may share sensors."""
    found = []
    seen: set[Sensor] = set()
    for manager in managers:
        for sensors in manager.all_sensors():
            metric = manager.metric(sensors)
            if metric is None or metric.config.quota is None or sensors.quota_sensor in seen:
                continue
            seen.add(sensors.quota_sensor)
            is_bucket = isinstance(metric.measurable, TokenBucket)
            config = metric.config
            bound = metric.config.quota.bound
            throttle_time = manager.throttle_time_metric(sensors)
            delay = math.nan if throttle_time is None else throttle_time.value(now_ms)
            found.append(
                QuotaUsage(
                    manager.quota_type.client_quota_type.key,
                    sensors.tags,
                    None if bound >= NO_LIMIT else bound,
                    metric.value(now_ms),
                    config.samples * config.window_ms if is_bucket else metric.window_size(now_ms),
                    is_bucket,
                    manager.max_throttle_ms if isinstance(manager, ClientRequestQuotaManager) else MAX_THROTTLE_MS,
                    None if math.isnan(delay) else delay,
                )
            )
    return found
