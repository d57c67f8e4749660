"""Writes the usage of quotas per interval as records of ``__quota_usage``.

The quotas themselves keep only a rate over the last few seconds. These records help with later questions: which clients
were throttled yesterday, and which limit would have been enough. `docs/telemetry.md` describes the fields.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote

from barnabas.common.clock import Clock
from barnabas.common.scheduler import ScheduledTask, Scheduler
from barnabas.metrics.metric import KafkaMetric
from barnabas.metrics.registry import Metrics
from barnabas.quota.client_quota_manager import NO_LIMIT, ClientQuotaManager, ClientSensors
from barnabas.quota.controller_mutation_quota_manager import ControllerMutationQuotaManager
from barnabas.quota.quota_type import ClientQuotaType
from barnabas.telemetry.topic_writer import TopicRecord, TopicWriter

SCHEMA_VERSION: Final = 1
INTERVAL: Final = "barnabas.quota.usage.interval.ms"
RECORD_BYTES: Final = 512
"""The approximate size of a record."""
THREAD_MS_PER_PERCENT_SECOND: Final = 10.0
"""A request quota counts percent of a second of a thread."""
UNITS: Final = {
    ClientQuotaType.PRODUCE.key: ("bytes", 1.0),
    ClientQuotaType.FETCH.key: ("bytes", 1.0),
    ClientQuotaType.REQUEST.key: ("thread_ms", THREAD_MS_PER_PERCENT_SECOND),
    ClientQuotaType.CONTROLLER_MUTATION.key: ("partitions", 1.0),
}
"""The counted unit of each quota, and the number of them in one unit of the quota."""


class QuotaUsageEntry(NamedTuple):
    """The usage of clients that share a quota, and their throttling."""

    quota: str
    """The quota key, for example ``producer_byte_rate``."""
    tags: Mapping[str, str]
    limit: float | None
    """Per second, in the unit of the quota; None for no limit."""
    amount: float
    throttle_count: int
    throttle_time_ms: float
    start_ms: int
    end_ms: int


class SampleDifference:
    """Computes the increase of the windows of a metric since the last call.

    A sampled stat has no total, only windows that are reused. But a window keeps its value for some time after it
    ended, so frequent calls see everything that was ever in it. This class remembers the last seen value of each
    window, and subtracts it.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: list[tuple[int, float, int]] = []

    def take(self, samples: list[tuple[int, float, int]]) -> tuple[float, int]:
        """Returns the value and the number of events that are new.

        >>> difference = SampleDifference()
        >>> difference.take([(0, 100.0, 1)]), difference.take([(0, 130.0, 2), (1_000, 5.0, 1)])
        ((100.0, 1), (35.0, 2))
        >>> difference.take([(12_000, 7.0, 1), (1_000, 5.0, 1)])
        (7.0, 1)
        """
        value, events = 0.0, 0
        for place, (start_ms, now_value, now_events) in enumerate(samples):
            was_start, was_value, was_events = self._seen[place] if place < len(self._seen) else (start_ms, 0.0, 0)
            same = was_start == start_ms
            value += now_value - (was_value if same else 0.0)
            events += now_events - (was_events if same else 0)
        self._seen = samples
        return value, events


class _Meters:
    """The meters of one group of clients."""

    __slots__ = ("amount", "sensors", "throttle", "throttle_count", "throttle_ms", "used")

    def __init__(self, sensors: ClientSensors) -> None:
        self.sensors = sensors
        self.used = SampleDifference()
        self.throttle = SampleDifference()
        self.amount = 0.0
        self.throttle_count = 0
        self.throttle_ms = 0.0


class QuotaUsageReporter:
    """Reads the sensors of the quotas every few seconds, and writes the usage of each group of clients.

    It does nothing while no quota is configured, because nothing is measured then. A group without usage in an interval
    is left out. Usage before the first read counts into the first interval.

    `_lock` guards all fields. Inside it the locks of quota managers and sensors are taken briefly.
    """

    def __init__(
        self,
        managers: Iterable[ClientQuotaManager],
        metrics: Metrics,
        writer: TopicWriter[QuotaUsageEntry],
        scheduler: Scheduler,
        clock: Clock,
    ) -> None:
        self._managers = list(managers)
        self._metrics = metrics
        self._writer = writer
        self._scheduler = scheduler
        self._clock = clock
        self._lock = threading.Lock()
        self._interval_ms = 0
        self._period_ms = 1
        self._task: ScheduledTask | None = None
        self._meters: dict[tuple[str, object], _Meters] = {}
        self._started_ms: int | None = None
        self._started_steady_ms = 0

    def add_managers(self, managers: Iterable[ClientQuotaManager]) -> None:
        """Adds the managers of the controller, if the node has one: partitions are created there."""
        with self._lock:
            self._managers += managers

    @property
    def interval_ms(self) -> int:
        return self._interval_ms

    @interval_ms.setter
    def interval_ms(self, interval_ms: int) -> None:
        """Can be changed at any time; 0 disables it."""
        with self._lock:
            self._interval_ms = interval_ms
            if self._task is not None:
                self._task.cancel()
                self._task = None
            self._forget()
            if interval_ms > 0:
                self._period_ms = self._period_for(interval_ms)
                self._task = self._scheduler.schedule("quota-usage", self.poll, self._period_ms, self._period_ms)

    def _period_for(self, interval_ms: int) -> int:
        """Returns how often to read, so that no window is reused before it was read.

        That is at least twice while a window is kept, and a whole number of times per interval.
        """
        windows = [manager.windows for manager in self._managers]
        longest_ms = min((one.samples * one.window_seconds * 500 for one in windows), default=interval_ms)
        return max(interval_ms // -(-interval_ms // longest_ms), 1)

    def close(self) -> None:
        """Writes the rest."""
        if self._interval_ms:
            self.poll(final=True)
        self.interval_ms = 0

    def poll(self, *, final: bool = False) -> None:
        """Reads all sensors; writes, if the interval has ended."""
        entries: list[QuotaUsageEntry] = []
        with self._lock:
            if not any(manager.is_enabled for manager in self._managers):
                self._forget()
                return
            now_ms, steady_ms = self._clock.milliseconds(), self._clock.hi_res_milliseconds()
            if self._started_ms is None:
                self._started_ms = now_ms - self._period_ms
                self._started_steady_ms = steady_ms - self._period_ms
            managers = self._look()
            # Threads are never exactly on time; the read closest to the end of the interval counts as its end.
            if final or steady_ms - self._started_steady_ms >= self._interval_ms - self._period_ms // 2:
                entries = [
                    self._entry(managers[key], meters, self._started_ms, now_ms)
                    for key, meters in self._meters.items()
                    if meters.amount or meters.throttle_count
                ]
                for meters in self._meters.values():
                    meters.amount, meters.throttle_count, meters.throttle_ms = 0.0, 0, 0.0
                self._started_ms, self._started_steady_ms = now_ms, steady_ms
        for entry in entries:
            self._writer.offer(entry, RECORD_BYTES)

    def _forget(self) -> None:
        self._meters.clear()
        self._started_ms = None

    def _look(self) -> dict[tuple[str, object], ClientQuotaManager]:
        """Adds new usage to the meters.

        If managers of broker and controller share a sensor, the second finds nothing new in it.
        """
        found: dict[tuple[str, object], ClientQuotaManager] = {}
        for manager in self._managers:
            quota = manager.quota_type.client_quota_type.key
            for sensors in manager.all_sensors():
                key = (quota, sensors.key)
                metric = self._rate_metric(manager, sensors)
                if metric is None:
                    continue
                found[key] = manager
                meters = self._meters.get(key)
                if meters is None:
                    meters = self._meters[key] = _Meters(sensors)
                meters.amount += meters.used.take(metric.samples())[0]
                throttle = manager.throttle_time_metric(sensors)
                if throttle is not None:
                    milliseconds, count = meters.throttle.take(throttle.samples())
                    meters.throttle_ms += milliseconds
                    meters.throttle_count += count
        self._meters = {key: meters for key, meters in self._meters.items() if key in found}
        return found

    def _rate_metric(self, manager: ClientQuotaManager, sensors: ClientSensors) -> KafkaMetric | None:
        if isinstance(manager, ControllerMutationQuotaManager):
            return self._metrics.metric(manager.rate_metric_name(sensors.tags))
        return manager.metric(sensors)

    @staticmethod
    def _entry(manager: ClientQuotaManager, meters: _Meters, start_ms: int, end_ms: int) -> QuotaUsageEntry:
        metric = manager.metric(meters.sensors)
        quota = None if metric is None else metric.config.quota
        return QuotaUsageEntry(
            manager.quota_type.client_quota_type.key,
            meters.sensors.tags,
            None if quota is None or quota.bound >= NO_LIMIT else quota.bound,
            meters.amount,
            meters.throttle_count,
            meters.throttle_ms,
            start_ms,
            end_ms,
        )


class QuotaUsageEncoder:
    """Encodes entries as JSON."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id

    def __call__(self, entry: QuotaUsageEntry) -> TopicRecord:
        unit, factor = UNITS[entry.quota]
        user, client_id = entry.tags.get("user"), entry.tags.get("client-id")
        document = {
            "schema_version": SCHEMA_VERSION,
            "node_id": self._node_id,
            "start_time_ms": entry.start_ms,
            "end_time_ms": entry.end_ms,
            "quota": entry.quota,
            "user": unquote(user) if user else None,
            "client_id": client_id or None,
            "tags": dict(entry.tags),
            "limit": entry.limit,
            "amount": round(entry.amount * factor, 6),
            "unit": unit,
            "throttle_count": entry.throttle_count,
            "throttle_time_ms": round(entry.throttle_time_ms, 3),
        }
        value = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogateescape")
        key = "|".join((entry.quota, *(f"{name}={text}" for name, text in entry.tags.items())))
        return TopicRecord(entry.end_ms, value, key.encode("utf-8", "surrogateescape"))
