"""Messages as JSON, in the form that Kafka's own tools print.

``kafka-dump-log``, the broker's request log and the ``--json`` of the command line all show messages this way: fields
under Kafka's camel-case names, bytes as base64, UUIDs as their 22 characters, tagged fields only when set. The JSON
depends on the version, as the bytes do.
"""

from __future__ import annotations

import base64
from typing import Any, TypeVar

from barnabas.common.errors import ProtocolError, UnsupportedVersionError
from barnabas.common.identifiers import Uuid, uuid_from_string, uuid_to_string
from barnabas.protocol.codec.decoding import version_lacks
from barnabas.protocol.fields import Field
from barnabas.protocol.message import Message, Struct

M = TypeVar("M", bound=Message)


def camel_case(name: str) -> str:
    """Returns Kafka's name of a field: ``topic_id`` is ``topicId``."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def to_json(message: Message, version: int) -> dict[str, Any]:
    """Returns a JSON-ready dictionary. Unknown tagged fields have no name and are left out."""
    if version not in message.versions:
        raise UnsupportedVersionError(f"{type(message).__name__} has no version {version}; it has {message.versions}")
    return _struct_to_json(message, version)


def from_json(cls: type[M], data: dict[str, Any], version: int) -> M:
    """The inverse of :func:`to_json`."""
    return _struct_from_json(cls, data, version, cls.__name__)  # type: ignore[no-any-return]


def _struct_to_json(value: Struct, version: int) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for field in type(value).fields:
        held = getattr(value, field.name)
        if version_lacks(field, version):
            continue
        if field.is_tagged(version) and (held == field.make_default()):
            continue
        shown[camel_case(field.name)] = _value_to_json(field.kind, field.element, held, version)
    return shown


def _value_to_json(kind: str, element: Any, value: Any, version: int) -> Any:
    if value is None:
        return None
    if kind == "struct":
        return _struct_to_json(value, version)
    if kind == "array":
        inner = element if isinstance(element, str) else "struct"
        return [_value_to_json(inner, element, item, version) for item in value]
    if kind in {"bytes", "records"}:
        return base64.b64encode(value).decode("ascii")
    if kind == "uuid":
        return uuid_to_string(value)
    return value


def _struct_from_json(cls: type[Struct], data: Any, version: int, path: str) -> Any:
    if not isinstance(data, dict):
        raise ProtocolError(f"{path}: expected an object, got {type(data).__name__}")
    known = {camel_case(field.name): field for field in cls.fields if not version_lacks(field, version)}
    values: dict[str, Any] = {}
    for name, held in data.items():
        field = known.pop(name, None)
        if field is None:
            raise ProtocolError(f"{path}: no field {name!r} in version {version}")
        values[field.name] = _field_from_json(field, held, version, f"{path}.{name}")
    missing = [name for name, field in known.items() if not field.is_tagged(version)]
    if missing:
        raise ProtocolError(f"{path}: {', '.join(missing)} missing, required in version {version}")
    return cls(**values)


def _field_from_json(field: Field, data: Any, version: int, path: str) -> Any:
    if data is None:
        if version not in field.nullable:
            raise ProtocolError(f"{path}: must not be null in version {version}")
        return None
    return _value_from_json(field.kind, field.element, data, version, path)


def _value_from_json(kind: str, element: Any, data: Any, version: int, path: str) -> Any:
    if kind == "struct":
        return _struct_from_json(element, data, version, path)
    if kind == "array":
        if not isinstance(data, list):
            raise ProtocolError(f"{path}: expected an array, got {type(data).__name__}")
        inner = element if isinstance(element, str) else "struct"
        return [_value_from_json(inner, element, item, version, f"{path}[{index}]") for index, item in enumerate(data)]
    try:
        return _scalar_from_json(kind, data)
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"{path}: {error}") from None


def _scalar_from_json(kind: str, data: Any) -> Any:
    if kind in {"bytes", "records", "uuid", "string"}:
        if not isinstance(data, str):
            raise TypeError(f"expected a string, got {type(data).__name__}")
        if kind == "string":
            return data
        return base64.b64decode(data, validate=True) if kind != "uuid" else Uuid(uuid_from_string(data))
    if kind == "bool":
        if not isinstance(data, bool):
            raise TypeError(f"expected true or false, got {data!r}")
        return data
    if kind == "float64":
        if isinstance(data, bool) or not isinstance(data, int | float):
            raise TypeError(f"expected a number, got {data!r}")
        return float(data)
    if isinstance(data, bool) or not isinstance(data, int):
        raise TypeError(f"expected a whole number, got {data!r}")
    return data
