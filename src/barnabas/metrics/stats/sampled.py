"""Stats over the recent past, kept in windows of time."""

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
"""Less is no date that was set back, but threads that have read the clock in one order and come here in another."""


class Sample:
    """What was recorded in one window."""

    __slots__ = ("event_count", "last_event_ms", "start_ms", "value")

    def __init__(self, initial_value: float, now_ms: int) -> None:
        self.reset(initial_value, now_ms)

    def reset(self, initial_value: float, now_ms: int) -> None:
        """Begins a new window in the place of the old one."""
        self.value = initial_value
        self.event_count = 0
        self.start_ms = now_ms
        self.last_event_ms = now_ms

    def __repr__(self) -> str:
        return f"Sample({self.value!r}, {self.event_count} events, {self.start_ms}..{self.last_event_ms})"


class SampledStat(ABC):
    """A value over the last few windows; subclasses say how values add up.

    Windows are not aligned to the clock: a window starts with the first value after the one before it was over, and a
    time without values has no windows at all. With `samples` = 2 and windows of one second:

        time  0.0  0.4        1.3  1.9              5.0
        value   1    2          3    4                5
              [--------)      [--------)          [-----
              sample 0 = 3    sample 1 = 7        sample 2 = 5

    The window that was opened at 0.0 is over at 1.0, but nobody looks before 1.3; then the next one starts, at 1.3.

    What counts at time t is every sample that has an event in the last ``samples * window``, which is 2 seconds here:
    the sum is 10 at 2.3; it is 7 from 2.4 on, when the last event of sample 0 is 2 seconds old; it is 5 at 5.0. A
    sample is either in or out. One that began before the monitored time but reaches into it counts in full, so the
    windows that count can span a little more than ``samples`` windows, and one more than `samples` must be kept.

    A sample that is too old is not removed but started again, empty, at the time somebody looked. That has a
    consequence for rates: an idle stat has its oldest sample right now.

    Times are dates, and a date can be set back. If it is before the current window by more than the monitored time, all
    samples are moved back with it, as if no time had passed. Else the current window would not be over before the date
    is what it was, and a quota would take all that is sent until then for the work of a few seconds.

    Two things follow from the samples and change only with a window: the start of the oldest one, and the oldest last
    event of all but the current one. They are kept beside them, so that looking whether anything is too old, which a
    quota does for every request, does not walk over twelve samples.
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
        """Counts in windows of this width from now on, whatever the configuration says."""
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
            # Here a window may end, if it can do so in the midst of them.
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
        """Makes one value of all samples that count."""

    def current(self, now_ms: int) -> Sample:
        """The sample that takes the next value; there is none before the first use."""
        if self._current is None:
            self._current = Sample(self._initial_value, now_ms)
            self.samples.append(self._current)
            self._note_times()
        return self._current

    def oldest(self, now_ms: int) -> int:
        """When the oldest sample began; without any the first one begins now."""
        if self._current is None:
            self.current(now_ms)
        return self._oldest_ms

    def purge_obsolete_samples(self, config: MetricConfig, now_ms: int) -> None:
        """Starts every sample again whose last event is out of the monitored time."""
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
        """The sample for a value that may not belong to the current one."""
        window_ms = self._window_ms or config.window_ms
        if sample.start_ms - time_ms > config.samples * window_ms:
            self._set_back(sample, time_ms)
        if time_ms - sample.start_ms >= window_ms or sample.event_count >= config.event_window:
            return self._advance(config, time_ms)
        return sample

    def _set_back(self, current: Sample, now_ms: int) -> None:
        """Moves all samples to a date that was set back: the current one begins now."""
        step_ms = current.start_ms - now_ms
        if step_ms < SET_BACK_MS:
            return
        for sample in self.samples:
            sample.start_ms -= step_ms
            sample.last_event_ms -= step_ms
        current.last_event_ms = now_ms  # it may have been recorded into at the new date already
        self._note_times()

    def _advance(self, config: MetricConfig, time_ms: int) -> Sample:
        """Goes on to the next sample: a new one as long as there are too few, else the one that is next in turn."""
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
        # Only the current sample's last event still moves, so it stays out of this and is looked at each time.
        self._earlier_event_ms = min(
            (sample.last_event_ms for sample in self.samples if sample is not self._current), default=sys.maxsize
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.samples!r}, current={self._current_index})"


class WindowedSum(SampledStat):
    """The sum of the values."""

    __slots__ = ()

    def __init__(self, window_ms: int | None = None) -> None:
        super().__init__(0.0, window_ms)

    def update(self, sample: Sample, value: float) -> None:
        sample.value += value

    def update_all(self, sample: Sample, values: Sequence[float]) -> None:
        # One addition after the other, as `update` does it: sum() has its own way with floats since Python 3.12.
        sample.value = reduce(add, values, sample.value)

    def combine(self, samples: Sequence[Sample]) -> float:
        # Not sum(), which since Python 3.12 corrects rounding errors that Kafka makes.
        total = 0.0
        for sample in samples:
            total += sample.value
        return total


class WindowedCount(WindowedSum):
    """How many values there were."""

    __slots__ = ()

    def update(self, sample: Sample, value: float) -> None:  # noqa: ARG002 - whatever it is, it is one more
        sample.value += 1.0

    def update_all(self, sample: Sample, values: Sequence[float]) -> None:
        sample.value += len(values)


class Avg(SampledStat):
    """The mean of the values; not a number when there are none."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(0.0)

    def update(self, sample: Sample, value: float) -> None:
        sample.value += value

    def update_all(self, sample: Sample, values: Sequence[float]) -> None:
        # One addition after the other, as `update` does it: sum() has its own way with floats since Python 3.12.
        sample.value = reduce(add, values, sample.value)

    def combine(self, samples: Sequence[Sample]) -> float:
        total = 0.0
        count = 0
        for sample in samples:
            total += sample.value
            count += sample.event_count
        return total / count if count else math.nan


class Max(SampledStat):
    """The greatest value; not a number when there is none, or when one of them was not a number."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(-math.inf)

    def update(self, sample: Sample, value: float) -> None:
        if value > sample.value or math.isnan(value):
            sample.value = value

    def update_all(self, sample: Sample, values: Sequence[float]) -> None:
        if math.isnan(sum(values)):  # one of them may not be a number
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
    """The least value; not a number when there is none, or when one of them was not a number.

    A sample starts from the largest finite number, as in Kafka: if only infinity was recorded, that is the least.
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
