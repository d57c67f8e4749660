"""The settings of quotas: their sample windows."""

from __future__ import annotations

from typing import Self

from barnabas.common.config_def import ConfigValues
from barnabas.common.dataclass import dataclass, field
from barnabas.metrics.config import MetricConfig


@dataclass(frozen=True, slots=True)
class QuotaWindows:
    """The number of sample windows, including the current one, and their length."""

    samples: int = 11
    window_seconds: int = 1

    @property
    def metric_config(self) -> MetricConfig:
        return MetricConfig(samples=self.samples, window_ms=self.window_seconds * 1_000)


@dataclass(frozen=True, slots=True)
class QuotaConfig:
    """The quota settings of a node; the defaults are Kafka's."""

    client: QuotaWindows = field(default_factory=QuotaWindows)
    """``quota.window.num``, ``quota.window.size.seconds``"""
    controller_mutation: QuotaWindows = field(default_factory=QuotaWindows)
    """``controller.quota.window.*``: the size of the bucket, in seconds at the rate of the limit."""
    replication: QuotaWindows = field(default_factory=QuotaWindows)
    """``replication.quota.window.*``"""
    alter_log_dirs: QuotaWindows = field(default_factory=QuotaWindows)
    """``alter.log.dirs.replication.quota.window.*``"""

    @classmethod
    def from_values(cls, values: ConfigValues) -> Self:
        def windows(prefix: str) -> QuotaWindows:
            return QuotaWindows(
                values.get_int(f"{prefix}quota.window.num"), values.get_int(f"{prefix}quota.window.size.seconds")
            )

        return cls(windows(""), windows("controller."), windows("replication."), windows("alter.log.dirs.replication."))
