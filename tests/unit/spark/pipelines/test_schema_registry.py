"""The client of schema registries, and values as the serializers of registries write them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from barnabas.common.clock import MockClock
from barnabas.common.errors import InvalidConfigurationError
from barnabas.spark.pipelines.registry_schemas import Reader, RegistrySchemas
from barnabas.spark.pipelines.schema_registry import (
    AVRO,
    RegistryClient,
    RegistryConfig,
    RegistryError,
    SchemaNotFoundError,
)
from barnabas.spark.pipelines.schema_wire import WireFormat, message_indexes
from barnabas.spark.pipelines.value_schemas import ValueFormatError
from schema_registry_fixtures import APICURIO_V2, APICURIO_V3, ScriptedRegistry, running_registry
from tls_fixtures import PKI, context

pytestmark = pytest.mark.mechanism("S10")

# What the serializers of confluent-kafka 2.16.1 wrote, with this file's registry.
AVRO_SCHEMA = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}
AVRO_VALUE = bytes.fromhex("00000000010e020278027d")
JSON_SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/Line"}},
    },
    "definitions": {"Line": {"type": "object", "properties": {"sku": {"type": "string"}}}},
}
JSON_VALUE = b'\x00\x00\x00\x00\x01{"id":7,"note":null,"lines":[{"sku":"a"}]}'
DESCRIPTOR = (
    "CgtvcmRlci5wcm90bxIEc2hvcBofZ29vZ2xlL3Byb3RvYnVmL3RpbWVzdGFtcC5wcm90byITCgRMaW5lEgsKA3NrdRgBIAEoCSJOCgVPcmRlchIK"
    "CgJpZBgBIAEoAxImCgJhdBgCIAEoCzIaLmdvb2dsZS5wcm90b2J1Zi5UaW1lc3RhbXAaEQoEUGFydBIJCgFuGAEgASgFYgZwcm90bzM="
)
PROTOBUF_VALUES = {
    "shop.Line": (bytes.fromhex("0000000001000a0161"), {"sku": "a"}),
    "shop.Order": (bytes.fromhex("00000000010202080712020805"), {"id": 7, "at": 5_000_000}),
    "shop.Order.Part": (bytes.fromhex("00000000010402000803"), {"n": 3}),
}


class SleepingClock(MockClock):
    """Time passes while somebody sleeps."""

    def sleep(self, milliseconds: float) -> None:
        self.advance(milliseconds)


@pytest.fixture
def registry() -> Iterator[ScriptedRegistry]:
    with running_registry() as running:
        yield running


def client(registry: ScriptedRegistry, **settings: str) -> RegistryClient:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return RegistryClient(RegistryConfig(registry.url, named), SleepingClock())


def decoded(schemas: RegistrySchemas, value: bytes) -> Any:
    """As a worker decodes it."""
    schema = schemas.find(schemas.config.wire.schema_id(value))
    return pa.scalar(schema.make_decode()(value), schema.kind).as_py()


# ---------------------------------------------------------------------------------------------------- the header


def test_the_header_of_a_value() -> None:
    assert WireFormat().schema_id(b"\0\0\0\1\2rest") == 258
    assert WireFormat().body(b"\0\0\0\1\2rest") == b"rest"
    assert WireFormat(8).schema_id(b"\0" + (1 << 40).to_bytes(8) + b"rest") == 1 << 40
    assert WireFormat(8).body(b"\0" * 9 + b"rest") == b"rest"
    for value in (b"", b"\0\0\0\1", b"\1\0\0\0\1rest"):
        with pytest.raises(ValueError, match="no schema registry's header"):
            WireFormat().schema_id(value)
    with pytest.raises(ValueError, match="4 or 8 bytes, not 5"):
        WireFormat(5)


def test_the_indexes_of_a_message() -> None:
    assert message_indexes(b"\0body") == ([0], b"body")
    assert message_indexes(b"\2\2body") == ([1], b"body")
    assert message_indexes(b"\4\2\x06body") == ([1, 3], b"body")
    for value in (b"", b"\x80" * 20, b"\2", b"\xff\xff\xff\x0f"):
        with pytest.raises(ValueError, match=r"varint has no end|no number of message indexes"):
            message_indexes(value)


# ---------------------------------------------------------------------------------------------------- the client


def test_a_schema_is_asked_for_once(registry: ScriptedRegistry) -> None:
    registry.register("orders-value", AVRO_SCHEMA)
    asking = client(registry)
    first = asking.schema(1, AVRO)
    assert (first.kind, json.loads(first.text)) == (AVRO, AVRO_SCHEMA)
    assert asking.schema(1, AVRO) is first
    assert registry.paths == ["/schemas/ids/1"]


def test_an_id_that_the_registry_does_not_know(registry: ScriptedRegistry) -> None:
    with pytest.raises(SchemaNotFoundError, match="no schema 7"):
        client(registry).schema(7, AVRO)
    with pytest.raises(SchemaNotFoundError, match="no subject a/b"):
        client(registry).version("a/b", "latest")
    assert registry.paths == ["/schemas/ids/7", "/subjects/a%2Fb/versions/latest"]


@pytest.mark.parametrize("body", [b"<html>not here</html>", b'{"error_code": 404, "name": "NotFoundException"}', b"[]"])
def test_a_404_that_is_not_the_registrys_is_no_bad_record(registry: ScriptedRegistry, body: bytes) -> None:
    registry.script = [(404, body)]
    with pytest.raises(RegistryError, match="status 404"):
        client(registry).schema(7, AVRO)


def test_trouble_that_passes_is_waited_out_and_other_trouble_is_not(registry: ScriptedRegistry) -> None:
    registry.register("orders-value", AVRO_SCHEMA)
    registry.script = [(503, b""), (500, b"{}"), (429, b"")]
    assert client(registry).schema(1, AVRO).kind == AVRO
    assert len(registry.paths) == 4
    registry.script = [(503, b"")] * 10
    with pytest.raises(RegistryError, match="status 503"):
        client(registry, retries="2").schema(1, AVRO)
    assert len(registry.paths) == 4 + 3
    registry.authorization = "Basic other"
    registry.script = []
    with pytest.raises(RegistryError, match="status 401"):
        client(registry).schema(1, AVRO)
    assert len(registry.paths) == 4 + 3 + 1


def test_a_registry_that_is_not_there() -> None:
    config = RegistryConfig("http://127.0.0.1:1", {"retries": "1"})
    with pytest.raises(RegistryError, match="cannot be reached"):
        RegistryClient(config, SleepingClock()).schema(1, AVRO)


def test_credentials_come_from_config_providers(registry: ScriptedRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.register("orders-value", AVRO_SCHEMA)
    monkeypatch.setenv("REGISTRY_LOGIN", "me:secret")
    registry.authorization = f"Basic {base64.b64encode(b'me:secret').decode()}"
    config = RegistryConfig(registry.url, {"basic.auth.user.info": "${env:REGISTRY_LOGIN}"})
    assert RegistryClient(config).schema(1, AVRO).kind == AVRO
    assert "REGISTRY_LOGIN" not in repr(config)
    registry.authorization = "Bearer t"
    assert client(registry, bearer_auth_token="t").schema(1, AVRO).kind == AVRO


def test_tls_takes_the_settings_of_kafkas_clients(tmp_path: Path) -> None:
    trusted, keys = tmp_path / "ca.pem", tmp_path / "client.pem"
    keys.write_text(PKI.client.pem)
    keys.chmod(0o600)
    settings = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trusted),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
        "retries": "0",
    }
    server = context(tmp_path, server_side=True, identity=PKI.server_ec, trusted=PKI.authority, required=True)
    with running_registry(server) as registry:
        registry.register("orders-value", AVRO_SCHEMA)
        trusted.write_text(PKI.authority.pem)
        assert RegistryClient(RegistryConfig(registry.url, settings)).schema(1, AVRO).kind == AVRO
        trusted.write_text(PKI.other_authority.pem)
        with pytest.raises(RegistryError, match=r"(?i)certificate"):
            RegistryClient(RegistryConfig(registry.url, settings)).schema(1, AVRO)


@pytest.mark.parametrize(
    ("url", "settings", "message"),
    [
        ("registry", {}, "must be a URL"),
        ("http://me:secret@registry", {}, "must not contain a user"),
        ("http://registry", {"basic.auth.user": "me"}, "no setting basic.auth.user"),
        ("http://registry", {"api": "other"}, "api must be confluent or apicurio: other"),
        ("http://registry", {"id.kind": "contentId"}, "id.kind is of the API apicurio"),
        ("http://registry", {"api": "apicurio", "id.kind": "x"}, "id.kind must be contentId or globalId: x"),
        ("http://registry", {"id.bytes": "5"}, "4 or 8 bytes"),
        ("http://registry", {"id.bytes": "many"}, "id.bytes must be a number: many"),
    ],
)
def test_settings_that_make_no_sense(url: str, settings: dict[str, str], message: str) -> None:
    with pytest.raises((ValueError, InvalidConfigurationError), match=message):
        RegistryConfig(url, settings)


# ---------------------------------------------------------------------------------------------------- values


def test_avro(registry: ScriptedRegistry) -> None:
    registry.register("orders-value", AVRO_SCHEMA)
    schemas = RegistrySchemas("avro", RegistryConfig(registry.url))
    assert decoded(schemas, AVRO_VALUE) == {"id": 7, "note": "x", "total": Decimal("1.25")}
    # Workers get the schema, and nothing of the registry.
    assert registry.url.encode() not in cloudpickle.dumps(schemas.find(1).make_decode)  # type: ignore[no-untyped-call]


def test_avro_with_references(registry: ScriptedRegistry) -> None:
    line = {"type": "record", "name": "Line", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]}
    page = {"type": "record", "name": "Page", "namespace": "shop", "fields": [{"name": "top", "type": "shop.Line"}]}
    book = {"type": "record", "name": "Book", "fields": [{"name": "page", "type": ["null", "shop.Page"]}]}
    registry.register("line", line)
    registry.register("page", page, references=[{"name": "shop.Line", "subject": "line", "version": 1}])
    registry.register("book", book, references=[{"name": "shop.Page", "subject": "page", "version": 1}])
    for url, settings in (
        (registry.url, {}),
        (registry.url + APICURIO_V2, {"api": "apicurio", "id.kind": "globalId"}),
        (registry.url + APICURIO_V3, {"api": "apicurio"}),
    ):
        schemas = RegistrySchemas("avro", RegistryConfig(url, settings))
        assert decoded(schemas, b"\0\0\0\0\3\2\x0e") == {"page": {"top": {"id": 7}}}


def test_apicurios_eight_byte_ids(registry: ScriptedRegistry) -> None:
    registry.register("orders-value", AVRO_SCHEMA)
    settings = {"api": "apicurio", "id.kind": "globalId", "id.bytes": "8"}
    schemas = RegistrySchemas("avro", RegistryConfig(registry.url + APICURIO_V2, settings))
    assert decoded(schemas, b"\0\0\0\0" + AVRO_VALUE[:5] + AVRO_VALUE[5:])["id"] == 7
    assert registry.paths[0] == f"{APICURIO_V2}/ids/globalIds/1"
    with pytest.raises(ValueFormatError, match="the schema registry has no globalId 9"):
        schemas.find(9)


@pytest.mark.parametrize(
    ("reader", "expected"), [("latest", {"id", "more"}), ("first", {"id", "note", "total"}), ("2", {"id", "more"})]
)
def test_a_reader_schema(registry: ScriptedRegistry, reader: str, expected: set[str]) -> None:
    registry.register("orders-value", AVRO_SCHEMA)
    fields = [{"name": "id", "type": "long"}, {"name": "more", "type": "int", "default": 5}]
    registry.register("orders-value", {**AVRO_SCHEMA, "fields": fields})
    schemas = RegistrySchemas("avro", RegistryConfig(registry.url), reader=Reader(reader, "orders-value"))
    value = decoded(schemas, AVRO_VALUE)
    assert set(value) == expected
    assert value.get("more", 5) == 5
    with pytest.raises(ValueFormatError, match="of which subject"):
        Reader("latest")
    with pytest.raises(ValueFormatError, match="a reader schema is latest, first or the id"):
        Reader("newest", "s")


@pytest.mark.parametrize(
    ("reader", "reason"),
    [
        (Reader("latest", "order-value"), "the schema registry has no subject order-value"),
        (Reader("9"), "the schema registry has no schema 9"),
        (Reader("2"), "is JSON, and the values are to be AVRO"),
        (Reader("3"), "a union of several types cannot be a column"),
    ],
)
def test_a_reader_schema_that_cannot_be_used_is_not_the_fault_of_the_records(
    registry: ScriptedRegistry, reader: Reader, reason: str
) -> None:
    """They would all be dead letters because of a typing error."""
    registry.register("orders-value", AVRO_SCHEMA)
    registry.register("json", JSON_SCHEMA, "JSON")
    union = [{"name": "id", "type": ["int", "string"]}]
    registry.register("union", {**AVRO_SCHEMA, "fields": union})
    schemas = RegistrySchemas("avro", RegistryConfig(registry.url), reader=reader)
    for _ in range(2):
        with pytest.raises(RegistryError, match=f"the reader schema cannot be used: .*{reason}"):
            schemas.find(1)


def test_names_for_types_of_databases(registry: ScriptedRegistry) -> None:
    """As Kafka Connect's Avro converter writes the schemas of Debezium: the row is defined once and used by name."""
    at = {"type": "long", "connect.name": "io.debezium.time.Timestamp", "connect.version": 1}
    row = {"type": "record", "name": "Value", "fields": [{"name": "at", "type": ["null", at], "default": None}]}
    fields = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Value"]}]
    registry.register("orders-value", {"type": "record", "name": "Envelope", "namespace": "shop", "fields": fields})
    schemas = RegistrySchemas("avro", RegistryConfig(registry.url))
    found = decoded(schemas, b"\0\0\0\0\1\0\2\2\xd0\x0f")
    assert found["before"] is None
    assert found["after"]["at"].isoformat() == "1970-01-01T00:00:01+00:00"


def test_json(registry: ScriptedRegistry) -> None:
    registry.register("orders-value", JSON_SCHEMA, "JSON")
    schemas = RegistrySchemas("json", RegistryConfig(registry.url))
    assert decoded(schemas, JSON_VALUE) == {"id": 7, "note": None, "lines": [{"sku": "a"}]}
    with pytest.raises(TypeError, match="is not an integer"):
        decoded(schemas, JSON_VALUE[:5] + b'{"id": 7.5}')
    with pytest.raises(ValueFormatError, match="schema 1: is JSON, and the values are to be AVRO"):
        RegistrySchemas("avro", RegistryConfig(registry.url)).find(1)


@pytest.mark.parametrize("message", PROTOBUF_VALUES)
def test_protobuf(registry: ScriptedRegistry, message: str) -> None:
    registry.register("orders-value", "syntax = ...", "PROTOBUF", descriptor=DESCRIPTOR)
    schemas = RegistrySchemas("protobuf", RegistryConfig(registry.url), message=message)
    value, expected = PROTOBUF_VALUES[message]
    found = schemas.find(1).make_decode()
    assert found(value) == expected
    for other, (bytes_, _) in PROTOBUF_VALUES.items():
        if other != message:
            with pytest.raises(ValueError, match="of its file, and"):
                found(bytes_)


def test_protobuf_that_the_registry_has_as_text(registry: ScriptedRegistry) -> None:
    registry.register("orders-value", 'syntax = "proto3";', "PROTOBUF")
    with pytest.raises(ValueFormatError, match="does not have it as a file descriptor"):
        RegistrySchemas("protobuf", RegistryConfig(registry.url)).find(1)
    with pytest.raises(ValueFormatError, match="as text only"):
        RegistrySchemas("protobuf", RegistryConfig(registry.url, {"api": "apicurio"}))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "object"}, "object without a type of its content"),
        ({"type": "object", "properties": {"a": {"type": ["string", "integer"]}}}, "without one type"),
        ({"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {}]}}}, "a choice of several types"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}}, "contains itself"),
        ({"type": "object", "properties": {"a": {"$ref": "b.json"}}}, "refers to b.json"),
        ({"type": "object", "properties": {"a": {"$ref": "#/x"}}}, "which is not there"),
        ({"type": "string"}, "has to be an object"),
    ],
)
def test_json_schemas_that_cannot_be_columns(registry: ScriptedRegistry, schema: Any, message: str) -> None:
    registry.register("orders-value", schema, "JSON")
    with pytest.raises(ValueFormatError, match=message):
        RegistrySchemas("json", RegistryConfig(registry.url)).find(1)
