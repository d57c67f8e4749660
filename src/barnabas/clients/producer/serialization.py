"""Serializers for keys and values."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from barnabas.clients.producer.errors import SerializationError

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


class Serializer(Protocol):
    """Converts keys or values to bytes. None means "no key" or a tombstone, and usually stays None."""

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None: ...

    def configure(self, config: Mapping[str, Any], is_key: bool) -> None:
        """Called once with all settings of the producer, for a serializer that was given as a class."""

    def close(self) -> None: ...


class _Plain:
    """Common base of serializers."""

    def configure(self, config: Mapping[str, Any], is_key: bool) -> None: ...

    def close(self) -> None: ...


class ByteArraySerializer(_Plain):
    """Passes bytes through; copies any other buffer."""

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:  # noqa: ARG002 - of no use here
        if data is None or type(data) is bytes:
            return data
        if isinstance(data, bytes | bytearray | memoryview):
            return bytes(data)
        raise SerializationError(
            f"Can't convert a value of class {type(data).__name__} to bytes: set key_serializer or value_serializer, "
            "such as StringSerializer or JsonSerializer"
        )


class StringSerializer(_Plain):
    """Text, by default in UTF-8."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def configure(self, config: Mapping[str, Any], is_key: bool) -> None:
        specific = config.get("key.serializer.encoding" if is_key else "value.serializer.encoding")
        encoding = specific or config.get("serializer.encoding")
        if encoding is not None:
            self._encoding = str(encoding)

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:  # noqa: ARG002 - of no use here
        if data is None:
            return None
        if not isinstance(data, str):
            raise SerializationError(f"Can't convert a value of class {type(data).__name__}: it must be a str")
        try:
            return data.encode(self._encoding)
        except (UnicodeError, LookupError) as error:
            raise SerializationError(f"Can't encode a text as {self._encoding}: {error}") from error


class JsonSerializer(_Plain):
    """JSON without blanks, in UTF-8."""

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:  # noqa: ARG002 - of no use here
        if data is None:
            return None
        try:
            return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()
        except (TypeError, ValueError) as error:
            raise SerializationError(f"Can't write a value as JSON: {error}") from error


class _StructSerializer(_Plain):
    _format: struct.Struct
    _what: str

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:  # noqa: ARG002 - of no use here
        if data is None:
            return None
        try:
            return self._format.pack(data)
        except struct.error as error:
            raise SerializationError(f"{data!r} is not {self._what}: {error}") from error


class ShortSerializer(_StructSerializer):
    """Whole numbers of 16 bits."""

    _format = struct.Struct(">h")
    _what = "a whole number of 16 bits"


class IntegerSerializer(_StructSerializer):
    """Whole numbers of 32 bits."""

    _format = struct.Struct(">i")
    _what = "a whole number of 32 bits"


class LongSerializer(_StructSerializer):
    """Whole numbers of 64 bits."""

    _format = struct.Struct(">q")
    _what = "a whole number of 64 bits"


class FloatSerializer(_StructSerializer):
    """Floating-point numbers of 32 bits."""

    _format = struct.Struct(">f")
    _what = "a number of 32 bits"


class DoubleSerializer(_StructSerializer):
    """Floating-point numbers of 64 bits."""

    _format = struct.Struct(">d")
    _what = "a number of 64 bits"


class BooleanSerializer(_Plain):
    """One byte: 1 or 0."""

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:  # noqa: ARG002 - of no use here
        if data is None:
            return None
        if not isinstance(data, bool):
            raise SerializationError(f"{data!r} is not a bool")
        return b"\x01" if data else b"\x00"


class UUIDSerializer(_Plain):
    """A UUID as its 36 characters."""

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:  # noqa: ARG002 - of no use here
        if data is None:
            return None
        if not isinstance(data, uuid.UUID):
            raise SerializationError(f"{data!r} is not a UUID")
        return str(data).encode()


class VoidSerializer(_Plain):
    """Accepts only None."""

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:  # noqa: ARG002 - of no use here
        if data is not None:
            raise SerializationError("Data should be null for a VoidSerializer.")
        return None


class CallableSerializer(_Plain):
    """Any function from a value to bytes, such as ``str.encode``. It is not called for None."""

    def __init__(self, function: Callable[[Any], bytes | None]) -> None:
        self._function = function

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:  # noqa: ARG002 - of no use here
        return None if data is None else self._function(data)


def as_serializer(given: Any, config: Mapping[str, Any], *, is_key: bool) -> Serializer | None:
    """Makes a serializer from an application's argument: None, a class, an instance, or a function.

    None means that keys or values are already bytes, and nothing is called for them.
    """
    if given is None or given is ByteArraySerializer:
        return None
    if isinstance(given, type) and hasattr(given, "serialize"):
        made: Serializer = given()
        if hasattr(made, "configure"):
            made.configure(config, is_key)
        return made
    if hasattr(given, "serialize"):
        serializer: Serializer = given
        return serializer
    if callable(given):
        return CallableSerializer(given)
    raise TypeError(f"{given!r} is no serializer: it must be a class, an object with serialize(), or a function")
