"""Threads that append, fetch and change roles at the same time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.common.errors import Errors
from barnabas.protocol.messages.fetch import FetchPartition
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.follower.replica_quota import UNBOUNDED_QUOTA
from barnabas.replica.results import FetchPartitionData, ProduceResult
from log_fixtures import all_records, client_batch, offsets
from replica_fixtures import T0_ID, TOPIC_ID, ReplicaBox, consumer

ROUNDS = 150


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[ReplicaBox]:
    box = ReplicaBox([tmp_path / "one"])
    yield box
    box.kill()


def run(*tasks: Callable[[], None]) -> None:
    """Runs all at the same time; what one raises is raised here."""
    errors: list[BaseException] = []
    started = threading.Barrier(len(tasks))

    def guarded(task: Callable[[], None]) -> None:
        try:
            started.wait()
            task()
        except BaseException as error:  # noqa: BLE001 - for the test's thread
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


@pytest.mark.mechanism("R07")
def test_no_consumer_misses_what_it_waits_for(box: ReplicaBox) -> None:
    """Consumers park with no timeout that would save them, while a producer appends."""
    box.create_topic()
    total = ROUNDS

    def consume() -> None:
        offset = 0
        while offset < total:
            answered = threading.Event()
            found: list[FetchPartitionData] = []

            def callback(
                answer: list[tuple[TopicIdPartition, FetchPartitionData]],
                found: list[FetchPartitionData] = found,
                answered: threading.Event = answered,
            ) -> None:
                found.append(answer[0][1])
                answered.set()

            request = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            box.manager.fetch_messages(consumer(max_wait_ms=3_600_000), [(T0_ID, request)], UNBOUNDED_QUOTA, callback)
            assert answered.wait(30)
            assert found[0].error is Errors.NONE
            assert len(found[0].records) > 0
            assert found[0].high_watermark <= total
            offset += len(found[0].records) // len(client_batch())

    def produce() -> None:
        for _ in range(total):
            box.manager.append_records(1000, 1, {T0_ID: client_batch()}, lambda _: None)
            box.manager.action_queue.try_complete_actions()

    run(consume, consume, produce)


@pytest.mark.mechanism("R06")
def test_every_produce_gets_a_response_once(box: ReplicaBox) -> None:
    """Producers that wait for a follower, the follower, and the timeout, all at once."""
    partition = box.create_topic(replicas=[1, 2])
    answers: list[ProduceResult] = []
    lock = threading.Lock()

    def callback(results: dict[TopicIdPartition, ProduceResult]) -> None:
        with lock:
            answers.extend(results.values())

    done = threading.Event()

    def produce() -> None:
        for _ in range(ROUNDS):
            box.manager.append_records(5, -1, {T0_ID: client_batch()}, callback)
            box.manager.action_queue.try_complete_actions()

    def both() -> None:
        try:
            run(produce, produce)
        finally:
            done.set()

    def follow() -> None:
        log = partition.local_log_or_raise()
        while not done.is_set() or log.high_watermark < log.log_end_offset:
            box.follower_fetch(2, log.log_end_offset)

    def expire() -> None:
        while not done.is_set():
            for timer in box.timers:
                timer.advance_clock(1)

    run(both, follow, expire)
    for timer in box.timers:
        timer.advance_clock(100)
    assert len(answers) == 2 * ROUNDS
    assert {answer.error for answer in answers} <= {Errors.NONE, Errors.REQUEST_TIMED_OUT}
    assert sorted(answer.base_offset for answer in answers) == list(range(2 * ROUNDS))


def test_no_append_after_the_leader_has_changed(box: ReplicaBox) -> None:
    """What is acknowledged is in the log, under the epoch in which this broker led; the rest is refused."""
    partition = box.create_topic(replicas=[1, 2])
    log = partition.local_log_or_raise()
    acknowledged: list[int] = []
    refused: list[Errors] = []
    changed_at: list[tuple[int, int]] = []

    def callback(results: dict[TopicIdPartition, ProduceResult]) -> None:
        (result,) = results.values()
        if result.error:
            refused.append(result.error)
        else:
            acknowledged.append(result.base_offset)

    def produce() -> None:
        for _ in range(ROUNDS * 2):
            box.manager.append_records(5, 1, {T0_ID: client_batch()}, callback)

    def elect() -> None:
        for _ in range(10):
            box.change(leader=2)
            end = log.log_end_offset
            for _ in range(200):
                assert log.log_end_offset == end  # nobody writes to a log that is not led here
            changed_at.append((partition.leader_epoch, end))
            box.change(leader=1)

    run(produce, elect)
    assert set(refused) <= {Errors.NOT_LEADER_OR_FOLLOWER}
    assert acknowledged == offsets(all_records(log)) == list(range(len(acknowledged)))
    for epoch, end in changed_at:
        assert log.leader_epochs.epoch_for_offset(end - 1) != epoch


def test_readers_see_one_role(box: ReplicaBox) -> None:
    """A read is answered in the epoch it was asked in, or refused."""
    partition = box.create_topic(replicas=[1, 2])
    box.produce(acks=1)
    done = threading.Event()

    def elect() -> None:
        try:
            for _ in range(40):
                box.change(leader=2)
                box.change(leader=1)
        finally:
            done.set()

    seen: set[Errors] = set()

    def read() -> None:
        while not done.is_set():
            epoch = partition.leader_epoch
            request = FetchPartition(
                partition=0, fetch_offset=0, partition_max_bytes=1 << 20, current_leader_epoch=epoch
            )
            box.manager.fetch_messages(
                consumer(max_wait_ms=0),
                [(T0_ID, request)],
                UNBOUNDED_QUOTA,
                lambda answer: seen.add(answer[0][1].error),
            )

    run(elect, read, read)
    assert seen <= {
        Errors.NONE,
        Errors.FENCED_LEADER_EPOCH,
        Errors.NOT_LEADER_OR_FOLLOWER,
        Errors.UNKNOWN_LEADER_EPOCH,
    }


def test_deleting_under_load(box: ReplicaBox) -> None:
    box.create_topic(partitions=2)
    errors: set[Errors] = set()
    done = threading.Event()

    def produce() -> None:
        while not done.is_set():
            entries = {TopicIdPartition(TOPIC_ID, "topic", number): client_batch() for number in range(2)}
            box.manager.append_records(
                5, -1, entries, lambda results: errors.update(result.error for result in results.values())
            )
            box.manager.action_queue.try_complete_actions()

    def delete() -> None:
        try:
            for _ in range(5):
                box.delete_topic()
                box.create_topic(partitions=2)
        finally:
            done.set()

    run(produce, produce, delete)
    assert errors <= {
        Errors.NONE,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.NOT_LEADER_OR_FOLLOWER,
        Errors.KAFKA_STORAGE_ERROR,
    }
