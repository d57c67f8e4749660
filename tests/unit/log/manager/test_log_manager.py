"""All logs of a broker: opening, making, moving, deleting them, and living with failed disks."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.errors import (
    BarnabasError,
    InconsistentTopicIdError,
    KafkaStorageError,
    LogDirNotFoundError,
)
from barnabas.common.identifiers import random_uuid
from barnabas.common.scheduler import KafkaScheduler, MockScheduler
from barnabas.common.shutdownable_thread import FatalExitError
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.config.server_log_config import SERVER_LOG_CONFIG_DEF
from barnabas.log.dirs.clean_shutdown_file import CleanShutdownFile
from barnabas.log.dirs.log_dir_lock import LogDirLock, LogDirLockedError
from barnabas.log.dirs.log_dir_names import log_delete_dir_name
from barnabas.log.dirs.log_dirs import LogDir, readable_by_others
from barnabas.log.dirs.meta_properties import InvalidMetaPropertiesError, MetaProperties, random_directory_id
from barnabas.log.dirs.offset_checkpoint import OffsetCheckpointFile
from barnabas.log.manager.log_manager import LogManager
from barnabas.log.manager.log_manager_config import LogManagerConfig
from barnabas.log.segment import file_records
from barnabas.log.segment.file_records import FileRecords
from barnabas.log.segment.segment_damage import CorruptLogError
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.batch import RecordBatch
from log_fixtures import NOW, SMALL_INDEX, all_records, append, fetched_bytes, offsets, read_from, values
from segment_fixtures import write_at

T0 = TopicPartition("topic", 0)
T1 = TopicPartition("topic", 1)
OTHER = TopicPartition("other", 0)
DEFAULTS = {"segment.index.bytes": SMALL_INDEX}


@dataclass
class Broker:
    """The part of a broker that is logs, which can be killed and started again."""

    paths: list[Path]
    settings: dict[str, Any] = field(default_factory=dict)
    overrides: dict[str, dict[str, Any]] = field(default_factory=dict)
    clock: MockClock = field(default_factory=lambda: MockClock(NOW))

    def __post_init__(self) -> None:
        self.start()

    def create(self, **options: Any) -> LogManager:
        self.scheduler = MockScheduler(self.clock)
        config = LogManagerConfig(**{"topic_defaults": DEFAULTS, "recovery_threads_per_data_dir": 1, **self.settings})
        self.manager = LogManager(
            self.paths,
            config,
            self.clock,
            self.scheduler,
            topic_overrides=lambda topic: self.overrides.get(topic, {}),
            **options,
        )
        return self.manager

    def start(self) -> LogManager:
        self.create().startup()
        return self.manager

    def kill(self) -> None:
        """What is in memory is gone; the operating system takes the locks back."""
        for log in self.manager.all_logs():
            log.close_handlers()
        self.manager.log_dirs.close()

    def restart(self, *, clean: bool = True) -> LogManager:
        if clean:
            self.manager.shutdown()
        else:
            self.kill()
        return self.start()

    def log(self, partition: TopicPartition = T0, **options: Any) -> UnifiedLog:
        return self.manager.get_or_create_log(partition, **options)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker([tmp_path / "one"])
    yield broker
    broker.kill()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Broker]:
    """A broker with two disks."""
    broker = Broker([tmp_path / "one", tmp_path / "two"])
    yield broker
    broker.kill()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


class TestModes:
    """Records and SCRAM keys are not for everybody who has an account on the machine."""

    def test_what_others_can_read_is_found(self, tmp_path: Path) -> None:
        outside = Path(tempfile.mkdtemp())  # that of pytest is closed to others
        try:
            assert readable_by_others(outside) is None
            outside.chmod(0o755)
            for name, is_data in (("orders-0", True), ("lost+found", False), (".lock", False)):
                path = outside / name
                path.mkdir() if name != ".lock" else path.write_bytes(b"")
                path.chmod(0o755)
                assert readable_by_others(outside) == (path if is_data else None)
                path.chmod(0o700)
                assert readable_by_others(outside) is None
            file = outside / "meta.properties"
            file.write_bytes(b"")
            file.chmod(0o644)
            assert readable_by_others(outside) == file
            file.chmod(0o640)
            assert readable_by_others(outside) is None
            file.chmod(0o644)
            outside.chmod(0o750)
            assert readable_by_others(outside) is None
            assert readable_by_others(outside / "not" / "there") is None
        finally:
            shutil.rmtree(outside)

    def test_an_existing_directory_keeps_its_mode(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o750)
        broker = Broker([tmp_path])
        append(broker.log(), b"a")
        assert (mode(tmp_path), mode(tmp_path / "topic-0")) == (0o750, 0o700)
        broker.kill()


class TestLife:
    def test_directories_are_made(self, tmp_path: Path) -> None:
        broker = Broker([tmp_path / "a" / "b"])
        assert (tmp_path / "a" / "b").is_dir()
        broker.kill()

    def test_a_log_is_made_once(self, broker: Broker) -> None:
        assert broker.manager.get_log(T0) is None
        log = broker.log()
        assert broker.log() is log
        assert broker.manager.get_log(T0) is log
        assert log.directory == broker.paths[0] / "topic-0"

    @pytest.mark.parametrize("clean", [True, False])
    def test_logs_are_found_again(self, broker: Broker, clean: bool) -> None:
        for partition in (T0, T1, OTHER):
            append(broker.log(partition), b"%d" % partition.partition)
        manager = broker.restart(clean=clean)
        assert sorted(manager.current_logs()) == [OTHER, T0, T1]
        for partition in (T0, T1, OTHER):
            log = manager.get_log(partition)
            assert log is not None
            assert values(all_records(log)) == [b"%d" % partition.partition]

    def test_the_marker_of_a_clean_shutdown(self, broker: Broker) -> None:
        append(broker.log(), b"a")
        marker = CleanShutdownFile(broker.paths[0])
        assert not marker.exists()
        broker.manager.shutdown(broker_epoch=17)
        assert marker.read() == 17
        manager = broker.create()
        assert manager.broker_epoch_of_clean_shutdown() == 17
        manager.startup()
        assert not marker.exists(), "a crash from now on must not find it"
        assert broker.log().recovery_point == 1

    def test_after_a_crash_everything_behind_the_recovery_point_is_looked_at(self, broker: Broker) -> None:
        append(broker.log(), b"a")
        path = broker.log().active_segment.records.path
        broker.kill()
        with path.open("ab") as file:
            file.write(b"torn")
        broker.start()
        assert path.stat().st_size == broker.log().size
        assert offsets(all_records(broker.log())) == [0]

    def test_recovery_on_several_threads(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        for number in range(8):
            append(broker.log(TopicPartition("topic", number)), b"a")
        names: set[str] = set()
        original = UnifiedLog.open.__func__  # type: ignore[attr-defined]
        barrier = threading.Barrier(2)

        def watched(*arguments: Any, **options: Any) -> UnifiedLog:
            names.add(threading.current_thread().name)
            barrier.wait(60)  # two at a time, or never
            log: UnifiedLog = original(*arguments, **options)
            return log

        broker.settings["recovery_threads_per_data_dir"] = 2
        broker.kill()
        with monkeypatch.context() as patch:
            patch.setattr(UnifiedLog, "open", classmethod(watched))
            broker.start()
        assert names == {f"log-recovery-{broker.paths[0]}-{number}" for number in range(2)}
        assert len(broker.manager.current_logs()) == 8

    def test_foreign_directories_are_left_alone(self, broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
        for name in ("lost+found", "remote-log-index-cache", "__cluster_metadata-0", "topic-0.abc-stray"):
            (broker.paths[0] / name).mkdir()
        manager = broker.restart()
        assert manager.current_logs() == {}
        assert "lost+found" in caplog.text
        assert "remote-log-index-cache" not in caplog.text

    def test_stray_logs_are_put_aside(self, broker: Broker) -> None:
        append(broker.log(), b"a")
        append(broker.log(OTHER), b"b")
        broker.manager.shutdown()
        broker.create().startup(is_stray=lambda log: log.topic_partition == T0)
        assert list(broker.manager.current_logs()) == [OTHER]
        assert [path.name.endswith("-stray") for path in sorted(broker.paths[0].glob("topic*"))] == [True]

    def test_stray_logs_come_back(self, broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
        """Their topic is in the metadata again: somebody has restored those."""
        topic_id, other_id = random_uuid(), random_uuid()
        append(broker.log(T0, topic_id=topic_id), b"a")
        append(broker.log(OTHER, topic_id=other_id), b"b")
        broker.manager.shutdown()
        broker.create().startup(is_stray=lambda _: True, replica_for=lambda *_: None)
        assert broker.manager.current_logs() == {}
        (stray,) = broker.paths[0].glob("topic-0.*-stray")
        broker.manager.shutdown()
        renamed = TopicPartition("renamed", 0)  # only the id counts
        manager = broker.create()
        manager.startup(
            is_stray=lambda _: False,
            replica_for=lambda found, number: renamed if (found, number) == (topic_id, 0) else None,
        )
        assert list(manager.current_logs()) == [renamed]
        assert values(all_records(broker.log(renamed))) == [b"a"]
        assert (
            f"{stray} is of a replica of this broker again, and is {broker.paths[0] / 'renamed-0'} now" in caplog.text
        )
        assert len(list(broker.paths[0].glob("*-stray"))) == 1, "the other one stays aside"

    def test_a_stray_log_that_comes_back_is_recovered(self, broker: Broker) -> None:
        """The marker of a clean shutdown says nothing of a log that was not open."""
        topic_id = random_uuid()
        append(broker.log(T0, topic_id=topic_id), b"a")
        broker.manager.shutdown()
        broker.create().startup(is_stray=lambda _: True)
        (stray,) = broker.paths[0].glob("topic-0.*-stray")
        broker.manager.shutdown()
        assert CleanShutdownFile(broker.paths[0]).exists()
        (segment,) = stray.glob("*.log")
        segment.write_bytes(segment.read_bytes() + b"half a batch")
        broker.create().startup(is_stray=lambda _: False, replica_for=lambda _id, _number: T0)
        assert values(all_records(broker.log())) == [b"a"]
        append(broker.log(), b"b")
        assert values(all_records(broker.log())) == [b"a", b"b"]

    @pytest.mark.parametrize("at_startup", [True, False])
    def test_a_stray_log_that_comes_back_has_its_start_offset(self, broker: Broker, at_startup: bool) -> None:
        log = broker.log(T0, topic_id=random_uuid())
        for number in range(4):
            append(log, b"%d" % number)
        log.watermarks.move_high_watermark_to_end()
        log.delete_records(2)
        if at_startup:
            broker.manager.shutdown()
            broker.create().startup(is_stray=lambda _: True)
        else:
            broker.manager.async_delete(T0, is_stray=True)
        broker.manager.shutdown()
        renamed = TopicPartition("renamed", 0)
        for _ in range(2):  # the second time after a crash
            broker.create().startup(is_stray=lambda _: False, replica_for=lambda _id, _number: renamed)
            assert (broker.log(renamed).log_start_offset, broker.log(renamed).log_end_offset) == (2, 4)
            broker.kill()
        broker.start()

    def test_a_damaged_stray_log_has_its_start_offset(self, broker: Broker) -> None:
        log = broker.log(T0, topic_id=random_uuid())
        for number in range(6):
            append(log, b"%d" % number)
        log.watermarks.move_high_watermark_to_end()
        log.delete_records(2)
        broker.manager.chores.checkpoint(broker.manager.log_dirs.live[0])
        path = log.active_segment.records.path
        intact = path.read_bytes()
        broker.kill()
        write_at(path, 100, b"\xff\xff\xff")
        broker.start()
        broker.manager.async_delete(T0, is_stray=True)
        (stray,) = broker.paths[0].glob("topic-0.*-stray")
        (stray / path.name).write_bytes(intact)
        broker.manager.shutdown()
        broker.create().startup(is_stray=lambda _: False, replica_for=lambda _id, _number: T0)
        assert (broker.log().log_start_offset, broker.log().log_end_offset) == (2, 6)

    def test_a_broken_start_offset_of_a_stray_log_is_as_good_as_none(self, broker: Broker) -> None:
        append(broker.log(T0, topic_id=random_uuid()), b"a")
        broker.manager.async_delete(T0, is_stray=True)
        (stray,) = broker.paths[0].glob("topic-0.*-stray")
        (stray / "log-start-offset-checkpoint").write_bytes(b"broken")
        broker.manager.shutdown()
        broker.create().startup(is_stray=lambda _: False, replica_for=lambda _id, _number: T0)
        assert broker.manager.offline_log_dirs == ()
        assert values(all_records(broker.log())) == [b"a"]

    def test_a_stray_log_does_not_replace_one_that_is_there(self, two: Broker) -> None:
        topic_id = random_uuid()
        append(two.log(T0, topic_id=topic_id), b"old")
        two.manager.shutdown()
        two.create().startup(is_stray=lambda _: True)
        append(two.log(T0, topic_id=topic_id), b"new")
        two.manager.shutdown()
        two.create().startup(is_stray=lambda _: False, replica_for=lambda _id, _number: T0)
        assert values(all_records(two.log())) == [b"new"]
        assert len([path for one in two.paths for path in one.glob("*-stray")]) == 1

    def test_of_two_stray_logs_a_person_chooses(self, two: Broker, caplog: pytest.LogCaptureFixture) -> None:
        topic_id = random_uuid()
        for value in (b"first", b"second"):
            append(two.log(T0, topic_id=topic_id), value)
            two.manager.shutdown()
            two.create().startup(is_stray=lambda _: True)
        two.manager.shutdown()
        manager = two.create()
        manager.startup(is_stray=lambda _: False, replica_for=lambda _id, _number: T0)
        assert manager.current_logs() == {}
        with pytest.raises(KafkaStorageError):
            two.log(T0, topic_id=topic_id)
        assert "several stray logs of topic-0" in caplog.text
        assert "Rename the one to keep to topic-0" in caplog.text

    def test_a_stray_log_that_nobody_can_identify_is_left_alone(self, broker: Broker) -> None:
        append(broker.log(T0), b"a")
        broker.manager.shutdown()
        broker.create().startup(is_stray=lambda _: True)
        (stray,) = broker.paths[0].glob("topic-0.*-stray")
        broker.manager.shutdown()
        broker.create().startup(is_stray=lambda _: False, replica_for=lambda _id, _number: T0)
        assert broker.manager.current_logs() == {}
        assert stray.is_dir()

    def test_two_logs_of_one_partition(self, two: Broker) -> None:
        append(two.log(), b"a")
        two.manager.shutdown()
        shutil.copytree(two.paths[0] / "topic-0", two.paths[1] / "topic-0")
        with pytest.raises(BarnabasError, match="two logs of topic-0"):
            two.create().startup()
        LogDirLock(two.paths[0]).release()  # nothing stays locked

    def test_everything_with_real_threads(self, tmp_path: Path) -> None:
        scheduler = KafkaScheduler(2)
        config = LogManagerConfig(topic_defaults=DEFAULTS, initial_task_delay_ms=0, high_watermark_checkpoint_ms=1)
        manager = LogManager([tmp_path], config, MockClock(NOW), scheduler)
        manager.startup()
        log = manager.get_or_create_log(T0, topic_id=random_uuid())
        for number in range(20):
            append(log, b"%d" % number)
            log.roll()
        manager.shutdown()
        scheduler.shutdown()
        again = LogManager([tmp_path], config, MockClock(NOW), MockScheduler())
        again.startup()
        reopened = again.get_log(T0)
        assert reopened is not None
        assert offsets(all_records(reopened)) == list(range(20))
        again.shutdown()


class TestManyLogs:
    """What a start after a crash, and a stop, may cost for each of thousands of small logs."""

    COUNT = 100

    def crashed(self, broker: Broker) -> list[Path]:
        """Has as many logs as that, with two batches each, and is killed."""
        for number in range(self.COUNT):
            log = broker.log(TopicPartition("small", number))
            append(log, b"a")
            append(log, b"b")
            log.leader_epochs.flush()
        broker.kill()
        return sorted(broker.paths[0].glob("small-*"))

    def test_recovery_reads_each_batch_once_and_waits_for_no_disk(
        self, broker: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        directories = self.crashed(broker)
        checked: list[RecordBatch] = []
        listed: list[object] = []
        synced: list[int] = []
        ensure_valid, scandir = RecordBatch.ensure_valid, os.scandir

        def check(batch: RecordBatch) -> None:
            checked.append(batch)
            ensure_valid(batch)

        def list_directory(path: Any) -> Any:
            listed.append(path)
            return scandir(path)

        with monkeypatch.context() as patch:
            patch.setattr(RecordBatch, "ensure_valid", check)
            patch.setattr(os, "scandir", list_directory)
            patch.setattr(os, "fdatasync", synced.append)
            patch.setattr(os, "fsync", synced.append)
            manager = broker.start()
        assert len(manager.current_logs()) == self.COUNT
        assert len(checked) == 2 * self.COUNT
        assert len([path for path in listed if Path(str(path)) in directories]) == self.COUNT
        assert len(synced) <= 1, "the directory, from which the marker of a clean shutdown was deleted"
        for directory in directories:
            assert sorted(path.suffix for path in directory.iterdir()) == ["", ".index", ".log", ".timeindex"]
        assert values(all_records(broker.log(TopicPartition("small", 7)))) == [b"a", b"b"]

    def test_the_log_has_a_summary_and_no_line_for_each(self, broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
        self.crashed(broker)
        caplog.set_level(logging.INFO)
        caplog.clear()
        broker.start()
        first, last = (record.getMessage() for record in caplog.records)
        assert first == f"Recovering {self.COUNT} logs in {broker.paths[0]}, which was not shut down cleanly"
        assert last.startswith(f"Opened {self.COUNT} logs in ")
        caplog.clear()
        broker.manager.shutdown()
        first, last = (record.getMessage() for record in caplog.records)
        assert first == f"Flushing and closing {self.COUNT} logs in 1 log directories"
        assert last.startswith(f"Closed {self.COUNT} logs in ")

    def test_progress_is_reported_when_it_takes_long(
        self, broker: Broker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.crashed(broker)
        caplog.set_level(logging.INFO)
        told: list[tuple[int, int]] = []
        real = UnifiedLog.open.__func__  # type: ignore[attr-defined]

        def slow(cls: type[UnifiedLog], *arguments: Any, **options: Any) -> UnifiedLog:
            broker.clock.advance(50)
            opened: UnifiedLog = real(cls, *arguments, **options)
            return opened

        monkeypatch.setattr(UnifiedLog, "open", classmethod(slow))
        broker.create(on_recovery=lambda done, total: told.append((done, total))).startup()
        assert told == [(40, self.COUNT), (80, self.COUNT)]
        assert f"Recovered 40 of {self.COUNT} logs in {broker.paths[0]}" in caplog.text

    def test_logs_are_closed_side_by_side(self, two: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of one directory and of several: a disk takes syncs that wait for it together."""
        for number in range(8):
            append(two.log(TopicPartition("small", number)), b"a")
        together = threading.Barrier(8, timeout=180)

        def sync(_fd: int) -> None:
            together.wait()

        monkeypatch.setattr(file_records, "sync_data", sync)
        two.manager.shutdown()
        assert not together.broken
        assert all(CleanShutdownFile(path).exists() for path in two.paths)

    def test_what_is_on_the_disk_is_not_synced_again(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        append(broker.log(T0), b"a")
        append(broker.log(T1), b"a")
        broker.restart()
        append(broker.log(T1), b"b")
        synced: list[str] = []
        flush = FileRecords.flush

        def spy(records: FileRecords) -> None:
            with monkeypatch.context() as patch:
                patch.setattr(file_records, "sync_data", lambda _: synced.append(records.path.parent.name))
                flush(records)

        monkeypatch.setattr(FileRecords, "flush", spy)
        broker.manager.shutdown()
        assert synced == ["topic-1"]

    def test_a_stop_does_not_wait_for_the_chores_of_all_logs(self, broker: Broker) -> None:
        for number in range(self.COUNT):
            broker.log(TopicPartition("small", number))
        seen: list[UnifiedLog] = []

        def delete(log: UnifiedLog) -> int:
            seen.append(log)
            broker.manager.begin_shutdown()
            return 0

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(UnifiedLog, "delete_old_segments", delete)
            broker.manager.chores.delete_old_segments()
        assert len(seen) == 1


class TestConfiguration:
    def test_overrides_and_defaults(self, broker: Broker) -> None:
        broker.overrides["topic"] = {"retention.ms": "5"}
        assert broker.log().config.retention_ms == 5
        assert broker.log(OTHER).config.retention_ms == 604_800_000
        assert broker.log().config.segment_index_bytes == SMALL_INDEX
        assert broker.log(OTHER).config is broker.log(TopicPartition("third", 0)).config, "one for all without settings"

    def test_changes(self, broker: Broker) -> None:
        log, other = broker.log(), broker.log(OTHER)
        broker.overrides["topic"] = {"retention.ms": "5"}
        broker.manager.topic_config_changed("topic")
        assert (log.config.retention_ms, other.config.retention_ms) == (5, 604_800_000)
        broker.manager.topic_defaults_changed({**DEFAULTS, "retention.ms": 77})
        assert (log.config.retention_ms, other.config.retention_ms) == (5, 77)
        assert broker.log(T1).config.retention_ms == 5

    def test_a_changed_topic_takes_no_look_at_the_logs_of_others(
        self, two: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A start with thousands of topics applies the settings of each, and would look at all logs each time."""

        def changed(retention_ms: int) -> set[UnifiedLog]:
            logs = two.manager.all_logs()
            two.overrides["topic"] = {"retention.ms": retention_ms}
            with monkeypatch.context() as patch:
                for name in ("all_logs", "current_logs"):
                    patch.setattr(LogManager, name, lambda _: pytest.fail("all logs were looked at"))
                two.manager.topic_config_changed("topic")
            return {log for log in logs if log.config.retention_ms == retention_ms}

        first, second, _ = two.log(T0), two.log(T1), two.log(OTHER)
        assert changed(1) == {first, second}
        target = next(path for path in two.paths if path != first.parent_dir)
        two.manager.prefer_log_dir(T0, target)
        future = two.log(T0, is_future=True)
        assert changed(2) == {first, second, future}
        two.manager.replace_current_with_future_log(T0)
        assert changed(3) == {second, future}
        two.manager.async_delete(T1)
        assert changed(4) == {future}
        two.restart()
        assert changed(5) == {two.log(T0)}
        two.manager.handle_log_dir_failure(target)
        assert changed(6) == set()

    def test_from_a_brokers_settings(self) -> None:
        values = SERVER_LOG_CONFIG_DEF.parse({"log.retention.hours": "2", "num.recovery.threads.per.data.dir": "3"})
        config = LogManagerConfig.from_values(values, node_id=4)
        assert config.topic_defaults["retention.ms"] == 7_200_000
        assert config.recovery_threads_per_data_dir == 3
        assert config.retention_check_ms == 300_000
        assert config.flush_recovery_offset_checkpoint_ms == 60_000
        assert config.node_id == 4
        assert LogManagerConfig.from_values(SERVER_LOG_CONFIG_DEF.parse({})).initial_task_delay_ms == 30_000


class TestTopicIds:
    def test_a_log_belongs_to_one_topic(self, broker: Broker) -> None:
        first, second = random_uuid(), random_uuid()
        log = broker.log(topic_id=first)
        assert broker.log(topic_id=first) is log
        with pytest.raises(InconsistentTopicIdError):
            broker.log(topic_id=second)
        broker.restart()
        with pytest.raises(InconsistentTopicIdError):
            broker.log(topic_id=second)
        assert broker.log().topic_id == first

    def test_it_can_be_given_later(self, broker: Broker) -> None:
        topic_id = random_uuid()
        broker.log()
        assert broker.log(topic_id=topic_id).topic_id == topic_id


class TestPlacement:
    def test_where_the_fewest_are(self, two: Broker) -> None:
        for number in range(6):
            two.log(TopicPartition("topic", number))
        assert [len(two.manager.logs_in_dir(path)) for path in two.paths] == [3, 3]

    def test_deleted_and_moved_logs_make_room(self, two: Broker) -> None:
        partitions = [TopicPartition("topic", number) for number in range(4)]
        for partition in partitions:
            two.log(partition)
        for log in two.manager.logs_in_dir(two.paths[0]):
            two.manager.async_delete(log.topic_partition)
        assert two.log(OTHER).parent_dir == two.paths[0]
        assert two.log(TopicPartition("other", 1)).parent_dir == two.paths[0]
        two.manager.prefer_log_dir(OTHER, two.paths[1])
        two.log(OTHER, is_future=True)
        two.manager.replace_current_with_future_log(OTHER)
        assert two.log(TopicPartition("other", 2)).parent_dir == two.paths[0], "one here, three there"
        two.restart()
        assert two.log(TopicPartition("other", 3)).parent_dir == two.paths[0]

    def test_where_it_is_wanted(self, two: Broker) -> None:
        for number in range(3):
            partition = TopicPartition("topic", number)
            two.manager.prefer_log_dir(partition, two.paths[1])
            assert two.log(partition).parent_dir == two.paths[1]

    def test_by_the_id_of_a_directory(self, two: Broker) -> None:
        ids = [random_directory_id(), random_directory_id()]
        two.manager.shutdown()
        for path, directory_id in zip(two.paths, ids, strict=True):
            MetaProperties(cluster_id="c", node_id=1, directory_id=directory_id).write(path)
        two.start()
        assert two.manager.log_dirs.directory_ids == dict(zip(two.paths, ids, strict=True))
        for number in range(3):
            log = two.log(TopicPartition("topic", number), target_directory_id=ids[1])
            assert log.parent_dir == two.paths[1]
        unassigned = bytes(15) + b"\x01"
        assert two.log(OTHER, target_directory_id=unassigned).parent_dir == two.paths[0]

    def test_not_where_it_is_cordoned(self, two: Broker) -> None:
        two.settings["cordoned_log_dirs"] = (str(two.paths[0]),)
        two.restart()
        for number in range(3):
            assert two.log(TopicPartition("topic", number)).parent_dir == two.paths[1]
        two.settings["cordoned_log_dirs"] = ("*",)
        two.restart()
        with pytest.raises(KafkaStorageError, match="no log directory"):
            two.log(OTHER)

    def test_unknown_directories(self, two: Broker, tmp_path: Path) -> None:
        two.manager.prefer_log_dir(T0, tmp_path / "three")
        with pytest.raises(LogDirNotFoundError):
            two.log()


class TestIdentity:
    def test_somebody_elses_directories_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "one").mkdir()
        MetaProperties(cluster_id="theirs", node_id=1).write(tmp_path / "one")
        for expected in ({"cluster_id": "ours"}, {"node_id": 2}):
            with pytest.raises(InvalidMetaPropertiesError):
                Broker([tmp_path / "one"], expected)
        broker = Broker([tmp_path / "one"], {"cluster_id": "theirs", "node_id": 1})
        broker.kill()

    def test_directories_that_do_not_belong_together(self, tmp_path: Path) -> None:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            MetaProperties(cluster_id=name, node_id=1).write(tmp_path / name)
        with pytest.raises(InvalidMetaPropertiesError):
            Broker([tmp_path / "one", tmp_path / "two"])
        LogDirLock(tmp_path / "one").release()  # nothing stays locked

    def test_a_broken_identity_takes_that_directory_offline(self, tmp_path: Path) -> None:
        (tmp_path / "one").mkdir()
        (tmp_path / "one" / "meta.properties").write_text("version=9\n")
        broker = Broker([tmp_path / "one", tmp_path / "two"])
        assert broker.manager.offline_log_dirs == (tmp_path / "one",)
        broker.kill()

    def test_the_same_directory_twice(self, tmp_path: Path) -> None:
        (tmp_path / "one").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "one")
        with pytest.raises(ValueError, match="more than once"):
            Broker([tmp_path / "one", tmp_path / "link"])

    def test_no_two_brokers_in_one_process(self, broker: Broker) -> None:
        with pytest.raises(LogDirLockedError, match="this process"):
            Broker(broker.paths)
        append(broker.log(), b"the first one is not disturbed")

    def test_no_two_brokers_in_two_processes(self, broker: Broker) -> None:
        program = (
            "import sys; from pathlib import Path; from barnabas.log.dirs.log_dir_lock import LogDirLock\n"
            "LogDirLock(Path(sys.argv[1]))"
        )
        command = [sys.executable, "-c", program, str(broker.paths[0])]
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "in use by another broker" in refused.stderr
        broker.manager.shutdown()
        assert subprocess.run(command, capture_output=True, check=False).returncode == 0
        broker.start()


class TestChores:
    def test_nothing_before_the_initial_delay(self, broker: Broker) -> None:
        assert broker.scheduler.advance(29_999) == 0
        assert broker.scheduler.advance(1) > 0

    def test_checkpoints(self, broker: Broker) -> None:
        for number in range(4):
            append(broker.log(), b"%d" % number)
        log = broker.log()
        log.flush()
        log.watermarks.update_high_watermark(3)
        log.delete_records(2)
        append(broker.log(OTHER), b"a")
        broker.scheduler.advance(90_000)
        path = broker.paths[0]
        assert OffsetCheckpointFile(path / "recovery-point-offset-checkpoint").read() == {T0: 4, OTHER: 0}
        assert OffsetCheckpointFile(path / "log-start-offset-checkpoint").read() == {T0: 2}
        assert OffsetCheckpointFile(path / "replication-offset-checkpoint").read() == {T0: 3, OTHER: 0}
        manager = broker.restart(clean=False)
        reopened = manager.get_log(T0)
        assert reopened is not None
        assert (reopened.log_start_offset, reopened.high_watermark, reopened.recovery_point) == (2, 3, 4)

    def test_producers_are_forgotten_after_a_period(self, broker: Broker) -> None:
        """A producer of old records is idle by their timestamps, and yet kept for a while."""
        log = broker.log()
        append(log, b"a", producer_id=1, epoch=0, sequence=0, timestamp=1)
        broker.scheduler.advance(599_999)
        assert log.producers.count == 1
        broker.scheduler.advance(1)
        assert log.producers.count == 0

    def test_a_broker_at_rest_writes_nothing(self, broker: Broker) -> None:
        append(broker.log(), b"a")
        broker.scheduler.advance(120_000)
        path = broker.paths[0] / "replication-offset-checkpoint"
        before = path.stat().st_ino
        broker.scheduler.advance(120_000)
        assert path.stat().st_ino == before
        broker.log().watermarks.update_high_watermark(1)
        broker.scheduler.advance(5_000)
        assert path.stat().st_ino != before

    @pytest.mark.parametrize("name", ["recovery-point", "log-start"])
    def test_a_broken_checkpoint_is_as_good_as_none(self, broker: Broker, name: str) -> None:
        append(broker.log(), b"a")
        broker.kill()
        (broker.paths[0] / f"{name}-offset-checkpoint").write_text("nonsense")
        broker.start()
        assert offsets(all_records(broker.log())) == [0]

    def test_retention(self, broker: Broker) -> None:
        broker.overrides["topic"] = {"retention.ms": "1000"}
        append(broker.log(), b"a")
        append(broker.log(OTHER), b"a")
        broker.log().watermarks.update_high_watermark(1)
        broker.scheduler.advance(30_000)
        assert broker.log().log_start_offset == 1
        assert broker.log(OTHER).log_start_offset == 0

    def test_flushing(self, broker: Broker) -> None:
        broker.settings["flush_check_ms"] = 1000
        broker.overrides["topic"] = {"flush.ms": "5000"}
        broker.restart()
        append(broker.log(), b"a")
        append(broker.log(OTHER), b"a")
        broker.scheduler.advance(30_000)
        assert (broker.log().recovery_point, broker.log(OTHER).recovery_point) == (1, 0)

    def test_flushing_after_the_date_was_set_back(self, broker: Broker) -> None:
        broker.overrides["topic"] = {"flush.ms": 1000}
        broker.scheduler.advance(30_000)
        append(broker.log(), b"a")
        broker.clock.set_milliseconds(NOW - 3_600_000)
        broker.clock.advance(1000)
        broker.manager.chores.flush_dirty_logs()
        assert broker.log().recovery_point == 1

    def test_flush_after_so_many_messages(self, broker: Broker) -> None:
        broker.overrides["topic"] = {"flush.messages": "3"}
        for expected in (0, 0, 3, 3, 3, 6):
            append(broker.log(), b"a")
            assert broker.log().recovery_point == expected

    def test_idle_producers_are_forgotten(self, broker: Broker) -> None:
        append(broker.log(), b"a", producer_id=1, epoch=0, sequence=0)
        broker.scheduler.advance(24 * 3_600_000)
        broker.scheduler.advance(600_000)
        assert broker.log().producers.count == 0

    def test_chores_end_with_the_manager(self, broker: Broker) -> None:
        broker.manager.shutdown()
        assert broker.scheduler.pending == []
        broker.start()

    def test_what_goes_wrong_with_one_log_does_not_keep_the_others(
        self, broker: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broker.overrides["topic"] = broker.overrides["other"] = {"retention.ms": "1"}
        for partition in (T0, OTHER):
            append(broker.log(partition), b"a")
            broker.log(partition).watermarks.update_high_watermark(1)
        broker.log(T0).close()
        broker.clock.advance(10)
        assert broker.manager.chores.delete_old_segments() == 1


class TestDeleting:
    def test_the_directory_is_renamed_and_goes_later(self, broker: Broker) -> None:
        append(broker.log(), b"a")
        broker.scheduler.advance(30_000)
        deleted = broker.manager.async_delete(T0)
        assert deleted is not None
        assert broker.manager.get_log(T0) is None
        (renamed,) = broker.paths[0].glob("topic-0.*-delete")
        assert offsets(all_records(deleted)) == [0], "for those who are still reading"
        again = broker.log(topic_id=random_uuid())
        assert again.log_end_offset == 0
        broker.scheduler.advance(59_999)
        assert renamed.exists()
        broker.scheduler.advance(1)
        assert not renamed.exists()
        assert append(again, b"new").first_offset == 0

    def test_checkpoints_forget_it(self, broker: Broker) -> None:
        append(broker.log(), b"a")
        append(broker.log(OTHER), b"a")
        broker.manager.chores.checkpoint_in(broker.paths[0])
        broker.manager.async_delete(T0)
        checkpoint = OffsetCheckpointFile(broker.paths[0] / "recovery-point-offset-checkpoint")
        assert list(checkpoint.read()) == [OTHER]

    def test_it_goes_after_the_date_was_set_back(self, broker: Broker) -> None:
        append(broker.log(), b"a")
        broker.scheduler.advance(30_000)
        broker.manager.async_delete(T0)
        broker.clock.set_milliseconds(NOW - 3_600_000)
        broker.scheduler.advance(60_000)
        assert not list(broker.paths[0].glob("topic-0*"))

    def test_a_new_log_of_that_name_does_not_inherit_its_offsets(self, broker: Broker) -> None:
        """The broker is killed after the log was renamed and before its checkpoints were written, and once more."""
        for number in range(4):
            append(broker.log(), b"%d" % number)
        broker.log().watermarks.move_high_watermark_to_end()
        broker.log().delete_records(3)
        broker.log().flush()
        broker.manager.chores.checkpoint_in(broker.paths[0])
        broker.log().rename_dir(log_delete_dir_name(T0))
        broker.restart(clean=False)
        append(broker.log(), b"new")
        broker.restart(clean=False)
        assert values(all_records(broker.log())) == [b"new"]
        assert broker.log().recovery_point == 0

    def test_a_checkpoint_in_progress_does_not_bring_its_offsets_back(
        self, broker: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        append(broker.log(), b"a")
        append(broker.log(OTHER), b"a")
        deletion = threading.Thread(target=lambda: broker.manager.async_delete(T0))
        write = LogDir.write_checkpoint

        def write_late(log_dir: LogDir, name: str, offsets: dict[TopicPartition, int]) -> None:
            monkeypatch.setattr(LogDir, "write_checkpoint", write)
            assert T0 in offsets
            deletion.start()
            deletion.join(0.2)
            write(log_dir, name, offsets)

        monkeypatch.setattr(LogDir, "write_checkpoint", write_late)
        broker.manager.chores.checkpoint_recovery_points()
        deletion.join()
        checkpoint = OffsetCheckpointFile(broker.paths[0] / "recovery-point-offset-checkpoint")
        assert list(checkpoint.read()) == [OTHER]

    @pytest.mark.parametrize("clean", [True, False])
    def test_a_restart_before_that(self, broker: Broker, clean: bool) -> None:
        append(broker.log(), b"a")
        broker.manager.async_delete(T0)
        manager = broker.restart(clean=clean)
        assert manager.current_logs() == {}
        broker.scheduler.advance(60_000)
        assert not list(broker.paths[0].glob("topic-0*"))

    def test_many(self, broker: Broker) -> None:
        partitions = [TopicPartition("topic", number) for number in range(5)]
        for partition in partitions:
            append(broker.log(partition), b"a")
        broker.manager.async_delete_all([*partitions, OTHER], on_error=lambda *_: pytest.fail("no errors here"))
        assert broker.manager.current_logs() == {}
        broker.scheduler.advance(200_000)
        assert not list(broker.paths[0].glob("topic*"))

    def test_strays_are_kept(self, broker: Broker) -> None:
        append(broker.log(), b"a")
        broker.manager.async_delete(T0, is_stray=True)
        broker.scheduler.advance(1_000_000)
        assert len(list(broker.paths[0].glob("topic-0.*-stray"))) == 1

    def test_what_is_not_there(self, broker: Broker) -> None:
        assert broker.manager.async_delete(T0) is None

    def test_two_deletions_after_each_other(self, broker: Broker) -> None:
        broker.scheduler.advance(30_000)
        for _ in range(2):
            append(broker.log(), b"a")
            broker.manager.async_delete(T0)
            broker.scheduler.advance(40_000)
        assert len(list(broker.paths[0].glob("topic-0*"))) == 1
        broker.scheduler.advance(40_000)
        assert not list(broker.paths[0].glob("topic-0*"))


class TestTruncating:
    def test_the_recovery_point_is_written_down(self, broker: Broker) -> None:
        for number in range(4):
            append(broker.log(), b"%d" % number)
        broker.log().flush()
        broker.manager.chores.checkpoint_in(broker.paths[0])
        broker.manager.truncate_to({T0: 2, OTHER: 1})
        assert OffsetCheckpointFile(broker.paths[0] / "recovery-point-offset-checkpoint").read() == {T0: 2}
        append(broker.log(), b"other 2")
        broker.restart(clean=False)
        assert values(all_records(broker.log())) == [b"0", b"1", b"other 2"]

    def test_fully(self, broker: Broker) -> None:
        append(broker.log(), b"a")
        broker.manager.truncate_fully_and_start_at(T0, 40)
        broker.manager.truncate_fully_and_start_at(OTHER, 40)
        assert broker.log().log_start_offset == 40


class TestMoving:
    def test_a_copy_takes_over(self, two: Broker) -> None:
        log = two.log(topic_id=random_uuid())
        append(log, b"a")
        log.watermarks.update_high_watermark(1)
        source, target = log.parent_dir, next(path for path in two.paths if path != log.parent_dir)
        with pytest.raises(ValueError, match="future log"):
            two.log(is_future=True)
        two.manager.prefer_log_dir(T0, target)
        future = two.log(is_future=True, topic_id=log.topic_id)
        assert future.is_future
        assert future.parent_dir == target
        assert two.manager.get_log(T0) is log
        future.append_as_follower(fetched_bytes(read_from(log)), 0)
        two.manager.replace_current_with_future_log(T0)
        assert two.manager.get_log(T0) is future
        assert two.manager.get_log(T0, is_future=True) is None
        assert future.directory == target / "topic-0"
        assert future.high_watermark == 1
        append(future, b"b")
        assert len(list(source.glob("topic-0.*-delete"))) == 1
        two.scheduler.advance(120_000)
        assert not list(source.glob("topic-0*"))
        two.restart(clean=False)
        assert values(all_records(two.log())) == [b"a", b"b"]

    def test_a_copy_survives_a_restart(self, two: Broker) -> None:
        append(two.log(), b"a")
        two.manager.prefer_log_dir(T0, next(path for path in two.paths if path != two.log().parent_dir))
        two.log(is_future=True)
        manager = two.restart()
        future = manager.get_log(T0, is_future=True)
        assert future is not None
        assert future.is_future

    def damage_copy(self, two: Broker) -> UnifiedLog:
        """Returns the damaged future log of a broker that is down."""
        for number in range(6):
            append(two.log(), b"%d" % number)
        two.manager.prefer_log_dir(T0, next(path for path in two.paths if path != two.log().parent_dir))
        future = two.log(is_future=True)
        future.append_as_follower(fetched_bytes(read_from(two.log())), 0)
        two.kill()
        write_at(future.active_segment.records.path, 100, b"\xff\xff\xff")
        return future

    def test_a_damaged_copy_is_deleted(self, two: Broker, caplog: pytest.LogCaptureFixture) -> None:
        future = self.damage_copy(two)
        manager = two.start()
        assert "request the move of topic-0 again" in caplog.text
        assert manager.offline_logs == {}
        assert manager.get_log(T0, is_future=True) is None
        assert len(all_records(two.log())) == 6
        manager.prefer_log_dir(T0, future.parent_dir)
        assert two.log(is_future=True).log_end_offset == 0, "the move starts again"
        two.scheduler.advance(120_000)
        assert not future.directory.exists()
        assert not list(future.parent_dir.glob("*-delete"))
        manager.async_delete_all([T0], on_error=lambda *_: None)
        assert two.log(is_new=True).log_end_offset == 0, "the topic can be created again"

    def test_a_damaged_copy_is_kept_if_there_is_no_other_log(self, two: Broker) -> None:
        future = self.damage_copy(two)
        shutil.rmtree(next(path for path in two.paths if path != future.parent_dir) / "topic-0")
        two.start()
        assert future.directory.is_dir()
        assert two.log(is_new=True).log_end_offset == 0, "the topic can be created again"

    def test_a_damaged_copy_and_a_damaged_log(self, two: Broker) -> None:
        """Each directory may be loaded first."""
        future = self.damage_copy(two)
        current = next(path for path in two.paths if path != future.parent_dir) / "topic-0"
        write_at(next(current.glob("*.log")), 100, b"\xff\xff\xff")
        two.start()
        assert two.manager.offline_logs[T0].directory == current
        assert future.directory.is_dir()
        with pytest.raises(KafkaStorageError, match="is offline"):
            two.log(is_new=True)

    def test_without_a_copy(self, two: Broker) -> None:
        two.log()
        with pytest.raises(KafkaStorageError, match="future log"):
            two.manager.replace_current_with_future_log(T0)


class TestFailedDirectories:
    def break_disk(self, broker: Broker, log: UnifiedLog, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: Any) -> None:
            raise OSError(errno.EIO, "broken")

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", fail)
            with pytest.raises(KafkaStorageError):
                append(log, b"x")
        failed = broker.manager.failure_channel.take_next_offline_log_dir(0)
        assert failed == log.parent_dir
        broker.manager.handle_log_dir_failure(failed)

    def test_the_others_live_on(self, two: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        log, other = two.log(T0), two.log(OTHER)
        assert log.parent_dir != other.parent_dir
        self.break_disk(two, log, monkeypatch)
        manager = two.manager
        assert manager.offline_log_dirs == (log.parent_dir,)
        assert manager.get_log(T0) is None
        append(other, b"fine")
        assert manager.handle_log_dir_failure(log.parent_dir) == [], "once is enough"
        two.scheduler.advance(120_000)
        append(other, b"still")

    def test_a_log_that_may_be_offline_is_not_made_anew(self, two: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        log = two.log(T0)
        two.log(OTHER)
        self.break_disk(two, log, monkeypatch)
        with pytest.raises(KafkaStorageError, match="may be in a log directory that is offline"):
            two.log(T0)
        with pytest.raises(KafkaStorageError):
            two.manager.async_delete(T0)
        errors = []
        two.manager.async_delete_all([T0], on_error=lambda partition, error: errors.append((partition, error.code)))
        assert errors == [(T0, 56)]
        assert two.log(T0, is_new=True).parent_dir != log.parent_dir

    def test_the_last_one_is_the_end(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(FatalExitError, match="all log directories have failed"):
            self.break_disk(broker, broker.log(), monkeypatch)

    def test_a_failed_directory_gets_no_marker(self, two: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        log, other = two.log(T0), two.log(OTHER)
        append(log, b"a")
        self.break_disk(two, log, monkeypatch)
        two.manager.shutdown()
        assert not CleanShutdownFile(log.parent_dir).exists()
        assert CleanShutdownFile(other.parent_dir).exists()
        two.start()
        assert two.manager.offline_log_dirs == ()
        assert values(all_records(two.log(T0))) == [b"a"], "it is back, and has what was acknowledged"

    def test_a_directory_that_cannot_be_used_at_the_start(self, tmp_path: Path) -> None:
        (tmp_path / "one").write_text("a file")
        broker = Broker([tmp_path / "one", tmp_path / "two"])
        assert broker.manager.offline_log_dirs == (tmp_path / "one",)
        assert broker.manager.broker_epoch_of_clean_shutdown() is None
        assert broker.log(is_new=True).parent_dir == tmp_path / "two"
        broker.kill()

    def test_none_that_can(self, tmp_path: Path) -> None:
        (tmp_path / "one").write_text("a file")
        with pytest.raises(KafkaStorageError, match="none of the log directories"):
            Broker([tmp_path / "one"])

    def test_a_disk_that_fails_while_logs_are_opened(self, two: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        log, other = two.log(T0), two.log(OTHER)
        append(log, b"a")
        append(other, b"a")
        failing = log.parent_dir
        two.kill()
        real = os.scandir

        def scandir(path: Any) -> Any:
            if Path(path).parent == failing:
                raise OSError(errno.EIO, "broken")
            return real(path)

        two.create()
        with monkeypatch.context() as patch:
            patch.setattr(os, "scandir", scandir)
            two.manager.startup()
        assert two.manager.failure_channel.take_next_offline_log_dir(0) == failing
        for is_handled in (False, True):
            assert list(two.manager.current_logs()) == [OTHER]
            with pytest.raises(KafkaStorageError, match="is offline"):
                two.log(T0, is_new=True)  # as after a start, when all partitions are new to the broker
            if not is_handled:
                two.manager.handle_log_dir_failure(failing)
        with pytest.raises(KafkaStorageError, match="cannot be deleted"):
            two.manager.async_delete(T0)

    @pytest.mark.parametrize("call", ["open", "rename"])
    def test_making_and_deleting_logs(self, two: Broker, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
        log = two.log()

        def fail(*_: Any, **__: Any) -> None:
            raise OSError(errno.EIO, "broken")

        with monkeypatch.context() as patch:
            patch.setattr(os, call, fail)
            with pytest.raises(KafkaStorageError):
                two.log(T1) if call == "open" else two.manager.async_delete(T0)
        failed = two.manager.failure_channel.take_next_offline_log_dir(0)
        assert failed == (two.paths[1] if call == "open" else log.parent_dir)

    def test_a_new_log_goes_where_there_is_a_disk(self, two: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        real = os.mkdir

        def mkdir(path: Any, *arguments: Any, **options: Any) -> None:
            if Path(path).parent == two.paths[0]:
                raise OSError(errno.EROFS, "read-only")
            real(path, *arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(os, "mkdir", mkdir)
            assert two.log().parent_dir == two.paths[1]
        assert two.manager.failure_channel.has_offline_log_dir(two.paths[0])


class TestDamagedLogs:
    def damage(self, broker: Broker) -> None:
        for number in range(6):
            append(broker.log(), b"%d" % number)
        append(broker.log(OTHER), b"a")
        path = broker.log().active_segment.records.path
        broker.kill()
        write_at(path, 100, b"\xff\xff\xff")
        broker.start()

    def test_only_that_log_is_offline(self, broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
        self.damage(broker)
        manager = broker.manager
        assert list(manager.current_logs()) == [OTHER]
        assert manager.offline_log_dirs == ()
        assert isinstance(manager.offline_logs[T0].error, CorruptLogError)
        assert "The log of topic-0 stays offline" in caplog.text
        for is_new in (True, False):
            with pytest.raises(KafkaStorageError, match="is offline"):
                broker.log(T0, is_new=is_new)
        append(broker.log(OTHER), b"b")

    def test_the_next_start_looks_again(self, broker: Broker) -> None:
        self.damage(broker)
        broker.manager.shutdown()
        assert not CleanShutdownFile(broker.paths[0]).exists(), "it would let the damaged log pass"
        broker.start()
        assert list(broker.manager.offline_logs) == [T0]

    def test_flushed_records_are_not_cut_off_at_the_second_start(self, broker: Broker) -> None:
        """The first start refuses to cut them off because of the recovery point, which must be there at the second."""
        for number in range(6):
            append(broker.log(), b"%d" % number)
        broker.log().watermarks.move_high_watermark_to_end()
        broker.log().delete_records(2)
        broker.log().flush()
        broker.manager.chores.checkpoint(broker.manager.log_dirs.live[0])
        path = broker.log().active_segment.records.path
        size = path.stat().st_size
        broker.kill()
        write_at(path, size - 3, b"\xff\xff\xff")
        recovery_points = OffsetCheckpointFile(broker.paths[0] / "recovery-point-offset-checkpoint")
        log_start_offsets = OffsetCheckpointFile(broker.paths[0] / "log-start-offset-checkpoint")
        for _ in range(2):
            broker.start()
            assert "forced to disk" in str(broker.manager.offline_logs[T0].error)
            append(broker.log(OTHER), b"a")
            broker.scheduler.advance(120_000)  # the checkpoints are written
            assert (recovery_points.read()[T0], log_start_offsets.read()[T0]) == (6, 2)
            broker.manager.shutdown()
            assert (recovery_points.read()[T0], log_start_offsets.read()[T0]) == (6, 2)
        broker.start()
        assert list(broker.manager.offline_logs) == [T0]
        assert path.stat().st_size == size
        broker.manager.async_delete(T0)
        assert T0 not in {**recovery_points.read(), **log_start_offsets.read()}, "a new log of that name starts at 0"

    def test_it_can_be_deleted(self, broker: Broker) -> None:
        self.damage(broker)
        broker.manager.async_delete(T0)
        assert broker.manager.offline_logs == {}
        assert broker.log(T0).log_end_offset == 0
        broker.scheduler.advance(120_000)
        assert [path.name for path in broker.paths[0].glob("topic-0*")] == ["topic-0"]
