"""What a stat has to offer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from barnabas.common.named_tuple import NamedTuple
from barnabas.metrics.config import MetricConfig
from barnabas.metrics.names import MetricName


@runtime_checkable
class Measurable(Protocol):
    """Something with a value at a point in time."""

    def measure(self, config: MetricConfig, now_ms: int, /) -> float: ...


class Stat(Protocol):
    """Something that takes values in."""

    def record(self, config: MetricConfig, value: float, time_ms: int, /) -> None: ...


class MeasurableStat(Stat, Measurable, Protocol):
    """A stat with one result: almost all of them."""


class NamedMeasurable(NamedTuple):
    name: MetricName
    stat: Measurable


@runtime_checkable
class CompoundStat(Protocol):
    """A stat with several results, each of which becomes a metric of its own."""

    def record(self, config: MetricConfig, value: float, time_ms: int, /) -> None: ...

    def stats(self) -> Sequence[NamedMeasurable]: ...
