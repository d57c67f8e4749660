"""Deserializers for keys and values."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from barnabas.clients.common.errors import SerializationError

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


class Deserializer(Protocol):
    """Converts bytes to keys or values. None means "no key" or a tombstone, and usually stays None."""

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any: ...

    def configure(self, config: Mapping[str, Any], is_key: bool) -> None:
        """Called once with all settings of the consumer, for a deserializer that was given as a class."""

    def close(self) -> None: ...


class _Plain:
    """Common base of deserializers."""

    def configure(self, config: Mapping[str, Any], is_key: bool) -> None: ...

    def close(self) -> None: ...


class ByteArrayDeserializer(_Plain):
    """Returns bytes unchanged, as if there were no deserializer."""

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> bytes | None:  # noqa: ARG002 - not needed here
        return data


class StringDeserializer(_Plain):
    """Text, by default in UTF-8."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def configure(self, config: Mapping[str, Any], is_key: bool) -> None:
        specific = config.get("key.deserializer.encoding" if is_key else "value.deserializer.encoding")
        encoding = specific or config.get("deserializer.encoding")
        if encoding is not None:
            self._encoding = str(encoding)

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> str | None:  # noqa: ARG002 - not needed here
        if data is None:
            return None
        try:
            return data.decode(self._encoding)
        except (UnicodeError, LookupError) as error:
            raise SerializationError(f"{len(data)} bytes are not a text in {self._encoding}: {error}") from error


class JsonDeserializer(_Plain):
    """JSON."""

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:  # noqa: ARG002 - not needed here
        if data is None:
            return None
        try:
            return json.loads(data)
        except ValueError as error:
            raise SerializationError(f"{len(data)} bytes are not JSON: {error}") from error


class _StructDeserializer(_Plain):
    _format: struct.Struct
    _what: str

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:  # noqa: ARG002 - not needed here
        if data is None:
            return None
        if len(data) != self._format.size:
            raise SerializationError(f"Size of data received by {self._what} is not {self._format.size}: {len(data)}")
        return self._format.unpack(data)[0]


class ShortDeserializer(_StructDeserializer):
    """Whole numbers of 16 bits."""

    _format = struct.Struct(">h")
    _what = "ShortDeserializer"


class IntegerDeserializer(_StructDeserializer):
    """Whole numbers of 32 bits."""

    _format = struct.Struct(">i")
    _what = "IntegerDeserializer"


class LongDeserializer(_StructDeserializer):
    """Whole numbers of 64 bits."""

    _format = struct.Struct(">q")
    _what = "LongDeserializer"


class FloatDeserializer(_StructDeserializer):
    """Floating-point numbers of 32 bits."""

    _format = struct.Struct(">f")
    _what = "FloatDeserializer"


class DoubleDeserializer(_StructDeserializer):
    """Floating-point numbers of 64 bits."""

    _format = struct.Struct(">d")
    _what = "DoubleDeserializer"


class BooleanDeserializer(_Plain):
    """One byte: 1 or 0."""

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> bool | None:  # noqa: ARG002 - not needed here
        if data is None:
            return None
        if data not in {b"\x00", b"\x01"}:
            raise SerializationError(f"{data!r} is neither true nor false")
        return data == b"\x01"


class UUIDDeserializer(_Plain):
    """A UUID from its 36 characters."""

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> uuid.UUID | None:  # noqa: ARG002 - not needed here
        if data is None:
            return None
        try:
            return uuid.UUID(data.decode())
        except ValueError as error:
            raise SerializationError(f"{data!r} is not a UUID") from error


class VoidDeserializer(_Plain):
    """Accepts only None."""

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> None:  # noqa: ARG002 - not needed here
        if data is not None:
            raise SerializationError("Data should be null for a VoidDeserializer.")


class CallableDeserializer(_Plain):
    """Any function from bytes to a value, such as ``bytes.decode``. It is not called for None."""

    def __init__(self, function: Callable[[bytes], Any]) -> None:
        self._function = function

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:  # noqa: ARG002 - not needed here
        return None if data is None else self._function(data)


def as_deserializer(given: Any, config: Mapping[str, Any], *, is_key: bool) -> Deserializer | None:
    """Makes a deserializer from an application's argument: None, a class, an instance, or a function.

    None means that keys or values stay bytes, and nothing is called for them.
    """
    if given is None or given is ByteArrayDeserializer:
        return None
    if isinstance(given, type) and hasattr(given, "deserialize"):
        made: Deserializer = given()
        if hasattr(made, "configure"):
            made.configure(config, is_key)
        return made
    if hasattr(given, "deserialize"):
        deserializer: Deserializer = given
        return deserializer
    if callable(given):
        return CallableDeserializer(given)
    raise TypeError(f"{given!r} is not a deserializer: it must be a class, an object with deserialize(), or a function")
