"""A segment: one stretch of a partition's log, in one file of batches with its indexes."""

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
from barnabas.log.abstract_index import MAX_RELATIVE_OFFSET, AbstractIndex
from barnabas.log.fetch_data_info import FetchDataInfo
from barnabas.log.file_handle import BUFFER_TYPES, Buffer
from barnabas.log.file_records import FileRecords, LogOffsetPosition, TimestampAndOffset
from barnabas.log.lazy_index import LazyIndex
from barnabas.log.log_config import LogConfig
from barnabas.log.log_file_names import (
    log_file,
    offset_index_file,
    time_index_file,
    transaction_index_file,
    with_changed_suffix,
)
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.log.offset_index import OffsetIndex, OffsetPosition
from barnabas.log.storage_errors import CorruptIndexError, LogSegmentOffsetOverflowError, disk_access
from barnabas.log.time_index import TimeIndex, TimestampOffset
from barnabas.log.transaction_index import TransactionIndex, TxnIndexSearchResult
from barnabas.protocol.internal.storage import AbortedTxn
from barnabas.records.batch import LOG_OVERHEAD, RecordBatch

_LOGGER: Final = logging.getLogger(__name__)

_BATCH_LENGTH: Final = struct.Struct(">8xi")
LATEST_POSSIBLE: Final = 2**63 - 1

_new_tuple = tuple.__new__
"""A named tuple in one call; its class would make another one in Python."""

IndexT = TypeVar("IndexT", bound=AbstractIndex)

ProducerStateCallback = Callable[[RecordBatch], AbortedTxn | None]
"""Takes note of a batch that recovery found intact. If the batch ends a transaction by aborting it, returns that."""
LeaderEpochCallback = Callable[[int, int], object]
"""Takes note of a leader epoch and the offset that it begins with."""


class SegmentConfig(Protocol):
    """What a segment needs to know of its topic's configuration (`LogConfig` has it)."""

    @property
    def segment_index_bytes(self) -> int: ...
    @property
    def index_interval_bytes(self) -> int: ...


class LogSegment:
    """Record batches from the base offset on, up to the base offset of the next segment.

    **Files**, all named after the base offset: the batches (`FileRecords`), and three indexes that can all be rebuilt
    from them: `OffsetIndex`, `TimeIndex`, `TransactionIndex`. The first two are opened when they are needed.

    **Append** is one write. When more than ``index_interval_bytes`` lie between the batch that the offset index knows
    last and the one that is appended, that one gets an entry, and the time index gets one too. So the entries follow
    from the sizes of the batches alone; recovery finds the same ones again.

    **Read** finds the batch with the requested offset: an index lookup, and a walk over the few headers from there. The
    result is a region of the file, which nobody has read.

    **Rolling.** A segment that is large or old enough, or whose indexes are full, is not written to any more, and a new
    one takes over. *Old* goes by the timestamps of the records: from the first batch of the segment to the one that
    is to be appended. If records have no timestamps, by the clock, since the segment was made. A random jitter, taken
    off the limit, keeps partitions that were made at the same time from rolling at the same time.

    Methods that change anything are for one thread at a time, the owner of the log's lock. `read`, `translate_offset`,
    `find_offset_by_timestamp`, `collect_aborted_txns` and the like may run beside them.
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
        """Opens the segment's files, or makes them.

        `suffix` is what comes behind the usual names (``.cleaned``, ``.swap``); `preallocate` is how long to make a new
        ``.log`` file at once.
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
        """The largest timestamp of the first batch, once it is known."""
        self._max_timestamp: TimestampOffset | None = None
        """The largest timestamp, and the last offset of the first batch that has it; None: the time index knows."""

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
        """The bytes of its batches."""
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

        `largest_offset` is the last offset of the last batch. The largest timestamp of the batches is given with the
        last offset of the first batch that has it.
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
        if position + size - indexed <= self._index_interval_bytes or _size_of_first_batch(buffers) == size:
            largest = self._max_timestamp
            if largest is None or largest_timestamp_ms > largest[0]:
                self._note_timestamp(largest_timestamp_ms, shallow_offset_of_max_timestamp)
            if position - indexed > self._index_interval_bytes:
                self._append_to_indexes(offset_index, largest_offset, position)
        else:
            # Several batches at once, as a follower gets them: each may be due for an entry.
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
        # A log rolls before its indexes are full; but one append can bring many entries. To leave one out does no harm.
        if not offset_index.is_full and not time_index.is_full:
            offset_index.append(offset, position)
            timestamp, its_offset = self._max_timestamp or self.max_timestamp_and_offset
            time_index.maybe_append(timestamp, its_offset)

    def append_aborted_txn(self, aborted: AbortedTxn) -> None:
        """Takes note of a transaction whose abort marker was appended."""
        self.txn_index.append(aborted)

    def truncate_to(self, offset: int) -> int:
        """Removes this offset and all behind it, in whole batches; returns how many bytes of batches went.

        The batch that has the offset in it goes as a whole.
        """
        # First, as the indexes are about to lose what makes it quick.
        found = self.translate_offset(offset)
        offset_index, time_index = self.offset_index, self.time_index
        offset_index.truncate_to(offset)
        time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        # The segment is now the last one, and going to be written to.
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
        """The first batch that ends at this offset or behind it; None if all end before.

        A caller that knows of a batch further on than the index does passes its position.
        """
        indexed = self._offset_index.get().lookup(offset).position
        return self.records.search_for_offset(offset, max(indexed, start_position))

    def read(
        self, start_offset: int, max_size: int, max_position: int | None = None, min_one_message: bool = False
    ) -> FetchDataInfo | None:
        """At most `max_size` bytes of batches from an offset on; None if the segment ends before it.

        Nothing at `max_position` or behind it is shown: that is where the high watermark or the last stable offset is.
        None stands for the end of the segment. With `min_one_message`, the first batch comes whole, whatever its size:
        otherwise a consumer whose limit is too small would never get on.
        """
        if max_size < 0:
            raise ValueError(f"cannot read {max_size} bytes from {self.records.path}")
        records = self.records
        end = records.size_in_bytes
        offset_index = self._offset_index.index or self._offset_index.get()
        found = records.search_for_offset(start_offset, offset_index.lookup(start_offset)[1])
        if found is None:
            return None
        offset, position, size = found
        metadata = _new_tuple(LogOffsetMetadata, (offset, self.base_offset, position))
        limit = size if min_one_message and size > max_size else max_size
        if max_position is not None and max_position < end:
            end = max_position
        available = min(limit, end - position)
        if available <= 0:
            return FetchDataInfo(metadata, b"")
        region = records.read_slice(position, available)
        return _new_tuple(FetchDataInfo, (metadata, region, limit < size, None))

    def fetch_upper_bound_offset(self, start: OffsetPosition, fetch_size: int) -> int | None:
        """An offset that a read of so many bytes from there cannot have reached; None if the segment knows none."""
        bound = self.offset_index.fetch_upper_bound_offset(start, fetch_size)
        return None if bound is None else bound.offset

    def collect_aborted_txns(self, fetch_offset: int, upper_bound_offset: int) -> TxnIndexSearchResult:
        """The aborted transactions that overlap a range of offsets, and whether later segments may know of more."""
        return self.txn_index.collect_aborted_txns(fetch_offset, upper_bound_offset)

    def find_offset_by_timestamp(self, timestamp_ms: int, starting_offset: int = 0) -> TimestampAndOffset | None:
        """The first record, at an offset or behind it, that has this timestamp or a later one."""
        indexed = self.time_index.lookup(timestamp_ms)
        position = self.offset_index.lookup(max(indexed.offset, starting_offset)).position
        return self.records.search_for_timestamp(timestamp_ms, position, starting_offset)

    def read_next_offset(self) -> int:
        """The offset that comes behind the last one in the segment. This reads headers from the last index entry on."""
        position = self.offset_index.last_entry.position
        if position > self.size:
            position = 0  # an index that knows more than there is; to be slow is better than to be wrong
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
        """How new the segment is: by its records, or if they have no timestamps, by its file."""
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
        """When the segment begins; for one without timestamps, later than anything."""
        first = self.rolling_based_timestamp
        return LATEST_POSSIBLE if first is None or first < 0 else first

    def time_waited_for_roll(self, now_ms: int, message_timestamp: int) -> int:
        """How old the segment will be with a batch of this timestamp."""
        first = self.rolling_based_timestamp
        return now_ms - self._created if first is None or first < 0 else message_timestamp - first

    def should_roll(self, size: int, max_timestamp: int, last_offset: int, config: LogConfig, now_ms: int) -> bool:
        """Whether batches that are about to be appended belong into a new segment.

        `size`, `max_timestamp` and `last_offset` are those of the batches. An empty segment is never too old, but may
        be too small: then its successor is too, and takes them all the same.
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
        """The segment was rolled: notes its largest timestamp and gives back what was preallocated."""
        self._close_time_index()
        self.offset_index.trim_to_valid_size()
        self.time_index.trim_to_valid_size()
        self.records.trim()

    def _close_time_index(self) -> None:
        self.time_index.maybe_append(*self.max_timestamp_and_offset, skip_full_check=True)

    def resize_indexes(self, size: int) -> None:
        """Gives the indexes their full capacity: the segment found at start-up is the one to be written to."""
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
        """Goes through all batches, cuts off what is not intact, and rebuilds the indexes; returns how much went.

        With `is_intact` the caller has checked every batch already, and nothing is cut off.

        What counts as intact ends at the first batch that is not all there, has a wrong checksum, or an offset that is
        not behind the one before it. (Offsets are outside the checksum.) After a crash that can be in the middle: a
        disk writes pages in any order. What is behind such a hole goes as well, since a log without one is all that
        replication and consumers understand.

        A segment in a message format from before Kafka 0.11 is intact, but cannot be read here. It is left alone, with
        `UnsupportedForMessageFormatError`.
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
        """Raises `CorruptIndexError` if an index is missing, or the one of transactions is wrong.

        The contents of the other two are not looked at, so that nothing is opened: those of segments that were written
        to before a crash are rebuilt anyway.
        """
        for path in (self.offset_index_path, self.time_index_path):
            if not path.exists():
                raise CorruptIndexError(f"{path} is missing")
        self.txn_index.sanity_check()

    @property
    def has_overflow(self) -> bool:
        """Whether it has an offset that its indexes cannot store: possible in segments compacted by old Kafkas."""
        next_offset = self.read_next_offset()
        return next_offset > self.base_offset and next_offset - 1 - self.base_offset > MAX_RELATIVE_OFFSET

    # The files

    def flush(self) -> None:
        """Returns when everything is on the disk."""
        self.records.flush()
        self._offset_index.flush()
        self._time_index.flush()
        self.txn_index.flush()

    def change_file_suffixes(self, old_suffix: str, new_suffix: str) -> None:
        """Renames all files, as from ``""`` to ``.deleted``. Readers do not notice."""
        self.records.rename(with_changed_suffix(self.records.path, old_suffix, new_suffix))
        self._offset_index.rename(with_changed_suffix(self.offset_index_path, old_suffix, new_suffix))
        self._time_index.rename(with_changed_suffix(self.time_index_path, old_suffix, new_suffix))
        self.txn_index.rename(with_changed_suffix(self.txn_index.path, old_suffix, new_suffix))

    def has_suffix(self, suffix: str) -> bool:
        return all(path.name.endswith(suffix) for path in self.paths)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Where its files are, if they exist: that of transactions often does not."""
        return self.records.path, self.offset_index_path, self.time_index_path, self.txn_index.path

    def update_parent_dir(self, directory: Path) -> None:
        """Takes note that the directory was renamed."""
        self.records.update_parent_dir(directory)
        self._offset_index.update_parent_dir(directory)
        self._time_index.update_parent_dir(directory)
        self.txn_index.update_parent_dir(directory)

    def close(self) -> None:
        """Writes what is not written and lets go of the files: all of them, even if one makes trouble."""
        steps = [self._offset_index.close, self._time_index.close, self.records.close, self.txn_index.close]
        if self._max_timestamp is not None and self.records.is_open:
            steps.insert(0, self._close_time_index)
        _do_all(steps)

    def close_handlers(self) -> None:
        """Lets go of the files without writing anything, as when their disk has failed."""
        self._offset_index.close_handler()
        self._time_index.close_handler()
        self.records.close_handlers()
        self.txn_index.close()

    def delete_if_exists(self) -> None:
        """Removes the files, the batches first: indexes without batches are cleaned up at the next start."""
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
        """Removes the files of a segment that is not open."""
        for name in (offset_index_file, time_index_file, transaction_index_file, log_file):
            path = name(directory, base_offset, suffix)
            with disk_access("delete", path):
                path.unlink(missing_ok=True)

    def __repr__(self) -> str:
        return f"LogSegment(base_offset={self.base_offset}, size={self.size}, {self.records.path})"


def _checked(index: IndexT) -> IndexT:
    """An index that was just opened, without its entries if they cannot be right.

    Where there is no entry, the log is searched from its beginning, which is slow; a wrong one sends readers to places
    that do not exist, which would look like a broken disk.
    """
    try:
        index.sanity_check()
    except CorruptIndexError as error:
        _LOGGER.info("An index starts over, and is not used for what is in its segment by now: %s", error)
        index.truncate()
    return index


def _size_of_first_batch(buffers: Buffer | Sequence[Buffer]) -> int:
    """The size that the header at the beginning states; 0 if that is not in one piece."""
    first = buffers if isinstance(buffers, BUFFER_TYPES) else buffers[0]
    if len(first) < LOG_OVERHEAD:
        return 0
    length: int = _BATCH_LENGTH.unpack_from(first)[0]
    return length + LOG_OVERHEAD


def _do_all(steps: Sequence[Callable[[], object]]) -> None:
    """Every step, whatever becomes of the others; then raises the first error."""
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
