"""Decides whether a batch may enter a log: first by its header, then (optionally) record by record.

Two errors have different meanings for the client:

- `CorruptRecordError` (code 2): the bytes differ from those sent. It is *retriable*: sending them again may help.
- `InvalidRecordError` (code 87): the client sent invalid bytes. Sending them again cannot help.

The checksum distinguishes them. Before it is verified, any error is damage; afterwards, the producer wrote it. So
`validate_records` turns damage inside a batch into `InvalidRecordError`, as Kafka's broker does.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from barnabas._kernels import record_codec
from barnabas.common.dataclass import dataclass
from barnabas.common.errors import CorruptRecordError, InvalidRecordError
from barnabas.records.batch import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    CompressionType,
    RecordBatch,
)
from barnabas.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from barnabas.records.reader import uncompressed_records

walk_records = record_codec.walk_records

_MAX_OFFSET: Final = 2**63 - 1


class AppendOrigin(Enum):
    """The source of a batch, which decides what it may contain and which checks apply."""

    CLIENT = "client"
    """A produce request: one complete batch of new records. Everything is checked."""
    COORDINATOR = "coordinator"
    """The broker itself: offset commits, with a producer epoch but no sequence numbers, and transaction markers."""
    REPLICATION = "replication"
    """The partition's leader, or this log itself when it is read again at the start. The batch has been checked before,
    may have been compacted, and must be accepted as it is: a follower that rejected the leader's batches could never
    catch up."""
    RAFT_LEADER = "raft leader"
    """The metadata quorum's leader: metadata and control records, with offsets in place."""


@dataclass(frozen=True, slots=True)
class RecordsSummary:
    """The facts about the records that `validate_records` collects for the log."""

    record_count: int
    records_size: int
    """Uncompressed size of all records."""
    min_timestamp: int
    max_timestamp: int
    """The largest timestamp of the records; a header with append time has another one. -1 without records."""
    offset_of_max_timestamp: int
    """The offset of the first record with the largest timestamp; -1 without records."""
    first_record_without_key: int
    """Its index in the batch, or -1: a compacted topic rejects records without a key."""


def validate_header(batch: RecordBatch, *, origin: AppendOrigin = AppendOrigin.CLIENT, check_crc: bool = True) -> None:
    """Checks everything that does not need the records: a fixed amount of work, and one checksum.

    `RecordBatch` has already checked magic and length.
    """
    if check_crc:
        batch.ensure_valid()
    if batch.attributes & COMPRESSION_MASK > CompressionType.ZSTD:
        batch.compression_type  # noqa: B018 - raises for an unknown codec
    where = f"the record batch at offset {batch.base_offset}"
    count, last_delta = batch.record_count, batch.last_offset_delta
    if last_delta < 0:
        raise InvalidRecordError(f"{where} has the invalid offset range {batch.base_offset}..{batch.last_offset}")
    if count < 0:
        raise InvalidRecordError(f"{where} claims {count} records")
    if count > last_delta + 1:
        raise InvalidRecordError(f"{where} claims {count} records in an offset range of {last_delta + 1}")
    if not 0 <= batch.base_offset <= _MAX_OFFSET - last_delta:
        raise InvalidRecordError(f"{where} has an offset beyond 64 bits, or below 0")
    if batch.base_timestamp < NO_TIMESTAMP or batch.max_timestamp < NO_TIMESTAMP:
        raise InvalidRecordError(
            f"{where} has an invalid timestamp (base {batch.base_timestamp}, largest {batch.max_timestamp})"
        )
    if batch.producer_id >= 0 or batch.attributes & TRANSACTIONAL_MASK:
        _validate_producer(batch, where)
    if origin is AppendOrigin.CLIENT:
        _validate_client_batch(batch, where)


def _validate_producer(batch: RecordBatch, where: str) -> None:
    if batch.has_producer_id:
        if batch.producer_epoch < 0:
            raise InvalidRecordError(
                f"{where} is from producer {batch.producer_id} with the invalid epoch {batch.producer_epoch}"
            )
        # Transaction markers carry the producer's id and epoch, but are not part of its sequence.
        if batch.base_sequence < 0 and not batch.is_control_batch:
            raise InvalidRecordError(
                f"{where} is from producer {batch.producer_id} with the invalid sequence number {batch.base_sequence}"
            )
    elif batch.is_transactional:
        raise InvalidRecordError(f"{where} is transactional, but has no producer id")


def _validate_client_batch(batch: RecordBatch, where: str) -> None:
    if batch.base_offset != 0:
        raise InvalidRecordError(f"{where} comes from a client, which must leave the base offset at 0")
    if batch.attributes & CONTROL_MASK:
        raise InvalidRecordError(f"{where} is a control batch, which clients are not allowed to write")
    if batch.record_count == 0:
        raise InvalidRecordError(f"{where} has no records")
    if batch.record_count != batch.last_offset_delta + 1:
        raise InvalidRecordError(
            f"{where} claims {batch.record_count} records in an offset range of {batch.last_offset_delta + 1}"
        )


def validate_records(
    batch: RecordBatch,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    consecutive: bool = True,
    check_max_timestamp: bool = True,
) -> RecordsSummary:
    """Checks all records of a batch that passed `validate_header`, without creating objects for them.

    Lengths must add up to the last byte, the count must be correct, headers must have keys, and offset deltas must be
    0, 1, 2 and so on. For a batch that may have been compacted, pass ``consecutive=False``: then they must only ascend.

    With `check_max_timestamp`, the largest timestamp must be the one in the header. Kafka's broker does not require
    this: for the sake of old clients, it corrects the header. To do that, turn the check off and pass the summary's
    `max_timestamp` to `RecordBatch.set_max_timestamp`.
    """
    where = f"the record batch at offset {batch.base_offset}"
    try:
        data = uncompressed_records(batch, max_decompressed_bytes)
        lowest, highest, delta_of_highest, without_key = walk_records(
            data, batch.record_count, batch.base_timestamp, batch.last_offset_delta, consecutive
        )
    except (CorruptRecordError, InvalidRecordError) as error:
        raise InvalidRecordError(f"{where}: {error}") from error
    if batch.record_count and not batch.attributes & TIMESTAMP_TYPE_MASK:
        if lowest < NO_TIMESTAMP:
            raise InvalidRecordError(f"{where} has a record with the invalid timestamp {lowest}")
        if check_max_timestamp and highest != batch.max_timestamp:
            raise InvalidRecordError(
                f"{where} says that its largest timestamp is {batch.max_timestamp}, but it is {highest}"
            )
    return RecordsSummary(
        record_count=batch.record_count,
        records_size=len(data),
        min_timestamp=lowest,
        max_timestamp=highest,
        offset_of_max_timestamp=-1 if delta_of_highest < 0 else batch.base_offset + delta_of_highest,
        first_record_without_key=without_key,
    )
