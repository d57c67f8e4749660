"""What the values of a topic are: bytes, or JSON, Avro or Protobuf with a schema that the user gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas.spark.pipelines.dead_letter import ORIGIN, PROBLEM

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_CORRUPT: Final = "_corrupt"
_MAGIC: Final = 0
_CONFLUENT_HEADER: Final = 5
RAW_VALUE: Final = "raw_value"
"""The bytes of a value, whatever they are."""
KEPT: Final = (*ORIGIN, "key", "headers")

Decode = Callable[[bytes], Any]


class ValueFormatError(Exception):
    """A schema cannot be used; the message says why."""


class ValueFormat(Protocol):
    """Turns the column ``value``, which is binary, into what a table has."""

    def parse(self, raw: DataFrame) -> DataFrame:
        """Columns: `KEPT`, ``value`` as the table has it, `RAW_VALUE`, and `PROBLEM`, null if there is none."""


class RawValues:
    """Bytes stay bytes."""

    def parse(self, raw: DataFrame) -> DataFrame:
        from pyspark.sql import functions as sf

        nothing = sf.lit(None).cast("string").alias(PROBLEM)
        return raw.select(*KEPT, "value", sf.col("value").alias(RAW_VALUE), nothing)


class JsonValues:
    """JSON with a schema in Spark's words: ``id bigint, name string, tags array<string>``.

    Fields that the schema does not have are left out; those that a record does not have are null. A value that is null,
    as in a compacted topic for a key that is gone, is a null.
    """

    def __init__(self, schema: str) -> None:
        self._schema = schema

    def parse(self, raw: DataFrame) -> DataFrame:
        from pyspark.sql import functions as sf
        from pyspark.sql.types import StructType

        try:
            schema = StructType.fromDDL(self._schema)
        except Exception as error:  # noqa: BLE001 - Spark's, of which there are many
            raise ValueFormatError(f"{self._schema!r} is no schema: {str(error).strip().splitlines()[0]}") from None
        assert isinstance(schema, StructType)
        names = [field.name for field in schema.fields]
        text = sf.col("value").cast("string")
        found = sf.from_json(text, f"{self._schema}, {_CORRUPT} string", {"columnNameOfCorruptRecord": _CORRUPT})
        parsed = raw.select(*KEPT, sf.col("value").alias(RAW_VALUE), found.alias("_found"))
        has_value = sf.col(RAW_VALUE).isNotNull()
        is_bad = has_value & (sf.col("_found").isNull() | sf.col(f"_found.{_CORRUPT}").isNotNull())
        struct = sf.struct(*(sf.col(f"_found.`{name}`").alias(name) for name in names))
        problem = sf.when(is_bad, sf.lit("not JSON, or not of the types of the schema"))
        return parsed.select(
            *KEPT, sf.when(has_value & ~is_bad, struct).alias("value"), RAW_VALUE, problem.alias(PROBLEM)
        )


class DecodedValues:
    """Values that Python decodes on the executors, with a schema that becomes a struct.

    `make_decode` makes the function that decodes one value. It is called on the executors, once for each task, for what
    it makes cannot travel.
    """

    def __init__(self, kind: pa.DataType, make_decode: Callable[[], Decode], name: str) -> None:
        self._type = kind
        self._make_decode = make_decode
        self._name = name

    def parse(self, raw: DataFrame) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_type
        from pyspark.sql.types import StringType, StructField, StructType

        columns = raw.select(*KEPT, "value")
        fields = {field.name: field for field in columns.schema.fields}
        schema = StructType(
            [
                *(fields[name] for name in KEPT),
                StructField("value", from_arrow_type(self._type)),
                StructField(RAW_VALUE, fields["value"].dataType),
                StructField(PROBLEM, StringType()),
            ]
        )
        return columns.mapInArrow(_Decoding(self._type, self._make_decode, self._name), schema)


class _Decoding:
    """What runs on the executors."""

    def __init__(self, kind: pa.DataType, make_decode: Callable[[], Decode], name: str) -> None:
        self._type = kind
        self._make_decode = make_decode
        self._name = name

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        decode = self._make_decode()
        for batch in batches:
            raw = batch.column("value")
            values: list[Any] = []
            problems: list[str | None] = []
            for one in raw.to_pylist():
                value, problem = self._decoded(decode, one)
                values.append(value)
                problems.append(problem)
            arrays = [batch.column(name) for name in KEPT]
            arrays += [pa.array(values, self._type), raw, pa.array(problems, pa.string())]
            yield pa.RecordBatch.from_arrays(arrays, [*KEPT, "value", RAW_VALUE, PROBLEM])

    def _decoded(self, decode: Decode, value: bytes | None) -> tuple[Any, str | None]:
        import pyarrow as pa

        if value is None:
            return None, None
        try:
            decoded = decode(value)
            pa.scalar(decoded, self._type)  # so that one bad value does not take all others of its batch with it
        except Exception as error:  # noqa: BLE001 - whatever a decoder makes of bytes that are something else
            return None, f"not {self._name} of this schema: {type(error).__name__}: {error}"
        return decoded, None


def without_confluent_header(value: bytes) -> bytes:
    """What comes after the magic byte and the schema id that a schema registry's serializers put in front."""
    if len(value) < _CONFLUENT_HEADER or value[0] != _MAGIC:
        raise ValueError("there is no schema registry's header")
    return value[_CONFLUENT_HEADER:]


def value_format(kind: str, schema: str | None, message: str | None = None, *, confluent: bool = False) -> ValueFormat:
    """``raw``; ``json`` with a schema as text or in a file; ``avro`` with a schema file; ``protobuf`` with a file of
    descriptors and the name of a message in it."""
    if kind == "raw":
        if schema is not None:
            raise ValueFormatError("raw values have no schema; say which of json, avro and protobuf they are")
        return RawValues()
    if schema is None:
        raise ValueFormatError(f"{kind} values need a schema")
    if kind == "json":
        path = Path(schema)
        return JsonValues(path.read_text().strip() if path.suffix and path.is_file() else schema)
    if not Path(schema).is_file():
        raise ValueFormatError(f"there is no file {schema}")
    if kind == "avro":
        from barnabas.spark.pipelines.avro_values import avro_values  # an extra

        try:
            return avro_values(json.loads(Path(schema).read_text()), confluent=confluent)
        except json.JSONDecodeError as error:
            raise ValueFormatError(f"{schema} is no Avro schema: {error}") from None
    if kind == "protobuf":
        from barnabas.spark.pipelines.protobuf_values import protobuf_values

        if message is None:
            raise ValueFormatError("protobuf values need the name of a message")
        return protobuf_values(Path(schema).read_bytes(), message, confluent=confluent)
    raise ValueFormatError(f"there is no format {kind}; there are raw, json, avro and protobuf")
