"""The states of a member of a consumer group (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from barnabas.common.identifiers import Uuid


class MemberState(Enum):
    """A member's state. Heartbeats are sent in all of these but UNSUBSCRIBED, FENCED, FATAL and STALE."""

    UNSUBSCRIBED = auto()
    """In no group: there is no subscription, or the group was left."""
    JOINING = auto()
    """It sends heartbeats with epoch 0 until it gets another epoch."""
    RECONCILING = auto()
    """It has received a target assignment and applies it: commits, listeners, then the assignment itself."""
    ACKNOWLEDGING = auto()
    """It has the target assignment, and the next heartbeat, sent at once, acknowledges it."""
    STABLE = auto()
    """It has the target assignment."""
    FENCED = auto()
    """It was removed. It calls the listener for the lost partitions, and joins again."""
    PREPARE_LEAVING = auto()
    """It is about to leave, and calls the listener."""
    LEAVING = auto()
    """The next heartbeat, sent at once, leaves the group."""
    FATAL = auto()
    """A permanent error, such as a missing permission."""
    STALE = auto()
    """It has left because the application does not poll; it joins again at the next poll."""


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
            # The response to a heartbeat from before it was removed, or left, can still arrive.
            _S.FENCED,
            _S.STALE,
        }
    ),
    _S.STALE: frozenset({_S.LEAVING}),
}
"""Where each state can be reached from."""

NOT_IN_GROUP: Final = frozenset({_S.UNSUBSCRIBED, _S.FENCED, _S.FATAL, _S.STALE})


class LocalAssignment(NamedTuple):
    """Partitions by topic id, and a count of the different targets received.

    With the count a member can tell a sequence A, B, A from an unchanged A, and acknowledges A again."""

    local_epoch: int
    partitions: Mapping[Uuid, frozenset[int]]

    def updated_with(self, partitions: Mapping[Uuid, frozenset[int]]) -> LocalAssignment:
        if self.local_epoch != -1 and partitions == self.partitions:
            return self
        return LocalAssignment(self.local_epoch + 1, partitions)


NO_ASSIGNMENT: Final = LocalAssignment(-1, {})
