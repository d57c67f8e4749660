"""What a record says about a row: Debezium's envelope, or the row itself.

Debezium writes, for each change of a row, ``{"op": "u", "before": {...}, "after": {...}, "source": {...}}``: created
(``c``), read by a snapshot (``r``), updated (``u``), deleted (``d``), and all rows truncated (``t``). After a deletion
comes a *tombstone*, a record with the key and no value, for the sake of compaction. A tombstone deletes, too: of a
compacted topic it may be all that is left.

Without an envelope a record is the row, and a tombstone deletes it. Debezium's ``ExtractNewRecordState`` makes such
records; what it adds, ``__deleted`` or ``__op``, is heeded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.spark.pipelines.row_changes import DELETE, OP, POSITION, TRUNCATE, UPSERT
from barnabas.spark.pipelines.value_schemas import ValueFormatError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

KEY: Final = "_key"
"""Column with the key of the record, in tables without key columns of their own."""
RESERVED: Final = frozenset({OP, KEY, *POSITION})
_OPS: Final = {"c": UPSERT, "r": UPSERT, "u": UPSERT, "d": DELETE, "t": TRUNCATE}
_MARKS: Final = ("__deleted", "__op")


class Envelope(Protocol):
    """Takes a row and what happened to it out of a value."""

    def row_type(self, value: pa.DataType) -> pa.DataType:
        """The type of the row within a value; `ValueFormatError` if the value has none."""

    def value_type(self, row: pa.DataType) -> pa.DataType:
        """The type that values are decoded to, for rows of a type."""

    def op(self, value: Column) -> Column:
        """`UPSERT`, `DELETE` or `TRUNCATE`; null if the value does not say."""

    def row(self, value: Column) -> Column:
        """The row; null if there is none."""


class Debezium:
    """Debezium's envelope."""

    def row_type(self, value: pa.DataType) -> pa.DataType:
        import pyarrow as pa  # an extra

        fields = {one.name: one.type for one in value} if pa.types.is_struct(value) else {}
        if "op" not in fields or "after" not in fields or not pa.types.is_struct(fields["after"]):
            raise ValueFormatError("not an envelope of Debezium: there is no op, or no row in after")
        return checked_row(fields["after"])

    def value_type(self, row: pa.DataType) -> pa.DataType:
        import pyarrow as pa  # an extra

        return pa.struct([("op", pa.string()), ("before", row), ("after", row)])

    def op(self, value: Column) -> Column:
        from pyspark.sql import functions as sf  # an extra

        found: Column = sf.when(value.isNull(), DELETE)
        for code, op in _OPS.items():
            found = found.when(value["op"] == code, op)
        return found

    def row(self, value: Column) -> Column:
        from pyspark.sql import functions as sf  # an extra

        return sf.when(value["op"] == "d", value["before"]).otherwise(value["after"])


class NoEnvelope:
    """The value is the row."""

    def row_type(self, value: pa.DataType) -> pa.DataType:
        import pyarrow as pa  # an extra

        if not pa.types.is_struct(value):
            raise ValueFormatError(f"a value has to be a record with fields, not {value}")
        return checked_row(pa.struct([one for one in value if one.name not in _MARKS]))

    def value_type(self, row: pa.DataType) -> pa.DataType:
        import pyarrow as pa  # an extra

        return pa.struct([*row, *((name, pa.string()) for name in _MARKS)])

    def op(self, value: Column) -> Column:
        from pyspark.sql import functions as sf  # an extra

        deleted, code = (value[name] for name in _MARKS)
        is_deleted = value.isNull() | (sf.lower(deleted) == "true") | (code == "d")
        return sf.when(is_deleted, DELETE).when(code == "t", TRUNCATE).otherwise(UPSERT)

    def row(self, value: Column) -> Column:
        return value.dropFields(*_MARKS)


ENVELOPES: Final[Mapping[str, Callable[[], Envelope]]] = {"debezium": Debezium, "none": NoEnvelope}


def checked_row(row: pa.DataType) -> pa.DataType:
    if taken := sorted(RESERVED & {one.name for one in row}):
        raise ValueFormatError(f"{', '.join(taken)}: the table has columns of its own by these names")
    return row
