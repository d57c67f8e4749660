"""Finds damage in a segment's file, and tells damage at the end from damage in the middle.

A process that is killed during a write leaves an incomplete batch at the end of the file. Truncating it loses nothing:
the batch was not acknowledged. A power cut can damage more, but only bytes that had not been forced to disk.

Damage before intact batches, or in bytes that had been forced to disk, has other causes: a bad disk, a stray write, a
file that was edited. Truncating there would silently discard good, acknowledged records. Serving the log as it is would
make every consumer fail. So such a log stays offline until an operator decides, based on this report.

`find_damage` reads a file and tells the two cases apart.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from barnabas.common.errors import CorruptRecordError, InvalidRecordError, KafkaStorageError
from barnabas.log.index.abstract_index import MAX_RELATIVE_OFFSET
from barnabas.log.segment.file_records import FileRecords
from barnabas.records.batch import HEADER_SIZE, LENGTH_OFFSET, LOG_OVERHEAD, MAGIC, MAGIC_OFFSET, RecordBatch

_CHUNK: Final = 4 << 20
_MAGIC_BYTE: Final = bytes((MAGIC,))


class CorruptLogError(KafkaStorageError):
    """A log that is damaged in the middle. Its records are not served, and its files are not changed."""


class DamagePolicy(Enum):
    """What to do with a log whose damage is more than an incomplete write at its end."""

    OFFLINE = auto()
    """Do not change or serve it: `CorruptLogError`."""
    TRUNCATE = auto()
    """Truncate it at the damage, as Kafka does. Safe if another replica has the lost records."""


class Damage(NamedTuple):
    """The first position in a file without an intact batch."""

    position: int
    offset: int
    """The offset that was expected there."""
    size: int
    """The bytes from there to the end of the file."""
    reason: str
    intact_behind: int | None
    """The position of an intact batch there or later, if there is one."""


def find_damage(records: FileRecords, base_offset: int) -> Damage | None:
    """Checks every batch of a file, as recovery does; returns None if all are intact."""
    position, offset = 0, base_offset
    reason = "the file ends in the middle of a batch"
    try:
        for at, batch in records.loaded_batches():
            batch.ensure_valid()
            if not offset <= batch.base_offset <= batch.last_offset:
                # The checksum does not cover the base offset. It is wrong here or in an earlier batch.
                reason = f"the batch has offsets {batch.base_offset} to {batch.last_offset}"
                return Damage(at, offset, records.size_in_bytes - at, reason, at)
            position, offset = at + batch.size_in_bytes, batch.next_offset
    except (CorruptRecordError, InvalidRecordError) as error:
        reason = str(error)
    size = records.size_in_bytes - position
    if not size:
        return None
    return Damage(position, offset, size, reason, _find_intact_batch(records, position + 1, offset, base_offset))


def _find_intact_batch(records: FileRecords, start: int, offset: int, base_offset: int) -> int | None:
    """Finds the first intact batch with a plausible offset.

    The length in a damaged header is unreliable, so every position with the right magic byte is tried. (That is one in
    256, and a check of offset and length excludes nearly all of them.)
    """
    end = records.size_in_bytes
    position = start
    while end - position >= HEADER_SIZE:
        chunk = records.read_bytes(position, min(_CHUNK, end - position))
        at = chunk.find(_MAGIC_BYTE, MAGIC_OFFSET)
        while at >= 0:
            begin = at - MAGIC_OFFSET
            candidate = int.from_bytes(chunk[begin : begin + 8], signed=True)
            if offset < candidate <= base_offset + MAX_RELATIVE_OFFSET and _is_intact(records, position + begin):
                return position + begin
            at = chunk.find(_MAGIC_BYTE, at + 1)
        if position + len(chunk) >= end:
            break
        position += len(chunk) - MAGIC_OFFSET
    return None


def _is_intact(records: FileRecords, position: int) -> bool:
    """Whether a batch with a correct checksum begins here, followed by another batch or the end of the file.

    A record's value may contain a whole batch, if a producer stores fetched bytes. But such a batch is followed by the
    rest of the record.
    """
    size = _plausible_size(records, position)
    if size is None or size > records.size_in_bytes - position:
        return False
    batch = RecordBatch(records.read_bytes(position, size))
    if batch.last_offset_delta < 0 or not batch.is_valid():
        return False
    behind = position + size
    return records.size_in_bytes - behind < HEADER_SIZE or _plausible_size(records, behind) is not None


def _plausible_size(records: FileRecords, position: int) -> int | None:
    """Returns the size of the batch that seems to begin here; None if no batch can begin here."""
    head = records.read_bytes(position, MAGIC_OFFSET + 1)
    size = int.from_bytes(head[LENGTH_OFFSET:LOG_OVERHEAD], signed=True) + LOG_OVERHEAD
    return size if size >= HEADER_SIZE and head[MAGIC_OFFSET] == MAGIC else None
