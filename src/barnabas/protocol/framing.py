"""Frames: a four-byte length, then a header and a body.

This module works on bytes only; :mod:`barnabas.network` owns the sockets.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from barnabas.common.errors import ProtocolError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.message import Buffer, Request, Response

LENGTH_SIZE = 4
DEFAULT_MAX_FRAME_SIZE = 100 * 1024 * 1024
"""Kafka's default of ``socket.request.max.bytes``."""

_LENGTH = struct.Struct(">i")
_REQUEST_HEAD = struct.Struct(">hhi")
"""The numbers at the start of a request header: API, version, correlation id."""


def encode_request(request: Request, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Returns a whole request, ready to send."""
    return b"".join(request_parts(request, version, correlation_id, client_id))


def request_parts(request: Request, version: int, correlation_id: int, client_id: str | None) -> list[Any]:
    """Returns a whole request as a list of buffers, without copying its records."""
    api_key = request.api_key
    head = _REQUEST_HEAD.pack(api_key, version, correlation_id) + _client_id(client_id, api_key, version)
    return request.encode_parts(version, head)


@lru_cache(maxsize=256)
def _client_id(client_id: str | None, api_key: ApiKey, version: int) -> bytes:
    """Returns the rest of a request header, which is the same for all requests of a client in one version."""
    header = RequestHeader(client_id=client_id).encode(api_key.request_header_version(version))
    return header[_REQUEST_HEAD.size :]


def encode_response(response: Response, version: int, correlation_id: int) -> bytes:
    """Returns a whole response, ready to send; its records must be in memory."""
    return b"".join(response.frame_parts(version, correlation_id))


class FrameReader:
    """Cuts a stream of bytes into frames.

    ``feed`` takes received bytes and yields complete frames. The reader holds at most one incomplete frame, and only
    the bytes of it that have arrived: a length prefix allocates nothing.

    >>> reader = FrameReader()
    >>> list(reader.feed(bytes.fromhex("00000002 6162 000000")))
    [b'ab']
    >>> list(reader.feed(bytes.fromhex("01 63")))
    [b'c']
    """

    def __init__(self, max_frame_size: int = DEFAULT_MAX_FRAME_SIZE) -> None:
        self._max = max_frame_size
        self._pending = bytearray()

    def feed(self, data: Buffer) -> Iterator[bytes]:
        """Adds received bytes and yields each frame that they complete, without its length."""
        self._pending += data
        start = 0
        try:
            while len(self._pending) - start >= LENGTH_SIZE:
                (size,) = _LENGTH.unpack_from(self._pending, start)
                if not 0 <= size <= self._max:
                    raise ProtocolError(f"a frame of {size} bytes; allowed are 0 to {self._max}")
                stop = start + LENGTH_SIZE + size
                if stop > len(self._pending):
                    break
                frame = bytes(self._pending[start + LENGTH_SIZE : stop])
                start = stop
                yield frame
        finally:
            del self._pending[:start]

    @property
    def buffered(self) -> int:
        """The number of bytes held of an incomplete frame."""
        return len(self._pending)
