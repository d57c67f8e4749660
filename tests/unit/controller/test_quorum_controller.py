"""The controller as a whole: leadership, commits, rollback, deadlines, faults, the clock."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, cast

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.errors import (
    KafkaTimeoutError,
    NotControllerError,
    StaleBrokerEpochError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from barnabas.common.shutdownable_thread import FatalExitError
from barnabas.controller.bootstrap import BootstrapMetadata
from barnabas.controller.config import ControllerConfig, ControllerPlugins
from barnabas.controller.quorum_controller import QuorumController
from barnabas.controller.request_context import ControllerRequestContext
from barnabas.metadata.metadata_version import MetadataVersion
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry
from barnabas.protocol.internal.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    ZkMigrationStateRecord,
)
from barnabas.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.raft.client import ApiMessageAndVersion, OffsetAndEpoch
from local_raft_client import LocalRaftClient
from unit.controller.harness import CLUSTER_ID, CONTEXT, NODE, Harness, topic

OTHER_NODE = 2


def level(name: str, value: int) -> FeatureLevelRecord:
    return FeatureLevelRecord(name=name, feature_level=value)


# -- the first leadership


def test_an_empty_log_begins_with_the_bootstrap_records() -> None:
    harness = Harness()
    harness._mark = 0
    assert harness.written() == [
        BeginTransactionRecord(name="Bootstrap records"),
        level("metadata.version", 30),
        level("eligible.leader.replicas.version", 1),
        level("group.version", 1),
        level("transaction.version", 2),
        ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1"),
        EndTransactionRecord(),
    ]
    assert harness.active()
    assert harness.controller.claim_epoch == 1


def test_a_metadata_version_without_transactions_is_bootstrapped_in_one_batch() -> None:
    bootstrap = BootstrapMetadata.for_version(MetadataVersion.IBP_3_5_IV2, "a test")
    harness = Harness(bootstrap=bootstrap)
    harness._mark = 0
    assert harness.written() == [level("metadata.version", 11)]


def test_levels_can_be_chosen_and_records_added_at_bootstrap() -> None:
    extra = ApiMessageAndVersion(NoOpRecord(), 0)
    bootstrap = BootstrapMetadata.for_version(
        levels={"group.version": 0, "eligible.leader.replicas.version": 0}, extra=[extra]
    )
    assert [record.message for record in bootstrap.records] == [
        level("metadata.version", 30),
        level("transaction.version", 2),
        NoOpRecord(),
    ]
    with pytest.raises(ValueError, match=r"must set metadata\.version"):
        BootstrapMetadata((extra,), "nowhere")


def test_the_static_min_insync_replicas_becomes_that_of_the_cluster() -> None:
    harness = Harness(static_config={"min.insync.replicas": "2"})
    harness._mark = 0
    assert ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2") in harness.written()


def test_a_log_that_is_not_empty_gets_nothing_on_activation() -> None:
    first = Harness()
    first.add_brokers(1)
    again = Harness(log=first.raft.log, start=False)
    again.mark()
    again.raft.start()
    again.step()
    assert again.active()
    assert again.written() == []
    assert again.state() == first.state()


def test_a_transaction_that_a_predecessor_left_open_is_aborted() -> None:
    first = Harness()
    name = "half made"
    epoch = first.raft.leader_and_epoch.epoch
    first.raft.append_as_leader(
        epoch,
        [
            ApiMessageAndVersion(BeginTransactionRecord(name=name), 0),
            ApiMessageAndVersion(TopicRecord(name="ghost", topic_id=first.new_uuid()), 0),
        ],
    )
    first.raft.commit()
    again = Harness(log=first.raft.log, start=False)
    again.mark()
    again.raft.start()
    again.step()
    assert again.written() == [AbortTransactionRecord(reason="Controller failover")]
    assert again.managers.replication.topic_ids == {}
    assert again.managers.offsets.transaction_start_offset == -1


def test_a_bootstrap_that_was_cut_short_is_made_again() -> None:
    raft = LocalRaftClient(NODE, clock=MockClock(), auto_commit=False)
    raft.start()
    raft.append_as_leader(
        1,
        [
            ApiMessageAndVersion(BeginTransactionRecord(name="Bootstrap records"), 0),
            ApiMessageAndVersion(level("metadata.version", 30), 0),
        ],
    )
    raft.commit()
    harness = Harness(log=raft.log, start=False)
    harness.mark()
    harness.raft.start()
    harness.step()
    written = harness.written()
    assert written[0] == AbortTransactionRecord(reason="Controller failover")
    assert written[1:3] == [BeginTransactionRecord(name="Bootstrap records"), level("metadata.version", 30)]
    assert harness.managers.features.metadata_version is MetadataVersion.IBP_4_3_IV0


# -- writes and commits


def test_a_response_waits_for_the_commit() -> None:
    harness = Harness(auto_commit=False)
    harness.commit()
    future = harness.register(1)
    harness.step()
    assert not future.done()
    harness.commit()
    assert future.result(0).broker_epoch == harness.epoch(1)


def test_a_request_builds_on_what_is_not_committed_and_waits_for_it() -> None:
    harness = with_brokers_and_manual_commits()
    request = CreateTopicsRequest(topics=[topic("a", 1)])
    first = harness.controller.create_topics(CONTEXT, request)
    second = harness.controller.create_topics(CONTEXT, request)
    harness.step()
    assert not first.done()
    assert not second.done()  # it wrote nothing, but it is because of the first that the topic exists
    harness.commit()
    assert first.result(0).topics[0].error_code == 0
    assert second.result(0).topics[0].error_code == 36


def test_readers_see_committed_state_only() -> None:
    harness = with_brokers_and_manual_commits()
    harness.controller.create_topics(CONTEXT, CreateTopicsRequest(topics=[topic("a", 1)]))
    harness.step()
    assert "a" in harness.managers.replication.topic_ids
    assert harness.result(harness.controller.find_all_topic_ids(CONTEXT)) == {}
    found = harness.result(harness.controller.find_topic_ids(CONTEXT, ["a"]))
    assert isinstance(found["a"], UnknownTopicOrPartitionError)
    harness.commit()
    assert harness.result(harness.controller.find_topic_ids(CONTEXT, ["a"])) == {"a": harness.topic_id("a")}
    names = harness.result(harness.controller.find_topic_names(CONTEXT, [harness.topic_id("a")]))
    assert names == {harness.topic_id("a"): "a"}


def test_records_that_need_not_be_atomic_are_spread_over_batches() -> None:
    harness = Harness(max_records_per_batch=11)
    harness.add_brokers(1, 2)
    for name in ("a", "b", "c"):
        harness.create(name, 10, 2)
    harness.mark()
    harness.fence(1)
    sizes = [len(batch.values) for batch in harness.raft.log.batches if batch.base_offset >= harness._mark]
    assert sizes == [11, 11, 9]
    assert harness.partition("c", 9).isr == (2,)


# -- who may write


def test_a_standby_refuses_and_says_who_leads() -> None:
    harness = Harness(start=False)
    refused = harness.controller.create_topics(CONTEXT, CreateTopicsRequest(topics=[topic("a", 1)]))
    assert "No controller is active" in str(harness.error(refused))
    harness.raft.elect(OTHER_NODE)
    heartbeat = harness.controller.process_broker_heartbeat(CONTEXT, BrokerHeartbeatRequest(broker_id=1))
    listing = harness.controller.list_partition_reassignments(CONTEXT, ListPartitionReassignmentsRequest())
    for future in (harness.register(1), heartbeat, listing):
        error = harness.error(future)
        assert isinstance(error, NotControllerError)
        assert "node 2" in str(error)


def test_any_controller_tells_the_features() -> None:
    harness = Harness()
    harness.raft.elect(OTHER_NODE)
    features = harness.result(harness.controller.finalized_features(CONTEXT))
    assert features.levels["metadata.version"] == 30
    assert features.epoch == harness.managers.offsets.last_stable_offset


def test_losing_leadership_undoes_what_is_not_committed() -> None:
    harness = with_brokers_and_manual_commits()
    committed = harness.controller.create_topics(CONTEXT, CreateTopicsRequest(topics=[topic("kept", 3)]))
    harness.commit()
    before = harness.state()
    doomed: list[Future[Any]] = [
        harness.controller.create_topics(CONTEXT, CreateTopicsRequest(topics=[topic("lost", 3)])),
        harness.controller.allocate_producer_ids(
            CONTEXT, AllocateProducerIdsRequest(broker_id=1, broker_epoch=harness.epoch(1))
        ),
        harness.heartbeat(1, want_fence=True),
    ]
    harness.step()
    assert harness.state() != before
    assert harness.broker(1).fenced
    harness.raft.elect(OTHER_NODE)
    harness.step()
    assert not harness.active()
    assert harness.state() == before
    assert committed.result(0).topics[0].error_code == 0
    for future in doomed:
        assert isinstance(future.exception(0), NotControllerError)


def test_a_standby_follows_and_takes_over() -> None:
    """Two controllers over the same log: the second replays what the first writes, and has the same state."""
    active = Harness()
    standby = Harness(node_id=OTHER_NODE, log=active.raft.log, start=False)
    active.add_brokers(1, 2)
    active.create("orders", 4, 2)
    standby.commit()
    standby.raft.elect(NODE)
    standby.step()
    assert not standby.active()
    assert standby.state() == active.state()
    standby.raft.elect(OTHER_NODE)
    standby.step()
    assert standby.active()
    assert standby.create("more", 1, 1).error_code == 0


def test_what_a_leader_wrote_and_could_not_commit_may_still_come_true() -> None:
    """The node loses leadership, undoes its writes, and is elected again with them still in its log."""
    harness = with_brokers_and_manual_commits()
    future = harness.controller.create_topics(CONTEXT, CreateTopicsRequest(topics=[topic("revenant", 2)]))
    harness.step()
    harness.raft.resign(harness.controller.claim_epoch)
    harness.step()
    assert isinstance(future.exception(0), NotControllerError)
    assert "revenant" not in harness.managers.replication.topic_ids
    harness.raft.elect(NODE, harness.raft.leader_and_epoch.epoch)
    harness.step()
    assert harness.active()
    assert harness.partition("revenant", 1).leader == 1


def test_the_same_leader_in_a_new_epoch_goes_on() -> None:
    harness = Harness()
    harness.raft.elect(NODE)
    harness.step()
    assert harness.controller.claim_epoch == 2
    harness.add_brokers(1)
    assert harness.create("a", 1).error_code == 0


def test_an_append_that_raft_refuses_ends_the_leadership(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node has lost the epoch, but the controller has not heard of it yet."""
    harness = with_brokers_and_manual_commits()
    before = harness.state()
    monkeypatch.setattr(harness.raft, "_set_leader", lambda leader: setattr(harness.raft, "_leader", leader))
    harness.raft.elect(OTHER_NODE)
    error = harness.error(harness.controller.create_topics(CONTEXT, CreateTopicsRequest(topics=[topic("a", 1)])))
    assert isinstance(error, NotControllerError)
    assert not harness.active()
    assert harness.state() == before


# -- when things go wrong


def test_a_request_that_waits_too_long_is_told_so_and_does_nothing() -> None:
    harness = Harness()
    harness.add_brokers(1)
    context = ControllerRequestContext(deadline_ns=harness.clock.nanoseconds() + 1_000_000)
    future = harness.controller.create_topics(context, CreateTopicsRequest(topics=[topic("a", 1)]))
    harness.clock.advance(1)
    assert isinstance(harness.error(future), KafkaTimeoutError)
    assert harness.written() == []


def test_an_error_nobody_foresaw_ends_the_leadership_and_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = with_brokers_and_manual_commits()
    pending = harness.controller.create_topics(CONTEXT, CreateTopicsRequest(topics=[topic("a", 1)]))
    monkeypatch.setattr(harness.managers.producer_ids, "allocate", lambda _: 1 // 0)
    broken = harness.controller.allocate_producer_ids(CONTEXT, AllocateProducerIdsRequest(broker_id=1))
    assert isinstance(harness.error(broken), UnknownServerError)
    assert isinstance(harness.error(pending), NotControllerError)
    assert not harness.active()
    assert "a" not in harness.managers.replication.topic_ids


def test_a_single_voter_is_active_again_after_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness()
    monkeypatch.setattr(harness.managers.producer_ids, "allocate", lambda _: 1 // 0)
    broken = harness.controller.allocate_producer_ids(CONTEXT, AllocateProducerIdsRequest(broker_id=1))
    assert isinstance(harness.error(broken), UnknownServerError)
    assert harness.active()
    assert harness.controller.claim_epoch == 3


def test_an_api_error_is_a_response_and_no_fault() -> None:
    harness = Harness()
    request = AllocateProducerIdsRequest(broker_id=9, broker_epoch=1)
    assert isinstance(harness.error(harness.controller.allocate_producer_ids(CONTEXT, request)), StaleBrokerEpochError)
    assert harness.controller.claim_epoch == 1


def test_a_record_that_cannot_be_applied_is_fatal_and_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness()
    harness.add_brokers(1)

    def broken(_record: object) -> None:
        raise ValueError("broken")

    monkeypatch.setitem(cast("dict[type, Any]", harness.managers.replay._without_offset), TopicRecord, broken)
    harness.controller.create_topics(CONTEXT, CreateTopicsRequest(topics=[topic("a", 1)]))
    with pytest.raises(FatalExitError, match="TopicRecord at offset"):
        harness.step()
    assert harness.written() == []


def test_a_committed_record_that_cannot_be_applied_is_fatal_on_a_standby() -> None:
    harness = Harness()
    harness.raft.elect(OTHER_NODE)
    harness.raft.append_as_leader(2, [ApiMessageAndVersion(RemoveTopicRecord(topic_id=harness.new_uuid()), 0)])
    harness.raft.commit()
    with pytest.raises(FatalExitError, match="RemoveTopicRecord"):
        harness.step()


def test_records_of_the_past_are_passed_over() -> None:
    harness = Harness()
    before = harness.state()
    harness.raft.elect(OTHER_NODE)
    harness.raft.append_as_leader(2, [ApiMessageAndVersion(ZkMigrationStateRecord(zk_migration_state=3), 0)])
    harness.commit()
    assert harness.state() == before


def test_closing_completes_all_that_still_wait() -> None:
    harness = with_brokers_and_manual_commits()
    waiting = harness.controller.create_topics(CONTEXT, CreateTopicsRequest(topics=[topic("a", 1)]))
    ready = harness.controller.wait_for_ready_brokers(99)
    harness.step()
    harness.controller.close()
    late = harness.controller.find_all_topic_ids(CONTEXT)
    never = harness.controller.wait_for_ready_brokers(1)
    for future in (waiting, ready, late, never):
        assert isinstance(future.exception(0), KafkaTimeoutError)


class OpenReader:
    """A reader that holds something open."""

    base_offset = 0
    last_offset = None
    snapshot_id = OffsetAndEpoch(1, 1)
    last_contained_log_offset = 0
    last_contained_log_timestamp = 0

    def __init__(self) -> None:
        self.closed = 0

    def __iter__(self) -> Iterator[Any]:
        raise OSError("the disk is gone")

    def close(self) -> None:
        self.closed += 1


def test_readers_are_closed_whatever_happens() -> None:
    harness = Harness(start=False)
    broken, bad_snapshot, too_late, snapshot = OpenReader(), OpenReader(), OpenReader(), OpenReader()
    harness.controller._listener.handle_commit(broken)
    with pytest.raises(FatalExitError, match="cannot load the metadata log from offset 0: the disk is gone"):
        harness.step()
    assert broken.closed
    harness.controller._listener.handle_load_snapshot(bad_snapshot)
    with pytest.raises(FatalExitError, match=r"cannot load metadata snapshot .*: the disk is gone"):
        harness.step()
    assert bad_snapshot.closed
    harness.controller.close()
    harness.controller._listener.handle_commit(too_late)
    harness.controller._listener.handle_load_snapshot(snapshot)
    assert (too_late.closed, snapshot.closed) == (1, 1)


def test_a_raft_client_that_closes_closes_the_queue() -> None:
    harness = Harness()
    harness.raft.close()
    assert isinstance(harness.error(harness.controller.find_all_topic_ids(CONTEXT)), KafkaTimeoutError)


# -- by the clock


def test_a_record_that_says_nothing_is_written_now_and_then() -> None:
    harness = Harness(max_idle_interval_ms=500)
    for _ in range(3):
        harness.advance(500)
    assert harness.written() == [NoOpRecord()] * 3


def test_only_the_active_controller_has_periodic_tasks() -> None:
    harness = Harness(max_idle_interval_ms=500)
    harness.raft.elect(OTHER_NODE)
    harness.advance(5000)
    assert harness.written() == []
    assert harness.controller.queue.next_deadline_ns() is None


def test_a_task_that_fails_is_tried_again_later_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(start=False)
    calls: list[int] = []

    def broken() -> Any:
        calls.append(1)
        raise ValueError("broken")

    task = harness.controller._periodic._tasks["maybe_fence_stale_broker"]
    monkeypatch.setitem(harness.controller._periodic._tasks, task.name, type(task)(task.name, broken, task.period_ns))
    harness.raft.start()
    harness.step()
    harness.advance(1125)
    assert len(calls) == 1
    assert harness.active()
    harness.advance(5 * 60_000 - 1)
    assert len(calls) == 1
    harness.advance(1)
    assert len(calls) == 2


def test_a_snapshot_is_due_after_so_many_bytes() -> None:
    due: list[OffsetAndEpoch] = []
    plugins = ControllerPlugins(on_snapshot_due=lambda snapshot_id, _reason: due.append(snapshot_id))
    harness = Harness(plugins=plugins, max_bytes_between_snapshots=2000)
    harness.add_brokers(1)
    assert due == []
    harness.create("a", 100)
    assert due == [OffsetAndEpoch(harness.raft.log_end_offset, 1)]
    harness.create("b", 1)
    assert len(due) == 1


def test_a_snapshot_is_due_after_so_much_time() -> None:
    reasons: list[str] = []
    plugins = ControllerPlugins(on_snapshot_due=lambda _snapshot_id, reason: reasons.append(reason))
    harness = Harness(plugins=plugins, max_snapshot_interval_ms=60_000, max_idle_interval_ms=10_000)
    for _ in range(13):
        harness.advance(10_000)
    assert reasons == ["the last one is 60000 ms old"] * 2


def test_a_snapshot_is_loaded_in_place_of_the_log() -> None:
    first = Harness()
    first.add_brokers(1)
    first.create("a", 3)
    expected = first.state()
    writer = first.raft.create_snapshot(OffsetAndEpoch(first.raft.log_end_offset, 1), 5)
    assert writer is not None
    for batch in first.raft.log.batches:
        records = [
            record
            for record in batch.decode(first.raft._types).records
            if not isinstance(record.message, (BeginTransactionRecord, EndTransactionRecord))
        ]
        if records:
            writer.append(records)
    writer.freeze()
    end = first.raft.log_end_offset
    again = Harness(log=first.raft.log, start=False)
    again.raft.start()
    again.step()
    assert again.managers.offsets.last_committed_offset == end - 1
    expected["registration offsets"] = {1: end - 1}
    assert again.state() == expected
    assert again.active()
    assert again.create("b", 1).error_code == 0


def test_metrics_have_kafkas_names() -> None:
    registry = MetricsRegistry(MockClock())
    raft = LocalRaftClient(NODE, clock=MockClock())
    controller = QuorumController(ControllerConfig(NODE, CLUSTER_ID), raft, clock=MockClock(), metrics=registry)
    group = KafkaMetricsGroup(registry, "kafka.controller", "KafkaController")

    def gauge(name: str) -> Any:
        metric = registry.get(group.metric_name(name))
        assert metric is not None
        return metric.value()  # type: ignore[union-attr]

    assert gauge("ActiveControllerCount") == 0
    raft.start()
    controller.queue.run_until_idle()
    assert gauge("ActiveControllerCount") == 1
    assert gauge("NewActiveControllersCount") == 1
    assert gauge("LastCommittedRecordOffset") == gauge("LastAppliedRecordOffset") == 7
    assert gauge("MetadataErrorCount") == 0


# -- helpers


def with_brokers_and_manual_commits() -> Harness:
    """An active controller with broker 1, of which nothing more is committed unless the test says so."""
    first = Harness()
    first.add_brokers(1)
    harness = Harness(auto_commit=False, log=first.raft.log, clock=first.clock)
    harness.unfence(1)
    harness.commit()
    harness.mark()
    return harness


def test_new_partitions_are_written_as_kafka_writes_them() -> None:
    harness = Harness()
    harness.add_brokers(1)
    harness.create("a", 2)
    topic_record, *partitions = harness.written_with_versions()
    topic_id = harness.topic_id("a")
    assert topic_record == (TopicRecord(name="a", topic_id=topic_id), 0)
    assert partitions == [
        (
            PartitionRecord(
                partition_id=number,
                topic_id=topic_id,
                replicas=[1],
                isr=[1],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=[harness.broker(1).directories[0]],
            ),
            2,
        )
        for number in range(2)
    ]
