"""Avro values, decoded by fastavro."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa

from barnabas.common.extras import extra
from barnabas.spark.pipelines.connect_schemas import SEMANTIC_TYPES
from barnabas.spark.pipelines.schema_wire import WireFormat
from barnabas.spark.pipelines.value_schemas import Decode, ValueFormatError, ValueSchema

_PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("string", "uuid"): pa.string(),
}
_NAMED: Final = frozenset({"record", "enum", "fixed"})
_BASE_ONLY: Final = frozenset({"time-millis", "time-micros", "local-timestamp-millis", "local-timestamp-micros"})
"""Logical types that become their base type. fastavro would make Python's times of them, some of which do not exist:
24:00, for instance."""


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema as JSON, and the schemas with a name that it refers to, in the order of their references."""

    schema: Any
    named: tuple[Any, ...] = ()

    def arrow_type(self) -> pa.DataType:
        known: dict[str, pa.DataType | None] = {}
        for one in self.named:
            arrow_type(normal_form(one), known)
        return arrow_type(normal_form(self.schema), known)

    def converter(self) -> Callable[[Any], Any]:
        known: dict[str, Callable[[Any], Any]] = {}
        for one in self.named:
            converter(normal_form(one), known)
        return converter(normal_form(self.schema), known)

    def parsed(self) -> Any:
        with extra("lake", "values in Avro"):
            import fastavro  # on the executors

        known: dict[str, Any] = {}
        for one in self.named:
            fastavro.parse_schema(normal_form(one), named_schemas=known)
        return fastavro.parse_schema(normal_form(self.schema), named_schemas=known)


def normal_form(schema: Any, space: str = "") -> Any:
    """Returns a schema with full names in definitions and references, and without logical types of `_BASE_ONLY`.

    ``space``: the namespace of the type around it, which a name without one belongs to.

    >>> inner = {"type": "enum", "name": "Color", "symbols": ["RED"]}
    >>> outer = {"type": "record", "name": "a.Car", "fields": [{"name": "color", "type": inner}]}
    >>> normal_form(outer)["fields"][0]["type"]["name"]
    'a.Color'
    >>> normal_form(["null", {"type": "int", "logicalType": "time-millis"}])
    ['null', {'type': 'int'}]
    """
    if isinstance(schema, list):
        return [normal_form(one, space) for one in schema]
    if isinstance(schema, str):
        return schema if schema in _PRIMITIVES or schema == "null" else _full_name(schema, space)
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    if kind in ("array", "map"):
        inner = "items" if kind == "array" else "values"
        return {**schema, inner: normal_form(schema[inner], space)}
    if not isinstance(kind, str):
        return {**schema, "type": normal_form(kind, space)}
    if kind in _NAMED:
        name = _full_name(schema["name"], schema.get("namespace", space))
        space = name.rpartition(".")[0]
        fields = [{**one, "type": normal_form(one["type"], space)} for one in schema.get("fields", ())]
        return {**schema, "name": name, "namespace": space, **({"fields": fields} if kind == "record" else {})}
    if kind not in _PRIMITIVES and kind != "null":
        return normal_form(kind, space)
    return {key: one for key, one in schema.items() if key != "logicalType" or one not in _BASE_ONLY}


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def avro_schema(schema: AvroSchema, wire: WireFormat | None, reader: AvroSchema | None = None) -> ValueSchema:
    """For values that were written with a schema, and are to be read with the same one or with another.

    ``wire``: the header in front of values, if there is one.
    """
    try:
        kind = (reader or schema).arrow_type()
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueFormatError(f"this is no Avro schema: {type(error).__name__}: {error}") from None
    return ValueSchema(kind, partial(_make_decode, schema, wire, reader))


def _make_decode(schema: AvroSchema, wire: WireFormat | None, reader: AvroSchema | None) -> Decode:
    with extra("lake", "values in Avro"):
        import fastavro  # on the executors

    written, read = schema.parsed(), None if reader is None else reader.parsed()
    convert = (reader or schema).converter()

    def decode(value: bytes) -> Any:
        stream = io.BytesIO(value if wire is None else wire.body(value))
        record = fastavro.schemaless_reader(stream, written, read)
        if rest := stream.read():
            raise ValueError(f"{len(rest)} bytes are left over")
        return convert(record)

    return decode


def converter(schema: Any, named: dict[str, Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """The function that makes of a decoded value what Arrow takes: UUIDs as text, and what semantic names stand for.

    `named` has the functions of the types with a name that were met on the way.
    """
    if isinstance(schema, list):
        options = [one for one in schema if one != "null"]
        inner = converter(options[0], named) if len(options) == 1 else _same
        return inner if inner is _same else lambda value: None if value is None else inner(value)
    if isinstance(schema, str):
        return named.get(schema, _same)
    kind = schema.get("type")
    if schema.get("connect.name") in SEMANTIC_TYPES and "logicalType" not in schema:
        return SEMANTIC_TYPES[schema["connect.name"]][1]
    if kind == "record":
        fields = [(one["name"], converter(one["type"], named)) for one in schema["fields"]]
        return _remember(schema, named, lambda value: {name: convert(value[name]) for name, convert in fields})
    if kind == "array":
        item = converter(schema["items"], named)
        return _same if item is _same else lambda value: [item(one) for one in value]
    if kind == "map":
        entry = converter(schema["values"], named)
        return lambda value: {key: entry(one) for key, one in value.items()}
    if kind in {"enum", "fixed"}:
        return _remember(schema, named, _same)
    if schema.get("logicalType") == "uuid":
        return str
    return converter(kind, named) if not isinstance(kind, str) else _same


def _same(value: Any) -> Any:
    return value


def _remember(
    schema: Any, named: dict[str, Callable[[Any], Any]], convert: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    named[schema["name"]] = convert
    return convert


def arrow_type(schema: Any, named: dict[str, pa.DataType | None]) -> pa.DataType:
    """The Arrow type of an Avro schema in its `normal_form`. `named` has the types with a name met on the way.

    >>> arrow_type(["null", {"type": "array", "items": "long"}], {})
    ListType(list<item: int64>)
    """
    if isinstance(schema, list):
        options = [one for one in schema if one != "null"]
        if len(options) != 1:
            raise ValueFormatError(f"a union of several types cannot be a column: {schema}")
        return arrow_type(options[0], named)
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return _PRIMITIVES[schema]
        known = named.get(schema)
        if known is None:
            raise ValueFormatError(
                f"{schema} refers to itself, which no table can" if schema in named else f"there is no type {schema}"
            )
        return known
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind is None:
        raise ValueFormatError(f"this is no Avro schema: {schema}")
    if schema.get("connect.name") in SEMANTIC_TYPES and "logicalType" not in schema:
        return SEMANTIC_TYPES[schema["connect.name"]][0]
    if kind == "record":
        return _named(schema, named, lambda: pa.struct([_field(one, named) for one in schema["fields"]]))
    if kind == "enum":
        return _named(schema, named, pa.string)
    if kind == "fixed":
        return _named(schema, named, lambda: _decimal(schema) or pa.binary())
    if kind == "array":
        return pa.list_(arrow_type(schema["items"], named))
    if kind == "map":
        return pa.map_(pa.string(), arrow_type(schema["values"], named))
    if not isinstance(kind, str):
        return arrow_type(kind, named)
    if kind == "bytes" and (decimal := _decimal(schema)) is not None:
        return decimal
    return _LOGICAL.get((kind, schema.get("logicalType", "")), arrow_type(kind, named))


def _field(field: Any, named: dict[str, pa.DataType | None]) -> pa.Field:
    return pa.field(field["name"], arrow_type(field["type"], named))


def _named(schema: Any, named: dict[str, pa.DataType | None], make: Any) -> pa.DataType:
    named[schema["name"]] = None  # known, and not yet there: whoever refers to it now refers to itself
    made: pa.DataType = make()
    named[schema["name"]] = made
    return made


def _decimal(schema: Any) -> pa.DataType | None:
    if schema.get("logicalType") != "decimal":
        return None
    return pa.decimal128(schema["precision"], schema.get("scale", 0))
