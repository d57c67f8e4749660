"""How far a consumer is from the ends of its partitions."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.clients.consumer.internals.assignment import Assignment
from barnabas.clients.consumer.internals.topic_partition_state import FETCHING
from barnabas.common.topic_partition import TopicPartition


class ConsumerLag:
    """Keeps the watermarks of the assigned partitions, and computes lag and lead from them.

    *Lag* is the number of offsets up to the end that the isolation level can read, *lead* the number since the log
    start offset, both counted from the position of the application.
    """

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._lock = assignment.lock

    def try_updating_watermarks(
        self,
        partition: TopicPartition,
        high_watermark: int,
        log_start_offset: int,
        last_stable_offset: int,
        at_offset: int | None = None,
    ) -> bool:
        """Takes the offsets of a fetch response.

        Returns False, and takes nothing, if the partition is not assigned, or if ``at_offset`` is given and is not its
        valid position.
        """
        with self._lock:
            state = self._assignment.states.get(partition)
            if state is None:
                return False
            if at_offset is not None:
                position = state.position
                if position is None or position.offset != at_offset or state.fetch_state is not FETCHING:
                    return False
            state.watermarks.update(high_watermark, log_start_offset, last_stable_offset)
            return True

    def update_end_offset(self, partition: TopicPartition, offset: int, isolation_level: int) -> None:
        with self._lock:
            state = self._assignment.states.get(partition)
            if state is not None:
                state.watermarks.update_end(offset, isolation_level)

    def request_end_offset(self, partition: TopicPartition, isolation_level: int) -> bool:
        """Returns whether to request the end offset now: it is unknown, and no request is in flight."""
        with self._lock:
            watermarks = self._assignment.state(partition).watermarks
            if watermarks.end_offset_requested or watermarks.end(isolation_level) is not None:
                return False
            watermarks.end_offset_requested = True
            return True

    def partition_lag(self, partition: TopicPartition, isolation_level: int) -> int | None:
        with self._lock:
            state = self._assignment.state(partition)
            position = state.consumed()
            return None if position is None else state.watermarks.lag(position.offset, isolation_level)

    def lags_and_leads(
        self, partitions: Iterable[TopicPartition], isolation_level: int
    ) -> list[tuple[int | None, int | None] | None]:
        """Returns the lag and the lead of each partition; None for one that is not assigned any more."""
        found: list[tuple[int | None, int | None] | None] = []
        with self._lock:
            for partition in partitions:
                state = self._assignment.states.get(partition)
                if state is None:
                    found.append(None)
                    continue
                position = state.position if state.in_hand is None else state.consumed()
                if position is None:
                    found.append((None, None))
                else:
                    offset, watermarks = position.offset, state.watermarks
                    found.append((watermarks.lag(offset, isolation_level), watermarks.lead(offset)))
        return found
