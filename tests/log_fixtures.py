"""What tests of whole logs share: a place to open them in, batches as clients send them, a look at what is in them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnabas.common.clock import MockClock
from barnabas.common.scheduler import MockScheduler
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.config.log_config import LogConfig
from barnabas.log.dirs.log_dir_failure import LogDirFailureChannel
from barnabas.log.fetch_data_info import FetchDataInfo
from barnabas.log.fetch_isolation import FetchIsolation
from barnabas.log.log_append_info import LogAppendInfo
from barnabas.log.log_context import LogContext
from barnabas.log.unified_log import UnifiedLog
from barnabas.network.reactor.send import FileRegion
from barnabas.records.batch import CompressionType, RecordBatch, iter_batches
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.control import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch
from barnabas.records.reader import Record, read_records

NOW = 1_700_000_000_000
SMALL_INDEX = 480
"""Enough for a few dozen entries, and quick to copy."""

Value = bytes | tuple[bytes | None, bytes]
"""A value, or a key and a value."""


def client_batch(
    values: Sequence[Value] = (b"value",),
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    timestamp: int = NOW,
    timestamps: Sequence[int] | None = None,
    compression: CompressionType = CompressionType.NONE,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """A batch as a producer sends it; with a base offset and a leader epoch, as a leader has it."""
    builder = RecordBatchBuilder(
        base_offset=base_offset,
        partition_leader_epoch=leader_epoch,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )
    for index, value in enumerate(values):
        key, content = value if isinstance(value, tuple) else (None, value)
        builder.append(timestamp if timestamps is None else timestamps[index], key, content)
    return builder.close()


def marker(
    kind: ControlRecordType, producer_id: int, epoch: int, *, coordinator_epoch: int = 0, timestamp: int = NOW
) -> bytearray:
    """The end of a transaction."""
    return end_transaction_marker_batch(
        EndTransactionMarker(kind, coordinator_epoch),
        producer_id=producer_id,
        producer_epoch=epoch,
        timestamp_ms=timestamp,
    )


@dataclass
class LogBox:
    """A log directory, and all that a log in it needs."""

    directory: Path
    clock: MockClock = field(default_factory=lambda: MockClock(NOW))
    scheduler: MockScheduler = field(init=False)
    channel: LogDirFailureChannel = field(init=False)

    def __post_init__(self) -> None:
        self.restart_process()

    def restart_process(self) -> None:
        """What was in memory is gone."""
        self.scheduler = MockScheduler(self.clock)
        self.channel = LogDirFailureChannel(self.clock)

    @property
    def context(self) -> LogContext:
        return LogContext(self.clock, self.scheduler, self.channel)

    def config(self, **settings: Any) -> LogConfig:
        return LogConfig(**{"segment_index_bytes": SMALL_INDEX, **settings})

    def open(self, config: LogConfig | None = None, *, name: str = "topic-0", **options: Any) -> UnifiedLog:
        """Opens the log; without options, as after a clean shutdown."""
        return UnifiedLog.open(self.directory / name, config or self.config(), self.context, **options)

    def files(self, name: str = "topic-0") -> list[str]:
        return sorted(path.name for path in (self.directory / name).iterdir())


def append(log: UnifiedLog, *values: Value, leader_epoch: int = 0, **options: Any) -> LogAppendInfo:
    """Appends one batch of these values."""
    return log.append_as_leader(client_batch(values or (b"value",), **options), leader_epoch)


def end_transaction(
    log: UnifiedLog, kind: ControlRecordType, producer_id: int, epoch: int, *, leader_epoch: int = 0, **options: Any
) -> LogAppendInfo:
    """Appends a marker, as the transaction coordinator does."""
    return log.append_as_leader(
        marker(kind, producer_id, epoch, **options), leader_epoch, AppendOrigin.COORDINATOR, transaction_version=1
    )


def fetched_bytes(info: FetchDataInfo) -> bytes:
    """What the transport would have sent."""
    if isinstance(info.records, FileRegion):
        return os.pread(info.records.fd, info.records.count, info.records.position)
    return info.records


def fetched_batches(info: FetchDataInfo) -> list[RecordBatch]:
    return list(iter_batches(fetched_bytes(info), allow_partial=True))


def read_from(
    log: UnifiedLog, offset: int = 0, isolation: FetchIsolation = FetchIsolation.LOG_END, max_length: int = 1 << 20
) -> FetchDataInfo:
    return log.read(offset, max_length, isolation, True)


def all_batches(log: UnifiedLog, isolation: FetchIsolation = FetchIsolation.LOG_END) -> list[RecordBatch]:
    """Everything that a reader gets to see, one fetch after the other."""
    found: list[RecordBatch] = []
    offset = log.log_start_offset
    while True:
        batches = [batch for batch in fetched_batches(read_from(log, offset, isolation)) if batch.last_offset >= offset]
        if not batches:
            return found
        found += batches
        offset = batches[-1].next_offset


def all_records(log: UnifiedLog, isolation: FetchIsolation = FetchIsolation.LOG_END) -> list[Record]:
    return [record for batch in all_batches(log, isolation) for record in read_records(batch)]


def values(records: Iterable[Record]) -> list[bytes]:
    return [bytes(record.value or b"") for record in records]


def offsets(records: Iterable[Record]) -> list[int]:
    return [record.offset for record in records]
