"""Stats without windows: the last value, and totals since the start."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.metrics.config import MetricConfig


class Value:
    """The last recorded value; 0 before the first."""

    __slots__ = ("_value",)

    def __init__(self) -> None:
        self._value = 0.0

    def record(self, config: MetricConfig, value: float, time_ms: int) -> None:  # noqa: ARG002 - the interface
        self._value = value

    def record_all(self, config: MetricConfig, values: Sequence[float], time_ms: int) -> None:  # noqa: ARG002
        """`record` for several values."""
        if values:
            self._value = values[-1]

    def measure(self, config: MetricConfig, now_ms: int) -> float:  # noqa: ARG002 - the interface
        return self._value


class CumulativeSum:
    """The sum of all values, from an optional start value."""

    __slots__ = ("_total",)

    def __init__(self, start: float = 0.0) -> None:
        self._total = start

    def record(self, config: MetricConfig, value: float, time_ms: int) -> None:  # noqa: ARG002 - the interface
        self._total += value

    def record_all(self, config: MetricConfig, values: Sequence[float], time_ms: int) -> None:  # noqa: ARG002
        """`record` for several values."""
        total = self._total
        for value in values:
            total += value
        self._total = total

    def measure(self, config: MetricConfig, now_ms: int) -> float:  # noqa: ARG002 - the interface
        return self._total


class CumulativeCount(CumulativeSum):
    """The number of values."""

    __slots__ = ()

    def record(self, config: MetricConfig, value: float, time_ms: int) -> None:  # noqa: ARG002 - the interface
        self._total += 1

    def record_all(self, config: MetricConfig, values: Sequence[float], time_ms: int) -> None:  # noqa: ARG002
        self._total += len(values)
