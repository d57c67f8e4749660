"""What can go wrong in any client that has no code on the wire."""

from __future__ import annotations

from barnabas.common.errors import BarnabasError
from barnabas.common.serialization_errors import SerializationError

__all__ = ["CommitFailedError", "IllegalStateError", "SerializationError"]


class IllegalStateError(BarnabasError, RuntimeError):
    """A method was called that makes no sense now: the client is closed, or something has to be done first."""


class CommitFailedError(BarnabasError):
    """Offsets could not be committed, because the group has moved on without this member."""
