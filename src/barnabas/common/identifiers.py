"""Identifiers: Kafka's UUIDs.

Kafka writes a UUID as 16 bytes on the wire and as 22 characters of URL-safe base64 for people (a topic ID in
``kafka-topics --describe``, the ``cluster.id`` in ``meta.properties``). Inside Barnabas a UUID *is* those 16 bytes: a
message with thousands of topic IDs costs one slice each, compares and hashes at C speed, and needs no wrapper object.
``Uuid`` is a name for the type checker only.
"""

from __future__ import annotations

import base64
import binascii
import os
from typing import NewType

Uuid = NewType("Uuid", bytes)

ZERO_UUID = Uuid(bytes(16))
"""Means "no ID": the default of every UUID field."""

METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")
"""The ID of ``__cluster_metadata``; reserved, never used for another topic."""

_RESERVED = frozenset({ZERO_UUID, METADATA_TOPIC_ID})


def random_uuid() -> Uuid:
    """Returns a new random (version 4) UUID.

    It is never a reserved ID, and its text never starts with a dash, because a command line tool would take it for an
    option.
    """
    while True:
        raw = bytearray(os.urandom(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        candidate = Uuid(bytes(raw))
        if candidate not in _RESERVED and not uuid_to_string(candidate).startswith("-"):
            return candidate


def uuid_to_string(value: Uuid) -> str:
    """Returns the 22 characters for people."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def uuid_from_string(text: str) -> Uuid:
    """Parses the output of :func:`uuid_to_string`; raises ``ValueError`` for anything else."""
    if len(text) > 24:
        raise ValueError(f"{text[:24]!r}... is longer than a base64 UUID, which has at most 24 characters")
    try:
        raw = base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{text!r} is not URL-safe base64") from None
    if len(raw) != 16:
        raise ValueError(f"{text!r} decodes to {len(raw)} bytes; a UUID has 16")
    return Uuid(raw)
