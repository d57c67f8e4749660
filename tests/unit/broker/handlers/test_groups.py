"""The handlers of groups and offsets: versions, permissions, and what is hidden."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

import pytest

from barnabas.broker.handlers.groups import GroupsHandler
from barnabas.broker.handlers.offsets import OffsetsHandler
from barnabas.common.errors import (
    Errors,
    GroupAuthorizationError,
    InconsistentGroupProtocolError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
)
from barnabas.metadata.cache import MetadataCache
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from barnabas.security.auth_helper import AuthHelper
from group_fixtures import GroupBox, subscription
from handler_fixtures import HandlerBench
from unit.broker.handlers.data_bench import ALICE, acls
from unit.metadata.samples import uid

READ, WRITE, DESCRIBE, DELETE = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.DELETE,
)
GROUP, TOPIC, TXN, CLUSTER = (
    ResourceType.GROUP,
    ResourceType.TOPIC,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.CLUSTER,
)


class World:
    """Both handlers over a coordinator on a bench, with the topics t (2 partitions) and u (1)."""

    def __init__(self, *rules: tuple[AclOperation, ResourceType, str], secured: bool = False) -> None:
        self.box = GroupBox()
        self.t = self.box.create_topic("t", 2)
        self.u = self.box.create_topic("u", 1)
        cache = MetadataCache()
        cache.set_image(self.box.image)
        self.bench = HandlerBench()
        auth = acls(*rules) if rules or secured else AuthHelper()
        self.groups = GroupsHandler(self.bench.helper, auth, self.box.service)
        self.offsets = OffsetsHandler(self.bench.helper, auth, cache, self.box.service)

    def ask(self, body: Any, version: int) -> Any:
        family = self.offsets if "Offset" in type(body).__name__ else self.groups
        return self.bench.ask(family, body, version, principal=ALICE)


def commit(world: World, *topics: tuple[str, int, int], version: int = 9, **fields: Any) -> dict[Any, Errors]:
    by_id = version >= 10
    body = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                **({"topic_id": name} if by_id else {"name": name}),  # type: ignore[arg-type]
                partitions=[
                    OffsetCommitRequestPartition(partition_index=number, committed_offset=offset, committed_metadata="")
                ],
            )
            for name, number, offset in topics
        ],
        **fields,
    )
    answer = world.ask(body, version)
    return {
        (topic.topic_id if by_id else topic.name, one.partition_index): Errors.for_code(one.error_code)
        for topic in answer.topics
        for one in topic.partitions
    }


def fetch(world: World, topics: Iterable[tuple[str, int]] | None, version: int = 9, group: str = "g") -> Any:
    if version < 8:
        asked = (
            None
            if topics is None
            else [OffsetFetchRequestTopic(name=name, partition_indexes=[number]) for name, number in topics]
        )
        return world.ask(OffsetFetchRequest(group_id=group, topics=asked), version)
    named = (
        None
        if topics is None
        else [
            OffsetFetchRequestTopics(
                **({"topic_id": name} if version >= 10 else {"name": name}),  # type: ignore[arg-type]
                partition_indexes=[number],
            )
            for name, number in topics
        ]
    )
    body = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=named)])
    return world.ask(body, version)


def join(world: World, member_id: str = "", version: int = 9, **fields: Any) -> Any:
    body = JoinGroupRequest(
        group_id="g",
        member_id=member_id,
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(["t"]))],
        **fields,
    )
    return world.ask(body, version)


# -- groups


@pytest.mark.mechanism("R09")
@pytest.mark.parametrize("version", range(10))
def test_join_in_all_versions(version: int) -> None:
    world = World()
    answer = join(world, version=version)
    if version >= 4:
        assert answer.error_code == Errors.MEMBER_ID_REQUIRED
        assert answer.protocol_name == (None if version >= 7 else "")
        answer = join(world, answer.member_id, version)
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, answer.member_id)
    member = world.box.group().members[answer.member_id]
    assert member.rebalance_timeout_ms == 10_000, "the session timeout if there is none"
    assert (member.client_id, member.client_host) == ("test", "/127.0.0.1")


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None), (9, None)])
def test_an_empty_protocol_name_is_null_where_it_can_be(version: int, name: str | None) -> None:
    body = JoinGroupRequest(
        group_id="g",
        group_instance_id="i",
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="", metadata=b"")],
    )
    answer = World().ask(body, version)
    assert (answer.error_code, answer.protocol_name) == (0, name)


@pytest.mark.parametrize("version", range(6))
def test_sync_in_all_versions(version: int) -> None:
    world = World()
    member = join(world, version=3).member_id
    body = SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id=member,
        assignments=[SyncGroupRequestAssignment(member_id=member, assignment=b"x")],
    )
    if version >= 5:
        for body.protocol_type, body.protocol_name in ((None, None), ("consumer", None), (None, "range")):
            with pytest.raises(InconsistentGroupProtocolError):
                world.ask(body, version)
        body.protocol_type, body.protocol_name = "consumer", "range"
    assert world.ask(body, version).assignment == b"x"


def test_a_response_that_has_to_wait() -> None:
    world = World()
    world.box.stable_group()
    handler: Any = world.groups.join_group
    body = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    request = world.bench.request(body, 3)
    future: Future[Any] = handler(request, world.bench.local)
    assert not world.bench.is_answered(request)
    world.box.advance(60_000)
    assert future.result(0) is None
    assert world.bench.answer(request).generation_id == 2


@pytest.mark.parametrize("version", range(5))
def test_heartbeat_in_all_versions(version: int) -> None:
    world = World()
    member = join(world, version=3).member_id
    body = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
    assert world.ask(body, version).error_code == 0
    body.generation_id = 7
    assert world.ask(body, version).error_code == Errors.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", range(6))
def test_leave_in_all_versions(version: int) -> None:
    world = World()
    member = join(world, version=3).member_id

    def leave(member_id: str, group_id: str = "g") -> Any:
        if version < 3:
            return world.ask(LeaveGroupRequest(group_id=group_id, member_id=member_id), version)
        return world.ask(LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id=member_id)]), version)

    for wrong in (leave("who"), leave(member, "none")):
        errors = [wrong.error_code, *(one.error_code for one in wrong.members)]
        assert errors == ([Errors.UNKNOWN_MEMBER_ID] if version < 3 else [0, Errors.UNKNOWN_MEMBER_ID])
    right = leave(member)
    assert right.error_code == 0
    assert world.box.state() == "Empty"


@pytest.mark.parametrize(("version", "error"), [(0, 0), (5, 0), (6, Errors.GROUP_ID_NOT_FOUND)])
def test_describe_in_all_versions(version: int, error: int) -> None:
    world = World()
    world.box.stable_group()
    answer = world.ask(DescribeGroupsRequest(groups=["g", "none"]), version)
    there, missing = answer.groups
    assert (there.group_state, there.protocol_data, len(there.members)) == ("Stable", "range", 1)
    assert (missing.group_state, missing.error_code) == ("Dead", error)


@pytest.mark.parametrize("version", range(6))
def test_list_in_all_versions(version: int) -> None:
    world = World()
    world.box.stable_group()
    (listed,) = world.ask(ListGroupsRequest(), version).groups
    assert (listed.group_id, listed.protocol_type) == ("g", "consumer")
    if version >= 5:
        assert (listed.group_state, listed.group_type) == ("Stable", "classic")


@pytest.mark.parametrize("version", range(4))
def test_delete_in_all_versions(version: int) -> None:
    world = World()
    world.box.commit({("t", 0): 1})
    answer = world.ask(DeleteGroupsRequest(groups_names=["g", "none", "g"]), version)
    assert {one.group_id: one.error_code for one in answer.results} == {"g": 0, "none": Errors.GROUP_ID_NOT_FOUND}


@pytest.mark.parametrize("version", [0, 1])
def test_consumer_groups_in_all_versions(version: int) -> None:
    world = World()
    body = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    answer = world.ask(body, version)
    assert (answer.error_code, answer.member_epoch) == (0, 2)
    (group,) = world.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), version).groups
    assert (group.group_state, group.members[0].client_host) == ("Stable", "/127.0.0.1")


def requests_on_groups() -> list[tuple[Any, int, AclOperation]]:
    return [
        (JoinGroupRequest(group_id="g"), 9, READ),
        (SyncGroupRequest(group_id="g", protocol_type="consumer", protocol_name="range"), 5, READ),
        (HeartbeatRequest(group_id="g"), 4, READ),
        (LeaveGroupRequest(group_id="g"), 5, READ),
        (ConsumerGroupHeartbeatRequest(group_id="g"), 1, READ),
        (OffsetCommitRequest(group_id="g"), 9, READ),
        (OffsetDeleteRequest(group_id="g"), 0, DELETE),
    ]


@pytest.mark.parametrize(("body", "version", "operation"), requests_on_groups())
def test_what_takes_a_permission_on_the_group(body: Any, version: int, operation: AclOperation) -> None:
    with pytest.raises(GroupAuthorizationError):
        World(secured=True).ask(body, version)
    with pytest.raises(GroupAuthorizationError):
        World((operation, GROUP, "other")).ask(body, version)
    World((operation, GROUP, "g")).ask(body, version)


def test_groups_that_may_not_be_described_or_deleted() -> None:
    world = World((DESCRIBE, GROUP, "g"), (DELETE, GROUP, "h"))
    described = world.ask(DescribeGroupsRequest(groups=["g", "h"], include_authorized_operations=True), 5).groups
    # Who may delete a group may describe it as well.
    assert {one.group_id: one.error_code for one in described} == {"g": 0, "h": 0}
    assert {one.group_id: one.authorized_operations for one in described} == {
        "g": 1 << DESCRIBE,
        "h": 1 << DESCRIBE | 1 << DELETE,
    }
    refused = world.ask(DescribeGroupsRequest(groups=["x"]), 5).groups
    assert refused[0].error_code == Errors.GROUP_AUTHORIZATION_FAILED
    deleted = world.ask(DeleteGroupsRequest(groups_names=["g", "h"]), 2).results
    assert {one.group_id: one.error_code for one in deleted} == {
        "g": Errors.GROUP_AUTHORIZATION_FAILED,
        "h": Errors.GROUP_ID_NOT_FOUND,
    }


def test_lists_show_what_may_be_described() -> None:
    for rules, shown in (
        (((DESCRIBE, GROUP, "g"),), {"g"}),
        (((DESCRIBE, CLUSTER, CLUSTER_NAME),), {"g", "h"}),
        (((DESCRIBE, GROUP, "x"),), set()),
    ):
        world = World(*rules)
        world.box.commit({("t", 0): 1}, "g")
        world.box.commit({("t", 0): 1}, "h")
        assert {one.group_id for one in world.ask(ListGroupsRequest(), 5).groups} == shown


def test_a_consumer_group_does_not_give_topics_away() -> None:
    world = World((READ, GROUP, "g"), (DESCRIBE, TOPIC, "t"))
    body = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t", "u"],
        topic_partitions=[],
    )
    with pytest.raises(TopicAuthorizationError):
        world.ask(body, 1)
    body.subscribed_topic_names = ["t"]
    assert world.ask(body, 1).error_code == 0
    world.box.consumer_heartbeat("other", topics=["u"])
    (group,) = world.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups
    assert (group.error_code, group.members) == (Errors.TOPIC_AUTHORIZATION_FAILED, [])


# -- offsets


@pytest.mark.mechanism("R09")
@pytest.mark.parametrize("version", range(2, 11))
def test_commit_in_all_versions(version: int) -> None:
    world = World()
    name: Any = world.t if version >= 10 else "t"
    assert commit(world, (name, 0, 5), version=version) == {(name, 0): Errors.NONE}
    assert world.box.offsets() == {("t", 0): 5}


def test_commits_for_what_is_not_there() -> None:
    world = World()
    assert commit(world, ("t", 0, 5), ("t", 2, 5), ("none", 0, 5)) == {
        ("t", 0): Errors.NONE,
        ("t", 2): Errors.UNKNOWN_TOPIC_OR_PARTITION,
        ("none", 0): Errors.UNKNOWN_TOPIC_OR_PARTITION,
    }
    unknown: Any = uid(99)
    assert commit(world, (unknown, 0, 5), version=10) == {(unknown, 0): Errors.UNKNOWN_TOPIC_ID}
    assert world.box.offsets() == {("t", 0): 5}


def test_commits_for_topics_that_may_not_be_read() -> None:
    world = World((READ, GROUP, "g"), (READ, TOPIC, "t"))
    assert commit(world, ("t", 0, 5), ("u", 0, 5), ("none", 0, 5)) == {
        ("t", 0): Errors.NONE,
        ("u", 0): Errors.TOPIC_AUTHORIZATION_FAILED,
        ("none", 0): Errors.TOPIC_AUTHORIZATION_FAILED,
    }


@pytest.mark.parametrize("version", range(7))
def test_commits_in_transactions(version: int) -> None:
    world = World()
    by_id = version >= 6

    def body(name: Any) -> TxnOffsetCommitRequest:
        return TxnOffsetCommitRequest(
            transactional_id="txn",
            group_id="g",
            producer_id=7,
            producer_epoch=0,
            topics=[
                TxnOffsetCommitRequestTopic(
                    **({"topic_id": name} if by_id else {"name": name}),
                    partitions=[
                        TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
                    ],
                )
            ],
        )

    answer = world.ask(body(world.t if by_id else "t"), version)
    assert answer.topics[0].partitions[0].error_code == 0
    missing = world.ask(body(uid(99) if by_id else "none"), version)
    assert missing.topics[0].partitions[0].error_code == (
        Errors.UNKNOWN_TOPIC_ID if by_id else Errors.UNKNOWN_TOPIC_OR_PARTITION
    )
    assert world.box.offsets() == {}
    for rules in ([(READ, GROUP, "g")], [(WRITE, TXN, "txn")]):
        with pytest.raises((GroupAuthorizationError, TransactionalIdAuthorizationError)):
            World(*rules).ask(body(world.t if by_id else "t"), version)


@pytest.mark.parametrize("version", range(1, 11))
def test_fetch_in_all_versions(version: int) -> None:
    world = World()
    world.box.commit({("t", 1): 5}, metadata="m")
    name: Any = world.t if version >= 10 else "t"
    answer = fetch(world, [(name, 1), (name, 0)], version)
    topics = answer.groups[0].topics if version >= 8 else answer.topics
    found = {one.partition_index: (one.committed_offset, one.metadata) for topic in topics for one in topic.partitions}
    assert found == {1: (5, "m"), 0: (-1, "")}
    if version >= 2:
        everything = fetch(world, None, version)
        topics = everything.groups[0].topics if version >= 8 else everything.topics
        assert [one.partition_index for topic in topics for one in topic.partitions] == [1]


def test_fetches_of_several_groups() -> None:
    world = World((DESCRIBE, GROUP, "g"), (DESCRIBE, TOPIC, "t"))
    world.box.commit({("t", 0): 5, ("u", 0): 6})
    body = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id="g",
                topics=[
                    OffsetFetchRequestTopics(name="t", partition_indexes=[0]),
                    OffsetFetchRequestTopics(name="u", partition_indexes=[0]),
                ],
            ),
            OffsetFetchRequestGroup(group_id="g", topics=None),
            OffsetFetchRequestGroup(group_id="h", topics=None),
        ]
    )
    named, everything, denied = world.ask(body, 8).groups
    assert {topic.name: topic.partitions[0].error_code for topic in named.topics} == {
        "t": 0,
        "u": Errors.TOPIC_AUTHORIZATION_FAILED,
    }
    assert [topic.name for topic in everything.topics] == ["t"], "the other is not mentioned"
    assert denied.error_code == Errors.GROUP_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", [1, 2, 7, 8])
def test_a_fetch_while_the_coordinator_is_away(version: int) -> None:
    world = World()
    world.box.bench.runtime.schedule_unload_operation(world.box.partition(), None)
    answer = fetch(world, [("t", 0)], version)
    if version == 1:
        error = answer.topics[0].partitions[0].error_code
    elif version < 8:
        error = answer.error_code
    else:
        error = answer.groups[0].error_code
    assert error == Errors.NOT_COORDINATOR


def test_a_fetch_by_id_of_a_topic_that_is_not_there() -> None:
    world = World()
    unknown: Any = uid(99)
    answer = fetch(world, [(unknown, 0)], 10)
    assert answer.groups[0].topics[0].partitions[0].error_code == Errors.UNKNOWN_TOPIC_ID


def test_offset_delete() -> None:
    world = World()
    world.box.commit({("t", 0): 5})
    body = OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
            for name in ("t", "none")
        ],
    )
    answer = world.ask(body, 0)
    assert {topic.name: topic.partitions[0].error_code for topic in answer.topics} == {
        "t": 0,
        "none": Errors.UNKNOWN_TOPIC_OR_PARTITION,
    }
    body.group_id = "other"
    assert world.ask(body, 0).error_code == Errors.GROUP_ID_NOT_FOUND
