"""One partition: roles, epochs, in-sync replicas, watermarks, offsets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.common.errors import (
    ApiError,
    Errors,
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidUpdateVersionError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    OperationNotAttemptedError,
    UnknownLeaderEpochError,
    UnknownServerError,
)
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.offset_lookup import SpecialTimestamp
from barnabas.log.unified_log import UnifiedLog
from barnabas.metadata.partition_registration import LeaderRecoveryState, PartitionRegistration
from barnabas.replica.partition.alter_partition import LeaderAndIsr
from barnabas.replica.partition.partition import Partition
from barnabas.replica.partition.partition_context import PartitionListener
from barnabas.replica.results import IsolationLevel
from log_fixtures import NOW, client_batch
from replica_fixtures import T0, T0_ID, IsrMember, ReplicaBox
from unit.metadata.samples import broker, uid


@pytest.fixture
def box(tmp_path: Path) -> Iterator[ReplicaBox]:
    box = ReplicaBox([tmp_path / "one"])
    yield box
    box.kill()


def registration(partition: Partition, **changes: object) -> PartitionRegistration:
    values: dict[str, object] = {
        "replicas": (1, 2),
        "directories": (uid(0), uid(0)),
        "isr": (1, 2),
        "removing_replicas": (),
        "adding_replicas": (),
        "elr": (),
        "last_known_elr": (),
        "leader": 1,
        "leader_recovery_state": LeaderRecoveryState.RECOVERED,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.isr.partition_epoch + 1,
    }
    return PartitionRegistration(**{**values, **changes})  # type: ignore[arg-type]


def leads(partition: Partition) -> bool:
    return partition.is_leader


def log_of(partition: Partition) -> UnifiedLog:
    return partition.local_log_or_raise()


class TestRoles:
    def test_a_leader_begins_its_epoch_in_the_log(self, box: ReplicaBox) -> None:
        partition = box.create_topic(replicas=[1, 2], leader_epoch=4)
        assert leads(partition)
        assert (partition.leader_id, partition.leader_epoch) == (1, 4)
        assert log_of(partition).leader_epochs.latest_epoch == 4
        assert partition.role.leader_epoch_start_offset == 0
        box.produce(acks=1)
        box.change(leader=1)
        assert partition.leader_epoch == 5
        assert partition.role.leader_epoch_start_offset == 1
        assert log_of(partition).end_offset_for_epoch(4) == (4, 1)

    def test_a_leader_becomes_a_follower_and_leads_again(self, box: ReplicaBox) -> None:
        partition = box.create_topic(replicas=[1, 2])
        box.change(leader=2)
        assert not leads(partition)
        assert (partition.leader_id, partition.leader_epoch) == (2, 1)
        assert partition.isr.followers == {}
        assert partition.isr.state.isr == frozenset()
        box.change(leader=1)
        assert leads(partition)
        assert partition.isr.state.isr == {1, 2}

    def test_what_is_older_is_ignored(self, box: ReplicaBox) -> None:
        partition = box.create_topic(replicas=[1, 2])
        newer = registration(partition, partition_epoch=9, isr=(1,))
        assert not partition.make_leader(newer, is_new=False)
        assert not partition.make_leader(registration(partition, partition_epoch=8), is_new=False)
        assert not partition.make_follower(registration(partition, partition_epoch=8, leader=2), is_new=False)
        assert leads(partition)
        assert partition.isr.state.isr == {1}
        assert partition.isr.partition_epoch == 9

    def test_the_same_leader_epoch_does_not_begin_anew(self, box: ReplicaBox) -> None:
        partition = box.create_topic(replicas=[1, 2])
        box.produce(acks=1)
        box.follower_fetch(2, 1)
        box.change(isr=[1])
        assert partition.role.leader_epoch_start_offset == 0
        replica = partition.isr.followers.get(2)
        assert replica is not None
        assert replica.state.log_end_offset == 1

    def test_followers_are_told_when_to_start_anew(self, box: ReplicaBox) -> None:
        partition = box.create_topic(replicas=[2, 1])
        assert not partition.make_follower(registration(partition, leader=2), is_new=False)
        later = registration(partition, leader=2, leader_epoch=partition.leader_epoch + 1)
        assert partition.make_follower(later, is_new=False)

    def test_who_is_added_and_removed(self, box: ReplicaBox) -> None:
        partition = box.create_topic(replicas=[1, 2])
        assert not partition.assignment.is_reassigning
        box.change(replicas=[1, 2, 3], adding_replicas=[3], removing_replicas=[2])
        assert partition.is_reassigning
        assert 3 in partition.assignment.adding_replicas
        assert [replica.broker_id for replica in partition.isr.followers.values()] == [2, 3]
        assert not partition.is_under_replicated

    def test_metrics(self, box: ReplicaBox) -> None:
        box.overrides["topic"] = {"min.insync.replicas": "2"}
        partition = box.create_topic(replicas=[1, 2, 3])
        assert (partition.is_under_replicated, partition.is_at_min_isr, partition.is_under_min_isr) == (False,) * 3
        box.change(isr=[1, 2])
        assert (partition.is_under_replicated, partition.is_at_min_isr, partition.is_under_min_isr) == (
            True,
            True,
            False,
        )
        box.change(isr=[1])
        assert (partition.is_under_replicated, partition.is_at_min_isr, partition.is_under_min_isr) == (
            True,
            False,
            True,
        )


class TestHighWatermark:
    def test_is_the_smallest_of_those_in_sync(self, box: ReplicaBox) -> None:
        partition = box.create_topic(replicas=[1, 2, 3])
        for _ in range(5):
            box.produce(acks=1)
        log = log_of(partition)
        box.follower_fetch(2, 4)
        assert log.high_watermark == 0
        box.follower_fetch(3, 2)
        assert log.high_watermark == 2
        box.follower_fetch(3, 5)
        assert log.high_watermark == 4

    def test_does_not_wait_for_one_that_is_not_in_sync(self, box: ReplicaBox) -> None:
        partition = box.create_topic(replicas=[1, 2, 3], isr=[1, 2])
        box.produce(acks=1)
        box.follower_fetch(2, 1)
        assert log_of(partition).high_watermark == 1

    def test_waits_for_one_that_keeps_up(self, box: ReplicaBox) -> None:
        """Or it could never get in: whenever it comes to where the high watermark was, that has moved on."""
        partition = box.create_topic(replicas=[1, 2], isr=[1])
        box.produce(acks=1)
        box.follower_fetch(2, 1)
        box.alter_partition.refuse(IneligibleReplicaError())
        box.produce(acks=1)
        assert partition.isr.state.isr == {1}
        assert log_of(partition).high_watermark == 1
        box.clock.advance(30_001)
        box.produce(acks=1)
        assert log_of(partition).high_watermark == 3

    def test_stands_still_with_too_few_in_sync(self, box: ReplicaBox) -> None:
        box.overrides["topic"] = {"min.insync.replicas": "2"}
        partition = box.create_topic(replicas=[1, 2], isr=[1])
        box.produce(acks=1)
        assert log_of(partition).high_watermark == 0

    def test_follows_a_shrunken_isr(self, box: ReplicaBox) -> None:
        partition = box.create_topic(replicas=[1, 2])
        box.produce(acks=1)
        assert log_of(partition).high_watermark == 0
        box.change(isr=[1])
        assert log_of(partition).high_watermark == 1

    def test_a_listener_hears_of_it(self, box: ReplicaBox) -> None:
        heard: list[tuple[TopicPartition, object]] = []

        class Listener(PartitionListener):
            def on_high_watermark_updated(self, partition: TopicPartition, offset: int) -> None:
                heard.append((partition, offset))

            def on_deleted(self, partition: TopicPartition) -> None:
                heard.append((partition, "deleted"))

        listener = Listener()
        assert not box.manager.maybe_add_listener(T0, listener)
        box.create_topic()
        assert box.manager.maybe_add_listener(T0, listener)
        box.produce()
        box.manager.remove_listener(T0, listener)
        box.produce()
        assert heard == [(T0, 1)]
        box.manager.maybe_add_listener(T0, listener)
        box.delete_topic()
        assert heard[1:] == [(T0, "deleted")]


class TestInSyncReplicas:
    def test_one_that_has_caught_up_gets_in(self, box: ReplicaBox) -> None:
        partition = box.create_topic(replicas=[1, 2], isr=[1], leader_epoch=3)
        box.produce(acks=1)
        box.follower_fetch(2, 0)
        assert box.alter_partition.submitted == []
        box.follower_fetch(2, 1)
        ((topic_id_partition, proposal, _),) = box.alter_partition.submitted
        assert topic_id_partition == T0_ID
        assert proposal == LeaderAndIsr(
            1, 3, LeaderRecoveryState.RECOVERED, (IsrMember(1, 101), IsrMember(2, 102)), partition.isr.partition_epoch
        )
        # Until the controller has spoken, it is not in the ISR, but the high watermark waits for it.
        assert partition.isr.state.isr == {1}
        assert partition.isr.state.maximal_isr == {1, 2}
        box.produce(acks=1)
        assert log_of(partition).high_watermark == 1
        box.alter_partition.accept()
        assert partition.isr.state.isr == {1, 2}
        assert partition.isr.partition_epoch == 1

    def test_not_before_it_has_come_to_the_leaders_epoch(self, box: ReplicaBox) -> None:
        partition = box.create_topic(replicas=[1, 2], isr=[1])
        for _ in range(3):
            box.produce(acks=1)
        box.change(leader=1)
        log_of(partition).watermarks.update_high_watermark(1)
        box.follower_fetch(2, 2)
        assert box.alter_partition.submitted == []
        box.follower_fetch(2, 3)
        assert box.alter_partition.last.isr == (1, 2)

    @pytest.mark.parametrize("problem", ["fenced", "shutting down", "another incarnation", "unknown"])
    def test_not_if_the_controller_would_refuse(self, box: ReplicaBox, problem: str) -> None:
        box.create_topic(replicas=[1, 2, 9], isr=[1])
        record = broker(2, fenced=problem == "fenced")
        record.in_controlled_shutdown = problem == "shutting down"
        if problem == "another incarnation":
            record.broker_epoch = 50
        box.learn([record])
        box.follower_fetch(9 if problem == "unknown" else 2, 0)
        assert box.alter_partition.submitted == []

    def test_an_old_follower_has_no_epoch(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2], isr=[1])
        box.follower_fetch(2, 0, epoch=-1)
        assert box.alter_partition.last.isr_with_broker_epochs == ((1, 101), (2, -1))

    def test_one_that_lags_is_left_out(self, box: ReplicaBox) -> None:
        partition = box.create_topic(replicas=[1, 2, 3])
        box.manager.startup()
        box.produce(acks=1)
        box.follower_fetch(2, 1)
        box.scheduler.advance(30_000)
        assert box.alter_partition.submitted == []
        box.follower_fetch(2, 1)
        box.scheduler.advance(15_000)
        assert box.alter_partition.last.isr == (1, 2)
        # The controller may say no: 3 still counts.
        assert partition.isr.state.maximal_isr == {1, 2, 3}
        assert log_of(partition).high_watermark == 0
        box.alter_partition.accept()
        assert partition.isr.state.isr == {1, 2}
        assert log_of(partition).high_watermark == 1

    def test_one_that_is_at_the_end_does_not_lag(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2])
        box.follower_fetch(2, 0)
        box.clock.advance(100_000)
        box.manager.maybe_shrink_isrs()
        assert box.alter_partition.submitted == []

    def test_one_that_is_always_a_fetch_behind_does_not_lag(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2])
        for number in range(10):
            box.produce(acks=1)
            box.follower_fetch(2, number)
            box.clock.advance(14_000)
            box.manager.maybe_shrink_isrs()
        assert box.alter_partition.submitted == []

    def test_one_proposal_at_a_time(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2, 3])
        box.produce(acks=1)
        box.clock.advance(30_001)
        for _ in range(2):
            box.manager.maybe_shrink_isrs()
        assert len(box.alter_partition.submitted) == 1

    @pytest.mark.parametrize("error", [IneligibleReplicaError(), OperationNotAttemptedError()])
    def test_a_refused_proposal_is_taken_back(self, box: ReplicaBox, error: ApiError) -> None:
        partition = box.create_topic(replicas=[1, 2], isr=[1])
        box.follower_fetch(2, 0)
        box.alter_partition.refuse(error)
        assert not partition.isr.state.is_in_flight
        assert partition.isr.state.maximal_isr == {1}
        box.follower_fetch(2, 0)
        assert len(box.alter_partition.submitted) == 2

    @pytest.mark.parametrize("error", [FencedLeaderEpochError(), InvalidUpdateVersionError()])
    def test_a_leader_with_an_old_picture_waits_for_metadata(self, box: ReplicaBox, error: ApiError) -> None:
        partition = box.create_topic(replicas=[1, 2], isr=[1])
        box.follower_fetch(2, 0)
        box.alter_partition.refuse(error)
        assert partition.isr.state.maximal_isr == {1, 2}
        box.follower_fetch(2, 0)
        assert len(box.alter_partition.submitted) == 1
        box.change(isr=[1, 2])
        assert not partition.isr.state.is_in_flight

    def test_other_errors_are_no_response(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2], isr=[1])
        box.follower_fetch(2, 0)
        box.alter_partition.refuse(UnknownServerError())
        first, second = box.alter_partition.submitted
        assert first[1] == second[1]

    def test_a_response_that_comes_after_the_metadata(self, box: ReplicaBox) -> None:
        partition = box.create_topic(replicas=[1, 2], isr=[1])
        box.follower_fetch(2, 0)
        box.change(leader=1)
        epoch = partition.isr.partition_epoch
        box.alter_partition.accept()
        assert partition.isr.partition_epoch == epoch
        assert partition.isr.state.isr == {1}

    def test_a_refusal_that_comes_after_the_metadata(self, box: ReplicaBox) -> None:
        partition = box.create_topic(replicas=[1, 2], isr=[1])
        box.follower_fetch(2, 0)
        box.change(isr=[1, 2])
        box.alter_partition.refuse(OperationNotAttemptedError())
        assert partition.isr.state.isr == {1, 2}


class TestOffsets:
    def offset(self, box: ReplicaBox, timestamp: int, isolation: IsolationLevel | None = None) -> tuple[int, int, int]:
        return box.manager.fetch_offset(T0, timestamp, isolation, None, True)

    def test_the_ends(self, box: ReplicaBox) -> None:
        partition = box.create_topic(replicas=[1, 2], leader_epoch=2)
        for _ in range(3):
            box.produce(acks=1)
        box.follower_fetch(2, 2)
        log_of(partition).delete_records(1)
        assert self.offset(box, SpecialTimestamp.LATEST) == (-1, 3, 2)
        assert self.offset(box, SpecialTimestamp.LATEST, IsolationLevel.READ_UNCOMMITTED) == (-1, 2, 2)
        assert self.offset(box, SpecialTimestamp.LATEST, IsolationLevel.READ_COMMITTED) == (-1, 2, 2)
        for name in (SpecialTimestamp.EARLIEST, SpecialTimestamp.EARLIEST_LOCAL):
            assert self.offset(box, name, IsolationLevel.READ_UNCOMMITTED) == (-1, 1, 2)

    def test_nothing_is_tiered(self, box: ReplicaBox) -> None:
        box.create_topic()
        box.produce()
        for name in (SpecialTimestamp.LATEST_TIERED, SpecialTimestamp.EARLIEST_PENDING_UPLOAD):
            assert self.offset(box, name, IsolationLevel.READ_UNCOMMITTED) == (-1, -1, -1)

    def test_times(self, box: ReplicaBox) -> None:
        box.create_topic()
        for timestamp in (NOW + 10, NOW + 30, NOW + 20):
            box.produce({T0_ID: client_batch(timestamp=timestamp)})
        level = IsolationLevel.READ_UNCOMMITTED
        assert self.offset(box, NOW + 11, level) == (NOW + 30, 1, 0)
        assert self.offset(box, NOW + 31, level) == (-1, -1, -1)
        assert self.offset(box, SpecialTimestamp.MAX_TIMESTAMP, level) == (NOW + 30, 1, 0)

    def test_times_behind_the_high_watermark_are_not_seen(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2])
        box.produce(acks=1)
        assert self.offset(box, NOW, IsolationLevel.READ_UNCOMMITTED) == (-1, -1, -1)
        assert self.offset(box, NOW) == (NOW, 0, 0)

    def test_a_new_leader_does_not_go_backwards(self, box: ReplicaBox) -> None:
        partition = box.create_topic(replicas=[1, 2])
        box.produce(acks=1)
        box.change(leader=1)
        for timestamp in (SpecialTimestamp.LATEST, SpecialTimestamp.MAX_TIMESTAMP, NOW):
            with pytest.raises(OffsetNotAvailableError):
                self.offset(box, timestamp, IsolationLevel.READ_UNCOMMITTED)
        assert self.offset(box, SpecialTimestamp.LATEST) == (-1, 1, 1)
        assert self.offset(box, SpecialTimestamp.EARLIEST, IsolationLevel.READ_UNCOMMITTED) == (-1, 0, 0)
        box.follower_fetch(2, 1)
        assert log_of(partition).high_watermark == 1
        assert self.offset(box, SpecialTimestamp.LATEST, IsolationLevel.READ_UNCOMMITTED) == (-1, 1, 1)

    def test_epochs_and_roles_are_checked(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2], leader_epoch=5)
        for epoch, error in ((4, FencedLeaderEpochError), (6, UnknownLeaderEpochError), (-2, FencedLeaderEpochError)):
            with pytest.raises(error):
                box.manager.fetch_offset(T0, -1, None, epoch, True)
        box.change(leader=2)
        with pytest.raises(NotLeaderOrFollowerError):
            box.manager.fetch_offset(T0, -1, None, None, True)
        assert box.manager.fetch_offset(T0, -1, None, None, False).offset == 0

    def test_ends_of_leader_epochs(self, box: ReplicaBox) -> None:
        box.create_topic(leader_epoch=2)
        box.produce()
        box.change(leader=1)
        box.produce()
        find = box.manager.last_offset_for_leader_epoch
        assert find(T0, None, 2) == (Errors.NONE, 2, 1)
        assert find(T0, 3, 3) == (Errors.NONE, 3, 2)
        assert find(T0, None, 9) == (Errors.NONE, -1, -1)
        assert find(T0, 2, 2).error is Errors.FENCED_LEADER_EPOCH
        assert find(T0, 4, 2).error is Errors.UNKNOWN_LEADER_EPOCH
        assert find(T0, -2, 2).error is Errors.FENCED_LEADER_EPOCH, "only -1 is no epoch"
        assert find(TopicPartition("topic", 9), None, 2).error is Errors.UNKNOWN_TOPIC_OR_PARTITION

    def test_the_epoch_of_a_leader_that_has_written_nothing(self, box: ReplicaBox) -> None:
        """Without followers it is not in the log yet, which nobody is to notice."""
        partition = box.create_topic(leader_epoch=2)
        find = box.manager.last_offset_for_leader_epoch
        assert find(T0, None, 2) == (Errors.NONE, 2, 0)
        assert find(T0, None, 1) == (Errors.NONE, 1, 0)
        assert find(T0, None, 3) == (Errors.NONE, -1, -1)
        assert find(T0, None, -1) == (Errors.NONE, -1, -1)
        assert find(T0, None, -2) == (Errors.NONE, -2, 0), "an epoch below all, as in a log with records"
        assert self.offset(box, SpecialTimestamp.EARLIEST) == (-1, 0, 2)
        assert log_of(partition).leader_epochs.latest_epoch is None
        box.produce()
        assert log_of(partition).leader_epochs.latest_epoch == 2
        for _ in range(3):
            box.change(leader=1)
        assert find(T0, None, 5) == (Errors.NONE, 5, 1)
        assert find(T0, None, 4) == (Errors.NONE, 2, 1)
        assert log_of(partition).leader_epochs.latest_epoch == 2
        box.change(replicas=[1, 2], adding_replicas=[2])
        assert log_of(partition).leader_epochs.latest_epoch == 5
        assert find(T0, None, 5) == (Errors.NONE, 5, 1)
        assert find(T0, None, 4) == (Errors.NONE, 2, 1)

    def test_active_producers(self, box: ReplicaBox) -> None:
        box.create_topic()
        box.produce({T0_ID: client_batch([b"a"], producer_id=9, epoch=1, sequence=0)})
        state = box.manager.active_producer_state(T0)
        assert state.error_code == 0
        (producer,) = state.active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (9, 1, 0)
        assert producer.current_txn_start_offset == -1
        missing = box.manager.active_producer_state(TopicPartition("topic", 4))
        assert (missing.partition_index, missing.error_code) == (4, Errors.UNKNOWN_TOPIC_OR_PARTITION)
