"""The rows of the source: those of Spark's own Kafka connector, as a Spark schema and as Arrow types."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barnabas.common.config_def import ConfigError

HEADERS: Final = "headers"

_SPARK_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}
"""All columns, in the connector's order."""

# Spark compares a batch's schema with its own, down to the name of a list's items.
ARROW_HEADERS: Final = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))

_ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    HEADERS: ARROW_HEADERS,
}


def column_names(columns: str | None, include_headers: bool) -> tuple[str, ...]:
    """The columns that the options ask for: all but the headers, those too, or just the ones named.

    Spark does not tell a Python source which columns a query uses. What nobody will look at need not be decoded,
    shipped to the JVM and thrown away there, so the option ``columns`` says it.
    """
    if columns is None:
        return tuple(name for name in _SPARK_TYPES if name != HEADERS or include_headers)
    by_lower_case = {name.lower(): name for name in _SPARK_TYPES}
    names: list[str] = []
    for text in columns.split(","):
        name = by_lower_case.get(text.strip().lower())
        if name is None:
            raise ConfigError(
                f"columns names {text.strip()!r}, which is none of {', '.join(_SPARK_TYPES)}.", name="columns"
            )
        if name in names:
            raise ConfigError(f"columns names {name} twice.", name="columns")
        names.append(name)
    if include_headers and HEADERS not in names:
        raise ConfigError("includeHeaders is true, but columns does not name headers.", name="columns")
    return tuple(names)


def spark_schema(names: tuple[str, ...]) -> StructType:
    return StructType([StructField(name, _SPARK_TYPES[name]) for name in names])


def arrow_schema(names: tuple[str, ...]) -> pa.Schema:
    return pa.schema([pa.field(name, _ARROW_TYPES[name]) for name in names])


def check_schema(given: StructType, names: tuple[str, ...]) -> None:
    """A schema of the user's own is refused: what a topic's rows look like is not for a query to choose."""
    expected = spark_schema(names)
    if given != expected:
        raise ConfigError(
            f"This source has a fixed schema, {expected.simpleString()}, and cannot be read as "
            f"{given.simpleString()}; the options columns and includeHeaders select from it."
        )
