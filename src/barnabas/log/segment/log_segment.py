"""A segment: a contiguous part of a partition's log, in one file of batches with its indexes."""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

from barnabas.common.clock import Clock
from barnabas.common.errors import (
    CorruptRecordError,
    InvalidRecordError,
    KafkaStorageError,
    UnsupportedForMessageFormatError,
)
from barnabas.log.config.log_config import LogConfig
from barnabas.log.fetch_data_info import FetchDataInfo
from barnabas.log.index.abstract_index import MAX_RELATIVE_OFFSET, AbstractIndex
from barnabas.log.index.lazy_index import LazyIndex
from barnabas.log.index.offset_index import OffsetIndex, OffsetPosition
from barnabas.log.index.time_index import TimeIndex, TimestampOffset
from barnabas.log.index.transaction_index import TransactionIndex, TxnIndexSearchResult
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.log.segment.file_handle import Buffer
from barnabas.log.segment.file_records import FileRecords, LogOffsetPosition, TimestampAndOffset
from barnabas.log.segment.log_file_names import (
    log_file,
    offset_index_file,
    time_index_file,
    transaction_index_file,
    with_changed_suffix,
)
from barnabas.log.storage_errors import CorruptIndexError, LogSegmentOffsetOverflowError, disk_access
from barnabas.network.reactor.send import FileRegion
from barnabas.protocol.internal.storage import AbortedTxn
from barnabas.records.batch import LOG_OVERHEAD, RecordBatch

_LOGGER: Final = logging.getLogger(__name__)

_BATCH_LENGTH: Final = struct.Struct(">8xi")
LATEST_POSSIBLE: Final = 2**63 - 1

_new_tuple = tuple.__new__
"""Creates a named tuple without a second call in Python, which its class would make."""

IndexT = TypeVar("IndexT", bound=AbstractIndex)

ProducerStateCallback = Callable[[RecordBatch], AbortedTxn | None]
"""Processes a batch that recovery found intact. If the batch aborts a transaction, returns that transaction."""
LeaderEpochCallback = Callable[[int, int], object]
"""Receives a leader epoch and its start offset."""


class SegmentConfig(Protocol):
    """The part of the topic configuration (`LogConfig`) that a segment needs."""

    @property
    def segment_index_bytes(self) -> int: ...
    @property
    def index_interval_bytes(self) -> int: ...


class LogSegment:
    """Record batches from the base offset on, up to the base offset of the next segment.

    **Files**, all named after the base offset: the batches (`FileRecords`), and three indexes that can all be rebuilt
    from them: `OffsetIndex`, `TimeIndex`, `TransactionIndex`. The first two are opened when they are needed.

    **Append** is one write. When more than ``index_interval_bytes`` lie between the last indexed batch and the appended
    one, the appended batch gets an entry in the offset index and the time index. So the entries depend on the sizes of
    the batches alone, and recovery produces the same ones.

    **Read** finds the batch with the requested offset: an index lookup, and a scan of the few headers from there. The
    result is a region of the file. The batches themselves are not read, unless they are so small that the scan has
    read them.

    **Rolling.** When a segment is large or old enough, or its indexes are full, a new segment replaces it as the active
    one. Its *age* is the difference between the timestamps of its first batch and of the batch to be appended. If
    records have no timestamps, it is the time since the segment was created. A random jitter, subtracted from the
    limit, keeps partitions that were created at the same time from rolling at the same time.

    Only one thread at a time, the owner of the log's lock, may call methods that change the segment. `read`,
    `translate_offset`, `find_offset_by_timestamp`, `collect_aborted_txns` and the like may run concurrently.
    """

    def __init__(
        self,
        base_offset: int,
        directory: Path,
        config: SegmentConfig,
        clock: Clock,
        *,
        suffix: str = "",
        preallocate: int = 0,
        roll_jitter_ms: int = 0,
        use_mmap: bool = True,
    ) -> None:
        """Opens or creates the segment's files.

        `suffix` is appended to the usual names (``.cleaned``, ``.swap``); `preallocate` is the initial length of a new
        ``.log`` file.
        """
        self.base_offset = base_offset
        self.roll_jitter_ms = roll_jitter_ms
        self.records = FileRecords(log_file(directory, base_offset, suffix), preallocate=preallocate)
        index_size = config.segment_index_bytes
        self._offset_index = LazyIndex(
            offset_index_file(directory, base_offset, suffix),
            lambda path: _checked(OffsetIndex(path, base_offset, index_size, use_mmap=use_mmap)),
        )
        self._time_index = LazyIndex(
            time_index_file(directory, base_offset, suffix),
            lambda path: _checked(TimeIndex(path, base_offset, index_size, use_mmap=use_mmap)),
        )
        self.txn_index = TransactionIndex(base_offset, transaction_index_file(directory, base_offset, suffix))
        self._index_interval_bytes = config.index_interval_bytes
        self._clock = clock
        self._created = clock.milliseconds()
        self._first_timestamp: int | None = None
        """The largest timestamp of the first batch; None until it is known."""
        self._max_timestamp: TimestampOffset | None = None
        """The largest timestamp, and the last offset of the first batch that has it; None: see the time index."""

    @property
    def offset_index(self) -> OffsetIndex:
        return self._offset_index.get()

    @property
    def time_index(self) -> TimeIndex:
        return self._time_index.get()

    @property
    def offset_index_path(self) -> Path:
        return self._offset_index.path

    @property
    def time_index_path(self) -> Path:
        return self._time_index.path

    @property
    def size(self) -> int:
        """The size of the batches in bytes."""
        return self.records.size_in_bytes

    # Writing

    def append(
        self,
        largest_offset: int,
        largest_timestamp_ms: int,
        shallow_offset_of_max_timestamp: int,
        buffers: Buffer | Sequence[Buffer],
    ) -> int:
        """Writes batches whose offsets have been assigned; returns their size.

        `largest_offset` is the last offset of the last batch. `shallow_offset_of_max_timestamp` is the last offset of
        the first batch that has the largest timestamp.
        """
        if not 0 <= largest_offset - self.base_offset <= MAX_RELATIVE_OFFSET:
            raise LogSegmentOffsetOverflowError(self.records.path, self.base_offset, largest_offset)
        records = self.records
        position = records.size_in_bytes
        size = records.append(buffers)
        if size == 0:
            return 0
        offset_index = self._offset_index.index or self._offset_index.get()
        indexed = offset_index.last_entry[1]
        if position + size - indexed <= self._index_interval_bytes or (
            type(buffers) is memoryview and _BATCH_LENGTH.unpack_from(buffers)[0] + LOG_OVERHEAD == size
        ):
            largest = self._max_timestamp
            if largest is None or largest_timestamp_ms > largest[0]:
                self._note_timestamp(largest_timestamp_ms, shallow_offset_of_max_timestamp)
            if position - indexed > self._index_interval_bytes:
                self._append_to_indexes(offset_index, largest_offset, position)
        else:
            # Several batches at once, as a follower appends them: each may need an index entry.
            for batch in records.batches(position):
                self._note_timestamp(batch.max_timestamp, batch.last_offset)
                if batch.position - offset_index.last_entry.position > self._index_interval_bytes:
                    self._append_to_indexes(offset_index, batch.last_offset, batch.position)
        return size

    def _note_timestamp(self, timestamp: int, offset: int) -> None:
        largest = self._max_timestamp
        if largest is None:
            largest = self._max_timestamp = self._time_index.get().last_entry
        if timestamp > largest[0]:
            self._max_timestamp = _new_tuple(TimestampOffset, (timestamp, offset))

    def _append_to_indexes(self, offset_index: OffsetIndex, offset: int, position: int) -> None:
        time_index = self._time_index.index or self._time_index.get()
        # A log rolls before its indexes are full, but one append can need many entries. A missing entry is harmless.
        if not offset_index.is_full and not time_index.is_full:
            offset_index.append(offset, position)
            timestamp, its_offset = self._max_timestamp or self.max_timestamp_and_offset
            time_index.maybe_append(timestamp, its_offset)

    def append_aborted_txn(self, aborted: AbortedTxn) -> None:
        """Adds a transaction whose abort marker was appended to the transaction index."""
        self.txn_index.append(aborted)

    def truncate_to(self, offset: int) -> int:
        """Removes this offset and all after it; returns the number of bytes of batches removed.

        The batch that contains the offset is removed as a whole.
        """
        # Before the indexes are truncated, while they still make the search quick.
        found = self.translate_offset(offset)
        offset_index, time_index = self.offset_index, self.time_index
        offset_index.truncate_to(offset)
        time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        # The segment is now the active one, and its indexes need room.
        offset_index.resize(offset_index.max_index_size)
        time_index.resize(time_index.max_index_size)
        truncated = 0 if found is None else self.records.truncate_to(found.position)
        if self.size == 0:
            self._created = self._clock.milliseconds()
            self._first_timestamp = None
        if self.max_timestamp_so_far >= 0:
            self._max_timestamp = self._find_largest_timestamp()
        return truncated

    def _find_largest_timestamp(self) -> TimestampOffset:
        indexed = self.time_index.last_entry
        position = self.offset_index.lookup(indexed.offset).position
        behind = self.records.largest_timestamp(position)
        return TimestampOffset(behind.timestamp, behind.offset) if behind.timestamp > indexed.timestamp else indexed

    # Reading

    def translate_offset(self, offset: int, start_position: int = 0) -> LogOffsetPosition | None:
        """Finds the first batch whose last offset is at or after this offset; None if there is none.

        `start_position` is the position of a later batch than the index knows, if the caller has one.
        """
        indexed = self._offset_index.get().lookup(offset).position
        return self.records.search_for_offset(offset, max(indexed, start_position))

    def read(
        self, start_offset: int, max_size: int, max_position: int | None = None, min_one_message: bool = False
    ) -> FetchDataInfo | None:
        """Returns at most `max_size` bytes of batches from an offset on; None if the segment ends before it.

        The read stops before `max_position`, the position of the high watermark or the last stable offset. None means
        the end of the segment. With `min_one_message`, the first batch is returned whole, whatever its size: otherwise
        a consumer whose limit is too small would never make progress.
        """
        if max_size < 0:
            raise ValueError(f"cannot read {max_size} bytes from {self.records.path}")
        records = self.records
        end = records.size_in_bytes
        offset_index = self._offset_index.index or self._offset_index.get()
        found = records.find_batch(start_offset, offset_index.lookup(start_offset)[1])
        if found is None:
            return None
        offset, position, size, chunk, at = found
        metadata = _new_tuple(LogOffsetMetadata, (offset, self.base_offset, position))
        limit = size if min_one_message and size > max_size else max_size
        if max_position is not None and max_position < end:
            end = max_position
        available = min(limit, end - position)
        if available <= 0:
            return FetchDataInfo(metadata, b"")
        if available <= len(chunk) - at:
            data: FileRegion | bytes = chunk[at : at + available]
        else:
            data = records.read_slice(position, available)
        return _new_tuple(FetchDataInfo, (metadata, data, limit < size, None))

    def fetch_upper_bound_offset(self, start: OffsetPosition, fetch_size: int) -> int | None:
        """Returns an offset that a read of `fetch_size` bytes from `start` cannot reach; None if the index has none."""
        bound = self.offset_index.fetch_upper_bound_offset(start, fetch_size)
        return None if bound is None else bound.offset

    def collect_aborted_txns(self, fetch_offset: int, upper_bound_offset: int) -> TxnIndexSearchResult:
        """Returns the aborted transactions that overlap a range, and whether later segments may have more."""
        return self.txn_index.collect_aborted_txns(fetch_offset, upper_bound_offset)

    def find_offset_by_timestamp(self, timestamp_ms: int, starting_offset: int = 0) -> TimestampAndOffset | None:
        """Finds the first record at or after `starting_offset` that has this timestamp or a later one."""
        indexed = self.time_index.lookup(timestamp_ms)
        position = self.offset_index.lookup(max(indexed.offset, starting_offset)).position
        return self.records.search_for_timestamp(timestamp_ms, position, starting_offset)

    def read_next_offset(self) -> int:
        """Returns the offset after the last one in the segment. Reads headers from the last index entry on."""
        position = self.offset_index.last_entry.position
        if position > self.size:
            position = 0  # the index points beyond the end of the file; scan it from the start
        next_offset = self.base_offset
        for batch in self.records.batches(position):
            next_offset = batch.next_offset
        return next_offset

    # Timestamps and rolling

    @property
    def max_timestamp_and_offset(self) -> TimestampOffset:
        """The largest timestamp, and the last offset of the first batch that has it; (-1, base offset) if none has."""
        largest = self._max_timestamp
        if largest is None:
            largest = self._max_timestamp = self._time_index.get().last_entry
        return largest

    @property
    def max_timestamp_so_far(self) -> int:
        return self.max_timestamp_and_offset.timestamp

    @property
    def largest_record_timestamp(self) -> int | None:
        """The largest timestamp of a record; None if none has one."""
        largest = self.max_timestamp_so_far
        return largest if largest >= 0 else None

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of the records, or if they have none, the modification time of the file."""
        largest = self.max_timestamp_so_far
        return largest if largest >= 0 else self.last_modified

    @property
    def last_modified(self) -> int:
        with disk_access("look at", self.records.path):
            return self.records.path.stat().st_mtime_ns // 1_000_000

    def set_last_modified(self, milliseconds: int) -> None:
        for path in (self.records.path, self.offset_index_path, self.time_index_path):
            with disk_access("set the time of", path):
                os.utime(path, ns=(milliseconds * 1_000_000, milliseconds * 1_000_000))

    @property
    def rolling_based_timestamp(self) -> int | None:
        """The largest timestamp of the first batch, which may be -1; None while there is no batch."""
        if self._first_timestamp is None and self.size:
            first = next(self.records.batches(), None)
            self._first_timestamp = None if first is None else first.max_timestamp
        return self._first_timestamp

    @property
    def first_batch_timestamp(self) -> int:
        """The timestamp of the first batch; `LATEST_POSSIBLE` without timestamps."""
        first = self.rolling_based_timestamp
        return LATEST_POSSIBLE if first is None or first < 0 else first

    def time_waited_for_roll(self, now_ms: int, message_timestamp: int) -> int:
        """Returns the age of the segment if a batch with this timestamp were appended."""
        first = self.rolling_based_timestamp
        return now_ms - self._created if first is None or first < 0 else message_timestamp - first

    def should_roll(self, size: int, max_timestamp: int, last_offset: int, config: LogConfig, now_ms: int) -> bool:
        """Returns whether the segment must be rolled before an append.

        `size`, `max_timestamp` and `last_offset` describe the batches to append. An empty segment is never too old, but
        may be too small. Then its successor is too small as well, and takes the batches all the same.
        """
        position = self.records.size_in_bytes
        if position > config.segment_bytes - size:
            return True
        if position:
            first = self._first_timestamp
            if first is None or first < 0:
                waited = self.time_waited_for_roll(now_ms, max_timestamp)
            else:
                waited = max_timestamp - first
            if waited > config.max_segment_ms - self.roll_jitter_ms:
                return True
        offset_index = self._offset_index.index or self._offset_index.get()
        time_index = self._time_index.index or self._time_index.get()
        return (
            offset_index.is_full or time_index.is_full or not 0 <= last_offset - self.base_offset <= MAX_RELATIVE_OFFSET
        )

    def on_become_inactive_segment(self) -> None:
        """Called when the segment is rolled: indexes its largest timestamp and releases preallocated space."""
        self._close_time_index()
        self.offset_index.trim_to_valid_size()
        self.time_index.trim_to_valid_size()
        self.records.trim()

    def _close_time_index(self) -> None:
        self.time_index.maybe_append(*self.max_timestamp_and_offset, skip_full_check=True)

    def resize_indexes(self, size: int) -> None:
        """Gives the indexes their full capacity, because the segment becomes the active one."""
        self.offset_index.resize(size)
        self.time_index.resize(size)

    # Recovery

    def recover(
        self,
        producer_state_callback: ProducerStateCallback | None = None,
        leader_epoch_callback: LeaderEpochCallback | None = None,
        *,
        is_intact: bool = False,
    ) -> int:
        """Checks all batches, truncates after the last intact one, and rebuilds the indexes.

        Returns the number of bytes cut off. With `is_intact` the caller has checked every batch already, and nothing
        is cut off.

        The intact part ends at the first batch that is incomplete, has a wrong checksum, or an offset that is not
        greater than the one before it. (The checksum does not cover offsets.) After a crash that batch can be in the
        middle, because a disk writes pages in any order. Everything after such a hole is removed too, because
        replication and consumers cannot handle a log with a hole.

        A segment in a message format from before Kafka 0.11 is intact, but cannot be read here. It is left unchanged,
        and `UnsupportedForMessageFormatError` is raised.
        """
        offset_index, time_index = self._offset_index.reset(), self._time_index.reset()
        self.txn_index.reset()
        self._max_timestamp = time_index.last_entry
        self._first_timestamp = None
        valid_bytes = 0
        latest_epoch = -1
        for position, batch in self.records.loaded_batches() if is_intact else self._intact_batches():
            last_offset = batch.last_offset
            if not 0 <= last_offset - self.base_offset <= MAX_RELATIVE_OFFSET:
                raise LogSegmentOffsetOverflowError(self.records.path, self.base_offset, last_offset)
            self._note_timestamp(batch.max_timestamp, last_offset)
            if position - offset_index.last_entry.position > self._index_interval_bytes:
                self._append_to_indexes(offset_index, last_offset, position)
            if leader_epoch_callback is not None and batch.partition_leader_epoch > latest_epoch:
                latest_epoch = batch.partition_leader_epoch
                leader_epoch_callback(latest_epoch, batch.base_offset)
            if producer_state_callback is not None:
                aborted = producer_state_callback(batch)
                if aborted is not None:
                    self.append_aborted_txn(aborted)
            valid_bytes = position + batch.size_in_bytes
        truncated = self.records.truncate_to(valid_bytes)
        if truncated:
            _LOGGER.warning(
                "%s: cut off the last %d bytes, which are not intact batches; it now ends at position %d",
                self.records.path,
                truncated,
                valid_bytes,
            )
        offset_index.trim_to_valid_size()
        self._close_time_index()
        time_index.trim_to_valid_size()
        return truncated

    def _intact_batches(self) -> Iterator[tuple[int, RecordBatch]]:
        end = 0
        last_offset = self.base_offset - 1
        try:
            for position, batch in self.records.loaded_batches():
                batch.ensure_valid()
                if not last_offset < batch.base_offset <= batch.last_offset:
                    raise CorruptRecordError(
                        f"the record batch has the offsets {batch.base_offset} to {batch.last_offset}, although those "
                        f"up to {last_offset} come before it"
                    )
                last_offset = batch.last_offset
                yield position, batch
                end = position + batch.size_in_bytes
        except (CorruptRecordError, InvalidRecordError) as error:
            if self.records.holds_old_format(end):
                raise UnsupportedForMessageFormatError(f"{self.records.path} cannot be recovered: {error}") from error
            _LOGGER.warning("%s: found a damaged batch at position %d: %s", self.records.path, end, error)

    def sanity_check(self) -> None:
        """Raises `CorruptIndexError` if an index file is missing or the transaction index is wrong.

        The contents of the offset and time index are not checked, so that no file is opened. Recovery rebuilds them
        for segments that were written to before a crash.
        """
        for path in (self.offset_index_path, self.time_index_path):
            if not path.exists():
                raise CorruptIndexError(f"{path} is missing")
        self.txn_index.sanity_check()

    @property
    def has_overflow(self) -> bool:
        """Whether an offset is too large for the indexes; possible in segments that old Kafka versions compacted."""
        next_offset = self.read_next_offset()
        return next_offset > self.base_offset and next_offset - 1 - self.base_offset > MAX_RELATIVE_OFFSET

    # The files

    def flush(self) -> None:
        """Forces the batches and the indexes to disk."""
        self.records.flush()
        self._offset_index.flush()
        self._time_index.flush()
        self.txn_index.flush()

    def change_file_suffixes(self, old_suffix: str, new_suffix: str) -> None:
        """Renames all files, for example from ``""`` to ``.deleted``. Readers are not affected."""
        self.records.rename(with_changed_suffix(self.records.path, old_suffix, new_suffix))
        self._offset_index.rename(with_changed_suffix(self.offset_index_path, old_suffix, new_suffix))
        self._time_index.rename(with_changed_suffix(self.time_index_path, old_suffix, new_suffix))
        self.txn_index.rename(with_changed_suffix(self.txn_index.path, old_suffix, new_suffix))

    def has_suffix(self, suffix: str) -> bool:
        return all(path.name.endswith(suffix) for path in self.paths)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The paths of the files. The transaction index often does not exist."""
        return self.records.path, self.offset_index_path, self.time_index_path, self.txn_index.path

    def update_parent_dir(self, directory: Path) -> None:
        """Updates the paths after the directory was renamed."""
        self.records.update_parent_dir(directory)
        self._offset_index.update_parent_dir(directory)
        self._time_index.update_parent_dir(directory)
        self.txn_index.update_parent_dir(directory)

    def close(self) -> None:
        """Writes pending entries and closes all files, even if one of them fails."""
        steps = [self._offset_index.close, self._time_index.close, self.records.close, self.txn_index.close]
        if self._max_timestamp is not None and self.records.is_open:
            steps.insert(0, self._close_time_index)
        _do_all(steps)

    def close_handlers(self) -> None:
        """Closes the files without writing anything, for example after a disk failure."""
        self._offset_index.close_handler()
        self._time_index.close_handler()
        self.records.close_handlers()
        self.txn_index.close()

    def delete_if_exists(self) -> None:
        """Deletes the files, the batches first: the next start removes indexes without batches."""
        _do_all(
            [
                self.records.delete_if_exists,
                self._offset_index.delete_if_exists,
                self._time_index.delete_if_exists,
                self.txn_index.delete_if_exists,
            ]
        )

    @property
    def deleted(self) -> bool:
        return not any(path.exists() for path in self.paths)

    @staticmethod
    def delete_files(directory: Path, base_offset: int, suffix: str = "") -> None:
        """Deletes the files of a segment that is not open."""
        for name in (offset_index_file, time_index_file, transaction_index_file, log_file):
            path = name(directory, base_offset, suffix)
            with disk_access("delete", path):
                path.unlink(missing_ok=True)

    def __repr__(self) -> str:
        return f"LogSegment(base_offset={self.base_offset}, size={self.size}, {self.records.path})"


def _checked(index: IndexT) -> IndexT:
    """Checks an index that was just opened, and clears it if it is corrupt.

    Without an entry, the log is searched from its beginning, which is slow. A wrong entry sends readers to positions
    that do not exist, which would look like a broken disk.
    """
    try:
        index.sanity_check()
    except CorruptIndexError as error:
        _LOGGER.info("An index starts over, and is not used for what is in its segment by now: %s", error)
        index.truncate()
    return index


def _do_all(steps: Sequence[Callable[[], object]]) -> None:
    """Runs every step, even if others fail, then raises the first error."""
    first: KafkaStorageError | None = None
    for step in steps:
        try:
            step()
        except KafkaStorageError as error:
            if first is None:
                first = error
            else:
                _LOGGER.warning("%s", error)
    if first is not None:
        raise first
