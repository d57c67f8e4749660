"""The append path: from the batches of a produce request to its response."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.common.clock import Clock
from barnabas.common.errors import (
    ApiError,
    CorruptRecordError,
    Errors,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from barnabas.common.identifiers import ZERO_UUID
from barnabas.common.log_safety import LimitedLogger
from barnabas.common.topic_names import INTERNAL_TOPICS
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.dirs.log_dir_pace import LogDirPace, LogDirPaces
from barnabas.log.log_append_info import LeaderHwChange, LogAppendInfo
from barnabas.log.producers.producer_append_info import TRANSACTION_VERSION_UNKNOWN
from barnabas.log.producers.verification_state import SENTINEL, VerificationGuard
from barnabas.log.segment.file_handle import Buffer
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.replica.append.delayed_produce import DelayedProduce, DelayedProduceMetrics, PendingAppend
from barnabas.replica.broker_topic_stats import BYTES_REJECTED, FAILED_PRODUCE_REQUESTS, BrokerTopicStats
from barnabas.replica.delayed_operations import DelayedOperations
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.partition.hosted_partitions import HostedPartitions
from barnabas.replica.results import ACKS_ALL, BufferHolder, ProduceCallback, ProduceResult
from barnabas.server.action_queue import ActionQueue

if TYPE_CHECKING:
    from barnabas.log.unified_log import UnifiedLog
    from barnabas.replica.partition.partition import Partition

logger = LimitedLogger(logging.getLogger(__name__))

INCREASED: Final = LeaderHwChange.INCREASED
_NO_ERROR: Final = Errors.NONE
_new_tuple = tuple.__new__
"""Creates a named tuple in one call; calling its class would add a call in Python."""

VALID_ACKS: Final = frozenset({-1, 0, 1})

_EXPECTED: Final = (
    UnknownTopicOrPartitionError,
    UnknownTopicIdError,
    NotLeaderOrFollowerError,
    RecordTooLargeError,
    RecordBatchTooLargeError,
    CorruptRecordError,
    KafkaStorageError,
)
"""Errors that any request can cause, and that do not count as failures of the broker."""


class RecordAppends:
    """Appends the batches of produce requests, and responds at once or when all in-sync replicas have them.

    ``acks=all`` waits for the high watermark. If the high watermark has passed the records when the append returns, as
    it always has without followers, the response is sent at once. Only otherwise a `DelayedProduce` is created.

    The action queue completes fetches that wait for the records at the end of the request.
    """

    def __init__(
        self,
        partitions: HostedPartitions,
        delayed: DelayedOperations,
        stats: BrokerTopicStats,
        action_queue: ActionQueue,
        clock: Clock,
        registry: MetricsRegistry,
        paces: LogDirPaces,
    ) -> None:
        self._partitions = partitions
        self._paces = paces
        self._delayed = delayed
        self._stats = stats
        self._action_queue = action_queue
        self._now_ns = clock.nanoseconds
        self._metrics = DelayedProduceMetrics(registry)
        self._is_fetched = delayed.fetch.is_watched

    def append_records(
        self,
        timeout_ms: int,
        required_acks: int,
        entries: Mapping[TopicIdPartition, Buffer],
        callback: ProduceCallback,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        internal_topics_allowed: bool = False,
        verification_guards: Mapping[TopicPartition, VerificationGuard] | None = None,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
        holder: BufferHolder | None = None,
    ) -> None:
        """Appends one batch to each partition; this broker must be the leader.

        `callback` receives a result for each, in the order of `entries`: at once, or with ``acks=all`` when followers
        have the records, after at most `timeout_ms`. It may be called before this returns, and on any thread.

        The append writes to the buffers (offsets go into the header), and does not need them after it has returned.
        With a `holder`, the append may run later, on a thread for the slow log directory that it writes to, and the
        holder keeps the buffers until then.
        """
        if self._paces.attentive and holder is not None and not self._paces.on_lane:
            aside, synced = self._directory_to_wait_for(entries)
            if aside is not None:
                append = partial(
                    self.append_records,
                    timeout_ms,
                    required_acks,
                    entries,
                    callback,
                    origin=origin,
                    internal_topics_allowed=internal_topics_allowed,
                    verification_guards=verification_guards,
                    transaction_version=transaction_version,
                )
                release = holder.hold_buffer()
                size = sum(map(len, entries.values()))
                if not self._append_aside(aside, synced, append, release, partial(_fail_all, entries, callback), size):
                    callback(self._refused(aside, entries))
                return
        results: dict[TopicIdPartition, ProduceResult] = {}
        if required_acks not in VALID_ACKS:
            callback(dict.fromkeys(entries, ProduceResult(Errors.INVALID_REQUIRED_ACKS)))
            return
        online = self._partitions.online
        now_ns = self._now_ns()
        pending: list[PendingAppend] | None = None
        # Most requests have one topic: update its statistics once for all of its partitions.
        counted: str | None = None
        size = messages = appends = 0
        for topic_id_partition, records in entries.items():
            topic_id, topic, number = topic_id_partition
            key = (topic or "", number)
            partition = online.get(key)
            try:
                if partition is None or topic in INTERNAL_TOPICS:
                    partition = self._look_closer(key, internal_topics_allowed)
                if topic_id != partition.topic_id and topic_id != ZERO_UUID:  # noqa: PLR1714 - quicker than a tuple
                    raise UnknownTopicIdError(f"The topic {topic} has another id on this broker")
                guard = SENTINEL
                if verification_guards is not None:
                    guard = verification_guards.get(partition.topic_partition, SENTINEL)
                info = partition.append_records_to_leader(records, origin, required_acks, guard, transaction_version)
            except Exception as error:  # noqa: BLE001 - the error belongs to this partition alone, and becomes its result
                results[topic_id_partition] = self._failed(key, partition, len(records), error, now_ns)
                continue
            if key[0] != counted:
                if counted is not None:
                    self._stats.topic_stats(counted).record_append(size, messages, now_ns, appends)
                counted, size, messages, appends = key[0], 0, 0, 0
            first_offset, last_offset, _, _, _, log_append_time, log_start_offset, _, _, change = info
            size += len(records)
            messages += last_offset - first_offset + 1
            appends += 1
            result = _new_tuple(
                ProduceResult,
                (_NO_ERROR, first_offset, log_append_time, log_start_offset, (), None, last_offset),
            )
            # Without followers the high watermark is past these records already.
            if required_acks == ACKS_ALL and (change is not INCREASED or partition.isr.followers):
                enough, wrong = partition.check_enough_replicas_reach_offset(last_offset + 1)
                if wrong:
                    result = result._replace(error=wrong)
                elif not enough:
                    if pending is None:
                        pending = []
                    pending.append(PendingAppend(topic_id_partition, last_offset + 1, result))
            results[topic_id_partition] = result
            self._wake_up_later(key, partition, change)
        if counted is not None:
            self._stats.topic_stats(counted).record_append(size, messages, now_ns, appends)
        if pending is None:
            callback(results)
            return
        delayed_produce = DelayedProduce(timeout_ms, pending, results, self._partitions, callback, self._metrics)
        self._delayed.produce.try_complete_else_watch(
            delayed_produce, [(append.partition[1], append.partition[2]) for append in pending]
        )

    def _directory_to_wait_for(
        self, entries: Mapping[TopicIdPartition, Buffer]
    ) -> tuple[LogDirPace | None, list[UnifiedLog]]:
        """Returns the log directory that an append would wait for, if any, and the logs that the append will sync.

        A request goes to one lane, even if it spans several directories: its response waits for the slowest anyway.
        """
        online = self._partitions.online
        aside: LogDirPace | None = None
        synced: list[UnifiedLog] = []
        for (_, topic, number), records in entries.items():
            partition = online.get((topic or "", number))
            log = None if partition is None else partition.role.log
            if log is None:
                continue
            pace = log.pace
            if log.syncs_with(records):
                synced.append(log)
                aside = aside or pace
            elif pace.expects_sync(log.topic_partition):
                aside = aside or pace
            if pace.is_aside() and (aside is None or not aside.is_slow):
                aside = pace
        return aside, synced

    def _append_aside(
        self,
        aside: LogDirPace,
        synced: Sequence[UnifiedLog],
        append: Callable[[], None],
        release: Callable[[], object],
        fail: Callable[[], object],
        size: int,
    ) -> bool:
        """Submits an append to a lane; returns False if too many bytes of records wait there."""
        for log in synced:
            log.pace.expect_sync(log.topic_partition)

        def done() -> None:
            for log in synced:
                log.pace.sync_done(log.topic_partition)
            release()

        def run() -> None:
            try:
                append()
            except Exception:
                logger.exception("An append in a lane of %s failed", aside.log_dir)
                fail()
            finally:
                done()
                self._action_queue.try_complete_actions()

        if aside.appends.submit(run, size):
            return True
        done()
        return False

    def _refused(
        self, aside: LogDirPace, entries: Mapping[TopicIdPartition, Buffer]
    ) -> dict[TopicIdPartition, ProduceResult]:
        """Returns the results of an append that was not started. Clients retry after `KAFKA_STORAGE_ERROR`."""
        error = KafkaStorageError(f"{aside.log_dir} is slow, and too many records wait for it")
        now_ns = self._now_ns()
        return {
            partition: self._failed((partition[1] or "", partition[2]), None, len(records), error, now_ns)
            for partition, records in entries.items()
        }

    def append_records_to_leader(
        self,
        key: TopicPartition,
        records: Buffer,
        required_acks: int,
        origin: AppendOrigin,
        verification_guard: VerificationGuard,
        transaction_version: int,
    ) -> LogAppendInfo:
        """See `ReplicaManager.append_records_to_leader`."""
        partition = self._partitions.get_partition_or_exception(key)
        size = len(records)
        info = partition.append_records_to_leader(
            records, origin, required_acks, verification_guard, transaction_version
        )
        self._stats.topic_stats(key.topic).record_append(size, info.last_offset - info.first_offset + 1, self._now_ns())
        self._wake_up_later(key, partition, info.leader_hw_change)
        return info

    def _wake_up_later(self, key: tuple[str, int], partition: Partition, change: LeaderHwChange) -> None:
        """Queues a check of the requests that wait for this partition, to run when the request holds no lock.

        Unless the records are committed now and there are followers, only fetches can wait for them.
        """
        if change is INCREASED and partition.isr.followers:
            self._action_queue.add(partial(self._delayed.check_and_complete_all, key))
        elif self._is_fetched(key):
            self._action_queue.add(partial(self._delayed.fetch.check_and_complete, key))

    def _look_closer(self, key: tuple[str, int], internal_topics_allowed: bool) -> Partition:
        """Returns the partition, or raises if it is not online or is of an internal topic and that is not allowed."""
        if key[0] in INTERNAL_TOPICS and not internal_topics_allowed:
            raise InvalidTopicError(f"{key[0]} is an internal topic, which clients cannot append to")
        return self._partitions.get_partition_or_exception(key)

    def _failed(
        self, key: tuple[str, int], partition: Partition | None, size: int, error: Exception, now_ns: int
    ) -> ProduceResult:
        """Returns the result for a partition whose append failed, and counts and logs the failure."""
        stats = self._stats.topic_stats(key[0])
        stats.record_produce_request(now_ns)
        code = Errors.for_exception(error)
        if isinstance(error, InvalidTopicError):
            return ProduceResult(code)
        if isinstance(error, _EXPECTED):
            if isinstance(error, RecordTooLargeError | RecordBatchTooLargeError):
                stats.mark(BYTES_REJECTED, size)
            return ProduceResult(code)
        stats.mark(FAILED_PRODUCE_REQUESTS)
        name = TopicPartition(*key)
        if isinstance(error, InvalidProducerEpochError):
            logger.info("An append to %s was refused: %s", name, error)
        elif isinstance(error, ApiError):
            logger.warning("An append to %s was refused: %s", name, error)
        else:
            logger.error("An append to %s failed", name, exc_info=error)
        log_start_offset = -1 if partition is None else partition.log_start_offset
        if isinstance(error, InvalidRecordError | InvalidTimestampError):
            return ProduceResult(
                code,
                log_start_offset=log_start_offset,
                record_errors=getattr(error, "record_errors", ()),
                error_message=str(error),
            )
        return ProduceResult(code, log_start_offset=log_start_offset)


def _fail_all(entries: Iterable[TopicIdPartition], callback: ProduceCallback) -> None:
    callback(dict.fromkeys(entries, ProduceResult(Errors.UNKNOWN_SERVER_ERROR)))
