"""Identifiers: Kafka's UUIDs.

Kafka writes a UUID as 16 bytes on the wire and as 22 characters of URL-safe base64 for people (a topic id in
``kafka-topics --describe``, the ``cluster.id`` in ``meta.properties``). Inside Barnabas a UUID *is* those 16 bytes: a
message with thousands of topic ids then costs one slice each, compares and hashes at C speed, and needs no wrapper
object. ``Uuid`` is a name for the type checker only.
"""

from __future__ import annotations

import base64
import binascii
import os
from typing import NewType

Uuid = NewType("Uuid", bytes)

ZERO_UUID = Uuid(bytes(16))
"""Stands for "no id": the default of every UUID field."""

METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")
"""The id of ``__cluster_metadata``; reserved, never handed to another topic."""

_RESERVED = frozenset({ZERO_UUID, METADATA_TOPIC_ID})


def random_uuid() -> Uuid:
    """A new random (version 4) UUID.

    Never one of the reserved ids, and never one whose text starts with a dash: such an id could not be given to a
    command line tool, which would take it for an option.
    """
    while True:
        raw = bytearray(os.urandom(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        candidate = Uuid(bytes(raw))
        if candidate not in _RESERVED and not uuid_to_string(candidate).startswith("-"):
            return candidate


def uuid_to_string(value: Uuid) -> str:
    """The 22 characters that people see."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def uuid_from_string(text: str) -> Uuid:
    """Reads what :func:`uuid_to_string` wrote; a ``ValueError`` says what is wrong with anything else."""
    if len(text) > 24:
        raise ValueError(f"{text[:24]!r}... is longer than a base64 UUID, which has at most 24 characters")
    try:
        raw = base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{text!r} is not URL-safe base64") from None
    if len(raw) != 16:
        raise ValueError(f"{text!r} decodes to {len(raw)} bytes; a UUID has 16")
    return Uuid(raw)
