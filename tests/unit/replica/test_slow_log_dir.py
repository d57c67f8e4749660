"""Appends and everything else that would wait for a slow log directory: on which thread they are done."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from benchmarks.waiting import until

from barnabas.common.errors import Errors
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.dirs.log_dir_pace import SURELY_SLOW_NS
from barnabas.log.log_validator import LogValidator
from barnabas.log.segment.file_handle import Buffer
from barnabas.records.batch import RecordBatch
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.results import UNCOUNTED_BUFFERS, ProduceResult
from log_fixtures import all_records, client_batch, values
from replica_fixtures import TOPIC_ID, ReplicaBox
from unit.metadata.samples import uid

WAIT_S = 60
OTHER_ID = uid(77)
SLOW = TopicIdPartition(TOPIC_ID, "topic", 0)
QUICK = TopicIdPartition(OTHER_ID, "other", 0)
LANE = "slow-log-dir-append-two"


class Slow:
    """A broker with a partition in each of two log directories, the second of which is slow."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.box = ReplicaBox([directory / "one", directory / "two"])
        self.box.overrides["topic"] = settings
        self.partition = self.box.create_topic(directories=[self.box.directory_id(1)])
        self.box.create_topic("other", OTHER_ID, directories=[self.box.directory_id(0)])
        self.log = self.partition.local_log_or_raise()
        self.threads: list[str] = []
        self.results: list[dict[TopicIdPartition, ProduceResult]] = []
        self.held = self.released = 0

    def become_slow(self) -> None:
        self.log.pace.wrote(SURELY_SLOW_NS)

    def hold_buffer(self) -> Callable[[], object]:
        self.held += 1

        def release() -> None:
            self.released += 1

        return release

    def produce(self, *partitions: TopicIdPartition, **options: object) -> None:
        entries = {partition: client_batch([b"v"]) for partition in partitions}

        def callback(results: dict[TopicIdPartition, ProduceResult]) -> None:
            self.threads.append(threading.current_thread().name.rpartition("-")[0])
            self.results.append(results)

        self.box.manager.append_records(1000, -1, entries, callback, **{"holder": self, **options})  # type: ignore[arg-type]

    def await_results(self, count: int) -> None:
        until(lambda: len(self.results) == count and self.held == self.released, "answered", WAIT_S)
        assert all(one.error is Errors.NONE for results in self.results for one in results.values())


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Slow]:
    slow = Slow(tmp_path)
    yield slow
    slow.box.kill()


@pytest.fixture
def synced(tmp_path: Path) -> Iterator[Slow]:
    slow = Slow(tmp_path, **{"flush.messages": "3"})
    yield slow
    slow.box.kill()


def test_a_quick_directory_is_written_to_at_once(slow: Slow) -> None:
    slow.produce(SLOW)
    assert (slow.threads, slow.held) == ([""], 0)


def test_a_slow_directory_is_written_to_by_a_thread_of_its_own(slow: Slow) -> None:
    slow.become_slow()
    for _ in range(3):
        slow.produce(SLOW)
    slow.await_results(3)
    assert (slow.threads, slow.held) == ([LANE] * 3, 3)
    assert values(all_records(slow.log)) == [b"v"] * 3


def test_records_that_wait_for_a_slow_directory_are_bounded(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    began, go_on = threading.Event(), threading.Event()
    pwrite = os.pwrite

    def stalled_write(fd: int, data: Buffer, position: int) -> int:
        began.set()
        assert go_on.wait(WAIT_S)
        return pwrite(fd, data, position)

    size = len(client_batch([b"v"]))
    monkeypatch.setattr("barnabas.log.dirs.log_dir_pace.LANE_BYTES", 3 * size)
    monkeypatch.setattr(os, "pwrite", stalled_write)
    slow.become_slow()
    for _ in range(3):
        slow.produce(SLOW)
    assert began.wait(WAIT_S)
    slow.produce(SLOW)
    assert [results[SLOW].error for results in slow.results] == [Errors.KAFKA_STORAGE_ERROR], "refused at once"
    go_on.set()
    until(lambda: len(slow.results) == 4 and slow.released == slow.held == 4, "answered", WAIT_S)
    assert [results[SLOW].error for results in slow.results[1:]] == [Errors.NONE] * 3
    monkeypatch.setattr("barnabas.log.dirs.log_dir_pace.LANE_BYTES", size - 1)
    until(lambda: slow.log.pace.appends.held_bytes == 0, "freed", WAIT_S)
    slow.produce(SLOW)
    until(lambda: len(slow.results) == 5, "answered", WAIT_S)
    assert slow.results[-1][SLOW].error is Errors.NONE, "a large one is accepted if it is alone"


def test_the_other_directory_is_not_affected(slow: Slow) -> None:
    slow.become_slow()
    slow.produce(QUICK)
    assert (slow.threads, slow.held) == ([""], 0)


def test_a_request_for_both_goes_where_it_has_to_wait(slow: Slow) -> None:
    slow.become_slow()
    slow.produce(QUICK, SLOW)
    slow.await_results(1)
    assert slow.threads == [LANE]
    assert list(slow.results[0]) == [QUICK, SLOW]


def test_who_cannot_wait_for_a_callback_appends_itself(slow: Slow) -> None:
    slow.become_slow()
    slow.produce(SLOW, holder=None)
    assert slow.threads == [""]


def test_a_slow_write_is_noticed(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    slow.produce(SLOW)
    pwrite, clock = os.pwrite, slow.box.clock

    def slow_write(fd: int, data: Buffer, position: int) -> int:
        clock.advance(2000)
        return pwrite(fd, data, position)

    monkeypatch.setattr(os, "pwrite", slow_write)
    slow.produce(SLOW)
    assert slow.log.pace.is_slow
    monkeypatch.undo()
    slow.produce(SLOW)
    slow.await_results(3)
    assert slow.threads == ["", "", LANE]


def test_a_compressed_batch_that_takes_long_to_check_is_not_the_disks_fault(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, clock = LogValidator.validate, slow.box.clock

    def slow_check(self: LogValidator, records: Buffer, origin: AppendOrigin, now: int) -> RecordBatch:
        clock.advance(2000)
        return check(self, records, origin, now)

    monkeypatch.setattr(LogValidator, "validate", slow_check)
    slow.produce(SLOW)
    assert not slow.log.pace.is_slow


def test_an_append_that_fails_gets_a_response(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    slow.become_slow()
    monkeypatch.setattr(slow.box.manager.stats, "topic_stats", None)
    slow.produce(SLOW)
    until(lambda: len(slow.results) == 1 and slow.released == 1, "answered", WAIT_S)
    assert slow.results[0][SLOW].error is Errors.UNKNOWN_SERVER_ERROR


def test_a_sync_by_count_is_not_done_by_a_network_thread(synced: Slow) -> None:
    for _ in range(3):
        synced.produce(SLOW)
    synced.await_results(3)
    assert synced.threads == ["", "", LANE]
    assert synced.log.recovery_point == 3
    synced.produce(SLOW)
    synced.await_results(4)
    assert synced.threads[-1] == "", "that one is not due"


def test_others_follow_an_append_that_is_going_to_sync(synced: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the lock of the log meanwhile."""
    began, go_on = threading.Event(), threading.Event()
    flush = synced.log.flush

    def slow_flush() -> None:
        began.set()
        assert go_on.wait(WAIT_S)
        flush()

    monkeypatch.setattr(synced.log, "flush", slow_flush)
    for _ in range(3):
        synced.produce(SLOW)
    assert began.wait(WAIT_S)
    synced.produce(SLOW)
    assert len(synced.results) == 2, "it has not waited for the lock"
    go_on.set()
    synced.await_results(4)
    assert synced.threads[2:] == [LANE] * 2
    assert not synced.log.pace.expects_sync(synced.log.topic_partition)


def test_a_coordinator_that_may_sync_never_runs_on_a_network_thread(synced: Slow) -> None:
    lane = synced.box.manager.coordinator_lane(TopicPartition("topic", 0))
    assert lane is synced.log.pace.coordination
    assert synced.box.manager.coordinator_lane(TopicPartition("other", 0)) is None


def test_the_first_records_of_a_log_do_not_have_a_network_thread_write_the_topic_id(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks: list[Callable[[], object]] = []
    monkeypatch.setattr(slow.box.scheduler, "schedule", lambda _name, task, *_: tasks.append(task))
    slow.box.create_topic("new", uid(78), directories=[slow.box.directory_id(1)])
    new = TopicIdPartition(uid(78), "new", 0)
    slow.produce(new)
    slow.await_results(1)
    assert slow.threads == [LANE]
    slow.produce(new)
    slow.await_results(2)
    assert slow.threads == [LANE, ""], "it is written now"
    assert slow.log.pace.paces.attentive
    for task in tasks:
        task()
    assert not slow.log.pace.paces.attentive


def test_records_are_deleted_in_the_lane(slow: Slow) -> None:
    slow.produce(SLOW)
    slow.become_slow()
    names: list[str] = []
    done = threading.Event()

    def callback(_: object) -> None:
        names.append(threading.current_thread().name.rpartition("-")[0])
        done.set()

    slow.box.manager.delete_records(1000, {TopicPartition("topic", 0): 1}, callback)
    assert done.wait(WAIT_S)
    assert names == [LANE]


def test_coordinators_ask_for_the_lane_of_their_partition(slow: Slow) -> None:
    manager = slow.box.manager
    assert manager.coordinator_lane(TopicPartition("topic", 0)) is None
    slow.become_slow()
    assert manager.coordinator_lane(TopicPartition("topic", 0)) is slow.log.pace.coordination
    assert manager.coordinator_lane(TopicPartition("other", 0)) is None
    assert manager.coordinator_lane(TopicPartition("nowhere", 0)) is None
    assert manager.append_lane([QUICK, SLOW]) is slow.log.pace.appends
    assert manager.append_lane([QUICK]) is None


def test_reading_takes_no_lock_of_the_log(slow: Slow) -> None:
    """An append may hold it for as long as a write takes."""
    for _ in range(3):
        slow.produce(SLOW)
    slow.log.watermarks.update_high_watermark(2)  # whose place is not known
    locked, go_on = threading.Event(), threading.Event()

    def hold_lock() -> None:
        with slow.partition._lock, slow.log._lock:
            locked.set()
            assert go_on.wait(WAIT_S)

    thread = threading.Thread(target=hold_lock)
    thread.start()
    assert locked.wait(WAIT_S)
    try:
        for isolation_offset in (0, 1):
            slow.box.fetch({SLOW: isolation_offset})
        assert slow.log.fetch_offset_snapshot().high_watermark.message_offset == 2
        assert slow.log.fetch_offset_by_timestamp(0) is not None
    finally:
        go_on.set()
        thread.join(WAIT_S)
    assert [len(answer[0][1].records) > 0 for answer in slow.box.answers.fetched] == [True, True]


def test_buffers_that_nobody_accounts_for() -> None:
    assert UNCOUNTED_BUFFERS.hold_buffer()() is None
