"""Rows that become Arrow, for functions that Spark hands batches of Arrow to."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

_TYPES: Final = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", "UTC"),
}


def arrow_schema(columns: str) -> pa.Schema:
    """The Arrow types of columns such as ``topic string, offset bigint``.

    Spark has a function for that, which asks the Java machine: a worker has none.
    """
    parts = [column.strip().split(" ") for column in columns.split(",")]
    return pa.schema([pa.field(name, _TYPES[kind]) for name, kind in parts])


class ArrowRows:
    """Collects rows as columns, and makes record batches of exactly the types that Spark was promised.

    Timestamps may be given as microseconds since 1970. A column that a row says nothing about is null.
    """

    __slots__ = ("_columns", "_schema", "_size")

    def __init__(self, columns: str) -> None:
        self._schema = arrow_schema(columns)
        self._columns: dict[str, list[Any]] = {name: [] for name in self._schema.names}
        self._size = 0

    def add(self, row: dict[str, Any]) -> None:
        for name, column in self._columns.items():
            column.append(row.get(name))
        self._size += 1

    def take(self) -> pa.RecordBatch:
        """All rows since the last time."""
        arrays = [pa.array(self._columns[field.name], field.type) for field in self._schema]
        for column in self._columns.values():
            column.clear()
        self._size = 0
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def __len__(self) -> int:
        return self._size
