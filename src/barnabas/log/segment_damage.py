"""Where a segment's file is damaged, and whether that is its end or its middle.

A process that is killed in the middle of a write leaves the first part of a batch at the end of the file, and nothing
behind it. To cut that off loses nothing: nobody was told that the batch is safe. A power cut can leave more, but only
in what had not been forced to disk.

Damage that has intact batches behind it, or that lies in what had been forced to disk, is something else: a bad disk, a
stray write, a file that somebody edited. To cut there would throw away good records that were acknowledged, without
anybody having asked. And to serve the log as it is would make every consumer stumble. So such a log stays closed
until a person has decided, with this report in hand.

`find_damage` reads a file and tells which of the two it is.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from barnabas.common.errors import CorruptRecordError, InvalidRecordError, KafkaStorageError
from barnabas.log.abstract_index import MAX_RELATIVE_OFFSET
from barnabas.log.file_records import FileRecords
from barnabas.records.batch import HEADER_SIZE, LENGTH_OFFSET, LOG_OVERHEAD, MAGIC, MAGIC_OFFSET, RecordBatch

_CHUNK: Final = 4 << 20
_MAGIC_BYTE: Final = bytes((MAGIC,))


class CorruptLogError(KafkaStorageError):
    """A log whose middle is damaged. Its records are not served, and nothing in its files is changed."""


class DamagePolicy(Enum):
    """What to do about a log with damage that is not just an unfinished write at its end."""

    OFFLINE = auto()
    """Leave it alone and do not serve it: `CorruptLogError`."""
    TRUNCATE = auto()
    """Cut it off at the damage, as Kafka does. Right where another replica has what is lost."""


class Damage(NamedTuple):
    """The first place in a file where no intact batch is."""

    position: int
    offset: int
    """The offset that was to come there."""
    size: int
    """The bytes from there to the end of the file."""
    reason: str
    intact_behind: int | None
    """The position of a batch there or further on whose checksum is right."""


def find_damage(records: FileRecords, base_offset: int) -> Damage | None:
    """Looks at every batch of a file, as recovery does; None if they are all intact."""
    position, offset = 0, base_offset
    reason = "the file ends in the middle of a batch"
    try:
        for at, batch in records.loaded_batches():
            batch.ensure_valid()
            if not offset <= batch.base_offset <= batch.last_offset:
                # Offsets are outside the checksum. Either this one or one before it is wrong; but here is a batch.
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
    """The first place that an intact batch begins at, with an offset that may come here.

    The length in a damaged header says nothing, so every place is tried where the magic number is in its place. (That
    is one in 256, and a glance at offset and length rules nearly all of them out.)
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
    """Whether a batch with a right checksum begins here, and is followed by another one or by the end.

    The latter, because a record may have a whole batch in it: somebody keeps what they fetched. But behind such a one
    the rest of the record follows.
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
    """The size of the batch that seems to begin here; None if no batch can begin so."""
    head = records.read_bytes(position, MAGIC_OFFSET + 1)
    size = int.from_bytes(head[LENGTH_OFFSET:LOG_OVERHEAD], signed=True) + LOG_OVERHEAD
    return size if size >= HEADER_SIZE and head[MAGIC_OFFSET] == MAGIC else None
