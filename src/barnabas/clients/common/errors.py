"""What can go wrong in any client that has no code on the wire."""

from __future__ import annotations

from barnabas.common.errors import BarnabasError


class IllegalStateError(BarnabasError, RuntimeError):
    """A method was called that makes no sense now: the client is closed, or something has to be done first."""


class SerializationError(BarnabasError):
    """A key or a value could not be made into bytes, or bytes into a key or a value."""


class CommitFailedError(BarnabasError):
    """Offsets could not be committed, because the group has moved on without this member."""
