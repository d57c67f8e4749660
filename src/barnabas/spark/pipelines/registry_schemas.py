"""Values whose schemas are in a schema registry, under the id in front of each value."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from barnabas.spark.pipelines.schema_registry import (
    APICURIO,
    AVRO,
    JSON,
    PROTOBUF,
    RegistryClient,
    RegistryConfig,
    RegistryError,
    RegistrySchema,
    SchemaNotFoundError,
)
from barnabas.spark.pipelines.value_schemas import Token, ValueFormatError, ValueSchema

if TYPE_CHECKING:
    from pyspark.sql import Column

    from barnabas.spark.pipelines.avro_values import AvroSchema

KINDS: Final = {"avro": AVRO, "json": JSON, "protobuf": PROTOBUF}
_NAMES: Final = {"avro": "Avro", "json": "JSON", "protobuf": "Protobuf"}
LATEST: Final = "latest"
FIRST: Final = "first"


@dataclass(frozen=True, slots=True)
class Reader:
    """The schema that all values are read with, whatever they were written with."""

    schema: str
    """``latest`` or ``first`` version of the subject, or the id of a schema."""
    subject: str | None = None

    def __post_init__(self) -> None:
        if self.schema in {LATEST, FIRST}:
            if not self.subject:
                raise ValueFormatError(f"the {self.schema} schema of which subject?")
        elif not self.schema.isdecimal():
            raise ValueFormatError(f"a reader schema is {LATEST}, {FIRST} or the id of a schema: {self.schema}")

    def schema_id(self, client: RegistryClient) -> int:
        """``latest`` is asked for each time."""
        if self.schema.isdecimal():
            return int(self.schema)
        return client.version(self.subject or "", "1" if self.schema == FIRST else LATEST)


class RegistrySchemas:
    """The schemas of a registry. Only the driver asks it."""

    many = True

    def __init__(
        self, values: str, config: RegistryConfig, *, reader: Reader | None = None, message: str | None = None
    ) -> None:
        """``values``: avro, json or protobuf. ``message``: of a Protobuf file, if it is not the first."""
        if values == "protobuf" and config.api == APICURIO:
            raise ValueFormatError(
                "Apicurio's own API has Protobuf schemas as text only: use Confluent's API, or a file of descriptors"
            )
        if reader is not None and values != "avro":
            raise ValueFormatError("a reader schema is for avro: other formats are read with the schema of the value")
        self.name = _NAMES[values]
        self.config = config
        self._values = values
        self._reader = reader
        self._message = message
        self._client: RegistryClient | None = None
        self._built: dict[tuple[int, int | None], ValueSchema] = {}
        self._readers: dict[int, AvroSchema] = {}

    def for_keys(self) -> RegistrySchemas:
        """The same registry for the keys of records, which have schemas of their own."""
        return RegistrySchemas(self._values, self.config)

    def token(self, value: Column) -> Column:
        return self.config.wire.id_column(value)

    def find(self, token: Token) -> ValueSchema:
        if self._client is None:
            self._client = RegistryClient(self.config)
        schema_id = int(token)
        reader = None if self._reader is None else self._reader_id(self._client, self._reader)
        try:
            if (schema_id, reader) not in self._built:
                self._built[schema_id, reader] = self._build(schema_id, reader)
            return self._built[schema_id, reader]
        except SchemaNotFoundError as error:
            raise ValueFormatError(str(error)) from None
        except ValueFormatError as error:
            raise ValueFormatError(f"schema {schema_id}: {error}") from None

    def _reader_id(self, client: RegistryClient, reader: Reader) -> int:
        """Finds the reader schema; `RegistryError` if it cannot be used, which is not the fault of the records."""
        from barnabas.spark.pipelines.avro_values import avro_schema  # an extra

        try:
            found = reader.schema_id(client)
            if found not in self._readers:
                schema = _avro(self._schema(found))
                avro_schema(schema, None)  # only to validate it
                self._readers[found] = schema
        except (SchemaNotFoundError, ValueFormatError) as error:
            raise RegistryError(f"the reader schema cannot be used: {error}") from None
        return found

    def _build(self, schema_id: int, reader: int | None) -> ValueSchema:
        schema = self._schema(schema_id)
        if self._values == "protobuf":
            return self._protobuf(schema)
        if self._values == "json":
            from barnabas.spark.pipelines.json_schema_values import json_schema_values

            parsed, references = _parsed(schema)
            return json_schema_values(parsed, dict(references), self.config.wire)
        from barnabas.spark.pipelines.avro_values import avro_schema  # an extra

        read_with = None if reader is None else self._readers[reader]
        return avro_schema(_avro(schema), self.config.wire, read_with)

    def _protobuf(self, schema: RegistrySchema) -> ValueSchema:
        from barnabas.spark.pipelines.protobuf_values import descriptor_set, protobuf_schema

        files = [(name, one.text) for name, one in _in_order(schema)]
        return protobuf_schema(descriptor_set(files, schema.text), self._message, self.config.wire)

    def _schema(self, schema_id: int) -> RegistrySchema:
        assert self._client is not None
        schema = self._client.schema(schema_id, KINDS[self._values])
        if schema.kind != KINDS[self._values]:
            raise ValueFormatError(f"is {schema.kind}, and the values are to be {KINDS[self._values]}")
        return schema


def _in_order(schema: RegistrySchema) -> list[tuple[str, RegistrySchema]]:
    """All schemas that one refers to, each once and after those that it refers to itself."""
    found: dict[str, RegistrySchema] = {}
    for name, one in schema.references:
        for inner, other in _in_order(one):
            found.setdefault(inner, other)
        found.setdefault(name, one)
    return list(found.items())


def _parsed(schema: RegistrySchema) -> tuple[Any, list[tuple[str, Any]]]:
    """A schema in JSON, and all schemas that it refers to, by name."""
    try:
        return json.loads(schema.text), [(name, json.loads(one.text)) for name, one in _in_order(schema)]
    except ValueError as error:
        raise ValueFormatError(f"not JSON: {error}") from None


def _avro(schema: RegistrySchema) -> AvroSchema:
    from barnabas.spark.pipelines.avro_values import AvroSchema  # an extra

    parsed, references = _parsed(schema)
    return AvroSchema(parsed, tuple(one for _, one in references))
