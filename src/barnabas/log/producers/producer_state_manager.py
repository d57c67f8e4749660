"""Producer state with snapshots on disk, so that it survives a restart and a truncation."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from pathlib import Path

from barnabas.common.clock import Clock
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.producers.producer_snapshot import CorruptSnapshotError, read_snapshot, write_snapshot
from barnabas.log.producers.producer_snapshot_files import ProducerSnapshotFiles, SnapshotFile
from barnabas.log.producers.producer_states import ProducerStateManagerConfig, ProducerStates

logger = logging.getLogger(__name__)


class ProducerStateManager(ProducerStates):
    """`ProducerStates` that can be saved to snapshots and reset to an earlier offset.

    The state always belongs to *an offset*: it includes all batches before `map_end_offset`. A snapshot at an offset
    holds the state at that offset.

    **Start.** Once the log end offset is known, `truncate_and_reload` loads the latest usable snapshot up to it. The
    log then passes the batches from `map_end_offset` on, and calls `update_map_end_offset`.

    **Truncation** of the log works the same way: batches cannot be removed from the state, but the earlier state can be
    reloaded.

    **Deletion** at the start of the log: snapshots are deleted with their segments, but the producers stay in memory,
    because their sequence numbers are still needed. Nothing on disk records them any more. So after a restart, a
    producer whose records have all been deleted is unknown and may start with any sequence number.

    Every change requires the log's lock, as in `ProducerStates`.
    """

    def __init__(
        self,
        partition: TopicPartition,
        log_dir: Path,
        max_transaction_timeout_ms: int,
        config: ProducerStateManagerConfig,
        clock: Clock,
        file_names: Iterable[str] | None = None,
    ) -> None:
        """`file_names` are the files in `log_dir`, if the caller has listed them."""
        super().__init__(partition, max_transaction_timeout_ms, config, clock)
        self._snapshots = ProducerSnapshotFiles(log_dir, file_names)
        self.map_end_offset = 0
        """The offset of the state: the one after the last batch that it includes."""
        self._last_snapshot_offset = 0

    def update_map_end_offset(self, offset: int) -> None:
        """Declares that the state includes all batches before `offset`."""
        self.map_end_offset = offset

    # Snapshots

    def take_snapshot(self, *, sync: bool = True) -> Path | None:
        """Writes a snapshot at `map_end_offset` and returns the file; None if there already is one.

        Without `sync` the file is not forced to disk: a segment roll, while producers wait, leaves that to the later
        flush of the segment. The checksum detects a file that a crash left unfinished.
        """
        if self.map_end_offset <= self._last_snapshot_offset:
            return None
        path = self._snapshots.path_for(self.map_end_offset)
        started = self._clock.nanoseconds()
        write_snapshot(path, self._producers.values(), sync=sync)
        logger.debug(
            "%s: wrote a snapshot of %d producers at offset %d in %d ms",
            self.partition,
            len(self._producers),
            self.map_end_offset,
            (self._clock.nanoseconds() - started) // 1_000_000,
        )
        self._snapshots.add(self.map_end_offset)
        self._last_snapshot_offset = self.map_end_offset
        return path

    @property
    def latest_snapshot_offset(self) -> int | None:
        file = self._snapshots.latest()
        return None if file is None else file.offset

    @property
    def oldest_snapshot_offset(self) -> int | None:
        file = self._snapshots.oldest()
        return None if file is None else file.offset

    def snapshot_file_for_offset(self, offset: int) -> SnapshotFile | None:
        return self._snapshots.get(offset)

    def fetch_snapshot(self, offset: int) -> Path | None:
        """Returns the file of the snapshot at an offset."""
        file = self._snapshots.get(offset)
        return None if file is None else file.path

    def delete_snapshots_before(self, offset: int) -> None:
        self._snapshots.delete_before(offset)

    def delete_snapshots_after(self, offset: int) -> None:
        self._snapshots.delete_after(offset)

    def remove_stray_snapshots(self, segment_base_offsets: Collection[int]) -> None:
        """Deletes the snapshots that belong to no segment, except the last one beyond all segments."""
        self._snapshots.remove_stray(segment_base_offsets)

    def remove_and_mark_snapshot_for_deletion(self, offset: int) -> SnapshotFile | None:
        return self._snapshots.mark_for_deletion(offset)

    def update_parent_dir(self, log_dir: Path) -> None:
        """Updates the paths after the log's directory was renamed."""
        self._snapshots.update_parent_dir(log_dir)

    # Truncation

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Resets the state for a log from `log_start_offset` to `log_end_offset`, as far as snapshots allow.

        Afterwards `map_end_offset` is at most `log_end_offset`, and the batches in between have to be replayed. The log
        must not be truncated below its high watermark, so that no transaction can be waiting for replication.
        """
        self._snapshots.delete(
            offset for offset in self._snapshots.offsets if offset > log_end_offset or offset <= log_start_offset
        )
        if log_end_offset == self.map_end_offset:
            self.on_log_start_offset_incremented(log_start_offset)
            return
        self.clear()
        self._load_from_snapshot(log_start_offset, now_ms)

    def _load_from_snapshot(self, log_start_offset: int, now_ms: int) -> None:
        """Loads the latest intact snapshot, and deletes corrupt ones."""
        while (file := self._snapshots.latest()) is not None:
            try:
                entries = read_snapshot(file.path)
            except CorruptSnapshotError as error:
                logger.warning("%s: producer snapshot %s is of no use: %s", self.partition, file.path, error)
                self._snapshots.delete((file.offset,))
                continue
            for entry in entries:
                if not self.is_producer_expired(now_ms, entry):
                    self.load_producer_entry(entry)
            logger.debug("%s: loaded %d producers from %s", self.partition, len(self._producers), file.path)
            self._last_snapshot_offset = self.map_end_offset = file.offset
            return
        self._last_snapshot_offset = self.map_end_offset = log_start_offset

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        """Removes transactions that ended before the new log start offset."""
        self.remove_unreplicated_transactions(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        latest = self.latest_snapshot_offset
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Removes all state, also on disk: the log is emptied and continues at `offset`."""
        self.clear()
        self._snapshots.delete(self._snapshots.offsets)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def truncate_fully_and_reload_snapshots(self) -> None:
        """Removes all state and lists the snapshots again: some may have been restored from remote storage."""
        logger.info("%s: looking for producer snapshots again", self.partition)
        self.truncate_fully_and_start_at(0)
        self._snapshots.reload()
