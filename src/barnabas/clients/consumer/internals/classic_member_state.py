"""The states of a member of a classic group, and its steps to rejoin."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple


class ClassicMemberState(Enum):
    """The member's state as the coordinator sees it."""

    UNJOINED = auto()
    """It is in no group."""
    PREPARING_REBALANCE = auto()
    """It has sent JoinGroup, and waits for the other members."""
    COMPLETING_REBALANCE = auto()
    """It has joined, and waits for its assignment; heartbeats have begun."""
    STABLE = auto()
    """It has its assignment."""


_S = ClassicMemberState
SOURCES: Final[dict[ClassicMemberState, frozenset[ClassicMemberState]]] = {
    # A member can be removed, or leave, at any time.
    _S.UNJOINED: frozenset(ClassicMemberState),
    _S.PREPARING_REBALANCE: frozenset({_S.UNJOINED, _S.PREPARING_REBALANCE, _S.COMPLETING_REBALANCE, _S.STABLE}),
    _S.COMPLETING_REBALANCE: frozenset({_S.PREPARING_REBALANCE}),
    _S.STABLE: frozenset({_S.COMPLETING_REBALANCE}),
}
"""Where each state can be reached from."""


class RejoinStep(Enum):
    """The member's step in a rebalance, which advances when the application polls."""

    IDLE = auto()
    """No rebalance; one begins when the application polls and there is a reason."""
    PREPARING = auto()
    """Offsets are being committed, and the listener is called for revoked partitions."""
    READY_TO_JOIN = auto()
    """JoinGroup is sent as soon as there is a coordinator, and fresh metadata if there is a pattern."""
    JOINING = auto()
    READY_TO_SYNC = auto()
    """SyncGroup is sent; by the leader, as soon as it has the metadata of all members' topics."""
    SYNCING = auto()
    COMPLETING = auto()
    """The listener is called for new partitions."""


_R = RejoinStep
STEP_SOURCES: Final[dict[RejoinStep, frozenset[RejoinStep]]] = {
    _R.IDLE: frozenset(RejoinStep),
    _R.PREPARING: frozenset({_R.IDLE}),
    _R.READY_TO_JOIN: frozenset({_R.PREPARING, _R.JOINING, _R.READY_TO_SYNC, _R.SYNCING}),
    _R.JOINING: frozenset({_R.READY_TO_JOIN}),
    _R.READY_TO_SYNC: frozenset({_R.JOINING}),
    _R.SYNCING: frozenset({_R.READY_TO_SYNC}),
    _R.COMPLETING: frozenset({_R.SYNCING}),
}
"""Where each step can be reached from."""


class Generation(NamedTuple):
    """The generation of the group that a member has seen. Every rebalance starts another one."""

    generation_id: int
    member_id: str
    protocol_name: str | None

    @property
    def is_valid(self) -> bool:
        return self.generation_id != -1 and self.member_id != ""


NO_GENERATION: Final = Generation(-1, "", None)
