"""Record batches from Arrow columns, and Arrow columns from record batches, with no Python object per record.

Data tools hold records as columns: all keys in one buffer, all values in another. A Kafka batch holds them as rows:
key, value, key, value. This module turns one into the other in bulk, which costs tens of nanoseconds for a record
where a loop over `Record` objects costs hundreds::

    table = pa.table({"key": [b"a", None], "value": [b"1", b"2"]})
    batches = encode_batches(table, max_batch_bytes=1_000_000, timestamps=1_700_000_000_000)

    fetched = decode_batches(b"".join(batches))
    fetched.column("value").to_pylist()  # [b'1', b'2']

The columns are those of Spark's Kafka source (`SCHEMA`): ``key`` and ``value`` are binary with 32-bit offsets, the
timestamp is in microseconds of UTC, ``headers`` is a list of key and value structs. Where 2 GiB of one column are not
enough, the table gets a further chunk, which starts with a batch.

The work on bytes is done by a kernel that `_columns_kernel` chooses, compiled or on numpy. This module needs the extra
``barnabas[arrow]``; nothing else in this package imports Arrow or numpy.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

from barnabas.common.dataclass import dataclass

try:
    import numpy as np
    import pyarrow as pa
except ImportError as error:
    raise ImportError(
        f"Arrow columns need pyarrow and numpy, and {error.name} is missing: install barnabas[arrow]", name=error.name
    ) from error

from barnabas.common.errors import CorruptRecordError
from barnabas.records import _columns_kernel as kernel
from barnabas.records._columns_input import HEADERS_TYPE, Column, encoder_for, timestamps_or
from barnabas.records._columns_kernel import ACCELERATED
from barnabas.records._columns_pure import Totals
from barnabas.records.aborted_transactions import AbortedTransactions
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
    RecordBatch,
    TimestampType,
    increment_sequence,
    iter_batches,
)
from barnabas.records.checksum import crc32c
from barnabas.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, check_level, compress
from barnabas.records.reader import uncompressed_records

__all__ = [
    "ACCELERATED",
    "BINARY",
    "BINARY_TYPES",
    "BINARY_VIEW",
    "DEFAULT_MAX_FETCH_BYTES",
    "HEADERS_TYPE",
    "SCHEMA",
    "BatchEncoder",
    "FetchedColumns",
    "FetchedSections",
    "assemble_batches",
    "assemble_sections",
    "decode_batch",
    "decode_batches",
    "encode_batch",
    "encode_batches",
    "fetch_columns",
    "fetch_sections",
]

Octets: TypeAlias = bytearray | memoryview

SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_type", pa.int32()),
        ("headers", HEADERS_TYPE),
    ]
)
"""Everything that a batch can be decoded to. ``timestamp_type`` is 0 for create time and 1 for log-append time."""

BINARY: Final = "binary"
BINARY_VIEW: Final = "binary_view"
BINARY_TYPES: Final = {BINARY: pa.binary(), BINARY_VIEW: pa.binary_view()}
"""What keys and values can be: copies, one after the other, or views of what they were decoded from."""

DEFAULT_MAX_FETCH_BYTES: Final = 8 * DEFAULT_MAX_DECOMPRESSED_BYTES
"""What all batches of a fetch may decompress to together where nobody said otherwise."""

_MAX_INT32: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1
_MIN_INT64: Final = -(2**63)
# What 32-bit offsets can reach.
_MAX_COLUMN_BYTES: Final = _MAX_INT32
# From which size on records are copied as soon as they are checked. With fewer bytes the cache still has them later;
# and of short records it would not be known well enough how much of a batch is values.
_EARLY_BYTES: Final = 1 << 20
_EARLY_RECORD_BYTES: Final = 512
_UINT32: Final = struct.Struct(">I")


# --- encode ----------------------------------------------------------------------------------------------------------


def encode_batch(
    *,
    values: Column,
    keys: Column | None = None,
    headers: Column | None = None,
    timestamps: Column | int,
    base_offset: int = 0,
    compression: CompressionType = CompressionType.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytearray:
    """One batch of all the records.

    Keys and values are binary or string arrays of any kind; nulls are Kafka's nulls. Headers are a list of structs of
    key and value, or a map, per record; a null list is no headers. Timestamps are milliseconds as integers, or Arrow
    timestamps of any unit (cut to milliseconds), or one integer for all; -1 stands for no timestamp.
    """
    encoder = encoder_for(values, keys, headers, timestamps)
    if not encoder.length:
        raise ValueError("a batch needs at least one record")
    header = _Header(
        compression, level, producer_id, producer_epoch, base_sequence, is_transactional, partition_leader_epoch
    )
    count, size = encoder.measure(0, _section_limit(None))
    if count != encoder.length:
        raise ValueError(f"{encoder.length} records do not fit into one batch of 2 GiB: encode_batches makes several")
    batch = header.batch(encoder, 0, count, size, base_offset)
    assert isinstance(batch, bytearray)
    return batch


def encode_batches(
    data: pa.Table | pa.RecordBatch | Mapping[str, Column],
    *,
    max_batch_bytes: int,
    timestamps: Column | int | None = None,
    base_offset: int | None = None,
    compression: CompressionType = CompressionType.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> list[bytearray]:
    """The records of a table, in as many batches as `max_batch_bytes` asks for (header included, uncompressed).

    A record that is larger than that on its own gets a batch of its own. The table has a column ``value`` and may have
    ``key``, ``headers`` and ``timestamp``; others are not looked at. `timestamps` stands in where there is no timestamp
    column, or where it is null.

    Without `base_offset` every batch starts at offset 0, as a producer must send it: a broker refuses compressed
    batches that number their records otherwise. With it, they follow each other as in a log. Sequence numbers, if there
    are any, run through all of them.
    """
    encoder = BatchEncoder(
        data,
        timestamps=timestamps,
        compression=compression,
        level=level,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
        partition_leader_epoch=partition_leader_epoch,
    )
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
    """`encode_batches` step by step, for whoever decides batch by batch how long each of them becomes.

    With ``checksum=False`` batches come without one, for a sender that will change their header and has to make it
    then: to go over all the bytes twice would take a third of the time that it takes to make them.
    """

    __slots__ = ("_checksum", "_encoder", "_header")

    def __init__(
        self,
        data: pa.Table | pa.RecordBatch | Mapping[str, Column],
        *,
        timestamps: Column | int | None = None,
        compression: CompressionType = CompressionType.NONE,
        level: int | None = None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
        checksum: bool = True,
    ) -> None:
        columns = _named_columns(data)
        stamps = timestamps_or(columns.get("timestamp"), timestamps)
        self._encoder = encoder_for(columns["value"], columns.get("key"), columns.get("headers"), stamps)
        self._header = _Header(
            compression, level, producer_id, producer_epoch, base_sequence, is_transactional, partition_leader_epoch
        )
        self._checksum = checksum

    def __len__(self) -> int:
        return self._encoder.length

    def measure(self, first: int, max_batch_bytes: int) -> tuple[int, int]:
        """How many records from `first` on make a batch of at most so many bytes before compression, and how many bytes
        their records take. One record is always enough for a batch."""
        if max_batch_bytes <= HEADER_SIZE:
            raise ValueError(
                f"max_batch_bytes of {max_batch_bytes} leaves no room for records behind the {HEADER_SIZE}-byte header"
            )
        return self._encoder.measure(first, _section_limit(max_batch_bytes))

    def batch(self, first: int, count: int, size: int, base_offset: int = 0, into: Octets | None = None) -> Octets:
        """The batch of records that were measured. Records are written to `into`, if that is given, which is the result
        if they are not compressed. If that is a memoryview, it has to be as long as the batch, before compression."""
        return self._header.batch(self._encoder, first, count, size, base_offset, checksum=self._checksum, into=into)


def _section_limit(max_batch_bytes: int | None) -> int:
    """How long a records section may get; the kernel knows what no batch can exceed."""
    largest = _MAX_INT32 if max_batch_bytes is None else min(max_batch_bytes, _MAX_INT32)
    return largest - HEADER_SIZE


@dataclass(frozen=True, slots=True)
class _Header:
    """What all batches of one call have in common in their headers, and how they are finished."""

    compression: CompressionType
    level: int | None
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    partition_leader_epoch: int

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
        """The batch of `count` records from `first`, whose records section has been measured at `size` bytes."""
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


# --- decode ----------------------------------------------------------------------------------------------------------


def decode_batch(
    batch: RecordBatch | bytes | bytearray | memoryview,
    *,
    columns: Sequence[str] | None = None,
    include_headers: bool = False,
    raw_timestamps: bool = False,
    binary_type: str = BINARY,
    check_crc: bool = True,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> pa.RecordBatch:
    """The records of one batch, control records included, as columns of `SCHEMA`.

    `columns` selects and orders them; the others are not even allocated. Without it, all but the headers come, and
    those too with `include_headers`. With `raw_timestamps` the timestamps are the 64-bit milliseconds of the batch.
    `binary_type` is that of keys and values (see `fetch_columns`).
    """
    plan = _plan(None if columns is None else tuple(columns), include_headers, raw_timestamps, binary_type)
    if not isinstance(batch, RecordBatch):
        batch = RecordBatch(_octets(batch))
    _check_header(batch, check_crc=check_crc)
    section, _ = _section(batch, plan, _MIN_INT64, max_decompressed_bytes)
    return plan.assemble([section])


def decode_batches(
    buffer: bytes | bytearray | memoryview,
    *,
    columns: Sequence[str] | None = None,
    include_headers: bool = False,
    raw_timestamps: bool = False,
    binary_type: str = BINARY,
    start_offset: int = 0,
    aborted: Iterable[tuple[int, int]] | None = None,
    check_crc: bool = True,
    max_decompressed_bytes: int = DEFAULT_MAX_FETCH_BYTES,
) -> pa.Table:
    """The records of all batches in a fetch response's buffer: the table of `fetch_columns`, which says more."""
    fetched = fetch_columns(
        buffer,
        columns=columns,
        include_headers=include_headers,
        raw_timestamps=raw_timestamps,
        binary_type=binary_type,
        start_offset=start_offset,
        aborted=aborted,
        check_crc=check_crc,
        max_decompressed_bytes=max_decompressed_bytes,
    )
    return fetched.table


@dataclass(frozen=True, slots=True)
class FetchedColumns:
    """What came out of a fetch response's buffer.

    `next_offset` is where to fetch on. It lies behind control batches and aborted records, which leave no row in the
    table, and is None where the buffer holds no whole batch. `size_in_bytes` is what the whole batches took up;
    anything after that is the beginning of a batch that the broker cut off.
    """

    table: pa.Table
    next_offset: int | None
    size_in_bytes: int


def fetch_columns(
    buffer: bytes | bytearray | memoryview,
    *,
    columns: Sequence[str] | None = None,
    include_headers: bool = False,
    raw_timestamps: bool = False,
    binary_type: str = BINARY,
    start_offset: int = 0,
    aborted: Iterable[tuple[int, int]] | None = None,
    check_crc: bool = True,
    max_decompressed_bytes: int = DEFAULT_MAX_FETCH_BYTES,
) -> FetchedColumns:
    """All the records of a fetch response's buffer, in one set of columns.

    A broker sends whole batches from its log, as they are, so there is more in the buffer than was asked for: records
    before `start_offset`, the markers that end transactions, the records of transactions that were aborted, and the
    first part of a batch at the end. All of that is left out. `aborted` are the aborted transactions that a
    read-committed fetch comes with, as pairs of producer id and first offset; None reads uncommitted records too.

    `max_decompressed_bytes` is for all batches of the buffer together, as they are held until the columns are filled.

    With a `binary_type` of ``binary_view`` keys and values are not copied: they are views of the buffer, or of what a
    compressed batch was decompressed to. The table, and whatever is cut out of it, then holds on to all of that, and
    shows what somebody writes into the buffer.
    """
    fetched = fetch_sections(
        buffer,
        columns=columns,
        include_headers=include_headers,
        raw_timestamps=raw_timestamps,
        binary_type=binary_type,
        start_offset=start_offset,
        aborted=aborted,
        check_crc=check_crc,
        max_decompressed_bytes=max_decompressed_bytes,
    )
    return FetchedColumns(assemble_sections([fetched]), fetched.next_offset, fetched.size_in_bytes)


class FetchedSections:
    """What is in a fetch response's buffer, checked and counted, but not in columns yet.

    `records` is how many rows there will be; the rest as in `FetchedColumns`. The buffer is looked at until then. Of
    the first sections there may be `early` columns already.
    """

    __slots__ = ("early", "next_offset", "plan", "records", "sections", "size_in_bytes")

    def __init__(
        self,
        plan: _Plan,
        sections: list[kernel.Section],
        next_offset: int | None,
        size_in_bytes: int,
        early: _EarlyColumns | None = None,
    ) -> None:
        self.plan = plan
        self.sections = sections
        self.early = early
        self.next_offset = next_offset
        self.size_in_bytes = size_in_bytes
        self.records = kernel.totals(sections)[0]


def fetch_sections(
    buffer: bytes | bytearray | memoryview,
    *,
    columns: Sequence[str] | None = None,
    include_headers: bool = False,
    raw_timestamps: bool = False,
    binary_type: str = BINARY,
    start_offset: int = 0,
    aborted: Iterable[tuple[int, int]] | None = None,
    check_crc: bool = True,
    max_decompressed_bytes: int = DEFAULT_MAX_FETCH_BYTES,
) -> FetchedSections:
    """The first half of `fetch_columns`, for who has several buffers: `assemble_sections` makes one table of them."""
    if not 0 <= start_offset <= _MAX_INT64:
        raise ValueError(f"start offset {start_offset} is out of range")
    plan = _plan(None if columns is None else tuple(columns), include_headers, raw_timestamps, binary_type)
    transactions = None if aborted is None else AbortedTransactions(aborted)
    sections: list[kernel.Section] = []
    next_offset, size, budget = None, 0, max_decompressed_bytes
    octets = _octets(buffer)
    # One for all batches, if views reach that far; one for each batch otherwise.
    source = octets if plan.has_views and len(octets) <= _MAX_COLUMN_BYTES else None
    early = columns_to_fill = _early_columns(plan, octets, start_offset, transactions is None)
    while True:
        keys, values = (None, None) if columns_to_fill is None else columns_to_fill.sinks()
        plain, size, offset_after = kernel.plain_sections(
            octets,
            size,
            start_offset,
            plan.scale,
            check_crc,
            transactions is None,
            source,
            plan.has_views,
            keys,
            values,
        )
        if columns_to_fill is not None:
            # There is room for those in front only, up to a batch that has to be looked at here.
            columns_to_fill.end(plain)
            columns_to_fill = None
        if plain:
            sections += plain
            next_offset = offset_after
        batch = next(iter_batches(octets, allow_partial=True, offset=size), None)
        if batch is None:
            break
        start = size
        size += batch.size_in_bytes
        _check_header(batch, check_crc=check_crc)
        next_offset = batch.next_offset
        if transactions is not None and transactions.hides(batch):
            continue
        if batch.is_control_batch or batch.last_offset < start_offset:
            continue
        section, decompressed = _section(batch, plan, start_offset, budget)
        budget -= decompressed
        if source is not None and not decompressed:
            section.source, section.source_start = source, start + HEADER_SIZE
        sections.append(section)
    return FetchedSections(plan, sections, next_offset, size, early)


def assemble_sections(fetched: Sequence[FetchedSections]) -> pa.Table:
    """One table of what is in several buffers, one after the other; of all, the same columns have to be wanted."""
    return pa.Table.from_batches(assemble_batches(fetched), fetched[0].plan.schema)


def assemble_batches(fetched: Sequence[FetchedSections]) -> list[pa.RecordBatch]:
    """The same as Arrow's batches: one, unless that would take 32-bit offsets too far, or there are no records; and one
    for each buffer with early columns, of which each has a megabyte or more.

    Each column is allocated once. Per buffer, that would take longer than to fill it with some hundred records.
    """
    plan = fetched[0].plan
    for other in fetched:
        if other.plan is not plan:
            raise ValueError("not the same columns of all")
    batches: list[pa.RecordBatch] = []
    sections: list[kernel.Section] = []
    for one in fetched:
        early = one.early
        if early is None or not early.sections:
            sections += one.sections
            continue
        batches += [plan.assemble(group) for group in _groups(sections)]
        batches.append(plan.assemble(early.sections, early))
        sections = one.sections[len(early.sections) :]
    batches += [plan.assemble(group) for group in _groups(sections)]
    return batches


def _octets(buffer: Any) -> memoryview:
    view = memoryview(buffer)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def _check_header(batch: RecordBatch, *, check_crc: bool) -> None:
    if check_crc:
        batch.ensure_valid()
    # Where to fetch on is computed from these, with or without records.
    if batch.base_offset < 0 or batch.last_offset_delta < 0 or batch.last_offset >= _MAX_INT64:
        raise CorruptRecordError(
            f"a record batch cannot go from offset {batch.base_offset} to {batch.last_offset_delta} after it"
        )


def _section(batch: RecordBatch, plan: _Plan, start_offset: int, budget: int) -> tuple[kernel.Section, int]:
    """The checked records section of a batch, and how many bytes of the budget it took to decompress."""
    decompressed = 0
    if batch.is_compressed or not batch.record_count:
        if budget < 0:
            raise ValueError(f"{budget} bytes is no bound for decompression")
        # No column of one batch can be larger than 32-bit offsets reach.
        data = uncompressed_records(batch, min(budget, _MAX_COLUMN_BYTES))
        decompressed = len(data)
    else:
        data = batch.records_view
    section = kernel.Section(
        data,
        batch.record_count,
        batch.base_offset,
        batch.last_offset_delta,
        batch.base_timestamp,
        batch.max_timestamp if batch.timestamp_type is TimestampType.LOG_APPEND_TIME else None,
        start_offset,
        plan.scale,
    )
    if plan.has_views:
        section.source = data
    return section, decompressed


def _groups(sections: list[kernel.Section]) -> list[list[kernel.Section]]:
    """Cuts a list of sections where the next one would take a column beyond 32-bit offsets."""
    if not sections:
        return []
    totals = Totals(*kernel.totals(sections))
    if totals.records < 1:
        return []
    if max(totals) <= _MAX_COLUMN_BYTES:  # so nearly always
        return [sections]
    groups: list[list[kernel.Section]] = [[]]
    keys = values = header_keys = header_values = headers = 0
    for section in sections:
        keys += section.key_bytes
        values += section.value_bytes
        header_keys += section.header_key_bytes
        header_values += section.header_value_bytes
        headers += section.headers
        if groups[-1] and max(keys, values, header_keys, header_values, headers) > _MAX_COLUMN_BYTES:
            groups.append([])
            keys, values, headers = section.key_bytes, section.value_bytes, section.headers
            header_keys, header_values = section.header_key_bytes, section.header_value_bytes
        groups[-1].append(section)
    return groups


@dataclass(frozen=True, slots=True)
class _Plan:
    """Which columns to make, and of what types."""

    schema: pa.Schema
    kinds: dict[str, pa.DataType]
    scale: int
    has_views: bool

    def assemble(self, sections: list[kernel.Section], early: _EarlyColumns | None = None) -> pa.RecordBatch:
        """Allocates each column once, for all sections together, and fills them, except what `early` has."""
        kinds = self.kinds
        totals: Any
        if early is not None:
            totals = early.totals
        else:
            totals = sections[0] if len(sections) == 1 else Totals(*kernel.totals(sections))
        rows: int = totals.records
        key: _BinaryBuffers | _ViewBuffers | None = None
        value: _BinaryBuffers | _ViewBuffers | None = None
        header_key = header_value = None
        offset = timestamp = timestamp_type = header_offsets = None
        views: list[_ViewBuffers] = []
        early_key, early_value = (None, None) if early is None else early.arrays(kinds)
        if "key" in kinds and early_key is None:
            if self.has_views:
                views.append(key := _ViewBuffers(rows, totals.null_keys))
            else:
                key = _BinaryBuffers(rows, totals.null_keys, totals.key_bytes)
        if "value" in kinds and early_value is None:
            if self.has_views:
                views.append(value := _ViewBuffers(rows, totals.null_values))
            else:
                value = _BinaryBuffers(rows, totals.null_values, totals.value_bytes)
        # A header key that is not UTF-8 is reported with the offset of its record.
        if "offset" in kinds or "headers" in kinds:
            offset = pa.allocate_buffer(8 * rows)
        if "timestamp" in kinds:
            timestamp = pa.allocate_buffer(8 * rows)
        if "timestamp_type" in kinds:
            timestamp_type = pa.allocate_buffer(4 * rows)
        if "headers" in kinds:
            header_offsets = pa.allocate_buffer(4 * rows + 4)
            header_key = _BinaryBuffers(totals.headers, 0, totals.header_key_bytes)
            header_value = _BinaryBuffers(totals.headers, totals.null_header_values, totals.header_value_bytes)
        sink = kernel.ColumnSink(
            rows,
            None if key is None else key.sink,
            None if value is None else value.sink,
            offset,
            timestamp,
            timestamp_type,
            header_offsets,
            None if header_key is None else header_key.sink,
            None if header_value is None else header_value.sink,
        )
        for section in sections:
            for column in views:
                column.refer_to(section.source, section.source_start)
            section.fill(sink)
        assert sink.is_full()
        arrays = []
        for name, kind in kinds.items():
            if name == "key":
                arrays.append(key.array(kind) if key is not None else early_key)
            elif name == "value":
                arrays.append(value.array(kind) if value is not None else early_value)
            elif name == "headers" and header_key is not None and header_value is not None:
                headers = _headers_array(rows, header_offsets, header_key, header_value)
                _check_header_keys(headers, offset)
                arrays.append(headers)
            else:
                buffer = offset if name == "offset" else timestamp if name == "timestamp" else timestamp_type
                arrays.append(pa.Array.from_buffers(kind, rows, [None, buffer], 0))
        # With names, for with a schema Arrow takes as long to compare the types as the kernel takes for 200 records.
        return pa.RecordBatch.from_arrays(arrays, names=list(kinds))


@lru_cache(maxsize=64)
def _plan(
    columns: tuple[str, ...] | None, include_headers: bool, raw_timestamps: bool, binary_type: str = BINARY
) -> _Plan:
    if columns is None:
        columns = tuple(name for name in SCHEMA.names if name != "headers" or include_headers)
    elif include_headers and "headers" not in columns:
        columns = (*columns, "headers")
    unknown = [name for name in columns if name not in SCHEMA.names]
    if unknown or not columns or len(set(columns)) != len(columns):
        raise ValueError(
            f"columns are some of {', '.join(SCHEMA.names)}, each once; not {', '.join(columns) or 'none'}"
        )
    if binary_type not in BINARY_TYPES:
        raise ValueError(f"a binary type is one of {', '.join(BINARY_TYPES)}; not {binary_type}")
    binary = BINARY_TYPES[binary_type]
    fields = [SCHEMA.field(name) for name in columns]
    fields = [field.with_type(binary) if field.name in {"key", "value"} else field for field in fields]
    if raw_timestamps:
        fields = [field.with_type(pa.int64()) if field.name == "timestamp" else field for field in fields]
    # Records have milliseconds, and whoever does not want the timestamps need not care whether they fit microseconds.
    scale = 1000 if "timestamp" in columns and not raw_timestamps else 1
    kinds = {field.name: field.type for field in fields}
    return _Plan(pa.schema(fields), kinds, scale, binary_type == BINARY_VIEW and not {"key", "value"}.isdisjoint(kinds))


class _BinaryBuffers:
    """The buffers of a binary column in the making, as Arrow's and as the kernel sees them."""

    __slots__ = ("buffers", "nulls", "rows", "sink")

    def __init__(self, rows: int, nulls: int, size: int, *, resizable: bool = False) -> None:
        validity = pa.allocate_buffer((rows + 7) >> 3) if nulls else None
        self.rows = rows
        self.nulls = nulls
        self.buffers = [validity, pa.allocate_buffer(4 * rows + 4), pa.allocate_buffer(size, resizable=resizable)]
        self.sink: Any = kernel.BinarySink(*self.buffers)

    def end(self, rows: int, nulls: int, size: int, *, shrink: bool) -> None:
        """This is what there is in them after all; nothing more can be put into them."""
        if self.sink is None:
            return
        # It holds the address of memory that is about to move.
        self.sink = None
        self.rows = rows
        self.nulls = nulls
        if not nulls:
            self.buffers[0] = None
        self.buffers[2].resize(size, shrink_to_fit=shrink)

    def array(self, kind: pa.DataType) -> pa.Array:
        return pa.Array.from_buffers(kind, self.rows, self.buffers, self.nulls)


def _early_columns(
    plan: _Plan, octets: memoryview, start_offset: int, may_be_transactional: bool
) -> _EarlyColumns | None:
    if plan.has_views or not _EARLY_BYTES <= len(octets) <= _MAX_COLUMN_BYTES:
        return None
    rows, size = kernel.plain_extent(octets, start_offset, may_be_transactional)
    if size < max(_EARLY_BYTES, rows * _EARLY_RECORD_BYTES):
        return None
    return _EarlyColumns(plan.kinds, rows, size)


_NOTHING: Final = Totals(0, 0, 0, 0, 0, 0, 0, 0, 0)


class _EarlyColumns:
    """Keys and values that are copied as soon as their checksum has been computed, when they are in the processor's
    cache. Later, of megabytes, they would not be there any more, and to read them again takes longer than all the rest.

    How many bytes they have is not known at that time, just how many there can be. Values of some size take nearly all
    of that; if more than an eighth of their buffer is left over, it is given back. Keys get an eighth, and what they do
    not need is given back; if they need more, they are left to `Section.fill` like everything else.

    `sections` are those whose keys and values are here: none, if there is no record.
    """

    __slots__ = ("_capacity", "_keys", "_values", "sections", "totals")

    def __init__(self, kinds: Mapping[str, pa.DataType], rows: int, size: int) -> None:
        # Whether a null is coming is not known either, so there is a bitmap in any case.
        self._keys = _BinaryBuffers(rows, 1, size >> 3, resizable=True) if "key" in kinds else None
        self._values = _BinaryBuffers(rows, 1, size, resizable=True) if "value" in kinds else None
        self._capacity = size
        self.sections: list[kernel.Section] = []
        self.totals = _NOTHING

    def sinks(self) -> tuple[kernel.BinarySink | None, kernel.BinarySink | None]:
        return (
            None if self._keys is None else self._keys.sink,
            None if self._values is None else self._values.sink,
        )

    def end(self, sections: list[kernel.Section]) -> None:
        """These sections are what has been copied."""
        if self._keys is not None and not self._keys.sink.open:
            self._keys = None
        if self._values is not None and not self._values.sink.open:
            self._values = None
        self.totals = Totals(*kernel.totals(sections))
        if self.totals.records and (self._keys is not None or self._values is not None):
            self.sections = sections

    def arrays(self, kinds: Mapping[str, pa.DataType]) -> tuple[pa.Array | None, pa.Array | None]:
        """Keys and values of all of the sections, None for what there is not."""
        keys, values, totals = self._keys, self._values, self.totals
        if keys is not None:
            keys.end(totals.records, totals.null_keys, totals.key_bytes, shrink=True)
        if values is not None:
            shrink = totals.value_bytes < self._capacity - (self._capacity >> 3)
            values.end(totals.records, totals.null_values, totals.value_bytes, shrink=shrink)
        return (
            None if keys is None else keys.array(kinds["key"]),
            None if values is None else values.array(kinds["value"]),
        )


class _ViewBuffers:
    """The same of a column of views: these, and the buffers that they refer to.

    A buffer that no view refers to, because all are short or null, is none of the column's: nobody has to hold it.
    """

    __slots__ = ("_referring", "_source", "buffers", "nulls", "rows", "sink")

    def __init__(self, rows: int, nulls: int) -> None:
        validity = pa.allocate_buffer((rows + 7) >> 3) if nulls else None
        self.rows = rows
        self.nulls = nulls
        self.buffers = [validity, pa.allocate_buffer(16 * rows)]
        self.sink = kernel.ViewSink(*self.buffers)
        self._source: Any = None
        self._referring = 0

    def refer_to(self, source: Any, start: int) -> None:
        """What is filled in next lies in this buffer."""
        if source is not self._source:
            self._keep_source()
            self._source = source
        self.sink.place(len(self.buffers) - 2, start)

    def _keep_source(self) -> None:
        if self.sink.referring > self._referring:
            self._referring = self.sink.referring
            self.buffers.append(pa.py_buffer(self._source))

    def array(self, kind: pa.DataType) -> pa.Array:
        self._keep_source()
        return pa.Array.from_buffers(kind, self.rows, self.buffers, self.nulls)


def _headers_array(rows: int, offsets: pa.Buffer, keys: _BinaryBuffers, values: _BinaryBuffers) -> pa.Array:
    entry = HEADERS_TYPE.value_type
    children = [keys.array(pa.string()), values.array(pa.binary())]
    entries = pa.Array.from_buffers(entry, keys.rows, [None], 0, children=children)
    return pa.Array.from_buffers(HEADERS_TYPE, rows, [None, offsets], 0, children=[entries])


def _check_header_keys(headers: pa.Array, offsets: pa.Buffer) -> None:
    """Arrow takes it on trust that strings are UTF-8, and so does whoever reads them after us."""
    keys = headers.values.field("key")
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        for entry, key in enumerate(keys.cast(pa.binary())):
            try:
                key.as_py().decode()
            except UnicodeDecodeError as error:
                row = int(np.searchsorted(headers.offsets.to_numpy(), entry, side="right")) - 1
                offset = np.frombuffer(offsets, np.int64)[row]
                raise CorruptRecordError(
                    f"the record at offset {offset} has a header key that is not UTF-8 at byte {error.start} of it"
                ) from None
        raise
