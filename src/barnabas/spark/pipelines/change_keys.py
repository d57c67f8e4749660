"""The keys of records as key columns: a record with fields of these names, or one value for one column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from barnabas.spark.pipelines.value_schemas import (
    Decode,
    OneSchema,
    Token,
    ValueFormatError,
    ValueSchema,
    ValueSchemas,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

TEXT: Final = "text"
JSON: Final = "json"


@dataclass(frozen=True, slots=True)
class KeyFormat:
    """How the keys of records are read."""

    name: str = JSON
    """``text`` or digits, for one column; ``json`` without a schema; anything else has `schemas`."""
    schemas: ValueSchemas | None = None

    def for_columns(self, kind: pa.DataType) -> ValueSchemas:
        """The schemas of keys that become key columns, which are the fields of a struct."""
        if self.schemas is not None:
            return _KeySchemas(self.schemas, kind)
        make = {TEXT: _make_text_decode, JSON: _make_json_decode}[self.name]
        return OneSchema(lambda: ValueSchema(kind, partial(make, kind)), f"a key in {self.name}")


class _KeySchemas:
    """Schemas of keys. A key that is no record becomes the one key column."""

    def __init__(self, schemas: ValueSchemas, kind: pa.DataType) -> None:
        self._schemas = schemas
        self._columns = [one.name for one in kind]
        self.name = f"a key in {schemas.name}"
        self.many = schemas.many

    def token(self, value: Column) -> Column:
        return self._schemas.token(value)

    def find(self, token: Token) -> ValueSchema:
        import pyarrow as pa  # an extra

        schema = self._schemas.find(token)
        if pa.types.is_struct(schema.kind):
            return schema
        if len(self._columns) > 1:
            raise ValueFormatError(f"a key is {schema.kind}, and there are several key columns")
        return ValueSchema(schema.kind, partial(_make_decode, schema.make_decode, self._columns[0]))


def _make_decode(make: Callable[[], Decode], column: str) -> Decode:
    decode = make()
    return lambda value: {column: decode(value)}


def _make_json_decode(kind: pa.DataType) -> Decode:
    from barnabas.spark.pipelines.json_values import converter, parser

    convert, parse = converter(kind), parser(kind)

    def decode(value: bytes) -> Any:
        found = parse(value)
        return convert(found if isinstance(found, dict) or kind.num_fields > 1 else {kind.field(0).name: found})

    return decode


def _make_text_decode(kind: pa.DataType) -> Decode:
    import pyarrow as pa  # an extra

    if kind.num_fields > 1:
        raise ValueFormatError("a key that is text is for one key column")
    name, is_integer = kind.field(0).name, pa.types.is_integer(kind.field(0).type)
    return lambda value: {name: int(value) if is_integer else value.decode()}
