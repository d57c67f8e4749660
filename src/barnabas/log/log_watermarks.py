"""The offsets of a log, which limit what readers see.

::

    log start offset <= last stable offset <= high watermark <= log end offset

* The **log start offset** is the first one that may be read. Before it there may still be records on disk.
* The **high watermark** is the smallest log end offset of the in-sync replicas. An election cannot lose records before
  it, so consumers see only those.
* The **last stable offset** is the first offset of an open transaction, or the high watermark if that comes first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple

from barnabas.common.errors import OffsetOutOfRangeError
from barnabas.log.local_log import LocalLog
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.log.producers.producer_states import ProducerStates

logger = logging.getLogger(__name__)

HighWatermarkListener = Callable[[int], object]
"""Called with every new high watermark, with the log's lock held. It must be quick, and must not take a lock that other
code holds while it calls a log."""


class LogOffsetSnapshot(NamedTuple):
    """All offsets of a log at one moment, each with its file position where that is known."""

    log_start_offset: int
    log_end_offset: LogOffsetMetadata
    high_watermark: LogOffsetMetadata
    last_stable_offset: LogOffsetMetadata


_new_tuple = tuple.__new__
"""Creates a named tuple without calling its class, which takes several times as long."""


def no_listener(_: int) -> None:
    """Ignores the high watermark."""


class LogWatermarks:
    """Owns the offsets of one log.

    All offsets are in one immutable snapshot, ``offsets``. It is replaced as a whole with the log's lock held, and read
    without it: a reader never combines the high watermark of one moment with the log end offset of another.

    An offset carries its file position, because a read has to stop there. An offset from another replica or from a
    checkpoint has none; `snapshot` looks it up when a reader first needs it.
    """

    __slots__ = ("_local_log", "_lock", "_producer_state", "failures", "listener", "offsets")

    def __init__(
        self,
        log_start_offset: int,
        local_log: LocalLog,
        producer_state: ProducerStates,
        lock: threading.RLock,
    ) -> None:
        self._local_log = local_log
        self._producer_state = producer_state
        self._lock = lock
        self.failures = local_log.guard.channel
        """Tells whether any log directory, possibly this log's, is offline."""
        self.listener: HighWatermarkListener = no_listener
        start = LogOffsetMetadata(log_start_offset)
        self.offsets = LogOffsetSnapshot(log_start_offset, local_log.log_end_offset_metadata, start, start)
        self._publish(log_start_offset, start)

    def _publish(self, log_start_offset: int, high_watermark: LogOffsetMetadata) -> None:
        """Replaces the snapshot, with the log end offset of the files and the transactions. The lock must be held."""
        stable = high_watermark
        state = self._producer_state
        if state.may_have_transactions:
            state.on_high_watermark_updated(high_watermark[0])
            unstable = self._first_unstable_offset(log_start_offset)
            if unstable is not None and unstable[0] < high_watermark[0]:
                stable = unstable
        end = self._local_log.log_end_offset_metadata
        self.offsets = _new_tuple(LogOffsetSnapshot, (log_start_offset, end, high_watermark, stable))

    # Log start offset

    def set_log_start_offset(self, offset: int) -> None:
        """Sets the log start offset, and raises the other offsets to at least it. The lock must be held."""
        end = self._local_log.log_end_offset_metadata
        high_watermark = self.offsets.high_watermark
        if high_watermark.message_offset >= offset:
            self._publish(offset, high_watermark)
        else:
            self._set_high_watermark(end if offset >= end.message_offset else LogOffsetMetadata(offset), offset)
        self._local_log.recovery_point = max(self._local_log.recovery_point, offset)

    def truncated(self, log_start_offset: int, *, fully: bool = False) -> None:
        """Lowers the offsets to the log end offset after a truncation of the files. The lock must be held.

        After a full truncation, the high watermark is the log end offset, whatever it was before.
        """
        end = self._local_log.log_end_offset_metadata
        high_watermark = self.offsets.high_watermark
        if fully or high_watermark.message_offset >= end.message_offset:
            self._set_high_watermark(end, log_start_offset)
        else:
            self._publish(log_start_offset, high_watermark)

    # Log end offset

    def appended(self, commits: bool) -> int:
        """Publishes the log end offset after an append; returns the log start offset. The lock must be held.

        If the append `commits` its records, because no other replica has to get them, the high watermark moves along.
        """
        offsets = self.offsets
        log_start_offset: int = offsets[0]
        if not commits:
            self._publish(log_start_offset, offsets[2])
            return log_start_offset
        end = self._local_log.log_end_offset_metadata
        self._publish(log_start_offset, end)
        if self.listener is not no_listener:
            self.listener(end[0])
        return log_start_offset

    # High watermark

    def update_high_watermark(self, high_watermark: int | LogOffsetMetadata) -> int:
        """Sets the high watermark to this offset, or to the nearest one within the log; returns the result."""
        new = LogOffsetMetadata(high_watermark) if isinstance(high_watermark, int) else high_watermark
        with self._lock:
            end = self._local_log.log_end_offset_metadata
            start = self.offsets.log_start_offset
            if new.message_offset < start:
                new = LogOffsetMetadata(start)
            elif new.message_offset >= end.message_offset:
                new = end
            self._set_high_watermark(new, start)
        return new.message_offset

    def maybe_increment_high_watermark(self, new: LogOffsetMetadata) -> LogOffsetMetadata | None:
        """Advances the high watermark; returns the previous one, or None if it does not move.

        For a leader that has learned the log end offsets of its followers. Raises ValueError beyond the log end offset.
        """
        if new.message_offset > self._local_log.log_end_offset:
            raise ValueError(
                f"{self._local_log.partition}: the high watermark cannot be {new.message_offset}, beyond the log end "
                f"offset {self._local_log.log_end_offset}"
            )
        with self._lock:
            old = self.snapshot().high_watermark
            # The same offset can move to the new segment that was rolled there.
            if old.message_offset < new.message_offset or (
                old.message_offset == new.message_offset and old.on_older_segment(new)
            ):
                self._set_high_watermark(new, self.offsets.log_start_offset)
                return old
        return None

    def move_high_watermark_to_end(self) -> bool:
        """Moves the high watermark to the log end offset; returns whether it moved. For a leader without followers."""
        with self._lock:
            return self.maybe_increment_high_watermark(self._local_log.log_end_offset_metadata) is not None

    def maybe_update_high_watermark(self, high_watermark: int) -> int | None:
        """Sets the leader's high watermark, limited to this log; returns the new one if it differs."""
        with self._lock:
            old = self.offsets.high_watermark.message_offset
            new = self.update_high_watermark(high_watermark)
        return None if new == old else new

    def follow_log_end(self) -> None:
        """Limits the high watermark to the log end offset after a truncation or a roll. The lock must be held."""
        end = self._local_log.log_end_offset_metadata
        if self.offsets.high_watermark.message_offset >= end.message_offset:
            self._set_high_watermark(end, self.offsets.log_start_offset)
        else:
            self._publish(self.offsets.log_start_offset, self.offsets.high_watermark)

    def _set_high_watermark(self, new: LogOffsetMetadata, log_start_offset: int) -> None:
        """Publishes a high watermark and tells the listener. The lock must be held."""
        if new.message_offset < 0:
            raise ValueError(f"{self._local_log.partition}: the high watermark cannot be {new.message_offset}")
        old = self.offsets.high_watermark.message_offset
        if new.message_offset < old:
            logger.warning(
                "%s: the high watermark goes back from %d to %d", self._local_log.partition, old, new.message_offset
            )
        self._publish(log_start_offset, new)
        if self.listener is not no_listener:
            self.listener(new.message_offset)

    # Transactions

    def _first_unstable_offset(self, log_start_offset: int) -> LogOffsetMetadata | None:
        """Returns the first unstable offset of the producer state, with its file position.

        If the first records of the transaction were deleted, the log start offset is used instead. It may be later than
        the first unstable offset, but no record before it can be read.
        """
        unstable = self._producer_state.first_unstable_offset
        if unstable is not None and (unstable.message_offset_only or unstable.message_offset < log_start_offset):
            unstable = self.with_place(max(unstable.message_offset, log_start_offset))
        return unstable

    # All together

    def snapshot(self) -> LogOffsetSnapshot:
        """Returns all offsets with file positions, and looks up unknown positions."""
        offsets = self.offsets
        if offsets[2][1] >= 0 and offsets[3][1] >= 0:
            return offsets
        _, _, high_watermark, stable = offsets
        if high_watermark.segment_base_offset < 0:
            high_watermark = self.with_place(high_watermark.message_offset)
        if stable.message_offset == high_watermark.message_offset:
            stable = high_watermark
        elif stable.segment_base_offset < 0:
            stable = self.with_place(stable.message_offset)
        located = offsets._replace(high_watermark=high_watermark, last_stable_offset=stable)
        # A reader must not wait for the lock, which is held during writes to a slow disk. If the lock is taken, the
        # next reader looks the positions up again.
        if self._lock.acquire(blocking=False):
            try:
                if self.offsets is offsets:
                    self.offsets = located
            finally:
                self._lock.release()
        return located

    def with_place(self, offset: int) -> LogOffsetMetadata:
        """Returns an offset with its file position, if it is in the log."""
        try:
            return self._local_log.convert_to_offset_metadata(offset)
        except OffsetOutOfRangeError:
            return LogOffsetMetadata(offset)
