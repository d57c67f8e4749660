"""The producers of a log with their snapshots on disk: how their state survives a restart and a truncation."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from pathlib import Path

from barnabas.common.clock import Clock
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.producer_snapshot import CorruptSnapshotError, read_snapshot, write_snapshot
from barnabas.log.producer_snapshot_files import ProducerSnapshotFiles, SnapshotFile
from barnabas.log.producer_states import ProducerStateManagerConfig, ProducerStates

logger = logging.getLogger(__name__)


class ProducerStateManager(ProducerStates):
    """`ProducerStates` that can be written down, and taken back to an earlier offset.

    The state is always that of *an offset*: all batches before `map_end_offset` have gone into it. A snapshot at an
    offset is the state of that offset.

    **Start.** The log has been found to end at some offset. `truncate_and_reload` loads the latest usable snapshot up
    to it; the log then hands over the batches from `map_end_offset` on, and calls `update_map_end_offset`.

    **Truncation** of the log is the same: what was appended cannot be taken out of the state again, but the state
    before it can be found once more.

    **Deletion** at the other end: when segments go, so do their snapshots, but the producers stay in memory. Their
    sequence numbers are still needed, although nothing on disk bears witness to them. So after a restart a producer
    whose records have all been deleted is unknown, and may start anywhere.

    The log's lock is held for every change, as for `ProducerStates`.
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
        """The offset that the state is of: the one after the last batch that went into it."""
        self._last_snapshot_offset = 0

    def update_map_end_offset(self, offset: int) -> None:
        """Everything before `offset` is in the state now."""
        self.map_end_offset = offset

    # Snapshots

    def take_snapshot(self, *, sync: bool = True) -> Path | None:
        """Writes the state down under its offset, and returns the file; None if that was done already.

        Without `sync` the file is not forced to disk: who rolls a segment while producers wait does that later,
        together with the segment. A file that a crash leaves unfinished is noticed by its checksum.
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
        """The file of the snapshot at an offset."""
        file = self._snapshots.get(offset)
        return None if file is None else file.path

    def delete_snapshots_before(self, offset: int) -> None:
        self._snapshots.delete_before(offset)

    def delete_snapshots_after(self, offset: int) -> None:
        self._snapshots.delete_after(offset)

    def remove_stray_snapshots(self, segment_base_offsets: Collection[int]) -> None:
        """Deletes the snapshots that belong to no segment, but for the last one beyond all of them."""
        self._snapshots.remove_stray(segment_base_offsets)

    def remove_and_mark_snapshot_for_deletion(self, offset: int) -> SnapshotFile | None:
        return self._snapshots.mark_for_deletion(offset)

    def update_parent_dir(self, log_dir: Path) -> None:
        """The log's directory was renamed."""
        self._snapshots.update_parent_dir(log_dir)

    # Going back

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Makes the state fit a log from `log_start_offset` to `log_end_offset`, as far as snapshots can.

        Afterwards `map_end_offset` is at most `log_end_offset`, and the batches in between have to be taken in again.
        The log must not be cut below its high watermark, so that no transaction can be waiting for replication.
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
        """Loads the latest snapshot that is intact, and deletes those that are not."""
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
        """The log starts later: transactions that ended before are no concern any more."""
        self.remove_unreplicated_transactions(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        latest = self.latest_snapshot_offset
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forgets everything, on disk too: the log is emptied and goes on at `offset`."""
        self.clear()
        self._snapshots.delete(self._snapshots.offsets)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def truncate_fully_and_reload_snapshots(self) -> None:
        """Forgets everything and looks what snapshots there are: some may have been put there from remote storage."""
        logger.info("%s: looking for producer snapshots again", self.partition)
        self.truncate_fully_and_start_at(0)
        self._snapshots.reload()
