"""Recognizes peers that speak another protocol than the listener: plaintext to TLS, TLS to plaintext, HTTP to either.

It is the commonest mistake in setting up a listener, and looks like garbage to each side.
"""

from __future__ import annotations

import struct
from typing import Final

KAFKA_REQUEST: Final = "a plaintext Kafka request"
PLAINTEXT_ALERT: Final = b"\x15\x03\x03\x00\x02\x02\x0a"
"""A fatal TLS alert, "unexpected message", for a client that does not speak TLS. Ours recognizes its first byte."""


def speaks_tls(first: bytes, *, server_side: bool) -> bool:
    """Whether a connection's first bytes can be a TLS record: of a client a handshake, of a server also an alert."""
    if first[0] != 0x16 and (server_side or first[0] not in {0x14, 0x15, 0x17}):
        return False
    return len(first) < 2 or first[1] == 3


def name_plaintext(first: bytes) -> str:
    """Names the protocol of a connection's first bytes, which are not TLS.

    >>> name_plaintext(b"GET / HTTP/1.1")
    'an HTTP request'
    """
    if first.startswith((b"GET ", b"POST ", b"PUT ", b"HEAD ", b"DELETE ", b"OPTIONS ", b"CONNECT ")):
        return "an HTTP request"
    if first.startswith(b"HTTP"):
        return "an HTTP response"
    if len(first) >= 8 and first[0] == 0 and first[4] == 0:  # a length below 16 MiB, and an API key below 256
        return KAFKA_REQUEST
    if all(0x20 <= byte < 0x7F or byte in b"\r\n\t" for byte in first[:8]):
        return f"text that begins with {first[:8].decode('ascii')!r}"
    return f"bytes that begin with {first[:5].hex(' ')}"


def foreign_protocol(size: int) -> str:
    """Explains a length that is none, on a plaintext listener; empty if it is not recognized.

    >>> foreign_protocol(0x16030102)
    '; the client speaks TLS, and this listener does not: see security.protocol'
    """
    prefix = struct.pack(">i", size)
    if prefix[:2] == b"\x16\x03":
        return "; the client speaks TLS, and this listener does not: see security.protocol"
    if prefix in {b"GET ", b"POST", b"PUT ", b"HEAD"}:
        return "; the client sent an HTTP request"
    return ""
