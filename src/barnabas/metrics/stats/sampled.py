"""Stats over the recent past, kept in time windows."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Final

from barnabas.metrics.config import MetricConfig

SET_BACK_MS: Final = 1_000
"""A smaller step back is not a changed clock but a race between threads that read the clock and then record."""


class Sample:
    """The values recorded in one window."""

    __slots__ = ("event_count", "last_event_ms", "start_ms", "value")

    def __init__(self, initial_value: float, now_ms: int) -> None:
        self.reset(initial_value, now_ms)

    def reset(self, initial_value: float, now_ms: int) -> None:
        """Reuses the sample for a new window."""
        self.value = initial_value
        self.event_count = 0
        self.start_ms = now_ms
        self.last_event_ms = now_ms

    def __repr__(self) -> str:
        return f"Sample({self.value!r}, {self.event_count} events, {self.start_ms}..{self.last_event_ms})"


class SampledStat(ABC):
    """A value over the last few windows; subclasses define how values combine.

    Windows are not aligned to the clock: a window starts with the first value after the previous one ended, and a time
    without values has no windows. With `samples` = 2 and windows of one second:

        time  0.0  0.4        1.3  1.9              5.0
        value   1    2          3    4                5
              [--------)      [--------)          [-----
              sample 0 = 3    sample 1 = 7        sample 2 = 5

    The window that began at 0.0 ends at 1.0, but nothing is recorded before 1.3; so the next one starts at 1.3.

    A measurement at time t includes every sample with an event in the last ``samples * window``, which is 2 seconds
    here: the sum is 10 at 2.3; it is 7 from 2.4 on, when the last event of sample 0 is 2 seconds old; it is 5 at 5.0. A
    sample counts in full or not at all. One that began before the monitored time but reaches into it counts in full, so
    the included windows can span a little more than ``samples`` windows, and one more than `samples` must be kept.

    An obsolete sample is not removed but reset, empty, at the time of the measurement. This affects rates: the oldest
    sample of an idle stat begins now.

    Times are wall-clock times, which can be set back. If the time is before the current window by more than the
    monitored time, all samples are moved back with it, as if no time had passed. Otherwise the current window would not
    end until the clock has caught up, and a quota would attribute everything until then to a few seconds.

    Two values depend on the samples and change only with a window: the start of the oldest one, and the oldest last
    event of all but the current one. They are cached, so that checking for obsolete samples, which a quota does for
    every request, does not iterate over twelve samples.
    """

    __slots__ = (
        "_current",
        "_current_index",
        "_earlier_event_ms",
        "_initial_value",
        "_oldest_ms",
        "_window_ms",
        "samples",
    )

    def __init__(self, initial_value: float, window_ms: int | None = None) -> None:
        self._initial_value = initial_value
        self._window_ms = window_ms
        self._current: Sample | None = None
        self._current_index = 0
        self.samples: list[Sample] = []

    def use_window(self, window_ms: int) -> None:
        """Uses windows of this width from now on, regardless of the configuration."""
        self._window_ms = window_ms

    def record(self, config: MetricConfig, value: float, time_ms: int) -> None:
        sample = self._current or self.current(time_ms)
        if (
            not 0 <= time_ms - sample.start_ms < (self._window_ms or config.window_ms)
            or sample.event_count >= config.event_window
        ):
            sample = self._next(sample, config, time_ms)
        self.update(sample, value)
        sample.event_count += 1
        sample.last_event_ms = time_ms

    def record_all(self, config: MetricConfig, values: Sequence[float], time_ms: int) -> None:
        """`record` for several values of the same time."""
        sample = self._current or self.current(time_ms)
        if (
            not 0 <= time_ms - sample.start_ms < (self._window_ms or config.window_ms)
            or sample.event_count + len(values) > config.event_window
        ):
            # A window may end between two of the values.
            for value in values:
                self.record(config, value, time_ms)
            return
        self.update_all(sample, values)
        sample.event_count += len(values)
        sample.last_event_ms = time_ms

    def measure(self, config: MetricConfig, now_ms: int) -> float:
        self.purge_obsolete_samples(config, now_ms)
        return self.combine(self.samples)

    @abstractmethod
    def update(self, sample: Sample, value: float) -> None:
        """Adds a value to a sample."""

    def update_all(self, sample: Sample, values: Sequence[float]) -> None:
        """Adds several values to a sample."""
        for value in values:
            self.update(sample, value)

    @abstractmethod
    def combine(self, samples: Sequence[Sample]) -> float:
        """Combines all included samples into one value."""

    def current(self, now_ms: int) -> Sample:
        """Returns the sample for the next value, and creates the first one."""
        if self._current is None:
            self._current = Sample(self._initial_value, now_ms)
            self.samples.append(self._current)
            self._note_times()
        return self._current

    def oldest(self, now_ms: int) -> int:
        """Returns the start of the oldest sample; without any, the first one begins now."""
        if self._current is None:
            self.current(now_ms)
        return self._oldest_ms

    def purge_obsolete_samples(self, config: MetricConfig, now_ms: int) -> None:
        """Resets every sample whose last event is before the monitored time."""
        current = self._current
        if current is None:
            return
        expire_age_ms = config.samples * (self._window_ms or config.window_ms)
        if current.start_ms - now_ms > expire_age_ms:
            self._set_back(current, now_ms)
        if now_ms - self._earlier_event_ms < expire_age_ms and now_ms - current.last_event_ms < expire_age_ms:
            return
        for sample in self.samples:
            if now_ms - sample.last_event_ms >= expire_age_ms:
                sample.reset(self._initial_value, now_ms)
        self._note_times()

    def _next(self, sample: Sample, config: MetricConfig, time_ms: int) -> Sample:
        """Returns the sample for a value that may not belong to the current one."""
        window_ms = self._window_ms or config.window_ms
        if sample.start_ms - time_ms > config.samples * window_ms:
            self._set_back(sample, time_ms)
        if time_ms - sample.start_ms >= window_ms or sample.event_count >= config.event_window:
            return self._advance(config, time_ms)
        return sample

    def _set_back(self, current: Sample, now_ms: int) -> None:
        """Moves all samples to a clock that was set back: the current one begins now."""
        step_ms = current.start_ms - now_ms
        if step_ms < SET_BACK_MS:
            return
        for sample in self.samples:
            sample.start_ms -= step_ms
            sample.last_event_ms -= step_ms
        current.last_event_ms = now_ms  # it may already have values with the new time
        self._note_times()

    def _advance(self, config: MetricConfig, time_ms: int) -> Sample:
        """Advances to the next sample: a new one while there are too few, otherwise the next one in turn."""
        self._current_index = (self._current_index + 1) % (config.samples + 1)
        if self._current_index >= len(self.samples):
            self._current = Sample(self._initial_value, time_ms)
            self.samples.append(self._current)
        else:
            self._current = self.samples[self._current_index]
            self._current.reset(self._initial_value, time_ms)
        self._note_times()
        return self._current

    def _note_times(self) -> None:
        self._oldest_ms = min(sample.start_ms for sample in self.samples)
        # Only the last event of the current sample still changes, so it is left out here and checked each time.
        self._earlier_event_ms = min(
            (sample.last_event_ms for sample in self.samples if sample is not self._current), default=sys.maxsize
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.samples!r}, current={self._current_index})"


class _SummedStat(SampledStat):
    """A statistic whose samples are sums of values."""

    __slots__ = ()

    def update(self, sample: Sample, value: float) -> None:
        sample.value += value

    def update_all(self, sample: Sample, values: Sequence[float]) -> None:
        # Adds one by one, as `update` does: sum() adds floats differently since Python 3.12.
        sample.value = reduce(add, values, sample.value)


class WindowedSum(_SummedStat):
    """The sum of the values."""

    __slots__ = ()

    def __init__(self, window_ms: int | None = None) -> None:
        super().__init__(0.0, window_ms)

    def combine(self, samples: Sequence[Sample]) -> float:
        # Not sum(), which since Python 3.12 compensates rounding errors that Kafka has.
        total = 0.0
        for sample in samples:
            total += sample.value
        return total


class WindowedCount(WindowedSum):
    """The number of values."""

    __slots__ = ()

    def update(self, sample: Sample, value: float) -> None:  # noqa: ARG002 - every value counts as one
        sample.value += 1.0

    def update_all(self, sample: Sample, values: Sequence[float]) -> None:
        sample.value += len(values)


class Avg(_SummedStat):
    """The mean of the values; NaN without values."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(0.0)

    def combine(self, samples: Sequence[Sample]) -> float:
        total = 0.0
        count = 0
        for sample in samples:
            total += sample.value
            count += sample.event_count
        return total / count if count else math.nan


class Max(SampledStat):
    """The greatest value; NaN without values, or if one of them is NaN."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(-math.inf)

    def update(self, sample: Sample, value: float) -> None:
        if value > sample.value or math.isnan(value):
            sample.value = value

    def update_all(self, sample: Sample, values: Sequence[float]) -> None:
        if math.isnan(sum(values)):  # one of them may be NaN
            super().update_all(sample, values)
        elif (greatest := max(values)) > sample.value:
            sample.value = greatest

    def combine(self, samples: Sequence[Sample]) -> float:
        greatest = -math.inf
        count = 0
        for sample in samples:
            if sample.value > greatest or math.isnan(sample.value):
                greatest = sample.value
            count += sample.event_count
        return greatest if count else math.nan


class Min(SampledStat):
    """The least value; NaN without values, or if one of them is NaN.

    A sample starts from the largest finite number, as in Kafka: if only infinity was recorded, that number is the
    least.
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(sys.float_info.max)

    def update(self, sample: Sample, value: float) -> None:
        if value < sample.value or math.isnan(value):
            sample.value = value

    def update_all(self, sample: Sample, values: Sequence[float]) -> None:
        least = sample.value
        for value in values:
            if value < least or value != value:  # noqa: PLR0124 - not a number
                least = value
        sample.value = least

    def combine(self, samples: Sequence[Sample]) -> float:
        least = sys.float_info.max
        count = 0
        for sample in samples:
            if sample.value < least or math.isnan(sample.value):
                least = sample.value
            count += sample.event_count
        return least if count else math.nan
