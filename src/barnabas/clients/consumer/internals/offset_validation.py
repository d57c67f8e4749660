"""Validates positions after a change of leader (KIP-320)."""

from __future__ import annotations

import logging

from barnabas.clients.common.offsets import OffsetAndMetadata
from barnabas.clients.consumer.internals.assignment import Assignment
from barnabas.clients.consumer.internals.fetch_position import FetchPosition, LeaderAndEpoch, LogTruncation
from barnabas.clients.consumer.internals.offset_reset import OffsetReset
from barnabas.clients.consumer.internals.topic_partition_state import AWAIT_VALIDATION
from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger(__name__)


class OffsetValidation:
    """Checks whether the records before a position are still in the leader's log.

    A new leader reports where the epoch of a position ends in its log::

        consumer   epoch 4, position 120
        leader     epoch 4 ends at 120 or later: the position is valid
                   epoch 4 ends at 100:          the log was truncated; the consumer goes back to 100
                   epoch 4 is unknown:           the position is reset

    A consumer without a reset policy does not move by itself. It gets a `LogTruncation` to report.
    """

    def __init__(self, assignment: Assignment, resets: OffsetReset) -> None:
        self._assignment = assignment
        self._lock = assignment.lock
        self._resets = resets

    def maybe_validate_position_for_current_leader(
        self, partition: TopicPartition, leader: LeaderAndEpoch, *, can_validate: bool = True
    ) -> bool:
        """Takes the leader that metadata names. Returns whether the position has to be validated."""
        with self._lock:
            state = self._assignment.states.get(partition)
            if state is None:
                return False
            if leader.leader is not None and not can_validate:
                state.update_leader_without_validation(leader)
                return False
            return state.maybe_validate_position(leader)

    def partitions_needing_validation(self, now: int) -> list[TopicPartition]:
        with self._lock:
            states = self._assignment.states
            return [partition for partition, state in states.items() if state.may_request(AWAIT_VALIDATION, now)]

    def complete_validation(self, partition: TopicPartition) -> None:
        """Accepts a position as valid, because its leader cannot validate it."""
        with self._lock:
            state = self._assignment.states.get(partition)
            if state is not None:
                state.complete_validation()
                self._assignment.on_change()

    def maybe_complete_validation(
        self, partition: TopicPartition, asked: FetchPosition, end_epoch: int, end_offset: int
    ) -> LogTruncation | None:
        """Takes the leader's end offset for the epoch of a position, if that is still the position."""
        with self._lock:
            state = self._assignment.states.get(partition)
            if state is None or state.fetch_state is not AWAIT_VALIDATION or state.position != asked:
                log.debug("The validation of %s is no longer needed", partition)
                return None
            is_unknown = end_offset < 0 or end_epoch < 0
            if not is_unknown and end_offset >= asked.offset:
                state.complete_validation()
                self._assignment.on_change()
                return None
            if not self._resets.has_default_policy:
                log.warning("Truncation detected for partition %s at offset %s with no reset policy", partition, asked)
                divergent = None if is_unknown else OffsetAndMetadata(end_offset, "", end_epoch)
                return LogTruncation(partition, asked, divergent)
            if is_unknown:
                log.info("Truncation detected for partition %s at offset %s, resetting offset", partition, asked)
                state.reset(self._resets.default_strategy)
            else:
                position = FetchPosition(end_offset, end_epoch, asked.current_leader)
                log.info("Truncation detected for partition %s at offset %s, now at %s", partition, asked, position)
                state.seek_validated(position)
            return None
