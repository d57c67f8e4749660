"""Where a consumer is in a partition, and how sure it is of that."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from operator import length_hint
from typing import Final, NamedTuple

from barnabas.clients.common.offsets import OffsetAndMetadata
from barnabas.clients.consumer.auto_offset_reset import AutoOffsetResetStrategy
from barnabas.clients.consumer.consumer_record import ConsumerRecord
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.node import Node


class LeaderAndEpoch(NamedTuple):
    """Who leads a partition, as far as is known, and in which epoch."""

    leader: Node | None = None
    epoch: int | None = None


NO_LEADER_OR_EPOCH: Final = LeaderAndEpoch()


class FetchPosition(NamedTuple):
    """The offset to read next, the epoch of the record before it, and the leader to read it from."""

    offset: int
    offset_epoch: int | None = None
    current_leader: LeaderAndEpoch = NO_LEADER_OR_EPOCH


class LogTruncation(NamedTuple):
    """What was read is not what the leader has: a position, and where both still agree, if the leader knows."""

    partition: TopicPartition
    position: FetchPosition
    divergent_offset: OffsetAndMetadata | None


class FetchState(Enum):
    """Whether there is a position, and whether it may be fetched from.

    ============= ========================================================= ========== =====
    state         what it waits for                                          position   valid
    ============= ========================================================= ========== =====
    INITIALIZING  the committed offset, or else a reset                      no         no
    FETCHING      nothing                                                    yes        yes
    AWAIT_RESET   the beginning, the end or a time, looked up at the leader  no         no
    AWAIT_        the leader's word that what was read before is still       yes        no
    VALIDATION    there (KIP-320)
    ============= ========================================================= ========== =====

    A position that has been found invalid is looked up anew: from AWAIT_RESET there is no way back to validation.
    """

    INITIALIZING = "initializing"
    FETCHING = "fetching"
    AWAIT_RESET = "await_reset"
    AWAIT_VALIDATION = "await_validation"

    @property
    def has_position(self) -> bool:
        return self is FetchState.FETCHING or self is FetchState.AWAIT_VALIDATION


FETCHING: Final = FetchState.FETCHING
"""Bound here, as the two below: to look a member up in its class takes as long as a call, and these are asked for of
every partition in every turn of both threads."""
_AWAIT_RESET: Final = FetchState.AWAIT_RESET
_AWAIT_VALIDATION: Final = FetchState.AWAIT_VALIDATION

VALID_TRANSITIONS: Final[dict[FetchState, frozenset[FetchState]]] = {
    FetchState.INITIALIZING: frozenset({FetchState.FETCHING, FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION}),
    FetchState.FETCHING: frozenset({FetchState.FETCHING, FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION}),
    FetchState.AWAIT_RESET: frozenset({FetchState.FETCHING, FetchState.AWAIT_RESET}),
    FetchState.AWAIT_VALIDATION: frozenset({FetchState.FETCHING, FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION}),
}


class RecordsInHand:
    """Records that an application iterates over: collected, but handed out one at a time.

    The consumer's own position is behind all of them, so that the next fetch is under way meanwhile. What the
    application has *consumed* is less, and that is what `commit` and `position` are about: a loop that commits after
    each record must not commit records that it has not seen. How far it has come is asked of the list's iterator, so
    that handing out a record costs nothing but that.
    """

    __slots__ = ("_records", "iterator", "leader", "partition")

    def __init__(self, partition: TopicPartition, records: list[ConsumerRecord], leader: LeaderAndEpoch) -> None:
        self.partition = partition
        self.leader = leader
        self._records = records
        self.iterator = iter(records)

    def position(self) -> FetchPosition | None:
        """Of the next record to hand out; None when there is none left."""
        left = length_hint(self.iterator)
        if not left:
            return None
        records = self._records
        epoch = records[-left - 1].leader_epoch if left < len(records) else records[-left].leader_epoch
        return FetchPosition(records[-left].offset, epoch, self.leader)

    def take(self) -> list[ConsumerRecord]:
        """All that is left, which the iterator gives no more."""
        left = list(self.iterator)
        self._records.clear()
        return left

    def drop(self) -> None:
        self._records.clear()


class TopicPartitionState:
    """All that a consumer knows about one partition that it has.

    Belongs to `SubscriptionState`, whose lock guards it.
    """

    __slots__ = (
        "end_offset_requested",
        "fetch_state",
        "high_watermark",
        "in_hand",
        "last_stable_offset",
        "log_start_offset",
        "next_retry_ms",
        "paused",
        "pending_on_assigned_callback",
        "pending_revocation",
        "position",
        "preferred_read_replica",
        "preferred_read_replica_expire_ms",
        "reset_strategy",
    )

    def __init__(self) -> None:
        self.fetch_state = FetchState.INITIALIZING
        self.position: FetchPosition | None = None
        self.high_watermark: int | None = None
        self.log_start_offset: int | None = None
        self.last_stable_offset: int | None = None
        self.paused = False
        self.pending_revocation = False
        """The group wants this partition back: nothing is fetched any more, while the listener still runs."""
        self.pending_on_assigned_callback = False
        """The listener has yet to hear of this partition: nothing is fetched before it may have sought."""
        self.reset_strategy: AutoOffsetResetStrategy | None = None
        self.next_retry_ms: int | None = None
        self.preferred_read_replica: int | None = None
        self.preferred_read_replica_expire_ms: int | None = None
        self.end_offset_requested = False
        self.in_hand: RecordsInHand | None = None

    # -- what state it is in

    @property
    def has_valid_position(self) -> bool:
        return self.fetch_state is FETCHING

    @property
    def awaiting_reset(self) -> bool:
        return self.fetch_state is _AWAIT_RESET

    @property
    def awaiting_validation(self) -> bool:
        return self.fetch_state is _AWAIT_VALIDATION

    @property
    def should_initialize(self) -> bool:
        return self.fetch_state is FetchState.INITIALIZING

    @property
    def is_fetchable(self) -> bool:
        return (
            self.fetch_state is FETCHING
            and not self.paused
            and not self.pending_revocation
            and not self.pending_on_assigned_callback
        )

    def awaiting_retry_backoff(self, now: int) -> bool:
        return self.next_retry_ms is not None and now < self.next_retry_ms

    # -- how it changes

    def _transition(self, to: FetchState, position: FetchPosition | None) -> bool:
        if to not in VALID_TRANSITIONS[self.fetch_state]:
            return False
        self.fetch_state = to
        self.position = position
        self.next_retry_ms = None
        return True

    def reset(self, strategy: AutoOffsetResetStrategy) -> None:
        if self._transition(FetchState.AWAIT_RESET, None):
            self.reset_strategy = strategy
            self._drop_in_hand()

    def seek_validated(self, position: FetchPosition) -> None:
        if self._transition(FetchState.FETCHING, position):
            self.reset_strategy = None
            self._drop_in_hand()

    def seek_unvalidated(self, position: FetchPosition) -> None:
        self.seek_validated(position)
        self._validate(position)

    def maybe_validate_position(self, leader: LeaderAndEpoch) -> bool:
        """Whether the position has to be validated, which it has when the leader is another than it was read from."""
        if self.fetch_state is FetchState.AWAIT_RESET or leader.leader is None:
            return False
        position = self.position
        if position is not None and position.current_leader != leader:
            self._validate(position._replace(current_leader=leader))
            self.preferred_read_replica = None
        return self.fetch_state is FetchState.AWAIT_VALIDATION

    def _validate(self, position: FetchPosition) -> None:
        # Without epochs there is nothing to compare, and the position is believed.
        known = position.offset_epoch is not None and position.current_leader.epoch is not None
        self._transition(FetchState.AWAIT_VALIDATION if known else FetchState.FETCHING, position)

    def update_leader_without_validation(self, leader: LeaderAndEpoch) -> None:
        """For brokers that are too old to be asked."""
        if self.position is not None:
            self._transition(FetchState.FETCHING, self.position._replace(current_leader=leader))

    def complete_validation(self) -> None:
        if self.position is not None:
            self._transition(FetchState.FETCHING, self.position)

    def consumed(self) -> FetchPosition | None:
        """The position as the application sees it, which lags behind where records are in its hand."""
        if self.in_hand is not None:
            held = self.in_hand.position()
            if held is not None:
                return held
            self.in_hand = None
        return self.position

    def _drop_in_hand(self) -> None:
        if self.in_hand is not None:
            self.in_hand.drop()
            self.in_hand = None

    def release(self) -> None:
        """The partition is no longer this consumer's."""
        self._drop_in_hand()

    # -- where to read

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
        flags = [
            name for name in ("paused", "pending_revocation", "pending_on_assigned_callback") if getattr(self, name)
        ]
        return f"TopicPartitionState({' '.join([self.fetch_state.value, *flags])}, {self.position})"
