"""JSON as Arrow types: strict, so that a value of another type is never cut down to fit."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pyarrow as pa

from barnabas.spark.pipelines.value_schemas import Decode, ValueFormatError, ValueSchema

Convert = Callable[[Any], Any]
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def json_schema_of(kind: pa.DataType) -> ValueSchema:
    """For JSON whose fields have the names and types of a struct."""
    return ValueSchema(kind, partial(make_decode, kind))


def make_decode(kind: pa.DataType) -> Decode:
    convert, parse = converter(kind), parser(kind)
    return lambda value: convert(parse(value))


def parser(kind: pa.DataType) -> Callable[[bytes | str], Any]:
    """The function that parses JSON for a type. A float would change the digits of a decimal, so it makes none then."""
    return partial(json.loads, parse_float=Decimal) if _has_decimal(kind) else json.loads


def _has_decimal(kind: pa.DataType) -> bool:
    inner = [kind.field(number).type for number in range(kind.num_fields)]  # of structs, lists and maps
    return bool(pa.types.is_decimal(kind)) or any(map(_has_decimal, inner))


def converter(kind: pa.DataType) -> Convert:
    """The function that checks a value of a type and makes of it what Arrow takes; null stays null."""
    return _or_null(_converter(kind))


def _or_null(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _converter(kind: pa.DataType) -> Convert:
    kinds = pa.types
    if kinds.is_struct(kind):
        return _of_object({one.name: converter(one.type) for one in kind})
    if kinds.is_list(kind):
        item = converter(kind.value_type)
        return lambda value: [item(one) for one in expected(value, list, "an array")]
    if kinds.is_map(kind):
        item = converter(kind.item_type)
        return lambda value: [(key, item(one)) for key, one in expected(value, dict, "an object").items()]
    simple: tuple[tuple[Callable[[pa.DataType], bool], Convert], ...] = (
        (kinds.is_boolean, lambda value: expected(value, bool, "a boolean")),
        (kinds.is_integer, integer),
        (kinds.is_floating, number),
        (kinds.is_string, lambda value: expected(value, str, "a text")),
        (kinds.is_binary, lambda value: base64.b64decode(expected(value, str, "a text in Base64"), validate=True)),
        (kinds.is_decimal, decimal),
        (kinds.is_date, lambda value: dt.date.fromisoformat(expected(value, str, "a date"))),
        (kinds.is_timestamp, timestamp),
    )
    for is_kind, convert in simple:
        if is_kind(kind):
            return convert
    raise ValueFormatError(f"JSON has nothing that could be {kind}")


def _of_object(converters: dict[str, Convert]) -> Convert:
    def convert(value: Any) -> dict[str, Any]:
        fields = expected(value, dict, "an object")
        return {name: one(fields.get(name)) for name, one in converters.items()}

    return convert


def expected(value: Any, kind: type, name: str) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{str(value)[:100]!r} is not {name}")
    return value


def integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{str(value)[:100]!r} is not an integer")
    return value


def number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise TypeError(f"{str(value)[:100]!r} is not a number")
    return float(value)


def decimal(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise TypeError(f"{str(value)[:100]!r} is not a number")
    return Decimal(str(value))


def timestamp(value: Any) -> int:
    """Microseconds since 1970 of a time in ISO 8601; one without a zone is UTC."""
    moment = dt.datetime.fromisoformat(expected(value, str, "a time"))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)
