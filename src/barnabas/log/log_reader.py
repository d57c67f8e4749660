"""The read side of a log: offsets, leader epochs and records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from barnabas.common.errors import KafkaStorageError, OffsetOutOfRangeError
from barnabas.log.fetch_data_info import FetchDataInfo
from barnabas.log.fetch_isolation import FetchIsolation
from barnabas.log.leader_epoch_cache import UNDEFINED_EPOCH_OFFSET, EpochEndOffset
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.log.log_watermarks import HighWatermarkListener, LogOffsetSnapshot
from barnabas.log.log_writer import LogWriter
from barnabas.log.segment.file_records import TimestampAndOffset
from barnabas.protocol.internal.storage import AbortedTxn

T = TypeVar("T")

# Looked up once, because access to an enum member costs as much as a call.
HIGH_WATERMARK: Final = FetchIsolation.HIGH_WATERMARK
TXN_COMMITTED: Final = FetchIsolation.TXN_COMMITTED


class LogReader(LogWriter):
    """Returns the offsets of the log, looks up offsets, and reads records.

    A reader takes no lock. It reads the offsets, then the table of segments, then an index. Each of them is immutable
    or returns immutable values. The result is a region of a file, which stays open as long as the region is referenced.
    """

    # Offsets. A caller that needs several takes them from one snapshot.

    @property
    def log_start_offset(self) -> int:
        return self._watermarks.offsets.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._watermarks.offsets.log_end_offset.message_offset

    @property
    def log_end_offset_metadata(self) -> LogOffsetMetadata:
        return self._watermarks.offsets.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._watermarks.offsets.high_watermark.message_offset

    @property
    def last_stable_offset(self) -> int:
        return self._watermarks.offsets.last_stable_offset.message_offset

    @property
    def first_unstable_offset(self) -> int | None:
        return self._watermarks.first_unstable_offset

    def fetch_offset_snapshot(self) -> LogOffsetSnapshot:
        """Returns all current offsets with their file positions."""
        local_log, marks = self._local_log, self._watermarks
        offsets = marks.offsets
        if offsets[2][1] >= 0 and offsets[3][1] >= 0 and not local_log.guard.channel.any_offline:
            return offsets
        return self._look_up("looking up offsets", marks.snapshot)

    def update_high_watermark(self, high_watermark: int | LogOffsetMetadata) -> int:
        return self._watermarks.update_high_watermark(high_watermark)

    def maybe_increment_high_watermark(self, high_watermark: LogOffsetMetadata) -> LogOffsetMetadata | None:
        return self._watermarks.maybe_increment_high_watermark(high_watermark)

    def move_high_watermark_to_end(self) -> bool:
        return self._watermarks.move_high_watermark_to_end()

    def maybe_update_high_watermark(self, high_watermark: int) -> int | None:
        return self._watermarks.maybe_update_high_watermark(high_watermark)

    def set_high_watermark_listener(self, listener: HighWatermarkListener) -> None:
        self._watermarks.listener = listener

    # Leader epochs

    @property
    def latest_epoch(self) -> int | None:
        return self.leader_epochs.latest_epoch

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset | None:
        """Returns the last epoch up to this one and its end offset; None if unknown."""
        found = self.leader_epochs.end_offset_for(leader_epoch, self.log_end_offset)
        return None if found.end_offset == UNDEFINED_EPOCH_OFFSET else found

    # Reading

    def read(
        self,
        start_offset: int,
        max_length: int,
        isolation: FetchIsolation,
        min_one_message: bool,
        offsets: LogOffsetSnapshot | None = None,
    ) -> FetchDataInfo:
        """Reads at most `max_length` bytes of batches from an offset on; with `min_one_message` at least one batch.

        `offsets` bounds the read, if the caller has a snapshot already. Raises `OffsetOutOfRangeError` for an offset
        before the log start offset or after the log end offset. Only indexes and the headers of a few batches are read
        from disk.
        """
        local_log = self._local_log
        directory = local_log.directory
        try:
            if local_log.guard.channel.any_offline:
                local_log.guard.check()
            if offsets is None:
                offsets = self._watermarks.snapshot()
            log_start_offset, limit, high_watermark, last_stable_offset = offsets
            if start_offset < log_start_offset:
                raise OffsetOutOfRangeError(
                    f"Offset {start_offset} of {self.topic_partition} is not there any more: the log starts at "
                    f"{log_start_offset}"
                )
            committed = isolation is TXN_COMMITTED
            if committed:
                limit = last_stable_offset
            elif isolation is HIGH_WATERMARK:
                limit = high_watermark
            return local_log.read(start_offset, max_length, min_one_message, limit, committed)
        except (KafkaStorageError, OSError) as error:
            if self._has_moved(directory, error):
                return self.read(start_offset, max_length, isolation, min_one_message)
            local_log.guard.reraise(f"reading {self.topic_partition}", error)

    def collect_aborted_transactions(self, start_offset: int, upper_bound_offset: int) -> list[AbortedTxn]:
        """Returns the aborted transactions that overlap a range of offsets."""
        return self._look_up(
            "reading the transaction index",
            lambda: self._local_log.collect_aborted_transactions(start_offset, upper_bound_offset),
        )

    def fetch_offset_by_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """Looks up an offset by timestamp; see `barnabas.log.offset_lookup`."""
        from barnabas.log.offset_lookup import find_offset

        return self._look_up(
            "looking up a timestamp",
            lambda: find_offset(
                timestamp,
                self._local_log.segments,
                self.leader_epochs,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
            ),
        )

    def _look_up(self, action: str, operation: Callable[[], T]) -> T:
        local_log = self._local_log
        directory = local_log.directory
        try:
            local_log.guard.check()
            return operation()
        except (KafkaStorageError, OSError) as error:
            if self._has_moved(directory, error):
                return self._look_up(action, operation)
            local_log.guard.reraise(f"{action} in {self.topic_partition}", error)
