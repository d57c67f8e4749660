"""Sensors: record values into stats."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from barnabas.common.clock import Clock
from barnabas.common.errors import BarnabasError
from barnabas.metrics.config import MetricConfig, RecordingLevel
from barnabas.metrics.metric import KafkaMetric
from barnabas.metrics.names import MetricName
from barnabas.metrics.stats import CompoundStat, MeasurableStat, TokenBucket

if TYPE_CHECKING:
    from barnabas.metrics.registry import Metrics


TOGETHER_MS: Final = 100
"""The time span within which `Sensor.record_soon` combines values: windows last for seconds."""


class QuotaViolationError(BarnabasError):
    """A recorded value made a metric exceed its bound. The value was recorded nevertheless.

    It is not a failure but a result for the quota managers: the throttle time is computed from `value` and `bound`
    (`barnabas.metrics.throttle`).
    """

    def __init__(self, metric: KafkaMetric, value: float, bound: float) -> None:
        super().__init__(metric, value, bound)
        self.metric = metric
        self.value = value
        self.bound = bound

    def __str__(self) -> str:
        return f"{self.metric.name} violates its quota: {self.value}, the bound is {self.bound}"


class _FixedConfig:
    """Takes the place of a metric for a compound stat, which keeps the configuration it was added with."""

    __slots__ = ("config",)

    def __init__(self, config: MetricConfig) -> None:
        self.config = config


_Recorder: TypeAlias = "tuple[Callable[[MetricConfig, float, int], None], KafkaMetric | _FixedConfig]"
_RecorderOfAll: TypeAlias = "tuple[Callable[[MetricConfig, Sequence[float], int], None], KafkaMetric | _FixedConfig]"


def _of_all(recorder: _Recorder) -> _RecorderOfAll:
    """Returns the recorder for several values: the stat's own method, if it has one."""
    record, holder = recorder
    record_all = getattr(getattr(record, "__self__", None), "record_all", None)

    def one_by_one(config: MetricConfig, values: Sequence[float], time_ms: int) -> None:
        for value in values:
            record(config, value, time_ms)

    return (one_by_one if record_all is None else record_all), holder


class Sensor:
    """Passes values to its stats, and to its parent sensors.

        metrics = Metrics(clock=clock)
        config = MetricConfig(samples=11, window_ms=1_000, quota=Quota(1_048_576))
        sensor = metrics.sensor("produce-bytes", config)
        sensor.add(metrics.metric_name("byte-rate", "Produce"), Rate())
        sensor.record(len(payload))    # raises QuotaViolationError when the rate is now above 1 MiB/s

    **Order.** A value goes to all stats first. Then all metrics with a quota are checked, in the order in which they
    were added, and the first that exceeds its bound raises an error. Only then do the parents record the value. So a
    violation is always recorded where it happened, and not recorded in the parents. A caller that rejects a recorded
    value must record its negative, which cancels it in a sum.

    **Locks.** `_lock` guards the stats and is held while one value is recorded and checked. It is not held for any
    blocking call, and no other lock is taken inside it. The registry's lock guards the set of stats; `record` reads a
    tuple that is replaced as a whole, and so needs no lock for that. Parents record after the lock was released: a
    value may be visible in the child a moment earlier.

    **Deferred recording.** Recording takes some microseconds, mostly to find out that the window is still the same. A
    caller that records for every request can use `record_soon`, which only appends the value to a list. Values within a
    tenth of a second are recorded together, at the time of the first: with the next value after that, or when a metric
    of this sensor is read. So a reader always sees complete values. A caller that feeds many sensors with every request
    keeps one list for all of them, and is the `source` of each, which is called to record them.
    """

    __slots__ = (
        "_clock",
        "_config",
        "_expiration_ms",
        "_last_record_ms",
        "_limited",
        "_lock",
        "_metrics",
        "_recorders",
        "_recorders_of_all",
        "_registry",
        "_removed",
        "_should_record",
        "_soon",
        "_soon_ms",
        "name",
        "parents",
        "source",
    )

    def __init__(
        self,
        registry: Metrics,
        name: str,
        parents: Sequence[Sensor],
        config: MetricConfig,
        clock: Clock,
        recording_level: RecordingLevel = RecordingLevel.INFO,
        inactive_sensor_expiration_seconds: int | None = None,
    ) -> None:
        self.name = name
        self.parents = tuple(parents)
        self._registry = registry
        self._config = config
        self._clock = clock
        self._should_record = recording_level.should_record(config.record_level)
        self._expiration_ms = (
            None if inactive_sensor_expiration_seconds is None else inactive_sensor_expiration_seconds * 1_000
        )
        self._last_record_ms = clock.milliseconds()
        self._removed = False
        self._lock = threading.Lock()
        self._metrics: dict[MetricName, KafkaMetric] = {}
        self._recorders: tuple[_Recorder, ...] = ()
        self._recorders_of_all: tuple[_RecorderOfAll, ...] = ()
        self._limited: tuple[tuple[KafkaMetric, bool], ...] = ()
        self._soon: list[float] = []
        """Values that are not recorded yet. One thread appends without a lock; any thread removes from the front, with
        `_lock` held."""
        self._soon_ms = self._last_record_ms - TOGETHER_MS
        """The time at which the values above will be recorded."""
        self.source: Callable[[], None] | None = None
        """Records values that the caller keeps elsewhere. Called from any thread, without a lock."""
        self._refuse_shared_ancestors(set())

    def _refuse_shared_ancestors(self, seen: set[Sensor]) -> None:
        """Rejects two paths to the same ancestor, which would count each value twice there."""
        if self in seen:
            raise ValueError(f"sensor {self.name!r} is reached more than once from the same child")
        seen.add(self)
        for parent in self.parents:
            parent._refuse_shared_ancestors(seen)

    # ------------------------------------------------------------------------------------------------ recording

    @property
    def should_record(self) -> bool:
        """Whether values are recorded at the configured recording level."""
        return self._should_record

    def record(self, value: float = 1.0, time_ms: int | None = None, check_quotas: bool = True) -> None:
        """Records a value, at a given time or now.

        Raises QuotaViolationError if a metric exceeds its bound with it, unless `check_quotas` is false.
        """
        if not self._should_record:
            return
        if time_ms is None:
            time_ms = self._clock.milliseconds()
        self._last_record_ms = time_ms
        with self._lock:
            for record, holder in self._recorders:
                record(holder.config, value, time_ms)
            if check_quotas:
                self._check_quotas(time_ms)
        for parent in self.parents:
            parent.record(value, time_ms, check_quotas)

    def record_unchecked(self, value: float = 1.0, time_ms: int | None = None) -> None:
        """Records a value without checking quotas, here or in the parents."""
        self.record(value, time_ms, check_quotas=False)

    def record_all(self, values: Sequence[float], time_ms: int) -> None:
        """Records several values of the same time without checking quotas, like repeated `record_unchecked`."""
        if len(values) == 1:
            self.record(values[0], time_ms, check_quotas=False)
            return
        if not self._should_record or not values:
            return
        self._last_record_ms = time_ms
        with self._lock:
            for record_all, holder in self._recorders_of_all:
                record_all(holder.config, values, time_ms)
        for parent in self.parents:
            parent.record_all(values, time_ms)

    def record_soon(self, value: float, time_ms: int | None = None) -> None:
        """Defers `record_unchecked`, to combine it with the values that follow. For use by one thread.

        With parents it records at once, because reading a parent does not make its children record.
        """
        if self._should_record:
            if time_ms is None:
                time_ms = self._clock.milliseconds()
            if not 0 <= time_ms - self._soon_ms < TOGETHER_MS:
                self.catch_up()
                self._soon_ms = self._last_record_ms = time_ms
            self._soon.append(value)
            if self.parents:
                self.catch_up()

    @staticmethod
    def record_each_soon(notes: Iterable[tuple[Sensor, float]], time_ms: int) -> None:
        """Defers one value for each of many sensors. Appending a value is cheaper than calling a method for it."""
        for sensor, value in notes:
            if sensor._should_record:
                if not 0 <= time_ms - sensor._soon_ms < TOGETHER_MS:
                    sensor.catch_up()
                    sensor._soon_ms = sensor._last_record_ms = time_ms
                sensor._soon.append(value)
                if sensor.parents:
                    sensor.catch_up()

    def catch_up(self) -> None:
        """Records deferred values and those of the source. May be called from any thread, without a lock."""
        if self.source is not None:
            self.source()
        soon = self._soon
        if soon:
            with self._lock:
                values = soon[:]
                del soon[: len(values)]  # only these: more values may have been appended meanwhile
            self.record_all(values, self._soon_ms)

    def check_quotas(self, time_ms: int | None = None) -> None:
        """Raises QuotaViolationError if a metric of this sensor exceeds its bound now."""
        if time_ms is None:
            time_ms = self._clock.milliseconds()
        with self._lock:
            self._check_quotas(time_ms)

    def check_then_record(self, value: float = 1.0, time_ms: int | None = None) -> None:
        """Records the value only if no quota is violated before it; otherwise raises and records nothing.

        Check and recording are atomic, so of two callers that compete for the last token only one succeeds. This is the
        strict form of a quota: it is decided before a request does anything.
        """
        if not self._should_record:
            return
        if time_ms is None:
            time_ms = self._clock.milliseconds()
        with self._lock:
            self._check_quotas(time_ms)
            self._last_record_ms = time_ms
            for record, holder in self._recorders:
                record(holder.config, value, time_ms)
        for parent in self.parents:
            parent.record(value, time_ms, check_quotas=False)

    def _check_quotas(self, time_ms: int) -> None:
        for metric, is_token_bucket in self._limited:
            config = metric.config
            quota = config.quota
            if quota is None:
                continue
            assert metric.measurable is not None
            value = metric.measurable.measure(config, time_ms)
            # The value of a token bucket is the remaining credit, not a usage to compare with the bound.
            if value < 0 if is_token_bucket else not quota.acceptable(value):
                raise QuotaViolationError(metric, value, quota.bound)

    # ------------------------------------------------------------------------------------------------ stats

    def add(self, name: MetricName, stat: MeasurableStat, config: MetricConfig | None = None) -> bool:
        """Adds a stat and registers its metric. Does nothing if this sensor already has a metric of that name.

        Returns False, and adds nothing, if the sensor has expired or was removed: the caller must get a new one from
        the registry.
        """
        with self._registry.lock:
            if self._removed or self.has_expired():
                return False
            if name not in self._metrics:
                metric = KafkaMetric(name, stat, config or self._config, self._clock, self._lock, self.catch_up)
                self._registry.register(metric)
                self._publish((metric,), (stat.record, metric))
            return True

    def add_compound(self, stat: CompoundStat, config: MetricConfig | None = None) -> bool:
        """Adds a stat with several metrics; otherwise like `add`."""
        config = config or self._config
        with self._registry.lock:
            if self._removed or self.has_expired():
                return False
            added: list[KafkaMetric] = []
            try:
                for name, measurable in stat.stats():
                    if name not in self._metrics:
                        metric = KafkaMetric(name, measurable, config, self._clock, self._lock, self.catch_up)
                        self._registry.register(metric)
                        added.append(metric)
            except ValueError:
                for metric in added:
                    self._registry.remove_metric(metric.name)
                raise
            self._publish(added, (stat.record, _FixedConfig(config)))
            return True

    def _publish(self, metrics: Sequence[KafkaMetric], recorder: _Recorder) -> None:
        self._metrics.update({metric.name: metric for metric in metrics})
        # Prevents a recording in progress from feeding one list of stats and then checking another list of metrics.
        with self._lock:
            self._recorders = (*self._recorders, recorder)
            self._recorders_of_all = (*self._recorders_of_all, _of_all(recorder))
            self._limited = tuple((m, isinstance(m.measurable, TokenBucket)) for m in self._metrics.values())

    @property
    def metrics(self) -> tuple[KafkaMetric, ...]:
        """The metrics of this sensor, in the order in which they were added."""
        with self._registry.lock:
            return tuple(self._metrics.values())

    def has_expired(self, now_ms: int | None = None) -> bool:
        """Returns whether the sensor was inactive for longer than its time to live, if it has one."""
        if self._expiration_ms is None:
            return False
        if now_ms is None:
            now_ms = self._clock.milliseconds()
        return now_ms - self._last_record_ms > self._expiration_ms

    def mark_removed(self) -> None:
        """Called by the registry, with its lock held, when it removes this sensor."""
        self._removed = True

    def __repr__(self) -> str:
        return f"Sensor({self.name!r}, {len(self._recorders)} stats)"
