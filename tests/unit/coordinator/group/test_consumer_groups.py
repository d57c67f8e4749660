"""The consumer protocol (KIP-848): heartbeats, epochs, reconciliation."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.common.errors import Errors
from barnabas.coordinator.group.consumer import regex_resolution
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.protocol.internal import consumer_groups as schema
from barnabas.protocol.internal.metadata import RemoveTopicRecord
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from coordinator_fixtures import not_leader
from group_fixtures import REBALANCE_MS, GroupBox, assigned
from unit.metadata.samples import partition, uid

SESSION_MS = 45_000


def box_with(partitions: int = 4, **options: Any) -> tuple[GroupBox, Any]:
    box = GroupBox(**options)
    return box, box.create_topic("t", partitions)


def partitions_of(box: GroupBox, topic_id: Any, group_id: str = "g") -> dict[str, set[int]]:
    return {
        member_id: set(member.assigned_partitions.get(topic_id, {}))
        for member_id, member in box.group(group_id).members.items()
    }


# -- joining


def test_the_first_member_gets_everything_at_once() -> None:
    box, t = box_with()
    answer = box.consumer_heartbeat("m1")
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "m1", 2)
    assert answer.heartbeat_interval_ms == 5000
    assert assigned(answer) == {t: [0, 1, 2, 3]}
    assert box.state() == "Stable"
    assert assigned(box.consumer_heartbeat("m1", 2)) is None, "nothing has changed"


def test_what_is_written_is_what_kafka_writes() -> None:
    box, t = box_with(1)
    box.consumer_heartbeat("m1", instance_id="i", rack_id="r", server_assignor="range")
    now = box.bench.clock.milliseconds()
    member, epoch, target, target_epoch, current = box.records()
    assert member.key == schema.ConsumerGroupMemberMetadataKey(group_id="g", member_id="m1")
    assert member.value == schema.ConsumerGroupMemberMetadataValue(
        instance_id="i",
        rack_id="r",
        client_id="client",
        client_host="/127.0.0.1",
        subscribed_topic_names=["t"],
        subscribed_topic_regex="",
        rebalance_timeout_ms=REBALANCE_MS,
        server_assignor="range",
        classic_member_metadata=None,
    )
    assert epoch.key == schema.ConsumerGroupMetadataKey(group_id="g")
    assert isinstance(epoch.value, schema.ConsumerGroupMetadataValue)
    assert epoch.value.epoch == 2
    assert epoch.value.metadata_hash != 0
    assert target.value == schema.ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[schema.TopicPartition(topic_id=t, partitions=[0])]
    )
    assert target_epoch.value == schema.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=2, assignment_timestamp=now
    )
    assert current.value == schema.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=2,
        previous_member_epoch=0,
        state=0,
        assigned_partitions=[schema.TopicPartitions(topic_id=t, partitions=[0], assignment_epochs=[2])],
        partitions_pending_revocation=[],
    )


def test_a_member_may_be_subscribed_to_nothing() -> None:
    box, t = box_with(1)
    answer = box.consumer_heartbeat(topics=())
    assert answer.error_code == Errors.NONE
    assert answer.member_epoch == 1, "0 would be one that has not joined"
    assert assigned(answer) == {}
    assert box.state() == "Stable"
    again = box.restarted()
    assert again.consumer_heartbeat(epoch=1).member_epoch == 1
    assert assigned(again.consumer_heartbeat(epoch=1, topics=["t"])) == {t: [0]}


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, Errors.INVALID_REQUEST),
        ({"member_id": ""}, Errors.INVALID_REQUEST),
        ({"instance_id": " "}, Errors.INVALID_REQUEST),
        ({"rack_id": ""}, Errors.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, Errors.INVALID_REQUEST),
        ({"owned": {uid(1): [0]}}, Errors.INVALID_REQUEST),
        ({"epoch": -3}, Errors.INVALID_REQUEST),
        ({"epoch": -2}, Errors.INVALID_REQUEST),
        ({"epoch": 1, "member_id": ""}, Errors.INVALID_REQUEST),
        ({"server_assignor": "none"}, Errors.UNSUPPORTED_ASSIGNOR),
        ({"regex": "("}, Errors.INVALID_REGULAR_EXPRESSION),
        ({"epoch": 1}, Errors.GROUP_ID_NOT_FOUND),
        ({"epoch": 1, "regex": "("}, Errors.GROUP_ID_NOT_FOUND),
        ({"epoch": -1, "regex": "("}, Errors.GROUP_ID_NOT_FOUND),
        ({"epoch": -1}, Errors.GROUP_ID_NOT_FOUND),
    ],
)
def test_requests_that_are_refused(fields: dict[str, Any], error: Errors) -> None:
    box, _ = box_with()
    answer = box.consumer_heartbeat(**fields)
    assert answer.error_code == error
    assert answer.error_message
    assert not box.records()


def test_in_version_0_the_coordinator_makes_ids_up() -> None:
    box, _ = box_with()
    answer = box.consumer_heartbeat("", version=0)
    assert answer.error_code == 0
    assert answer.member_id
    assert box.group().has_member(answer.member_id)


def test_a_group_can_be_full() -> None:
    box, _ = box_with(config={"consumer_max_size": 1})
    box.consumer_heartbeat("m1")
    assert box.consumer_heartbeat("m2").error_code == Errors.GROUP_MAX_SIZE_REACHED
    assert box.consumer_heartbeat("m1", 2).error_code == 0


def test_a_broker_that_does_not_serve_it() -> None:
    box = GroupBox({"rebalance_protocols": frozenset({"classic"})})
    refused = box.consumer_heartbeat("m1")
    assert (refused.error_code, refused.error_message) == (Errors.UNSUPPORTED_VERSION, None)


def test_a_topic_that_does_not_exist_yet() -> None:
    box = GroupBox()
    answer = box.consumer_heartbeat("m1")
    assert assigned(answer) == {}
    t = box.create_topic("t", 2)
    after = box.consumer_heartbeat("m1", 2)
    assert after.member_epoch == 3
    assert assigned(after) == {t: [0, 1]}


# -- a rebalance, step by step


@pytest.mark.mechanism("R09")
def test_partitions_are_given_up_before_others_get_them() -> None:
    box, t = box_with()
    box.consumer_heartbeat("m1")
    joined = box.consumer_heartbeat("m2")
    assert (joined.member_epoch, assigned(joined)) == (3, {})
    assert box.state() == "Reconciling"
    told = box.consumer_heartbeat("m1", 2)
    assert told.member_epoch == 2, "until it has given up"
    kept = assigned(told)
    assert kept is not None
    assert len(kept[t]) == 2
    assert assigned(box.consumer_heartbeat("m2", 3)) is None
    still = box.consumer_heartbeat("m1", 2, owned={t: [0, 1, 2, 3]})
    assert still.member_epoch == 2, "it says that it still has them"
    done = box.consumer_heartbeat("m1", 2, owned=kept)
    assert done.member_epoch == 3
    got = assigned(box.consumer_heartbeat("m2", 3))
    assert got is not None
    assert sorted([*kept[t], *got[t]]) == [0, 1, 2, 3]
    assert box.state() == "Stable"


def test_a_member_that_says_nothing_about_what_it_owns_owns_what_it_did() -> None:
    box, _t = box_with()
    box.consumer_heartbeat("m1")
    box.consumer_heartbeat("m2")
    box.consumer_heartbeat("m1", 2)
    assert box.consumer_heartbeat("m1", 2).member_epoch == 2


def test_a_member_that_does_not_give_up_in_time_is_out() -> None:
    box, t = box_with()
    box.consumer_heartbeat("m1")
    box.consumer_heartbeat("m2")
    box.consumer_heartbeat("m1", 2)
    for _ in range(REBALANCE_MS // 20_000):
        box.consumer_heartbeat("m1", 2, owned={t: [0, 1, 2, 3]})
        box.consumer_heartbeat("m2", 3)
        box.advance(20_000)
    assert box.consumer_heartbeat("m1", 2).error_code == Errors.UNKNOWN_MEMBER_ID
    box.consumer_heartbeat("m2", 3)
    assert partitions_of(box, t) == {"m2": {0, 1, 2, 3}}


def test_a_member_that_is_not_heard_of_is_out() -> None:
    box, _t = box_with()
    box.consumer_heartbeat("m1")
    box.advance(SESSION_MS - 1)
    assert box.consumer_heartbeat("m1", 2).error_code == 0
    box.advance(SESSION_MS)
    assert box.consumer_heartbeat("m1", 2).error_code == Errors.UNKNOWN_MEMBER_ID
    assert box.state() == "Empty"


def test_a_group_has_its_own_settings() -> None:
    box, _ = box_with(
        overrides={"g": {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "7000"}}
    )
    assert box.consumer_heartbeat("m1").heartbeat_interval_ms == 7000
    box.advance(49_999)
    assert box.consumer_heartbeat("m1", 2).error_code == 0
    assert box.consumer_heartbeat("m", group_id="h").heartbeat_interval_ms == 5000


def test_leaving() -> None:
    box, t = box_with()
    box.consumer_heartbeat("m1")
    box.consumer_heartbeat("m2")
    left = box.consumer_heartbeat("m1", -1)
    assert (left.error_code, left.member_epoch) == (0, -1)
    assert assigned(box.consumer_heartbeat("m2", 3)) == {t: [0, 1, 2, 3]}
    assert box.consumer_heartbeat("m1", -1).error_code == Errors.UNKNOWN_MEMBER_ID


def test_another_subscription() -> None:
    box, _t = box_with(2)
    u = box.create_topic("u", 1)
    box.consumer_heartbeat("m1")
    told = box.consumer_heartbeat("m1", 2, topics=["u"])
    assert (told.member_epoch, assigned(told)) == (2, {})
    done = box.consumer_heartbeat("m1", 2, owned={})
    assert (done.member_epoch, assigned(done)) == (3, {u: [0]})


def test_a_topic_grows() -> None:
    box, t = box_with(1)
    box.consumer_heartbeat("m1")
    box.learn([partition(t, 1)])
    assert assigned(box.consumer_heartbeat("m1", 2)) == {t: [0, 1]}


def test_a_topic_is_deleted() -> None:
    box, t = box_with(1)
    box.consumer_heartbeat("m1")
    box.learn([RemoveTopicRecord(topic_id=t)])
    assert assigned(box.consumer_heartbeat("m1", 2)) == {}
    assert box.consumer_heartbeat("m1", 2, owned={}).member_epoch == 3


def test_a_change_of_another_topic_changes_nothing() -> None:
    box, _ = box_with(1)
    box.consumer_heartbeat("m1")
    count = len(box.records())
    box.create_topic("u", 3)
    assert box.consumer_heartbeat("m1", 2).member_epoch == 2
    assert len(box.records()) == count


def test_the_assignor_that_most_want() -> None:
    box, t = box_with(3)
    u = box.create_topic("u", 3)
    box.consumer_heartbeat("m1", topics=["t", "u"], server_assignor="range")
    box.consumer_heartbeat("m2", topics=["t", "u"], server_assignor="range")
    target = dict(box.group().target_assignment.items())
    assert target["m1"] == {t: {0, 1}, u: {0, 1}}
    assert target["m2"] == {t: {2}, u: {2}}


def test_changes_that_come_close_together_are_dealt_with_together() -> None:
    box, _t = box_with(config={"consumer_assignment_interval_ms": 1000})
    box.consumer_heartbeat("m1")
    joined = box.consumer_heartbeat("m2")
    assert (joined.member_epoch, assigned(joined)) == (2, {})
    assert box.state() == "Assigning"
    box.consumer_heartbeat("m3")
    box.advance(1000)
    told = box.consumer_heartbeat("m2", 2)
    assert told.member_epoch == 4
    assert box.group().assignment_epoch.get() == 4


def test_a_date_that_is_set_back_delays_no_assignment() -> None:
    box, t = box_with(config={"consumer_assignment_interval_ms": 1000})
    box.consumer_heartbeat("m1")
    box.bench.clock.set_milliseconds(box.bench.clock.milliseconds() - 3_600_000)
    box.consumer_heartbeat("m2")
    assert box.group().assignment_epoch.get() == 3
    assert set(box.group().target_assignment["m2"]) == {t}


# -- fencing


def test_epochs_that_are_wrong() -> None:
    box, t = box_with()
    box.consumer_heartbeat("m1")
    box.consumer_heartbeat("m2")
    box.consumer_heartbeat("m1", 2)
    kept = {t: sorted(partitions_of(box, t)["m1"])}
    assert box.consumer_heartbeat("m1", 2, owned=kept).member_epoch == 3
    assert box.consumer_heartbeat("m1", 4).error_code == Errors.FENCED_MEMBER_EPOCH
    assert box.consumer_heartbeat("m1", 2).error_code == Errors.FENCED_MEMBER_EPOCH
    assert box.consumer_heartbeat("m1", 2, owned={t: [0, 1, 2, 3]}).error_code == Errors.FENCED_MEMBER_EPOCH
    again = box.consumer_heartbeat("m1", 2, owned=kept)
    assert (again.error_code, again.member_epoch) == (0, 3), "the answer got lost"
    assert box.consumer_heartbeat("nobody", 2).error_code == Errors.UNKNOWN_MEMBER_ID


def test_a_member_that_was_fenced_joins_anew_under_its_id() -> None:
    box, t = box_with()
    box.consumer_heartbeat("m1")
    assert box.consumer_heartbeat("m1", 9).error_code == Errors.FENCED_MEMBER_EPOCH
    again = box.consumer_heartbeat("m1")
    assert (again.error_code, assigned(again)) == (0, {t: [0, 1, 2, 3]})
    assert len(box.group().members) == 1


# -- static members


def test_a_static_member_goes_and_comes_back() -> None:
    box, _t = box_with()
    box.consumer_heartbeat("m1", instance_id="i")
    box.consumer_heartbeat("m2")
    away = box.consumer_heartbeat("m1", -2, instance_id="i")
    assert (away.error_code, away.member_epoch) == (0, -2)
    epoch = box.group().group_epoch.get()
    back = box.consumer_heartbeat("m3", instance_id="i")
    assert back.error_code == 0
    assert set(box.group().members) == {"m2", "m3"}
    assert box.group().group_epoch.get() == epoch, "nothing has changed for the others"
    assert box.consumer_heartbeat("m1", 2, instance_id="i").error_code == Errors.FENCED_INSTANCE_ID
    assert box.restarted().group().as_mapping() == box.group().as_mapping()


def test_a_static_member_that_does_not_come_back() -> None:
    box, _t = box_with()
    box.consumer_heartbeat("m1", instance_id="i")
    box.consumer_heartbeat("m1", -2, instance_id="i")
    box.advance(SESSION_MS)
    assert box.state() == "Empty"


def test_an_instance_id_that_is_in_use() -> None:
    box, _ = box_with()
    box.consumer_heartbeat("m1", instance_id="i")
    assert box.consumer_heartbeat("m2", instance_id="i").error_code == Errors.UNRELEASED_INSTANCE_ID
    assert box.consumer_heartbeat("m2", 2, instance_id="i").error_code == Errors.FENCED_INSTANCE_ID
    assert box.consumer_heartbeat("m1", 2, instance_id="j").error_code == Errors.UNKNOWN_MEMBER_ID
    assert box.consumer_heartbeat("m2", -1, instance_id="i").error_code == Errors.FENCED_INSTANCE_ID


def test_the_session_of_a_static_member_ends_although_its_successor_could_not_be_written() -> None:
    box, _t = box_with()
    box.consumer_heartbeat("old", instance_id="i")
    box.consumer_heartbeat("old", -2, instance_id="i")
    box.bench.writer.fails_with = not_leader()
    assert box.consumer_heartbeat("new", instance_id="i").error_code == Errors.NOT_COORDINATOR
    box.bench.writer.fails_with = None
    assert list(box.group().members) == ["old"]
    box.advance(SESSION_MS)
    assert box.group().is_empty


def test_the_session_of_a_member_ends_although_its_leaving_could_not_be_written() -> None:
    box, _t = box_with()
    box.consumer_heartbeat("m1")
    box.bench.writer.fails_with = not_leader()
    assert box.consumer_heartbeat("m1", -1).error_code == Errors.NOT_COORDINATOR
    box.bench.writer.fails_with = None
    assert list(box.group().members) == ["m1"]
    box.advance(SESSION_MS)
    assert box.group().is_empty


@pytest.mark.parametrize(("version", "error"), [(0, Errors.UNKNOWN_MEMBER_ID), (1, Errors.INVALID_REQUEST)])
def test_a_static_member_goes_without_an_id(version: int, error: Errors) -> None:
    """Clients make their ids themselves since version 1."""
    box, _ = box_with()
    box.consumer_heartbeat("m1")
    assert box.consumer_heartbeat("", -2, instance_id="i", version=version).error_code == error


def test_a_static_member_leaves_for_good() -> None:
    box, _ = box_with()
    box.consumer_heartbeat("m1", instance_id="i")
    box.consumer_heartbeat("m1", -1, instance_id="i")
    assert box.state() == "Empty"
    assert box.consumer_heartbeat("m2", instance_id="i").error_code == 0


# -- regular expressions


def test_a_pattern_is_resolved_beside_the_loop() -> None:
    box = GroupBox()
    t1 = box.create_topic("t-1", 1)
    box.create_topic("u-1", 1)
    joined = box.consumer_heartbeat("m1", regex="t-.*")
    assert (joined.error_code, assigned(joined)) == (0, {})
    assert box.group().resolved_regular_expressions["t-.*"].topics == {"t-1"}
    assert box.group().is_subscribed_to_topic("t-1")
    told = box.consumer_heartbeat("m1", joined.member_epoch)
    assert assigned(told) == {t1: [0]}
    assert box.restarted().group().as_mapping() == box.group().as_mapping()


def test_a_new_topic_that_matches() -> None:
    box = GroupBox()
    box.create_topic("t-1", 1)
    epoch = box.consumer_heartbeat("m1", regex="t-.*").member_epoch
    epoch = box.consumer_heartbeat("m1", epoch).member_epoch
    t2 = box.create_topic("t-2", 1)
    epoch = box.consumer_heartbeat("m1", epoch).member_epoch
    assert box.group().resolved_regular_expressions["t-.*"].topics == {"t-1"}, "not so soon after the last time"
    box.advance(10_000)
    epoch = box.consumer_heartbeat("m1", epoch).member_epoch
    assert box.group().resolved_regular_expressions["t-.*"].topics == {"t-1", "t-2"}
    told = assigned(box.consumer_heartbeat("m1", epoch))
    assert told is not None
    assert t2 in told


def test_a_new_topic_that_matches_is_found_although_the_date_is_set_back() -> None:
    box = GroupBox()
    box.create_topic("t-1", 1)
    epoch = box.consumer_heartbeat("m1", regex="t-.*").member_epoch
    epoch = box.consumer_heartbeat("m1", epoch).member_epoch
    box.bench.clock.set_milliseconds(box.bench.clock.milliseconds() - 3_600_000)
    box.create_topic("t-2", 1)
    box.consumer_heartbeat("m1", epoch)
    assert box.group().resolved_regular_expressions["t-.*"].topics == {"t-1", "t-2"}


def test_a_pattern_that_takes_too_long_keeps_its_topics_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    box = GroupBox()
    box.create_topic("t-1", 1)
    epoch = box.consumer_heartbeat("m1", regex="t-.*").member_epoch
    epoch = box.consumer_heartbeat("m1", epoch).member_epoch
    monkeypatch.setattr(regex_resolution, "search_limit_ms", lambda _names: -1)
    box.create_topic("t-2", 1)
    box.consumer_heartbeat("m2", regex="(t|u)-.*")
    resolved = box.group().resolved_regular_expressions
    assert resolved["t-.*"].topics == {"t-1"}
    assert resolved["(t|u)-.*"].topics == set(), "a new pattern begins without topics"
    monkeypatch.undo()
    box.advance(10_000)
    box.consumer_heartbeat("m1", epoch)
    resolved = box.group().resolved_regular_expressions
    assert resolved["t-.*"].topics == resolved["(t|u)-.*"].topics == {"t-1", "t-2"}


def test_a_pattern_that_matches_nothing_yet_moves_nobody() -> None:
    box = GroupBox()
    epoch = box.consumer_heartbeat("m1", regex="t-.*").member_epoch
    assert box.group().resolved_regular_expressions["t-.*"].topics == set()
    assert (box.group().group_epoch.get(), box.state()) == (epoch, "Stable")
    t1 = box.create_topic("t-1", 1)
    assert box.consumer_heartbeat("m1", epoch).member_epoch == epoch, "not so soon after the last time"
    box.advance(10_000)
    assert box.consumer_heartbeat("m1", epoch).member_epoch == epoch, "only now are topics looked for"
    told = box.consumer_heartbeat("m1", epoch)
    assert (told.member_epoch, assigned(told)) == (epoch + 1, {t1: [0]})


def test_another_pattern_moves_a_group_when_its_topics_are_found() -> None:
    box = GroupBox()
    box.create_topic("t-1", 1)
    u1 = box.create_topic("u-1", 1)
    epoch = box.consumer_heartbeat("m1", regex="t-.*").member_epoch
    epoch = box.consumer_heartbeat("m1", epoch).member_epoch
    box.bench.pool.holds = True
    assert box.consumer_heartbeat("m1", epoch, regex="u-.*", owned={}).member_epoch == epoch
    assert box.group().group_epoch.get() == epoch
    box.bench.pool.release()
    assert box.group().group_epoch.get() == epoch + 1
    assert assigned(box.consumer_heartbeat("m1", epoch, owned={})) == {u1: [0]}


def test_a_pattern_that_matches_nothing_in_place_of_one_that_did() -> None:
    box = GroupBox()
    t1 = box.create_topic("t-1", 1)
    epoch = box.consumer_heartbeat("m1", regex="t-.*").member_epoch
    epoch = box.consumer_heartbeat("m1", epoch).member_epoch
    epoch = box.consumer_heartbeat("m1", epoch, regex="none", owned={}).member_epoch
    assert box.group().group_epoch.get() == epoch + 1
    box.consumer_heartbeat("m1", epoch, owned={})
    assert (partitions_of(box, t1), box.state()) == ({"m1": set()}, "Stable")


def test_a_topic_that_does_not_match_any_more() -> None:
    box = GroupBox()
    t1 = box.create_topic("t-1", 1)
    t2 = box.create_topic("t-2", 1)
    epoch = box.consumer_heartbeat("m1", regex="t-.*").member_epoch
    epoch = box.consumer_heartbeat("m1", epoch).member_epoch
    box.learn([RemoveTopicRecord(topic_id=t2)])
    box.advance(10_000)
    for _ in range(3):
        answer = box.consumer_heartbeat("m1", epoch, owned={t1: [0]})
        epoch = answer.member_epoch
    assert box.group().resolved_regular_expressions["t-.*"].topics == {"t-1"}
    assert partitions_of(box, t1) == {"m1": {0}}
    assert partitions_of(box, t2) == {"m1": set()}
    assert box.state() == "Stable"


def test_topics_that_the_client_may_not_see() -> None:
    box = GroupBox(topic_filter=lambda _context, topics: [name for name in topics if name != "t-secret"])
    box.create_topic("t-1", 1)
    box.create_topic("t-secret", 1)
    box.consumer_heartbeat("m1", regex="t-.*")
    assert box.group().resolved_regular_expressions["t-.*"].topics == {"t-1"}


def test_patterns_that_nobody_has_are_forgotten() -> None:
    box, _t = box_with()
    epoch = box.consumer_heartbeat("m1", regex="t.*").member_epoch
    box.consumer_heartbeat("m2", regex="t.*")
    epoch = box.consumer_heartbeat("m1", epoch, regex="x.*").member_epoch
    assert set(box.group().resolved_regular_expressions) == {"t.*", "x.*"}
    box.consumer_heartbeat("m2", -1)
    assert set(box.group().resolved_regular_expressions) == {"x.*"}
    box.consumer_heartbeat("m1", epoch, regex="", topics=["t"])
    assert set(box.group().resolved_regular_expressions) == set()
    assert box.restarted().group().as_mapping() == box.group().as_mapping()


def test_a_second_member_with_the_same_pattern_does_not_wait() -> None:
    box, t = box_with(2)
    box.consumer_heartbeat("m1", regex="t")
    box.bench.pool.holds = True
    box.consumer_heartbeat("m2", regex="t")
    assert not box.bench.pool.held
    assert set(box.group().target_assignment["m2"]) == {t}


def test_the_last_member_leaves_while_its_pattern_is_looked_into() -> None:
    box, _ = box_with()
    box.bench.pool.holds = True
    box.consumer_heartbeat("m1", regex="t")
    box.consumer_heartbeat("m1", -1)
    box.bench.pool.release()
    assert set(box.group().resolved_regular_expressions) == set()


# -- writes that fail, and the log


def test_a_heartbeat_that_could_not_be_written_changes_nothing() -> None:
    box, _ = box_with()
    box.consumer_heartbeat("m1")
    before = box.group().as_mapping()
    box.bench.writer.fails_with = not_leader()
    assert box.consumer_heartbeat("m2").error_code == Errors.NOT_COORDINATOR
    assert box.group().as_mapping() == before
    box.bench.writer.fails_with = None
    assert box.consumer_heartbeat("m2").member_epoch == 3


def test_a_group_that_was_never_written_never_was() -> None:
    box, _ = box_with()
    box.bench.writer.fails_with = not_leader()
    box.consumer_heartbeat("m1")
    assert "g" not in box.shard().store.groups


@pytest.mark.mechanism("R09")
def test_a_group_survives_its_coordinator() -> None:
    box, t = box_with()
    box.consumer_heartbeat("m1")
    box.consumer_heartbeat("m2", instance_id="i")
    box.consumer_heartbeat("m1", 2)
    again = box.restarted()
    assert again.group().as_mapping() == box.group().as_mapping()
    kept = {t: sorted(partitions_of(again, t)["m1"])}
    assert again.consumer_heartbeat("m1", 2, owned=kept).member_epoch == 3
    assert again.consumer_heartbeat("m2", 3, instance_id="i").error_code == 0
    assert again.state() == "Stable"


def test_timeouts_go_on_after_a_failover() -> None:
    box, t = box_with()
    box.consumer_heartbeat("m1")
    box.consumer_heartbeat("m2")
    box.consumer_heartbeat("m1", 2)
    again = box.restarted()
    for _ in range(3):
        again.consumer_heartbeat("m1", 2, owned={t: [0, 1, 2, 3]})
        again.advance(20_000)
    assert again.consumer_heartbeat("m1", 2).error_code == Errors.UNKNOWN_MEMBER_ID


def test_an_empty_group_is_deleted_with_all_its_records() -> None:
    box, _ = box_with()
    box.consumer_heartbeat("m1", regex="t.*")
    box.consumer_heartbeat("m1", -1)
    assert box.service.delete_groups(["g"]).result(0)[0].error_code == 0
    latest: dict[Any, Any] = {}
    for record in box.records():
        latest[repr(record.key)] = record.value
    assert all(value is None for value in latest.values())
    assert "g" not in box.restarted().shard().store.groups


def test_records_of_an_older_kafka() -> None:
    """Without epochs of partitions, and with a record of the topics that 4.1 has done away with."""
    box, t = box_with(1)
    records = [
        CoordinatorRecord(schema.ConsumerGroupMetadataKey(group_id="g"), schema.ConsumerGroupMetadataValue(epoch=3)),
        CoordinatorRecord(
            schema.ConsumerGroupPartitionMetadataKey(group_id="g"), schema.ConsumerGroupPartitionMetadataValue()
        ),
        CoordinatorRecord(
            schema.ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
            schema.ConsumerGroupMemberMetadataValue(
                instance_id=None,
                rack_id=None,
                subscribed_topic_names=["t"],
                server_assignor=None,
                subscribed_topic_regex=None,
                rebalance_timeout_ms=1000,
                classic_member_metadata=None,
            ),
        ),
        CoordinatorRecord(
            schema.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
            schema.ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=3,
                previous_member_epoch=2,
                assigned_partitions=[schema.TopicPartitions(topic_id=t, partitions=[0])],
            ),
        ),
    ]
    box.bench.runtime.schedule_write_operation("write", box.partition(), lambda _: CoordinatorResult(records)).result(0)
    assert box.group().members["m"].assigned_partitions == {t: {0: 3}}
    box.consumer_heartbeat("m", -1)
    box.service.delete_groups(["g"]).result(0)
    keys = [record.key for record in box.records() if record.value is None]
    assert schema.ConsumerGroupPartitionMetadataKey(group_id="g") in keys


# -- describing


def test_describing() -> None:
    box, _t = box_with(2)
    box.consumer_heartbeat("m1", instance_id="i", rack_id="r")
    box.consumer_heartbeat("m2", regex="t.*")
    (group,) = box.service.consumer_group_describe(["g"]).result(0)
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Assigning", "uniform")
    assert (group.group_epoch, group.assignment_epoch) == (3, 2)
    by_id = {member.member_id: member for member in group.members}
    assert (by_id["m1"].instance_id, by_id["m1"].rack_id, by_id["m1"].member_type) == ("i", "r", 1)
    assert by_id["m1"].assignment.topic_partitions[0].topic_name == "t"
    assert (by_id["m1"].subscribed_topic_regex, by_id["m2"].subscribed_topic_regex) == ("", "t.*")
    box.stable_group(group_id="classic")
    missing = box.service.consumer_group_describe(["classic", "none"]).result(0)
    assert [one.error_code for one in missing] == [Errors.GROUP_ID_NOT_FOUND] * 2
    (nameless,) = box.service.consumer_group_describe([""]).result(0)
    assert nameless.error_code == Errors.INVALID_GROUP_ID
    described = box.service.describe_groups(["g", "classic", "none"]).result(0)
    assert [(one.group_state, one.error_code) for one in described] == [
        ("Dead", Errors.GROUP_ID_NOT_FOUND),
        ("Stable", 0),
        ("Dead", Errors.GROUP_ID_NOT_FOUND),
    ]
    assert described[1].members[0].member_assignment == b"assigned"


@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        ([], [], {"g", "classic", "simple"}),
        (["stable"], [], {"g", "classic"}),
        (["STABLE", "Empty"], ["Classic"], {"classic", "simple"}),
        ([], ["consumer"], {"g"}),
        ([], ["share"], set()),
        (["Dead"], [], set()),
    ],
)
def test_listing(states: list[str], types: list[str], expected: set[str]) -> None:
    box, _ = box_with(num_partitions=3)
    box.consumer_heartbeat("m1")
    box.stable_group(group_id="classic")
    box.commit({("t", 0): 1}, "simple")
    answer = box.service.list_groups(ListGroupsRequest(states_filter=states, types_filter=types)).result(0)
    assert {group.group_id for group in answer.groups} == expected
    for group in answer.groups:
        assert group.protocol_type == ("" if group.group_id == "simple" else "consumer")


def test_the_text_of_an_unexpected_error_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: Any) -> CoordinatorResult[Any]:
        raise ValueError("a detail of the broker")

    box, _ = box_with()
    monkeypatch.setattr(box.shard(), "consumer_group_heartbeat", fail)
    failed = box.consumer_heartbeat("m1")
    assert failed.error_code == Errors.UNKNOWN_SERVER_ERROR
    assert failed.error_message == Errors.UNKNOWN_SERVER_ERROR.message
