"""JSON values with a JSON Schema, as the serializers of schema registries write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import pyarrow as pa

from barnabas.spark.pipelines.json_values import make_decode
from barnabas.spark.pipelines.schema_wire import WireFormat
from barnabas.spark.pipelines.value_schemas import Decode, ValueFormatError, ValueSchema

_SIMPLE: Final = {
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "string": pa.string(),
}
_CONNECT: Final = {"int8": pa.int32(), "int16": pa.int32(), "int32": pa.int32(), "float32": pa.float32()}
"""Types that Kafka Connect notes beside ``integer`` and ``number``."""


def json_schema_values(schema: Any, references: Mapping[str, Any], wire: WireFormat) -> ValueSchema:
    """``references`` has the other schemas, by the name that ``$ref`` uses."""
    kind = json_type(schema, schema, references)
    if not pa.types.is_struct(kind):
        raise ValueFormatError("the JSON Schema of a value has to be an object with properties")
    return ValueSchema(kind, partial(_make_decode, kind, wire))


def _make_decode(kind: pa.DataType, wire: WireFormat) -> Decode:
    decode = make_decode(kind)
    return lambda value: decode(wire.body(value))


def json_type(schema: Any, root: Any, references: Mapping[str, Any], within: tuple[str, ...] = ()) -> pa.DataType:
    """The Arrow type of a JSON Schema.

    >>> json_type({"type": ["null", "string"]}, {}, {})
    DataType(string)
    """
    if not isinstance(schema, dict):
        raise ValueFormatError(f"this JSON Schema cannot be a column: {json.dumps(schema)[:100]}")
    if "$ref" in schema:
        reference = schema["$ref"]
        if reference in within:
            raise ValueFormatError(f"{reference} contains itself, which no table can")
        found, found_root = _referred(reference, root, references)
        return json_type(found, found_root, references, (*within, reference))
    for choice in ("oneOf", "anyOf"):
        if choice in schema:
            options = [one for one in schema[choice] if one != {"type": "null"}]
            if len(options) != 1:
                raise ValueFormatError(f"a choice of several types cannot be a column: {json.dumps(schema)[:100]}")
            return json_type(options[0], root, references, within)
    kinds = [one for one in _listed(schema.get("type")) if one != "null"]
    if len(kinds) != 1:
        raise ValueFormatError(f"a JSON Schema without one type cannot be a column: {json.dumps(schema)[:100]}")
    kind = kinds[0]
    if kind == "object" and "properties" in schema:
        return pa.struct(
            [(name, json_type(one, root, references, within)) for name, one in schema["properties"].items()]
        )
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return pa.map_(pa.string(), json_type(schema["additionalProperties"], root, references, within))
    if kind == "array" and isinstance(schema.get("items"), dict):
        return pa.list_(json_type(schema["items"], root, references, within))
    if kind not in _SIMPLE:
        raise ValueFormatError(f"{kind} without a type of its content cannot be a column")
    return _CONNECT.get(schema.get("connect.type", ""), _SIMPLE[kind])


def _listed(kind: Any) -> list[Any]:
    return kind if isinstance(kind, list) else [kind]


def _referred(reference: str, root: Any, references: Mapping[str, Any]) -> tuple[Any, Any]:
    """What ``#/definitions/Line`` or ``line.json`` or ``line.json#/definitions/Line`` stands for, and its document."""
    document, _, pointer = reference.partition("#")
    if document:
        if document not in references:
            raise ValueFormatError(f"the schema refers to {document}, which the registry does not list")
        root = references[document]
    found = root
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or name not in found:
            raise ValueFormatError(f"the schema refers to {reference}, which is not there")
        found = found[name]
    return found, root
