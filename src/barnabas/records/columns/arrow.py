"""Converts Arrow columns to record batches and back, with no Python object per record.

Data tools hold records as columns: all keys in one buffer, all values in another. A Kafka batch holds them as rows:
key, value, key, value. This module converts them in bulk, which takes tens of nanoseconds per record, while a loop over
`Record` objects takes hundreds::

    table = pa.table({"key": [b"a", None], "value": [b"1", b"2"]})
    batches = encode_batches(table, max_batch_bytes=1_000_000, timestamps=1_700_000_000_000)

    fetched = decode_batches(b"".join(batches))
    fetched.column("value").to_pylist()  # [b'1', b'2']

The columns are those of Spark's Kafka source (`SCHEMA`): ``key`` and ``value`` are binary with 32-bit offsets, the
timestamp is in microseconds of UTC, ``headers`` is a list of key and value structs. If a column exceeds 2 GiB, the
table gets another chunk, which starts with a batch.

The kernel `barnabas._kernels.columns` processes the bytes, compiled or in Python. This module needs the extra
``barnabas[arrow]``; nothing else in this package imports Arrow or numpy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final, TypedDict, Unpack

from barnabas.common.dataclass import dataclass
from barnabas.common.extras import extra

with extra("arrow", "barnabas.records.columns.arrow"):
    import numpy  # noqa: F401, ICN001 - Arrow's conversions below need it
    import pyarrow as pa

from barnabas._kernels import columns as kernel
from barnabas.common.errors import CorruptRecordError
from barnabas.records.aborted_transactions import AbortedTransactions
from barnabas.records.batch import HEADER_SIZE, RecordBatch, TimestampType, iter_batches
from barnabas.records.columns.early import EarlyColumns, early_columns
from barnabas.records.columns.encoder import BatchEncoder, encode_batch, encode_batches
from barnabas.records.columns.input import HEADERS_TYPE
from barnabas.records.columns.memory import TableMemory
from barnabas.records.columns.plan import (
    BINARY,
    BINARY_TYPES,
    BINARY_VIEW,
    MAX_COLUMN_BYTES,
    SCHEMA,
    ColumnPlan,
    Totals,
    column_plan,
)
from barnabas.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from barnabas.records.reader import uncompressed_records
from barnabas.records.unread_records import UnreadRecords

__all__ = [
    "BINARY",
    "BINARY_TYPES",
    "BINARY_VIEW",
    "DEFAULT_MAX_FETCH_BYTES",
    "HEADERS_TYPE",
    "SCHEMA",
    "BatchEncoder",
    "EarlyColumns",
    "FetchOptions",
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

DEFAULT_MAX_FETCH_BYTES: Final = 8 * DEFAULT_MAX_DECOMPRESSED_BYTES
"""The default limit for the decompressed size of all batches of a fetch together."""

_MAX_INT64: Final = 2**63 - 1
_MIN_INT64: Final = -(2**63)


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
    """Decodes the records of one batch, control records included, to columns of `SCHEMA`.

    `columns` selects and orders them; the others are not allocated. The default is all but the headers, which
    `include_headers` adds. With `raw_timestamps` the timestamps are the 64-bit milliseconds of the batch. `binary_type`
    is the type of keys and values (see `fetch_columns`).
    """
    plan = column_plan(None if columns is None else tuple(columns), include_headers, raw_timestamps, binary_type)
    if not isinstance(batch, RecordBatch):
        batch = RecordBatch(_octets(batch))
    _check_header(batch, check_crc=check_crc)
    section, _ = _section(batch, plan, _MIN_INT64, max_decompressed_bytes)
    return plan.assemble([section])


class FetchOptions(TypedDict, total=False):
    """What to decode of a fetch response's buffer, and how: the keyword arguments of `fetch_columns`."""

    columns: Sequence[str] | None
    """Names and order of the columns; None for all but the headers."""
    include_headers: bool
    raw_timestamps: bool
    """Whether timestamps are the 64-bit milliseconds of the batches."""
    binary_type: str
    """The type of keys and values: `BINARY`, the default, or `BINARY_VIEW`."""
    start_offset: int
    aborted: Iterable[tuple[int, int]] | None
    check_crc: bool
    """True by default."""
    max_decompressed_bytes: int
    """`DEFAULT_MAX_FETCH_BYTES` by default."""


def decode_batches(buffer: bytes | bytearray | memoryview, **options: Unpack[FetchOptions]) -> pa.Table:
    """Decodes all batches in a fetch response's buffer: returns the table of `fetch_columns`, see there."""
    return fetch_columns(buffer, **options).table


@dataclass(frozen=True, slots=True)
class FetchedColumns:
    """The decoded records of a fetch response's buffer.

    `next_offset` is the next offset to fetch. It is after control batches and aborted records, which have no row in the
    table, and is None if the buffer holds no complete batch. `size_in_bytes` is the size of the complete batches; the
    rest is the start of a batch that the broker truncated.
    """

    table: pa.Table
    next_offset: int | None
    size_in_bytes: int


def fetch_columns(buffer: bytes | bytearray | memoryview, **options: Unpack[FetchOptions]) -> FetchedColumns:
    """Decodes all records of a fetch response's buffer to one set of columns.

    A broker sends batches unchanged from its log, so the buffer has more than was requested: records before
    `start_offset`, transaction markers, records of aborted transactions, and an incomplete batch at the end. All of
    these are left out. `aborted` are the aborted transactions of a read-committed fetch response, as pairs of producer
    id and first offset; None also reads uncommitted records.

    `max_decompressed_bytes` is for all batches of the buffer together, because they are held until the columns are
    filled.

    With a `binary_type` of ``binary_view`` keys and values are not copied: they are views of the buffer or of the
    decompressed batch. The table and its slices then keep that memory alive, and show later changes of the buffer.
    """
    fetched = fetch_sections(buffer, **options)
    return FetchedColumns(assemble_sections([fetched]), fetched.next_offset, fetched.size_in_bytes)


class FetchedSections:
    """The checked and counted records of a fetch response's buffer, not yet in columns.

    `records` is the number of rows; the rest is as in `FetchedColumns`. The buffer is needed until the columns are
    filled.

    The first `early_sections` of them are already in the columns of `early`, after `early_first` sections of other
    buffers.
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
        "unread",
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
        self.unread: UnreadRecords | None = None

    def readable_sections(self) -> list[kernel.Section]:
        """Returns the sections, after reading all their bytes into memory."""
        if self.unread is not None:
            self.unread.read_all()
        return self.sections


def shared_columns(
    buffers: Iterable[tuple[memoryview, int]],
    *,
    columns: Sequence[str] | None = None,
    include_headers: bool = False,
    raw_timestamps: bool = False,
    binary_type: str = BINARY,
    aborted: bool = False,
    memory: TableMemory | None = None,
    from_files: bool = False,
) -> EarlyColumns | None:
    """Creates columns for the records of several buffers; None if that gains nothing.

    Each buffer comes with the start offset that `fetch_sections` will get, in this order. `aborted` says whether there
    will be aborted transactions to leave out, `from_files` whether there are `UnreadRecords` among the buffers.
    """
    plan = column_plan(None if columns is None else tuple(columns), include_headers, raw_timestamps, binary_type)
    return early_columns(plan, buffers, may_be_transactional=not aborted, memory=memory, from_files=from_files)


def fetch_sections(
    buffer: bytes | bytearray | memoryview,
    *,
    shared: EarlyColumns | None = None,
    memory: TableMemory | None = None,
    unread: UnreadRecords | None = None,
    **options: Unpack[FetchOptions],
) -> FetchedSections:
    """Does the first half of `fetch_columns`, for several buffers; `assemble_sections` makes one table of them.

    Buffers with `shared_columns` fill them in turn, as far as possible. `memory` is for long values. `unread` says that
    the buffer has only the headers of batches: the rest is read now or, if it is not copied to columns immediately,
    when the columns are assembled.
    """
    start_offset, aborted = options.get("start_offset", 0), options.get("aborted")
    check_crc = options.get("check_crc", True)
    if not 0 <= start_offset <= _MAX_INT64:
        raise ValueError(f"start offset {start_offset} is out of range")
    plan = _plan(options)
    transactions = None if aborted is None else AbortedTransactions(aborted)
    sections: list[kernel.Section] = []
    next_offset, size, budget = None, 0, options.get("max_decompressed_bytes", DEFAULT_MAX_FETCH_BYTES)
    octets = _octets(buffer)
    # One source for all batches if views can address it; otherwise one per batch.
    source = octets if plan.has_views and len(octets) <= MAX_COLUMN_BYTES else None
    early = shared
    if early is not None and early.plan is not plan:
        raise ValueError("all buffers must have the same shared columns")
    if early is None or not early.is_open:
        early = early_columns(
            plan,
            [(octets, start_offset)],
            may_be_transactional=transactions is None,
            memory=memory,
            from_files=unread is not None,
        )
    sink = None if early is None else early.begin()
    file = None
    if unread is not None:
        if sink is None or "value" not in plan.kinds:
            unread.read_all()
        file = unread.fileno(), unread.position
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
            file,
        )
        if copied is None:
            # Only the first run is copied early: after it comes a batch that has to be checked here.
            copied, sink = plain, None
            if unread is not None and not is_end:
                unread.read_all()
            file = None
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
    fetched.unread = unread
    if early is not None:
        fetched.early_first, fetched.early_sections = len(early.sections), len(copied)
        is_all = len(copied) == len(sections)
        rows = fetched.records if is_all else kernel.totals(copied)[0]
        early.end(copied, rows, is_all=is_all, unread=unread)
        if early.sections:
            fetched.early = early
    return fetched


def assemble_sections(fetched: Sequence[FetchedSections]) -> pa.Table:
    """Returns one table of the records of several buffers, in order. All must have the same columns."""
    return pa.Table.from_batches(assemble_batches(fetched), fetched[0].plan.schema)


def assemble_batches(fetched: Sequence[FetchedSections]) -> list[pa.RecordBatch]:
    """Does the same as `assemble_sections`, but returns Arrow record batches.

    There is one batch, or none without records, or several if 32-bit offsets are too small; plus one for each set of
    early columns, which have a megabyte or more.

    Each column is allocated once. Allocating per buffer would take longer than filling it with some hundred records.
    """
    plan = fetched[0].plan
    for other in fetched:
        if other.plan is not plan:
            raise ValueError("all buffers must have the same columns")
    batches: list[pa.RecordBatch] = []
    sections: list[kernel.Section] = []
    for early, some in groupby(fetched, _early_of):
        run = list(some)
        if early is None or not _are_all(run, early):
            sections += [section for one in run for section in one.readable_sections()]
            continue
        batches += [plan.assemble(group) for group in _groups(sections)]
        batches.append(early.batch())
        # Only the last buffer of the run can have further sections, and those have been read into memory.
        sections = run[-1].sections[run[-1].early_sections :]
    batches += [plan.assemble(group) for group in _groups(sections)]
    return batches


def _early_of(fetched: FetchedSections) -> EarlyColumns | None:
    return fetched.early


def _are_all(run: Sequence[FetchedSections], early: EarlyColumns) -> bool:
    """Whether the early columns hold the records of exactly these buffers, in the same order and without gaps."""
    sections = 0
    for one in run:
        if one.early_first != sections or (one.early_sections < len(one.sections) and one is not run[-1]):
            return False
        sections += one.early_sections
    return bool(sections) and sections == len(early.sections)


def _groups(sections: list[kernel.Section]) -> list[list[kernel.Section]]:
    """Splits a list of sections where the next one would take a column beyond 32-bit offsets."""
    if not sections:
        return []
    totals = Totals(*kernel.totals(sections))
    if totals.records < 1:
        return []
    if max(totals) <= MAX_COLUMN_BYTES:  # nearly always
        return [sections]
    groups: list[list[kernel.Section]] = [[]]
    content = Totals(0, 0, 0, 0, 0, 0, 0, 0, 0)
    for section in sections:
        content = Totals(*map(sum, zip(content, section.sizes, strict=True)))
        if groups[-1] and max(content) > MAX_COLUMN_BYTES:
            groups.append([])
            content = Totals(*section.sizes)
        groups[-1].append(section)
    return groups


def _plan(options: FetchOptions) -> ColumnPlan:
    columns = options.get("columns")
    return column_plan(
        None if columns is None else tuple(columns),
        options.get("include_headers", False),
        options.get("raw_timestamps", False),
        options.get("binary_type", BINARY),
    )


def _octets(buffer: Any) -> memoryview:
    view = memoryview(buffer)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def _check_header(batch: RecordBatch, *, check_crc: bool) -> None:
    if check_crc:
        batch.ensure_valid()
    # The next fetch offset is computed from these, with or without records.
    if batch.base_offset < 0 or batch.last_offset_delta < 0 or batch.last_offset >= _MAX_INT64:
        raise CorruptRecordError(
            f"invalid offsets in a record batch: base {batch.base_offset}, last offset delta {batch.last_offset_delta}"
        )


def _section(batch: RecordBatch, plan: ColumnPlan, start_offset: int, budget: int) -> tuple[kernel.Section, int]:
    """Returns the checked records section of a batch and its decompressed size, which counts against the budget."""
    decompressed = 0
    if batch.is_compressed or not batch.record_count:
        if budget < 0:
            raise ValueError(f"max_decompressed_bytes must not be negative: {budget}")
        # No column of one batch may exceed 32-bit offsets.
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
