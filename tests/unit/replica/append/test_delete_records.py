"""Deleting records up to an offset, on all replicas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.common.errors import Errors
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.names import MBeanName
from barnabas.metrics.yammer.meter import Meter
from barnabas.replica.results import DeleteRecordsResult
from replica_fixtures import T0, ReplicaBox
from unit.metadata.samples import broker, uid


@pytest.fixture
def box(tmp_path: Path) -> Iterator[ReplicaBox]:
    box = ReplicaBox([tmp_path / "one"])
    yield box
    box.kill()


def delete(box: ReplicaBox, offset: int, partition: TopicPartition = T0, timeout_ms: int = 1000) -> None:
    box.manager.delete_records(timeout_ms, {partition: offset}, box.answers.deleted.append)


def only_deleted(box: ReplicaBox) -> DeleteRecordsResult:
    (answer,) = box.answers.deleted
    (result,) = answer.values()
    return result


class TestAlone:
    @pytest.mark.parametrize(("offset", "low"), [(2, 2), (0, 0), (-1, 3), (3, 3)])
    def test_at_once(self, box: ReplicaBox, offset: int, low: int) -> None:
        partition = box.create_topic()
        for _ in range(3):
            box.produce()
        delete(box, offset)
        assert only_deleted(box) == (Errors.NONE, low)
        assert partition.log_start_offset == low

    def test_not_backwards(self, box: ReplicaBox) -> None:
        box.create_topic()
        for _ in range(3):
            box.produce()
        delete(box, 2)
        delete(box, 1)
        assert box.answers.deleted[1][T0] == (Errors.NONE, 2)

    @pytest.mark.parametrize("offset", [1, -2])
    def test_out_of_range(self, box: ReplicaBox, offset: int) -> None:
        box.create_topic()
        delete(box, offset)
        assert only_deleted(box) == (Errors.OFFSET_OUT_OF_RANGE, -1)

    def test_not_from_compacted_topics(self, box: ReplicaBox) -> None:
        box.overrides["topic"] = {"cleanup.policy": "compact"}
        box.create_topic()
        delete(box, 0)
        assert only_deleted(box).error is Errors.POLICY_VIOLATION

    def test_not_from_internal_topics(self, box: ReplicaBox) -> None:
        box.create_topic("__consumer_offsets", uid(8))
        partition = TopicPartition("__consumer_offsets", 0)
        delete(box, 0, partition)
        assert only_deleted(box).error is Errors.INVALID_TOPIC_EXCEPTION
        box.manager.delete_records(1, {partition: 0}, box.answers.deleted.append, internal_topics_allowed=True)
        assert box.answers.deleted[1][partition].error is Errors.NONE

    def test_unknown_and_led_elsewhere(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[2, 1])
        delete(box, 0, TopicPartition("topic", 5))
        delete(box, 0)
        errors = [next(iter(answer.values())).error for answer in box.answers.deleted]
        assert errors == [Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.NOT_LEADER_OR_FOLLOWER]


class TestWithFollowers:
    @pytest.fixture
    def waiting(self, box: ReplicaBox) -> ReplicaBox:
        box.create_topic(replicas=[1, 2])
        for _ in range(3):
            box.produce(acks=1)
        box.follower_fetch(2, 3)
        delete(box, 2)
        assert box.answers.deleted == []
        return box

    def test_waits_until_they_have(self, waiting: ReplicaBox) -> None:
        waiting.follower_fetch(2, 3, log_start_offset=1)
        assert waiting.answers.deleted == []
        waiting.follower_fetch(2, 3, log_start_offset=2)
        assert only_deleted(waiting) == (Errors.NONE, 2)

    def test_times_out(self, waiting: ReplicaBox) -> None:
        waiting.pass_time(1000)
        assert only_deleted(waiting) == (Errors.REQUEST_TIMED_OUT, 0)
        meter = waiting.registry.get(MBeanName("kafka.server", "DelayedDeleteRecordsMetrics", "ExpiresPerSec"))
        assert isinstance(meter, Meter)
        assert meter.count == 1

    def test_another_broker_leads(self, waiting: ReplicaBox) -> None:
        waiting.change(leader=2)
        assert only_deleted(waiting) == (Errors.NOT_LEADER_OR_FOLLOWER, -1)

    def test_the_topic_goes(self, waiting: ReplicaBox) -> None:
        waiting.delete_topic()
        assert only_deleted(waiting).error is Errors.UNKNOWN_TOPIC_OR_PARTITION

    def test_a_dead_follower_is_not_waited_for(self, box: ReplicaBox) -> None:
        box.learn([broker(2, fenced=True)])
        box.create_topic(replicas=[1, 2], isr=[1])
        box.produce(acks=1)
        delete(box, 1)
        assert only_deleted(box) == (Errors.NONE, 1)
