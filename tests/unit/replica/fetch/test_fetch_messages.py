"""Reading for consumers and followers: limits, waiting, and the eight ways in which a wait ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.common.errors import Errors
from barnabas.common.identifiers import ZERO_UUID
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.fetch_data_info import FetchDataInfo
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.metrics.names import MBeanName
from barnabas.metrics.yammer.meter import Meter
from barnabas.records.control import ControlRecordType
from barnabas.replica.broker_topic_stats import FAILED_FETCH_REQUESTS, TOTAL_FETCH_REQUESTS
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.results import FetchParams, FetchPartitionData
from log_fixtures import client_batch, fetched_bytes, marker
from replica_fixtures import T0, T0_ID, TOPIC_ID, HeldBackQuota, ReplicaBox, consumer, follower
from unit.metadata.samples import broker, topic, uid

OTHER_ID = TopicIdPartition(TOPIC_ID, "topic", 1)
ONE_BATCH = len(client_batch())


@pytest.fixture
def box(tmp_path: Path) -> Iterator[ReplicaBox]:
    box = ReplicaBox([tmp_path / "one"])
    yield box
    box.kill()


def expirations(box: ReplicaBox, kind: str) -> int:
    meter = box.registry.get(MBeanName("kafka.server", "DelayedFetchMetrics", "ExpiresPerSec", {"fetcherType": kind}))
    assert isinstance(meter, Meter)
    return meter.count


def sizes(box: ReplicaBox) -> list[int]:
    (answer,) = box.answers.fetched
    return [len(data.records) for _, data in answer]


def content(data: FetchPartitionData) -> bytes:
    return fetched_bytes(FetchDataInfo(LogOffsetMetadata(0), data.records))


class TestAtOnce:
    def test_what_there_is(self, box: ReplicaBox) -> None:
        box.create_topic()
        box.produce({T0_ID: client_batch([b"hello"])})
        box.fetch()
        data = box.only_fetched()
        assert (data.error, data.high_watermark, data.log_start_offset, data.last_stable_offset) == (0, 1, 0, 1)
        assert b"hello" in content(data)
        assert data.aborted_transactions is None
        assert data.diverging_epoch is None
        assert data.preferred_read_replica == -1

    def test_no_wait_wanted(self, box: ReplicaBox) -> None:
        box.create_topic()
        box.fetch(params=consumer(max_wait_ms=0))
        data = box.only_fetched()
        assert (data.error, data.high_watermark, data.records) == (0, 0, b"")

    def test_no_bytes_wanted(self, box: ReplicaBox) -> None:
        box.create_topic()
        box.fetch(params=consumer(min_bytes=0))
        assert box.only_fetched().records == b""

    def test_no_partitions(self, box: ReplicaBox) -> None:
        box.fetch({})
        assert box.answers.fetched == [[]]

    def test_an_error_in_one_partition_is_told_at_once(self, box: ReplicaBox) -> None:
        box.create_topic()
        missing = TopicIdPartition(TOPIC_ID, "topic", 9)
        box.fetch({T0_ID: 0, missing: 0})
        (answer,) = box.answers.fetched
        assert [(name, data.error) for name, data in answer] == [
            (T0_ID, Errors.NONE),
            (missing, Errors.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert answer[1][1].high_watermark == answer[1][1].log_start_offset == answer[1][1].last_stable_offset == -1

    @pytest.mark.parametrize("offset", [-5, 2])
    def test_offset_out_of_range(self, box: ReplicaBox, offset: int) -> None:
        box.create_topic()
        box.produce()
        box.fetch({T0_ID: offset})
        assert box.only_fetched().error is Errors.OFFSET_OUT_OF_RANGE

    @pytest.mark.parametrize(("epoch", "error"), [(4, Errors.FENCED_LEADER_EPOCH), (6, Errors.UNKNOWN_LEADER_EPOCH)])
    def test_leader_epochs(self, box: ReplicaBox, epoch: int, error: Errors) -> None:
        box.create_topic(leader_epoch=5)
        box.fetch(current_leader_epoch=epoch)
        assert box.only_fetched().error is error

    def test_the_right_leader_epoch(self, box: ReplicaBox) -> None:
        box.create_topic(leader_epoch=5)
        box.produce()
        box.fetch(current_leader_epoch=5)
        assert box.only_fetched().error is Errors.NONE

    def test_another_topic_of_that_name(self, box: ReplicaBox) -> None:
        box.create_topic()
        box.fetch({TopicIdPartition(uid(9), "topic", 0): 0})
        assert box.only_fetched().error is Errors.INCONSISTENT_TOPIC_ID

    def test_a_request_without_topic_ids(self, box: ReplicaBox) -> None:
        box.create_topic()
        box.produce()
        box.fetch({TopicIdPartition(ZERO_UUID, "topic", 0): 0})
        assert box.only_fetched().error is Errors.NONE

    def test_a_partition_that_another_broker_leads(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[2, 1])
        box.fetch()
        assert box.only_fetched().error is Errors.NOT_LEADER_OR_FOLLOWER

    def test_a_follower_serves_consumers_that_know_of_replicas(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[2, 1])
        box.fetch(params=consumer(rack="r1", max_wait_ms=0))
        assert box.only_fetched().error is Errors.NONE

    def test_a_partition_of_other_brokers(self, box: ReplicaBox) -> None:
        box.learn(topic("elsewhere", uid(8), replicas=[2]))
        box.fetch({TopicIdPartition(uid(8), "elsewhere", 0): 0})
        assert box.only_fetched().error is Errors.NOT_LEADER_OR_FOLLOWER

    def test_an_error_that_nobody_expected(
        self, box: ReplicaBox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        partition = box.create_topic()
        box.produce({T0_ID: client_batch()})

        def fail(*_: object) -> None:
            raise ZeroDivisionError("oops")

        monkeypatch.setattr(partition.local_log_or_raise(), "read", fail)
        box.fetch()
        assert box.only_fetched().error is Errors.UNKNOWN_SERVER_ERROR
        assert "oops" in caplog.text
        assert box.manager.stats.all_topics[FAILED_FETCH_REQUESTS].count == 1

    def test_requests_are_counted_by_partition(self, box: ReplicaBox) -> None:
        box.create_topic(partitions=2)
        box.fetch({T0_ID: 0, OTHER_ID: 0}, params=consumer(max_wait_ms=0))
        assert box.manager.stats.all_topics[TOTAL_FETCH_REQUESTS].count == 2


@pytest.mark.mechanism("R07")
class TestLimits:
    def fill(self, box: ReplicaBox) -> None:
        box.create_topic(partitions=2)
        for _ in range(3):
            box.produce({T0_ID: client_batch(), OTHER_ID: client_batch()})

    def test_the_limit_of_a_partition(self, box: ReplicaBox) -> None:
        self.fill(box)
        box.fetch({T0_ID: 0, OTHER_ID: 0}, partition_max_bytes=2 * ONE_BATCH)
        assert sizes(box) == [2 * ONE_BATCH, 2 * ONE_BATCH]

    def test_the_limit_of_all(self, box: ReplicaBox) -> None:
        self.fill(box)
        box.fetch({T0_ID: 0, OTHER_ID: 0}, params=consumer(max_bytes=4 * ONE_BATCH))
        assert sizes(box) == [3 * ONE_BATCH, ONE_BATCH]

    def test_the_first_partition_with_data_gives_a_whole_batch(self, box: ReplicaBox) -> None:
        self.fill(box)
        box.fetch({T0_ID: 3, OTHER_ID: 0}, params=consumer(max_bytes=1), partition_max_bytes=1)
        assert sizes(box) == [0, ONE_BATCH]

    def test_the_others_do_not(self, box: ReplicaBox) -> None:
        self.fill(box)
        box.fetch({T0_ID: 0, OTHER_ID: 0}, params=consumer(max_bytes=1))
        assert sizes(box) == [ONE_BATCH, 0]

    def test_half_a_batch_is_not_sent(self, box: ReplicaBox) -> None:
        self.fill(box)
        box.fetch({T0_ID: 0, OTHER_ID: 0}, params=consumer(max_bytes=3 * ONE_BATCH + 5))
        assert sizes(box) == [3 * ONE_BATCH, 0]


@pytest.mark.mechanism("R07")
class TestWaiting:
    def test_until_the_time_is_over(self, box: ReplicaBox) -> None:
        box.create_topic()
        box.fetch(params=consumer(max_wait_ms=500))
        assert box.answers.fetched == []
        box.pass_time(499)
        assert box.answers.fetched == []
        box.pass_time(1)
        data = box.only_fetched()
        assert (data.error, data.records, data.high_watermark) == (0, b"", 0)
        assert (expirations(box, "consumer"), expirations(box, "follower")) == (1, 0)

    def test_g_until_there_is_enough(self, box: ReplicaBox) -> None:
        box.create_topic()
        box.fetch(params=consumer(min_bytes=2 * ONE_BATCH))
        box.produce()
        assert box.answers.fetched == []
        box.produce()
        assert sizes(box) == [2 * ONE_BATCH]
        assert box.manager.delayed.fetch.num_delayed() == 0
        assert expirations(box, "consumer") == 0

    def test_an_append_wakes_up_at_the_end_of_its_request(self, box: ReplicaBox) -> None:
        box.create_topic()
        box.fetch()
        box.produce(drain=False)
        assert box.answers.fetched == []
        box.manager.action_queue.try_complete_actions()
        assert sizes(box) == [ONE_BATCH]

    def test_g_all_partitions_together(self, box: ReplicaBox) -> None:
        box.create_topic(partitions=2)
        box.fetch({T0_ID: 0, OTHER_ID: 0}, params=consumer(min_bytes=2 * ONE_BATCH))
        box.produce()
        assert box.answers.fetched == []
        box.produce({OTHER_ID: client_batch()})
        assert sizes(box) == [ONE_BATCH, ONE_BATCH]

    def test_g_a_partition_counts_up_to_its_limit(self, box: ReplicaBox) -> None:
        box.create_topic()
        box.fetch(params=consumer(min_bytes=2 * ONE_BATCH), partition_max_bytes=ONE_BATCH)
        for _ in range(3):
            box.produce()
        assert box.answers.fetched == []

    def test_an_append_wakes_up_only_those_of_its_partition(self, box: ReplicaBox) -> None:
        box.create_topic(partitions=2)
        for _ in range(3):
            box.fetch({OTHER_ID: 0})
        box.fetch()
        box.produce()
        assert len(box.answers.fetched) == 1

    def test_consumers_wait_for_the_high_watermark(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2])
        box.fetch()
        box.produce(acks=1)
        assert box.answers.fetched == []
        box.follower_fetch(2, 1)
        (consumers, _) = box.answers.fetched
        assert len(consumers[0][1].records) == ONE_BATCH
        assert consumers[0][1].high_watermark == 1

    def test_followers_do_not(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2])
        box.fetch(params=follower(2))
        box.produce(acks=1)
        assert sizes(box) == [ONE_BATCH]
        assert box.only_fetched().high_watermark == 0

    def test_a_follower_that_waits_too_long(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2])
        box.fetch(params=follower(2))
        box.pass_time(500)
        assert (expirations(box, "consumer"), expirations(box, "follower")) == (0, 1)

    def test_read_committed_waits_for_the_end_of_the_transaction(self, box: ReplicaBox) -> None:
        partition = box.create_topic()
        committed = consumer(isolation_level=1)
        box.fetch(params=committed)
        batch = client_batch([b"a"], producer_id=9, epoch=0, sequence=0, transactional=True)
        log = partition.local_log_or_raise()
        guard = log.producers.maybe_start_transaction_verification(9, 0, 0, supports_epoch_bump=False)
        box.produce({T0_ID: batch}, verification_guards={T0: guard}, transaction_version=1)
        assert box.answers.produced[0][T0_ID].error is Errors.NONE
        assert box.answers.fetched == []
        box.fetch()  # a consumer that does not mind
        assert len(box.answers.fetched) == 1
        partition.append_records_to_leader(
            marker(ControlRecordType.ABORT, 9, 0), AppendOrigin.COORDINATOR, -1, transaction_version=1
        )
        box.manager.delayed.check_and_complete_all(T0)
        data = box.answers.fetched[1][0][1]
        assert data.last_stable_offset == 2
        assert data.aborted_transactions is not None
        assert [(one.producer_id, one.first_offset) for one in data.aborted_transactions] == [(9, 0)]

    def test_the_response_is_read_anew(self, box: ReplicaBox) -> None:
        box.create_topic()
        box.fetch()
        box.produce(drain=False)
        box.produce(drain=False)
        box.manager.action_queue.try_complete_actions()
        assert sizes(box) == [2 * ONE_BATCH]


@pytest.mark.mechanism("R07")
class TestEndsOfAWait:
    """Cases A to H of DelayedFetch; G is above."""

    def test_a_another_broker_leads(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2])
        box.fetch()
        box.change(leader=2)
        assert box.only_fetched().error is Errors.NOT_LEADER_OR_FOLLOWER

    def test_b_the_replica_is_gone_from_this_broker(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2])
        box.fetch()
        box.change(replicas=[2], isr=[2], leader=2)
        assert box.only_fetched().error is Errors.NOT_LEADER_OR_FOLLOWER

    def test_c_the_topic_is_gone(self, box: ReplicaBox) -> None:
        box.create_topic()
        box.fetch()
        box.delete_topic()
        assert box.only_fetched().error is Errors.UNKNOWN_TOPIC_OR_PARTITION

    def test_d_the_log_directory_has_failed(self, tmp_path: Path) -> None:
        box = ReplicaBox([tmp_path / "a", tmp_path / "b"])
        partition = box.create_topic()
        box.fetch()
        box.manager.handle_log_dir_failure(partition.local_log_or_raise().parent_dir)
        assert box.only_fetched().error is Errors.KAFKA_STORAGE_ERROR
        box.kill()

    def test_e_there_was_an_election(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2])
        box.fetch(current_leader_epoch=0)
        box.change(leader=1)
        box.manager.delayed.check_and_complete_all(T0)
        assert box.only_fetched().error is Errors.FENCED_LEADER_EPOCH

    def test_f_the_log_was_truncated(self, box: ReplicaBox) -> None:
        partition = box.create_topic(replicas=[1, 2])
        box.produce(acks=1)
        box.fetch({T0_ID: 1}, params=follower(2))
        partition.truncate_to(0)
        box.manager.delayed.check_and_complete_all(T0)
        assert box.only_fetched().error is Errors.OFFSET_OUT_OF_RANGE

    def test_f_the_offset_is_in_an_older_segment(self, box: ReplicaBox) -> None:
        partition = box.create_topic()
        box.produce()
        box.fetch({T0_ID: 1}, params=consumer(min_bytes=1 << 20))
        box.produce()
        assert box.answers.fetched == []
        partition.local_log_or_raise().roll()
        box.produce()
        assert sizes(box) == [ONE_BATCH]

    def test_f_not_if_nothing_has_come(self, box: ReplicaBox) -> None:
        """A roll moves the end to another segment, and there is still nothing to read."""
        partition = box.create_topic()
        box.produce()
        box.fetch({T0_ID: 1})
        partition.local_log_or_raise().roll()
        box.manager.delayed.check_and_complete_all(T0)
        assert box.answers.fetched == []

    def test_h_the_follower_has_to_truncate(self, box: ReplicaBox) -> None:
        partition = box.create_topic(replicas=[1, 2], leader_epoch=3)
        box.produce(acks=1)
        box.produce(acks=1)
        box.fetch({T0_ID: 2}, params=follower(2), last_fetched_epoch=3)
        assert box.answers.fetched == []
        log = partition.local_log_or_raise()
        log.truncate_to(1)
        log.append_as_leader(client_batch(), 4)  # the log ends where it did, so there is nothing to read
        box.manager.delayed.check_and_complete_all(T0)
        data = box.only_fetched()
        assert data.error is Errors.NONE
        assert data.diverging_epoch == (3, 1)
        assert data.records == b""

    def test_h_at_once(self, box: ReplicaBox) -> None:
        partition = box.create_topic(replicas=[1, 2], leader_epoch=3)
        box.produce(acks=1)
        box.fetch({T0_ID: 5}, params=follower(2), last_fetched_epoch=3)
        assert box.only_fetched().diverging_epoch == (3, 1)
        replica = partition.isr.followers.get(2)
        assert replica is not None
        assert replica.state.log_end_offset == -1  # it does not count as having it

    def test_h_an_epoch_that_nobody_knows(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2], leader_epoch=3)
        box.fetch({T0_ID: 0}, params=follower(2), last_fetched_epoch=7)
        assert box.only_fetched().error is Errors.OFFSET_OUT_OF_RANGE


class TestFollowers:
    def test_a_stranger_is_refused(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2])
        box.fetch(params=follower(3), current_leader_epoch=0)
        assert box.only_fetched().error is Errors.UNKNOWN_LEADER_EPOCH
        box.answers.fetched.clear()
        box.fetch(params=follower(3))
        assert box.only_fetched().error is Errors.NOT_LEADER_OR_FOLLOWER

    def test_an_earlier_incarnation_is_refused(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2])
        box.fetch(params=follower(2, epoch=7))
        assert box.only_fetched().error is Errors.NOT_LEADER_OR_FOLLOWER

    def test_a_follower_that_comes_with_a_reassignment(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2])
        box.change(replicas=[1, 2, 3], adding_replicas=[3])
        box.produce(acks=1)
        for number, expected in ((2, False), (3, True)):
            box.answers.fetched.clear()
            box.fetch(params=follower(number))
            assert box.only_fetched().is_reassignment_fetch is expected

    def test_the_fetch_that_waited_tells_no_news(self, box: ReplicaBox) -> None:
        """How far a follower is was noted when it came: reading again for it must not count as another fetch."""
        partition = box.create_topic(replicas=[1, 2])
        box.fetch(params=follower(2))
        replica = partition.isr.followers.get(2)
        assert replica is not None
        before = replica.state
        box.clock.advance(100)
        box.produce(acks=1)
        assert len(box.answers.fetched) == 1
        assert replica.state is before

    def test_a_follower_over_the_quota_gets_nothing(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2, 3], isr=[1, 2])
        box.produce(acks=1)
        box.fetch(params=follower(3), quota=HeldBackQuota())
        assert box.answers.fetched == []
        box.produce(acks=1)
        assert box.answers.fetched == []
        box.pass_time(500)
        assert sizes(box) == [0]

    def test_in_sync_it_is_not_held_back(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2])
        box.produce(acks=1)
        box.fetch(params=follower(2), quota=HeldBackQuota())
        assert sizes(box) == [ONE_BATCH]


class TestPreferredReadReplica:
    @pytest.fixture
    def box(self, tmp_path: Path) -> Iterator[ReplicaBox]:
        box = ReplicaBox(
            [tmp_path / "one"],
            {"replica_selector_class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"},
        )
        box.learn([broker(1, rack="r1"), broker(2, rack="r2"), broker(3, rack="r3")])
        box.create_topic(replicas=[1, 2, 3])
        box.produce(acks=1)
        box.follower_fetch(2, 1)
        box.follower_fetch(3, 0)
        box.answers.fetched.clear()
        yield box
        box.kill()

    @pytest.mark.parametrize(
        ("rack", "offset", "expected"), [("r2", 1, 2), ("r1", 1, -1), ("r9", 1, -1), ("r3", 1, -1)]
    )
    def test_the_one_in_the_rack_if_it_has_the_offset(
        self, box: ReplicaBox, rack: str, offset: int, expected: int
    ) -> None:
        box.fetch({T0_ID: offset}, params=consumer(rack=rack, max_wait_ms=0))
        data = box.only_fetched()
        assert (data.error, data.preferred_read_replica, data.records) == (0, expected, b"")

    def test_is_told_at_once(self, box: ReplicaBox) -> None:
        box.fetch({T0_ID: 1}, params=consumer(rack="r2", max_wait_ms=500))
        assert box.only_fetched().preferred_read_replica == 2

    def test_not_out_of_sync(self, box: ReplicaBox) -> None:
        box.change(isr=[1, 3])
        box.fetch({T0_ID: 1}, params=consumer(rack="r2", max_wait_ms=0))
        assert box.only_fetched().preferred_read_replica == -1

    def test_old_clients_read_from_the_leader(self, box: ReplicaBox) -> None:
        box.fetch({T0_ID: 0}, params=consumer(max_wait_ms=0))
        assert box.only_fetched().preferred_read_replica == -1


def test_params_say_who_may_respond() -> None:
    assert consumer().fetch_only_leader
    assert not consumer(rack="r").fetch_only_leader
    assert follower(2).fetch_only_leader
    debugging = FetchParams(-2, -1, 0, 0, 0, FetchParams.isolation_of(-2, 0))
    assert not debugging.fetch_only_leader
    assert not debugging.is_from_follower
