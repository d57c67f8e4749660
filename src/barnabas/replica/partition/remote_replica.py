"""The leader's state of a follower."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.log.log_offset_metadata import UNKNOWN_OFFSET_METADATA, LogOffsetMetadata


class ReplicaState(NamedTuple):
    """The offsets of a follower at its last fetch, and when it was last caught up."""

    log_start_offset: int = -1
    log_end_offset_metadata: LogOffsetMetadata = UNKNOWN_OFFSET_METADATA
    """The fetch offset: the follower has all records before it."""
    last_fetch_leader_log_end_offset: int = 0
    """The leader's log end offset at that fetch."""
    last_fetch_time_ms: int = 0
    last_caught_up_time_ms: int = 0
    """The last time at which the follower had all records of the leader."""
    broker_epoch: int | None = None
    """The follower's broker epoch; -1 if the fetch did not carry it, None before the first fetch."""

    @property
    def log_end_offset(self) -> int:
        return self.log_end_offset_metadata.message_offset

    def is_caught_up(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Whether the follower has all records of the leader, or had them within `max_lag_ms`."""
        return (
            leader_end_offset == self.log_end_offset_metadata.message_offset
            or now_ms - self.last_caught_up_time_ms <= max_lag_ms
        )


EMPTY_STATE: Final = ReplicaState()


class Replica:
    """A replica of a partition on another broker.

    It is *caught up* at the moment of a fetch from the leader's log end offset. A follower of a busy partition never
    sends such a fetch, because the log grows meanwhile. So a fetch from the leader's log end offset at the *previous*
    fetch shows that the follower was caught up then::

        leader's end     100            180            260
        follower fetches at 40       at 100         at 180
                                     caught up as   caught up as
                                     of fetch 1     of fetch 2

    The state is one immutable value: read without a lock, replaced with the partition's lock held.
    """

    __slots__ = ("broker_id", "state")

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.state = EMPTY_STATE

    def update_fetch_state(
        self,
        fetch_offset: LogOffsetMetadata,
        log_start_offset: int,
        now_ms: int,
        leader_end_offset: int,
        broker_epoch: int,
    ) -> None:
        """Records a fetch of the follower. The partition's lock must be held."""
        old = self.state
        caught_up = old.last_caught_up_time_ms
        if fetch_offset.message_offset >= leader_end_offset:
            caught_up = max(caught_up, now_ms)
        elif fetch_offset.message_offset >= old.last_fetch_leader_log_end_offset:
            caught_up = max(caught_up, old.last_fetch_time_ms)
        self.state = ReplicaState(
            log_start_offset,
            fetch_offset,
            max(leader_end_offset, old.last_fetch_leader_log_end_offset),
            now_ms,
            caught_up,
            broker_epoch,
        )

    def reset(self, now_ms: int, leader_end_offset: int, *, is_new_leader: bool, is_in_sync: bool) -> None:
        """Resets the state after an election. The partition's lock must be held.

        A replica in the ISR gets the full ``replica.lag.time.max.ms`` for its first fetch. Any other counts as not
        caught up, so that the high watermark does not wait for it.
        """
        caught_up = now_ms if is_in_sync else 0
        if is_new_leader:
            self.state = ReplicaState(last_fetch_leader_log_end_offset=-1, last_caught_up_time_ms=caught_up)
        else:
            self.state = self.state._replace(
                last_fetch_leader_log_end_offset=leader_end_offset,
                last_fetch_time_ms=caught_up,
                last_caught_up_time_ms=caught_up,
            )

    def __repr__(self) -> str:
        return f"Replica({self.broker_id}, {self.state})"
