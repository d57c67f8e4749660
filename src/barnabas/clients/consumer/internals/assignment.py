"""The partitions that are assigned to a consumer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from barnabas.clients.common.errors import IllegalStateError
from barnabas.clients.consumer.internals.topic_partition_state import (
    PAUSED,
    PENDING_ON_ASSIGNED_CALLBACK,
    PENDING_REVOCATION,
    TopicPartitionState,
)
from barnabas.common.topic_partition import TopicPartition


class Assignment:
    """The assigned partitions in fetch order, each with its `TopicPartitionState`.

    The order matters: fetch requests name partitions in this order, and a broker fills its response in this order. A
    partition that has just returned records moves to the end, so that every partition gets its turn.

    A partition that stays assigned keeps its state. The state of a revoked partition is dropped, with its records that
    the application has not taken yet.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Guards the assignment, the states of its partitions and the subscription. `on_change` locks the fetch buffer
        inside it; nothing else is locked or waited for while it is held."""
        self.on_change: Callable[[], None] = lambda: None
        """Wakes the application thread after a change of the assignment or of a position."""
        self.states: dict[TopicPartition, TopicPartitionState] = {}
        """For the collaborators of `SubscriptionState`, which hold the lock."""
        self.id = 0
        """Changes with every new assignment. May be read without the lock."""

    def replace(self, partitions: Iterable[TopicPartition]) -> None:
        with self.lock:
            before = self.states
            self.states = {partition: before.get(partition) or TopicPartitionState() for partition in partitions}
            for partition, state in before.items():
                if partition not in self.states:
                    state.drop_in_hand()
            self.id += 1
            self.on_change()

    def state(self, partition: TopicPartition) -> TopicPartitionState:
        """Returns the state of a partition; raises `IllegalStateError` if it is not assigned."""
        state = self.states.get(partition)
        if state is None:
            raise IllegalStateError(f"No current assignment for partition {partition}")
        return state

    def partitions(self) -> set[TopicPartition]:
        with self.lock:
            return set(self.states)

    def in_fetch_order(self) -> list[TopicPartition]:
        with self.lock:
            return list(self.states)

    def move_to_end(self, partition: TopicPartition) -> None:
        """Lets the other partitions go first in the next fetch request."""
        with self.lock:
            if partition in self.states:
                self.states[partition] = self.states.pop(partition)

    def __contains__(self, partition: object) -> bool:
        return partition in self.states

    def __len__(self) -> int:
        return len(self.states)

    # -- suspended partitions

    def pause(self, partition: TopicPartition) -> None:
        with self.lock:
            self.state(partition).suspended |= PAUSED

    def resume(self, partition: TopicPartition) -> None:
        with self.lock:
            self.state(partition).suspended &= ~PAUSED

    def is_paused(self, partition: TopicPartition) -> bool:
        with self.lock:
            state = self.states.get(partition)
            return state is not None and bool(state.suspended & PAUSED)

    def paused_partitions(self) -> set[TopicPartition]:
        with self.lock:
            return {partition for partition, state in self.states.items() if state.suspended & PAUSED}

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        with self.lock:
            for partition in partitions:
                self.state(partition).suspended |= PENDING_REVOCATION

    def await_callback(self, partitions: Iterable[TopicPartition]) -> None:
        """Suspends new partitions until `on_partitions_assigned` has run."""
        with self.lock:
            for partition in partitions:
                if partition in self.states:
                    self.states[partition].suspended |= PENDING_ON_ASSIGNED_CALLBACK

    def enable_partitions_awaiting_callback(self, partitions: Iterable[TopicPartition]) -> None:
        with self.lock:
            for partition in partitions:
                if partition in self.states:
                    self.states[partition].suspended &= ~PENDING_ON_ASSIGNED_CALLBACK
        self.on_change()

    def __repr__(self) -> str:
        with self.lock:
            return f"Assignment({self.states}, id {self.id})"
