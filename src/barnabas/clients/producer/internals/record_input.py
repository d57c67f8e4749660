"""Converts an application's record into bytes and headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from barnabas.clients.producer.errors import SerializationError
from barnabas.clients.producer.serialization import Serializer

Headers: TypeAlias = Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None]


def as_headers(headers: Headers | None) -> tuple[tuple[str, bytes | None], ...]:
    """Returns immutable headers."""
    if not headers:
        return ()
    if isinstance(headers, Mapping):
        return tuple(headers.items())
    return tuple((key, value) for key, value in headers)


def serialize(
    serializer: Serializer | None, topic: str, headers: Sequence[tuple[str, bytes | None]], data: Any, what: str
) -> bytes | None:
    """Returns the bytes of a key or a value; raises `SerializationError` if it cannot be serialized."""
    if serializer is None:
        if data is None or type(data) is bytes:
            return data
        if isinstance(data, bytes | bytearray | memoryview):
            return bytes(data)
        raise SerializationError(
            f"Can't convert {what} of class {type(data).__name__} to bytes: "
            f"without a {what}_serializer it must be bytes"
        )
    try:
        made = serializer.serialize(topic, headers, data)
    except (TypeError, AttributeError, ValueError) as error:
        raise SerializationError(
            f"Can't convert {what} of class {type(data).__name__} with {type(serializer).__name__}: {error}"
        ) from error
    if made is not None and type(made) is not bytes:
        raise SerializationError(f"{type(serializer).__name__} made {type(made).__name__} of a {what}, not bytes")
    return made
