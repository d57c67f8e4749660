"""The state of one assigned partition, with the fetch state machine."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from barnabas.clients.consumer.auto_offset_reset import AutoOffsetResetStrategy
from barnabas.clients.consumer.internals.fetch_position import FetchPosition, LeaderAndEpoch, RecordsInHand
from barnabas.clients.consumer.internals.watermarks import Watermarks


class FetchState(Enum):
    """Whether a partition has a position, and whether it may be fetched from there.

    ================ ===================================================== ======== =====
    state            what is missing                                       position valid
    ================ ===================================================== ======== =====
    INITIALIZING     the committed offset, or a reset                      no       no
    FETCHING         nothing                                               yes      yes
    AWAIT_RESET      the offset of the reset strategy, from ListOffsets    no       no
    AWAIT_VALIDATION the leader's OffsetForLeaderEpoch response (KIP-320)  yes      no
    ================ ===================================================== ======== =====
    """

    INITIALIZING = "initializing"
    FETCHING = "fetching"
    AWAIT_RESET = "await_reset"
    AWAIT_VALIDATION = "await_validation"

    @property
    def has_position(self) -> bool:
        return self is FetchState.FETCHING or self is FetchState.AWAIT_VALIDATION


FETCHING: Final = FetchState.FETCHING
"""Module constants, like the two below: both threads compare the state of every partition in every iteration, and
looking up an enum member costs as much as a call."""
AWAIT_RESET: Final = FetchState.AWAIT_RESET
AWAIT_VALIDATION: Final = FetchState.AWAIT_VALIDATION

VALID_TRANSITIONS: Final[dict[FetchState, frozenset[FetchState]]] = {
    FetchState.INITIALIZING: frozenset({FETCHING, AWAIT_RESET, AWAIT_VALIDATION}),
    FETCHING: frozenset({FETCHING, AWAIT_RESET, AWAIT_VALIDATION}),
    # The position was invalid and is gone: there is nothing to validate before the reset is complete.
    AWAIT_RESET: frozenset({FETCHING, AWAIT_RESET}),
    AWAIT_VALIDATION: frozenset({FETCHING, AWAIT_RESET, AWAIT_VALIDATION}),
}
"""The legal transitions. `TopicPartitionState` ignores any other, as its event came too late."""

PAUSED: Final = 1
"""The application has paused the partition."""
PENDING_REVOCATION: Final = 2
"""The group takes the partition back, and the listener still runs."""
PENDING_ON_ASSIGNED_CALLBACK: Final = 4
"""The listener has not run yet. It may still seek."""


class TopicPartitionState:
    """What a consumer knows about one assigned partition. The lock of `Assignment` guards it."""

    __slots__ = (
        "fetch_state",
        "in_hand",
        "next_retry_ms",
        "position",
        "preferred_read_replica",
        "preferred_read_replica_expire_ms",
        "reset_strategy",
        "suspended",
        "watermarks",
    )

    def __init__(self) -> None:
        self.fetch_state = FetchState.INITIALIZING
        self.position: FetchPosition | None = None
        self.reset_strategy: AutoOffsetResetStrategy | None = None
        self.next_retry_ms: int | None = None
        """When the reset or the validation may be requested again."""
        self.suspended = 0
        """Why nothing is fetched or returned to the application: a sum of PAUSED and the like."""
        self.watermarks = Watermarks()
        self.preferred_read_replica: int | None = None
        self.preferred_read_replica_expire_ms: int | None = None
        self.in_hand: RecordsInHand | None = None

    @property
    def has_valid_position(self) -> bool:
        return self.fetch_state is FETCHING

    @property
    def is_fetchable(self) -> bool:
        return self.fetch_state is FETCHING and not self.suspended

    def may_request(self, state: FetchState, now: int) -> bool:
        """Returns whether the partition is in this state, and the backoff of its last request is over."""
        return self.fetch_state is state and (self.next_retry_ms is None or now >= self.next_retry_ms)

    # -- transitions

    def _transition(self, to: FetchState, position: FetchPosition | None) -> bool:
        if to not in VALID_TRANSITIONS[self.fetch_state]:
            return False
        self.fetch_state = to
        self.position = position
        self.next_retry_ms = None
        return True

    def reset(self, strategy: AutoOffsetResetStrategy) -> None:
        if self._transition(AWAIT_RESET, None):
            self.reset_strategy = strategy
            self.drop_in_hand()

    def seek_validated(self, position: FetchPosition) -> None:
        if self._transition(FETCHING, position):
            self.reset_strategy = None
            self.drop_in_hand()

    def seek_unvalidated(self, position: FetchPosition) -> None:
        self.seek_validated(position)
        self._validate(position)

    def maybe_validate_position(self, leader: LeaderAndEpoch) -> bool:
        """Starts a validation if the leader is another than the position's. Returns whether one is needed."""
        if self.fetch_state is AWAIT_RESET or leader.leader is None:
            return False
        position = self.position
        if position is not None and position.current_leader != leader:
            self._validate(position._replace(current_leader=leader))
            self.preferred_read_replica = None
        return self.fetch_state is AWAIT_VALIDATION

    def _validate(self, position: FetchPosition) -> None:
        # Without both epochs there is nothing to compare, and the position counts as valid.
        known = position.offset_epoch is not None and position.current_leader.epoch is not None
        self._transition(AWAIT_VALIDATION if known else FETCHING, position)

    def update_leader_without_validation(self, leader: LeaderAndEpoch) -> None:
        """Takes the leader, for brokers without a usable version of OffsetForLeaderEpoch."""
        if self.position is not None:
            self._transition(FETCHING, self.position._replace(current_leader=leader))

    def complete_validation(self) -> None:
        if self.position is not None:
            self._transition(FETCHING, self.position)

    # -- records that the application iterates over

    def consumed(self) -> FetchPosition | None:
        """Returns the position of the application, which is behind `position` while it iterates over records."""
        if self.in_hand is not None:
            held = self.in_hand.position()
            if held is not None:
                return held
            self.in_hand = None
        return self.position

    def drop_in_hand(self) -> None:
        if self.in_hand is not None:
            self.in_hand.drop()
            self.in_hand = None

    # -- preferred read replica (KIP-392)

    def preferred_replica(self, now: int) -> int | None:
        expire_ms = self.preferred_read_replica_expire_ms
        if expire_ms is not None and now > expire_ms:
            self.preferred_read_replica = None
        return self.preferred_read_replica

    def update_preferred_read_replica(self, replica: int, expire_ms: Callable[[], int]) -> None:
        if replica != self.preferred_read_replica:
            self.preferred_read_replica = replica
            self.preferred_read_replica_expire_ms = expire_ms()

    def clear_preferred_read_replica(self) -> int | None:
        removed, self.preferred_read_replica = self.preferred_read_replica, None
        self.preferred_read_replica_expire_ms = None
        return removed

    def __repr__(self) -> str:
        flags = {PAUSED: "paused", PENDING_REVOCATION: "revoked", PENDING_ON_ASSIGNED_CALLBACK: "awaiting callback"}
        words = [self.fetch_state.value, *(name for flag, name in flags.items() if self.suspended & flag)]
        return f"TopicPartitionState({' '.join(words)}, {self.position})"
