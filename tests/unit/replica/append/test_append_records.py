"""Appending for producers: what is answered when, and with what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.common.errors import Errors, IneligibleReplicaError
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.log_append_info import RecordError
from barnabas.metrics.names import MBeanName
from barnabas.metrics.yammer.meter import Meter
from barnabas.replica.broker_topic_stats import (
    BYTES_IN,
    BYTES_REJECTED,
    FAILED_PRODUCE_REQUESTS,
    MESSAGES_IN,
    TOTAL_PRODUCE_REQUESTS,
)
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from log_fixtures import NOW, all_records, client_batch, values
from replica_fixtures import T0_ID, TOPIC_ID, ReplicaBox
from unit.metadata.samples import topic, uid


@pytest.fixture
def box(tmp_path: Path) -> Iterator[ReplicaBox]:
    box = ReplicaBox([tmp_path / "one"])
    yield box
    box.kill()


def expirations(box: ReplicaBox, **tags: str) -> int:
    meter = box.registry.get(MBeanName("kafka.server", "DelayedProduceMetrics", "ExpiresPerSec", tags or None))
    assert meter is None or isinstance(meter, Meter)
    return 0 if meter is None else meter.count


class TestAlone:
    """No followers: the leader's append is all there is."""

    @pytest.mark.mechanism("R06")
    @pytest.mark.parametrize("acks", [0, 1, -1])
    def test_gets_a_response_at_once(self, box: ReplicaBox, acks: int) -> None:
        partition = box.create_topic()
        box.produce({T0_ID: client_batch([b"a", b"b"])}, acks=acks, drain=False)
        result = box.only_produced()
        assert (result.error, result.base_offset, result.last_offset, result.log_start_offset) == (Errors.NONE, 0, 1, 0)
        assert result.log_append_time == -1
        log = partition.local_log_or_raise()
        assert (log.high_watermark, log.log_end_offset) == (2, 2)
        assert values(all_records(log)) == [b"a", b"b"]

    @pytest.mark.mechanism("R06")
    def test_acks_all_touches_neither_purgatory_nor_timer(
        self, box: ReplicaBox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        box.create_topic()
        monkeypatch.setattr(box.manager.delayed.produce, "try_complete_else_watch", None)
        box.produce()
        assert box.only_produced().error is Errors.NONE
        assert [timer.size() for timer in box.timers] == [0, 0, 0]

    def test_min_insync_replicas_cannot_ask_for_more_than_there_are(self, box: ReplicaBox) -> None:
        box.overrides["topic"] = {"min.insync.replicas": "2"}
        box.create_topic()
        box.produce()
        assert box.only_produced().error is Errors.NONE

    def test_append_time(self, box: ReplicaBox) -> None:
        box.overrides["topic"] = {"message.timestamp.type": "LogAppendTime"}
        box.create_topic()
        box.produce()
        assert box.only_produced().log_append_time == NOW

    def test_the_leader_epoch_goes_into_the_batch(self, box: ReplicaBox) -> None:
        partition = box.create_topic(leader_epoch=5)
        box.produce()
        assert partition.local_log_or_raise().leader_epochs.latest_epoch == 5

    def test_a_duplicate_gets_its_first_offset(self, box: ReplicaBox) -> None:
        box.create_topic()
        for _ in range(2):
            box.produce({T0_ID: client_batch([b"a"], producer_id=9, epoch=0, sequence=0)})
        assert [answer[T0_ID].base_offset for answer in box.answers.produced] == [0, 0]

    def test_nothing_to_append(self, box: ReplicaBox) -> None:
        box.produce({})
        assert box.answers.produced == [{}]


class TestRefused:
    @pytest.mark.parametrize("acks", [2, -2])
    def test_acks_that_there_are_not(self, box: ReplicaBox, acks: int) -> None:
        partition = box.create_topic()
        box.produce(acks=acks)
        assert box.only_produced() == (Errors.INVALID_REQUIRED_ACKS, -1, -1, -1, (), None, -1)
        assert partition.local_log_or_raise().log_end_offset == 0

    def test_unknown_partition(self, box: ReplicaBox) -> None:
        box.create_topic()
        box.produce({TopicIdPartition(TOPIC_ID, "topic", 1): client_batch()})
        assert box.only_produced().error is Errors.UNKNOWN_TOPIC_OR_PARTITION

    def test_a_partition_of_other_brokers(self, box: ReplicaBox) -> None:
        box.learn(topic("elsewhere", uid(8), replicas=[2]))
        box.produce({TopicIdPartition(uid(8), "elsewhere", 0): client_batch()})
        assert box.only_produced().error is Errors.NOT_LEADER_OR_FOLLOWER

    def test_a_partition_that_another_broker_leads(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[2, 1])
        box.produce()
        assert box.only_produced().error is Errors.NOT_LEADER_OR_FOLLOWER

    def test_another_topic_of_that_name(self, box: ReplicaBox) -> None:
        box.create_topic()
        box.produce({TopicIdPartition(uid(9), "topic", 0): client_batch()})
        assert box.only_produced().error is Errors.UNKNOWN_TOPIC_ID

    def test_internal_topics_are_not_for_clients(self, box: ReplicaBox) -> None:
        box.create_topic("__consumer_offsets", uid(8))
        entries = {TopicIdPartition(uid(8), "__consumer_offsets", 0): client_batch([(b"k", b"v")])}
        box.produce(entries)
        assert box.only_produced().error is Errors.INVALID_TOPIC_EXCEPTION
        box.answers.produced.clear()
        box.produce(entries, internal_topics_allowed=True, origin=AppendOrigin.COORDINATOR)
        assert box.only_produced().error is Errors.NONE

    def test_one_partition_does_not_spoil_the_others(self, box: ReplicaBox) -> None:
        box.create_topic(partitions=3)
        entries = {TopicIdPartition(TOPIC_ID, "topic", number): client_batch() for number in range(3)}
        entries[TopicIdPartition(TOPIC_ID, "topic", 1)][30] ^= 1
        box.produce(entries)
        (answer,) = box.answers.produced
        assert list(answer) == list(entries)
        assert [result.error for result in answer.values()] == [Errors.NONE, Errors.CORRUPT_MESSAGE, Errors.NONE]

    @pytest.mark.parametrize("acks", [1, -1])
    def test_each_partition_has_its_own_sequence(self, box: ReplicaBox, acks: int) -> None:
        box.create_topic(partitions=5)
        partitions = [TopicIdPartition(TOPIC_ID, "topic", number) for number in range(5)]

        def send(*steps: tuple[int, int]) -> list[tuple[Errors, int]]:
            """Epoch and first sequence number for each partition."""
            batches = [client_batch([b"a", b"b"], producer_id=7, epoch=epoch, sequence=at) for epoch, at in steps]
            box.answers.produced.clear()
            box.produce(dict(zip(partitions, batches, strict=True)), acks=acks)
            return [(result.error, result.base_offset) for result in box.answers.produced[0].values()]

        for number in range(3):
            assert send(*[(1, 2 * number)] * 5) == [(Errors.NONE, 2 * number)] * 5
        # The next one, the last one again, an earlier one again, a gap, an old epoch.
        assert send((1, 6), (1, 4), (1, 0), (1, 8), (0, 6)) == [
            (Errors.NONE, 6),
            (Errors.NONE, 4),
            (Errors.NONE, 0),
            (Errors.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
            (Errors.INVALID_PRODUCER_EPOCH, -1),
        ]
        hosted = [box.manager.get_partition_or_exception(("topic", number)) for number in range(5)]
        assert [partition.local_log_or_raise().log_end_offset for partition in hosted] == [8, 6, 6, 6, 6]

    def test_records_that_are_singled_out(self, box: ReplicaBox) -> None:
        box.overrides["topic"] = {"cleanup.policy": "compact"}
        box.create_topic()
        box.produce({T0_ID: client_batch([(b"key", b"a"), b"b"])})
        result = box.only_produced()
        assert result.error is Errors.INVALID_RECORD
        assert result.log_start_offset == 0
        assert [error.batch_index for error in result.record_errors] == [1]
        assert isinstance(result.record_errors[0], RecordError)
        assert result.error_message

    def test_timestamps_that_the_topic_does_not_take(self, box: ReplicaBox) -> None:
        box.overrides["topic"] = {"message.timestamp.after.max.ms": "1000"}
        box.create_topic()
        box.produce({T0_ID: client_batch(timestamp=NOW + 5000)})
        result = box.only_produced()
        assert (result.error, result.log_start_offset) == (Errors.INVALID_TIMESTAMP, 0)
        assert result.error_message

    def test_an_error_that_nobody_expected(
        self, box: ReplicaBox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        partition = box.create_topic()

        def fail(*_: object, **__: object) -> None:
            raise ZeroDivisionError("oops")

        monkeypatch.setattr(partition.local_log_or_raise(), "append_as_leader", fail)
        box.produce()
        result = box.only_produced()
        assert (result.error, result.base_offset, result.error_message) == (Errors.UNKNOWN_SERVER_ERROR, -1, None)
        assert "oops" in caplog.text
        assert box.manager.stats.all_topics[FAILED_PRODUCE_REQUESTS].count == 1


class TestMetrics:
    def test_what_comes_in_is_counted(self, box: ReplicaBox) -> None:
        box.create_topic()
        batch = client_batch([b"a", b"b", b"c"])
        box.produce({T0_ID: batch})
        box.produce({TopicIdPartition(TOPIC_ID, "topic", 7): batch})
        counts = {name: meter.count for name, meter in box.manager.stats.all_topics.items()}
        assert (counts[MESSAGES_IN], counts[BYTES_IN], counts[TOTAL_PRODUCE_REQUESTS]) == (3, len(batch), 2)
        assert counts[FAILED_PRODUCE_REQUESTS] == 0

    def test_each_topic_of_a_request_is_counted(self, box: ReplicaBox) -> None:
        box.create_topic(partitions=3)
        box.create_topic("other", uid(8), partitions=2)
        numbers = [("topic", TOPIC_ID, 0), ("topic", TOPIC_ID, 2), ("other", uid(8), 1), ("topic", TOPIC_ID, 1)]
        entries = {
            TopicIdPartition(topic_id, name, number): client_batch([b"x"] * (count + 1))
            for count, (name, topic_id, number) in enumerate(numbers)
        }
        sizes = [len(batch) for batch in entries.values()]
        box.produce(entries)
        assert [result.error for result in box.answers.produced[0].values()] == [Errors.NONE] * 4

        def count(name: str, of: str | None = None) -> int:
            tags = None if of is None else {"topic": of}
            meter = box.registry.get(MBeanName("kafka.server", "BrokerTopicMetrics", name, tags))
            assert isinstance(meter, Meter)
            return meter.count

        box.manager.stats.all_topics[MESSAGES_IN].count  # noqa: B018 - has what was counted handed over
        assert [count(name, "topic") for name in (MESSAGES_IN, TOTAL_PRODUCE_REQUESTS)] == [7, 3]
        assert [count(name, "other") for name in (MESSAGES_IN, TOTAL_PRODUCE_REQUESTS)] == [3, 1]
        assert [count(name) for name in (MESSAGES_IN, TOTAL_PRODUCE_REQUESTS)] == [10, 4]
        assert (count(BYTES_IN), count(BYTES_IN, "other")) == (sum(sizes), sizes[2])

    def test_what_is_too_large_is_rejected(self, box: ReplicaBox) -> None:
        box.overrides["topic"] = {"max.message.bytes": "100"}
        box.create_topic()
        batch = client_batch([bytes(200)])
        box.produce({T0_ID: batch})
        assert box.only_produced().error is Errors.MESSAGE_TOO_LARGE
        assert box.manager.stats.all_topics[BYTES_REJECTED].count == len(batch)
        assert box.manager.stats.all_topics[FAILED_PRODUCE_REQUESTS].count == 0


@pytest.mark.mechanism("R06")
class TestDelayedProduce:
    """With followers, acks=all waits for the high watermark."""

    def test_it_waits_with_a_timeout_for_a_response(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2])
        box.produce(timeout_ms=1000)
        assert box.answers.produced == []
        assert box.manager.delayed.produce.num_delayed() == 1
        box.pass_time(999)
        assert box.answers.produced == []
        box.pass_time(1)
        result = box.only_produced()
        # The offsets are told none the less: the records are there.
        assert (result.error, result.base_offset) == (Errors.REQUEST_TIMED_OUT, 0)
        assert expirations(box) == expirations(box, topic="topic", partition="0") == 1

    def test_acks_1_does_not_wait(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2])
        box.produce(acks=1)
        assert box.only_produced().error is Errors.NONE

    def test_c2_the_follower_has_it(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2])
        box.produce()
        box.follower_fetch(2, 0)
        assert box.answers.produced == []
        box.follower_fetch(2, 1)
        assert box.only_produced().error is Errors.NONE
        assert box.manager.delayed.produce.num_delayed() == 0
        assert expirations(box) == 0

    def test_all_partitions_are_waited_for(self, box: ReplicaBox) -> None:
        box.create_topic(partitions=2, replicas=[1, 2])
        other = TopicIdPartition(TOPIC_ID, "topic", 1)
        box.produce({T0_ID: client_batch(), other: client_batch()}, timeout_ms=1000)
        box.follower_fetch(2, 1)
        assert box.answers.produced == []
        box.pass_time(1000)
        (answer,) = box.answers.produced
        assert [result.error for result in answer.values()] == [Errors.NONE, Errors.REQUEST_TIMED_OUT]
        assert expirations(box) == expirations(box, topic="topic", partition="1") == 1

    def test_a_failed_partition_does_not_wait(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2])
        missing = TopicIdPartition(TOPIC_ID, "topic", 5)
        box.produce({missing: client_batch(), T0_ID: client_batch()})
        assert box.answers.produced == []
        box.follower_fetch(2, 1)
        (answer,) = box.answers.produced
        assert [result.error for result in answer.values()] == [Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.NONE]

    def test_a_the_partition_is_gone(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2])
        box.produce()
        box.delete_topic()
        assert box.only_produced().error is Errors.UNKNOWN_TOPIC_OR_PARTITION

    def test_b_another_broker_leads(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2])
        box.produce()
        box.change(leader=2)
        assert box.only_produced().error is Errors.NOT_LEADER_OR_FOLLOWER

    def test_c1_too_few_are_in_sync_after_the_append(self, box: ReplicaBox) -> None:
        """The high watermark has come far enough, and the ISR has shrunk before anybody looked."""
        box.overrides["topic"] = {"min.insync.replicas": "2"}
        partition = box.create_topic(replicas=[1, 2, 3])
        box.produce()
        # Both have it, which moves the high watermark; but those who wait are told by a shrunken ISR.
        log = partition.local_log_or_raise()
        log.watermarks.update_high_watermark(1)
        box.change(isr=[1])
        box.manager.delayed.check_and_complete_all(("topic", 0))
        result = box.only_produced()
        assert (result.error, result.base_offset) == (Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 0)

    def test_too_few_are_in_sync_before_the_append(self, box: ReplicaBox) -> None:
        box.overrides["topic"] = {"min.insync.replicas": "2"}
        partition = box.create_topic(replicas=[1, 2, 3], isr=[1])
        box.produce()
        result = box.only_produced()
        assert (result.error, result.base_offset, result.log_start_offset) == (Errors.NOT_ENOUGH_REPLICAS, -1, 0)
        assert partition.local_log_or_raise().log_end_offset == 0
        box.answers.produced.clear()
        box.produce(acks=1)  # which does not ask for it
        assert box.only_produced().error is Errors.NONE

    def test_a_smaller_isr_ends_the_wait(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2])
        box.produce(timeout_ms=100_000)
        box.clock.advance(30_001)
        box.manager.maybe_shrink_isrs()
        assert box.answers.produced == []
        box.alter_partition.accept()
        assert box.only_produced().error is Errors.NONE

    def test_a_refused_proposal_does_not(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2])
        box.produce(timeout_ms=100_000)
        box.clock.advance(30_001)
        box.manager.maybe_shrink_isrs()
        box.alter_partition.refuse(IneligibleReplicaError())
        assert box.answers.produced == []
