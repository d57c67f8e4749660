"""Checks a table as a whole before its first row is sent."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.clients.producer.producer_record import ProducerRecord
from barnabas.common.errors import RecordTooLargeError
from barnabas.records.batch import HEADER_SIZE, MAX_RECORD_OVERHEAD
from barnabas.records.builder import estimate_size_in_bytes_upper_bound

Numbers: TypeAlias = "npt.NDArray[np.int64]"
Timestamps: TypeAlias = "pa.ChunkedArray | int"
"""One timestamp per row, or one for all."""

COLUMNS: Final = ("value", "key", "headers", "timestamp", "partition")
RECORD_OVERHEAD: Final = 7
"""The bytes of a record besides its fields, if it is neither long nor far from the first one of its batch."""

_LENGTH: Final = 5
"""The maximum size of an encoded length."""
_MAX_OVERHEAD: Final = HEADER_SIZE + MAX_RECORD_OVERHEAD + 3 * _LENGTH
_WITH_OFFSETS: Final = frozenset(
    {pa.lib.Type_BINARY, pa.lib.Type_STRING, pa.lib.Type_LARGE_BINARY, pa.lib.Type_LARGE_STRING}
)
# Other layouts of the same type, which Arrow converts.
_TO_LARGE_BINARY: Final = frozenset(
    {pa.lib.Type_FIXED_SIZE_BINARY, pa.lib.Type_BINARY_VIEW, pa.lib.Type_STRING_VIEW, pa.lib.Type_NA}
)


class TableInput:
    """The rows of a table, checked, as columns that can be sliced.

    All errors in a table are found here, with a message that names the column and the row; so either all of its rows
    can be encoded, or none is sent. No Python object per row is created: the checks are Arrow and numpy kernels over
    whole columns.

    ``sizes`` has the bytes of key, value and headers of each row: the unit of buffers and sticky partitions.
    """

    __slots__ = ("headers", "keys", "length", "partitions", "sizes", "timestamps", "values")

    def __init__(self, table: object, *, partition: int | None = None, timestamp_ms: int) -> None:
        """``timestamp_ms`` is the default for rows without one, ``partition`` if there is no such column."""
        columns = _columns(table)
        self.values = _binary(columns["value"], "value")
        self.length = len(self.values)
        self.keys = _binary(columns["key"], "key") if "key" in columns else None
        self.headers = columns.get("headers")
        self.timestamps: Timestamps = timestamp_ms
        self.partitions: npt.NDArray[np.int32] | None = None
        """-1 for a row without a partition; None if no row has one."""
        self.sizes = _lengths(self.values)
        if self.keys is not None:
            self.sizes += _lengths(self.keys)
        if self.headers is not None:
            self.sizes += _header_sizes(self.headers)
        if "timestamp" in columns:
            self.timestamps = _timestamps(columns["timestamp"], timestamp_ms)
        if "partition" in columns:
            if partition is not None:
                raise ValueError("the table has a column partition, and a partition is given for all rows")
            self.partitions = _partitions(columns["partition"])
        elif partition is not None:
            if partition < 0:
                raise ValueError(f"Invalid partition: {partition}. Partition number should always be non-negative.")
            self.partitions = np.full(self.length, partition, np.int32)

    @property
    def highest_partition(self) -> int | None:
        """The highest partition that a row names."""
        if self.partitions is None or not self.length:
            return None
        highest = int(self.partitions.max())
        return None if highest < 0 else highest

    @property
    def is_in_one_piece(self) -> bool:
        """Whether every column is a single chunk."""
        columns = (self.values, self.keys, self.headers, self.timestamps)
        return all(column.num_chunks == 1 for column in columns if isinstance(column, pa.ChunkedArray))

    def check_sizes(self, max_request_size: int, buffer_memory: int) -> None:
        """Raises `RecordTooLargeError` if a row could not be sent on its own."""
        limit = min(max_request_size, buffer_memory)
        for row in np.flatnonzero(self.sizes > limit - _MAX_OVERHEAD).tolist():
            size = self._size_upper_bound(row)
            if size <= limit:
                continue
            setting = "max.request.size" if size > max_request_size else "buffer.memory"
            raise RecordTooLargeError(
                f"Row {row} is {size} bytes when serialized which is larger than {limit}, which is the value of the "
                f"{setting} configuration."
            )

    def _size_upper_bound(self, row: int) -> int:
        """Returns the size bound of a row, as for single sends."""
        key = None if self.keys is None else _octets(self.keys[row])
        return estimate_size_in_bytes_upper_bound(key, _octets(self.values[row]), self._headers_of(row))

    def records(self, topic: str) -> Iterator[ProducerRecord]:
        """Yields the rows as records (slow). A timestamp of -1 means none."""
        for row in range(self.length):
            partition = -1 if self.partitions is None else int(self.partitions[row])
            stamp = self.timestamps if isinstance(self.timestamps, int) else self.timestamps[row].as_py()
            yield ProducerRecord(
                topic,
                _octets(self.values[row]),
                None if self.keys is None else _octets(self.keys[row]),
                tuple(self._headers_of(row)),
                None if partition < 0 else partition,
                None if stamp < 0 else stamp,
            )

    def _headers_of(self, row: int) -> list[tuple[str, bytes | None]]:
        if self.headers is None:
            return []
        entries = self.headers[row].as_py() or []
        return [_pair(entry["key"], entry["value"]) if isinstance(entry, dict) else _pair(*entry) for entry in entries]

    def slice(self, start: int, stop: int) -> dict[str, Any]:
        """Returns some of the rows, as columns of one chunk each."""
        count = stop - start
        columns = {"value": _in_one_piece(self.values.slice(start, count))}
        if self.keys is not None:
            columns["key"] = _in_one_piece(self.keys.slice(start, count))
        if self.headers is not None:
            columns["headers"] = _in_one_piece(self.headers.slice(start, count))
        if not isinstance(self.timestamps, int):
            columns["timestamp"] = _in_one_piece(self.timestamps.slice(start, count))
        return columns


def as_arrow(table: object) -> pa.Table:
    """Converts pyarrow, pandas, polars and any object with Arrow's C interface to an Arrow table."""
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    pandas = sys.modules.get("pandas")
    try:
        if pandas is not None and isinstance(table, pandas.DataFrame):
            return pa.Table.from_pandas(table, preserve_index=False)
        if hasattr(table, "to_arrow"):
            return as_arrow(table.to_arrow())
        if hasattr(table, "__arrow_c_stream__") or hasattr(table, "__arrow_c_array__"):
            return pa.table(table)
    except pa.ArrowException as error:
        raise TypeError(f"{type(table).__name__} has no form in Arrow: {error}") from error
    raise TypeError(
        f"a table is a pyarrow Table or RecordBatch, or a pandas or polars DataFrame, not {type(table).__name__}"
    )


def _columns(table: object) -> dict[str, pa.ChunkedArray]:
    found = as_arrow(table)
    names = found.schema.names
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise ValueError(f"unknown columns: {', '.join(map(str, unknown))}; those of a table are {', '.join(COLUMNS)}")
    if "value" not in names:
        raise ValueError("there is no column named value")
    if len(set(names)) != len(names):
        raise ValueError(f"there are two columns of one name: {', '.join(names)}")
    return {name: found.column(name) for name in names}


def _binary(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Returns a column of bytes with offsets: text as UTF-8."""
    if column.type.id == pa.lib.Type_DICTIONARY:
        column = column.cast(column.type.value_type)
    if column.type.id in _TO_LARGE_BINARY:
        column = column.cast(pa.large_binary())
    if column.type.id not in _WITH_OFFSETS:
        raise TypeError(f"the column {name} is of type {column.type}: it has to be binary or string")
    return column


def _lengths(column: pa.ChunkedArray) -> Numbers:
    """Returns the bytes of each row; 0 for null."""
    lengths = pc.binary_length(column)
    if lengths.null_count:
        lengths = pc.fill_null(lengths, 0)
    return np.asarray(lengths).astype(np.int64)


def _in_one_piece(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _header_sizes(column: pa.ChunkedArray) -> Numbers:
    """Returns the bytes of each row's headers, lengths included; checks that they are headers."""
    sizes = [np.zeros(0, np.int64)]
    row = 0
    for chunk in column.chunks:
        sizes.append(_header_sizes_of(chunk, row))
        row += len(chunk)
    if not column.num_chunks:
        _header_fields(column.type)
    return np.concatenate(sizes)


def _header_fields(kind: pa.DataType) -> tuple[int, int]:
    """Finds key and value in the entries."""
    if kind.id == pa.lib.Type_MAP:
        fields = (0, 1)
        types = (kind.key_type, kind.item_type)
    elif kind.id in {pa.lib.Type_LIST, pa.lib.Type_LARGE_LIST} and kind.value_type.id == pa.lib.Type_STRUCT:
        entry = kind.value_type
        fields = (entry.get_field_index("key"), entry.get_field_index("value"))
        if entry.num_fields != 2 or min(fields) < 0:
            raise _no_headers(kind)
        types = (entry.field(fields[0]).type, entry.field(fields[1]).type)
    else:
        raise _no_headers(kind)
    for part in types:
        if part.id not in _WITH_OFFSETS and part.id not in _TO_LARGE_BINARY and part.id != pa.lib.Type_DICTIONARY:
            raise _no_headers(kind)
    return fields


def _no_headers(kind: pa.DataType) -> TypeError:
    return TypeError(
        f"the column headers is of type {kind}: it has to be a list of structs of key and value, or a map, both of "
        "strings or bytes"
    )


def _header_sizes_of(array: pa.Array, row: int) -> Numbers:
    if array.type.id == pa.lib.Type_NA:
        return np.zeros(len(array), np.int64)
    key_field, value_field = _header_fields(array.type)
    entries = array.values
    keys, values = entries.field(key_field), entries.field(value_field)
    bounds = np.asarray(array.offsets).astype(np.int64)
    if array.null_count:
        # Ignore data under a null list.
        present = np.asarray(pc.is_valid(array))
        begins, ends = bounds[:-1] * present, bounds[1:] * present
    else:
        begins, ends = bounds[:-1], bounds[1:]
    for what, part in (("a header", entries), ("the key of a header", keys)):
        if part.null_count:
            nulls = np.concatenate(([0], np.cumsum(np.asarray(pc.is_null(part)))))
            bad = np.flatnonzero(nulls[ends] - nulls[begins])
            if len(bad):
                raise ValueError(f"row {row + int(bad[0])}: {what} cannot be null")
    if keys.type.id in {pa.lib.Type_BINARY, pa.lib.Type_LARGE_BINARY, pa.lib.Type_BINARY_VIEW}:
        try:
            keys = keys.cast(pa.large_string())
        except pa.ArrowInvalid as error:
            raise ValueError(f"the column headers: keys are UTF-8: {error}") from error
    entry_sizes = _lengths(_binary(pa.chunked_array([keys]), "headers"))
    entry_sizes += _lengths(_binary(pa.chunked_array([values]), "headers")) + 2 * _LENGTH
    upto = np.concatenate(([0], np.cumsum(entry_sizes)))
    sizes: Numbers = upto[ends] - upto[begins]
    return sizes


def _timestamps(column: pa.ChunkedArray, default_ms: int) -> pa.ChunkedArray:
    """Returns milliseconds; finer units are truncated."""
    kind = column.type
    try:
        if pa.types.is_timestamp(kind):
            if kind.unit != "ms":
                # A safe cast refuses to truncate, an unsafe one overflows silently: only seconds can overflow.
                column = column.cast(pa.timestamp("ms", tz=kind.tz), safe=kind.unit == "s")
            column = column.cast(pa.int64())
        elif pa.types.is_integer(kind) or pa.types.is_null(kind):
            column = column.cast(pa.int64())
        else:
            raise TypeError(
                f"the column timestamp is of type {kind}: it has to be timestamps, or milliseconds as integers"
            )
    except pa.ArrowInvalid as error:
        raise ValueError(f"the column timestamp: {error}") from error
    _no_negative(column, "timestamp", "Timestamp should always be non-negative or null.")
    return pc.fill_null(column, default_ms) if column.null_count else column


def _partitions(column: pa.ChunkedArray) -> npt.NDArray[np.int32]:
    kind = column.type
    if not pa.types.is_integer(kind) and not pa.types.is_null(kind):
        raise TypeError(f"the column partition is of type {kind}: it has to be integers")
    try:
        column = column.cast(pa.int32())
    except pa.ArrowInvalid as error:
        raise ValueError(f"the column partition: {error}") from error
    _no_negative(column, "partition", "Partition number should always be non-negative.")
    if column.null_count:
        column = pc.fill_null(column, -1)
    return np.asarray(column).astype(np.int32)


def _no_negative(column: pa.ChunkedArray, name: str, rule: str) -> None:
    if not len(column):
        return
    lowest = pc.min(column).as_py()
    if lowest is not None and lowest < 0:
        row = pc.index(column, pa.scalar(lowest, column.type)).as_py()
        raise ValueError(f"row {row}: Invalid {name}: {lowest}. {rule}")


def _octets(value: pa.Scalar) -> bytes | None:
    plain = value.as_py()
    return plain.encode() if isinstance(plain, str) else plain


def _pair(key: str | bytes, value: str | bytes | None) -> tuple[str, bytes | None]:
    text = key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else key
    return text, value.encode() if isinstance(value, str) else value
