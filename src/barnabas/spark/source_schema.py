"""The schema of the source's rows, as of Spark's own Kafka connector, in Spark and in Arrow types."""

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

# Spark compares a batch's schema with its own, including the name of a list's items.
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
    """Returns the columns that the options select: all but the headers, all, or only the ones named.

    Spark does not tell a Python source which columns a query uses. The option ``columns`` avoids decoding unused
    columns and sending them to the JVM.
    """
    if columns is None:
        return tuple(name for name in _SPARK_TYPES if name != HEADERS or include_headers)
    by_lower_case = {name.lower(): name for name in _SPARK_TYPES}
    names: list[str] = []
    for text in columns.split(","):
        name = by_lower_case.get(text.strip().lower())
        if name is None:
            raise ConfigError(
                f"columns names {text.strip()!r}, which is not one of {', '.join(_SPARK_TYPES)}.", name="columns"
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
    """Refuses a user-defined schema: the schema of a topic's rows is fixed."""
    expected = spark_schema(names)
    if given != expected:
        raise ConfigError(
            f"This source has a fixed schema, {expected.simpleString()}, and cannot be read as "
            f"{given.simpleString()}; the options columns and includeHeaders select from it."
        )
