"""Loads the state of a coordinator from its partition."""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from barnabas.common.clock import Clock
from barnabas.common.errors import CorruptRecordError, NotLeaderOrFollowerError, UnsupportedVersionError
from barnabas.common.scheduler import Scheduler
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord, CoordinatorRecordSerde
from barnabas.log.fetch_isolation import FetchIsolation
from barnabas.log.unified_log import UnifiedLog
from barnabas.network.reactor.send import FileRegion
from barnabas.records.batch import RecordBatch, iter_batches
from barnabas.records.control import ControlRecordType, parse_control_type
from barnabas.records.reader import read_records
from barnabas.replica.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)


class CoordinatorPlayback(Protocol):
    """The target of a replay: `SnapshottableCoordinator`."""

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None: ...

    def replay_end_transaction_marker(
        self, producer_id: int, producer_epoch: int, result: ControlRecordType
    ) -> None: ...

    def update_last_written_offset(self, offset: int) -> None: ...

    def update_last_committed_offset(self, offset: int) -> bool: ...


class LoadSummary(NamedTuple):
    """The result of a load."""

    start_ms: int
    end_ms: int
    num_records: int
    num_bytes: int


class CoordinatorLoader(Protocol):
    def load(self, partition: TopicPartition, playback: CoordinatorPlayback) -> Future[LoadSummary]:
        """Replays the whole log of a partition on another thread. The future fails if it cannot be read."""
        ...

    def close(self) -> None: ...


class LogCoordinatorLoader:
    """Replays the local log from its start to its end.

    It reads beyond the high watermark: the leader will not lose those records, and responses that wait for them depend
    on them. But from the high watermark on it creates a snapshot after each batch, so that readers do not see
    uncommitted records.

    Records of a type that only a later Kafka knows are skipped, so that a cluster can be downgraded.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        serde: CoordinatorRecordSerde,
        scheduler: Scheduler,
        clock: Clock,
        load_buffer_size: int,
    ) -> None:
        self._replicas = replicas
        self._serde = serde
        self._scheduler = scheduler
        self._clock = clock
        self._load_buffer_size = load_buffer_size
        self._closed = threading.Event()

    def load(self, partition: TopicPartition, playback: CoordinatorPlayback) -> Future[LoadSummary]:
        future: Future[LoadSummary] = Future()

        def task() -> None:
            try:
                summary = self._load(partition, playback)
            except BaseException as error:  # noqa: BLE001 - passed to the future
                future.set_exception(error)
            else:
                future.set_result(summary)

        self._scheduler.schedule(f"load-{partition}", task)
        return future

    def close(self) -> None:
        """Makes loads in progress fail soon."""
        self._closed.set()

    def _load(self, partition: TopicPartition, playback: CoordinatorPlayback) -> LoadSummary:
        start_ms = self._clock.milliseconds()
        log = self._log(partition)
        offset, high_watermark = log.log_start_offset, -1
        num_records = num_bytes = 0
        while offset < log.log_end_offset:
            if self._closed.is_set():
                raise RuntimeError("the coordinator is shutting down")
            data = self._read(log, offset)
            if not data:
                break
            num_bytes += len(data)
            before = offset
            for batch in iter_batches(data, allow_partial=True):
                num_records += self._play(batch, partition, playback)
                offset = batch.next_offset
                current = log.high_watermark
                if offset >= current:
                    playback.update_last_written_offset(offset)
                if current > high_watermark:
                    playback.update_last_committed_offset(current)
                    high_watermark = current
            if offset == before:
                raise CorruptRecordError(f"{partition} has no complete batch at offset {offset}")
            # A new leader may truncate the records that were read.
            log = self._log(partition)
        playback.update_last_written_offset(offset)
        playback.update_last_committed_offset(log.high_watermark)
        return LoadSummary(start_ms, self._clock.milliseconds(), num_records, num_bytes)

    def _log(self, partition: TopicPartition) -> UnifiedLog:
        log = self._replicas.get_partition_or_exception(partition).leader_log_if_local
        if log is None:
            raise NotLeaderOrFollowerError(f"this broker is no longer the leader of {partition}")
        return log

    def _read(self, log: UnifiedLog, offset: int) -> bytes:
        records = log.read(offset, self._load_buffer_size, FetchIsolation.LOG_END, min_one_message=True).records
        if isinstance(records, FileRegion):
            return os.pread(records.fd, records.count, records.position)
        return records

    def _play(self, batch: RecordBatch, partition: TopicPartition, playback: CoordinatorPlayback) -> int:
        """Replays a batch; returns the number of records."""
        if batch.is_control_batch:
            marker = next(iter(read_records(batch)), None)
            if marker is not None:
                control_type = parse_control_type(marker.key)
                if control_type in {ControlRecordType.COMMIT, ControlRecordType.ABORT}:
                    playback.replay_end_transaction_marker(batch.producer_id, batch.producer_epoch, control_type)
            return 0
        count = 0
        producer_id = batch.producer_id if batch.is_transactional else -1
        for record in read_records(batch):
            count += 1
            if record.key is None:
                logger.warning("Skipping a record without a key in %s at offset %d", partition, record.offset)
                continue
            try:
                decoded = self._serde.deserialize(record.key, record.value)
            except UnsupportedVersionError as error:
                logger.warning("Skipping a record in %s at offset %d: %s", partition, record.offset, error)
                continue
            playback.replay(record.offset, producer_id, batch.producer_epoch, decoded)
        return count
