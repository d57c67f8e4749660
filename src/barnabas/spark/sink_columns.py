"""Checks the columns of the rows to write, and splits the rows into one table per topic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from barnabas.common.errors import BarnabasError

TOPIC: Final = "topic"
_SENT: Final = ("key", "value", "headers", "partition")
"""The columns that the producer reads from a table."""


class SinkColumnsError(BarnabasError):
    """A column is missing, or its type cannot be written."""


def _is_text_or_bytes(kind: DataType) -> bool:
    return isinstance(kind, StringType | BinaryType)


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields: list[Any] = kind.elementType.fields
    return [field.name for field in fields] == ["key", "value"] and (
        isinstance(fields[0].dataType, StringType) and isinstance(fields[1].dataType, BinaryType)
    )


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType)


def _is_int(kind: DataType) -> bool:
    return isinstance(kind, IntegerType)


_TYPES: Final = {
    "topic": (_is_text, "a string"),
    "key": (_is_text_or_bytes, "a string or binary"),
    "value": (_is_text_or_bytes, "a string or binary"),
    "headers": (_is_headers, "an array of structs of key (a string) and value (binary)"),
    "partition": (_is_int, "an int"),
}


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """The columns of a query's rows; `tables` converts batches."""

    topic: str | None
    """The topic of all rows; None: the column ``topic`` has it."""
    names: tuple[str, ...]

    @classmethod
    def of(cls, schema: StructType, topic: str | None) -> SinkColumns:
        """Checks a schema; raises `SinkColumnsError` if a column of the sink is invalid. Other columns are ignored, as
        by the stock connector."""
        found = {field.name: field.dataType for field in schema.fields}
        if topic is None and TOPIC not in found:
            raise SinkColumnsError(
                "There is neither an option topic nor a column topic. Set one of them to say where to write."
            )
        if "value" not in found:
            raise SinkColumnsError(f"There is no column value, only {', '.join(found) or 'none at all'}.")
        names = tuple(name for name in _SENT if name in found)
        for name in (*names, TOPIC) if topic is None else names:
            fits, expected = _TYPES[name]
            if not fits(found[name]):
                raise SinkColumnsError(f"Column {name} must be {expected}, and is {found[name].simpleString()}.")
        return cls(topic, names)

    def tables(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yields the rows of each topic, in their order."""
        rows = batch.select(list(self.names))
        if self.topic is not None:
            yield self.topic, rows
            return
        topics = batch.column(TOPIC)
        if topics.null_count:
            raise SinkColumnsError(
                "There are rows whose topic is null. Give each row a topic, or all of them one with the option topic."
            )
        encoded = topics.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        if len(names) == 1:
            yield names[0], rows
            return
        # Rows are copied only once, whatever the number of topics.
        numbers = encoded.indices.to_numpy(zero_copy_only=False)
        order = np.argsort(numbers, kind="stable")
        rows = rows.take(pa.array(order))
        ends = np.cumsum(np.bincount(numbers, minlength=len(names)))
        start = 0
        for name, end in zip(names, ends.tolist(), strict=True):
            yield name, rows.slice(start, end - start)
            start = end
