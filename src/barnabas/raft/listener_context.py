"""The state that Raft keeps for a listener: its position, and the last leader change sent to it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from barnabas.network.reactor.send import FileRegion
from barnabas.protocol.internal.framing import MetadataRecordTypes
from barnabas.raft.batch_reader import CommittedBatchReader, MemoryBatchReader, RecordsBatchReader
from barnabas.raft.client import UNKNOWN_LEADER, ApiMessageAndVersion, Batch, LeaderAndEpoch, RaftListener
from barnabas.raft.records_snapshot import RecordsSnapshotReader

logger = logging.getLogger(__name__)

STARTING_NEXT_OFFSET: Final = -1
"""The position of a listener that has not received anything yet, not even a snapshot."""


class ListenerContext:
    """A listener and its position in the log.

    A listener has at most one reader at a time, and gets the next after closing it. So a listener that is slow, or far
    behind, reads the log at its own pace; its backlog is on disk and not in a queue.

    The ``fire_...`` methods are for Raft's thread; any thread may close a reader.
    """

    def __init__(
        self,
        listener: RaftListener[ApiMessageAndVersion],
        types: MetadataRecordTypes,
        wakeup: Callable[[ListenerContext], None],
    ) -> None:
        self.listener = listener
        self._types = types
        self._wakeup = wakeup
        self.last_fired_leader_change = UNKNOWN_LEADER
        self._lock = threading.Lock()
        """Guards the two fields below. No other code is called while it is held."""
        self._next_offset = STARTING_NEXT_OFFSET
        self._last_sent: CommittedBatchReader | None = None

    @property
    def next_offset(self) -> int:
        """The offset after the last one that the listener has processed."""
        with self._lock:
            return self._next_offset

    @property
    def next_expected_offset(self) -> int | None:
        """The next offset to send; None while the listener has an open reader."""
        with self._lock:
            return None if self._last_sent is not None else self._next_offset

    def start_at(self, offset: int) -> None:
        with self._lock:
            self._next_offset = offset

    def fire_handle_load_snapshot(self, reader: RecordsSnapshotReader) -> None:
        with self._lock:
            self._next_offset = reader.snapshot_id.offset
        logger.debug("%s gets %r", self.listener, reader)
        self.listener.handle_load_snapshot(reader)

    def fire_handle_commit(self, base_offset: int, records: FileRegion | bytes) -> None:
        """Sends batches of the log from an offset on."""
        self._fire(RecordsBatchReader(base_offset, records, self._types, self._closed))

    def fire_handle_commit_from_memory(self, batches: Sequence[Batch[ApiMessageAndVersion]]) -> None:
        """Sends batches that this node has just written, from memory."""
        self._fire(MemoryBatchReader(batches, self._closed))

    def _fire(self, reader: MemoryBatchReader | RecordsBatchReader) -> None:
        with self._lock:
            self._last_sent = reader
        logger.debug("%s gets %r", self.listener, reader)
        self.listener.handle_commit(reader)

    def _closed(self, reader: CommittedBatchReader) -> None:
        with self._lock:
            if reader.last_offset is not None:
                self._next_offset = reader.last_offset + 1
            if self._last_sent is reader:
                self._last_sent = None
        self._wakeup(self)

    def maybe_fire_leader_change(self, leader: LeaderAndEpoch) -> None:
        if self._is_news(leader):
            self.last_fired_leader_change = leader
            logger.debug("Notifying %s of %s", self.listener, leader)
            self.listener.handle_leader_change(leader)

    def maybe_fire_own_leadership(self, leader: LeaderAndEpoch, epoch_start_offset: int) -> None:
        """Notifies the listener that this node leads, once it has read all earlier records: it is going to write."""
        if self.next_offset > epoch_start_offset:
            self.maybe_fire_leader_change(leader)

    def _is_news(self, leader: LeaderAndEpoch) -> bool:
        """Whether the change is new: epochs only increase, and within an epoch a leader can only become known."""
        last = self.last_fired_leader_change
        if leader.epoch != last.epoch:
            return leader.epoch > last.epoch
        return leader.leader_id is not None and last.leader_id is None
