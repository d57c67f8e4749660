"""Plans which columns to create from records, and fills them."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from barnabas._kernels import columns as kernel
from barnabas.common.dataclass import dataclass
from barnabas.common.errors import CorruptRecordError
from barnabas.records.columns.buffers import BinaryBuffers, ViewBuffers
from barnabas.records.columns.input import HEADERS_TYPE


class Totals(NamedTuple):
    """The sums of the sizes of several sections, under the same names."""

    records: int
    null_keys: int
    key_bytes: int
    null_values: int
    value_bytes: int
    headers: int
    header_key_bytes: int
    null_header_values: int
    header_value_bytes: int


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
"""All columns that a batch can be decoded to. ``timestamp_type`` is 0 for create time and 1 for log-append time."""

BINARY: Final = "binary"
BINARY_VIEW: Final = "binary_view"
BINARY_TYPES: Final = {BINARY: pa.binary(), BINARY_VIEW: pa.binary_view()}
"""The types of keys and values: contiguous copies, or views of the decoded buffer."""


MAX_COLUMN_BYTES: Final = 2**31 - 1
"""The largest column that 32-bit offsets can address."""


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """The columns to create, and their types."""

    schema: pa.Schema
    kinds: dict[str, pa.DataType]
    scale: int
    has_views: bool

    def assemble(self, sections: list[kernel.Section]) -> pa.RecordBatch:
        """Allocates each column once, for all sections together, and fills them."""
        kinds = self.kinds
        totals = Totals(*kernel.totals(sections))
        rows: int = totals.records
        key: BinaryBuffers | ViewBuffers | None = None
        value: BinaryBuffers | ViewBuffers | None = None
        header_key = header_value = None
        offset = timestamp = timestamp_type = header_offsets = None
        views: list[ViewBuffers] = []
        if "key" in kinds:
            if self.has_views:
                views.append(key := ViewBuffers(rows, totals.null_keys))
            else:
                key = BinaryBuffers(rows, totals.null_keys, totals.key_bytes)
        if "value" in kinds:
            if self.has_views:
                views.append(value := ViewBuffers(rows, totals.null_values))
            else:
                value = BinaryBuffers(rows, totals.null_values, totals.value_bytes)
        # The error for a header key that is not UTF-8 needs the offset of its record.
        if "offset" in kinds or "headers" in kinds:
            offset = pa.allocate_buffer(8 * rows)
        if "timestamp" in kinds:
            timestamp = pa.allocate_buffer(8 * rows)
        if "timestamp_type" in kinds:
            timestamp_type = pa.allocate_buffer(4 * rows)
        if "headers" in kinds:
            header_offsets = pa.allocate_buffer(4 * rows + 4)
            header_key = BinaryBuffers(totals.headers, 0, totals.header_key_bytes)
            header_value = BinaryBuffers(totals.headers, totals.null_header_values, totals.header_value_bytes)
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
            if name == "key" and key is not None:
                arrays.append(key.array(kind))
            elif name == "value" and value is not None:
                arrays.append(value.array(kind))
            elif name == "headers" and header_key is not None and header_value is not None:
                headers = _headers_array(rows, header_offsets, header_key, header_value)
                _check_header_keys(headers, offset)
                arrays.append(headers)
            else:
                buffer = offset if name == "offset" else timestamp if name == "timestamp" else timestamp_type
                arrays.append(pa.Array.from_buffers(kind, rows, [None, buffer], 0))
        # Names instead of a schema: Arrow takes as long to compare the types as the kernel takes for 200 records.
        return pa.RecordBatch.from_arrays(arrays, names=list(kinds))


_one_at_a_time: Final = threading.Lock()


def column_plan(
    columns: tuple[str, ...] | None, include_headers: bool, raw_timestamps: bool, binary_type: str = BINARY
) -> ColumnPlan:
    """Returns the plan for these arguments: always the same object for the same arguments, in all threads."""
    with _one_at_a_time:
        return _column_plan(columns, include_headers, raw_timestamps, binary_type)


@lru_cache(maxsize=64)
def _column_plan(
    columns: tuple[str, ...] | None, include_headers: bool, raw_timestamps: bool, binary_type: str
) -> ColumnPlan:
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
    # Records have milliseconds. Without the timestamp column, an overflow in microseconds must not be an error.
    scale = 1000 if "timestamp" in columns and not raw_timestamps else 1
    kinds = {field.name: field.type for field in fields}
    return ColumnPlan(
        pa.schema(fields), kinds, scale, binary_type == BINARY_VIEW and not {"key", "value"}.isdisjoint(kinds)
    )


def _headers_array(rows: int, offsets: pa.Buffer, keys: BinaryBuffers, values: BinaryBuffers) -> pa.Array:
    entry = HEADERS_TYPE.value_type
    children = [keys.array(pa.string()), values.array(pa.binary())]
    entries = pa.Array.from_buffers(entry, keys.rows, [None], 0, children=children)
    return pa.Array.from_buffers(HEADERS_TYPE, rows, [None, offsets], 0, children=[entries])


def _check_header_keys(headers: pa.Array, offsets: pa.Buffer) -> None:
    """Raises if a header key is not UTF-8: Arrow and later readers do not check it."""
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
