"""Log directories: what is in them, moves between them, and what happens when one fails."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from barnabas.common.clock import SYSTEM_CLOCK, MockClock
from barnabas.common.errors import Errors, KafkaStorageError
from barnabas.common.shutdownable_thread import FatalExitError
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.dirs.log_dir_names import is_delete_dir, is_future_dir
from barnabas.log.manager.log_manager import LogManager
from barnabas.log.segment.file_records import FileRecords
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsResult
from barnabas.replica.partition.partition import Partition
from log_fixtures import NOW, all_records, client_batch, values
from replica_fixtures import T0, T0_ID, ReplicaBox
from unit.metadata.samples import topic, uid

OTHER = TopicPartition("topic", 1)
DEADLINE_S = 60


class MakeBox(Protocol):
    """Makes brokers, whose threads end with the test, whatever becomes of it."""

    def __call__(self, *directories: str, config: dict[str, Any] | None = None, **options: Any) -> ReplicaBox: ...


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeBox]:
    """Brokers with two disks. Their clocks stand still, but threads that wait on them do so in real time."""
    boxes: list[ReplicaBox] = []

    def make_box(*directories: str, config: dict[str, Any] | None = None, **options: Any) -> ReplicaBox:
        paths = [tmp_path / name for name in directories or ("one", "two")]
        boxes.append(ReplicaBox(paths, config or {}, clock=_RealWaits(NOW), **options))
        return boxes[-1]

    yield make_box
    for box in boxes:
        box.kill()


@pytest.fixture
def box(make: MakeBox) -> ReplicaBox:
    return make()


class _RealWaits(MockClock):
    def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:
        return SYSTEM_CLOCK.wait(condition, None if timeout_ms is None else min(timeout_ms, 5))


def until(condition: Callable[[], Any]) -> None:
    """Waits, with a limit, for another thread to bring something about."""
    changed = threading.Condition()
    with changed:
        assert changed.wait_for(condition, 0) or _poll(changed, condition)


def _poll(changed: threading.Condition, condition: Callable[[], Any]) -> bool:
    for _ in range(DEADLINE_S * 200):
        changed.wait(0.005)
        if condition():
            return True
    return False


def led_in(box: ReplicaBox, number: int, **options: Any) -> Partition:
    """A topic whose log is in one of the two directories."""
    return box.create_topic(directories=[box.directory_id(number)], **options)


def described(results: list[DescribeLogDirsResult]) -> dict[str, list[tuple[str, int, int, bool]]]:
    return {
        Path(result.log_dir).name: [
            (topic.name, partition.partition_index, partition.offset_lag, partition.is_future_key)
            for topic in result.topics
            for partition in topic.partitions
        ]
        for result in results
    }


class TestDescribe:
    def test_all_directories(self, box: ReplicaBox) -> None:
        led_in(box, 0, partitions=2)
        box.produce()
        first, second = box.manager.describe_log_dirs(None)
        assert (first.log_dir, second.log_dir) == tuple(map(str, box.paths))
        assert first.error_code == second.error_code == 0
        assert described([first, second]) == {"one": [("topic", 0, 0, False), ("topic", 1, 0, False)], "two": []}
        assert [one.partition_size for one in first.topics[0].partitions] == [len(client_batch()), 0]
        volume = os.statvfs(box.paths[0])
        assert first.total_bytes == volume.f_frsize * volume.f_blocks
        assert 0 < first.usable_bytes <= first.total_bytes
        assert not first.is_cordoned

    def test_some_partitions(self, box: ReplicaBox) -> None:
        led_in(box, 0, partitions=2)
        assert described(box.manager.describe_log_dirs([OTHER])) == {"one": [("topic", 1, 0, False)], "two": []}
        assert described(box.manager.describe_log_dirs([])) == {"one": [], "two": []}

    def test_a_failed_one(self, box: ReplicaBox) -> None:
        led_in(box, 0)
        box.manager.handle_log_dir_failure(box.paths[0])
        first, second = box.manager.describe_log_dirs(None)
        assert (first.error_code, first.topics, first.total_bytes) == (Errors.KAFKA_STORAGE_ERROR, [], -1)
        assert second.error_code == 0

    def test_a_cordoned_one(self, make: MakeBox, tmp_path: Path) -> None:
        box = make(log_settings={"cordoned_log_dirs": (str(tmp_path / "two"),)})
        assert [result.is_cordoned for result in box.manager.describe_log_dirs(None)] == [False, True]


class TestMoving:
    def test_a_log_moves_with_all_that_is_in_it(self, box: ReplicaBox) -> None:
        partition = led_in(box, 0)
        for number in range(20):
            box.produce({T0_ID: client_batch([b"%d" % number], producer_id=9, epoch=0, sequence=number)})
        assert box.manager.alter_replica_log_dirs({T0: str(box.paths[1])}) == {T0: Errors.NONE}
        until(lambda: partition.local_log_or_raise().parent_dir == box.paths[1])
        log = partition.local_log_or_raise()
        assert box.logs.get_log(T0) is log
        assert box.logs.get_log(T0, is_future=True) is partition.future_log is None
        assert values(all_records(log)) == [b"%d" % number for number in range(20)]
        assert (log.high_watermark, log.leader_epochs.latest_epoch) == (20, 0)
        assert [path.name for path in box.paths[1].glob("topic*")] == ["topic-0"]
        assert all(is_delete_dir(path) for path in box.paths[0].glob("topic*"))
        # The controller was told before, and what producers did is remembered.
        assert (T0_ID, box.directory_id(1), "Migrating log directory") in box.directory_events.assignments
        box.produce({T0_ID: client_batch([b"19"], producer_id=9, epoch=0, sequence=19)})
        box.produce({T0_ID: client_batch([b"20"], producer_id=9, epoch=0, sequence=20)})
        assert [answer[T0_ID].base_offset for answer in box.answers.produced[-2:]] == [19, 20]

    def test_the_copy_is_on_disk_before_the_original_goes(
        self, box: ReplicaBox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A power cut would otherwise lose records that were on a disk for months."""
        partition = led_in(box, 0)
        for _ in range(3):
            box.produce()
        partition.local_log_or_raise().flush()
        flushed: list[int] = []
        replace = LogManager.replace_current_with_future_log

        def look_and_replace(manager: LogManager, topic_partition: TopicPartition) -> None:
            future = manager.get_log(topic_partition, is_future=True)
            assert future is not None
            flushed.append(future.recovery_point)
            replace(manager, topic_partition)

        monkeypatch.setattr(LogManager, "replace_current_with_future_log", look_and_replace)
        box.manager.alter_replica_log_dirs({T0: str(box.paths[1])})
        until(lambda: partition.local_log_or_raise().parent_dir == box.paths[1])
        assert flushed == [3]

    def test_in_portions_and_from_the_middle_of_the_log(self, make: MakeBox) -> None:
        box = make(config={"replica_fetch_max_bytes": 100})
        box.overrides["topic"] = {"segment.bytes": "1048576"}
        partition = led_in(box, 0)
        for number in range(10):
            box.produce({T0_ID: client_batch([b"%d" % number, b"more"])})
        partition.delete_records_on_leader(7)
        box.manager.alter_replica_log_dirs({T0: str(box.paths[1])})
        until(lambda: partition.local_log_or_raise().parent_dir == box.paths[1])
        log = partition.local_log_or_raise()
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (7, 20, 20)
        box.fetch({T0_ID: 7})
        assert box.only_fetched().error is Errors.NONE

    def test_while_producers_go_on(self, box: ReplicaBox) -> None:
        partition = led_in(box, 0)
        stop = threading.Event()
        sent = [0]

        def produce() -> None:
            while not stop.is_set():
                box.manager.append_records(
                    1000, -1, {T0_ID: client_batch([b"%d" % sent[0]])}, box.answers.produced.append
                )
                sent[0] += 1

        producer = threading.Thread(target=produce)
        producer.start()
        try:
            for target in (1, 0):
                until(lambda: sent[0] > 20)
                box.manager.alter_replica_log_dirs({T0: str(box.paths[target])})
                until(lambda target=target: partition.local_log_or_raise().parent_dir == box.paths[target])  # type: ignore[misc]
        finally:
            stop.set()
            producer.join()
        assert [answer[T0_ID].error for answer in box.answers.produced] == [Errors.NONE] * sent[0]
        assert [answer[T0_ID].base_offset for answer in box.answers.produced] == list(range(sent[0]))
        assert values(all_records(partition.local_log_or_raise())) == [b"%d" % number for number in range(sent[0])]

    def test_the_controller_has_to_agree_first(self, make: MakeBox) -> None:
        box = make(accepts_assignments=False)
        partition = led_in(box, 0)
        box.produce()
        box.manager.alter_replica_log_dirs({T0: str(box.paths[1])})
        until(lambda: box.directory_events.callbacks)
        box.produce()
        until(lambda: partition.future_log is not None and partition.future_log.log_end_offset == 2)
        assert partition.local_log_or_raise().parent_dir == box.paths[0]
        lag = described(box.manager.describe_log_dirs(None))
        assert lag == {"one": [("topic", 0, 0, False)], "two": [("topic", 0, 0, True)]}
        box.directory_events.callbacks[0]()
        until(lambda: partition.local_log_or_raise().parent_dir == box.paths[1])

    def test_turning_round(self, make: MakeBox) -> None:
        box = make("one", "two", "three", accepts_assignments=False)
        paths = box.paths
        partition = led_in(box, 0)
        box.produce()
        box.manager.alter_replica_log_dirs({T0: str(paths[1])})
        until(lambda: box.directory_events.callbacks)
        assert box.manager.alter_replica_log_dirs({T0: str(paths[2])}) == {T0: Errors.NONE}
        assert partition.future_log is not None
        assert partition.future_log.parent_dir == paths[2]
        assert all(is_delete_dir(path) for path in paths[1].glob("topic*"))
        assert box.directory_events.assignments[1][1] == box.directory_id(0)  # back to where it is

    def test_to_where_it_is(self, box: ReplicaBox) -> None:
        partition = led_in(box, 0)
        assert box.manager.alter_replica_log_dirs({T0: str(box.paths[0])}) == {T0: Errors.NONE}
        assert partition.future_log is None
        assert box.manager.movers.thread_count == 0

    def test_errors(self, box: ReplicaBox) -> None:
        led_in(box, 0)
        long = TopicPartition("t" * 240, 0)
        alter = box.manager.alter_replica_log_dirs
        assert alter({T0: str(box.paths[0] / "no")}) == {T0: Errors.LOG_DIR_NOT_FOUND}
        assert alter({long: str(box.paths[0])}) == {long: Errors.INVALID_TOPIC_EXCEPTION}
        box.manager.handle_log_dir_failure(box.paths[0])
        assert alter({T0: str(box.paths[0])}) == {T0: Errors.KAFKA_STORAGE_ERROR}
        assert alter({T0: str(box.paths[1])}) == {T0: Errors.KAFKA_STORAGE_ERROR}

    def test_a_replica_that_is_not_here_yet_will_be_made_there(self, box: ReplicaBox) -> None:
        for number in (0, 1):
            partition = TopicPartition(f"new{number}", 0)
            path = box.paths[1 - number]
            result = box.manager.alter_replica_log_dirs({partition: str(path)})
            assert result == {partition: Errors.UNKNOWN_TOPIC_OR_PARTITION}
            found = box.create_topic(partition.topic, uid(60 + number))
            assert found.local_log_or_raise().parent_dir == path

    def test_a_replica_of_others(self, box: ReplicaBox) -> None:
        box.learn(topic("elsewhere", uid(8), replicas=[2]))
        partition = TopicPartition("elsewhere", 0)
        assert box.manager.alter_replica_log_dirs({partition: str(box.paths[1])}) == {
            partition: Errors.REPLICA_NOT_AVAILABLE
        }

    def test_a_move_goes_on_after_a_restart(self, make: MakeBox) -> None:
        box = make(accepts_assignments=False)
        led_in(box, 0)
        box.produce()
        box.manager.alter_replica_log_dirs({T0: str(box.paths[1])})
        until(lambda: box.directory_events.callbacks)
        box.stop()
        assert [is_future_dir(path) for path in box.paths[1].glob("topic*")] == [True]
        box.accepts_assignments = True
        box.start()
        partition = led_in(box, 0)
        until(lambda: partition.local_log_or_raise().parent_dir == box.paths[1])
        assert partition.local_log_or_raise().log_end_offset == 1

    def test_deleting_a_topic_that_moves(self, make: MakeBox) -> None:
        box = make(accepts_assignments=False)
        led_in(box, 0)
        box.manager.alter_replica_log_dirs({T0: str(box.paths[1])})
        until(lambda: box.directory_events.callbacks)
        box.delete_topic()
        assert box.logs.all_logs() == []
        assert all(is_delete_dir(path) for root in box.paths for path in root.glob("topic*"))

    def test_threads_come_and_go(self, box: ReplicaBox) -> None:
        partition = led_in(box, 0)
        box.manager.startup()
        box.manager.alter_replica_log_dirs({T0: str(box.paths[1])})
        assert box.manager.movers.thread_count == 1
        assert [one.name for one in threading.enumerate() if one.name.startswith("ReplicaAlterLogDirsThread-")]
        until(lambda: partition.local_log_or_raise().parent_dir == box.paths[1])
        until(lambda: box.scheduler.advance(10_000) and box.manager.movers.thread_count == 0)

    def test_the_copy_is_cut_where_the_original_was(self, make: MakeBox) -> None:
        """A follower that had to truncate its log while it moved."""
        box = make(accepts_assignments=False)
        partition = led_in(box, 0, replicas=[1])
        for _ in range(3):
            box.produce()
        box.manager.alter_replica_log_dirs({T0: str(box.paths[1])})
        until(lambda: box.directory_events.callbacks)
        future = partition.future_log
        assert future is not None
        assert future.log_end_offset == 3
        box.change(leader=1)
        box.manager.movers.remove_partitions([T0])
        partition.local_log_or_raise().truncate_to(1)
        for number in range(3):
            box.produce({T0_ID: client_batch([b"%d" % number])})
        asked = len(box.directory_events.callbacks)
        box.manager.movers.add_partition(partition)
        until(lambda: len(box.directory_events.callbacks) > asked)
        assert values(all_records(future)) == [b"value", b"0", b"1", b"2"]
        box.directory_events.callbacks[-1]()
        until(lambda: partition.local_log_or_raise() is future)


class TestFailing:
    def test_partitions_there_are_offline_and_the_others_are_not(self, box: ReplicaBox) -> None:
        first = box.create_topic(directories=[box.directory_id(0)])
        box.create_topic("other", uid(8), directories=[box.directory_id(1)])
        box.produce()
        box.manager.handle_log_dir_failure(box.paths[0])
        assert box.manager.get_partition_or_error(T0) is Errors.KAFKA_STORAGE_ERROR
        assert not first.is_leader
        assert box.manager.online_partition(("other", 0)) is not None
        box.answers.produced.clear()
        box.produce()
        assert box.only_produced().error is Errors.KAFKA_STORAGE_ERROR
        box.fetch()
        assert box.only_fetched().error is Errors.KAFKA_STORAGE_ERROR
        assert box.manager.last_offset_for_leader_epoch(T0, None, 0).error is Errors.KAFKA_STORAGE_ERROR
        assert box.directory_events.failures == [box.directory_id(0)]
        assert box.logs.offline_log_dirs == (box.paths[0],)
        assert box.exits == []

    def test_a_second_report_is_no_news(self, box: ReplicaBox) -> None:
        for _ in range(2):
            box.manager.handle_log_dir_failure(box.paths[0])
        assert box.directory_events.failures == [box.directory_id(0)]

    def test_a_disk_that_fails_under_an_append(self, box: ReplicaBox, monkeypatch: pytest.MonkeyPatch) -> None:
        """From the write that fails, through the thread that takes the directory out of service."""
        led_in(box, 0)
        box.manager.startup()
        box.fetch()

        def fail(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(FileRecords, "append", fail)
            box.produce()
        assert box.only_produced().error is Errors.KAFKA_STORAGE_ERROR
        until(lambda: box.directory_events.failures)
        assert box.manager.get_partition_or_error(T0) is Errors.KAFKA_STORAGE_ERROR
        until(lambda: box.answers.fetched)
        assert box.only_fetched().error is Errors.KAFKA_STORAGE_ERROR
        assert [one for one in threading.enumerate() if one.name == "LogDirFailureHandler"]

    def test_the_last_one_is_the_end(self, box: ReplicaBox) -> None:
        box.manager.handle_log_dir_failure(box.paths[0])
        with pytest.raises(FatalExitError):
            box.manager.handle_log_dir_failure(box.paths[1])

    def test_so_is_that_of_the_metadata(self, make: MakeBox, tmp_path: Path) -> None:
        box = make(config={"metadata_log_dir": tmp_path / "one"})
        box.manager.startup()
        box.logs.failure_channel.maybe_add_offline_log_dir(box.paths[0], "broken")
        until(lambda: box.exits)
        assert box.exits == [1]

    def test_a_move_to_a_directory_that_fails(self, make: MakeBox) -> None:
        box = make(accepts_assignments=False)
        partition = led_in(box, 0)
        box.produce()
        box.manager.alter_replica_log_dirs({T0: str(box.paths[1])})
        until(lambda: box.directory_events.callbacks)
        box.manager.handle_log_dir_failure(box.paths[1])
        assert partition.future_log is None
        box.produce()
        assert [answer[T0_ID].error for answer in box.answers.produced] == [Errors.NONE] * 2
        assert box.manager.alter_replica_log_dirs({T0: str(box.paths[1])}) == {T0: Errors.KAFKA_STORAGE_ERROR}

    def test_a_directory_without_an_id_cannot_be_reported(self, box: ReplicaBox) -> None:
        log_dir = box.logs.log_dirs.get(box.paths[0])
        assert log_dir is not None
        log_dir.directory_id = None
        with pytest.raises(FatalExitError):
            box.manager.handle_log_dir_failure(box.paths[0])

    def test_nobody_need_be_told(self, box: ReplicaBox) -> None:
        box.manager.handle_log_dir_failure(box.paths[0], notify_controller=False)
        assert box.directory_events.failures == []
        with pytest.raises(KafkaStorageError):
            box.logs.get_or_create_log(TopicPartition("x", 0))
