"""What the values of a topic are: bytes, or JSON, Avro or Protobuf with a schema that the user or a registry gives."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.spark.pipelines.dead_letter import ORIGIN, PROBLEM
from barnabas.spark.pipelines.schema_wire import WireFormat
from barnabas.spark.pipelines.value_schemas import (
    Decoding,
    OneSchema,
    ValueFormatError,
    ValueSchemas,
    fitting_schemas,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from barnabas.spark.pipelines.registry_schemas import Reader
    from barnabas.spark.pipelines.schema_registry import RegistryConfig

_CORRUPT: Final = "_corrupt"
RAW_VALUE: Final = "raw_value"
"""The bytes of a value, whatever they are."""
KEPT: Final = (*ORIGIN, "key", "headers")


class ValueFormat(Protocol):
    """Turns the column ``value``, which is binary, into what a table has."""

    @property
    def many(self) -> bool:
        """Whether a batch is read twice: first to find the schemas of its values."""

    def parse(self, raw: DataFrame, table: pa.DataType | None) -> DataFrame:
        """Columns: `KEPT`, ``value`` as the table has it, `RAW_VALUE`, and `PROBLEM`, null if there is none.

        ``table``: the type that the table's column has, which schemas of records have to fit; None if it has none yet.
        If nothing says what the type is, there is no column ``value``, and all values are null or have a problem.
        """


class RawValues:
    """Bytes stay bytes."""

    many = False

    def parse(self, raw: DataFrame, table: pa.DataType | None) -> DataFrame:  # noqa: ARG002 - always binary
        from pyspark.sql import functions as sf

        nothing = sf.lit(None).cast("string").alias(PROBLEM)
        return raw.select(*KEPT, "value", sf.col("value").alias(RAW_VALUE), nothing)


class JsonValues:
    """JSON with a schema in Spark's words: ``id bigint, name string, tags array<string>``.

    Fields that the schema does not have are left out; those that a record does not have are null. A value that is null,
    as in a compacted topic for a key that is gone, is a null.
    """

    many = False

    def __init__(self, schema: str) -> None:
        self._schema = schema

    def parse(self, raw: DataFrame, table: pa.DataType | None) -> DataFrame:  # noqa: ARG002 - the schema is given
        from pyspark.sql import functions as sf

        names = [field.name for field in struct_of(self._schema).fields]
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


class SchemaValues:
    """Values that Python decodes on the workers, to a struct."""

    def __init__(self, schemas: ValueSchemas) -> None:
        self.schemas = schemas

    @property
    def many(self) -> bool:
        return self.schemas.many

    def parse(self, raw: DataFrame, table: pa.DataType | None) -> DataFrame:
        import pyarrow as pa  # an extra
        from pyspark.sql import functions as sf

        found, kind = fitting_schemas(self.schemas, raw, "value", table, _struct)
        columns = raw.select(*KEPT, sf.col("value").alias(RAW_VALUE))
        decoding = Decoding(self.schemas, found, pa.null() if kind is None else kind)
        decoded = decoding.add_to(columns, RAW_VALUE, "value", PROBLEM)
        return decoded.drop("value") if kind is None else decoded


def _struct(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa  # an extra

    if not pa.types.is_struct(kind):
        raise ValueFormatError(f"a value has to be a record with fields, not {kind}")
    return kind


@dataclass(frozen=True, slots=True)
class ValueSettings:
    """What a user says about the values of a topic."""

    kind: str
    """``raw``, ``json``, ``connect``, ``avro`` or ``protobuf``."""
    schema: str | None = None
    """json: columns as Spark writes them, or a file with them; avro: a schema file; protobuf: a descriptor set."""
    message: str | None = None
    """protobuf: the name of a message in the descriptor set."""
    confluent: bool = field(default=False, kw_only=True)
    """Values begin with the header of a schema registry, though their schema is given."""
    registry: RegistryConfig | None = field(default=None, kw_only=True)
    reader: Reader | None = field(default=None, kw_only=True)


def value_format(settings: ValueSettings) -> ValueFormat:
    """``raw``; ``json`` with a schema; what `schemas_of` takes."""
    if settings.kind == "raw":
        if settings.schema is not None or settings.registry is not None:
            raise ValueFormatError("raw values have no schema; say which of json, avro and protobuf they are")
        return RawValues()
    if settings.kind == "json" and settings.schema is not None:
        return JsonValues(ddl_of(settings.schema))
    return SchemaValues(schemas_of(settings))


def struct_of(ddl: str) -> StructType:
    """Parses columns as Spark writes them; needs a session."""
    from pyspark.sql.types import StructType

    try:
        schema = StructType.fromDDL(ddl)
    except Exception as error:  # noqa: BLE001 - Spark's, of which there are many
        raise ValueFormatError(f"{ddl!r} is no schema: {str(error).strip().splitlines()[0]}") from None
    assert isinstance(schema, StructType)
    return schema


def ddl_of(schema: str) -> str:
    """Columns as Spark writes them, given as such or as the name of a file that has them."""
    path = Path(schema)
    return path.read_text().strip() if path.suffix and path.is_file() else schema


def schemas_of(settings: ValueSettings) -> ValueSchemas:
    """``avro`` with a schema file; ``protobuf`` with a file of descriptors and the name of a message in it; both, and
    ``json``, with a schema registry; ``connect``, which is JSON with its schema."""
    kind, schema, registry, reader = settings.kind, settings.schema, settings.registry, settings.reader
    if registry is not None:
        if schema is not None:
            raise ValueFormatError("the schemas come from the registry: give either a registry or a schema")
        if kind not in {"avro", "json", "protobuf"}:
            raise ValueFormatError(f"{kind} values have no schemas in a registry")
        from barnabas.spark.pipelines.registry_schemas import RegistrySchemas

        return RegistrySchemas(kind, registry, reader=reader, message=settings.message)
    if reader is not None:
        raise ValueFormatError("a reader schema needs a registry")
    if kind == "connect":
        from barnabas.spark.pipelines.connect_schemas import ConnectSchemas

        if schema is not None:
            raise ValueFormatError("connect values have their schemas with them")
        return ConnectSchemas()
    if schema is None:
        raise ValueFormatError(f"{kind} values need a schema")
    if not Path(schema).is_file():
        raise ValueFormatError(f"there is no file {schema}")
    wire = WireFormat() if settings.confluent else None
    if kind == "avro":
        from barnabas.spark.pipelines.avro_values import AvroSchema, avro_schema  # an extra

        try:
            found = avro_schema(AvroSchema(json.loads(Path(schema).read_text())), wire)
        except json.JSONDecodeError as error:
            raise ValueFormatError(f"{schema} is no Avro schema: {error}") from None
        _struct(found.kind)
        return OneSchema(lambda: found, "Avro")
    if kind == "protobuf":
        from barnabas.spark.pipelines.protobuf_values import protobuf_schema

        if settings.message is None:
            raise ValueFormatError("protobuf values need the name of a message")
        described = protobuf_schema(Path(schema).read_bytes(), settings.message, wire)
        return OneSchema(lambda: described, "Protobuf")
    raise ValueFormatError(f"there is no format {kind}; there are raw, json, connect, avro and protobuf")
