"""How the columns of a table follow the schemas of its records.

A table has the columns of all schemas that its records ever had. A field that is new becomes a column that is null in
all earlier rows; a field that is gone is null from then on. A column never changes its type: an integer or a number
with a fraction may be narrower than the column, everything else is refused.

    table    struct<id: int64, name: string>
    record   struct<id: int32, email: string>
    merged   struct<id: int64, name: string, email: string>
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


class DriftError(Exception):
    """A schema does not fit the table; the message names the column and both types."""


def merged_type(table: pa.DataType, record: pa.DataType, path: str = "") -> pa.DataType:
    """The type that a table needs for its rows and for the records; `DriftError` if there is none."""
    import pyarrow as pa  # an extra

    kinds = pa.types
    if kinds.is_struct(table) and kinds.is_struct(record):
        return _merged_struct(table, record, path)
    if _is_list(table) and _is_list(record):
        return pa.list_(merged_type(table.value_type, record.value_type, f"{path}[]"))
    if kinds.is_map(table) and kinds.is_map(record):
        return pa.map_(
            merged_type(table.key_type, record.key_type, f"{path}.key"),
            merged_type(table.item_type, record.item_type, f"{path}.value"),
        )
    table, record = plain_type(table), plain_type(record)
    if table == record or _is_narrower(record, table):
        return table
    raise DriftError(f"column {path} is {table} in the table and {record} in the record's schema")


def _merged_struct(table: pa.DataType, record: pa.DataType, path: str) -> pa.DataType:
    import pyarrow as pa  # an extra

    fields = {one.name: plain_type(one.type) for one in table}
    # Engines find columns without regard to case.
    known = {name.lower(): name for name in fields}
    for one in record:
        place = f"{path}.{one.name}".lstrip(".")
        name = known.setdefault(one.name.lower(), one.name)
        if name != one.name:
            raise DriftError(f"column {place} differs from {name} in the case of its letters only")
        fields[name] = merged_type(fields[name], one.type, place) if name in fields else plain_type(one.type)
    return pa.struct(list(fields.items()))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type in the one form that is used here: libraries differ in the size of offsets and the names of items."""
    import pyarrow as pa  # an extra

    kinds = pa.types
    if kinds.is_struct(kind):
        return pa.struct([(one.name, plain_type(one.type)) for one in kind])
    if _is_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if kinds.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if kinds.is_large_string(kind) or kinds.is_string_view(kind):
        return pa.string()
    if kinds.is_large_binary(kind) or kinds.is_fixed_size_binary(kind) or kinds.is_binary_view(kind):
        return pa.binary()
    if kinds.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp("us", "UTC")
    return kind


def type_of(schema: pa.Schema, column: str) -> pa.DataType | None:
    """The type of a column; None if there is no such column."""
    return plain_type(schema.field(column).type) if column in schema.names else None


def _is_list(kind: pa.DataType) -> bool:
    import pyarrow as pa  # an extra

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_narrower(kind: pa.DataType, than: pa.DataType) -> bool:
    import pyarrow as pa  # an extra

    kinds = pa.types
    for is_kind in (kinds.is_signed_integer, kinds.is_floating):
        if is_kind(kind) and is_kind(than):
            return bool(kind.bit_width < than.bit_width)
    if kinds.is_decimal(kind) and kinds.is_decimal(than):
        whole = than.precision - than.scale
        return bool(kind.scale <= than.scale and kind.precision - kind.scale <= whole)
    return False
