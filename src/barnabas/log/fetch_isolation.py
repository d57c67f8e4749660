"""How far a reader may look into a log."""

from __future__ import annotations

from enum import Enum, auto


class FetchIsolation(Enum):
    """The end of the log, from the point of view of a reader.

    ::

        log start            last stable        high watermark       log end
            |----------------------|-------------------|----------------|
              decided and replicated  open transactions  not replicated
    """

    LOG_END = auto()
    """All there is: for followers, and for coordinators that read their own log."""
    HIGH_WATERMARK = auto()
    """What all in-sync replicas have, and no election can take away: for consumers."""
    TXN_COMMITTED = auto()
    """What belongs to no open transaction, besides: for consumers that read committed records only."""
