"""The leader epochs of a partition and their start offsets.

Each time a partition gets a new leader, the controller assigns the next epoch. The leader writes its epoch into every
batch, and each replica keeps a list of the start offsets of the epochs in its log::

    epoch   start offset
      0          0           offsets    0 ..  99 were written by the leader of epoch 0
      2        100           offsets  100 .. 119 by the leader of epoch 2 (the one of epoch 1 wrote nothing)
      5        120           offsets  120 ..     by the current one

With that list, two replicas find out where their logs diverge. A follower asks "my last epoch is 3, where does it end
for you?", and the leader responds with its largest epoch up to that, here 2, and the end offset, 120. If the follower's
own epoch 2 ends earlier, its log is valid up to there. Records beyond the smaller of both end offsets were never
committed, and the follower truncates them. Before there were epochs, followers truncated to the high watermark, which
can be stale on either side, and so lost committed records or kept some that no other replica had.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

from barnabas.common.topic_partition import TopicPartition
from barnabas.log.dirs.leader_epoch_checkpoint import EpochEntry, LeaderEpochCheckpointFile

logger = logging.getLogger(__name__)

UNDEFINED_EPOCH: Final = -1
UNDEFINED_EPOCH_OFFSET: Final = -1

Schedule: TypeAlias = Callable[[str, Callable[[], None]], object]
"""Runs a task once, soon, on another thread. The name is for logs."""

_epoch = attrgetter("epoch")
_start_offset = attrgetter("start_offset")


class EpochEndOffset(NamedTuple):
    """An epoch and the offset after its last record; both -1 if unknown."""

    leader_epoch: int
    end_offset: int


UNDEFINED_EPOCH_END_OFFSET: Final = EpochEndOffset(UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET)


class LeaderEpochFileCache:
    """Keeps the leader epochs of one log, in memory and in its ``leader-epoch-checkpoint``.

    Epochs and start offsets grow strictly from entry to entry. Every change, one per leader, replaces the list as a
    whole. So readers, which come with every fetch, take no lock and never see a partial change.

    A new entry is on disk before `assign` returns, because without the entry no replica could identify the log's
    records. Two kinds of changes are written in the background, because they happen on threads that others wait for:

    * A truncation. Surplus entries in the file after a crash are harmless: opening the log truncates them again.
    * The epoch of a batch that is being appended (`assign_later`). The log calls `flush` before it counts any records
      as flushed. So if a crash loses an entry, its records are beyond the recovery point, and recovery restores the
      entry from them when the log is opened.
    """

    def __init__(self, partition: TopicPartition, checkpoint: LeaderEpochCheckpointFile, schedule: Schedule) -> None:
        self._partition = partition
        self._checkpoint = checkpoint
        self._schedule = schedule
        self._lock = threading.Lock()
        """Guards changes of `_entries`. No other lock is taken, and nothing blocks, inside it."""
        self._file_lock = threading.Lock()
        """Held while `_entries` are read and written to the file, so that an older list cannot overwrite a newer one.
        The lock of the checkpoint file is taken inside it."""
        self._is_behind = False
        """Whether the file may lack a change. Set after a change of `_entries`, cleared before a write."""
        self._entries: tuple[EpochEntry, ...] = ()
        self.latest_epoch: int | None = None
        """The latest epoch. Every append reads it."""
        for entry in checkpoint.read():
            self._insert(entry)

    # Changes

    def assign(self, epoch: int, start_offset: int) -> None:
        """Records the start offset of an epoch, unless it is known.

        Removes entries that contradict the new one: those whose epoch or start offset is not smaller.
        """
        self.assign_all((EpochEntry(epoch, start_offset),))

    def assign_all(self, entries: Iterable[EpochEntry]) -> None:
        """Assigns several epochs, with one write at the end."""
        if self._insert_all(list(entries)):
            self._write()

    def assign_later(self, epoch: int, start_offset: int) -> None:
        """Assigns the epoch of a batch to be appended, without waiting for the disk; see the class."""
        if self._insert_all([EpochEntry(epoch, start_offset)]):
            self._flush_later()

    def _insert_all(self, new: list[EpochEntry]) -> bool:
        needed = False
        for entry in new:
            needed |= self._is_update_needed(entry)
        if not needed:
            return False  # fast path: the epoch is known
        with self._lock:
            changed = False
            for entry in new:
                changed |= self._insert(entry)
        return changed

    def _is_update_needed(self, entry: EpochEntry) -> bool:
        if entry.epoch < 0 or entry.start_offset < 0:
            raise ValueError(f"{self._partition}: a leader epoch and its start offset cannot be negative: {entry}")
        entries = self._entries
        if not entries:
            return True
        latest = entries[-1]
        return entry.epoch != latest.epoch or entry.start_offset < latest.start_offset

    def _insert(self, entry: EpochEntry) -> bool:
        if not self._is_update_needed(entry):
            return False
        entries = self._entries
        keep = len(entries)
        while keep and (entries[keep - 1].epoch >= entry.epoch or entries[keep - 1].start_offset >= entry.start_offset):
            keep -= 1
        removed = entries[keep:]
        # An equal start offset is normal: the previous leader wrote nothing.
        if len(removed) > 1 or (removed and removed[0].start_offset != entry.start_offset):
            logger.warning("%s: epochs %s contradict the new one %s and are dropped", self._partition, removed, entry)
        self._set_entries((*entries[:keep], entry))
        return True

    def _set_entries(self, entries: tuple[EpochEntry, ...]) -> None:
        self._entries = entries
        self.latest_epoch = entries[-1].epoch if entries else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Removes the epochs that start at `end_offset` or later. A negative offset removes nothing."""
        with self._lock:
            entries = self._entries
            kept = _before(entries, end_offset)
            if len(kept) == len(entries):
                return
            self._set_entries(kept)
            logger.debug("%s: dropped epochs %s from offset %d", self._partition, entries[len(kept) :], end_offset)
        self._flush_later()

    def truncate_from_start(self, start_offset: int) -> None:
        """Removes the epochs that end at or before `start_offset`; the epoch that contains it now starts there."""
        with self._lock:
            entries = self._entries
            kept = _from(entries, start_offset)
            if kept is entries:
                return
            self._set_entries(kept)
            logger.debug("%s: %d epochs are left from offset %d", self._partition, len(kept), start_offset)
        self._flush_later()

    def clear(self) -> None:
        """Removes all entries in memory only, for a log that is being deleted."""
        with self._lock:
            self._set_entries(())
        self._is_behind = False

    def clear_and_flush(self) -> None:
        with self._lock:
            self._set_entries(())
        self._write()

    def flush(self) -> None:
        """Writes the file if it lacks a change. Waits for a write in progress, which may have the change."""
        self._write(if_behind=True)

    def _write(self, *, if_behind: bool = False, if_dir_exists: bool = False) -> None:
        with self._file_lock:
            if if_behind and not self._is_behind:
                return
            self._is_behind = False
            try:
                if if_dir_exists:
                    self._checkpoint.write_if_dir_exists(self._entries)
                else:
                    self._checkpoint.write(self._entries)
            except BaseException:
                self._is_behind = True
                raise

    def _flush_later(self) -> None:
        self._is_behind = True
        self._schedule(f"leader-epoch-cache-flush-{self._partition}", self._flush_if_dir_exists)

    def _flush_if_dir_exists(self) -> None:
        self._write(if_behind=True, if_dir_exists=True)

    def move_to(self, checkpoint: LeaderEpochCheckpointFile) -> None:
        """Writes to another file from now on, because the log's directory was renamed."""
        with self._file_lock:
            self._checkpoint = checkpoint

    # Queries: no lock, see the class

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return self._entries

    @property
    def latest_entry(self) -> EpochEntry | None:
        entries = self._entries
        return entries[-1] if entries else None

    @property
    def earliest_entry(self) -> EpochEntry | None:
        entries = self._entries
        return entries[0] if entries else None

    def entry_for(self, epoch: int) -> EpochEntry | None:
        entries = self._entries
        index = bisect_left(entries, epoch, key=_epoch)
        return entries[index] if index < len(entries) and entries[index].epoch == epoch else None

    def previous_entry(self, epoch: int) -> EpochEntry | None:
        """Returns the entry of the last epoch before `epoch`."""
        entries = self._entries
        index = bisect_left(entries, epoch, key=_epoch)
        return entries[index - 1] if index else None

    def previous_epoch(self, epoch: int | None = None) -> int | None:
        """Returns the last epoch before `epoch`, or before the latest one."""
        entries = self._entries
        if epoch is None:
            return entries[-2].epoch if len(entries) > 1 else None
        entry = self.previous_entry(epoch)
        return None if entry is None else entry.epoch

    def next_epoch(self, epoch: int) -> int | None:
        """Returns the first epoch after `epoch`."""
        entries = self._entries
        index = bisect_right(entries, epoch, key=_epoch)
        return entries[index].epoch if index < len(entries) else None

    def epoch_for_offset(self, offset: int) -> int | None:
        """Returns the epoch in which an offset was, or would be, written; None before the first entry."""
        entries = self._entries
        index = bisect_right(entries, offset, key=_start_offset)
        return entries[index - 1].epoch if index else None

    def end_offset_for(self, requested_epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Returns the log's last epoch up to the requested one, and the offset after its last record.

        * The latest epoch ends at the log end offset.
        * An epoch above all is unknown: this replica is behind the requesting one.
        * An epoch below all has been deleted with its records. It ends at the start offset of the first remaining
          epoch. That may be too late, but this log has no earlier records.
        """
        entries = self._entries
        if requested_epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH_END_OFFSET
        if entries and entries[-1].epoch == requested_epoch:
            return EpochEndOffset(requested_epoch, log_end_offset)
        index = bisect_right(entries, requested_epoch, key=_epoch)
        if index == len(entries):
            return UNDEFINED_EPOCH_END_OFFSET
        epoch = entries[index - 1].epoch if index else requested_epoch
        return EpochEndOffset(epoch, entries[index].start_offset)

    def entries_in_range(self, start_offset: int, end_offset: int) -> tuple[EpochEntry, ...]:
        """Returns the entries of a range of the log, as if the log consisted of that range only."""
        entries = self._entries
        if start_offset >= 0:
            entries = _from(entries, start_offset)
        return _before(entries, end_offset)

    def __repr__(self) -> str:
        epochs = ", ".join(f"{entry.epoch}@{entry.start_offset}" for entry in self._entries)
        return f"LeaderEpochFileCache({self._partition}: {epochs or 'empty'})"


def _before(entries: tuple[EpochEntry, ...], end_offset: int) -> tuple[EpochEntry, ...]:
    return entries if end_offset < 0 else entries[: bisect_left(entries, end_offset, key=_start_offset)]


def _from(entries: tuple[EpochEntry, ...], start_offset: int) -> tuple[EpochEntry, ...]:
    index = bisect_right(entries, start_offset, key=_start_offset)
    if index == 0 or (index == 1 and entries[0].start_offset == start_offset):
        return entries
    return (EpochEntry(entries[index - 1].epoch, start_offset), *entries[index:])
