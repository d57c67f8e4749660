"""Gives other components access to the producer state of a log."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from barnabas.log.config.log_config import LogConfig
from barnabas.log.dirs.log_dir_failure import LogDirGuard
from barnabas.log.log_context import LogContext
from barnabas.log.producers.producer_snapshot_files import SnapshotFile
from barnabas.log.producers.producer_state_manager import ProducerStateManager
from barnabas.log.producers.producer_state_rebuild import rebuild_producer_state
from barnabas.log.producers.verification_state import VerificationGuard
from barnabas.log.segment.log_segment import LogSegment
from barnabas.log.segment.log_segments import LogSegments


class ActiveProducer(NamedTuple):
    """The state of a producer in the DescribeProducers response."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int
    """-1 without an open transaction."""


class LastRecord(NamedTuple):
    """The last batch of a producer. Compaction must retain it: without it a restart would lose the producer's state."""

    last_data_offset: int | None
    producer_epoch: int


class LogProducers:
    """The producers of one log, for all components but the log itself: every method takes the log's lock."""

    __slots__ = ("_context", "_doomed", "_guard", "_lock", "state")

    def __init__(
        self, state: ProducerStateManager, lock: threading.RLock, context: LogContext, guard: LogDirGuard
    ) -> None:
        self.state = state
        self._lock = lock
        self._context = context
        self._guard = guard
        self._doomed: set[SnapshotFile] = set()
        """Snapshots that wait for deletion, and whose paths follow the log's directory until then."""

    # Transactions

    def maybe_start_transaction_verification(
        self, producer_id: int, sequence: int, epoch: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard:
        """Returns the guard that the append of a transactional batch must present after the verification."""
        with self._lock:
            return self.state.maybe_start_transaction_verification(
                producer_id, sequence, epoch, supports_epoch_bump=supports_epoch_bump
            )

    def verification_guard(self, producer_id: int) -> VerificationGuard:
        with self._lock:
            return self.state.verification_guard(producer_id)

    def has_ongoing_transaction(self, producer_id: int, epoch: int) -> bool:
        with self._lock:
            return self.state.has_ongoing_transaction(producer_id, epoch)

    def has_late_transaction(self, now_ms: int) -> bool:
        return self.state.has_late_transaction(now_ms)

    # Producers

    @property
    def count(self) -> int:
        return self.state.producer_id_count

    def active(self) -> list[ActiveProducer]:
        with self._lock:
            return [
                ActiveProducer(
                    producer_id,
                    entry.producer_epoch,
                    entry.last_seq,
                    entry.last_timestamp,
                    entry.coordinator_epoch,
                    -1 if entry.current_txn_first_offset is None else entry.current_txn_first_offset,
                )
                for producer_id, entry in self.state.active_producers.items()
            ]

    def last_records(self) -> dict[int, LastRecord]:
        with self._lock:
            return {
                producer_id: LastRecord(None if entry.is_empty else entry.last_data_offset, entry.producer_epoch)
                for producer_id, entry in self.state.active_producers.items()
            }

    def remove_expired(self, now_ms: int) -> None:
        with self._lock:
            self.state.remove_expired_producers(now_ms)

    # For the log, which holds the lock

    def rebuild(self, segments: LogSegments, log_start_offset: int, last_offset: int) -> None:
        """Rebuilds the state as of an earlier offset."""
        rebuild_producer_state(
            self.state, segments, log_start_offset, last_offset, self._context.clock, from_clean_shutdown=False
        )

    def delete_snapshots(self, segments: Iterable[LogSegment], config: LogConfig, *, asynchronous: bool = True) -> None:
        """Deletes the snapshots of deleted segments."""
        marked = [self.state.remove_and_mark_snapshot_for_deletion(segment.base_offset) for segment in segments]
        doomed = [file for file in marked if file is not None]
        if not doomed:
            return
        self._doomed.update(doomed)
        if asynchronous:
            self._context.scheduler.schedule(
                "delete-producer-snapshot", lambda: self._delete(doomed), config.file_delete_delay_ms
            )
        else:
            self._delete(doomed)

    def _delete(self, files: Sequence[SnapshotFile]) -> None:
        with self._guard.watch(f"deleting producer snapshots of {self.state.partition}"):
            for file in files:
                file.delete_if_exists()
                with self._lock:
                    self._doomed.discard(file)

    def update_parent_dir(self, directory: Path) -> None:
        """Updates the paths after the log's directory was renamed."""
        self.state.update_parent_dir(directory)
        for file in self._doomed:
            file.update_parent_dir(directory)
