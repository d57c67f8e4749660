"""What a consumer is subscribed to, which partitions it has, and where it is in each."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from barnabas.clients.common.errors import IllegalStateError
from barnabas.clients.common.offsets import OffsetAndMetadata
from barnabas.clients.consumer.auto_offset_reset import AutoOffsetResetStrategy, StrategyType
from barnabas.clients.consumer.errors import NoOffsetForPartitionError
from barnabas.clients.consumer.internals.fetch_position import (
    FETCHING,
    FetchPosition,
    LeaderAndEpoch,
    LogTruncation,
    RecordsInHand,
    TopicPartitionState,
)
from barnabas.clients.consumer.subscription_pattern import SubscriptionPattern
from barnabas.common.topic_partition import TopicPartition

if TYPE_CHECKING:
    from barnabas.clients.consumer.rebalance_listener import ConsumerRebalanceListener

log = logging.getLogger(__name__)

_EXCLUSIVE: Final = "Subscription to topics, partitions and pattern are mutually exclusive"

READ_COMMITTED: Final = 1


class SubscriptionType(Enum):
    NONE = auto()
    AUTO_TOPICS = auto()
    """A list of topics; the group says which of their partitions."""
    AUTO_PATTERN = auto()
    """A pattern that this consumer matches with the topics it knows."""
    AUTO_PATTERN_RE2J = auto()
    """A pattern that the group coordinator matches."""
    USER_ASSIGNED = auto()
    """Partitions that the application chose itself."""


_AUTO: Final = frozenset(
    {SubscriptionType.AUTO_TOPICS, SubscriptionType.AUTO_PATTERN, SubscriptionType.AUTO_PATTERN_RE2J}
)


class SubscriptionState:
    """Topics, patterns, partitions, positions: the one thing that both threads of a consumer look at.

    The application thread subscribes, seeks, pauses, and moves positions on as it takes records; the background thread
    assigns what the group says, and resets and validates positions. So there is a lock, and it is never held while
    anything else is waited for.

    Subscribing and assigning exclude each other: one of them decides the *type*, and only `unsubscribe` lets another
    in.

    The order of the assignment matters: it is the order in which partitions are named in fetch requests, and a broker
    fills its answer in that order. A partition that has just given records moves to the end, so that all get their
    turn.
    """

    def __init__(self, default_reset_strategy: AutoOffsetResetStrategy) -> None:
        self._default_reset_strategy = default_reset_strategy
        self.lock = threading.RLock()
        """Guards everything here, and the states of all partitions. Inside it, `on_change` locks the fetch buffer;
        nothing else is."""
        self.on_change: Callable[[], None] = lambda: None
        """Wakes an application that waits: there are other partitions, or there is another position."""
        self._type = SubscriptionType.NONE
        self._pattern: re.Pattern[str] | None = None
        self._re2j_pattern: SubscriptionPattern | None = None
        self._subscription: frozenset[str] = frozenset()
        self._group_subscription: frozenset[str] = frozenset()
        self._assignment: dict[TopicPartition, TopicPartitionState] = {}
        self._listener: ConsumerRebalanceListener | None = None
        self.assignment_id = 0
        """Another one for each other set of partitions. To be read without the lock."""

    # -- subscribing

    def subscribe(self, topics: Iterable[str], listener: ConsumerRebalanceListener | None = None) -> bool:
        """To a list of topics; returns whether that is another list than before."""
        with self.lock:
            self._set_type(SubscriptionType.AUTO_TOPICS)
            self._listener = listener
            return self._change_subscription(topics)

    def subscribe_pattern(
        self,
        pattern: re.Pattern[str] | SubscriptionPattern,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        with self.lock:
            if isinstance(pattern, SubscriptionPattern):
                self._set_type(SubscriptionType.AUTO_PATTERN_RE2J)
                self._re2j_pattern = pattern
            else:
                self._set_type(SubscriptionType.AUTO_PATTERN)
                self._pattern = pattern
            self._listener = listener

    def subscribe_from_pattern(self, topics: Iterable[str]) -> bool:
        """The topics that match the pattern at the moment; returns whether they are others than before."""
        with self.lock:
            if self._type is not SubscriptionType.AUTO_PATTERN:
                raise IllegalStateError(
                    f"Attempt to subscribe from pattern while subscription type set to {self._type}"
                )
            return self._change_subscription(topics)

    def group_subscribe(self, topics: Iterable[str]) -> bool:
        """What all members of the group together are subscribed to: the leader of a classic group has to know the
        metadata of these. Returns whether there is any that this consumer itself is not subscribed to."""
        with self.lock:
            if self._type not in _AUTO:
                raise IllegalStateError(_EXCLUSIVE)
            self._group_subscription = frozenset(topics)
            return not self._group_subscription <= self._subscription

    def reset_group_subscription(self) -> None:
        with self.lock:
            self._group_subscription = frozenset()

    def unsubscribe(self) -> None:
        with self.lock:
            self._subscription = self._group_subscription = frozenset()
            self._replace_assignment(())
            self._pattern = None
            self._re2j_pattern = None
            self._listener = None
            self._type = SubscriptionType.NONE

    def _set_type(self, kind: SubscriptionType) -> None:
        if self._type is SubscriptionType.NONE:
            self._type = kind
        elif self._type is not kind:
            raise IllegalStateError(_EXCLUSIVE)

    def _change_subscription(self, topics: Iterable[str]) -> bool:
        changed = frozenset(topics)
        if changed == self._subscription:
            return False
        self._subscription = changed
        return True

    # -- assigning

    def assign_from_user(self, partitions: Iterable[TopicPartition]) -> bool:
        """Returns whether topics are among them that were not needed before."""
        with self.lock:
            self._set_type(SubscriptionType.USER_ASSIGNED)
            wanted = list(dict.fromkeys(partitions))
            if set(wanted) == set(self._assignment):
                return False
            self._replace_assignment(wanted)
            return self._change_subscription(partition.topic for partition in wanted)

    def assign_from_subscribed(self, partitions: Iterable[TopicPartition]) -> None:
        """What the group has decided."""
        with self.lock:
            self._ensure_auto()
            self._replace_assignment(partitions)

    def assign_from_subscribed_awaiting_callback(
        self, full: Iterable[TopicPartition], added: Iterable[TopicPartition]
    ) -> None:
        """The same; of those that are new, nothing is fetched before the listener has been told."""
        with self.lock:
            self._ensure_auto()
            self._replace_assignment(full)
            for partition in added:
                state = self._assignment.get(partition)
                if state is not None:
                    state.pending_on_assigned_callback = True

    def enable_partitions_awaiting_callback(self, partitions: Iterable[TopicPartition]) -> None:
        with self.lock:
            for partition in partitions:
                state = self._assignment.get(partition)
                if state is not None:
                    state.pending_on_assigned_callback = False
        self.on_change()

    def check_assignment_matched_subscription(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether all of them are of topics that are (still) subscribed to."""
        with self.lock:
            if self._type is SubscriptionType.AUTO_PATTERN and self._pattern is not None:
                return all(self._pattern.fullmatch(partition.topic) for partition in partitions)
            if self._type is SubscriptionType.AUTO_PATTERN_RE2J:
                return True  # it was the broker that matched
            return all(partition.topic in self._subscription for partition in partitions)

    def _ensure_auto(self) -> None:
        if self._type not in _AUTO:
            raise IllegalStateError("Attempt to dynamically assign partitions while manual assignment in use")

    def _replace_assignment(self, partitions: Iterable[TopicPartition]) -> None:
        before = self._assignment
        self._assignment = {partition: before.get(partition) or TopicPartitionState() for partition in partitions}
        for partition, state in before.items():
            if partition not in self._assignment:
                state.release()
        self.assignment_id += 1
        self.on_change()

    # -- what it is now

    @property
    def subscription_type(self) -> SubscriptionType:
        return self._type

    def subscription(self) -> frozenset[str]:
        with self.lock:
            return self._subscription if self._type in _AUTO else frozenset()

    @property
    def subscribed_pattern(self) -> re.Pattern[str] | None:
        return self._pattern

    @property
    def subscribed_re2j_pattern(self) -> SubscriptionPattern | None:
        return self._re2j_pattern

    def has_pattern_subscription(self) -> bool:
        return self._type is SubscriptionType.AUTO_PATTERN

    def has_re2j_pattern_subscription(self) -> bool:
        return self._type is SubscriptionType.AUTO_PATTERN_RE2J

    def has_no_subscription_or_user_assignment(self) -> bool:
        return self._type is SubscriptionType.NONE

    def has_auto_assigned_partitions(self) -> bool:
        return self._type in _AUTO

    def is_user_assigned(self) -> bool:
        return self._type is SubscriptionType.USER_ASSIGNED

    def matches_subscribed_pattern(self, topic: str) -> bool:
        with self.lock:
            return self._pattern is not None and self._pattern.fullmatch(topic) is not None

    def metadata_topics(self) -> frozenset[str]:
        """The topics whose metadata this consumer needs."""
        with self.lock:
            return self._subscription | self._group_subscription | {partition.topic for partition in self._assignment}

    def needs_metadata(self, topic: str) -> bool:
        with self.lock:
            return (
                topic in self._subscription
                or topic in self._group_subscription
                or any(partition.topic == topic for partition in self._assignment)
            )

    @property
    def rebalance_listener(self) -> ConsumerRebalanceListener | None:
        return self._listener

    def assigned_partitions(self) -> set[TopicPartition]:
        with self.lock:
            return set(self._assignment)

    def assigned_partitions_list(self) -> list[TopicPartition]:
        with self.lock:
            return list(self._assignment)

    def is_assigned(self, partition: TopicPartition) -> bool:
        return partition in self._assignment

    def num_assigned_partitions(self) -> int:
        return len(self._assignment)

    # -- positions

    def _state(self, partition: TopicPartition) -> TopicPartitionState:
        state = self._assignment.get(partition)
        if state is None:
            raise IllegalStateError(f"No current assignment for partition {partition}")
        return state

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.seek_validated(partition, FetchPosition(offset))

    def seek_validated(self, partition: TopicPartition, position: FetchPosition) -> None:
        with self.lock:
            self._state(partition).seek_validated(position)

    def seek_unvalidated(self, partition: TopicPartition, position: FetchPosition) -> None:
        with self.lock:
            self._state(partition).seek_unvalidated(position)
            self.on_change()

    def maybe_seek_unvalidated(
        self, partition: TopicPartition, position: FetchPosition, strategy: AutoOffsetResetStrategy
    ) -> None:
        """The outcome of a reset, if it is still wanted."""
        with self.lock:
            state = self._assignment.get(partition)
            if state is None or not state.awaiting_reset or state.reset_strategy != strategy:
                log.debug("The reset of %s is no longer needed", partition)
                return
            log.info("Resetting offset for partition %s to position %s.", partition, position)
            state.seek_unvalidated(position)
            self.on_change()

    def set_position(self, partition: TopicPartition, position: FetchPosition) -> None:
        with self.lock:
            state = self._state(partition)
            if not state.has_valid_position:
                raise IllegalStateError(f"Cannot set a new position for {partition} without a valid current position")
            state.position = position

    def position(self, partition: TopicPartition) -> FetchPosition | None:
        """Where the next fetch goes on."""
        with self.lock:
            return self._state(partition).position

    def position_or_none(self, partition: TopicPartition) -> FetchPosition | None:
        with self.lock:
            state = self._assignment.get(partition)
            return None if state is None else state.position

    def valid_position(self, partition: TopicPartition) -> FetchPosition | None:
        with self.lock:
            state = self._state(partition)
            return state.position if state.has_valid_position else None

    def consumed_position(self, partition: TopicPartition) -> FetchPosition | None:
        """Where the application is: behind what has been handed to it."""
        with self.lock:
            state = self._state(partition)
            return state.consumed() if state.has_valid_position else None

    def hold(self, in_hand: RecordsInHand) -> None:
        """Records of a partition are being iterated over."""
        with self.lock:
            state = self._assignment.get(in_hand.partition)
            if state is None:
                in_hand.drop()
            else:
                state.in_hand = in_hand

    def take_in_hand(self) -> list[RecordsInHand]:
        """The records that an iteration left over."""
        with self.lock:
            held = [state.in_hand for state in self._assignment.values() if state.in_hand is not None]
            if not held:
                return held
            for state in self._assignment.values():
                state.in_hand = None
            return held

    def all_consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What may be committed: the offset after the last record that the application got, of each partition."""
        with self.lock:
            found = {}
            for partition, state in self._assignment.items():
                if state.fetch_state.has_position:
                    position = state.consumed()
                    assert position is not None
                    found[partition] = OffsetAndMetadata(position.offset, "", position.offset_epoch)
            return found

    def fetchable_partitions(self, is_available: Callable[[TopicPartition], bool]) -> list[TopicPartition]:
        with self.lock:
            return [
                partition
                for partition, state in self._assignment.items()
                if state.is_fetchable and is_available(partition)
            ]

    def is_fetchable(self, partition: TopicPartition) -> bool:
        with self.lock:
            state = self._assignment.get(partition)
            return state is not None and state.is_fetchable

    def fetchable_position(self, partition: TopicPartition) -> FetchPosition | None:
        """Where a partition is, if records of it may be handed out now."""
        with self.lock:
            state = self._assignment.get(partition)
            if (
                state is None
                or state.fetch_state is not FETCHING
                or state.paused
                or state.pending_revocation
                or state.pending_on_assigned_callback
            ):
                return None
            return state.position

    def fetchable_positions(self) -> dict[TopicPartition, FetchPosition]:
        """The same of all partitions of which records may be handed out now."""
        with self.lock:
            return {
                partition: state.position
                for partition, state in self._assignment.items()
                if state.fetch_state is FETCHING
                and not (state.paused or state.pending_revocation or state.pending_on_assigned_callback)
                and state.position is not None
            }

    def has_valid_position(self, partition: TopicPartition) -> bool:
        with self.lock:
            state = self._assignment.get(partition)
            return state is not None and state.has_valid_position

    def has_all_fetch_positions(self) -> bool:
        with self.lock:
            return not [state for state in self._assignment.values() if state.fetch_state is not FETCHING]

    def partitions_without_leader(self) -> list[TopicPartition]:
        """Those that have a position, and of which it is not known whom to fetch from."""
        with self.lock:
            return [
                partition
                for partition, state in self._assignment.items()
                if state.position is not None and state.position.current_leader.leader is None
            ]

    def initializing_partitions(self) -> set[TopicPartition]:
        """Those that have no position yet, and whose listener has been told about them."""
        with self.lock:
            return {
                partition
                for partition, state in self._assignment.items()
                if state.should_initialize and not state.pending_on_assigned_callback
            }

    def reset_initializing_positions(self, among: Callable[[TopicPartition], bool] = lambda _partition: True) -> None:
        """Those without a position are reset as ``auto.offset.reset`` says; or, if it says none, that is an error."""
        with self.lock:
            without_policy = []
            for partition, state in self._assignment.items():
                if state.should_initialize and among(partition):
                    if self._default_reset_strategy.type is StrategyType.NONE:
                        without_policy.append(partition)
                    else:
                        state.reset(self._default_reset_strategy)
        if without_policy:
            raise NoOffsetForPartitionError(without_policy)

    # -- reset

    @property
    def default_reset_strategy(self) -> AutoOffsetResetStrategy:
        return self._default_reset_strategy

    def has_default_offset_reset_policy(self) -> bool:
        return self._default_reset_strategy.type is not StrategyType.NONE

    def request_offset_reset(
        self, partitions: Iterable[TopicPartition], strategy: AutoOffsetResetStrategy | None = None
    ) -> None:
        with self.lock:
            for partition in partitions:
                self._state(partition).reset(strategy or self._default_reset_strategy)

    def request_offset_reset_if_assigned(self, partition: TopicPartition) -> None:
        with self.lock:
            state = self._assignment.get(partition)
            if state is not None:
                state.reset(self._default_reset_strategy)

    def partitions_needing_reset(self, now: int) -> dict[TopicPartition, AutoOffsetResetStrategy]:
        with self.lock:
            return {
                partition: state.reset_strategy
                for partition, state in self._assignment.items()
                if state.awaiting_reset and not state.awaiting_retry_backoff(now) and state.reset_strategy is not None
            }

    def is_offset_reset_needed(self, partition: TopicPartition) -> bool:
        with self.lock:
            state = self._assignment.get(partition)
            return state is not None and state.awaiting_reset

    def set_next_allowed_retry(self, partitions: Iterable[TopicPartition], retry_ms: int) -> None:
        """A request about them has gone out, or failed: nothing more before this time."""
        with self.lock:
            for partition in partitions:
                state = self._assignment.get(partition)
                if state is not None:
                    state.next_retry_ms = retry_ms

    def all_settled(self) -> bool:
        """Whether no partition is to be reset or validated, and no position lacks a leader: as nearly always."""
        with self.lock:
            for state in self._assignment.values():
                position = state.position
                if state.fetch_state is not FETCHING or position is None or position.current_leader.leader is None:
                    return False
        return True

    def time_until_next_retry(self, now: int) -> int | None:
        """When a partition that is to be reset or validated may be asked about again; None: there is none."""
        with self.lock:
            times = [
                max((state.next_retry_ms or now) - now, 0)
                for state in self._assignment.values()
                if state.awaiting_reset or state.awaiting_validation
            ]
            return min(times, default=None)

    # -- validation

    def maybe_validate_position_for_current_leader(
        self, partition: TopicPartition, leader: LeaderAndEpoch, *, can_validate: bool = True
    ) -> bool:
        with self.lock:
            state = self._assignment.get(partition)
            if state is None:
                return False
            if leader.leader is not None and not can_validate:
                state.update_leader_without_validation(leader)
                return False
            return state.maybe_validate_position(leader)

    def partitions_needing_validation(self, now: int) -> list[TopicPartition]:
        with self.lock:
            return [
                partition
                for partition, state in self._assignment.items()
                if state.awaiting_validation and not state.awaiting_retry_backoff(now)
            ]

    def awaiting_validation(self, partition: TopicPartition) -> bool:
        with self.lock:
            state = self._assignment.get(partition)
            return state is not None and state.awaiting_validation

    def complete_validation(self, partition: TopicPartition) -> None:
        with self.lock:
            state = self._assignment.get(partition)
            if state is not None:
                state.complete_validation()
                self.on_change()

    def maybe_complete_validation(
        self, partition: TopicPartition, asked: FetchPosition, end_epoch: int, end_offset: int
    ) -> LogTruncation | None:
        """The leader has said where the epoch of a position ends in its log. If that is before the position, then what
        was read up to there has been lost since; the consumer goes back to where both agree, if it may by itself."""
        with self.lock:
            state = self._assignment.get(partition)
            if state is None or not state.awaiting_validation or state.position != asked:
                log.debug("The validation of %s is no longer needed", partition)
                return None
            has_policy = self.has_default_offset_reset_policy()
            if end_offset < 0 or end_epoch < 0:
                if has_policy:
                    log.info("Truncation detected for partition %s at offset %s, resetting offset", partition, asked)
                    state.reset(self._default_reset_strategy)
                    return None
                log.warning("Truncation detected for partition %s at offset %s with no reset policy", partition, asked)
                return LogTruncation(partition, asked, None)
            if end_offset < asked.offset:
                if has_policy:
                    position = FetchPosition(end_offset, end_epoch, asked.current_leader)
                    log.info("Truncation detected for partition %s at offset %s, now at %s", partition, asked, position)
                    state.seek_validated(position)
                    return None
                log.warning("Truncation detected for partition %s at offset %s with no reset policy", partition, asked)
                return LogTruncation(partition, asked, OffsetAndMetadata(end_offset, "", end_epoch))
            state.complete_validation()
            self.on_change()
            return None

    # -- pausing

    def pause(self, partition: TopicPartition) -> None:
        with self.lock:
            self._state(partition).paused = True

    def resume(self, partition: TopicPartition) -> None:
        with self.lock:
            self._state(partition).paused = False

    def is_paused(self, partition: TopicPartition) -> bool:
        with self.lock:
            state = self._assignment.get(partition)
            return state is not None and state.paused

    def paused_partitions(self) -> set[TopicPartition]:
        with self.lock:
            return {partition for partition, state in self._assignment.items() if state.paused}

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        with self.lock:
            for partition in partitions:
                self._state(partition).pending_revocation = True

    # -- what fetches tell

    def advance(
        self,
        partition: TopicPartition,
        position: FetchPosition,
        *,
        move_to_end: bool = False,
    ) -> bool:
        """Records up to here have been taken; False if the partition is not this consumer's any more, or has no valid
        position now. With ``move_to_end`` it is `move_partition_to_end` as well."""
        with self.lock:
            state = self._assignment.get(partition)
            if state is None:
                return False
            if move_to_end:
                self._assignment[partition] = self._assignment.pop(partition)
            if state.fetch_state is not FETCHING:
                return False
            state.position = position
            return True

    def move_partition_to_end(self, partition: TopicPartition) -> None:
        with self.lock:
            if partition in self._assignment:
                self._assignment[partition] = self._assignment.pop(partition)

    def try_updating_watermarks(
        self,
        partition: TopicPartition,
        high_watermark: int,
        log_start_offset: int,
        last_stable_offset: int,
        at_offset: int | None = None,
    ) -> bool:
        """What an answer says of a partition; nothing and False, if ``at_offset`` is not its (valid) position."""
        with self.lock:
            state = self._assignment.get(partition)
            if state is None:
                return False
            if at_offset is not None:
                position = state.position
                if position is None or position.offset != at_offset or state.fetch_state is not FETCHING:
                    return False
            if high_watermark >= 0:
                state.high_watermark = high_watermark
                state.end_offset_requested = False
            if log_start_offset >= 0:
                state.log_start_offset = log_start_offset
            if last_stable_offset >= 0:
                state.last_stable_offset = last_stable_offset
                state.end_offset_requested = False
            return True

    def update_end_offset(self, partition: TopicPartition, offset: int, isolation_level: int) -> None:
        """The end of a partition, from an answer to ListOffsets."""
        with self.lock:
            state = self._assignment.get(partition)
            if state is not None:
                if isolation_level == READ_COMMITTED:
                    state.last_stable_offset = offset
                else:
                    state.high_watermark = offset
                state.end_offset_requested = False

    def partition_end_offset(self, partition: TopicPartition, isolation_level: int) -> int | None:
        with self.lock:
            state = self._state(partition)
            return state.last_stable_offset if isolation_level == READ_COMMITTED else state.high_watermark

    def request_partition_end_offset(self, partition: TopicPartition) -> bool:
        """Marks that the end is being asked for; False if it is already."""
        with self.lock:
            state = self._state(partition)
            if state.end_offset_requested:
                return False
            state.end_offset_requested = True
            return True

    def partition_lag(self, partition: TopicPartition, isolation_level: int) -> int | None:
        with self.lock:
            state = self._state(partition)
            end = state.last_stable_offset if isolation_level == READ_COMMITTED else state.high_watermark
            position = state.consumed()
            return None if end is None or position is None else max(end - position.offset, 0)

    def partition_lead(self, partition: TopicPartition) -> int | None:
        with self.lock:
            state = self._state(partition)
            position = state.consumed()
            if state.log_start_offset is None or position is None:
                return None
            return position.offset - state.log_start_offset

    def lags_and_leads(
        self, partitions: Iterable[TopicPartition], isolation_level: int
    ) -> list[tuple[int | None, int | None] | None]:
        """`partition_lag` and `partition_lead` of each; None for one that is not this consumer's any more."""
        read_committed = isolation_level == READ_COMMITTED
        found: list[tuple[int | None, int | None] | None] = []
        with self.lock:
            for partition in partitions:
                state = self._assignment.get(partition)
                if state is None:
                    found.append(None)
                    continue
                position = state.position if state.in_hand is None else state.consumed()
                lag = lead = None
                if position is not None:
                    offset, start = position.offset, state.log_start_offset
                    end = state.last_stable_offset if read_committed else state.high_watermark
                    if end is not None:
                        lag = end - offset if end > offset else 0
                    if start is not None:
                        lead = offset - start
                found.append((lag, lead))
        return found

    def preferred_read_replica(self, partition: TopicPartition, now: int) -> int | None:
        with self.lock:
            state = self._assignment.get(partition)
            return None if state is None else state.preferred_replica(now)

    def update_preferred_read_replica(
        self, partition: TopicPartition, replica: int, expire_ms: Callable[[], int]
    ) -> None:
        with self.lock:
            state = self._assignment.get(partition)
            if state is not None:
                state.update_preferred_read_replica(replica, expire_ms)

    def clear_preferred_read_replica(self, partition: TopicPartition) -> int | None:
        with self.lock:
            state = self._assignment.get(partition)
            return None if state is None else state.clear_preferred_read_replica()

    def fetch_plan(self, now: int) -> list[tuple[TopicPartition, FetchPosition, int | None]]:
        """The partitions that can be fetched now, with their positions and their preferred read replicas."""
        with self.lock:
            return [
                (
                    partition,
                    state.position,
                    None if state.preferred_read_replica is None else state.preferred_replica(now),
                )
                for partition, state in self._assignment.items()
                # As `is_fetchable` says, without a call for every partition in every turn.
                if state.fetch_state is FETCHING
                and not state.paused
                and not state.pending_revocation
                and not state.pending_on_assigned_callback
                and state.position is not None
            ]

    def __repr__(self) -> str:
        with self.lock:
            return (
                f"SubscriptionState({self._type.name}, subscription {sorted(self._subscription)}, "
                f"assignment {self._assignment} (id {self.assignment_id}))"
            )
