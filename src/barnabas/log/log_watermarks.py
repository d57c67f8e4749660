"""The offsets that say what of a log may be seen, and by whom.

::

    log start offset <= last stable offset <= high watermark <= log end offset

* The **log start offset** is the first one that may be read. Before it there may still be records on disk.
* The **high watermark** is how far all in-sync replicas have got. What is before it cannot be lost by an election, so
  consumers see that and no more.
* The **last stable offset** is the first one that belongs to a transaction which is not decided, or the high watermark
  if that comes first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from barnabas.common.errors import OffsetOutOfRangeError
from barnabas.common.named_tuple import NamedTuple
from barnabas.log.local_log import LocalLog
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.log.producer_states import ProducerStates

logger = logging.getLogger(__name__)

HighWatermarkListener = Callable[[int], object]
"""Told of every high watermark, with the log's lock held: it must be quick, and take no lock that is held elsewhere
while a log is called."""


class LogOffsetSnapshot(NamedTuple):
    """The offsets of one moment, with their places."""

    log_start_offset: int
    log_end_offset: LogOffsetMetadata
    high_watermark: LogOffsetMetadata
    last_stable_offset: LogOffsetMetadata


def no_listener(_: int) -> None:
    """Listens to nothing."""


class LogWatermarks:
    """The offsets of one log.

    They are asked for with every fetch, so reading them takes no lock: each is one attribute that holds a whole,
    immutable value. Changes are made with the log's lock held, which is given to the constructor.

    An offset is remembered with its place in a file, where that is known, because a reader has to stop there. An offset
    that came from another replica or from a checkpoint comes without, and is looked up when a reader first needs it.
    """

    __slots__ = (
        "_first_unstable_offset",
        "_high_watermark",
        "_local_log",
        "_lock",
        "_producer_state",
        "listener",
        "log_start_offset",
    )

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
        self.listener: HighWatermarkListener = no_listener
        self.log_start_offset = log_start_offset
        self._high_watermark = LogOffsetMetadata(log_start_offset)
        self._first_unstable_offset: LogOffsetMetadata | None = None
        self.update_first_unstable_offset()

    # The start

    def set_log_start_offset(self, offset: int) -> None:
        """Moves the start; the other offsets stay behind it. The lock must be held."""
        self.log_start_offset = offset
        if self.high_watermark < offset:
            self.update_high_watermark(offset)
        self._local_log.recovery_point = max(self._local_log.recovery_point, offset)

    # The high watermark

    @property
    def high_watermark(self) -> int:
        return self._high_watermark.message_offset

    def update_high_watermark(self, high_watermark: int | LogOffsetMetadata) -> int:
        """Sets it to this offset, or to the nearest one within the log; returns that."""
        new = LogOffsetMetadata(high_watermark) if isinstance(high_watermark, int) else high_watermark
        with self._lock:
            end = self._local_log.log_end_offset_metadata
            if new.message_offset < self.log_start_offset:
                new = LogOffsetMetadata(self.log_start_offset)
            elif new.message_offset >= end.message_offset:
                new = end
            self._set_high_watermark(new)
        return new.message_offset

    def maybe_increment_high_watermark(self, new: LogOffsetMetadata) -> LogOffsetMetadata | None:
        """Moves it forward; returns what it was before, or None if it is there already.

        For a leader that has learned how far its followers are. ValueError beyond the end of the log.
        """
        if new.message_offset > self._local_log.log_end_offset:
            raise ValueError(
                f"{self._local_log.partition}: the high watermark cannot be {new.message_offset}, behind the end of "
                f"the log at {self._local_log.log_end_offset}"
            )
        with self._lock:
            old = self.fetch_high_watermark()
            # The same offset can move on, to the segment that was rolled there.
            if old.message_offset < new.message_offset or (
                old.message_offset == new.message_offset and old.on_older_segment(new)
            ):
                self._set_high_watermark(new)
                return old
        return None

    def move_high_watermark_to_end(self) -> bool:
        """Moves it to the end of the log; whether it was not there. For a leader that has nobody to wait for."""
        with self._lock:
            end = self._local_log.log_end_offset_metadata
            if self._high_watermark[0] < end[0]:
                if (
                    self.listener is no_listener
                    and self._first_unstable_offset is None
                    and not self._producer_state.may_have_transactions
                ):
                    self._high_watermark = end  # nobody has to hear of it
                else:
                    self._set_high_watermark(end)
                return True
            return self.maybe_increment_high_watermark(end) is not None

    def maybe_update_high_watermark(self, high_watermark: int) -> int | None:
        """Sets it to what the leader says, within the log; returns the new one if it is another one."""
        with self._lock:
            old = self.high_watermark
            new = self.update_high_watermark(high_watermark)
        return None if new == old else new

    def follow_log_end(self) -> None:
        """After a truncation or a roll: a high watermark at or behind the end is the end. The lock must be held."""
        end = self._local_log.log_end_offset_metadata
        if self._high_watermark.message_offset >= end.message_offset:
            self._set_high_watermark(end)

    def _set_high_watermark(self, new: LogOffsetMetadata) -> None:
        if new.message_offset < 0:
            raise ValueError(f"{self._local_log.partition}: the high watermark cannot be {new.message_offset}")
        with self._lock:
            if new.message_offset < self._high_watermark.message_offset:
                logger.warning(
                    "%s: the high watermark goes back from %d to %d",
                    self._local_log.partition,
                    self._high_watermark.message_offset,
                    new.message_offset,
                )
            self._high_watermark = new
            state = self._producer_state
            if state.may_have_transactions:
                state.on_high_watermark_updated(new.message_offset)
            if self.listener is not no_listener:
                self.listener(new.message_offset)
            if state.may_have_transactions or self._first_unstable_offset is not None:
                self.update_first_unstable_offset()

    def fetch_high_watermark(self) -> LogOffsetMetadata:
        """The high watermark with its place, looked up if need be."""
        metadata = self._high_watermark
        if metadata.segment_base_offset >= 0 or not metadata.message_offset_only:
            return metadata
        # A reader must not wait for the lock, which is held while a slow disk is written to: then the place is looked
        # up once more by the next one.
        if not self._lock.acquire(blocking=False):
            return self.with_place(metadata.message_offset)
        try:
            metadata = self.with_place(self.high_watermark)
            self._set_high_watermark(metadata)
        finally:
            self._lock.release()
        return metadata

    def plain_end(self, offset: int) -> LogOffsetMetadata | None:
        """The place of an offset at which all the offsets are: the reader has everything, and can have no more.

        None if it is not that plain: something is not replicated, or a transaction is open, or the place has to be
        looked up, or a log directory has failed, perhaps this one.
        """
        end = self._high_watermark
        local_log = self._local_log
        if (
            end[0] != offset
            or end[1] < 0
            or local_log.log_end_offset_metadata[0] != offset
            or self._first_unstable_offset is not None
            or local_log.guard.channel.any_offline
        ):
            return None
        return end

    # Transactions

    @property
    def first_unstable_offset(self) -> int | None:
        metadata = self._first_unstable_offset
        return None if metadata is None else metadata.message_offset

    @property
    def last_stable_offset(self) -> int:
        high_watermark = self._high_watermark.message_offset
        unstable = self._first_unstable_offset
        return high_watermark if unstable is None else min(unstable.message_offset, high_watermark)

    def update_first_unstable_offset(self) -> None:
        """Takes over what the producers' state says. The lock must be held.

        Where the transaction has lost its first records to a deletion, the start of the log takes their place. That may
        be further than need be, but there is nothing before it to be read.
        """
        unstable = self._producer_state.first_unstable_offset
        if unstable is not None and (unstable.message_offset_only or unstable.message_offset < self.log_start_offset):
            unstable = self.with_place(max(unstable.message_offset, self.log_start_offset))
        self._first_unstable_offset = unstable

    def fetch_last_stable_offset(self) -> LogOffsetMetadata:
        """The last stable offset with its place, looked up if need be."""
        high_watermark = self.fetch_high_watermark()
        unstable = self._first_unstable_offset
        if unstable is None or unstable.message_offset >= high_watermark.message_offset:
            return high_watermark
        if not unstable.message_offset_only:
            return unstable
        metadata = self.with_place(unstable.message_offset)
        if self._lock.acquire(blocking=False):  # as above
            try:
                if self._first_unstable_offset is unstable:
                    self._first_unstable_offset = metadata
            finally:
                self._lock.release()
        return metadata

    # All together

    def snapshot(self) -> LogOffsetSnapshot:
        last_stable_offset = self.fetch_last_stable_offset()
        high_watermark = self.fetch_high_watermark()
        return LogOffsetSnapshot(
            self.log_start_offset, self._local_log.log_end_offset_metadata, high_watermark, last_stable_offset
        )

    def with_place(self, offset: int) -> LogOffsetMetadata:
        """An offset with its place, if it is in the log."""
        try:
            return self._local_log.convert_to_offset_metadata(offset)
        except OffsetOutOfRangeError:
            return LogOffsetMetadata(offset)
