"""Client errors that have no code in the protocol."""

from __future__ import annotations

from barnabas.common.errors import BarnabasError
from barnabas.common.serialization_errors import SerializationError

__all__ = ["CommitFailedError", "IllegalStateError", "SerializationError"]


class IllegalStateError(BarnabasError, RuntimeError):
    """A method was called in the wrong state: the client is closed, or another call must come first."""


class CommitFailedError(BarnabasError):
    """Offsets could not be committed, because the group has rebalanced without this member."""
