"""The metadata log on disk: ``__cluster_metadata-0``, and the snapshots beside it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from enum import Enum, auto
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.common.clock import Clock
from barnabas.common.errors import BarnabasError, CorruptRecordError
from barnabas.common.identifiers import METADATA_TOPIC_ID
from barnabas.common.scheduler import Scheduler
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.config.log_config import LogConfig
from barnabas.log.dirs.log_dir_failure import LogDirFailureChannel
from barnabas.log.fetch_data_info import FetchDataInfo
from barnabas.log.fetch_isolation import FetchIsolation
from barnabas.log.log_append_info import LogAppendInfo
from barnabas.log.log_context import LogContext
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.log.segment.file_handle import Buffer
from barnabas.log.storage_errors import disk_access
from barnabas.log.unified_log import LogStartOffsetIncrementReason, UnifiedLog
from barnabas.protocol.internal.metadata_topic import CLUSTER_METADATA
from barnabas.raft.bootstrap_file import METADATA_LOG_DIR_NAME
from barnabas.raft.client import OffsetAndEpoch
from barnabas.raft.config import RaftConfig
from barnabas.raft.records_snapshot import RecordsSnapshotReader
from barnabas.raft.snapshot_files import (
    FileRawSnapshotReader,
    FileRawSnapshotWriter,
    SnapshotPath,
    damaged_snapshot_path,
    deleted_snapshot_path,
    parse_snapshot_path,
    snapshot_name,
    snapshot_path,
)

logger = logging.getLogger(__name__)

METADATA_PARTITION: Final = TopicPartition("__cluster_metadata", 0)

MAX_READ_SIZE_BYTES: Final = 8 * 1024 * 1024
"""The most bytes that one read returns; a listener that is far behind reads several times."""


class Isolation(Enum):
    """How far a reader may read."""

    COMMITTED = auto()
    """Up to the high watermark: for state machines."""
    UNCOMMITTED = auto()
    """Up to the log end: for followers, and for Raft itself."""


class Validity(Enum):
    """The result of comparing the position of another replica with this log."""

    VALID = auto()
    DIVERGING = auto()
    """The replica's log diverges there; the result holds the last position that both may share."""
    SNAPSHOT = auto()
    """The position is before the log start; the replica must fetch the snapshot in the result."""


class ValidOffsetAndEpoch(NamedTuple):
    kind: Validity
    offset_and_epoch: OffsetAndEpoch


class MetadataLogError(BarnabasError):
    """The files of the metadata log are inconsistent."""


class KafkaMetadataLog:
    """A `UnifiedLog` with snapshots.

    Its segments are those of any partition. There are three differences:

    - **Batches arrive with their offsets and epochs**; the log keeps them.
    - **Retention is by snapshot.** A segment is deleted when a snapshot covers all of it. The oldest snapshots are
      deleted when log and snapshots are too large or too old: :meth:`maybe_clean`. The latest snapshot always stays;
      a log without snapshots reaches back to offset 0.
    - **Records count only once flushed.** Other partitions rely on replicas in memory; here a vote is a promise that
      must survive a power failure, so Raft calls :meth:`flush` before it counts a record as written.

    At the start, the whole log is read and checked (as in Kafka), and a torn tail is truncated. Other damage raises
    `CorruptLogError`: only committed data is served. The latest snapshot is verified, too: see
    :meth:`set_damaged_snapshots_aside`.

    Any thread may read and create snapshots. Only Raft's thread may append, truncate and flush.
    """

    def __init__(self, log: UnifiedLog, config: RaftConfig, clock: Clock, scheduler: Scheduler) -> None:
        """Wraps an open log: see `open`."""
        self._log = log
        self._config = config
        self._clock = clock
        self._scheduler = scheduler
        self._snapshots_lock = threading.RLock()
        """Guards `_snapshots`. The log's own lock may be taken inside it."""
        self._snapshots: list[OffsetAndEpoch] = self._recover_snapshots()
        """The ids of the existing snapshots, ascending."""

    @classmethod
    def open(cls, metadata_log_dir: Path, config: RaftConfig, clock: Clock, scheduler: Scheduler) -> KafkaMetadataLog:
        """Opens the metadata log in a log directory, or creates it."""
        log_config = LogConfig(
            max_message_bytes=config.max_batch_size_bytes,
            segment_bytes=config.log_segment_bytes,
            segment_ms=config.log_segment_ms,
            file_delete_delay_ms=config.delete_delay_ms,
            retention_ms=-1,
            retention_bytes=-1,
        )
        # A failed disk under this log ends the node, so the failure channel needs no receiver.
        context = LogContext(clock, scheduler, LogDirFailureChannel(clock))
        log = UnifiedLog.open(
            metadata_log_dir / METADATA_LOG_DIR_NAME,
            log_config,
            context,
            topic_id=METADATA_TOPIC_ID,
            recovery_point=0,
            had_clean_shutdown=False,
        )
        try:
            metadata_log = cls(log, config, clock, scheduler)
            # Must come first: truncation trusts the latest snapshot.
            metadata_log.set_damaged_snapshots_aside()
            metadata_log.truncate_to_latest_snapshot()
        except BaseException:
            log.close_handlers()
            raise
        return metadata_log

    @property
    def directory(self) -> Path:
        return self._log.directory

    # Offsets

    @property
    def start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def end_offset(self) -> LogOffsetMetadata:
        return self._log.watermarks.offsets.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._log.high_watermark

    def update_high_watermark(self, offset: LogOffsetMetadata) -> None:
        reached = self._log.watermarks.update_high_watermark(offset)
        if reached != offset.message_offset:
            logger.warning(
                "%s: the high watermark is %d instead of %d", METADATA_PARTITION, reached, offset.message_offset
            )

    @property
    def size_in_bytes(self) -> int:
        return self._log.size

    # Appending

    def append_as_leader(self, records: Buffer, epoch: int) -> LogAppendInfo:
        """Appends batches with offsets that this node assigned in its own epoch. One write, without a flush."""
        if not len(records):
            raise ValueError("an append needs at least one batch")
        return self._log.append_as_leader(records, epoch, AppendOrigin.RAFT_LEADER)

    def append_as_follower(self, records: Buffer, epoch: int) -> LogAppendInfo:
        """Appends batches as fetched from the leader of `epoch`."""
        if not len(records):
            raise ValueError("an append needs at least one batch")
        return self._log.append_as_follower(records, epoch)

    def flush(self, *, force_flush_active_segment: bool = False) -> None:
        """Returns when all appended batches are on disk."""
        self._log.flush(force_flush_active_segment=force_flush_active_segment)

    # Reading

    def read(self, start_offset: int, isolation: Isolation, max_length: int = MAX_READ_SIZE_BYTES) -> FetchDataInfo:
        """Reads batches from an offset on, as a file region; at least one whole batch if there is any."""
        within = FetchIsolation.HIGH_WATERMARK if isolation is Isolation.COMMITTED else FetchIsolation.LOG_END
        return self._log.read(start_offset, max_length, within, min_one_message=True)

    # Epochs

    def initialize_leader_epoch(self, epoch: int) -> None:
        """Starts an epoch led by this node at the log end."""
        self._log.maybe_assign_epoch_start_offset(epoch, self._log.log_end_offset)

    @property
    def last_fetched_epoch(self) -> int:
        """Returns the epoch of the last record, or of the snapshot at the log start; 0 if there is neither."""
        epoch = self._log.leader_epochs.latest_epoch
        if epoch is not None:
            return epoch
        snapshot_id = self.latest_snapshot_id
        if snapshot_id is None:
            return 0
        if snapshot_id.offset == self.start_offset == self._log.log_end_offset:
            return snapshot_id.epoch
        raise MetadataLogError(
            f"{self.directory}: the epoch of the last record is not known: the latest snapshot is "
            f"{snapshot_name(snapshot_id)}, while the log begins at {self.start_offset} and ends at "
            f"{self._log.log_end_offset}"
        )

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Returns the last epoch that is at most `epoch`, and its end offset."""
        found = self._log.end_offset_for_epoch(epoch)
        if found is None:
            return OffsetAndEpoch(self._log.log_end_offset, self.last_fetched_epoch)
        earliest = self.earliest_snapshot_id
        if earliest is not None and found.end_offset == earliest.offset and found.leader_epoch == epoch:
            # The epoch precedes all epochs in the log, so the snapshot at the log start and its epoch apply.
            return earliest
        return OffsetAndEpoch(found.end_offset, found.leader_epoch)

    def validate_offset_and_epoch(self, offset: int, epoch: int) -> ValidOffsetAndEpoch:
        """Checks whether a replica with a last record of `epoch` and next offset `offset` matches this log."""
        if offset == 0 and epoch == 0 and self.start_offset == 0:
            return ValidOffsetAndEpoch(Validity.VALID, OffsetAndEpoch(0, 0))
        earliest = self.earliest_snapshot_id
        start = self.start_offset
        if earliest is not None and (
            offset < start or (offset == start and epoch != earliest.epoch) or epoch < earliest.epoch
        ):
            latest = self.latest_snapshot_id
            assert latest is not None
            return ValidOffsetAndEpoch(Validity.SNAPSHOT, latest)
        end = self.end_offset_for_epoch(epoch)
        if end.epoch != epoch or end.offset < offset:
            return ValidOffsetAndEpoch(Validity.DIVERGING, end)
        return ValidOffsetAndEpoch(Validity.VALID, OffsetAndEpoch(offset, epoch))

    # Truncation

    def truncate_to(self, offset: int) -> None:
        """Removes all records from this offset on; ValueError for a committed offset."""
        if offset < self.high_watermark:
            raise ValueError(
                f"the metadata log cannot be truncated to {offset}: it is committed up to {self.high_watermark}"
            )
        self._log.truncate_to(offset)

    def truncate_to_latest_snapshot(self) -> bool:
        """Removes the whole log if the latest snapshot is beyond its end; returns whether it was.

        That happens if a follower was far behind, fetched a snapshot, and stopped before it truncated its log.
        """
        latest = self.latest_snapshot_id
        epoch = self._log.leader_epochs.latest_epoch or 0
        if latest is None or (latest.epoch, latest.offset) <= (epoch, self._log.log_end_offset):
            return False
        self._log.truncate_fully_and_start_at(latest.offset)
        with self._snapshots_lock:
            forgotten = self._forget_snapshots_before(latest)
        self._remove_snapshots(forgotten, "the log starts after them")
        return True

    # Snapshots

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        with self._snapshots_lock:
            return self._snapshots[-1] if self._snapshots else None

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None:
        with self._snapshots_lock:
            return self._snapshots[0] if self._snapshots else None

    @property
    def snapshot_ids(self) -> tuple[OffsetAndEpoch, ...]:
        with self._snapshots_lock:
            return tuple(self._snapshots)

    def create_new_snapshot(self, snapshot_id: OffsetAndEpoch) -> FileRawSnapshotWriter | None:
        """Creates a snapshot writer at a committed offset; None if the snapshot exists or the log starts later."""
        if snapshot_id.offset < self.start_offset:
            logger.info(
                "Not creating snapshot %s: the log already starts at %d", snapshot_name(snapshot_id), self.start_offset
            )
            return None
        if snapshot_id.offset > self.high_watermark:
            raise ValueError(f"a snapshot at {snapshot_id.offset} is beyond the high watermark, {self.high_watermark}")
        validity = self.validate_offset_and_epoch(*snapshot_id)
        if validity.kind is not Validity.VALID:
            raise ValueError(f"{snapshot_id} is not a position in the log: {validity}")
        return self.create_new_snapshot_unchecked(snapshot_id)

    def create_new_snapshot_unchecked(self, snapshot_id: OffsetAndEpoch) -> FileRawSnapshotWriter | None:
        """Creates a writer for a snapshot fetched from the leader, which may be beyond the log end."""
        with self._snapshots_lock:
            if snapshot_id in self._snapshots:
                return None
        return FileRawSnapshotWriter.create(self.directory, snapshot_id)

    def on_snapshot_frozen(self, snapshot_id: OffsetAndEpoch) -> None:
        """Registers a snapshot whose file is complete and has its final name."""
        with self._snapshots_lock:
            if snapshot_id not in self._snapshots:
                self._snapshots.append(snapshot_id)
                self._snapshots.sort()

    def read_snapshot(self, snapshot_id: OffsetAndEpoch) -> FileRawSnapshotReader | None:
        """Opens a snapshot's file; None if there is no such snapshot."""
        with self._snapshots_lock:
            if snapshot_id not in self._snapshots:
                return None
            path = snapshot_path(self.directory, snapshot_id)
            if not path.exists():
                logger.warning("Snapshot %s is missing from %s", snapshot_name(snapshot_id), self.directory)
                self._snapshots.remove(snapshot_id)
                return None
            return FileRawSnapshotReader.open(self.directory, snapshot_id)

    def latest_snapshot(self) -> FileRawSnapshotReader | None:
        with self._snapshots_lock:
            while self._snapshots:
                reader = self.read_snapshot(self._snapshots[-1])
                if reader is not None:
                    return reader
        return None

    def set_damaged_snapshots_aside(self) -> None:
        """Makes the newest intact snapshot the latest; `MetadataLogError` if metadata would be missing then.

        ::

            snapshots       40 (whole)      80 (damaged)
            log        ... [40 ............. 80 ....... 95]     40 and the log from there on have everything
            log                            [80 ....... 95]     40 to 79 are lost: refused, and nothing is changed
            log        ... [40 ....... 70]                     70 to 79 are lost: refused, and nothing is changed

        Damaged files are renamed, because Apache Kafka's tools would read them.
        """
        damaged: list[tuple[OffsetAndEpoch, CorruptRecordError]] = []
        whole: OffsetAndEpoch | None = None
        for snapshot_id in reversed(self.snapshot_ids):
            error = self._damage_of(snapshot_id)
            if error is None:
                whole = snapshot_id
                break
            damaged.append((snapshot_id, error))
        if not damaged:
            return
        newest, error = damaged[0]
        needed_from = 0 if whole is None else whole.offset
        end = self._log.log_end_offset
        # The snapshot at offset 0 has the first voters. A non-empty log has them in its first batch.
        if self.start_offset > needed_from or end < max(newest.offset, 1):
            older = (
                "no older snapshot is intact" if whole is None else f"the one before it ends at offset {whole.offset}"
            )
            has = f"has only offsets {self.start_offset} to {end - 1}" if end > self.start_offset else "is empty"
            raise MetadataLogError(
                f"{error}. Nothing can replace this metadata snapshot: {older}, and the log in {self.directory} {has}. "
                "Restore the file, or the whole directory, from a backup; nothing was changed"
            )
        for snapshot_id, error in damaged:
            aside = damaged_snapshot_path(self.directory, snapshot_id)
            path = snapshot_path(self.directory, snapshot_id)
            with disk_access("rename", path):
                path.replace(aside)
            logger.error(
                "%s. The metadata before offset %d is read from %s and the log instead. The damaged file is now %s; "
                "check the disk",
                error,
                snapshot_id.offset,
                "the log's beginning" if whole is None else f"snapshot {snapshot_name(whole)}",
                aside,
            )
        with self._snapshots_lock:
            del self._snapshots[-len(damaged) :]

    def _damage_of(self, snapshot_id: OffsetAndEpoch) -> CorruptRecordError | None:
        raw = self.read_snapshot(snapshot_id)
        if raw is None:
            return None
        reader = RecordsSnapshotReader(raw, CLUSTER_METADATA)
        try:
            reader.verify()
        except CorruptRecordError as error:
            return error
        finally:
            reader.close()
        return None

    def delete_before_snapshot(self, snapshot_id: OffsetAndEpoch, reason: str = "requested") -> bool:
        """Moves the log start to a snapshot and deletes older segments and snapshots; returns whether any were."""
        with self._snapshots_lock:
            if (
                snapshot_id not in self._snapshots
                or snapshot_id.offset <= self.start_offset
                or not self._log.maybe_increment_log_start_offset(
                    snapshot_id.offset, LogStartOffsetIncrementReason.SNAPSHOT_GENERATED
                )
            ):
                return False
            segments = self._log.delete_old_segments()
            forgotten = self._forget_snapshots_before(snapshot_id)
        self._remove_snapshots(forgotten, reason)
        return bool(segments or forgotten)

    def maybe_clean(self) -> bool:
        """Deletes data beyond ``metadata.max.retention.bytes`` and ``metadata.max.retention.ms``."""
        with self._snapshots_lock:
            by_size = self._clean_by_size()
            return self._clean_by_age() or by_size

    def _clean_by_size(self) -> bool:
        limit = self._config.max_retention_bytes
        if limit < 0:
            return False
        sizes = {}
        for snapshot_id in self.snapshot_ids:
            reader = self.read_snapshot(snapshot_id)
            if reader is not None:
                sizes[snapshot_id] = reader.size_in_bytes
        total = sum(sizes.values())

        def breach(snapshot_id: OffsetAndEpoch) -> str | None:
            nonlocal total
            if self._log.size + total <= limit:
                return None
            reason = f"the log has {self._log.size} bytes and the snapshots {total}; the limit is {limit}"
            total -= sizes.get(snapshot_id, 0)
            return reason

        return self._clean_while(breach)

    def _clean_by_age(self) -> bool:
        limit = self._config.max_retention_ms
        if limit < 0:
            return False
        now = self._clock.milliseconds()

        def breach(snapshot_id: OffsetAndEpoch) -> str | None:
            raw = self.read_snapshot(snapshot_id)
            if raw is None:
                return None
            timestamp = self._timestamp_of(raw)
            return f"it is {now - timestamp} ms old; the limit is {limit}" if now - timestamp > limit else None

        return self._clean_while(breach)

    def _timestamp_of(self, raw: FileRawSnapshotReader) -> int:
        """Returns the time of a snapshot's last record; if its header is damaged, the time of its file."""
        try:
            return RecordsSnapshotReader(raw, CLUSTER_METADATA).last_contained_log_timestamp
        except CorruptRecordError as error:
            logger.error("%s. Its age is that of the file", error)
            with disk_access("look at", raw.path):
                return raw.path.stat().st_mtime_ns // 1_000_000

    def _clean_while(self, breach: Callable[[OffsetAndEpoch], str | None]) -> bool:
        """Deletes the oldest snapshot and its part of the log, while `breach` gives a reason and another remains.

        A damaged snapshot, which no start could use, goes together with the ones before it: when an intact one follows.
        """
        cleaned = False
        snapshots = self.snapshot_ids
        for oldest, following in pairwise(snapshots):
            reason = breach(oldest)
            if reason is None:
                break
            error = self._damage_of(following)
            if error is not None:
                logger.error("%s. Snapshot %s and the log from there on are kept", error, snapshot_name(oldest))
                continue
            if not self.delete_before_snapshot(following, reason):
                break
            cleaned = True
        return cleaned

    def _forget_snapshots_before(self, snapshot_id: OffsetAndEpoch) -> list[OffsetAndEpoch]:
        forgotten = [known for known in self._snapshots if known < snapshot_id]
        del self._snapshots[: len(forgotten)]
        return forgotten

    def _remove_snapshots(self, forgotten: list[OffsetAndEpoch], reason: str) -> None:
        if not forgotten:
            return
        doomed = []
        for snapshot_id in forgotten:
            logger.info("Deleting snapshot %s: %s", snapshot_name(snapshot_id), reason)
            renamed = deleted_snapshot_path(self.directory, snapshot_id)
            path = snapshot_path(self.directory, snapshot_id)
            with disk_access("rename", path):
                path.replace(renamed)
            doomed.append(renamed)

        def delete() -> None:
            for path in doomed:
                with disk_access("delete", path):
                    path.unlink(missing_ok=True)

        self._scheduler.schedule("delete-snapshot-files", delete, self._config.delete_delay_ms)

    def _recover_snapshots(self) -> list[OffsetAndEpoch]:
        """Lists the snapshots, and deletes partial, deleted and outdated ones of an earlier process."""
        directory, start = self.directory, self.start_offset
        with disk_access("list", directory):
            found = [parsed for parsed in map(parse_snapshot_path, directory.iterdir()) if parsed is not None]

        def is_whole(snapshot: SnapshotPath) -> bool:
            return not (snapshot.is_partial or snapshot.is_deleted or snapshot.snapshot_id.offset < start)

        kept = sorted(snapshot.snapshot_id for snapshot in found if is_whole(snapshot))
        if start > 0 and not kept:
            raise MetadataLogError(
                f"the metadata log in {directory} begins at offset {start}, but there is no snapshot (*.checkpoint) of "
                "the records before. Restore the snapshot, or the whole directory, from a backup; nothing was changed"
            )
        for snapshot in found:
            if not is_whole(snapshot):
                logger.info("Deleting %s: it is no longer needed", snapshot.path)
                with disk_access("delete", snapshot.path):
                    snapshot.path.unlink(missing_ok=True)
        return kept

    # Closing

    def close(self) -> None:
        self._log.close()

    def close_handlers(self) -> None:
        """Closes all files without writing, for example after a disk failure."""
        self._log.close_handlers()

    def __repr__(self) -> str:
        return f"KafkaMetadataLog({self._log!r}, snapshots={[snapshot_name(one) for one in self.snapshot_ids]})"
