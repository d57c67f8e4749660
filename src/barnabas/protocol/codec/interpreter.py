"""The reference codec: reads and writes a message by walking its declaration, in the simplest way.

It has two jobs. When a codec fails, the same message is read or written again here to find out which field, at which
byte, is wrong. And in the tests it is the reference that the codecs must agree with.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from barnabas.common.errors import ProtocolError, UnsupportedVersionError
from barnabas.protocol.codec.decoding import minimum_size, version_lacks
from barnabas.protocol.codec.runtime import null_struct, uvarint, write_tags
from barnabas.protocol.fields import FIXED, WIDTH, Field
from barnabas.protocol.message import EncodeError, Message, Request, Struct, TooManyEntriesError
from barnabas.protocol.versions import NONE


def explain_decode_failure(
    cls: type[Message], version: int, buffer: Any, start: int, end: int, error: Exception
) -> Exception:
    """Returns the error to raise after the compiled decoder raised ``error``."""
    if isinstance(error, UnsupportedVersionError):
        return error
    try:
        interpret_decode(cls, version, buffer, start, end)
    except ProtocolError as explained:
        return explained
    return ProtocolError(f"{cls.__name__} v{version}: {type(error).__name__}: {error}")


def explain_encode_failure(message: Message, version: int, error: Exception) -> Exception:
    """Returns the error to raise after the compiled encoder raised ``error``."""
    try:
        interpret_encode(message, version)
    except ProtocolError as explained:
        return explained
    return EncodeError(f"{type(message).__name__} v{version}: {type(error).__name__}: {error}")


def interpret_decode(
    cls: type[Message],
    version: int,
    buffer: Any,
    start: int = 0,
    end: int | None = None,
    max_entries: int | None = None,
) -> tuple[Any, int]:
    reader = _Reader(memoryview(buffer), start, len(buffer) if end is None else end, cls, version)
    if max_entries is not None:
        reader.entries = reader.max_entries = max_entries
    message = reader.struct(cls)
    return message, reader.position


def interpret_encode(message: Message, version: int) -> bytes:
    writer = _Writer(type(message), version)
    writer.struct(message)
    return b"".join(writer.parts)


class _Walk:
    """Tracks the position in the message for error messages: ``topics[3].partitions[0].records``."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self.cls = cls
        self.version = version
        self.flexible = version in cls.flexible
        self.max_string = cls.max_string if issubclass(cls, Request) else sys.maxsize
        self.path: list[str] = []

    def place(self) -> str:
        return f"{self.cls.__name__} v{self.version}, {''.join(self.path).lstrip('.') or 'the message itself'}"

    def compact(self, declared: Field) -> bool:
        return self.flexible if declared.flexible is None else self.version in declared.flexible


class _Reader(_Walk):
    def __init__(self, view: memoryview, start: int, end: int, cls: type[Message], version: int) -> None:
        super().__init__(cls, version)
        self.view = view
        self.position = start
        self.end = end
        self.entries = self.max_entries = cls.max_entries if issubclass(cls, Request) else sys.maxsize

    def fail(self, what: str) -> NoReturn:
        raise ProtocolError(f"{self.place()}: {what} at byte {self.position} of {self.end}")

    def take(self, size: int, what: str) -> memoryview:
        left = self.end - self.position
        if size > left:
            self.fail(f"{what} needs {size} bytes, {left} are left,")
        taken = self.view[self.position : self.position + size]
        self.position += size
        return taken

    def number(self, kind: str) -> Any:
        return struct.unpack(f">{FIXED[kind]}", self.take(WIDTH[kind], f"a value of type {kind}"))[0]

    def uvarint(self) -> int:
        value = 0
        for shift in (0, 7, 14, 21, 28):
            byte: int = self.take(1, "a varint")[0]
            value |= (byte & 0x7F) << shift
            if byte < 128:
                if value > 0xFFFFFFFF:
                    break
                return value
        return self.fail("a varint has more than 32 bits")

    def length(self, compact: bool, wide: bool) -> int:
        """Reads a length or count; returns -1 for null."""
        if compact:
            return self.uvarint() - 1
        size: int = self.number("int32" if wide else "int16")
        if size < -1:
            self.fail(f"a length of {size}")
        return size

    def count_entries(self, count: int, what: str) -> None:
        self.entries -= max(count, 0)
        if self.entries < 0:
            raise TooManyEntriesError(
                f"{self.place()}: more than {self.max_entries} entries in one request, with {what} at byte "
                f"{self.position} of {self.end}"
            )

    def struct(self, cls: type[Struct]) -> Any:
        made = cls.__new__(cls)
        made.unknown_tagged_fields = None
        tagged: dict[int, Field] = {}
        for declared in cls.fields:
            if version_lacks(declared, self.version):
                setattr(made, declared.name, declared.make_default())
            elif declared.is_tagged(self.version):
                assert declared.tag is not None
                tagged[declared.tag] = declared
                setattr(made, declared.name, declared.make_default())
            else:
                self.path.append(f".{declared.name}")
                setattr(made, declared.name, self.field(declared))
                self.path.pop()
        if self.flexible:
            self.tags(made, tagged)
        return made

    def tags(self, made: Any, tagged: dict[int, Field]) -> None:
        count = self.uvarint()
        self.count_entries(count - len(tagged), f"{count} tagged fields")
        for _ in range(count):
            tag, size = self.uvarint(), self.uvarint()
            if size > self.end - self.position:
                self.fail(f"tagged field {tag} claims {size} bytes, {self.end - self.position} are left,")
            stop = self.position + size
            known = tagged.get(tag)
            if known is None:
                made.unknown_tagged_fields = made.unknown_tagged_fields or {}
                made.unknown_tagged_fields[tag] = bytes(self.take(size, f"tagged field {tag}"))
                continue
            self.path.append(f".{known.name}")
            setattr(made, known.name, self.field(known))
            if self.position != stop:
                self.fail(
                    f"the value of tagged field {tag} ends {self.position - stop:+d} bytes from where its size says,"
                )
            self.path.pop()

    def field(self, declared: Field) -> Any:
        nullable = self.version in declared.nullable
        if declared.kind in FIXED:
            return self.number(declared.kind)
        if declared.kind == "struct":
            if nullable:
                marker: int = self.take(1, "a struct")[0]
                if marker == 0 if declared.is_tagged(self.version) else marker > 127:
                    return None
            assert isinstance(declared.element, type)
            return self.struct(declared.element)
        if declared.kind == "array":
            return self.array(declared, nullable)
        return self.variable(declared.kind, nullable, self.compact(declared))

    def variable(self, kind: str, nullable: bool, compact: bool) -> Any:
        size = self.length(compact, wide=kind != "string")
        if size < 0:
            if not nullable:
                self.fail(f"a {kind} must not be null,")
            return None
        if kind == "string" and size > self.max_string:
            self.fail(f"a string of {size} bytes, allowed are {self.max_string},")
        data = self.take(size, f"a {kind}")
        if kind == "records":
            return data
        if kind == "bytes":
            return bytes(data)
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError as error:
            self.fail(f"a string that is not UTF-8 ({error.reason} in its byte {error.start}), ending")

    def array(self, declared: Field, nullable: bool) -> list[Any] | None:
        assert declared.element is not None
        compact = self.compact(declared)
        count = self.length(compact, wide=True)
        if count < 0:
            if not nullable:
                self.fail("an array must not be null,")
            return None
        smallest = minimum_size(declared.element, self.version, compact)
        left = self.end - self.position
        if count * smallest > left:
            self.fail(f"an array of {count} elements needs at least {count * smallest} bytes, {left} are left,")
        self.count_entries(count, f"an array of {count} elements")
        items = []
        for index in range(count):
            self.path.append(f"[{index}]")
            if not isinstance(declared.element, str):
                items.append(self.struct(declared.element))
            elif declared.element in FIXED:
                items.append(self.number(declared.element))
            else:
                items.append(self.variable(declared.element, nullable=False, compact=compact))
            self.path.pop()
        return items


class _Writer(_Walk):
    def __init__(self, cls: type[Message], version: int) -> None:
        super().__init__(cls, version)
        self.parts: list[Any] = []

    def fail(self, what: str) -> NoReturn:
        raise EncodeError(f"{self.place()}: {what}")

    def number(self, kind: str, value: Any) -> None:
        if kind == "uuid" and len(value) != 16:
            self.fail(f"a UUID has 16 bytes, not {len(value)}")
        try:
            self.parts.append(struct.pack(f">{FIXED[kind]}", value))
        except struct.error as error:
            self.fail(f"{value!r} is not a value of type {kind} ({error})")

    def length(self, size: int, compact: bool, wide: bool) -> None:
        if compact:
            self.parts.append(uvarint(size + 1))
        elif size > (0x7FFFFFFF if wide else 0x7FFF):
            self.fail(f"{size} is too long for the length prefix of this version")
        else:
            self.parts.append(struct.pack(">i" if wide else ">h", size))

    def struct(self, value: Any) -> None:
        tagged: list[Field] = []
        for declared in type(value).fields:
            if version_lacks(declared, self.version):
                if not declared.ignorable and self.differs(value, declared):
                    raise UnsupportedVersionError(f"{self.place()}: {declared.name} does not exist in this version")
            elif declared.is_tagged(self.version):
                tagged.append(declared)
            else:
                self.named(declared, getattr(value, declared.name))
        if self.flexible:
            known: list[tuple[int, bytes]] = []
            outer = self.parts
            for declared in sorted(tagged, key=lambda item: item.tag or 0):
                if self.differs(value, declared):
                    assert declared.tag is not None
                    self.parts = []
                    self.named(declared, getattr(value, declared.name))
                    known.append((declared.tag, b"".join(self.parts)))
            self.parts = outer
            write_tags(self.parts.append, known, value.unknown_tagged_fields)

    @staticmethod
    def differs(value: Any, declared: Field) -> bool:
        held = getattr(value, declared.name)
        if declared.default_factory is list:
            return bool(held) or (held is None and declared.nullable != NONE)
        return bool(held != declared.make_default())

    def named(self, declared: Field, value: Any) -> None:
        self.path.append(f".{declared.name}")
        self.field(declared, value)
        self.path.pop()

    def field(self, declared: Field, value: Any) -> None:
        compact = self.compact(declared)
        if declared.kind in FIXED:
            self.number(declared.kind, value)
        elif value is None:
            self.null(declared, compact)
        elif declared.kind == "struct":
            self.element(declared, value)
        elif declared.kind == "array":
            self.array(declared, value, compact)
        else:
            self.variable(declared.kind, value, compact)

    def null(self, declared: Field, compact: bool) -> None:
        if self.version not in declared.nullable:
            self.fail("must not be null in this version")
        if declared.kind == "struct":
            self.parts.append(null_struct(declared.is_tagged(self.version)))
        else:
            self.length(-1, compact, wide=declared.kind != "string")

    def element(self, declared: Field, value: Any) -> None:
        assert isinstance(declared.element, type)
        if not isinstance(value, declared.element):
            self.fail(f"expected {declared.element.__qualname__}, got {type(value).__qualname__}")
        if declared.kind == "struct" and self.version in declared.nullable:
            self.parts.append(b"\x01")
        self.struct(value)

    def array(self, declared: Field, value: Any, compact: bool) -> None:
        if not isinstance(value, Sequence):
            self.fail(f"expected a list, got {type(value).__qualname__}")
        self.length(len(value), compact, wide=True)
        for index, item in enumerate(value):
            self.path.append(f"[{index}]")
            if not isinstance(declared.element, str):
                self.element(declared, item)
            elif declared.element in FIXED:
                self.number(declared.element, item)
            else:
                self.variable(declared.element, item, compact)
            self.path.pop()

    def variable(self, kind: str, value: Any, compact: bool) -> None:
        if kind == "string":
            if not isinstance(value, str):
                self.fail(f"expected a string, got {type(value).__qualname__}")
            try:
                value = value.encode()
            except UnicodeEncodeError as error:
                self.fail(f"a string that cannot be written as UTF-8 ({error.reason})")
            if compact and len(value) > self.max_string:
                self.fail(f"a string of {len(value)} bytes, allowed are {self.max_string}")
        elif not isinstance(value, bytes | bytearray | memoryview) and kind == "bytes":
            self.fail(f"expected bytes, got {type(value).__qualname__}")
        self.length(len(value), compact, wide=kind != "string")
        self.parts.append(value)
