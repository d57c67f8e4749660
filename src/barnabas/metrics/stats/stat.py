"""The interfaces of stats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from barnabas.metrics.config import MetricConfig
from barnabas.metrics.names import MetricName


@runtime_checkable
class Measurable(Protocol):
    """Has a value at a point in time."""

    def measure(self, config: MetricConfig, now_ms: int, /) -> float: ...


class Stat(Protocol):
    """Records values."""

    def record(self, config: MetricConfig, value: float, time_ms: int, /) -> None: ...


class MeasurableStat(Stat, Measurable, Protocol):
    """A stat with one result, like almost all."""


class NamedMeasurable(NamedTuple):
    name: MetricName
    stat: Measurable


@runtime_checkable
class CompoundStat(Protocol):
    """A stat with several results, each of which becomes a metric."""

    def record(self, config: MetricConfig, value: float, time_ms: int, /) -> None: ...

    def stats(self) -> Sequence[NamedMeasurable]: ...
