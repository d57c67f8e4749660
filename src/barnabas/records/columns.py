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
from itertools import groupby
from typing import Any, Final, TypeAlias

from barnabas.common.dataclass import dataclass

try:
    import numpy  # noqa: F401, ICN001 - for what stands below
    import pyarrow as pa
except ImportError as error:
    raise ImportError(
        f"Arrow columns need pyarrow and numpy, and {error.name} is missing: install barnabas[arrow]", name=error.name
    ) from error

from barnabas.common.errors import CorruptRecordError
from barnabas.records import _columns_kernel as kernel
from barnabas.records._columns_early import EarlyColumns, early_columns
from barnabas.records._columns_input import HEADERS_TYPE, Column, encoder_for, timestamps_or
from barnabas.records._columns_kernel import ACCELERATED
from barnabas.records._columns_plan import (
    BINARY,
    BINARY_TYPES,
    BINARY_VIEW,
    MAX_COLUMN_BYTES,
    SCHEMA,
    ColumnPlan,
    column_plan,
)
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
    "EarlyColumns",
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
    "shared_columns",
]

Octets: TypeAlias = bytearray | memoryview

DEFAULT_MAX_FETCH_BYTES: Final = 8 * DEFAULT_MAX_DECOMPRESSED_BYTES
"""What all batches of a fetch may decompress to together where nobody said otherwise."""

_MAX_INT32: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1
_MIN_INT64: Final = -(2**63)
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
    plan = column_plan(None if columns is None else tuple(columns), include_headers, raw_timestamps, binary_type)
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

    `records` is how many rows there will be; the rest as in `FetchedColumns`. The buffer is looked at until then.

    Except for `early_sections`, the first of them: they are in columns already, in those of `early`, where there are
    `early_first` sections of other buffers before them.
    """

    __slots__ = (
        "early",
        "early_first",
        "early_sections",
        "next_offset",
        "plan",
        "records",
        "sections",
        "size_in_bytes",
    )

    def __init__(
        self, plan: ColumnPlan, sections: list[kernel.Section], next_offset: int | None, size_in_bytes: int
    ) -> None:
        self.plan = plan
        self.sections = sections
        self.early: EarlyColumns | None = None
        self.early_first = self.early_sections = 0
        self.next_offset = next_offset
        self.size_in_bytes = size_in_bytes
        self.records: int = kernel.totals(sections)[0]


def shared_columns(
    buffers: Iterable[tuple[memoryview, int]],
    *,
    columns: Sequence[str] | None = None,
    include_headers: bool = False,
    raw_timestamps: bool = False,
    binary_type: str = BINARY,
    aborted: bool = False,
) -> EarlyColumns | None:
    """Columns to be filled with the records of several buffers, of which each comes with the start offset that
    `fetch_sections` will be asked for, in this order. None, if nothing is won by that.

    `aborted` says whether there will be aborted transactions to leave out.
    """
    plan = column_plan(None if columns is None else tuple(columns), include_headers, raw_timestamps, binary_type)
    return early_columns(plan, buffers, may_be_transactional=not aborted)


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
    shared: EarlyColumns | None = None,
) -> FetchedSections:
    """The first half of `fetch_columns`, for who has several buffers: `assemble_sections` makes one table of them.

    Those that have `shared_columns` fill them one after the other, as far as they can.
    """
    if not 0 <= start_offset <= _MAX_INT64:
        raise ValueError(f"start offset {start_offset} is out of range")
    plan = column_plan(None if columns is None else tuple(columns), include_headers, raw_timestamps, binary_type)
    transactions = None if aborted is None else AbortedTransactions(aborted)
    sections: list[kernel.Section] = []
    next_offset, size, budget = None, 0, max_decompressed_bytes
    octets = _octets(buffer)
    # One for all batches, if views reach that far; one for each batch otherwise.
    source = octets if plan.has_views and len(octets) <= MAX_COLUMN_BYTES else None
    early = shared
    if early is not None and early.plan is not plan:
        raise ValueError("shared columns are the same for all")
    if early is None or not early.is_open:
        early = early_columns(plan, [(octets, start_offset)], may_be_transactional=transactions is None)
    sink = None if early is None else early.begin()
    copied: list[kernel.Section] | None = None
    while True:
        plain, size, offset_after, is_end = kernel.plain_sections(
            octets,
            size,
            start_offset,
            plan.scale,
            check_crc,
            transactions is None,
            source,
            plan.has_views,
            sink,
        )
        if copied is None:
            # Only these: behind them is a batch that has to be looked at here.
            copied, sink = plain, None
        if plain:
            sections += plain
            next_offset = offset_after
        if is_end:
            break
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
    fetched = FetchedSections(plan, sections, next_offset, size)
    if early is not None:
        fetched.early_first, fetched.early_sections = len(early.sections), len(copied)
        is_all = len(copied) == len(sections)
        early.end(copied, fetched.records if is_all else kernel.totals(copied)[0], is_all=is_all)
        if early.sections:
            fetched.early = early
    return fetched


def assemble_sections(fetched: Sequence[FetchedSections]) -> pa.Table:
    """One table of what is in several buffers, one after the other; of all, the same columns have to be wanted."""
    return pa.Table.from_batches(assemble_batches(fetched), fetched[0].plan.schema)


def assemble_batches(fetched: Sequence[FetchedSections]) -> list[pa.RecordBatch]:
    """The same as Arrow's batches: one, unless that would take 32-bit offsets too far, or there are no records; and one
    for each set of early columns, of which each has a megabyte or more.

    Each column is allocated once. Per buffer, that would take longer than to fill it with some hundred records.
    """
    plan = fetched[0].plan
    for other in fetched:
        if other.plan is not plan:
            raise ValueError("not the same columns of all")
    batches: list[pa.RecordBatch] = []
    sections: list[kernel.Section] = []
    for early, some in groupby(fetched, _early_of):
        run = list(some)
        if early is None or not _are_all(run, early):
            sections += [section for one in run for section in one.sections]
            continue
        batches += [plan.assemble(group) for group in _groups(sections)]
        batches.append(early.batch())
        sections = run[-1].sections[run[-1].early_sections :]  # of the others, there is nothing else
    batches += [plan.assemble(group) for group in _groups(sections)]
    return batches


def _early_of(fetched: FetchedSections) -> EarlyColumns | None:
    return fetched.early


def _are_all(run: Sequence[FetchedSections], early: EarlyColumns) -> bool:
    """Whether these are the buffers whose records are in early columns, in the same order and with nothing between
    them, and no other."""
    sections = 0
    for one in run:
        if one.early_first != sections or (one.early_sections < len(one.sections) and one is not run[-1]):
            return False
        sections += one.early_sections
    return bool(sections) and sections == len(early.sections)


def _groups(sections: list[kernel.Section]) -> list[list[kernel.Section]]:
    """Cuts a list of sections where the next one would take a column beyond 32-bit offsets."""
    if not sections:
        return []
    totals = Totals(*kernel.totals(sections))
    if totals.records < 1:
        return []
    if max(totals) <= MAX_COLUMN_BYTES:  # so nearly always
        return [sections]
    groups: list[list[kernel.Section]] = [[]]
    keys = values = header_keys = header_values = headers = 0
    for section in sections:
        keys += section.key_bytes
        values += section.value_bytes
        header_keys += section.header_key_bytes
        header_values += section.header_value_bytes
        headers += section.headers
        if groups[-1] and max(keys, values, header_keys, header_values, headers) > MAX_COLUMN_BYTES:
            groups.append([])
            keys, values, headers = section.key_bytes, section.value_bytes, section.headers
            header_keys, header_values = section.header_key_bytes, section.header_value_bytes
        groups[-1].append(section)
    return groups


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


def _section(batch: RecordBatch, plan: ColumnPlan, start_offset: int, budget: int) -> tuple[kernel.Section, int]:
    """The checked records section of a batch, and how many bytes of the budget it took to decompress."""
    decompressed = 0
    if batch.is_compressed or not batch.record_count:
        if budget < 0:
            raise ValueError(f"{budget} bytes is no bound for decompression")
        # No column of one batch can be larger than 32-bit offsets reach.
        data = uncompressed_records(batch, min(budget, MAX_COLUMN_BYTES))
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
