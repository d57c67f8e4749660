"""Encodes Arrow columns as record batches."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, TypeAlias, TypedDict, Unpack

import pyarrow as pa

from barnabas._kernels import checksum
from barnabas._kernels import columns as kernel
from barnabas.common.dataclass import dataclass
from barnabas.records.batch import (
    ATTRIBUTES_OFFSET,
    CRC_OFFSET,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_MASK,
    CompressionType,
    increment_sequence,
)
from barnabas.records.columns.input import Column, encoder_for, timestamps_or
from barnabas.records.compression import check_level, compress

crc32c = checksum.crc32c

_MAX_INT32: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1
_UINT32: Final = struct.Struct(">I")

Octets: TypeAlias = bytearray | memoryview


class HeaderFields(TypedDict, total=False):
    """Fields of the headers of encoded batches; the default is none, uncompressed."""

    compression: CompressionType
    level: int | None
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    partition_leader_epoch: int


def encode_batch(
    *,
    values: Column,
    keys: Column | None = None,
    headers: Column | None = None,
    timestamps: Column | int,
    base_offset: int = 0,
    **header: Unpack[HeaderFields],
) -> bytearray:
    """Encodes all records as one batch.

    Keys and values are binary or string arrays of any kind; nulls are Kafka's nulls. Headers are a list of structs of
    key and value, or a map, per record; a null list means no headers. Timestamps are milliseconds as integers, or Arrow
    timestamps of any unit (truncated to milliseconds), or one integer for all; -1 means no timestamp.
    """
    encoder = encoder_for(values, keys, headers, timestamps)
    if not encoder.length:
        raise ValueError("a batch needs at least one record")
    count, size = encoder.measure(0, _section_limit(None))
    if count != encoder.length:
        raise ValueError(f"{encoder.length} records do not fit into one batch of 2 GiB: encode_batches makes several")
    batch = _Header(**header).batch(encoder, 0, count, size, base_offset)
    assert isinstance(batch, bytearray)
    return batch


def encode_batches(
    data: pa.Table | pa.RecordBatch | Mapping[str, Column],
    *,
    max_batch_bytes: int,
    timestamps: Column | int | None = None,
    base_offset: int | None = None,
    **header: Unpack[HeaderFields],
) -> list[bytearray]:
    """Encodes the records of a table as batches of at most `max_batch_bytes` (header included, uncompressed).

    A record that exceeds this limit gets its own batch. The table has a column ``value`` and may have ``key``,
    ``headers`` and ``timestamp``; others are ignored. `timestamps` is the default for a missing timestamp column or
    null timestamps.

    Without `base_offset` every batch starts at offset 0, as a producer must send it: a broker rejects compressed
    batches with other offsets. With it, the batches are contiguous as in a log. Sequence numbers, if there are any,
    continue across all batches.
    """
    encoder = BatchEncoder(data, timestamps=timestamps, **header)
    batches: list[bytearray] = []
    first = 0
    while True:
        count, size = encoder.measure(first, max_batch_bytes)
        if not count:
            return batches
        batch = encoder.batch(first, count, size, 0 if base_offset is None else base_offset + first)
        assert isinstance(batch, bytearray)
        batches.append(batch)
        first += count


class BatchEncoder:
    """`encode_batches` step by step, for callers that choose the size of each batch.

    ``checksum=False`` leaves the checksum out, for a sender that changes the header and computes it afterwards: a
    second pass over all bytes would take a third of the encoding time.
    """

    __slots__ = ("_checksum", "_encoder", "_header")

    def __init__(
        self,
        data: pa.Table | pa.RecordBatch | Mapping[str, Column],
        *,
        timestamps: Column | int | None = None,
        checksum: bool = True,
        **header: Unpack[HeaderFields],
    ) -> None:
        columns = _named_columns(data)
        stamps = timestamps_or(columns.get("timestamp"), timestamps)
        self._encoder = encoder_for(columns["value"], columns.get("key"), columns.get("headers"), stamps)
        self._header = _Header(**header)
        self._checksum = checksum

    def __len__(self) -> int:
        return self._encoder.length

    def measure(self, first: int, max_batch_bytes: int) -> tuple[int, int]:
        """Returns how many records from `first` on fit a batch of `max_batch_bytes` before compression, and their size.

        The count is at least one, even if that record is too large.
        """
        if max_batch_bytes <= HEADER_SIZE:
            raise ValueError(
                f"max_batch_bytes of {max_batch_bytes} leaves no room for records behind the {HEADER_SIZE}-byte header"
            )
        return self._encoder.measure(first, _section_limit(max_batch_bytes))

    def batch(self, first: int, count: int, size: int, base_offset: int = 0, into: Octets | None = None) -> Octets:
        """Encodes a batch of records that were measured.

        Records are written to `into`, if given, which is the result if they are not compressed. A memoryview has to be
        as long as the batch before compression.
        """
        return self._header.batch(self._encoder, first, count, size, base_offset, checksum=self._checksum, into=into)


def _section_limit(max_batch_bytes: int | None) -> int:
    """Returns the largest size of a records section; the kernel enforces the limits of the format."""
    largest = _MAX_INT32 if max_batch_bytes is None else min(max_batch_bytes, _MAX_INT32)
    return largest - HEADER_SIZE


@dataclass(frozen=True, slots=True)
class _Header:
    """The header fields that all batches of one call share; finishes the batches."""

    compression: CompressionType = CompressionType.NONE
    level: int | None = None
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    is_transactional: bool = False
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH

    def __post_init__(self) -> None:
        check_level(self.compression, self.level)
        for name, bits in (
            ("producer_id", 63),
            ("producer_epoch", 15),
            ("base_sequence", 31),
            ("partition_leader_epoch", 31),
        ):
            number = getattr(self, name)
            if not -1 <= number < 1 << bits:
                raise ValueError(f"{name} {number} is neither -1 nor a number of {bits} bits")
        if self.producer_id >= 0 and (self.producer_epoch < 0 or self.base_sequence < 0):
            raise ValueError(f"producer {self.producer_id} needs an epoch and a sequence number")
        if self.is_transactional and self.producer_id < 0:
            raise ValueError("a transactional batch needs a producer id")

    def batch(
        self,
        encoder: kernel.Encoder,
        first: int,
        count: int,
        size: int,
        base_offset: int,
        *,
        checksum: bool = True,
        into: Octets | None = None,
    ) -> Octets:
        """Encodes `count` records from `first` on, whose records section was measured at `size` bytes."""
        if not 0 <= base_offset <= _MAX_INT64 - count:
            raise ValueError(f"base offset {base_offset} is out of range")
        out, max_timestamp = encoder.write(first, count, size, HEADER_SIZE, into)
        if self.compression is not CompressionType.NONE:
            out = bytearray(HEADER_SIZE) + compress(self.compression, memoryview(out)[HEADER_SIZE:], self.level)
        sequence = self.base_sequence
        HEADER.pack_into(
            out,
            0,
            base_offset,
            len(out) - LOG_OVERHEAD,
            self.partition_leader_epoch,
            MAGIC,
            0,
            self.compression | (TRANSACTIONAL_MASK if self.is_transactional else 0),
            count - 1,
            encoder.base_timestamp(first),
            max_timestamp,
            self.producer_id,
            self.producer_epoch,
            NO_SEQUENCE if sequence < 0 else increment_sequence(sequence, first),
            count,
        )
        if checksum:
            _UINT32.pack_into(out, CRC_OFFSET, crc32c(memoryview(out)[ATTRIBUTES_OFFSET:]))
        return out


def _named_columns(data: pa.Table | pa.RecordBatch | Mapping[str, Column]) -> dict[str, Column]:
    if isinstance(data, pa.Table | pa.RecordBatch):
        columns = {
            name: data.column(name) for name in ("key", "value", "headers", "timestamp") if name in data.schema.names
        }
    else:
        columns = {name: column for name, column in data.items() if column is not None}
    if "value" not in columns:
        raise ValueError("there is no column named value")
    return columns
