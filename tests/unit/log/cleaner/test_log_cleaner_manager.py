"""Which log is cleaned next, and who may stop that."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.common.topic_partition import TopicPartition
from barnabas.log.cleaner.cleaner_errors import LogCleaningAbortedError, LogCleaningError
from barnabas.log.cleaner.cleaner_stats import PreCleanStats
from barnabas.log.cleaner.log_cleaner_manager import (
    MAX_DIRTY_PERCENT,
    TIME_SINCE_LAST_RUN_MS,
    UNCLEANABLE_BYTES,
    UNCLEANABLE_PARTITIONS_COUNT,
    LogCleanerManager,
    LogCleaning,
    LogCleaningPaused,
)
from barnabas.log.cleaner.log_to_clean import LogToClean, cleanable_offsets, max_compaction_delay_ms
from barnabas.log.dirs.offset_checkpoint import CLEANER_OFFSET_CHECKPOINT_FILE, OffsetCheckpointFile
from barnabas.log.segment.log_segment import LogSegment
from barnabas.log.storage_errors import FileClosedError, storage_error
from barnabas.log.unified_log import LogStartOffsetIncrementReason, UnifiedLog
from barnabas.metrics.yammer.registry import Gauge, MetricsRegistry
from log_fixtures import NOW, LogBox
from unit.log.cleaner.cleaner_samples import compacted, put, put_as_replica

A, B, C = (TopicPartition(name, 0) for name in "abc")
HOUR = 3_600_000


class Setting:
    """Logs in two directories, and a manager."""

    def __init__(self, path: Path) -> None:
        self.dirs = (path / "one", path / "two")
        self.boxes = [LogBox(each) for each in self.dirs]
        self.clock = self.boxes[0].clock
        self.channel = self.boxes[0].channel
        self.metrics = MetricsRegistry(self.clock)
        self.logs: dict[TopicPartition, UnifiedLog] = {}
        for each in self.dirs:
            each.mkdir()
        self.manager = self.new_manager()

    def new_manager(self) -> LogCleanerManager:
        manager = LogCleanerManager(self.dirs, self.channel, self.clock, self.metrics)
        manager.attach(lambda: self.logs)
        return manager

    def log(self, partition: TopicPartition, segments: int = 2, *, box: int = 0, **settings: Any) -> UnifiedLog:
        """A log with so many segments of the same size, the active one not counted."""
        log = self.boxes[box].open(compacted(**settings), name=f"{partition.topic}-{partition.partition}")
        for _ in range(segments):
            put(log, (b"k", b"v" * 100))
            log.roll()
        log.watermarks.update_high_watermark(log.log_end_offset)
        self.logs[partition] = log
        return log

    def grab(self) -> LogToClean | None:
        return self.manager.grab_filthiest_compacted_log(PreCleanStats())

    def clean_up_to(self, partition: TopicPartition, offset: int, box: int = 0) -> None:
        """As if it had been cleaned."""
        self.manager._states[partition] = LogCleaning.IN_PROGRESS
        self.manager.done_cleaning(partition, self.dirs[box], offset)

    def on_disk(self, box: int = 0) -> dict[TopicPartition, int]:
        return OffsetCheckpointFile(self.dirs[box] / CLEANER_OFFSET_CHECKPOINT_FILE).read()

    def gauge(self, name: str, box: int | None = None) -> Any:
        tags = f",logDirectory={self.dirs[box]}" if box is not None else ""
        for key, metric in self.metrics.metrics.items():
            if str(key).replace('"', "") == f"kafka.log:type=LogCleanerManager,name={name}{tags}":
                assert isinstance(metric, Gauge)
                return metric.value()
        return None


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    found = Setting(tmp_path)
    yield found
    for log in found.logs.values():
        log.close_handlers()


# The choice


def test_the_log_with_the_largest_share_of_dirt_is_next(setting: Setting) -> None:
    for partition in (A, B, C):
        setting.log(partition, 10)
    setting.clean_up_to(A, 4)  # 60 % dirty
    setting.clean_up_to(B, 2)  # 80 %
    setting.clean_up_to(C, 7)  # 30 %: less than min.cleanable.dirty.ratio
    stats = PreCleanStats()
    first = setting.manager.grab_filthiest_compacted_log(stats)
    assert first is not None
    assert (first.partition, first.first_dirty_offset, first.first_uncleanable_offset) == (B, 2, 10)
    assert (first.cleanable_ratio, stats.cleanable_partitions) == (0.8, 2)
    assert setting.gauge(MAX_DIRTY_PERCENT) == 80
    assert setting.manager.cleaning_state(B) is LogCleaning.IN_PROGRESS
    second = setting.grab()
    assert second is not None
    assert second.partition == A
    assert setting.grab() is None
    assert setting.gauge(MAX_DIRTY_PERCENT) == 30
    setting.manager.done_cleaning(B, setting.dirs[0], 10)
    assert setting.manager.cleaning_state(B) is None
    assert setting.on_disk() == {A: 4, B: 10, C: 7}


def test_logs_that_are_not_compacted_or_empty_are_none_to_clean(setting: Setting) -> None:
    setting.log(A, cleanup_policy=("delete",))
    setting.log(B, 0)
    assert setting.grab() is None
    assert setting.gauge(MAX_DIRTY_PERCENT) == 0
    setting.log(C, cleanup_policy=("compact", "delete"))
    found = setting.grab()
    assert found is not None
    assert found.partition == C


def test_nothing_is_there_before_logs_are_attached(tmp_path: Path, setting: Setting) -> None:
    setting.log(A)
    setting.clean_up_to(A, 1)
    manager = LogCleanerManager(setting.dirs, setting.channel, setting.clock, MetricsRegistry(setting.clock))
    assert manager.grab_filthiest_compacted_log(PreCleanStats()) is None
    manager.update_checkpoints(setting.dirs[0])
    assert setting.on_disk() == {A: 1}


def test_max_compaction_lag_needs_no_large_share(setting: Setting) -> None:
    log = setting.log(A, 10, max_compaction_lag_ms=HOUR)
    setting.clean_up_to(A, 9)
    assert setting.grab() is None
    setting.clock.advance(HOUR)
    assert max_compaction_delay_ms(log, 9, setting.clock.milliseconds()) == 0
    setting.clock.advance(5)
    stats = PreCleanStats()
    found = setting.manager.grab_filthiest_compacted_log(stats)
    assert found is not None
    assert found.need_compaction_now
    assert (stats.max_compaction_delay_ms, stats.delayed_partitions) == (5, 1)


def test_max_compaction_lag_does_not_make_a_clean_log_dirty(setting: Setting) -> None:
    setting.log(A, 3, max_compaction_lag_ms=1)
    setting.clean_up_to(A, 3)
    setting.clock.advance(HOUR)
    assert setting.grab() is None


def test_segments_that_are_too_young_are_left_for_later(setting: Setting) -> None:
    log = setting.log(A, 3, min_compaction_lag_ms=HOUR)
    put(log, (b"k", b"v"), timestamp=NOW + 10)
    log.roll()
    log.watermarks.update_high_watermark(log.log_end_offset)
    now = NOW + HOUR
    assert cleanable_offsets(log, None, now - 1) == (0, 0, False)
    assert cleanable_offsets(log, None, now) == (0, 3, False)
    assert cleanable_offsets(log, 1, now - 1) == (1, 1, False)
    assert cleanable_offsets(log, None, now + 10) == (0, 4, False)


def test_what_is_not_stable_or_active_is_left_for_later(setting: Setting) -> None:
    log = setting.log(A, 3)
    put(log, (b"k", b"v"))
    assert cleanable_offsets(log, None, NOW) == (0, 3, False)
    log.watermarks.update_high_watermark(4)
    assert cleanable_offsets(log, None, NOW) == (0, 3, False)  # the active segment
    put_as_replica(log, (b"k", b"v"), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    for _ in range(2):
        log.roll()
        put(log, (b"k", b"v"))
    log.watermarks.update_high_watermark(log.log_end_offset)
    assert cleanable_offsets(log, None, NOW) == (0, 4, False)  # the transaction
    assert LogToClean.of(log, 0, 4).first_uncleanable_offset == 3  # and what is in the same segment


@pytest.mark.parametrize("policy", [("compact",), ("compact", "delete")])
def test_a_checkpoint_outside_the_log_is_corrected(
    setting: Setting, policy: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    log = setting.log(A, 6, cleanup_policy=policy, min_cleanable_dirty_ratio=0.1)
    setting.clean_up_to(A, 2)
    log.maybe_increment_log_start_offset(4, LogStartOffsetIncrementReason.SEGMENT_DELETION)
    found = setting.grab()
    assert found is not None
    assert found.first_dirty_offset == 4
    assert setting.on_disk() == {A: 4}
    assert ("is said to be clean" in caplog.text) == ("delete" not in policy)
    setting.manager.done_cleaning(A, setting.dirs[0], 7)
    found = setting.grab()
    assert found is not None
    assert found.first_dirty_offset == 4  # it ends at 6: all of it counts as dirty
    assert setting.on_disk() == {A: 4}


def test_what_cannot_be_looked_at_is_an_error_of_that_log(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    log = setting.log(A, min_compaction_lag_ms=1)
    shortage = storage_error("read", Path("index"), OSError(errno.EMFILE, "Too many open files"))
    shortage.__cause__ = OSError(errno.EMFILE, "Too many open files")
    for failure, may_pass in (
        (OSError("unreadable"), False),
        (FileClosedError("closed"), True),  # deleted just now: nothing is wrong with it
        (shortage, True),  # there are file descriptors again at the next look
    ):

        def fail(_: LogSegment, failure: Exception = failure) -> int:
            raise failure

        with monkeypatch.context() as patch:
            patch.setattr(LogSegment, "largest_timestamp", property(fail))
            if may_pass:
                assert setting.grab() is None
            else:
                with pytest.raises(LogCleaningError, match="unreadable") as caught:
                    setting.grab()
                assert caught.value.log is log


# Pausing


def test_pauses_are_counted(setting: Setting) -> None:
    manager = setting.manager
    setting.log(A)
    manager.abort_and_pause_cleaning(A)
    manager.abort_and_pause_cleaning(A)
    assert manager.cleaning_state(A) == LogCleaningPaused(2)
    assert setting.grab() is None
    manager.abort_cleaning(A)
    manager.resume_cleaning([A])
    assert manager.cleaning_state(A) == LogCleaningPaused(1)
    assert setting.grab() is None
    manager.resume_cleaning([A])
    assert setting.grab() is not None
    with pytest.raises(RuntimeError, match="not paused"):
        manager.resume_cleaning([A])
    with pytest.raises(RuntimeError, match="not paused"):
        manager.resume_cleaning([B])


def test_an_abort_waits_for_the_one_who_cleans(setting: Setting) -> None:
    manager = setting.manager
    setting.log(A)
    assert setting.grab() is not None
    manager.check_cleaning_aborted(A)
    waiters = [
        threading.Thread(target=manager.abort_and_pause_cleaning, args=(A,)),
        threading.Thread(target=manager.abort_cleaning, args=(A,)),
        threading.Thread(target=manager.abort_and_pause_cleaning, args=(A,)),
    ]
    for number, waiter in enumerate(waiters, 1):
        waiter.start()
        assert setting.clock.await_waiters(number)
    assert manager.cleaning_state(A) is LogCleaning.ABORTED
    with pytest.raises(LogCleaningAbortedError):
        manager.check_cleaning_aborted(A)
    manager.done_cleaning(A, setting.dirs[0], 2)
    for waiter in waiters:
        waiter.join(60)
    assert manager.cleaning_state(A) == LogCleaningPaused(2)  # and none for the one who did not want it
    assert setting.on_disk() == {}  # it was not cleaned to its end
    manager.check_cleaning_aborted(A)
    with pytest.raises(RuntimeError, match="not in progress"):
        manager.done_cleaning(A, setting.dirs[0], 2)


def test_retention_gets_the_logs_that_are_not_compacted(setting: Setting) -> None:
    manager = setting.manager
    for partition, policy in ((A, "delete"), (B, "compact"), (C, "delete")):
        setting.log(partition, cleanup_policy=(policy,))
    manager.abort_and_pause_cleaning(C)
    assert manager.pause_cleaning_for_retention(setting.logs) == [A]
    assert manager.cleaning_state(A) == LogCleaningPaused(1)
    assert manager.pause_cleaning_for_retention(setting.logs) == []
    manager.resume_cleaning([A])
    assert manager.cleaning_state(A) is None


def test_the_cleaner_deletes_segments_of_compacted_logs_itself(setting: Setting) -> None:
    manager = setting.manager
    setting.log(A, cleanup_policy=("delete",))
    setting.log(B)
    setting.log(C, cleanup_policy=("compact", "delete"))
    assert manager.deletable_logs() == {B: setting.logs[B], C: setting.logs[C]}
    assert manager.deletable_logs() == {}
    waiter = threading.Thread(target=manager.abort_and_pause_cleaning, args=(B,))
    waiter.start()
    assert setting.clock.await_waiters(1)
    manager.done_deleting([B, C])
    waiter.join(60)
    assert (manager.cleaning_state(B), manager.cleaning_state(C)) == (LogCleaningPaused(1), None)
    with pytest.raises(RuntimeError, match="not in progress"):
        manager.done_deleting([C])


# Checkpoints


def test_checkpoints_are_read_again_after_a_start(setting: Setting) -> None:
    setting.log(A)
    setting.log(B, box=1)
    setting.clean_up_to(A, 1)
    setting.clean_up_to(B, 2, box=1)
    assert setting.new_manager().all_cleaner_checkpoints() == {A: 1, B: 2}
    assert (setting.on_disk(), setting.on_disk(1)) == ({A: 1}, {B: 2})


def test_logs_that_are_gone_leave_the_checkpoint(setting: Setting) -> None:
    for partition in (A, B, C):
        setting.log(partition)
        setting.clean_up_to(partition, 1)
    setting.manager.update_checkpoints(setting.dirs[0], A)
    assert setting.on_disk() == {B: 1, C: 1}
    setting.logs.pop(B).close_handlers()
    setting.manager.update_checkpoints(setting.dirs[0])
    assert setting.on_disk() == {C: 1}


def test_truncation_makes_dirty_again(setting: Setting) -> None:
    setting.log(A, 5)
    setting.clean_up_to(A, 4)
    manager = setting.manager
    manager.maybe_truncate_checkpoint(setting.dirs[0], A, 5)
    assert manager.all_cleaner_checkpoints() == {A: 4}
    manager.maybe_truncate_checkpoint(setting.dirs[0], A, 3)
    manager.maybe_truncate_checkpoint(setting.dirs[0], B, 3)
    manager.maybe_truncate_checkpoint(setting.dirs[1], A, 1)
    assert manager.all_cleaner_checkpoints() == setting.on_disk() == {A: 3}


def test_a_log_moves_with_what_is_known_of_it(setting: Setting) -> None:
    one, two = setting.dirs
    manager = setting.manager
    for partition in (A, B):
        setting.log(partition)
        setting.clean_up_to(partition, 1)
    manager.mark_partition_uncleanable(one, A)
    manager.alter_checkpoint_dir(A, one, two)
    manager.alter_checkpoint_dir(C, one, two)
    assert (setting.on_disk(), setting.on_disk(1)) == ({B: 1}, {A: 1})
    assert manager.uncleanable_partitions(one) == frozenset()
    assert manager.uncleanable_partitions(two) == {A}


def test_a_broken_checkpoint_is_as_good_as_none(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    (setting.dirs[0] / CLEANER_OFFSET_CHECKPOINT_FILE).write_text("0\n7\nnonsense\n")
    setting.log(A)
    found = setting.grab()
    assert found is not None
    assert found.first_dirty_offset == 0
    assert "cleaned from their start" in caplog.text
    setting.manager.done_cleaning(A, setting.dirs[0], 2)
    assert setting.on_disk() == {A: 2}


def test_a_checkpoint_that_cannot_be_written_takes_the_directory_offline(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting.log(A)
    setting.log(B, box=1)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(OffsetCheckpointFile, "write", fail)
        setting.clean_up_to(A, 1)
    assert setting.channel.has_offline_log_dir(setting.dirs[0])
    found = setting.grab()
    assert found is not None
    assert found.partition == B  # of the other directory
    assert setting.grab() is None
    setting.manager.handle_log_dir_failure(setting.dirs[0])
    assert setting.manager.all_cleaner_checkpoints() == {}
    setting.manager.update_checkpoints(setting.dirs[0])  # nobody asks for it any more


def test_waiting_for_a_log_to_be_clean(setting: Setting) -> None:
    setting.log(A)
    seen: list[bool] = []
    waiter = threading.Thread(target=lambda: seen.append(setting.manager.await_cleaned(A, 2, 1000)))
    waiter.start()
    assert setting.clock.await_waiters(1)
    setting.clean_up_to(A, 1)
    setting.clean_up_to(A, 2)
    waiter.join(60)
    assert seen == [True]
    assert not setting.manager.await_cleaned(A, 3, 0)


# Uncleanable partitions and metrics


def test_uncleanable_partitions_are_left_alone_until_they_are_gone(setting: Setting) -> None:
    log = setting.log(A, 3)
    setting.log(B)
    manager = setting.manager
    manager.mark_partition_uncleanable(setting.dirs[0], A)
    assert setting.gauge(UNCLEANABLE_PARTITIONS_COUNT, 0) == 1
    assert setting.gauge(UNCLEANABLE_PARTITIONS_COUNT, 1) == 0
    assert setting.gauge(UNCLEANABLE_BYTES, 0) == log.size
    assert setting.gauge(UNCLEANABLE_BYTES, 1) == 0
    assert list(manager.deletable_logs()) == [B]
    manager.done_deleting([B])
    manager.maintain_uncleanable_partitions()
    assert manager.uncleanable_partitions(setting.dirs[0]) == {A}
    setting.logs.pop(A)
    assert setting.gauge(UNCLEANABLE_BYTES, 0) == 0
    manager.maintain_uncleanable_partitions()
    assert manager.uncleanable_partitions(setting.dirs[0]) == frozenset()
    log.close_handlers()


def test_time_since_the_last_run(setting: Setting) -> None:
    setting.clock.advance(500)
    assert setting.gauge(TIME_SINCE_LAST_RUN_MS) == 500
    setting.grab()
    setting.clock.advance(20)
    assert setting.gauge(TIME_SINCE_LAST_RUN_MS) == 20
    setting.manager.remove_metrics()
    assert setting.metrics.metrics == {}
