"""Committed offsets: commit, fetch, delete, expire, and the ones of transactions."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from barnabas.common.errors import Errors, InvalidTxnStateError
from barnabas.common.identifiers import ZERO_UUID
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.group.member_context import MemberContext
from barnabas.protocol.internal.consumer_offsets import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.records.control import ControlRecordType
from coordinator_fixtures import not_leader
from group_fixtures import SESSION_MS, GroupBox
from unit.metadata.samples import uid

T0, T1 = ("t", 0), ("t", 1)
WEEK_MS = 7 * 24 * 3600 * 1000
CHECK_MS = 600_000
COMMIT, ABORT = ControlRecordType.COMMIT, ControlRecordType.ABORT


def commit_in_transaction(
    box: GroupBox,
    offsets: dict[tuple[str, int], int],
    producer_id: int = 7,
    *,
    group_id: str = "g",
    member_id: str = "",
    generation: int = -1,
    version: int = 5,
    metadata: str = "",
) -> dict[tuple[str, int], Errors]:
    request = TxnOffsetCommitRequest(
        transactional_id="txn",
        group_id=group_id,
        producer_id=producer_id,
        producer_epoch=0,
        member_id=member_id,
        generation_id_or_member_epoch=generation,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=number, committed_offset=offset, committed_metadata=metadata
                    )
                ],
            )
            for (name, number), offset in offsets.items()
        ],
    )
    context = MemberContext("client", "/127.0.0.1", version)
    response = box.service.commit_transactional_offsets(context, request).result(0)
    return {
        (topic.name, one.partition_index): Errors.for_code(one.error_code)
        for topic in response.topics
        for one in topic.partitions
    }


# -- committing


def test_somebody_who_is_no_member_commits() -> None:
    box = GroupBox()
    assert box.commit({T0: 5, T1: 6}, metadata="mine") == {T0: Errors.NONE, T1: Errors.NONE}
    assert box.offsets() == {T0: 5, T1: 6}
    assert box.fetch([T0]).topics[0].partitions[0].metadata == "mine"
    assert box.group().is_simple_group


def test_what_is_written_is_what_kafka_writes() -> None:
    box = GroupBox()
    box.commit({T0: 5}, metadata="x")
    (record,) = box.records()
    assert record.key == OffsetCommitKey(group="g", topic="t", partition=0)
    assert record.version == 4
    assert record.value == OffsetCommitValue(
        offset=5,
        leader_epoch=-1,
        metadata="x",
        commit_timestamp=box.bench.clock.milliseconds(),
        topic_id=ZERO_UUID,
    )


def test_a_commit_with_its_own_retention() -> None:
    box = GroupBox()
    box.commit({T0: 5}, version=3, retention_time_ms=1000)
    (record,) = box.records()
    assert isinstance(record.value, OffsetCommitValue)
    assert (record.version, record.value.expire_timestamp) == (1, box.bench.clock.milliseconds() + 1000)
    box.advance(CHECK_MS)
    assert box.offsets() == {}


def test_a_retention_beyond_the_end_of_time_keeps_the_offset() -> None:
    """The largest time-out there is: added to the clock it does not fit into a record any more."""
    box = GroupBox()
    box.commit({T0: 5}, version=3, retention_time_ms=2**63 - 1)
    (record,) = box.records()
    assert isinstance(record.value, OffsetCommitValue)
    assert record.value.expire_timestamp == 2**63 - 1
    record.value.encode(record.version)
    box.advance(CHECK_MS)
    assert box.offsets() == {T0: 5}


@pytest.mark.mechanism("R09")
def test_a_commit_gets_a_response_when_it_is_written_and_fetched_when_it_is_committed() -> None:
    box = GroupBox()
    box.bench.writer.commits_at_once = False
    context = MemberContext("c", "/h", 9)
    request = OffsetCommitRequest(
        group_id="g",
        topics=[OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(committed_offset=5)])],
    )
    future = box.service.commit_offsets(context, request)
    assert not future.done()
    assert box.offsets() == {}
    box.bench.writer.commit(box.partition())
    assert future.result(0).topics[0].partitions[0].error_code == 0
    assert box.offsets() == {T0: 5}


def test_a_commit_that_could_not_be_written() -> None:
    box = GroupBox()
    box.commit({T0: 1})
    box.bench.writer.fails_with = not_leader()
    assert box.commit({T0: 5}) == {T0: Errors.NOT_COORDINATOR}
    assert box.offsets() == {T0: 1}


def test_metadata_that_is_too_long() -> None:
    box = GroupBox({"offset_metadata_max_size": 3})
    assert box.commit({T0: 5}, metadata="four") == {T0: Errors.OFFSET_METADATA_TOO_LARGE}
    assert box.offsets() == {}
    assert box.commit({T0: 5}, metadata="333") == {T0: Errors.NONE}
    assert box.commit({T1: 5}, metadata=None) == {T1: Errors.NONE}


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": "nobody", "generation": 1}, Errors.UNKNOWN_MEMBER_ID),
        ({"member_id": "{a}", "generation": 0}, Errors.ILLEGAL_GENERATION),
        ({"member_id": "{a}", "generation": 2}, Errors.ILLEGAL_GENERATION),
        ({"member_id": "", "generation": -1}, Errors.UNKNOWN_MEMBER_ID),
        ({"member_id": "{a}", "generation": 1, "group_instance_id": "i"}, Errors.UNKNOWN_MEMBER_ID),
        ({"member_id": "{a}", "generation": 1}, Errors.NONE),
    ],
)
def test_commits_to_a_classic_group_with_members(fields: dict[str, Any], error: Errors) -> None:
    box = GroupBox()
    (a,) = box.stable_group()
    fields["member_id"] = fields["member_id"].format(a=a)
    assert box.commit({T0: 5}, **fields) == {T0: error}
    assert box.offsets() == ({T0: 5} if error is Errors.NONE else {})


def test_a_commit_between_join_and_sync() -> None:
    box = GroupBox()
    a, joining = box.new_member()
    generation = joining.result(0).generation_id
    assert box.commit({T0: 5}, member_id=a, generation=generation) == {T0: Errors.REBALANCE_IN_PROGRESS}


def test_a_commit_while_a_rebalance_is_being_prepared() -> None:
    """Members commit what they have done before they give up their partitions."""
    box = GroupBox()
    a, b = box.stable_group(2)
    box.leave(b)
    assert box.commit({T0: 5}, member_id=a, generation=2) == {T0: Errors.NONE}


@pytest.mark.parametrize(("version", "error"), [(8, Errors.ILLEGAL_GENERATION), (9, Errors.GROUP_ID_NOT_FOUND)])
def test_a_commit_of_a_member_of_no_group(version: int, error: Errors) -> None:
    box = GroupBox()
    assert box.commit({T0: 5}, member_id="a", generation=3, version=version) == {T0: error}
    assert "g" not in box.shard().store.groups


def test_commits_to_a_consumer_group() -> None:
    box = GroupBox()
    box.create_topic("t", 2)
    joined = box.consumer_heartbeat("m1")
    epoch = joined.member_epoch
    assert box.commit({T0: 5}, member_id="m1", generation=epoch) == {T0: Errors.NONE}
    assert box.commit({T0: 5}, member_id="m1", generation=epoch + 1) == {T0: Errors.STALE_MEMBER_EPOCH}
    assert box.commit({T0: 5}, member_id="nobody", generation=epoch) == {T0: Errors.UNKNOWN_MEMBER_ID}
    assert box.commit({T0: 5}) == {T0: Errors.UNKNOWN_MEMBER_ID}
    assert box.commit({T0: 5}, member_id="m1", generation=epoch, version=8) == {T0: Errors.UNSUPPORTED_VERSION}


def test_a_member_that_is_behind_commits_what_it_has_kept() -> None:
    """KIP-1251."""
    box = GroupBox()
    t = box.create_topic("t", 2)
    box.consumer_heartbeat("m1")
    box.consumer_heartbeat("m2")
    box.consumer_heartbeat("m1", 2)
    done = box.consumer_heartbeat("m1", 2, owned={t: [0]})
    assert done.member_epoch == 3
    member = box.group().members["m1"]
    kept = next(iter(member.assigned_partitions[t]))
    assert box.commit({("t", kept): 5}, member_id="m1", generation=2) == {("t", kept): Errors.NONE}
    lost = 1 - kept
    assert box.commit({("t", lost): 5}, member_id="m1", generation=2) == {("t", lost): Errors.STALE_MEMBER_EPOCH}


# -- fetching


def test_nothing_committed_is_no_error() -> None:
    box = GroupBox()
    answer = box.fetch([T0])
    assert answer.error_code == 0
    assert answer.topics[0].partitions[0].committed_offset == -1
    assert box.fetch(None).topics == []


def test_fetches_of_members_of_a_consumer_group() -> None:
    box = GroupBox()
    box.create_topic("t", 1)
    epoch = box.consumer_heartbeat("m1").member_epoch
    box.commit({T0: 5}, member_id="m1", generation=epoch)
    assert box.fetch([T0], member_id="m1", epoch=epoch).topics[0].partitions[0].committed_offset == 5
    assert box.fetch([T0], member_id="m1", epoch=epoch + 1).error_code == Errors.STALE_MEMBER_EPOCH
    assert box.fetch([T0], member_id="who", epoch=epoch).error_code == Errors.UNKNOWN_MEMBER_ID
    assert box.fetch([T0]).topics[0].partitions[0].committed_offset == 5, "a tool"


def test_an_offset_of_a_namesake() -> None:
    box = GroupBox()
    old, new = uid(1), uid(2)
    context = MemberContext("c", "/h", 10)
    box.service.commit_offsets(
        context,
        OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitRequestTopic(
                    name="t", topic_id=old, partitions=[OffsetCommitRequestPartition(committed_offset=5)]
                )
            ],
        ),
    ).result(0)

    def fetch(topic_id: Any) -> int:
        request = OffsetFetchRequestGroup(
            group_id="g", topics=[OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=[0])]
        )
        answer = box.service.fetch_offsets(request, require_stable=False).result(0)
        return answer.topics[0].partitions[0].committed_offset

    assert (fetch(old), fetch(new), fetch(ZERO_UUID)) == (5, -1, 5)


# -- deleting


def delete(box: GroupBox, *partitions: tuple[str, int], group_id: str = "g") -> OffsetDeleteResponse:
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=number)])
            for name, number in partitions
        ],
    )
    return box.service.delete_offsets(request).result(0)


def test_offsets_are_deleted_one_by_one() -> None:
    box = GroupBox()
    box.commit({T0: 5, T1: 6})
    assert delete(box, T0, ("u", 0)).error_code == 0
    assert box.offsets() == {T1: 6}
    assert box.restarted().offsets() == {T1: 6}


def test_offsets_of_topics_that_the_group_reads_are_kept() -> None:
    box = GroupBox()
    (a,) = box.stable_group()
    box.commit({T0: 5, ("u", 0): 6}, member_id=a, generation=1)
    answer = delete(box, T0, ("u", 0))
    assert [topic.partitions[0].error_code for topic in answer.topics] == [Errors.GROUP_SUBSCRIBED_TO_TOPIC, 0]
    assert box.offsets() == {T0: 5}


def test_offsets_of_a_group_of_another_kind_are_kept_while_it_has_members() -> None:
    box = GroupBox()
    box.stable_group(protocol_type="connect", protocols=[("x", b"")])
    assert delete(box, T0).error_code == Errors.NON_EMPTY_GROUP
    assert delete(box, T0, group_id="other").error_code == Errors.GROUP_ID_NOT_FOUND
    assert delete(box, T0, group_id="").error_code == Errors.INVALID_GROUP_ID


def test_offsets_go_with_their_group() -> None:
    box = GroupBox()
    box.commit({T0: 5, T1: 6})
    commit_in_transaction(box, {("u", 0): 1})
    (result,) = box.service.delete_groups(["g"]).result(0)
    assert result.error_code == 0
    assert box.restarted().shard().offsets.snapshot()["offsets"] == {}
    assert box.service.delete_groups(["g"]).result(0)[0].error_code == Errors.GROUP_ID_NOT_FOUND
    box.end_transaction(7, COMMIT)
    assert box.offsets() == {}


def test_a_group_with_members_is_not_deleted() -> None:
    box = GroupBox()
    box.stable_group()
    assert box.service.delete_groups(["g"]).result(0)[0].error_code == Errors.NON_EMPTY_GROUP
    box.create_topic("t", 1)
    box.consumer_heartbeat("m", group_id="h")
    assert box.service.delete_groups(["h"]).result(0)[0].error_code == Errors.NON_EMPTY_GROUP


def test_offsets_go_with_their_partitions() -> None:
    box = GroupBox()
    box.commit({T0: 5, T1: 6, ("u", 0): 7})
    commit_in_transaction(box, {T0: 9})
    box.service.on_partitions_deleted([TopicPartition("t", 0), TopicPartition("t", 1)])
    assert box.offsets() == {("u", 0): 7}
    box.end_transaction(7, COMMIT)
    assert box.offsets() == {("u", 0): 7}


# -- expiring


def test_offsets_of_nobody_expire_one_by_one() -> None:
    box = GroupBox()
    box.commit({T0: 5})
    box.advance(WEEK_MS // 2)
    box.commit({T1: 6})
    box.advance(WEEK_MS // 2 + CHECK_MS)
    assert box.offsets() == {T1: 6}
    box.advance(WEEK_MS // 2 + CHECK_MS)
    assert "g" not in box.shard().store.groups, "and the group, when nothing is left of it"
    assert isinstance(box.records()[-1].key, GroupMetadataKey)
    assert "g" not in box.restarted().shard().store.groups


def test_offsets_of_a_living_group_do_not_expire() -> None:
    box = GroupBox({"offsets_retention_ms": 3 * SESSION_MS, "offsets_retention_check_interval_ms": SESSION_MS})
    (a,) = box.stable_group()
    box.commit({T0: 5, ("old", 0): 6}, member_id=a, generation=1)
    for _ in range(10):
        box.heartbeat(a, 1)
        box.advance(SESSION_MS - 1)
    assert box.offsets() == {T0: 5}, "except of topics that it does not read any more"
    box.leave(a)
    box.advance(2 * SESSION_MS)
    assert box.offsets() == {T0: 5}, "they count from when the group became empty"
    box.advance(2 * SESSION_MS)
    assert box.offsets() == {}


def test_pending_offsets_keep_a_group_alive() -> None:
    box = GroupBox()
    box.commit({T0: 5})
    commit_in_transaction(box, {T0: 9})
    box.advance(WEEK_MS + CHECK_MS)
    assert box.offsets() == {T0: 5}
    box.end_transaction(7, COMMIT)
    assert box.offsets() == {T0: 9}


# -- transactions


@pytest.mark.mechanism("R09")
def test_offsets_of_a_transaction_count_when_it_is_committed() -> None:
    box = GroupBox()
    box.commit({T0: 1})
    assert commit_in_transaction(box, {T0: 5, T1: 6}) == {T0: Errors.NONE, T1: Errors.NONE}
    assert box.offsets() == {T0: 1}
    unstable = box.fetch([T0, T1, ("t", 2)], require_stable=True).topics
    assert [topic.partitions[0].error_code for topic in unstable] == [
        Errors.UNSTABLE_OFFSET_COMMIT,
        Errors.UNSTABLE_OFFSET_COMMIT,
        Errors.NONE,
    ]
    all_of_them = box.fetch(None, require_stable=True).topics[0].partitions
    assert [(one.partition_index, one.error_code) for one in all_of_them] == [(0, Errors.UNSTABLE_OFFSET_COMMIT)]
    restarted = box.restarted()
    assert restarted.shard().offsets.snapshot() == box.shard().offsets.snapshot()
    box.end_transaction(7, COMMIT)
    assert box.offsets(require_stable=True) == {T0: 5, T1: 6}
    assert box.restarted().offsets(require_stable=True) == {T0: 5, T1: 6}


def test_offsets_of_an_aborted_transaction_never_were() -> None:
    box = GroupBox()
    box.commit({T0: 1})
    commit_in_transaction(box, {T0: 5})
    box.end_transaction(7, ABORT)
    assert box.offsets(require_stable=True) == {T0: 1}
    assert box.restarted().shard().offsets.snapshot() == box.shard().offsets.snapshot()


def test_the_later_commit_counts() -> None:
    box = GroupBox()
    commit_in_transaction(box, {T0: 5})
    box.commit({T0: 3})
    box.end_transaction(7, COMMIT)
    assert box.offsets() == {T0: 3}, "it was written later than that of the transaction"
    commit_in_transaction(box, {T0: 8}, 8)
    commit_in_transaction(box, {T0: 9}, 9)
    box.end_transaction(9, COMMIT)
    box.end_transaction(8, COMMIT)
    assert box.offsets() == {T0: 9}


def test_a_transaction_that_the_coordinator_does_not_know() -> None:
    box = GroupBox()
    refused: Future[Any] = Future()
    refused.set_exception(InvalidTxnStateError())
    box.bench.writer.verification = refused
    assert commit_in_transaction(box, {T0: 5}) == {T0: Errors.INVALID_TXN_STATE}
    assert not box.records()


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": "nobody", "generation": 1}, Errors.UNKNOWN_MEMBER_ID),
        ({"member_id": "{a}", "generation": 2}, Errors.ILLEGAL_GENERATION),
        ({"member_id": "{a}", "generation": 1}, Errors.NONE),
        ({}, Errors.NONE),
        ({"group_id": ""}, Errors.INVALID_GROUP_ID),
        ({"group_id": "other", "member_id": "m", "generation": 1, "version": 5}, Errors.ILLEGAL_GENERATION),
        ({"group_id": "other", "member_id": "m", "generation": 1, "version": 6}, Errors.GROUP_ID_NOT_FOUND),
        ({"metadata": "x" * 5000}, Errors.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_transactions_of_members_and_others(fields: dict[str, Any], error: Errors) -> None:
    box = GroupBox()
    (a,) = box.stable_group()
    if "member_id" in fields:
        fields["member_id"] = fields["member_id"].format(a=a)
    assert commit_in_transaction(box, {T0: 5}, **fields) == {T0: error}


@pytest.mark.parametrize(("version", "error"), [(5, Errors.ILLEGAL_GENERATION), (6, Errors.STALE_MEMBER_EPOCH)])
def test_a_transaction_of_a_member_that_is_behind(version: int, error: Errors) -> None:
    box = GroupBox()
    box.create_topic("t", 1)
    epoch = box.consumer_heartbeat("m").member_epoch
    for wrong in (epoch + 1, epoch - 1):
        found = commit_in_transaction(box, {T0: 5}, member_id="m", generation=wrong, version=version)
        assert found == {T0: error}


def test_what_a_tombstone_removes_is_gone_from_transactions_too() -> None:
    box = GroupBox()
    commit_in_transaction(box, {T0: 5})
    delete(box, T0)
    box.end_transaction(7, COMMIT)
    assert box.offsets() == {}
    assert box.restarted().shard().offsets.snapshot() == box.shard().offsets.snapshot()


def test_a_marker_for_nothing() -> None:
    box = GroupBox()
    box.end_transaction(99, COMMIT)
    assert box.offsets() == {}


@pytest.mark.parametrize("group_id", ["g" * 32_768, "\N{EURO SIGN}" * 10_923])
def test_a_group_id_that_no_record_can_hold_is_refused(group_id: str) -> None:
    """Such a group stayed in memory, and no offset of any group in its partition expired any more."""
    box = GroupBox({"offsets_retention_ms": 1000, "offsets_retention_check_interval_ms": 500})
    box.commit({("t", 0): 1})
    assert box.join(group_id=group_id).result(0).error_code == Errors.INVALID_GROUP_ID
    assert box.commit({("t", 0): 1}, group_id=group_id) == {("t", 0): Errors.INVALID_GROUP_ID}
    assert box.fetch(None, group_id).error_code == Errors.INVALID_GROUP_ID
    assert box.consumer_heartbeat("m", group_id=group_id).error_code == Errors.INVALID_REQUEST
    assert list(box.shard().store.groups) == ["g"]
    for _ in range(3):
        box.advance(500)
    assert box.offsets() == {}


def test_the_longest_group_id() -> None:
    box = GroupBox({"offsets_retention_ms": 1000, "offsets_retention_check_interval_ms": 500})
    group_id = "g" * 32_767
    assert box.commit({("t", 0): 1}, group_id=group_id) == {("t", 0): Errors.NONE}
    assert box.restarted().offsets(group_id) == {("t", 0): 1}
