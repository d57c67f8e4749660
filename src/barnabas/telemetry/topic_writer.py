"""Writes records of the broker itself to topics, without blocking any request."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from barnabas._kernels import murmur2
from barnabas.common.clock import Clock
from barnabas.common.errors import Errors
from barnabas.common.identifiers import ZERO_UUID
from barnabas.common.scheduler import ScheduledTask, Scheduler
from barnabas.metadata.cache import MetadataCache
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry
from barnabas.records.batch import CompressionType
from barnabas.records.builder import RecordBatchBuilder
from barnabas.replica.append.record_appender import RecordAppender
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.results import ProduceResult

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_RECORDS: Final = 10_000
MAX_BYTES: Final = 16 * 1024 * 1024
"""The maximum size of the queue per topic: some seconds of a busy broker."""
LINGER_MS: Final = 200
"""How long the first record waits for others in its batch."""
_PART_TO_HURRY: Final = 2
"""At one half of the maximum size, the queue is written without waiting."""
RETRY_MS: Final = 100
MAX_RETRY_MS: Final = 10_000
BATCH_BYTES: Final = 256 * 1024
WARNING_INTERVAL_MS: Final = 5 * 60 * 1000
METRICS_TYPE: Final = "TelemetryTopics"
_LEADER_HAS_IT: Final = 1
_NEVER: Final = -(2**62)


class TopicRecord(NamedTuple):
    """A record to write."""

    timestamp_ms: int
    value: bytes
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def size(self) -> int:
        """The approximate size in bytes."""
        size = len(self.value) + len(self.key or b"")
        for name, value in self.headers:
            size += len(name) + len(value or b"")
        return size


class TopicWriter(Generic[T]):
    """A bounded queue in front of a topic.

    `offer` costs its caller, a handler or a network thread, an append to a deque. A thread of the scheduler does the
    rest later, for many records at once: it encodes them, builds batches and appends them to the partitions of the
    topic that this broker leads. Records with the same key go to the same partition. That thread takes time from the
    threads that serve requests, mostly for waking up and for the append, whatever their size. So it is woken when the
    first record has waited for `linger_ms`, or when the queue is half full.

    No call blocks. Records that do not fit into the queue are dropped and counted, and so are records that the log
    rejects. Nothing is scheduled or created before the first record, which creates the topic. Until the topic exists,
    records stay in the queue, and the writer retries with growing delays.

    **Several brokers.** Each writes to partitions that it leads, so no network is involved. A broker that leads none
    cannot write, and logs a warning: give the topic at least as many partitions as there are brokers.

    **Locks.** `_lock` guards the queue and the flags; nothing is called while it is held. `_flush_lock` is held during
    a flush, so that there is one at a time; it is taken before `_lock`.
    """

    def __init__(
        self,
        topic: str,
        encode: Callable[[T], TopicRecord],
        node_id: int,
        cache: MetadataCache,
        replicas: RecordAppender,
        create_topic: Callable[[str], object],
        after_append: Callable[[], object],
        scheduler: Scheduler,
        clock: Clock,
        registry: MetricsRegistry,
        *,
        max_records: int = MAX_RECORDS,
        max_bytes: int = MAX_BYTES,
        linger_ms: int = LINGER_MS,
    ) -> None:
        """`encode` is called once per record when it is written.

        `after_append` wakes up delayed fetches: it drains the action queue of the replica manager.
        """
        self.topic = topic
        self._encode = encode
        self._node_id = node_id
        self._cache = cache
        self._replicas = replicas
        self._create_topic = create_topic
        self._after_append = after_append
        self._scheduler = scheduler
        self._clock = clock
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._linger_ms = linger_ms
        self._hurry_records = max_records // _PART_TO_HURRY
        self._hurry_bytes = max_bytes // _PART_TO_HURRY
        self._lock = threading.Lock()
        self._queue: deque[tuple[T, int]] = deque()
        self._queued_bytes = 0
        self._scheduled = False
        self._hurried = False
        """Whether the queue became too full to wait any longer."""
        self._closed = False
        self._task: ScheduledTask | None = None
        """The scheduled flush. Not guarded: a superseded flush finds nothing to do."""
        self._flush_lock = threading.Lock()
        self._retry_ms = RETRY_MS
        self._turn = 0
        """Distributes batches without keys over partitions. Guarded by `_flush_lock`, like the next."""
        self._warned_ms = _NEVER
        group = KafkaMetricsGroup(registry, "barnabas.telemetry", METRICS_TYPE)
        tags = {"topic": topic}
        self._dropped = group.new_meter("DroppedRecordsPerSec", "records", tags=tags)
        self._failed = group.new_meter("FailedRecordsPerSec", "records", tags=tags)
        self._written = group.new_meter("WrittenRecordsPerSec", "records", tags=tags)
        group.new_gauge("QueuedRecords", lambda: len(self._queue), tags=tags)

    # -- queueing

    def offer(self, record: T, size: int) -> bool:
        """Queues a record of this approximate size; returns False if it was dropped because the queue is full."""
        with self._lock:
            waiting = self._queued_bytes + size
            if self._closed or len(self._queue) >= self._max_records or waiting > self._max_bytes:
                delay_ms = None
            else:
                self._queue.append((record, size))
                self._queued_bytes = waiting
                if self._scheduled:
                    if self._hurried or (waiting < self._hurry_bytes and len(self._queue) < self._hurry_records):
                        return True
                    self._hurried = True
                    delay_ms = 0
                else:
                    self._scheduled = True
                    delay_ms = self._linger_ms
        if delay_ms is None:
            self._dropped.mark(1)
            return False
        self._schedule(delay_ms)
        return True

    def count_failed_record(self) -> None:
        """Counts a record that could not be created, because of the error that is being handled."""
        self._failed.mark(1)
        self._warn("Cannot create a record for %s", self.topic, exc_info=True)

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def dropped(self) -> int:
        """The number of records that were dropped because the queue was full."""
        return self._dropped.count

    @property
    def failed(self) -> int:
        """The number of records that could not be encoded, or that the log rejected."""
        return self._failed.count

    @property
    def written(self) -> int:
        return self._written.count

    # -- writing

    def _schedule(self, delay_ms: int) -> None:
        before, self._task = self._task, self._scheduler.schedule(f"write-{self.topic}", self.flush, delay_ms)
        if before is not None:
            before.cancel()

    def flush(self) -> None:
        """Writes the queued records, as far as possible now, and schedules itself for the rest."""
        with self._flush_lock:
            count = self._cache.num_partitions(self.topic)
            partitions = self._leading_partitions(count or 0)
            if partitions:
                self._write_all(partitions)
        with self._lock:
            again = bool(self._queue) and not self._closed
            self._scheduled = again
        if not again:
            self._retry_ms = RETRY_MS
            return
        if partitions:
            self._schedule(self._linger_ms)
            return
        if count is None:
            self._create_topic(self.topic)
        else:
            self._warn("Cannot write to %s: this broker leads none of its partitions", self.topic)
        self._schedule(self._retry_ms)
        self._retry_ms = min(2 * self._retry_ms, MAX_RETRY_MS)

    def close(self) -> None:
        """Writes the queued records, if possible, and accepts no more."""
        with self._lock:
            self._closed = True
        self.flush()
        with self._lock:
            left = len(self._queue)
            self._queue.clear()
            self._queued_bytes = 0
        if left:
            self._dropped.mark(left)

    def _leading_partitions(self, count: int) -> list[int]:
        registrations = ((number, self._cache.partition(self.topic, number)) for number in range(count))
        return [number for number, one in registrations if one is not None and one.leader == self._node_id]

    def _write_all(self, partitions: list[int]) -> None:
        with self._lock:
            taken, self._queue = self._queue, deque()
            self._queued_bytes = 0
            self._hurried = False
        by_partition: dict[int, list[tuple[T, int, TopicRecord]]] = {}
        self._turn += 1
        for item, size in taken:
            try:
                record = self._encode(item)
            except Exception:  # noqa: BLE001 - a record that cannot be encoded must not stop the others
                self.count_failed_record()
                continue
            choice = self._turn if record.key is None else murmur2.murmur2(record.key) & 0x7FFFFFFF
            number = partitions[choice % len(partitions)]
            by_partition.setdefault(number, []).append((item, size, record))
        try:
            for number, records in by_partition.items():
                self._write(number, records)
        finally:
            self._after_append()

    def _write(self, number: int, records: list[tuple[T, int, TopicRecord]]) -> None:
        start = 0
        sizes = [record.size for _, _, record in records]
        while start < len(records):
            end = start + 1
            room = BATCH_BYTES - sizes[start]
            while end < len(records) and room >= sizes[end]:
                room -= sizes[end]
                end += 1
            batch = records[start:end]
            result = self._append(number, (record for _, _, record in batch))
            if result.error.retriable:
                # The topic is being created, or its leader changes: retry later, in order.
                self._put_back([(item, size) for item, size, _ in records[start:]])
                return
            if result.error:
                self._failed.mark(len(batch))
                self._warn("Cannot append %d records to %s: %s", len(batch), self.topic, result.error.name)
            else:
                self._written.mark(len(batch))
            start = end

    def _append(self, number: int, records: Iterable[TopicRecord]) -> ProduceResult:
        builder = RecordBatchBuilder(compression=CompressionType.ZSTD)
        for timestamp_ms, value, key, headers in records:
            builder.append(timestamp_ms, key, value, headers)
        results: list[ProduceResult] = []
        self._replicas.append_records(
            0,
            _LEADER_HAS_IT,
            {TopicIdPartition(ZERO_UUID, self.topic, number): builder.close()},
            lambda responses: results.extend(responses.values()),
            internal_topics_allowed=True,
        )
        return results[0] if results else ProduceResult(Errors.REQUEST_TIMED_OUT)

    def _put_back(self, items: list[tuple[T, int]]) -> None:
        with self._lock:
            self._queue.extendleft(reversed(items))
            self._queued_bytes += sum(size for _, size in items)

    def _warn(self, message: str, *arguments: object, exc_info: bool = False) -> None:
        now_ms = self._clock.hi_res_milliseconds()
        if now_ms - self._warned_ms > WARNING_INTERVAL_MS:
            self._warned_ms = now_ms
            logger.warning(message, *arguments, exc_info=exc_info)

    def __repr__(self) -> str:
        return f"TopicWriter({self.topic}, {len(self._queue)} queued, {self.dropped} dropped)"
