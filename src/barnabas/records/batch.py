"""The record batch: the unit in which records are produced, stored, replicated and fetched.

A batch is a header of 61 bytes followed by a *records section*, which is compressed as a whole or not at all::

     0  base offset            int64   offset of the first record      \\  the broker writes these two when it
     8  batch length           int32   bytes after this field           |  appends; they are outside the
    12  partition leader epoch int32   epoch of the appending leader   /   checksum, so nothing else changes
    16  magic                  int8    2
    17  crc                    uint32  CRC-32C of everything that follows
    21  attributes             int16   compression (0-2), timestamp type (3), transactional (4), control (5),
                                       delete horizon (6)
    23  last offset delta      int32   last offset - base offset
    27  base timestamp         int64   the base of the records' timestamp deltas (or the delete horizon)
    35  max timestamp          int64   the largest one; for append time, the timestamp of all records
    43  producer id            int64   \\
    51  producer epoch         int16    |  the producer, for idempotence and transactions; -1 without one
    53  base sequence          int32   /
    57  record count           int32

This layout lets a broker move batches without reading records: a producer leaves the base offset at 0, the leader sets
it, and consumers compute each record's offset from it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

from barnabas._kernels import checksum
from barnabas.common.errors import CorruptRecordError, InvalidRecordError, UnsupportedCompressionTypeError
from barnabas.common.timestamp_type import TimestampType as TimestampType  # noqa: PLC0414 - re-exported

crc32c = checksum.crc32c

MAGIC: Final = 2
"""The format of this module. 0 and 1 are message sets from before Kafka 0.11, which are rejected."""

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = 61
LOG_OVERHEAD: Final = 12
"""The size of base offset and batch length, which the batch length does not include."""
MAX_RECORD_OVERHEAD: Final = 21
"""The largest size of a record without key, value and headers."""

LENGTH_OFFSET: Final = 8
PARTITION_LEADER_EPOCH_OFFSET: Final = 12
MAGIC_OFFSET: Final = 16
CRC_OFFSET: Final = 17
ATTRIBUTES_OFFSET: Final = 21
MAX_TIMESTAMP_OFFSET: Final = 35

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
DELETE_HORIZON_MASK: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_PARTITION_LEADER_EPOCH: Final = -1

MAX_SEQUENCE: Final = 2**31 - 1
# The smallest message of the oldest format, less LOG_OVERHEAD: checked before the magic is known.
_SMALLEST_LENGTH: Final = 14

_INT64: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_INT16: Final = struct.Struct(">h")
_PLACE: Final = struct.Struct(">qii")
"""Base offset, batch length and partition leader epoch: the start of a header."""


class CompressionType(IntEnum):
    """How a records section is compressed. `codec_name` is the name in configuration files."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def codec_name(self) -> str:
        return self.name.lower()

    @classmethod
    def for_name(cls, name: str) -> CompressionType:
        for member in cls:
            if member.codec_name == name:
                return member
        raise ValueError(f"unknown compression type {name!r}: expected one of {', '.join(m.codec_name for m in cls)}")


def increment_sequence(sequence: int, increment: int) -> int:
    """Increments a sequence number, which wraps from 2**31 - 1 to 0 (it is never negative)."""
    return (sequence + increment) & MAX_SEQUENCE


def decrement_sequence(sequence: int, decrement: int) -> int:
    return (sequence - decrement) & MAX_SEQUENCE


class RecordBatch:
    """A view of one batch in a buffer: header fields as attributes, records unread, nothing copied.

    The constructor unpacks the header in one step. It checks only the batch's boundaries (its length, and that the
    magic is 2); `validation` checks the rest. On a writable buffer, the fields that a broker assigns can be patched in
    place::

        batch = RecordBatch(request_buffer, offset=108)
        batch.place(next_offset, leader_epoch)
        log.write(batch.view)

    The fields are read-only: changing one does not change the bytes.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "record_count",
        "view",
    )

    view: memoryview
    """The bytes of the batch, header included."""
    base_offset: int
    batch_length: int
    """The length in the header: without base offset and the length field itself."""
    partition_leader_epoch: int
    magic: int
    crc: int
    """The checksum in the header."""
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    def __init__(self, buffer: bytes | bytearray | memoryview, offset: int = 0, *, is_whole: bool = True) -> None:
        """Takes the batch that begins at `offset`. Without `is_whole` only its header: a subclass has the `view`."""
        whole = buffer if type(buffer) is memoryview else memoryview(buffer)
        remaining = len(whole) - offset
        if remaining >= HEADER_SIZE:
            (
                self.base_offset,
                self.batch_length,
                self.partition_leader_epoch,
                self.magic,
                self.crc,
                self.attributes,
                self.last_offset_delta,
                self.base_timestamp,
                self.max_timestamp,
                self.producer_id,
                self.producer_epoch,
                self.base_sequence,
                self.record_count,
            ) = HEADER.unpack_from(whole, offset)
            if not is_whole:
                return
            size = self.batch_length + LOG_OVERHEAD
            if HEADER_SIZE <= size <= remaining and self.magic == MAGIC:
                self.view = whole if size == remaining and not offset else whole[offset : offset + size]
                return
        _batch_size(whole, offset)  # raises, unless the batch is only truncated
        raise _cut_off(whole, offset)

    @property
    def size_in_bytes(self) -> int:
        return self.batch_length + LOG_OVERHEAD

    @property
    def compression_type(self) -> CompressionType:
        identifier = self.attributes & COMPRESSION_MASK
        if identifier > CompressionType.ZSTD:
            raise UnsupportedCompressionTypeError(f"unknown compression type {identifier} in {self._where()}")
        return CompressionType(identifier)

    @property
    def is_compressed(self) -> bool:
        return self.attributes & COMPRESSION_MASK != 0

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_MASK else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_MASK != 0

    @property
    def is_control_batch(self) -> bool:
        return self.attributes & CONTROL_MASK != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may remove the tombstones and markers in this batch; None if not decided yet.

        The cleaner stores it in the base timestamp. The timestamp deltas of the records compensate for it.
        """
        return self.base_timestamp if self.attributes & DELETE_HORIZON_MASK else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; -1 for a batch without sequence numbers."""
        base = self.base_sequence
        return NO_SEQUENCE if base == NO_SEQUENCE else increment_sequence(base, self.last_offset_delta)

    @property
    def records_view(self) -> memoryview:
        """The records section as stored in the batch: compressed, if the batch is."""
        return self.view[HEADER_SIZE:]

    def compute_crc(self) -> int:
        """Computes the checksum that the header should have."""
        return crc32c(self.view[ATTRIBUTES_OFFSET:])

    def is_valid(self) -> bool:
        """Whether the checksum is correct."""
        return self.compute_crc() == self.crc

    def ensure_valid(self) -> None:
        """Raises `CorruptRecordError` unless the checksum is correct."""
        computed = self.compute_crc()
        if computed != self.crc:
            raise CorruptRecordError(
                f"{self._where()} is corrupt: its checksum is {computed:#010x}, but the header says {self.crc:#010x}"
            )

    def set_base_offset(self, offset: int) -> None:
        """Moves the batch to `offset`. The checksum does not cover it."""
        _INT64.pack_into(self.view, 0, offset)
        self.base_offset = offset

    def set_partition_leader_epoch(self, epoch: int) -> None:
        """Sets the leader epoch that appended the batch. The checksum does not cover it."""
        _INT32.pack_into(self.view, PARTITION_LEADER_EPOCH_OFFSET, epoch)
        self.partition_leader_epoch = epoch

    def place(self, offset: int, leader_epoch: int) -> None:
        """Assigns base offset and leader epoch in one write. The checksum does not cover them."""
        _PLACE.pack_into(self.view, 0, offset, self.batch_length, leader_epoch)
        self.base_offset = offset
        self.partition_leader_epoch = leader_epoch

    def set_max_timestamp(self, timestamp_type: TimestampType, timestamp: int) -> None:
        """Sets timestamp type and largest timestamp: for append time, this sets the timestamp of all records.

        The checksum covers both fields and is computed again. If nothing changes, nothing is written.
        """
        attributes = self.attributes & ~TIMESTAMP_TYPE_MASK
        if timestamp_type is TimestampType.LOG_APPEND_TIME:
            attributes |= TIMESTAMP_TYPE_MASK
        if attributes == self.attributes and timestamp == self.max_timestamp:
            return
        _INT16.pack_into(self.view, ATTRIBUTES_OFFSET, attributes)
        _INT64.pack_into(self.view, MAX_TIMESTAMP_OFFSET, timestamp)
        crc = self.compute_crc()
        _UINT32.pack_into(self.view, CRC_OFFSET, crc)
        self.attributes, self.max_timestamp, self.crc = attributes, timestamp, crc

    def _where(self) -> str:
        return f"the record batch at offset {self.base_offset}"

    def __len__(self) -> int:
        return len(self.view)

    def __eq__(self, other: object) -> bool:
        return self.view == other.view if isinstance(other, RecordBatch) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # a view of bytes that may be patched

    def __repr__(self) -> str:
        identifier = self.attributes & COMPRESSION_MASK
        codec = (
            CompressionType(identifier).codec_name if identifier <= CompressionType.ZSTD else f"unknown {identifier}"
        )
        flags = ", ".join(
            name
            for name, is_set in (
                ("transactional", self.is_transactional),
                ("control", self.is_control_batch),
                (f"delete_horizon_ms={self.delete_horizon_ms}", self.delete_horizon_ms is not None),
            )
            if is_set
        )
        producer = (
            f", producer={self.producer_id}:{self.producer_epoch}, sequences={self.base_sequence}..{self.last_sequence}"
            if self.has_producer_id
            else ""
        )
        return (
            f"RecordBatch(offsets={self.base_offset}..{self.last_offset}, records={self.record_count}, "
            f"size={self.size_in_bytes}, epoch={self.partition_leader_epoch}, compression={codec}, "
            f"{self.timestamp_type.kafka_name}={self.max_timestamp}{producer}{', ' * bool(flags)}{flags})"
        )


def iter_batches(
    buffer: bytes | bytearray | memoryview, *, allow_partial: bool = False, offset: int = 0
) -> Iterator[RecordBatch]:
    """Iterates over the batches of a buffer.

    A broker limits a fetch response by bytes, possibly in the middle of a batch. The consumer passes `allow_partial`
    and gets the complete batches. Without it, a truncated batch at the end raises `CorruptRecordError`, as it should in
    a produce request.
    """
    whole = memoryview(buffer)
    while offset < len(whole):
        size = _batch_size(whole, offset)
        if size is None:
            if allow_partial:
                return
            raise _cut_off(whole, offset)
        yield RecordBatch(whole, offset)
        offset += size


def _cut_off(whole: memoryview, offset: int) -> CorruptRecordError:
    return CorruptRecordError(
        f"the record batch at byte {offset} is cut off: only {len(whole) - offset} bytes of it are there"
    )


def _batch_size(whole: memoryview, offset: int) -> int | None:
    """Returns the size of the batch at `offset`, header included; None if the buffer ends before the batch."""
    remaining = len(whole) - offset
    if remaining < LOG_OVERHEAD:
        return None
    (length,) = _INT32.unpack_from(whole, offset + LENGTH_OFFSET)
    # Detect damage as early as possible: with a wrong length, consumers would wait forever for more bytes.
    if length < _SMALLEST_LENGTH:
        raise CorruptRecordError(f"the record batch at byte {offset} has an impossible length of {length} bytes")
    if remaining <= MAGIC_OFFSET:
        return None
    magic = whole[offset + MAGIC_OFFSET]
    if magic != MAGIC:
        if magic < MAGIC:
            raise InvalidRecordError(
                f"the record batch at byte {offset} has message format {magic}; only {MAGIC} is supported"
            )
        raise CorruptRecordError(f"the record batch at byte {offset} has the unknown magic {magic}")
    size: int = length + LOG_OVERHEAD
    if size < HEADER_SIZE:
        raise CorruptRecordError(
            f"the record batch at byte {offset} has {size} bytes, which is less than its header of {HEADER_SIZE}"
        )
    return size if size <= remaining else None
