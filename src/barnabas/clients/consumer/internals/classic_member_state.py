"""How far a member of a classic group has come: two tables of states."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple


class ClassicMemberState(Enum):
    """What the coordinator thinks this member is doing."""

    UNJOINED = auto()
    """It is in no group."""
    PREPARING_REBALANCE = auto()
    """It has sent JoinGroup, and waits with the others."""
    COMPLETING_REBALANCE = auto()
    """It has joined, and waits for its part; heartbeats have begun."""
    STABLE = auto()
    """It has its part."""


_S = ClassicMemberState
SOURCES: Final[dict[ClassicMemberState, frozenset[ClassicMemberState]]] = {
    # Thrown out, or left: that can happen at any time.
    _S.UNJOINED: frozenset(ClassicMemberState),
    _S.PREPARING_REBALANCE: frozenset({_S.UNJOINED, _S.PREPARING_REBALANCE, _S.COMPLETING_REBALANCE, _S.STABLE}),
    _S.COMPLETING_REBALANCE: frozenset({_S.PREPARING_REBALANCE}),
    _S.STABLE: frozenset({_S.COMPLETING_REBALANCE}),
}
"""Where each state can be reached from."""


class RejoinStep(Enum):
    """What this member is doing about it, from one poll of the application to the next."""

    IDLE = auto()
    """Nothing; a rebalance begins when the application polls and there is a reason."""
    PREPARING = auto()
    """Offsets are being committed, and the listener is told what is taken away."""
    READY_TO_JOIN = auto()
    """JoinGroup goes out as soon as there is a coordinator, and fresh metadata if topics go by a pattern."""
    JOINING = auto()
    READY_TO_SYNC = auto()
    """SyncGroup goes out; if this member leads the group, as soon as it knows all the topics that others want."""
    SYNCING = auto()
    COMPLETING = auto()
    """The listener is told what is new."""


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
    """Which state of the group a member has seen. Every rebalance makes another one."""

    generation_id: int
    member_id: str
    protocol_name: str | None

    @property
    def is_valid(self) -> bool:
        return self.generation_id != -1 and self.member_id != ""


NO_GENERATION: Final = Generation(-1, "", None)
