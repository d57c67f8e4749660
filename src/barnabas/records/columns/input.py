"""Prepares Arrow arrays of any layout for the encoder, as raw memory that a kernel can read.

Arrow has several layouts for the same bytes (32- or 64-bit offsets, views, fixed size, a dictionary), an array can be a
slice of another one, and a column can have several chunks. The two layouts with offsets are used without a copy, slices
included; Arrow converts the others.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas._kernels import columns as kernel

Column: TypeAlias = "pa.Array | pa.ChunkedArray"
"""An array, or several that continue each other."""

HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""The headers of a record, as Spark's Kafka source has them."""

_MAX_INT32: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1

_NARROW: Final = frozenset({pa.lib.Type_BINARY, pa.lib.Type_STRING})
_WIDE: Final = frozenset({pa.lib.Type_LARGE_BINARY, pa.lib.Type_LARGE_STRING})
# Layouts that Arrow converts. Views may refer to more than 2 GiB, hence 64-bit offsets.
_TO_LARGE_BINARY: Final = frozenset(
    {pa.lib.Type_FIXED_SIZE_BINARY, pa.lib.Type_BINARY_VIEW, pa.lib.Type_STRING_VIEW, pa.lib.Type_NA}
)


def _in_one_piece(column: Column, what: str) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    if not isinstance(column, pa.ChunkedArray):
        raise TypeError(f"{what} are an Arrow array, not {type(column).__name__}")
    if column.num_chunks == 1:
        return column.chunk(0)
    if column.type.id in _NARROW and column.nbytes > _MAX_INT32:
        column = column.cast(pa.large_binary())
    return column.combine_chunks()


def _binary_column(column: Column, what: str) -> kernel.BinaryColumn:
    array = _in_one_piece(column, what)
    if array.type.id == pa.lib.Type_DICTIONARY:
        array = array.cast(array.type.value_type)
    if array.type.id in _TO_LARGE_BINARY:
        array = array.cast(pa.large_binary())
    kind = array.type.id
    if kind not in _NARROW and kind not in _WIDE:
        raise TypeError(f"{what} are binary or string, not {array.type}")
    validity, offsets, data = array.buffers()
    return kernel.BinaryColumn(validity, offsets, data, kind in _WIDE, array.offset, len(array))


def _header_column(column: Column) -> kernel.HeaderColumn:
    array = _in_one_piece(column, "headers")
    kind = array.type.id
    if kind == pa.lib.Type_NA:
        array, kind = array.cast(HEADERS_TYPE), pa.lib.Type_LIST
    if kind == pa.lib.Type_MAP:
        key_field, value_field = 0, 1
    elif kind in {pa.lib.Type_LIST, pa.lib.Type_LARGE_LIST} and array.type.value_type.id == pa.lib.Type_STRUCT:
        entry = array.type.value_type
        key_field, value_field = entry.get_field_index("key"), entry.get_field_index("value")
    else:
        key_field = value_field = -1
    if key_field < 0 or value_field < 0:
        raise TypeError(f"headers are a map, or a list of structs of key and value, not {array.type}")
    entries = array.values
    # Entries outside the slice, or under a null list, do not count.
    if entries.null_count and array.flatten().null_count:
        raise ValueError("a header cannot be null")
    keys = _in_one_piece(entries.field(key_field), "header keys")
    if keys.type.id in {pa.lib.Type_BINARY, pa.lib.Type_LARGE_BINARY, pa.lib.Type_BINARY_VIEW}:
        try:
            keys = keys.cast(pa.large_string())
        except pa.ArrowInvalid as error:
            raise ValueError(f"header keys are UTF-8: {error}") from error
    validity, offsets = array.buffers()[:2]
    return kernel.HeaderColumn(
        validity,
        offsets,
        kind == pa.lib.Type_LARGE_LIST,
        array.offset,
        len(array),
        _binary_column(keys, "header keys"),
        _binary_column(entries.field(value_field), "header values"),
    )


def _milliseconds(column: Column) -> pa.Array:
    """Converts timestamps to 64-bit integers, truncated to milliseconds."""
    array = _in_one_piece(column, "timestamps")
    if pa.types.is_timestamp(array.type):
        if array.type.unit != "ms":
            # A safe cast refuses to truncate, an unsafe one overflows silently. Only seconds can overflow.
            array = array.cast(pa.timestamp("ms", tz=array.type.tz), safe=array.type.unit == "s")
        return array.view(pa.int64())
    if pa.types.is_integer(array.type) or pa.types.is_null(array.type):
        return array if array.type.id == pa.lib.Type_INT64 else array.cast(pa.int64())
    raise TypeError(f"timestamps are Arrow timestamps or integers of milliseconds, not {array.type}")


def timestamps_or(column: Column | None, default: Column | int | None) -> Column | int:
    """Returns the timestamp column with nulls replaced by the default."""
    if column is None:
        if default is None:
            raise ValueError("there is no column named timestamp, and no timestamps are given")
        return default
    stamps = _milliseconds(column)
    if default is None or not stamps.null_count:
        return stamps
    return pc.coalesce(stamps, int(default) if isinstance(default, int | np.integer) else _milliseconds(default))


def encoder_for(
    values: Column, keys: Column | None, headers: Column | None, timestamps: Column | int
) -> kernel.Encoder:
    """Creates an encoder for these columns, which must have the same length."""
    buffer, first, timestamp = None, 0, -1
    if isinstance(timestamps, int | np.integer):
        if not -1 <= timestamps <= _MAX_INT64:
            raise ValueError(f"timestamp {timestamps} is out of range (-1 means none)")
        timestamp = int(timestamps)
    else:
        stamps = _milliseconds(timestamps)
        if len(stamps) != len(values):
            raise ValueError(f"{len(stamps)} timestamps for {len(values)} values")
        if stamps.null_count:
            raise ValueError("a timestamp cannot be null: -1 means none")
        buffer, first = stamps.buffers()[1], stamps.offset
    return kernel.Encoder(
        None if keys is None else _binary_column(keys, "keys"),
        _binary_column(values, "values"),
        None if headers is None else _header_column(headers),
        buffer,
        first,
        timestamp,
    )
