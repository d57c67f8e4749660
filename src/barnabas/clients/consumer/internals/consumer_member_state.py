"""How far a member of a consumer group (KIP-848) has come: a table of states."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from barnabas.common.identifiers import Uuid


class MemberState(Enum):
    """What a member is doing. Heartbeats go out in all of these but UNSUBSCRIBED, FENCED, FATAL and STALE."""

    UNSUBSCRIBED = auto()
    """In no group: there is no subscription, or the group was left."""
    JOINING = auto()
    """It sends heartbeats with epoch 0 until it gets another one."""
    RECONCILING = auto()
    """It has been told what to have, and works on it: commits, listeners, then the assignment itself."""
    ACKNOWLEDGING = auto()
    """It has what it was told to have, and the next heartbeat, which goes out at once, says so."""
    STABLE = auto()
    """It has what it was told to have."""
    FENCED = auto()
    """It was thrown out. It tells the listener that all is lost, and joins again."""
    PREPARE_LEAVING = auto()
    """It is about to leave, and tells the listener."""
    LEAVING = auto()
    """The next heartbeat, which goes out at once, says that it leaves."""
    FATAL = auto()
    """Something that does not go away by itself, such as a missing right."""
    STALE = auto()
    """It has left because the application does not poll; it joins again when that does."""


_S = MemberState
SOURCES: Final[Mapping[MemberState, frozenset[MemberState]]] = {
    _S.UNSUBSCRIBED: frozenset({_S.PREPARE_LEAVING, _S.LEAVING, _S.FENCED, _S.STALE}),
    _S.JOINING: frozenset({_S.FENCED, _S.UNSUBSCRIBED, _S.STALE}),
    _S.RECONCILING: frozenset({_S.STABLE, _S.JOINING, _S.ACKNOWLEDGING, _S.RECONCILING}),
    _S.ACKNOWLEDGING: frozenset({_S.RECONCILING}),
    _S.STABLE: frozenset({_S.JOINING, _S.ACKNOWLEDGING, _S.RECONCILING}),
    _S.FENCED: frozenset(
        {_S.JOINING, _S.STABLE, _S.RECONCILING, _S.ACKNOWLEDGING, _S.PREPARE_LEAVING, _S.LEAVING},
    ),
    _S.PREPARE_LEAVING: frozenset({_S.JOINING, _S.STABLE, _S.RECONCILING, _S.ACKNOWLEDGING, _S.UNSUBSCRIBED}),
    _S.LEAVING: frozenset({_S.PREPARE_LEAVING}),
    _S.FATAL: frozenset(
        {
            _S.JOINING,
            _S.STABLE,
            _S.RECONCILING,
            _S.ACKNOWLEDGING,
            _S.PREPARE_LEAVING,
            _S.LEAVING,
            _S.UNSUBSCRIBED,
            # An answer to a heartbeat from before it was thrown out, or left, can still come.
            _S.FENCED,
            _S.STALE,
        }
    ),
    _S.STALE: frozenset({_S.LEAVING}),
}
"""Where each state can be reached from."""

NOT_IN_GROUP: Final = frozenset({_S.UNSUBSCRIBED, _S.FENCED, _S.FATAL, _S.STALE})


class LocalAssignment(NamedTuple):
    """Partitions by topic id, and how many different ones this member has been told before. By the latter a member can
    tell that it was told A, then B, then A again, and has to say that it has A again."""

    local_epoch: int
    partitions: Mapping[Uuid, frozenset[int]]

    def updated_with(self, partitions: Mapping[Uuid, frozenset[int]]) -> LocalAssignment:
        if self.local_epoch != -1 and partitions == self.partitions:
            return self
        return LocalAssignment(self.local_epoch + 1, partitions)


NO_ASSIGNMENT: Final = LocalAssignment(-1, {})
