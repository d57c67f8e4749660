"""Which directory a replica is in: reported in batches, until the controller has noted it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from barnabas.broker.to_controller.assignments_manager import (
    BATCH_DELAY_MS,
    MAX_ASSIGNMENTS_PER_REQUEST,
    AssignmentsManager,
    DirectoryReports,
)
from barnabas.common.clock import MockClock
from barnabas.common.errors import Errors
from barnabas.common.identifiers import Uuid
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.metadata.provenance import MetadataProvenance
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.protocol.internal.metadata import PartitionRecord, TopicRecord
from barnabas.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    ResponseDirectoryData,
    ResponsePartitionData,
    ResponseTopicData,
)
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from controller_channel_fixtures import FakeControllerChannel

A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)
ONE, TWO = Uuid(b"1" * 16), Uuid(b"2" * 16)
ME = 1


def image_with(topics: dict[Uuid, int]) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    for topic_id, partitions in topics.items():
        delta.replay(TopicRecord(name=topic_id.decode(), topic_id=topic_id))
        for index in range(partitions):
            delta.replay(
                PartitionRecord(
                    partition_id=index, topic_id=topic_id, replicas=[ME], isr=[ME], leader=ME, directories=[ONE]
                )
            )
    return delta.apply(MetadataProvenance(1, 1, 0, True))


class Bench:
    def __init__(self, topics: dict[Uuid, int] | None = None) -> None:
        self.clock = MockClock()
        self.channel = FakeControllerChannel(self.clock)
        self.image = image_with({A: 3, B: 3} if topics is None else topics)
        self.registry = MetricsRegistry(self.clock)
        self.noted: list[str] = []
        self.manager = AssignmentsManager(
            ME, self.channel, lambda: self.image, lambda: 33, self.registry, clock=self.clock, threaded=False
        )

    def assign(self, topic_id: Uuid, index: int, directory: Uuid = ONE) -> None:
        name = f"{topic_id[:1].decode()}{index}"
        partition = TopicIdPartition(topic_id, None, index)
        self.manager.on_assignment(partition, directory, "a test", lambda: self.noted.append(name))

    def run(self, after_ms: float = BATCH_DELAY_MS) -> None:
        self.clock.advance(after_ms)
        self.manager.queue.run_until_idle()

    def sent(self) -> dict[Uuid, dict[Uuid, list[int]]]:
        body = self.channel.sent[0].body
        return {
            directory.id: {
                topic.topic_id: [row.partition_index for row in topic.partitions] for topic in directory.topics
            }
            for directory in body.directories
        }

    def answer(self, errors: dict[tuple[Uuid, int], Errors] | None = None, without: Any = ()) -> None:
        """The controller notes everything, but for what is said here."""
        sent = self.channel.take()
        body: AssignReplicasToDirsRequest = sent.body
        sent.answer(
            AssignReplicasToDirsResponse(
                directories=[
                    ResponseDirectoryData(
                        id=directory.id,
                        topics=[
                            ResponseTopicData(
                                topic_id=topic.topic_id,
                                partitions=[
                                    ResponsePartitionData(
                                        partition_index=row.partition_index,
                                        error_code=(errors or {}).get((topic.topic_id, row.partition_index), 0),
                                    )
                                    for row in topic.partitions
                                    if (topic.topic_id, row.partition_index) not in without
                                ],
                            )
                            for topic in directory.topics
                        ],
                    )
                    for directory in body.directories
                ]
            )
        )
        self.manager.queue.run_until_idle()


def test_assignments_are_collected_and_sent_together() -> None:
    b = Bench()
    b.assign(A, 0)
    b.run(BATCH_DELAY_MS - 1)
    b.assign(A, 1)
    b.assign(A, 2, TWO)
    b.assign(B, 0)
    assert not b.channel.sent
    b.run(1)
    body = b.channel.sent[0].body
    assert (body.broker_id, body.broker_epoch) == (ME, 33)
    assert b.sent() == {ONE: {A: [0, 1], B: [0]}, TWO: {A: [2]}}
    assert not b.noted
    b.answer()
    assert b.noted == ["a0", "a1", "b0", "a2"]
    assert b.manager.pending == 0


def test_nothing_is_started_before_it_is_needed() -> None:
    b = Bench()
    assert b.channel.started == 0
    b.assign(A, 0)
    b.assign(A, 1)
    assert b.channel.started == 1


def test_the_latest_assignment_of_a_replica_counts() -> None:
    b = Bench()
    b.assign(A, 0, ONE)
    b.assign(A, 0, TWO)
    b.run()
    assert b.sent() == {TWO: {A: [0]}}


def test_a_replica_that_moves_during_a_request_is_not_put_back_by_its_failure() -> None:
    b = Bench()
    b.assign(A, 0, ONE)
    b.run()
    b.assign(A, 0, TWO)
    b.answer({(A, 0): Errors.NOT_CONTROLLER})
    b.run()
    assert b.sent() == {TWO: {A: [0]}}


def test_replicas_that_are_gone_are_forgotten() -> None:
    b = Bench({A: 1})
    b.assign(A, 0)
    b.assign(A, 1)
    b.assign(B, 0)
    b.run()
    assert b.sent() == {ONE: {A: [0]}}
    b.answer()
    b.assign(B, 0)
    b.run()
    assert not b.channel.sent
    assert b.manager.pending == 0


def test_one_request_is_under_way_at_a_time() -> None:
    b = Bench()
    b.assign(A, 0)
    b.run()
    b.assign(A, 1)
    b.run()
    assert len(b.channel.sent) == 1
    assert b.manager.pending == 2
    b.answer()
    b.run()
    assert b.sent() == {ONE: {A: [1]}}


def test_an_assignment_that_is_refused_or_left_out_is_sent_again() -> None:
    b = Bench()
    for index in range(3):
        b.assign(A, index)
    b.run()
    b.answer({(A, 0): Errors.UNKNOWN_TOPIC_ID}, without=[(A, 1)])
    assert b.noted == ["a2"]
    b.run()
    assert b.sent() == {ONE: {A: [0, 1]}}


@pytest.mark.parametrize("how", ["refuse", "mismatch", "time_out", "error"])
def test_a_request_that_fails_is_repeated_after_a_growing_backoff(how: str) -> None:
    b = Bench()
    b.assign(A, 0)
    b.run()
    for backoff_ms in (200, 400):
        sent = b.channel.take()
        if how == "error":
            sent.answer(AssignReplicasToDirsResponse(error_code=Errors.STALE_BROKER_EPOCH))
        else:
            getattr(sent, how)()
        b.run(0)
        b.run(backoff_ms * 0.97)
        assert not b.channel.sent
        b.run(backoff_ms * 0.06)
        assert b.sent() == {ONE: {A: [0]}}
    b.answer()
    assert b.noted == ["a0"]


def test_more_than_fit_go_out_at_once_in_several_requests() -> None:
    b = Bench({A: MAX_ASSIGNMENTS_PER_REQUEST + 1})
    for index in range(MAX_ASSIGNMENTS_PER_REQUEST + 1):
        b.assign(A, index)
    b.run(0)
    assert len(b.sent()[ONE][A]) == MAX_ASSIGNMENTS_PER_REQUEST
    b.answer()
    b.run()
    assert b.sent() == {ONE: {A: [MAX_ASSIGNMENTS_PER_REQUEST]}}


def test_a_callback_that_fails_does_not_keep_the_others_from_theirs() -> None:
    b = Bench()
    b.manager.on_assignment(TopicIdPartition(A, None, 0), ONE, "a test", lambda: 1 / 0)
    b.assign(A, 1)
    b.run()
    b.answer()
    assert b.noted == ["a1"]


def test_what_waits_is_a_metric_until_the_manager_is_closed() -> None:
    b = Bench()
    b.assign(A, 0)
    [(name, gauge)] = b.registry.metrics.items()
    assert str(name) == "org.apache.kafka.server:type=AssignmentsManager,name=QueuedReplicaToDirAssignments"
    assert getattr(gauge, "value")() == 1  # noqa: B009 - one kind of metric of several
    b.manager.close()
    b.manager.close()
    assert not b.registry.metrics
    assert b.channel.shutdowns == 1
    b.assign(A, 1)
    b.run()
    assert not b.channel.sent


def test_the_thread_has_kafkas_name() -> None:
    b = Bench()
    manager = AssignmentsManager(ME, b.channel, lambda: b.image, lambda: 33, MetricsRegistry(b.clock), clock=b.clock)
    manager.on_assignment(TopicIdPartition(A, None, 0), ONE, "a test", lambda: None)
    names = {thread.name for thread in threading.enumerate()}
    manager.close()
    assert "broker-1-directory-assignments-manager-event-handler" in names


def test_directory_events_go_where_they_belong() -> None:
    b = Bench()
    failures: list[tuple[Uuid, int]] = []

    class Lifecycle:
        def propagate_directory_failure(self, directory: Uuid, timeout_ms: int) -> None:
            failures.append((directory, timeout_ms))

    lifecycle: Any = Lifecycle()
    events = DirectoryReports(b.manager, lifecycle, 30_000)
    events.handle_assignment(TopicIdPartition(A, None, 0), TWO, "a test", lambda: b.noted.append("yes"))
    b.run()
    b.answer()
    assert b.noted == ["yes"]
    events.handle_failure(ONE)
    assert failures == [(ONE, 30_000)]
