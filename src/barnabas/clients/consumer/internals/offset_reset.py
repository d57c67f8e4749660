"""Resets the positions of partitions as ``auto.offset.reset`` says."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable

from barnabas.clients.consumer.auto_offset_reset import AutoOffsetResetStrategy, StrategyType
from barnabas.clients.consumer.errors import NoOffsetForPartitionError
from barnabas.clients.consumer.internals.assignment import Assignment
from barnabas.clients.consumer.internals.fetch_position import FetchPosition
from barnabas.clients.consumer.internals.topic_partition_state import AWAIT_RESET, FetchState
from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger(__name__)


class OffsetReset:
    """The default reset strategy, and the partitions that await a reset."""

    def __init__(self, assignment: Assignment, default_strategy: AutoOffsetResetStrategy) -> None:
        self._assignment = assignment
        self._lock = assignment.lock
        self.default_strategy = default_strategy
        self.has_default_policy = default_strategy.type is not StrategyType.NONE
        """Whether the consumer may reset a position by itself, or has to report an error."""

    def request_offset_reset(
        self, partitions: Iterable[TopicPartition], strategy: AutoOffsetResetStrategy | None = None
    ) -> None:
        with self._lock:
            for partition in partitions:
                self._assignment.state(partition).reset(strategy or self.default_strategy)

    def request_offset_reset_if_assigned(self, partition: TopicPartition) -> None:
        with self._lock:
            state = self._assignment.states.get(partition)
            if state is not None:
                state.reset(self.default_strategy)

    def reset_initializing_positions(self, among: Container[TopicPartition]) -> None:
        """Resets those that have no position yet; raises `NoOffsetForPartitionError` if the policy is ``none``."""
        with self._lock:
            initializing = [
                partition
                for partition, state in self._assignment.states.items()
                if state.fetch_state is FetchState.INITIALIZING and partition in among
            ]
            if self.has_default_policy:
                self.request_offset_reset(initializing)
            elif initializing:
                raise NoOffsetForPartitionError(initializing)

    def partitions_needing_reset(self, now: int) -> dict[TopicPartition, AutoOffsetResetStrategy]:
        """Returns the partitions whose offset to request now, with their strategies."""
        with self._lock:
            return {
                partition: state.reset_strategy
                for partition, state in self._assignment.states.items()
                if state.may_request(AWAIT_RESET, now) and state.reset_strategy is not None
            }

    def maybe_complete_reset(
        self, partition: TopicPartition, position: FetchPosition, strategy: AutoOffsetResetStrategy
    ) -> None:
        """Moves a partition to the offset that was looked up for a strategy, if it still awaits that reset."""
        with self._lock:
            state = self._assignment.states.get(partition)
            if state is None or state.fetch_state is not AWAIT_RESET or state.reset_strategy != strategy:
                log.debug("The reset of %s is no longer needed", partition)
                return
            log.info("Resetting offset for partition %s to position %s.", partition, position)
            state.seek_unvalidated(position)
            self._assignment.on_change()
