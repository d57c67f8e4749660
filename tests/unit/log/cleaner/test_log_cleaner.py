"""The cleaner at work beside a log manager."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from barnabas.common.clock import SYSTEM_CLOCK, MockClock
from barnabas.common.config_def import ConfigError
from barnabas.common.errors import KafkaStorageError
from barnabas.common.scheduler import MockScheduler
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.cleaner.cleaner import Cleaner
from barnabas.log.cleaner.cleaner_config import CleanerConfig
from barnabas.log.cleaner.cleaner_hooks import CleanerHooks
from barnabas.log.cleaner.log_cleaner import LogCleaner
from barnabas.log.cleaner.log_cleaner_manager import LogCleaning, LogCleaningPaused
from barnabas.log.dirs.log_dir_failure import LogDirFailureChannel
from barnabas.log.dirs.offset_checkpoint import CLEANER_OFFSET_CHECKPOINT_FILE, OffsetCheckpointFile
from barnabas.log.manager.log_manager import LogManager
from barnabas.log.manager.log_manager_config import LogManagerConfig
from barnabas.log.segment.file_records import FileRecords
from barnabas.log.segment.log_segment import LogSegment
from barnabas.log.unified_log import LogStartOffsetIncrementReason, UnifiedLog
from barnabas.metrics.yammer.meter import Meter
from barnabas.metrics.yammer.registry import Gauge, MetricsRegistry
from log_fixtures import NOW
from segment_fixtures import write_at
from unit.log.cleaner.cleaner_samples import contents, put

T0, T1 = TopicPartition("topic", 0), TopicPartition("topic", 1)
CONFIG = CleanerConfig(dedupe_buffer_size=1 << 20, io_buffer_size=2048)
COMPACT = {"cleanup.policy": "compact"}


@dataclass
class Broker:
    """Logs in two directories, and their cleaner."""

    path: Path
    config: CleanerConfig = CONFIG
    overrides: dict[str, Any] = field(default_factory=lambda: dict(COMPACT))

    def __post_init__(self) -> None:
        self.clock = MockClock(NOW)
        self.scheduler = MockScheduler(self.clock)
        self.metrics = MetricsRegistry(self.clock)
        channel = LogDirFailureChannel(self.clock)
        paths = [self.path / "one", self.path / "two"]
        self.cleaner = LogCleaner(self.config, paths, channel, self.clock, metrics=self.metrics)
        hooks: CleanerHooks = self.cleaner
        self.manager = LogManager(
            paths,
            LogManagerConfig(topic_defaults={"segment.index.bytes": 4096}),
            self.clock,
            self.scheduler,
            topic_overrides=lambda _: self.overrides,
            failure_channel=channel,
            cleaner=hooks,
        )
        self.manager.startup()
        self.cleaner.manager.attach(self.manager.current_logs)
        self.thread = self.cleaner.new_thread(0)

    def log(self, partition: TopicPartition = T0, batches: int = 5) -> UnifiedLog:
        """A log with the same key again and again."""
        log = self.manager.get_or_create_log(partition, is_new=True)
        for _ in range(batches):
            put(log, (b"k", b"v" * 500))
        if batches:
            log.roll()
        log.watermarks.update_high_watermark(log.log_end_offset)
        return log

    def checkpoint(self, log: UnifiedLog) -> dict[TopicPartition, int]:
        return OffsetCheckpointFile(log.parent_dir / CLEANER_OFFSET_CHECKPOINT_FILE).read()

    def gauge(self, name: str) -> Any:
        for key, metric in self.metrics.metrics.items():
            if str(key) == f"kafka.log:type=LogCleaner,name={name}":
                assert isinstance(metric, Gauge)
                return metric.value()
        return None

    def stop(self) -> None:
        self.cleaner.shutdown()
        for log in self.manager.all_logs():
            log.close_handlers()
        self.manager.log_dirs.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    found = Broker(tmp_path)
    yield found
    found.stop()


def slow(broker: Broker) -> None:
    """From now on a thread waits in the middle of a log, until the clock moves."""
    broker.cleaner.throttler.desired_rate_per_second = 1.0
    broker.clock.advance(1000)


# Threads


def test_a_thread_cleans_and_waits(broker: Broker) -> None:
    log = broker.log()
    assert broker.thread.try_clean_filthiest_log()
    assert [offset for offset, _, _ in contents(log)] == [4]
    assert broker.checkpoint(log) == {T0: 5}
    assert not broker.thread.try_clean_filthiest_log()


def test_threads_are_named_and_stop(broker: Broker) -> None:
    log = broker.log()
    broker.cleaner.startup(broker.manager)
    (thread,) = broker.cleaner.threads
    assert (thread.name, thread.daemon) == ("kafka-log-cleaner-thread-0", False)
    with pytest.raises(RuntimeError, match="already"):
        broker.cleaner.startup(broker.manager)
    assert broker.cleaner.manager.await_cleaned(T0, 5, 0) or _await(broker, T0, 5)
    assert len(contents(log)) == 1
    assert broker.clock.await_waiters(1)  # for the backoff
    log = broker.log(T1)
    broker.clock.advance(CONFIG.backoff_ms)
    assert _await(broker, T1, 5)
    broker.cleaner.shutdown()
    assert not thread.is_alive()
    assert broker.cleaner.threads == ()


def _await(broker: Broker, partition: TopicPartition, offset: int) -> bool:
    """On the mock clock, whose time does not pass while the thread works."""
    return broker.cleaner.await_cleaned(partition, offset, 60_000)


def test_the_clock_of_a_broker(tmp_path: Path) -> None:
    """With real time, as far as that takes none."""
    cleaner = LogCleaner(CONFIG, [tmp_path], LogDirFailureChannel())
    assert cleaner._clock is SYSTEM_CLOCK

    class NoLogs:
        def current_logs(self) -> dict[TopicPartition, UnifiedLog]:
            return {}

    cleaner.startup(NoLogs())
    cleaner.shutdown()
    assert not [one for one in threading.enumerate() if one.name.startswith("kafka-log-cleaner")]


def test_shutdown_in_the_middle_of_a_log(broker: Broker) -> None:
    log = broker.log(batches=20)
    before = contents(log)
    slow(broker)
    broker.cleaner.startup(broker.manager)
    assert broker.clock.await_waiters(1)
    assert broker.cleaner.manager.cleaning_state(T0) is LogCleaning.IN_PROGRESS
    broker.cleaner.shutdown()
    assert broker.cleaner.manager.cleaning_state(T0) is None
    assert contents(log) == before
    assert not [path for path in log.directory.iterdir() if path.suffix == ".cleaned"]


def test_other_settings_mean_other_threads(broker: Broker) -> None:
    cleaner = broker.cleaner
    for threads in (0, 3):
        with pytest.raises(ConfigError, match=r"log\.cleaner\.threads"):
            cleaner.validate_reconfiguration(CleanerConfig(num_threads=threads))
    new = CleanerConfig(num_threads=2, dedupe_buffer_size=1 << 21, max_io_bytes_per_second=5e6)
    cleaner.validate_reconfiguration(new)
    cleaner.reconfigure(new)
    assert names_of(cleaner) == []  # it has not been started
    cleaner.startup(broker.manager)
    assert names_of(cleaner) == [f"kafka-log-cleaner-thread-{number}" for number in range(2)]
    assert cleaner.throttler.desired_rate_per_second == 5e6
    old = cleaner.threads
    cleaner.reconfigure(CleanerConfig(num_threads=4, dedupe_buffer_size=1 << 22))
    assert not any(thread.is_alive() for thread in old)
    assert len(names_of(cleaner)) == 4
    with pytest.raises(ConfigError, match="half"):
        cleaner.validate_reconfiguration(CleanerConfig(num_threads=1))
    cleaner.validate_reconfiguration(CleanerConfig(num_threads=8))


def names_of(cleaner: LogCleaner) -> list[str]:
    return [thread.name for thread in cleaner.threads]


# What a log manager does meanwhile


def test_deleting_a_log_that_is_being_cleaned(broker: Broker) -> None:
    log = broker.log(batches=20)
    log_dir = log.parent_dir
    slow(broker)
    broker.cleaner.startup(broker.manager)
    assert broker.clock.await_waiters(1)
    deleting = threading.Thread(target=broker.manager.async_delete, args=(T0,))
    deleting.start()
    assert broker.clock.await_waiters(2)
    broker.cleaner.throttler.desired_rate_per_second = 1e9
    broker.clock.advance(3_600_000)
    deleting.join(60)
    assert not deleting.is_alive()
    assert log.directory.name.endswith("-delete")
    assert broker.cleaner.manager.cleaning_state(T0) is None
    assert OffsetCheckpointFile(log_dir / CLEANER_OFFSET_CHECKPOINT_FILE).read() == {}
    assert broker.cleaner.dead_thread_count == 0


def test_truncating_a_log_makes_it_dirty(broker: Broker) -> None:
    log = broker.log()
    broker.log()
    assert broker.thread.try_clean_filthiest_log()
    assert broker.checkpoint(log) == {T0: 10}
    broker.manager.truncate_to({T0: 3})
    assert broker.checkpoint(log) == {T0: 0}
    put(log, (b"k", b"1"))
    broker.manager.truncate_fully_and_start_at(T0, 100)
    assert broker.cleaner.manager.cleaning_state(T0) is None


def test_a_log_that_is_no_longer_compacted_is_not_cleaned(broker: Broker) -> None:
    broker.log()
    broker.overrides.clear()
    broker.manager.topic_config_changed("topic")
    assert not broker.thread.try_clean_filthiest_log()


def test_a_log_is_not_cleaned_while_it_is_copied(broker: Broker) -> None:
    """Its copy is not clean, and takes over its place in the checkpoint."""
    log = broker.log()
    two = next(path for path in broker.manager.log_dirs.live_paths if path != log.parent_dir)
    states = broker.cleaner.manager
    with pytest.raises(ValueError, match="needs a log directory"):
        broker.manager.get_or_create_log(T0, is_future=True)
    assert states.cleaning_state(T0) is None
    broker.manager.prefer_log_dir(T0, two)
    broker.manager.get_or_create_log(T0, is_future=True)
    broker.manager.get_or_create_log(T0, is_future=True)
    assert states.cleaning_state(T0) == LogCleaningPaused(1)
    assert not broker.thread.try_clean_filthiest_log()
    broker.manager.async_delete(T0, is_future=True)
    assert states.cleaning_state(T0) is None
    assert broker.thread.try_clean_filthiest_log()

    broker.manager.prefer_log_dir(T0, two)
    future = broker.manager.get_or_create_log(T0, is_future=True)
    broker.manager.replace_current_with_future_log(T0)
    assert states.cleaning_state(T0) is None
    assert broker.checkpoint(future) == {T0: 5}
    assert broker.checkpoint(log) == {}


def test_a_copy_from_before_the_start_counts_too(broker: Broker, tmp_path: Path) -> None:
    log = broker.log()
    two = next(path for path in broker.manager.log_dirs.live_paths if path != log.parent_dir)
    broker.manager.prefer_log_dir(T0, two)
    broker.manager.get_or_create_log(T0, is_future=True)
    broker.manager.shutdown()
    again = Broker(tmp_path)
    assert again.cleaner.manager.cleaning_state(T0) == LogCleaningPaused(1)
    again.manager.replace_current_with_future_log(T0)
    assert again.cleaner.manager.cleaning_state(T0) is None
    again.stop()


def test_a_copy_on_a_disk_that_fails_does_not_keep_the_log_from_being_cleaned(broker: Broker) -> None:
    log = broker.log()
    two = next(path for path in broker.manager.log_dirs.live_paths if path != log.parent_dir)
    broker.manager.prefer_log_dir(T0, two)
    broker.manager.get_or_create_log(T0, is_future=True)
    broker.manager.failure_channel.maybe_add_offline_log_dir(two, "gone")
    assert broker.manager.handle_log_dir_failure(two) == [T0]
    assert broker.thread.try_clean_filthiest_log()


# Retention


def test_the_cleaner_deletes_old_segments_of_compacted_logs(broker: Broker) -> None:
    broker.overrides["cleanup.policy"] = "compact,delete"
    broker.overrides["retention.ms"] = "1000"
    log = broker.log()
    broker.clock.advance(500)
    put(log, (b"k", b"new"), timestamp=NOW + 500)
    log.roll()
    log.watermarks.update_high_watermark(log.log_end_offset)
    assert broker.manager.chores.delete_old_segments() == 0  # not the log manager's business
    broker.clock.advance(501)
    broker.manager.chores.delete_old_segments()
    assert log.log_start_offset == 0
    assert broker.thread.try_clean_filthiest_log()
    broker.clock.advance(500)
    broker.thread.try_clean_filthiest_log()
    assert log.log_start_offset == 6
    assert broker.cleaner.manager.cleaning_state(T0) is None


def test_segments_before_the_start_of_a_compacted_log_go(broker: Broker) -> None:
    log = broker.log()
    broker.log()
    log.maybe_increment_log_start_offset(5, LogStartOffsetIncrementReason.LEADER_OFFSET_INCREMENTED)
    broker.thread.try_clean_filthiest_log()
    assert log.segments.base_offsets[0] >= 5


# What goes wrong


def test_a_damaged_log_is_left_alone_and_the_others_are_cleaned(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    damaged, good = broker.log(T0, 9), broker.log(T1)
    first = damaged.segments.first
    assert first is not None
    write_at(first.records.path, 100, b"?????")
    turns = [broker.thread.try_clean_filthiest_log() for _ in range(3)]
    assert sum(turns) == 1
    assert "topic-0 is not cleaned any more" in caplog.text
    assert broker.cleaner.manager.uncleanable_partitions(damaged.parent_dir) == {T0}
    assert len(contents(good)) == 1
    assert broker.cleaner.manager.cleaning_state(T0) is None
    assert not broker.manager.offline_log_dirs
    assert broker.checkpoint(damaged).get(T0) in (0, None)


def test_a_log_that_cannot_be_looked_at_is_left_alone(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.overrides["max.compaction.lag.ms"] = "1"
    log = broker.log()

    def fail(_: LogSegment) -> int:
        raise OSError("unreadable")

    with monkeypatch.context() as patch:
        patch.setattr(LogSegment, "first_batch_timestamp", property(fail))
        assert not broker.thread.try_clean_filthiest_log()
    assert broker.cleaner.manager.uncleanable_partitions(log.parent_dir) == {T0}


def test_a_failed_disk_takes_the_directory_offline(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    log = broker.log()

    def fail(*_: object) -> bytes:
        raise KafkaStorageError("input/output error") from OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(FileRecords, "read_bytes", fail)
        broker.thread.try_clean_filthiest_log()
    assert broker.manager.failure_channel.has_offline_log_dir(log.parent_dir)
    assert broker.cleaner.manager.uncleanable_partitions(log.parent_dir) == frozenset()
    assert broker.cleaner.manager.cleaning_state(T0) is None
    broker.manager.handle_log_dir_failure(log.parent_dir)
    assert not broker.thread.try_clean_filthiest_log()


def test_old_segments_that_cannot_be_deleted(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """One log does not keep the others from their turn; one with a failed disk is not to blame for it."""
    logs = [broker.log(T0), broker.log(T1)]
    failures: list[Exception] = [KafkaStorageError("disk"), RuntimeError("other"), RuntimeError("other")]
    broker.thread.try_clean_filthiest_log()

    def fail(_: UnifiedLog) -> int:
        raise failures.pop(0)

    monkeypatch.setattr(UnifiedLog, "delete_old_segments", fail)
    broker.thread.try_clean_filthiest_log()
    states = broker.cleaner.manager
    uncleanable = set().union(*(states.uncleanable_partitions(log.parent_dir) for log in logs))
    assert len(uncleanable) == 1
    assert (states.cleaning_state(T0), states.cleaning_state(T1)) == (None, None)


def test_a_thread_that_dies_is_counted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Catastrophe(BaseException):
        pass

    def fail(*_: object) -> None:
        raise Catastrophe

    monkeypatch.setattr(Cleaner, "clean", fail)
    broker.log()
    broker.cleaner.startup(broker.manager)
    for thread in broker.cleaner.threads:
        thread.join(60)
    assert broker.gauge("DeadThreadCount") == broker.cleaner.dead_thread_count == 1
    assert broker.cleaner.manager.cleaning_state(T0) is None
    monkeypatch.undo()
    broker.cleaner.reconfigure(CONFIG)
    assert _await(broker, T0, 5)
    assert broker.gauge("DeadThreadCount") == 0


# Figures


def test_metrics_have_kafka_s_names(broker: Broker) -> None:
    broker.overrides["max.compaction.lag.ms"] = "1000"
    broker.log()
    broker.clock.advance(5000)
    names = {str(name).replace('"', "") for name in broker.metrics.metrics}
    dirs = [f"logDirectory={path}" for path in broker.manager.log_dirs.live_paths]
    assert names == {
        *(
            f"kafka.log:type=LogCleaner,name={name}"
            for name in (
                "max-buffer-utilization-percent",
                "cleaner-recopy-percent",
                "max-clean-time-secs",
                "max-compaction-delay-secs",
                "DeadThreadCount",
            )
        ),
        *(f"kafka.log:type=LogCleanerManager,name={name}" for name in ("max-dirty-percent", "time-since-last-run-ms")),
        *(f"kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count,{each}" for each in dirs),
        *(f"kafka.log:type=LogCleanerManager,name=uncleanable-bytes,{each}" for each in dirs),
        "kafka.utils:type=Throttler,name=cleaner-io",
    }
    assert [broker.gauge(name) for name in ("max-clean-time-secs", "cleaner-recopy-percent")] == [0, 0]
    broker.cleaner.startup(broker.manager)
    assert _await(broker, T0, 5)
    assert broker.clock.await_waiters(1)
    assert broker.gauge("cleaner-recopy-percent") == 20
    assert broker.gauge("max-compaction-delay-secs") == 4
    assert broker.gauge("max-buffer-utilization-percent") == 0
    (meter,) = (metric for metric in broker.metrics.metrics.values() if isinstance(metric, Meter))
    assert meter.count > 5000
    broker.cleaner.shutdown()
    assert broker.metrics.metrics == {}


def test_a_slow_cleaning_shows(broker: Broker) -> None:
    log = broker.log(batches=20)
    broker.cleaner.throttler.desired_rate_per_second = 1000.0
    broker.clock.advance(400)
    broker.cleaner.startup(broker.manager)
    assert broker.clock.await_waiters(1)  # after the first 1024 bytes, for the rest of the second
    broker.clock.advance(623)
    assert broker.cleaner.manager.cleaning_state(T0) is LogCleaning.IN_PROGRESS
    broker.clock.advance(1)
    assert _await(broker, T0, 20)
    assert len(contents(log)) == 1
    assert broker.cleaner.threads[0].last_stats.elapsed_seconds == 0.624
    assert broker.gauge("max-clean-time-secs") == 0
