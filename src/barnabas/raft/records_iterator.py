"""Decodes bytes of the log, or of a snapshot, to batches of records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas.common.errors import CorruptRecordError
from barnabas.log.segment.file_handle import read_fully
from barnabas.network.reactor.send import FileRegion
from barnabas.protocol.internal.framing import MetadataRecordTypes
from barnabas.protocol.internal.raft import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from barnabas.protocol.message import Message
from barnabas.raft.client import ApiMessageAndVersion, Batch
from barnabas.records.batch import HEADER_SIZE, LENGTH_OFFSET, LOG_OVERHEAD, RecordBatch, iter_batches
from barnabas.records.control import ControlRecordType, parse_control_type
from barnabas.records.reader import read_records

READ_SIZE: Final = 1024 * 1024
"""The most bytes of a file in memory at once, unless a single batch is larger."""

_MESSAGES: Final[dict[ControlRecordType, type[Message]]] = {
    ControlRecordType.LEADER_CHANGE: LeaderChangeMessage,
    ControlRecordType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlRecordType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlRecordType.KRAFT_VERSION: KRaftVersionRecord,
    ControlRecordType.KRAFT_VOTERS: VotersRecord,
}


class ControlRecord(NamedTuple):
    """A Raft control record, with its offset."""

    offset: int
    type: ControlRecordType
    message: Message


def raw_batches(records: FileRegion | bytes, read_size: int = READ_SIZE) -> Iterator[RecordBatch]:
    """Yields the whole batches of a file region, read in chunks. A partial batch at the end is ignored."""
    if isinstance(records, bytes):
        yield from iter_batches(records, allow_partial=True)
        return
    position, end = records.position, records.position + records.count
    wanted = read_size
    while end - position >= HEADER_SIZE:
        data = read_fully(records.fd, min(wanted, end - position), position)
        taken = 0
        for batch in iter_batches(data, allow_partial=True):
            yield batch
            taken += batch.size_in_bytes
        position += taken
        if taken:
            wanted = read_size
            continue
        if len(data) < HEADER_SIZE:
            return
        size = int.from_bytes(data[LENGTH_OFFSET:LOG_OVERHEAD], signed=True) + LOG_OVERHEAD
        if size > end - position or len(data) >= size:
            return
        wanted = size


def decode_batch(batch: RecordBatch, types: MetadataRecordTypes) -> Batch[ApiMessageAndVersion]:
    """Decodes a batch; a control batch yields no records. `CorruptRecordError` if the batch is damaged."""
    batch.ensure_valid()
    records: list[ApiMessageAndVersion] = []
    if not batch.is_control_batch:
        for record in read_records(batch):
            if record.key is not None or not record.value:
                raise CorruptRecordError(
                    f"the record at offset {record.offset} of the metadata log has a key or no value; it should have a "
                    "value only"
                )
            records.append(ApiMessageAndVersion(*types.decode(record.value)))
    return Batch(
        batch.base_offset,
        batch.last_offset,
        batch.partition_leader_epoch,
        batch.max_timestamp,
        batch.size_in_bytes,
        records,
    )


def control_records(batch: RecordBatch) -> Iterator[ControlRecord]:
    """Yields the known records of a control batch; records of later versions are skipped."""
    for record in read_records(batch):
        kind = parse_control_type(record.key)
        cls = _MESSAGES.get(kind)
        if cls is None:
            continue
        if not record.value:
            raise CorruptRecordError(f"the {kind.name} record at offset {record.offset} has no value")
        # Each message begins with its own version, in which it is encoded.
        version = min(int.from_bytes(record.value[:2], signed=True), cls.versions.highest)
        yield ControlRecord(record.offset, kind, cls.decode_from(record.value, version, 0)[0])
