"""Finds the errors in a response after it was sent.

Most handlers do not keep their responses; counting errors in each handler would cost every request something. So the
few sampled responses are decoded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from barnabas.common.errors import Errors, ProtocolError, UnsupportedVersionError
from barnabas.network.reactor.send import FileRegion
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import LENGTH_SIZE
from barnabas.protocol.message import Struct
from barnabas.protocol.messages.envelope import EnvelopeResponse

_CORRELATION_ID_SIZE: Final = 4
_NO_BYTES: Final = b"\0\0\0\0"
_NO_COMPACT_BYTES: Final = b"\x01"


def errors_in_frame(
    api_key: ApiKey, version: int, pieces: Sequence[Any], *, envelope_version: int | None = None
) -> dict[str, int] | None:
    """Counts each error in a response, at any depth; returns None if the response cannot be decoded.

    `pieces` are a whole frame. Parts of files in it, which are records of a fetch, are not read.
    """
    try:
        frame = _without_records(api_key, version, pieces)
        start = LENGTH_SIZE + _CORRELATION_ID_SIZE
        if envelope_version is not None:
            start += ApiKey.ENVELOPE.response_header_version(envelope_version)
            envelope, _ = EnvelopeResponse.decode_from(frame, envelope_version, start)
            if envelope.error_code or envelope.response_data is None:
                return {Errors.for_code(envelope.error_code).name: 1} if envelope.error_code else {}
            frame, start = bytes(envelope.response_data), _CORRELATION_ID_SIZE
        # A header has the correlation ID and, from version 1 on, an empty list of tagged fields: one byte.
        start += api_key.response_header_version(version)
        response, _ = api_key.response.decode_from(frame, version, start)
    except (ProtocolError, UnsupportedVersionError):
        return None
    found: dict[str, int] = {}
    _count(response, found)
    return found


def _without_records(api_key: ApiKey, version: int, pieces: Sequence[Any]) -> bytes:
    """Joins a frame into one buffer, with empty records instead of those in files: their length becomes zero."""
    if len(pieces) == 1 and isinstance(pieces[0], bytes):
        return pieces[0]
    is_compact = version in api_key.response.flexible
    joined = bytearray()
    for piece in pieces:
        if not isinstance(piece, FileRegion):
            joined += piece
        elif is_compact:
            del joined[-_uvarint_size(len(piece) + 1) :]
            joined += _NO_COMPACT_BYTES
        else:
            joined[-len(_NO_BYTES) :] = _NO_BYTES
    return bytes(joined)


def _uvarint_size(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)


def _count(struct: Struct, found: dict[str, int]) -> None:
    has_code, nested = _places_of_codes(type(struct))
    if has_code and struct.error_code:  # type: ignore[attr-defined]
        name = Errors.for_code(struct.error_code).name  # type: ignore[attr-defined]
        found[name] = found.get(name, 0) + 1
    for name in nested:
        value = getattr(struct, name)
        for element in value if isinstance(value, list) else () if value is None else (value,):
            _count(element, found)


@cache
def _places_of_codes(struct: type[Struct]) -> tuple[bool, tuple[str, ...]]:
    """Returns whether a struct has an error code itself, and which of its fields contain structs with one."""
    nested = tuple(
        field.name
        for field in struct.fields
        if isinstance(field.element, type) and any(_places_of_codes(field.element))
    )
    return any(field.name == "error_code" for field in struct.fields), nested
