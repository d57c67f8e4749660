"""The configuration of a metric: its windows and its bound."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Self

from barnabas.common.dataclass import dataclass, field, replace

_NO_EVENT_LIMIT = 2**63 - 1


class RecordingLevel(IntEnum):
    """The level of detail of a sensor. It records if its level is at most the configured one."""

    INFO = 0
    DEBUG = 1
    TRACE = 2

    def should_record(self, configured: RecordingLevel) -> bool:
        return self <= configured


@dataclass(frozen=True, slots=True)
class Quota:
    """An upper bound on a measured value, as for quotas, or a lower one.

    A value equal to the bound is acceptable.

    >>> Quota(5.0).acceptable(5.0), Quota(5.0).acceptable(5.1), Quota(5.0, upper=False).acceptable(5.1)
    (True, False, True)
    """

    bound: float
    upper: bool = True

    def acceptable(self, value: float) -> bool:
        return value <= self.bound if self.upper else value >= self.bound


@dataclass(frozen=True, slots=True)
class MetricConfig:
    """The windows and the bound of a metric.

    Time is divided into windows of `window_ms`. `samples` of them are kept: the current one and those before it. A
    window also ends after `event_window` values. For quotas the broker uses ``quota.window.num`` = 11 samples of
    ``quota.window.size.seconds`` = 1 second; the defaults here are those of every other metric.

    A configuration is immutable. To change a limit, give the metric another one (`KafkaMetric.reconfigure`): past
    measurements stay, so a new limit applies at once and no usage is lost.
    """

    samples: int = 2
    window_ms: int = 30_000
    quota: Quota | None = None
    event_window: int = _NO_EVENT_LIMIT
    record_level: RecordingLevel = RecordingLevel.INFO
    tags: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ValueError(f"samples must be at least 1: {self.samples}")
        if self.window_ms < 1:
            raise ValueError(f"window_ms must be at least 1: {self.window_ms}")

    def with_quota(self, quota: Quota | None) -> Self:
        """Returns the same windows with another bound."""
        return replace(self, quota=quota)
