"""Headers of requests and responses.

A request header has the API key and version of the body, a correlation id that the response repeats, and the client id.
The version of the *header* follows from the API key and version, so a reader needs the first four bytes to know how to
read the rest. :func:`parse_request_header` does both in one step, because it runs for every request.

Version 2 of the header is flexible, yet the client id keeps its old two-byte length. So a broker can find the client
id, for its logs and quotas, in a request of any API and version, even an unknown one.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from barnabas._kernels import headers
from barnabas.common.errors import ProtocolError, UnsupportedVersionError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.codec.runtime import read_uvarint, unknown_tags
from barnabas.protocol.fields import int16, int32, string
from barnabas.protocol.message import Buffer, Message
from barnabas.protocol.versions import LATEST


class RequestHeader(Message, versions="1-2", flexible="2+"):
    """The header of a request, as a message; the broker reads it with :func:`parse_request_header`."""

    request_api_key: int = int16(default=0)
    request_api_version: int = int16(default=0)
    correlation_id: int = int32(default=0)
    client_id: str | None = string("1+", default="", nullable="1+", flexible="none")


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    """The header of a response: the correlation id of the request, and tagged fields (none are defined yet)."""

    correlation_id: int = int32(default=0)


class ParsedHeader(NamedTuple):
    """The decoded header of a request, and where the body starts."""

    api_key: ApiKey
    api_version: int
    correlation_id: int
    client_id: str | None
    body_start: int


_FIXED = struct.Struct(">hhih")
_unpack_fixed = _FIXED.unpack_from
_APIS = {int(key): (key, key.flexible.lowest if key.flexible.highest >= 0 else LATEST + 1) for key in ApiKey}
"""Per API key: the API, and the first version whose request header has tagged fields."""
MOST_TAGS: Final = 100
"""The most tagged fields of a request header. Headers are read on network threads, which serve many connections."""
_new_tuple = tuple.__new__


def parse_request_header_pure(buffer: Buffer) -> ParsedHeader:
    """Reads a request's header.

    The API version may be unsupported, because even an ApiVersions request of a later version gets a response. The
    caller decides whether to serve a version. An unknown API raises :class:`UnsupportedVersionError`, because not even
    the version of its header is known.
    """
    try:
        number, version, correlation_id, size = _unpack_fixed(buffer)
    except struct.error:
        raise ProtocolError(f"a request of {len(buffer)} bytes is too short for its header") from None
    found = _APIS.get(number)
    if found is None:
        raise UnsupportedVersionError(f"unknown API key {number} (version {version}, correlation id {correlation_id})")
    api_key, flexible_from = found
    start = 10
    client_id = None
    if size >= 0:
        stop = start + size
        if stop > len(buffer):
            raise ProtocolError(
                f"{api_key.title} v{version} header: a client id of {size} bytes at byte {start}, "
                f"the request has {len(buffer)}"
            )
        try:
            client_id = str(buffer[start:stop], "utf-8")
        except UnicodeDecodeError as error:
            raise ProtocolError(f"{api_key.title} v{version} header: the client id is not UTF-8 ({error})") from None
        start = stop
    elif size != -1:
        raise ProtocolError(f"{api_key.title} v{version} header: a client id of {size} bytes")
    if version >= flexible_from:
        if start < len(buffer) and not buffer[start]:
            start += 1
        else:
            start = _skip_tags(buffer, start, api_key, version)
    # tuple.__new__ instead of the class: its constructor is Python code, and this runs for every request.
    return _new_tuple(ParsedHeader, (api_key, version, correlation_id, client_id, start))


def _skip_tags(buffer: Buffer, start: int, api_key: ApiKey, version: int) -> int:
    """Skips tagged fields: no request header defines any yet, but a newer client may send some."""
    try:
        count, start = read_uvarint(buffer, start)
        if count <= MOST_TAGS:
            return unknown_tags(buffer, start, len(buffer), count)[1]
    except (IndexError, ProtocolError):
        raise ProtocolError(f"{api_key.title} v{version} header: broken tagged fields before byte {start}") from None
    raise ProtocolError(f"{api_key.title} v{version} header: {count} tagged fields; at most {MOST_TAGS} are allowed")


parse_request_header = headers.header_parser(_APIS, ParsedHeader, parse_request_header_pure)
"""Parses the header of a request; see `parse_request_header_pure`."""
