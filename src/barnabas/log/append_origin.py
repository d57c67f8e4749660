"""Who writes to a log."""

from __future__ import annotations

from enum import Enum, auto


class AppendOrigin(Enum):
    """Where an append comes from, which decides how closely it is looked at."""

    REPLICATION = auto()
    """From the leader's log, or from this log itself when it is read again at the start. It has been checked before,
    and must be taken as it is: a follower that refused what the leader has could never catch up."""
    COORDINATOR = auto()
    """From the group or the transaction coordinator of this broker: offset commits, which have a producer's epoch but
    are not numbered, and transaction markers."""
    CLIENT = auto()
    """From a producer: everything is checked."""
    RAFT_LEADER = auto()
    """From the leader of the metadata quorum, with offsets in place."""
