"""What tests of the cleaner share: compacted logs full of keys, and a look at what is left of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.common.clock import MockClock
from barnabas.log.cleaner.cleaner import Cleaner
from barnabas.log.cleaner.cleaner_offset_map import BYTES_PER_ENTRY, OffsetMap
from barnabas.log.cleaner.cleaner_stats import CleanerStats
from barnabas.log.cleaner.log_to_clean import LogToClean, cleanable_offsets
from barnabas.log.config.log_config import LogConfig
from barnabas.log.fetch_isolation import FetchIsolation
from barnabas.log.log_append_info import LogAppendInfo
from barnabas.log.segment.log_segment import LogSegment
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.aborted_transactions import AbortedTransactions
from barnabas.records.batch import CompressionType, RecordBatch, TimestampType
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.control import ControlRecordType, parse_control_type
from barnabas.records.reader import Record, read_records
from log_fixtures import NOW, end_transaction, fetched_batches

Pair = tuple[bytes | None, bytes | None]
"""A key and a value, either of which may be missing."""

DELETE_RETENTION_MS = 10_000


def compacted(**settings: Any) -> LogConfig:
    """Settings of a compacted topic with a small index."""
    return LogConfig(
        **{
            "cleanup_policy": ("compact",),
            "segment_index_bytes": 4096,
            "index_interval_bytes": 128,
            "delete_retention_ms": DELETE_RETENTION_MS,
            **settings,
        }
    )


def keyed_batch(
    pairs: Sequence[Pair],
    *,
    timestamp: int = NOW,
    timestamps: Sequence[int] | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    **header: Any,
) -> bytearray:
    builder = RecordBatchBuilder(**header)
    for index, (key, value) in enumerate(pairs):
        builder.append(timestamp if timestamps is None else timestamps[index], key, value, headers)
    return builder.close()


def put(log: UnifiedLog, *pairs: Pair, **header: Any) -> LogAppendInfo:
    """Appends one batch."""
    return log.append_as_leader(keyed_batch(pairs, **header), 0)


def put_as_replica(log: UnifiedLog, *pairs: Pair, **header: Any) -> None:
    """Appends one batch without a check of its records: a topic may have had another policy, and no keys."""
    log.append_as_follower(keyed_batch(pairs, base_offset=log.log_end_offset, partition_leader_epoch=0, **header), 0)


def new_cleaner(clock: MockClock, *, keys: int = 10_000, io_buffer_size: int = 1 << 16, **options: Any) -> Cleaner:
    """A cleaner whose map takes so many keys."""
    return Cleaner(OffsetMap(keys * BYTES_PER_ENTRY), clock, io_buffer_size=io_buffer_size, load_factor=1.0, **options)


def to_clean(log: UnifiedLog, first_dirty_offset: int | None = None) -> LogToClean:
    """All that can be cleaned from an offset on."""
    log.watermarks.update_high_watermark(log.log_end_offset)
    offsets = cleanable_offsets(log, first_dirty_offset, NOW)
    return LogToClean.of(log, offsets.first_dirty_offset, offsets.first_uncleanable_dirty_offset)


def clean(
    log: UnifiedLog, clock: MockClock, first_dirty_offset: int | None = None, **options: Any
) -> tuple[int, CleanerStats]:
    return new_cleaner(clock, **options).clean(to_clean(log, first_dirty_offset))


def batches_of(segment: LogSegment) -> list[RecordBatch]:
    found = [batch for _, batch in segment.records.loaded_batches()]
    for batch in found:
        batch.ensure_valid()
    return found


def batches_in(log: UnifiedLog) -> list[RecordBatch]:
    """What is in the files, without a look at the indexes."""
    return [batch for segment in log.segments for batch in batches_of(segment)]


def records_in(log: UnifiedLog) -> list[Record]:
    return [record for batch in batches_in(log) if not batch.is_control_batch for record in read_records(batch)]


def contents(log: UnifiedLog) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of all records that are no markers."""
    return [(record.offset, _bytes(record.key), _bytes(record.value)) for record in records_in(log)]


def _bytes(value: bytes | memoryview | None) -> bytes | None:
    return None if value is None else bytes(value)


def described(batch: RecordBatch) -> tuple[Any, ...]:
    """All that a batch says, but for how its timestamps are encoded."""
    return (
        batch.base_offset,
        batch.last_offset,
        batch.partition_leader_epoch,
        batch.attributes,
        batch.delete_horizon_ms,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in read_records(batch)],
    )


def latest_values(log: UnifiedLog) -> dict[bytes, bytes]:
    """What a reader of all committed records knows of the keys in the end; of deleted ones, nothing."""
    pending: dict[int, list[Record]] = {}
    committed: list[Record] = []
    for batch in batches_in(log):
        records = list(read_records(batch))
        if batch.is_control_batch:
            for record in records:
                ended = pending.pop(batch.producer_id, [])
                if parse_control_type(record.key) is ControlRecordType.COMMIT:
                    committed += ended
        elif batch.is_transactional:
            pending.setdefault(batch.producer_id, []).extend(records)
        else:
            committed += records
    assert not any(pending.values())
    known = {record.key: record for record in sorted(committed, key=lambda record: record.offset)}
    return {bytes(key): bytes(last.value) for key, last in known.items() if key is not None and last.value is not None}


def latest_values_of_read_committed_consumer(log: UnifiedLog) -> dict[bytes, bytes]:
    """The same, by the means that a consumer has: fetches, and the aborted transactions that come with them."""
    known: dict[bytes, bytes | None] = {}
    offset = log.log_start_offset
    while True:
        info = log.read(offset, 700, FetchIsolation.TXN_COMMITTED, True)
        batches = [batch for batch in fetched_batches(info) if batch.last_offset >= offset]
        if not batches:
            break
        assert info.aborted_transactions is not None
        aborted = AbortedTransactions((txn.producer_id, txn.first_offset) for txn in info.aborted_transactions)
        for batch in batches:
            if not aborted.hides(batch) and not batch.is_control_batch:
                for record in read_records(batch):
                    if record.offset >= offset and record.key is not None:
                        known[bytes(record.key)] = None if record.value is None else bytes(record.value)
        offset = batches[-1].next_offset
    return {key: value for key, value in known.items() if value is not None}


@dataclass
class RandomWriter:
    """Fills a log as a handful of producers would: all codecs, tombstones, transactions that end either way."""

    log: UnifiedLog
    clock: MockClock
    chance: random.Random
    keys: int = 12
    sequences: dict[int, int] = field(default_factory=dict)
    open_transactions: set[int] = field(default_factory=set)

    def write(self, batches: int) -> None:
        for _ in range(batches):
            self.clock.advance(self.chance.randrange(20))
            step = self.chance.random()
            if step < 0.1 and self.log.active_segment.size:
                self.log.roll()
            elif step < 0.3 and self.open_transactions:
                self.end(self.chance.choice(sorted(self.open_transactions)))
            else:
                self.append()

    def append(self) -> None:
        chance, now = self.chance, self.clock.milliseconds()
        pairs: list[Pair] = [
            (
                b"key-%d" % chance.randrange(self.keys) + b"-" * chance.choice((0, 0, 20)),
                None if chance.random() < 0.25 else chance.randbytes(chance.choice((0, 3, 40))),
            )
            for _ in range(chance.choice((1, 1, 2, 5, 12)))
        ]
        header: dict[str, Any] = {"compression": chance.choice(list(CompressionType))}
        if chance.random() < 0.2:
            header |= {"timestamp_type": TimestampType.LOG_APPEND_TIME, "log_append_time": now}
        producer_id = chance.choice((-1, 1, 2, 3, 4))
        transactional = producer_id in (3, 4)
        if producer_id >= 0:
            sequence = self.sequences.get(producer_id, 0)
            header |= {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": sequence,
                "is_transactional": transactional,
            }
            self.sequences[producer_id] = sequence + len(pairs)
        data = keyed_batch(
            pairs,
            timestamps=[now + chance.randrange(-5, 5) for _ in pairs],
            headers=(("trace", b"1"), ("none", None)) if chance.random() < 0.2 else (),
            base_offset=self.log.log_end_offset,
            partition_leader_epoch=0,
            **header,
        )
        # As a follower gets it, so that the batch stays what it is, with its own kind of timestamps.
        self.log.append_as_follower(data, 0)
        if transactional:
            self.open_transactions.add(producer_id)

    def end(self, producer_id: int) -> None:
        aborts = self.chance.random() < 0.5
        kind = ControlRecordType.ABORT if aborts else ControlRecordType.COMMIT
        end_transaction(self.log, kind, producer_id, 0, timestamp=self.clock.milliseconds())
        self.open_transactions.discard(producer_id)

    def finish(self) -> None:
        """Ends what is open, and begins a new segment, so that all can be cleaned."""
        for producer_id in sorted(self.open_transactions):
            self.end(producer_id)
        if self.log.active_segment.size:
            self.log.roll()
        self.log.watermarks.update_high_watermark(self.log.log_end_offset)
