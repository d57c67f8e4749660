"""Writes what the broker has to tell into topics of its own, without anybody waiting for it."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, Protocol, TypeVar

from barnabas._kernels import murmur2
from barnabas.common.clock import Clock
from barnabas.common.errors import Errors
from barnabas.common.identifiers import ZERO_UUID
from barnabas.common.named_tuple import NamedTuple
from barnabas.common.scheduler import ScheduledTask, Scheduler
from barnabas.metadata.cache import MetadataCache
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry
from barnabas.records.batch import CompressionType
from barnabas.records.builder import RecordBatchBuilder
from barnabas.replica.fetch_session import TopicIdPartition
from barnabas.replica.results import ProduceResult

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_RECORDS: Final = 10_000
MAX_BYTES: Final = 16 * 1024 * 1024
"""What may wait for its turn, so much per topic: some seconds of a busy broker."""
LINGER_MS: Final = 200
"""How long the first record waits for others to share a batch with."""
_PART_TO_HURRY: Final = 2
"""Of the room: with a half of it taken, nobody waits for more."""
RETRY_MS: Final = 100
MAX_RETRY_MS: Final = 10_000
BATCH_BYTES: Final = 256 * 1024
WARNING_INTERVAL_MS: Final = 5 * 60 * 1000
METRICS_TYPE: Final = "TelemetryTopics"
_LEADER_HAS_IT: Final = 1
_NEVER: Final = -(2**62)


class TopicRecord(NamedTuple):
    """A record to be written."""

    timestamp_ms: int
    value: bytes
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def size(self) -> int:
        """About so many bytes."""
        size = len(self.value) + len(self.key or b"")
        for name, value in self.headers:
            size += len(name) + len(value or b"")
        return size


class Replicas(Protocol):
    """The replica manager, as far as records of the broker itself go through it."""

    def append_records(
        self,
        timeout_ms: int,
        required_acks: int,
        entries: Mapping[TopicIdPartition, bytearray],
        callback: Callable[[dict[TopicIdPartition, ProduceResult]], object],
        *,
        internal_topics_allowed: bool = False,
    ) -> None: ...


class TopicWriter(Generic[T]):
    """A bounded queue in front of a topic.

    `offer` costs its caller, a handler or a network thread, an append to a deque. All else is done by a thread of the
    scheduler, a moment later and for many records at once: they are encoded, put into batches and appended to the
    partitions of the topic that this broker leads. A record with a key goes to the same partition each time. That
    thread takes its time from those that serve requests, and mostly for being woken up and for the append, whatever is
    in it: so it is woken when the first record has waited for `linger_ms`, or the queue is half full.

    Nobody ever waits. What does not fit into the queue is dropped and counted, and so is what the log refuses. Nothing
    is scheduled and nothing is created before there is something to write: the first record has the topic made. Until
    it is there, what has come stays in the queue, and the writer looks again, less and less often.

    **Several brokers.** Each writes to partitions that it leads, so that there is no network in between. A broker
    that leads none has nowhere to write to, and says so in its log: give the topic as many partitions as there are
    brokers, or more.

    **Locks.** `_lock` guards the queue and the flags; nothing is called while it is held. `_flush_lock` is held during
    a flush, so that there is one at a time; it is taken before `_lock`.
    """

    def __init__(
        self,
        topic: str,
        encode: Callable[[T], TopicRecord],
        node_id: int,
        cache: MetadataCache,
        replicas: Replicas,
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
        """`encode` is called once for each record, when it is its turn. `after_append` wakes up who waits for records:
        it empties the action queue of the replica manager.
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
        """Whether what is queued was too much to wait any longer."""
        self._closed = False
        self._task: ScheduledTask | None = None
        """The flush that is scheduled. Not guarded: one that is lost sight of finds nothing to do."""
        self._flush_lock = threading.Lock()
        self._retry_ms = RETRY_MS
        self._turn = 0
        """Spreads batches without keys over partitions. Guarded by `_flush_lock`, like the next."""
        self._warned_ms = _NEVER
        group = KafkaMetricsGroup(registry, "barnabas.telemetry", METRICS_TYPE)
        tags = {"topic": topic}
        self._dropped = group.new_meter("DroppedRecordsPerSec", "records", tags=tags)
        self._failed = group.new_meter("FailedRecordsPerSec", "records", tags=tags)
        self._written = group.new_meter("WrittenRecordsPerSec", "records", tags=tags)
        group.new_gauge("QueuedRecords", lambda: len(self._queue), tags=tags)

    # -- taking records

    def offer(self, record: T, size: int) -> bool:
        """Queues a record that takes about so many bytes; False if it was dropped for want of room."""
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

    def could_not_be_told(self) -> None:
        """Counts a record that could not be made, for the error that is being handled."""
        self._failed.mark(1)
        self._warn("Cannot create a record for %s", self.topic, exc_info=True)

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def dropped(self) -> int:
        """How many there was no room for."""
        return self._dropped.count

    @property
    def failed(self) -> int:
        """How many could not be encoded, or were refused by the log."""
        return self._failed.count

    @property
    def written(self) -> int:
        return self._written.count

    # -- writing them

    def _schedule(self, delay_ms: int) -> None:
        before, self._task = self._task, self._scheduler.schedule(f"write-{self.topic}", self.flush, delay_ms)
        if before is not None:
            before.cancel()

    def flush(self) -> None:
        """Writes what is queued, as far as that is possible now, and has itself called again for what is not."""
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
        """Writes what is queued, if that is possible, and takes nothing from now on."""
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
            except Exception:  # noqa: BLE001 - one record that cannot be told of does not keep the others back
                self.could_not_be_told()
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
                # The topic is being made, or its leader changes: later, and in order.
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
            lambda answer: results.extend(answer.values()),
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
