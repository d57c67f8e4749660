"""Sensors: where values come in."""

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
"""How far apart values may be that `Sensor.record_soon` takes for simultaneous: windows last for seconds."""


class QuotaViolationError(BarnabasError):
    """Recording a value moved a metric out of its bound. The value has been recorded all the same.

    This is no failure but an answer, for the quota managers: from `value` and `bound` follows for how long to throttle
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
    """Stands where a metric stands for a simple stat: a compound stat keeps the configuration it was added with."""

    __slots__ = ("config",)

    def __init__(self, config: MetricConfig) -> None:
        self.config = config


_Recorder: TypeAlias = "tuple[Callable[[MetricConfig, float, int], None], KafkaMetric | _FixedConfig]"
_RecorderOfAll: TypeAlias = "tuple[Callable[[MetricConfig, Sequence[float], int], None], KafkaMetric | _FixedConfig]"


def _of_all(recorder: _Recorder) -> _RecorderOfAll:
    """The same for several values: the stat's own way, if it has one."""
    record, holder = recorder
    record_all = getattr(getattr(record, "__self__", None), "record_all", None)

    def one_by_one(config: MetricConfig, values: Sequence[float], time_ms: int) -> None:
        for value in values:
            record(config, value, time_ms)

    return (one_by_one if record_all is None else record_all), holder


class Sensor:
    """Passes a stream of values on to stats, and on to its parent sensors.

        metrics = Metrics(clock=clock)
        config = MetricConfig(samples=11, window_ms=1_000, quota=Quota(1_048_576))
        sensor = metrics.sensor("produce-bytes", config)
        sensor.add(metrics.metric_name("byte-rate", "Produce"), Rate())
        sensor.record(len(payload))    # raises QuotaViolationError when the rate is now above 1 MiB/s

    **Order of events.** A value goes to all stats first; then all metrics with a quota are looked at, in the order in
    which they were added, and the first one out of its bound raises; only then is it the parents' turn. So a violation
    is always recorded where it happened, and not recorded further up. The caller that rejects what it recorded has to
    record the negative value, which a sum forgives.

    **Locks.** `_lock` guards the stats and is held while one value is recorded and checked. It is held for no call that
    could wait, and no other lock is taken inside it. What stats there are is guarded by the registry's lock; `record`
    reads a tuple that is replaced as a whole, and so needs no lock for that. Parents are recorded after the lock was
    given back: a value may be visible in the child a moment before the parent has it.

    **Soon.** Recording takes some microseconds, most of them for finding out that the window is still the same one.
    Whoever records for every request can leave that to `record_soon`, which notes the value down. What was noted within
    a tenth of a second is recorded together, as of the first of these values: with the next one after that, or when
    somebody looks at a metric of this sensor. So what is seen is always complete. Whoever feeds many sensors with every
    request keeps one list of notes for all of them, and is the `source` of each: it is asked to record them then.
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
        """Noted down and not recorded yet. One thread adds at its end, without a lock; any takes from its beginning,
        with `_lock` held."""
        self._soon_ms = self._last_record_ms - TOGETHER_MS
        """As of when the values above will be recorded."""
        self.source: Callable[[], None] | None = None
        """Records here what somebody has noted down elsewhere. Called from any thread, without a lock."""
        self._refuse_shared_ancestors(set())

    def _refuse_shared_ancestors(self, seen: set[Sensor]) -> None:
        """Two ways up to the same sensor would count each value twice there."""
        if self in seen:
            raise ValueError(f"sensor {self.name!r} is reached more than once from the same child")
        seen.add(self)
        for parent in self.parents:
            parent._refuse_shared_ancestors(seen)

    # ------------------------------------------------------------------------------------------------ recording

    @property
    def should_record(self) -> bool:
        """Whether values are recorded at all at the configured level of detail."""
        return self._should_record

    def record(self, value: float = 1.0, time_ms: int | None = None, check_quotas: bool = True) -> None:
        """Records a value, at a time that the caller already knows, or now.

        Raises QuotaViolationError if a metric is out of its bound with it; with `check_quotas` off it never does.
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
        """Records a value and asks for no quota, here or in the parents."""
        self.record(value, time_ms, check_quotas=False)

    def record_all(self, values: Sequence[float], time_ms: int) -> None:
        """Records several values that belong to the same time, and asks for no quota: as often `record_unchecked`."""
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
        """`record_unchecked`, done together with that of the values that follow. For use by one thread.

        With parents it is done at once: who looks at a parent asks none of its children.
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
        """`record_soon` of many sensors, a value each. To note one down is less work than to call something for it."""
        for sensor, value in notes:
            if sensor._should_record:
                if not 0 <= time_ms - sensor._soon_ms < TOGETHER_MS:
                    sensor.catch_up()
                    sensor._soon_ms = sensor._last_record_ms = time_ms
                sensor._soon.append(value)
                if sensor.parents:
                    sensor.catch_up()

    def catch_up(self) -> None:
        """Records what `record_soon`, or the source, has noted down. May be called from any thread, without a lock."""
        if self.source is not None:
            self.source()
        soon = self._soon
        if soon:
            with self._lock:
                values = soon[:]
                del soon[: len(values)]  # and no more: others may have come meanwhile
            self.record_all(values, self._soon_ms)

    def check_quotas(self, time_ms: int | None = None) -> None:
        """Raises QuotaViolationError if a metric of this sensor is out of its bound now."""
        if time_ms is None:
            time_ms = self._clock.milliseconds()
        with self._lock:
            self._check_quotas(time_ms)

    def check_then_record(self, value: float = 1.0, time_ms: int | None = None) -> None:
        """Records the value only if no quota is violated before it; else raises and records nothing.

        Check and recording are one step, so of two callers that meet at the last token only one gets through. This is
        the strict form of a quota: what a request may do is decided before it does anything.
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
            # A bucket's value is the credit that is left, not a use that could be compared with the bound.
            if value < 0 if is_token_bucket else not quota.acceptable(value):
                raise QuotaViolationError(metric, value, quota.bound)

    # ------------------------------------------------------------------------------------------------ stats

    def add(self, name: MetricName, stat: MeasurableStat, config: MetricConfig | None = None) -> bool:
        """Adds a stat and registers its metric. Does nothing if this sensor has a metric of that name already.

        Returns False, and adds nothing, if the sensor has expired or was removed: the caller has to get a new one from
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
        """Adds a stat that makes several metrics; else like `add`."""
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
        # Taken so that a recording in progress does not feed a stat and then check another list of metrics.
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
        """Whether nothing was recorded for longer than the sensor may be idle; never, when no such time was given."""
        if self._expiration_ms is None:
            return False
        if now_ms is None:
            now_ms = self._clock.milliseconds()
        return now_ms - self._last_record_ms > self._expiration_ms

    def mark_removed(self) -> None:
        """Called by the registry, with its lock held, when it forgets this sensor."""
        self._removed = True

    def __repr__(self) -> str:
        return f"Sensor({self.name!r}, {len(self._recorders)} stats)"
