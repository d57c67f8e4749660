"""Heartbeats: the states of a broker, its session, controlled shutdown, log directories."""

from __future__ import annotations

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.errors import StaleBrokerEpochError
from barnabas.controller.broker_heartbeat_manager import (
    BrokerControlState,
    BrokerHeartbeatManager,
    BrokerHeartbeatTracker,
    BrokerIdAndEpoch,
)
from barnabas.protocol.internal.metadata import BrokerRegistrationChangeRecord, PartitionChangeRecord
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from unit.controller.harness import Harness, directory

FENCED, UNFENCED = BrokerControlState.FENCED, BrokerControlState.UNFENCED
CONTROLLED_SHUTDOWN, SHUTDOWN_NOW = BrokerControlState.CONTROLLED_SHUTDOWN, BrokerControlState.SHUTDOWN_NOW


@pytest.fixture
def harness() -> Harness:
    return Harness()


# -- the table of states


@pytest.mark.parametrize(
    ("fenced", "want_fence", "want_shut_down", "offset", "leads", "following"),
    [
        (True, False, False, 99, False, FENCED),
        (True, False, False, 100, False, UNFENCED),
        (True, True, False, 100, False, FENCED),
        (True, False, True, 100, False, SHUTDOWN_NOW),
        (True, True, True, 0, True, SHUTDOWN_NOW),
        (False, False, False, 0, True, UNFENCED),
        (False, True, False, 100, True, FENCED),
        (False, True, True, 100, True, SHUTDOWN_NOW),
        (False, False, True, 100, True, CONTROLLED_SHUTDOWN),
        (False, False, True, 100, False, SHUTDOWN_NOW),
    ],
)
def test_the_next_state_follows_the_table(
    fenced: bool, want_fence: bool, want_shut_down: bool, offset: int, leads: bool, following: BrokerControlState
) -> None:
    manager = BrokerHeartbeatManager(MockClock(), 1)
    manager.register(1, fenced)
    request = BrokerHeartbeatRequest(
        broker_id=1, current_metadata_offset=offset, want_fence=want_fence, want_shut_down=want_shut_down
    )
    current, found = manager.next_state(request, 100, lambda: leads)
    assert current is (FENCED if fenced else UNFENCED)
    assert found is following


@pytest.mark.parametrize(
    ("leads", "other_offset", "following"),
    [(True, 50, CONTROLLED_SHUTDOWN), (False, 49, CONTROLLED_SHUTDOWN), (False, 50, SHUTDOWN_NOW)],
)
def test_a_shutdown_ends_when_nothing_is_led_and_all_others_know(
    leads: bool, other_offset: int, following: BrokerControlState
) -> None:
    manager = BrokerHeartbeatManager(MockClock(), 1)
    for broker_id in (1, 2):
        manager.register(broker_id, False)
    manager.maybe_update_controlled_shutdown_offset(1, 50)
    manager.maybe_update_controlled_shutdown_offset(1, 70)  # only the first counts
    manager.touch(2, False, other_offset)
    request = BrokerHeartbeatRequest(broker_id=1, want_shut_down=True)
    assert manager.next_state(request, 0, lambda: leads) == (CONTROLLED_SHUTDOWN, following)


def test_a_broker_that_is_alone_waits_for_nobody() -> None:
    manager = BrokerHeartbeatManager(MockClock(), 1)
    manager.register(1, False)
    manager.maybe_update_controlled_shutdown_offset(1, 50)
    request = BrokerHeartbeatRequest(broker_id=1, want_shut_down=True)
    assert manager.next_state(request, 0, lambda: False)[1] is SHUTDOWN_NOW


def test_fencing_ends_a_controlled_shutdown() -> None:
    manager = BrokerHeartbeatManager(MockClock(), 1)
    manager.register(1, False)
    manager.maybe_update_controlled_shutdown_offset(1, 50)
    assert list(manager.usable_brokers(lambda _: None, lambda _: True)) == []
    manager.fence(1)
    assert manager.state(1).control_state is FENCED
    with pytest.raises(RuntimeError, match="is fenced"):
        manager.maybe_update_controlled_shutdown_offset(1, 60)
    manager.remove(1)
    manager.fence(1)
    with pytest.raises(KeyError):
        manager.state(1)


def test_sessions_run_out_one_at_a_time() -> None:
    clock = MockClock()
    tracker = BrokerHeartbeatTracker(clock, 9_000_000_000)
    first, second = BrokerIdAndEpoch(1, 10), BrokerIdAndEpoch(2, 11)
    tracker.touch(first)
    tracker.presume(second)
    assert tracker.is_presumed(second)
    clock.advance(9_000)
    assert tracker.has_valid_session(first)
    assert tracker.remove_one_expired() is None
    clock.advance(1)
    assert not tracker.has_valid_session(first)
    assert [tracker.remove_one_expired() for _ in range(3)] == [first, second, None]
    assert not tracker.is_presumed(second)
    tracker.touch(first)
    assert tracker.has_valid_session(first)
    tracker.forget(first)
    assert not tracker.has_valid_session(first)


# -- the life of a broker


def test_a_broker_is_unfenced_when_it_has_read_its_own_registration(harness: Harness) -> None:
    epoch = harness.result(harness.register(1)).broker_epoch
    harness.mark()
    early = harness.result(harness.heartbeat(1, offset=epoch - 1))
    assert (early.is_caught_up, early.is_fenced) == (False, True)
    waiting = harness.result(harness.heartbeat(1, offset=epoch, want_fence=True))
    assert (waiting.is_caught_up, waiting.is_fenced) == (True, True)
    assert harness.written() == []
    ready = harness.result(harness.heartbeat(1, offset=epoch))
    assert (ready.is_caught_up, ready.is_fenced, ready.should_shut_down) == (True, False, False)
    assert harness.written_with_versions() == [
        (BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=-1), 0)
    ]
    assert harness.managers.cluster.is_active(1)


def test_a_silent_broker_is_fenced_within_an_eighth_after_its_session(harness: Harness) -> None:
    harness.add_brokers(1, 2)
    harness.create("a", assignments=[[1, 2]])
    epoch = harness.epoch(1)
    harness.mark()
    waited = 0
    while not harness.broker(1).fenced:
        harness.advance(125)
        waited += 125
        harness.unfence(2)
    assert 9_000 < waited <= 9_000 * 9 / 8
    assert harness.written_with_versions() == [
        (PartitionChangeRecord(topic_id=harness.topic_id("a"), partition_id=0, leader=2, isr=[2]), 2),
        (BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=1), 0),
    ]


def test_brokers_that_fall_silent_together_are_fenced_one_after_the_other(harness: Harness) -> None:
    harness.add_brokers(1, 2, 3)
    harness.create("a", assignments=[[1, 2, 3]])
    harness.advance(9_001)
    fenced = [harness.broker(broker_id).fenced for broker_id in (1, 2, 3)]
    assert fenced.count(True) >= 1
    harness.advance(10)
    harness.advance(10)
    assert all(harness.broker(broker_id).fenced for broker_id in (1, 2, 3))
    assert harness.partition("a").isr == ()
    assert harness.partition("a").leader == -1


def test_heartbeats_that_wait_in_the_queue_keep_the_session(harness: Harness) -> None:
    """The controller is so busy that it does not get to a heartbeat before the next one is due."""
    harness.add_brokers(1)
    for _ in range(6):
        harness.clock.advance(2_000)
        harness.heartbeat(1)  # noted on the caller's thread; nobody runs the queue
    harness.step()
    assert not harness.broker(1).fenced


def test_the_session_starts_afresh_under_a_new_controller() -> None:
    first = Harness()
    first.add_brokers(2)
    first.clock.advance(8_000)
    second = Harness(log=first.raft.log, clock=first.clock)
    second.advance(8_000)
    assert not second.broker(2).fenced
    second.advance(2_250)
    assert second.broker(2).fenced


def test_a_fenced_broker_is_not_fenced_again(harness: Harness) -> None:
    harness.result(harness.register(1))
    harness.result(harness.heartbeat(1, want_fence=True))
    harness.mark()
    harness.advance(20_000)
    assert harness.written() == []


def test_heartbeats_need_the_right_epoch(harness: Harness) -> None:
    assert isinstance(harness.error(harness.heartbeat(5, epoch=1)), StaleBrokerEpochError)
    harness.add_brokers(1)
    assert isinstance(harness.error(harness.heartbeat(1, epoch=1)), StaleBrokerEpochError)


# -- controlled shutdown


def test_a_controlled_shutdown_moves_leaderships_and_waits_until_all_know(harness: Harness) -> None:
    harness.add_brokers(1, 2)
    harness.create("a", assignments=[[1, 2], [2, 1]])
    epoch = harness.epoch(1)
    harness.mark()
    reply = harness.result(harness.heartbeat(1, want_shut_down=True))
    assert (reply.is_fenced, reply.should_shut_down) == (False, False)
    topic_id = harness.topic_id("a")
    assert harness.written_with_versions() == [
        (BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, in_controlled_shutdown=1), 1),
        (PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=2, isr=[2]), 2),
        (PartitionChangeRecord(topic_id=topic_id, partition_id=1, isr=[2]), 2),
    ]
    moved = harness.raft.log_end_offset - 1
    assert not harness.managers.cluster.is_active(1)
    harness.result(harness.heartbeat(2, offset=moved - 1))
    assert not harness.result(harness.heartbeat(1, want_shut_down=True)).should_shut_down
    harness.result(harness.heartbeat(2, offset=moved))
    reply = harness.result(harness.heartbeat(1, want_shut_down=True))
    assert (reply.is_fenced, reply.should_shut_down) == (True, True)
    assert harness.broker(1).fenced


def test_a_broker_that_leads_nothing_may_go_at_once(harness: Harness) -> None:
    harness.add_brokers(1)
    assert harness.result(harness.heartbeat(1, want_shut_down=True)).should_shut_down


def test_a_broker_on_its_way_out_gets_no_new_replicas(harness: Harness) -> None:
    harness.add_brokers(1, 2)
    harness.create("a", assignments=[[1, 2]])
    harness.result(harness.heartbeat(1, want_shut_down=True))
    assert harness.create("b", 4, 1).error_code == 0
    assert {harness.partition("b", number).replicas for number in range(4)} == {(2,)}
    assert harness.create("c", 1, 2).error_code == 38


# -- log directories


def test_a_failed_directory_takes_its_replicas_out(harness: Harness) -> None:
    good, bad = directory(1, 0), directory(1, 1)
    harness.result(harness.register(1, directories=[good, bad]))
    harness.unfence(1)
    harness.add_brokers(2)
    harness.create("a", assignments=[[1, 2], [1, 2]])
    assign(harness, 1, bad, "a", 0)
    assign(harness, 1, good, "a", 1)
    harness.mark()
    harness.result(harness.heartbeat(1, offline_log_dirs=[bad, directory(9)]))
    epoch = harness.epoch(1)
    assert harness.written_with_versions() == [
        (PartitionChangeRecord(topic_id=harness.topic_id("a"), partition_id=0, leader=2, isr=[2]), 2),
        (BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, log_dirs=[good]), 2),
    ]
    assert harness.broker(1).directories == (good,)
    harness.mark()
    harness.result(harness.heartbeat(1, offline_log_dirs=[bad]))
    assert harness.written() == []


def test_cordoned_directories_are_noted_and_get_nothing_new(harness: Harness) -> None:
    harness.add_brokers(1, 2)
    epoch = harness.epoch(1)
    harness.result(harness.heartbeat(1, cordoned_log_dirs=[directory(1)]))
    assert harness.written_with_versions() == [
        (
            BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, cordoned_log_dirs=[directory(1)]),
            3,
        )
    ]
    harness.mark()
    harness.result(harness.heartbeat(1, cordoned_log_dirs=[directory(1)]))
    assert harness.written() == []
    harness.create("a", 3, 1)
    assert {harness.partition("a", number).replicas for number in range(3)} == {(2,)}


def assign(harness: Harness, broker_id: int, where: bytes, name: str, number: int) -> None:
    from barnabas.protocol.messages import assign_replicas_to_dirs as messages
    from unit.controller.harness import CONTEXT

    request = messages.AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=harness.epoch(broker_id),
        directories=[
            messages.RequestDirectoryData(
                id=where,  # type: ignore[arg-type]
                topics=[
                    messages.RequestTopicData(
                        topic_id=harness.topic_id(name),
                        partitions=[messages.RequestPartitionData(partition_index=number)],
                    )
                ],
            )
        ],
    )
    harness.result(harness.controller.assign_replicas_to_dirs(CONTEXT, request))
