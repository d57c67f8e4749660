"""Functions that generated codecs call instead of repeating their code inline."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import Any, NoReturn

from barnabas.common.errors import ProtocolError, UnsupportedVersionError
from barnabas.protocol.message import TooManyEntriesError

SMALL = 64
"""Arrays of primitives up to this length use a prepared ``Struct``; longer ones are rare and build their own."""

UVARINT = tuple(bytes((n,)) for n in range(128))
"""The one-byte varints, which cover nearly all lengths."""


pack_length = struct.Struct(">i").pack
"""Packs the length of a frame."""


def null_struct(tagged: bool) -> bytes:
    """Returns the byte of a null struct: -1, or 0 in a tagged field. (A non-null struct starts with 1 in both.)"""
    return b"\x00" if tagged else b"\xff"


def uvarint(value: int) -> bytes:
    """Encodes an unsigned varint: seven bits a byte, low bits first, the high bit set on all but the last byte."""
    if value < 128:
        return UVARINT[value]
    if value < 1 << 14:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 1 << 21:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def long_uvarint(buffer: Any, position: int, first: int) -> tuple[int, int]:
    """Reads the rest of a varint whose first byte (with its high bit set) was already read."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise ProtocolError("a varint of more than 32 bits")


def read_uvarint(buffer: Any, position: int) -> tuple[int, int]:
    first = buffer[position]
    if first < 128:
        return first, position + 1
    return long_uvarint(buffer, position + 1, first)


def fail() -> NoReturn:
    """Reports that the bytes are malformed; the interpreter then finds the field."""
    raise ProtocolError("malformed")


def too_many_entries() -> NoReturn:
    """Stops a decoder before it creates the array elements or tagged fields that exceed the limit of the request."""
    raise TooManyEntriesError("the request has more entries than allowed")


def refuse(message: str, version: int, *fields: str) -> NoReturn:
    """Rejects a message whose non-default field this version cannot carry and must not drop."""
    raise UnsupportedVersionError(
        f"{message} v{version} cannot carry a non-default value of {' or '.join(fields)}, and may not drop it"
    )


def unknown_tags(buffer: Any, position: int, end: int, count: int) -> tuple[dict[int, bytes] | None, int]:
    """Reads the tagged fields of a struct that declares none."""
    found: dict[int, bytes] = {}
    for _ in range(count):
        tag, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        stop = position + size
        if stop > end:
            fail()
        found[tag] = bytes(buffer[position:stop])
        position = stop
    return found or None, position  # an overlong varint can encode a count of zero


def write_tags(append: Callable[[Any], None], known: list[tuple[int, bytes]], unknown: dict[int, bytes] | None) -> None:
    """Writes a tag section: known and unknown fields together, in ascending order of their numbers."""
    merged = list(known)
    if unknown:
        taken = {tag for tag, _ in known}
        for tag, value in unknown.items():
            if tag in taken:
                raise ProtocolError(f"tag {tag} is given twice: as a declared field and as an unknown one")
            merged.append((tag, value))
        merged.sort(key=lambda item: item[0])
    append(uvarint(len(merged)))
    for tag, value in merged:
        append(uvarint(tag) + uvarint(len(value)))
        append(value)


class ArrayUnpackers(dict[int, Callable[[Any, int], tuple[Any, ...]]]):
    """``unpackers[n](buffer, position)`` reads n primitives; the structs for short arrays are kept."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self._code = code

    def __missing__(self, count: int) -> Callable[[Any, int], tuple[Any, ...]]:
        made = struct.Struct(f">{self._code * count if self._code == '16s' else f'{count}{self._code}'}").unpack_from
        if count <= SMALL:
            self[count] = made
        return made


class FusedPackers(dict[Any, Callable[..., bytes]]):
    """Packs a run of numbers and arrays of numbers in one call.

    A partition in a Metadata response has four numbers and three lists of node ids. Writing each piece takes seven
    calls. The lists nearly always have the same few lengths, so ``packers[3, 3, 0]`` is one ``Struct`` that writes all
    of them: ``>hiiiB3iB3iB0i``. An entry is created when a combination of lengths first occurs, and their number is
    bounded.

    ``pieces`` holds format codes of single numbers, and ``(prefix, code)`` for an array; the values passed to the
    packer are in the order of the pieces, each array as its prefix value followed by its elements.
    """

    LIMIT = 1024

    def __init__(self, pieces: tuple[str | tuple[str, str], ...]) -> None:
        super().__init__()
        self._pieces = pieces

    def __missing__(self, lengths: int | tuple[int, ...]) -> Callable[..., bytes]:
        counts = iter((lengths,) if isinstance(lengths, int) else lengths)
        layout = [(piece, 0 if isinstance(piece, str) else next(counts)) for piece in self._pieces]
        if any(not isinstance(piece, str) and piece[0] == "B" and count > 126 for piece, count in layout):
            return self._long(layout)
        codes = [
            piece
            if isinstance(piece, str)
            else piece[0] + (piece[1] * count if piece[1] == "16s" else f"{count}{piece[1]}")
            for piece, count in layout
        ]
        made = struct.Struct(">" + "".join(codes)).pack
        if len(self) < self.LIMIT:
            self[lengths] = made
        return made

    @staticmethod
    def _long(layout: list[tuple[str | tuple[str, str], int]]) -> Callable[..., bytes]:
        """Packs the same bytes piece by piece, for arrays too long for a one-byte varint."""

        def pack(*values: Any) -> bytes:
            out, at = [], 0
            for piece, count in layout:
                if isinstance(piece, str):
                    taken = 0 if piece == "x" else 1
                    out.append(struct.pack(f">{piece}", *values[at : at + taken]))
                    at += taken
                    continue
                prefix, code = piece
                out.append(uvarint(values[at]) if prefix == "B" else struct.pack(f">{prefix}", values[at]))
                elements = values[at + 1 : at + 1 + count]
                out.append(struct.pack(">" + (code * count if code == "16s" else f"{count}{code}"), *elements))
                at += 1 + count
            return b"".join(out)

        return pack


def build(name: str, source: str, scope: dict[str, Any]) -> Any:
    """Compiles generated source and returns the function called ``name``."""
    if os.environ.get("BARNABAS_SHOW_CODECS"):
        print(source)  # noqa: T201 - requested by BARNABAS_SHOW_CODECS
    exec(compile(source, f"<{name}>", "exec"), scope)  # noqa: S102 - made from our own declarations
    return scope["codec"]
