"""The fetch positions of the assigned partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barnabas.clients.common.offsets import OffsetAndMetadata
from barnabas.clients.consumer.internals.assignment import Assignment
from barnabas.clients.consumer.internals.fetch_position import FetchPosition, RecordsInHand
from barnabas.clients.consumer.internals.topic_partition_state import (
    AWAIT_RESET,
    AWAIT_VALIDATION,
    FETCHING,
    PENDING_ON_ASSIGNED_CALLBACK,
    FetchState,
)
from barnabas.common.topic_partition import TopicPartition


class Positions:
    """Where the next fetch of each partition starts, and how far the application has consumed.

    The two differ while the application iterates over records (see `RecordsInHand`): the fetch position is behind all
    of them, and the committable position is not.
    """

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._lock = assignment.lock

    def seek_validated(self, partition: TopicPartition, position: FetchPosition) -> None:
        with self._lock:
            self._assignment.state(partition).seek_validated(position)

    def seek_unvalidated(self, partition: TopicPartition, position: FetchPosition) -> None:
        with self._lock:
            self._assignment.state(partition).seek_unvalidated(position)
            self._assignment.on_change()

    def position(self, partition: TopicPartition) -> FetchPosition | None:
        """Returns where the next fetch starts; None if there is no position, or the partition is not assigned."""
        with self._lock:
            state = self._assignment.states.get(partition)
            return None if state is None else state.position

    def has_valid_position(self, partition: TopicPartition) -> bool:
        with self._lock:
            state = self._assignment.states.get(partition)
            return state is not None and state.has_valid_position

    def has_all_fetch_positions(self) -> bool:
        with self._lock:
            return not [state for state in self._assignment.states.values() if state.fetch_state is not FETCHING]

    def all_settled(self) -> bool:
        """Returns whether every partition has a valid position with a leader: the common case, checked in one pass."""
        with self._lock:
            for state in self._assignment.states.values():
                position = state.position
                if state.fetch_state is not FETCHING or position is None or position.current_leader.leader is None:
                    return False
        return True

    def initializing_partitions(self) -> set[TopicPartition]:
        """Returns the partitions that have no position yet, and whose listener has run."""
        with self._lock:
            return {
                partition
                for partition, state in self._assignment.states.items()
                if state.fetch_state is FetchState.INITIALIZING and not state.suspended & PENDING_ON_ASSIGNED_CALLBACK
            }

    def partitions_without_leader(self) -> list[TopicPartition]:
        """Returns the partitions that have a position, and whose leader is unknown."""
        with self._lock:
            return [
                partition
                for partition, state in self._assignment.states.items()
                if state.position is not None and state.position.current_leader.leader is None
            ]

    # -- fetching

    def fetch_plan(self, now: int) -> list[tuple[TopicPartition, FetchPosition, int | None]]:
        """Returns the fetchable partitions with their positions and preferred read replicas."""
        with self._lock:
            return [
                (
                    partition,
                    state.position,
                    None if state.preferred_read_replica is None else state.preferred_replica(now),
                )
                for partition, state in self._assignment.states.items()
                # Not `is_fetchable`: this saves a call for every partition in every iteration.
                if state.fetch_state is FETCHING and not state.suspended and state.position is not None
            ]

    def fetchable_position(self, partition: TopicPartition) -> FetchPosition | None:
        """Returns the position of a partition, if its records may be returned to the application now."""
        with self._lock:
            state = self._assignment.states.get(partition)
            if state is None or state.fetch_state is not FETCHING or state.suspended:
                return None
            return state.position

    def fetchable_positions(self) -> dict[TopicPartition, FetchPosition]:
        with self._lock:
            return {
                partition: state.position
                for partition, state in self._assignment.states.items()
                if state.fetch_state is FETCHING and not state.suspended and state.position is not None
            }

    def advance(self, partition: TopicPartition, position: FetchPosition, *, move_to_end: bool = False) -> bool:
        """Moves the position behind records that were taken, and with ``move_to_end`` lets other partitions go first.

        Returns False if the partition is not assigned any more, or has no valid position now.
        """
        with self._lock:
            states = self._assignment.states
            state = states.get(partition)
            if state is None:
                return False
            if move_to_end:
                states[partition] = states.pop(partition)
            if state.fetch_state is not FETCHING:
                return False
            state.position = position
            return True

    # -- consuming

    def consumed_position(self, partition: TopicPartition) -> FetchPosition | None:
        """Returns the position of the application, if it is valid."""
        with self._lock:
            state = self._assignment.state(partition)
            return state.consumed() if state.has_valid_position else None

    def all_consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the offsets that may be committed: those after the last records that the application got."""
        with self._lock:
            found = {}
            for partition, state in self._assignment.states.items():
                if state.fetch_state.has_position:
                    position = state.consumed()
                    assert position is not None
                    found[partition] = OffsetAndMetadata(position.offset, "", position.offset_epoch)
            return found

    def hold(self, in_hand: RecordsInHand) -> None:
        """Notes that the application iterates over these records."""
        with self._lock:
            state = self._assignment.states.get(in_hand.partition)
            if state is None:
                in_hand.drop()
            else:
                state.in_hand = in_hand

    def take_in_hand(self) -> list[RecordsInHand]:
        """Removes and returns the records that an iteration has left."""
        with self._lock:
            held = []
            for state in self._assignment.states.values():
                if state.in_hand is not None:
                    held.append(state.in_hand)
                    state.in_hand = None
            return held

    # -- requests for a reset or a validation

    def set_next_allowed_retry(self, partitions: Iterable[TopicPartition], retry_ms: int) -> None:
        """Notes that a request was sent or has failed: none is sent for these partitions before this time."""
        with self._lock:
            for partition in partitions:
                state = self._assignment.states.get(partition)
                if state is not None:
                    state.next_retry_ms = retry_ms

    def time_until_next_retry(self, now: int) -> int | None:
        """Returns when the next request may be sent; None if no partition awaits a reset or a validation."""
        with self._lock:
            return min(
                (
                    max((state.next_retry_ms or now) - now, 0)
                    for state in self._assignment.states.values()
                    if state.fetch_state is AWAIT_RESET or state.fetch_state is AWAIT_VALIDATION
                ),
                default=None,
            )

    # -- preferred read replicas (KIP-392)

    def preferred_read_replica(self, partition: TopicPartition, now: int) -> int | None:
        with self._lock:
            state = self._assignment.states.get(partition)
            return None if state is None else state.preferred_replica(now)

    def update_preferred_read_replica(
        self, partition: TopicPartition, replica: int, expire_ms: Callable[[], int]
    ) -> None:
        with self._lock:
            state = self._assignment.states.get(partition)
            if state is not None:
                state.update_preferred_read_replica(replica, expire_ms)

    def clear_preferred_read_replica(self, partition: TopicPartition) -> int | None:
        with self._lock:
            state = self._assignment.states.get(partition)
            return None if state is None else state.clear_preferred_read_replica()
