"""The isolation level of a fetch: how far a reader may read."""

from __future__ import annotations

from enum import Enum, auto


class FetchIsolation(Enum):
    """The offset at which a read ends.

    ::

        log start            last stable        high watermark       log end
            |----------------------|-------------------|----------------|
              decided and replicated  open transactions  not replicated
    """

    LOG_END = auto()
    """The whole log: for followers, and for coordinators that read their own log."""
    HIGH_WATERMARK = auto()
    """Records that all in-sync replicas have, so that no election can lose them: for consumers."""
    TXN_COMMITTED = auto()
    """Of these, records before the first open transaction: for ``read_committed`` consumers."""
