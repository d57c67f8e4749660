"""State from Raft's control records in the log: the level of ``kraft.version``, and the voters.

Control records apply as soon as they are in the log, committed or not: new voters must take part in the vote on their
own membership. A new leader can truncate such records, so earlier values are kept, as a history by offset from the
latest snapshot on::

    offset    -1            1           57
    voters    {1}   ...    {1}   ...   {1, 2}        at 57: in force, though perhaps not committed yet
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Generic, TypeVar

from barnabas.protocol.internal.framing import MetadataRecordTypes
from barnabas.protocol.internal.raft import KRaftVersionRecord, VotersRecord
from barnabas.raft.kraft_log import Isolation, KafkaMetadataLog
from barnabas.raft.records_iterator import ControlRecord, control_records, raw_batches
from barnabas.raft.records_snapshot import RecordsSnapshotReader
from barnabas.raft.voter_set import KRAFT_VERSION_0, Membership, VoterSet

logger = logging.getLogger(__name__)

V = TypeVar("V")


class LogHistory(Generic[V]):
    """The history of one value by offset."""

    __slots__ = ("_offsets", "_values")

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._values: list[V] = []

    def add(self, offset: int, value: V) -> None:
        if self._offsets and offset <= self._offsets[-1]:
            raise ValueError(f"a value at offset {offset} comes after one at {self._offsets[-1]}")
        self._offsets.append(offset)
        self._values.append(value)

    def at_or_before(self, offset: int) -> V | None:
        index = bisect_right(self._offsets, offset)
        return self._values[index - 1] if index else None

    def last(self) -> tuple[int, V] | None:
        return (self._offsets[-1], self._values[-1]) if self._offsets else None

    def truncate_new_entries(self, end_offset: int) -> None:
        """Removes values at this offset or later."""
        index = bisect_left(self._offsets, end_offset)
        del self._offsets[index:], self._values[index:]

    def truncate_old_entries(self, start_offset: int) -> None:
        """Removes values that are no longer in force at this offset."""
        index = max(bisect_right(self._offsets, start_offset) - 1, 0)
        del self._offsets[:index], self._values[:index]

    def clear(self) -> None:
        self._offsets.clear()
        self._values.clear()


class KRaftControlRecordStateMachine:
    """Follows the control records of a log, from its latest snapshot to its end.

    Raft's thread calls :meth:`update_state` whenever the log has changed. Other threads may query the state at an
    offset, to put it into a snapshot.
    """

    def __init__(self, static_voters: VoterSet, log: KafkaMetadataLog, types: MetadataRecordTypes) -> None:
        self._static_voters = static_voters
        self._log = log
        self._types = types
        self._lock = threading.Lock()
        """Guards everything below. No other lock is taken, and no file is read, while it is held."""
        self._next_offset: int | None = None
        self._voters: LogHistory[VoterSet] = LogHistory()
        self._kraft_versions: LogHistory[int] = LogHistory()

    def update_state(self) -> None:
        """Reads new batches of the log. Only the headers are read of batches that are not control batches."""
        next_offset = self._next_offset
        if next_offset is None or next_offset < self._log.start_offset:
            next_offset = self._load_snapshot()
        while next_offset < self._log.end_offset.message_offset:
            before = next_offset
            for batch in raw_batches(self._log.read(next_offset, Isolation.UNCOMMITTED).records):
                if batch.is_control_batch:
                    batch.ensure_valid()
                    self._take_in(control_records(batch))
                next_offset = batch.next_offset
            assert next_offset > before, "a read within the log returns at least one whole batch"
        with self._lock:
            self._next_offset = next_offset

    def appended(self, records: Iterable[ControlRecord], next_offset: int) -> None:
        """Processes an append by this node itself, which need not be read back."""
        self._take_in(records)
        with self._lock:
            self._next_offset = next_offset

    def _load_snapshot(self) -> int:
        raw = self._log.latest_snapshot()
        if raw is None:
            return 0
        with self._lock:
            self._voters.clear()
            self._kraft_versions.clear()
        reader = RecordsSnapshotReader(raw, self._types)
        try:
            offset = reader.last_contained_log_offset
            self._take_in(record._replace(offset=offset) for record in reader.control_records())
            return offset + 1
        finally:
            reader.close()

    def _take_in(self, records: Iterable[ControlRecord]) -> None:
        for offset, _, message in records:
            if isinstance(message, KRaftVersionRecord):
                logger.info("kraft.version is %d from offset %d on", message.k_raft_version, offset)
                with self._lock:
                    self._kraft_versions.add(offset, message.k_raft_version)
            elif isinstance(message, VotersRecord):
                voters = VoterSet.from_record(message)
                logger.info("The voters are %s from offset %d on", voters, offset)
                with self._lock:
                    self._voters.add(offset, voters)

    # State in force

    @property
    def membership(self) -> Membership:
        """The voters and the level of ``kraft.version`` that are in force now."""
        with self._lock:
            voters, version = self._voters.last(), self._kraft_versions.last()
        return Membership(
            self._static_voters if voters is None else voters[1],
            KRAFT_VERSION_0 if version is None else version[1],
            None if voters is None else voters[0],
        )

    def kraft_version_at(self, offset: int) -> int:
        self._check_known(offset)
        with self._lock:
            return self._kraft_versions.at_or_before(offset) or KRAFT_VERSION_0

    def voters_at(self, offset: int) -> VoterSet | None:
        """Returns the voters in the log as of an offset; None if the log has none."""
        self._check_known(offset)
        with self._lock:
            return self._voters.at_or_before(offset)

    def _check_known(self, offset: int) -> None:
        with self._lock:
            if self._next_offset is None or offset >= self._next_offset:
                raise ValueError(f"offset {offset} has not been read yet: the next one is {self._next_offset}")

    # Truncation

    def truncate_new_entries(self, end_offset: int) -> None:
        """Removes values after the log was truncated to this offset."""
        with self._lock:
            self._voters.truncate_new_entries(end_offset)
            self._kraft_versions.truncate_new_entries(end_offset)
            if self._next_offset is not None:
                self._next_offset = min(self._next_offset, end_offset)

    def truncate_old_entries(self, start_offset: int) -> None:
        """Removes values that a snapshot at this offset makes unnecessary."""
        with self._lock:
            self._voters.truncate_old_entries(start_offset)
            self._kraft_versions.truncate_old_entries(start_offset)
