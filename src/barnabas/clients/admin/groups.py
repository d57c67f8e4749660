"""Groups: list, describe and delete groups, and remove members."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

from barnabas.clients.admin.internals.admin_api_driver import (
    GROUP_MOVED,
    Coordinators,
    CoordinatorType,
    Handler,
    Outcome,
    error_of,
    run_keyed,
)
from barnabas.clients.admin.internals.node_choice import ANY, Broker
from barnabas.clients.admin.internals.operation import Operation
from barnabas.clients.admin.internals.steps import together
from barnabas.clients.admin.results import Results
from barnabas.clients.admin.topics import operations_of
from barnabas.common.errors import (
    ApiError,
    GroupIdNotFoundError,
    ProtocolError,
    UnknownMemberIdError,
    UnsupportedVersionError,
    raise_for_code,
)
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.node import Node
from barnabas.protocol.messages import consumer_group_describe as consumer_api
from barnabas.protocol.messages import describe_groups as classic_api
from barnabas.protocol.messages import leave_group as leave_api
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.versions import VersionRange
from barnabas.security.acl import AclOperation

S = TypeVar("S", bound=StrEnum)

_CONSUMER_PROTOCOL: Final = "consumer"
_STATES: Final = VersionRange(4, 5)
"""The versions of ListGroups that can select by state, and ..."""
_TYPES: Final = VersionRange(5, 5)
"""... by type."""
_MEMBERS: Final = VersionRange(3, 5)
"""The versions of LeaveGroup that can remove several members, and static ones."""
_NEWEST_ASSIGNMENT: Final = 3
_REASON: Final = "member was removed by an admin"


class GroupType(StrEnum):
    """The protocol of a group."""

    UNKNOWN = "Unknown"
    CLASSIC = "Classic"
    CONSUMER = "Consumer"
    SHARE = "Share"
    STREAMS = "Streams"


class GroupState(StrEnum):
    """The states of a group."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """An existing group."""

    group_id: str
    type: GroupType
    protocol_type: str
    """The kind of its members: "consumer" for consumers, empty for groups that only have offsets."""
    state: GroupState

    @property
    def is_simple_consumer_group(self) -> bool:
        """Whether the group only has offsets, committed by a client that is not a member."""
        return self.type is GroupType.CLASSIC and not self.protocol_type


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group, and its assignment."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: frozenset[TopicPartition]
    rack_id: str | None = None
    target_assignment: frozenset[TopicPartition] | None = None
    """Its assignment once others have given up partitions; groups of the consumer protocol only (KIP-848)."""
    member_epoch: int | None = None
    subscribed_topics: tuple[str, ...] = ()
    subscribed_regex: str | None = None
    upgraded: bool | None = None
    """Whether it uses the consumer protocol in such a group; None if the broker does not report it."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members."""

    group_id: str
    type: GroupType
    state: GroupState
    protocol_type: str
    partition_assignor: str
    members: tuple[MemberDescription, ...]
    coordinator: Node
    group_epoch: int | None = None
    target_assignment_epoch: int | None = None
    authorized_operations: frozenset[AclOperation] | None = None

    @property
    def is_simple_consumer_group(self) -> bool:
        """Whether it only has offsets, committed by a client that is no member."""
        return self.type is GroupType.CLASSIC and not self.protocol_type


def _of(kind: type[S], text: str) -> S:
    """Parses Kafka's name in any case; UNKNOWN for values of later Kafka versions."""
    for member in kind:
        if member.value.lower() == text.lower():
            return member
    return kind("Unknown")


async def list_groups(
    operation: Operation,
    *,
    states: Iterable[GroupState | str] = (),
    types: Iterable[GroupType | str] = (),
    protocol_types: Iterable[str] | None = None,
) -> list[GroupListing]:
    """Lists all groups, or those with these states, types and protocol types.

    A coordinator only knows its own groups, so every broker is asked.
    """
    wanted_states, wanted_types = [str(one) for one in states], [str(one) for one in types]
    request = ListGroupsRequest(states_filter=wanted_states, types_filter=wanted_types)
    versions = _TYPES if wanted_types else _STATES if wanted_states else None

    def read(response: ListGroupsResponse) -> list[GroupListing]:
        raise_for_code(response.error_code)
        return [
            GroupListing(
                row.group_id,
                # Before KIP-848 there was just one type, which was not reported.
                _of(GroupType, row.group_type) if row.group_type else GroupType.CLASSIC,
                row.protocol_type,
                _of(GroupState, row.group_state),
            )
            for row in response.groups
        ]

    brokers = await broker_ids(operation)
    listed = await together(*(operation.ask(Broker(one), request, read, versions) for one in brokers))
    # After a move, both coordinators may list the group.
    found = {listing.group_id: listing for part in listed for listing in part}
    kinds = None if protocol_types is None else set(protocol_types)
    return [found[group_id] for group_id in sorted(found) if kinds is None or found[group_id].protocol_type in kinds]


async def broker_ids(operation: Operation) -> list[int]:
    """Returns the ids of all current brokers."""

    def read(response: MetadataResponse) -> list[int]:
        return sorted(one.node_id for one in response.brokers)

    return await operation.ask(ANY, MetadataRequest(topics=[], allow_auto_topic_creation=False), read)


async def _nodes(operation: Operation) -> dict[int, Node]:
    def read(response: MetadataResponse) -> dict[int, Node]:
        return {one.node_id: Node(one.node_id, one.host, one.port, one.rack) for one in response.brokers}

    return await operation.ask(ANY, MetadataRequest(topics=[], allow_auto_topic_creation=False), read)


async def describe_groups(
    operation: Operation,
    group_ids: Iterable[str],
    *,
    include_authorized_operations: bool = False,
    partial: bool = False,
) -> Results[str, GroupDescription]:
    """Returns groups with their members, of the classic and of the consumer protocol.

    The coordinator is asked for a group of the consumer protocol first, and for a classic one if the group is not of
    that protocol or the broker does not support it.
    """
    ids = list(dict.fromkeys(group_ids))
    nodes = await _nodes(operation)
    coordinators = Coordinators(CoordinatorType.GROUP)

    def build_consumer(_broker: int, keys: Sequence[str]) -> consumer_api.ConsumerGroupDescribeRequest:
        return consumer_api.ConsumerGroupDescribeRequest(
            group_ids=list(keys), include_authorized_operations=include_authorized_operations
        )

    def read_consumer(
        broker: int, _keys: Sequence[str], response: consumer_api.ConsumerGroupDescribeResponse
    ) -> Outcome[str, GroupDescription]:
        outcome: Outcome[str, GroupDescription] = Outcome()
        for row in response.groups:
            if outcome.settle(row.group_id, row.error_code, row.error_message, moved=GROUP_MOVED):
                outcome.completed[row.group_id] = _consumer_group(row, nodes.get(broker) or Node(broker, "", -1))
        return outcome

    def build_classic(_broker: int, keys: Sequence[str]) -> classic_api.DescribeGroupsRequest:
        return classic_api.DescribeGroupsRequest(
            groups=list(keys), include_authorized_operations=include_authorized_operations
        )

    def read_classic(
        broker: int, _keys: Sequence[str], response: classic_api.DescribeGroupsResponse
    ) -> Outcome[str, GroupDescription]:
        outcome: Outcome[str, GroupDescription] = Outcome()
        for row in response.groups:
            if outcome.settle(row.group_id, row.error_code, row.error_message, moved=GROUP_MOVED):
                outcome.completed[row.group_id] = _classic_group(row, nodes.get(broker) or Node(broker, "", -1))
        return outcome

    newer = await run_keyed(operation, ids, Handler(build_consumer, read_consumer, coordinators))
    others = [
        group_id
        for group_id, error in newer.errors.items()
        if isinstance(error, GroupIdNotFoundError | UnsupportedVersionError)
    ]
    older = await run_keyed(operation, others, Handler(build_classic, read_classic, coordinators))
    found = {**newer, **older}
    failed = {**newer.errors, **older.errors}
    return Results(
        {one: found[one] for one in ids if one in found}, {one: failed[one] for one in ids if one not in found}
    ).checked(partial)


def _consumer_group(row: consumer_api.DescribedGroup, coordinator: Node) -> GroupDescription:
    return GroupDescription(
        row.group_id,
        GroupType.CONSUMER,
        _of(GroupState, row.group_state),
        _CONSUMER_PROTOCOL,
        row.assignor_name,
        tuple(
            MemberDescription(
                one.member_id,
                one.instance_id,
                one.client_id,
                one.client_host,
                _partitions(one.assignment.topic_partitions),
                one.rack_id,
                _partitions(one.target_assignment.topic_partitions),
                one.member_epoch,
                tuple(one.subscribed_topic_names),
                one.subscribed_topic_regex,
                {0: False, 1: True}.get(one.member_type),
            )
            for one in row.members
        ),
        coordinator,
        row.group_epoch,
        row.assignment_epoch,
        operations_of(row.authorized_operations),
    )


def _partitions(topics: Iterable[consumer_api.TopicPartitions]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic.topic_name, index) for topic in topics for index in topic.partitions)


def _classic_group(row: classic_api.DescribedGroup, coordinator: Node) -> GroupDescription:
    is_consumer = row.protocol_type in {_CONSUMER_PROTOCOL, ""}
    return GroupDescription(
        row.group_id,
        GroupType.CLASSIC,
        _of(GroupState, row.group_state),
        row.protocol_type,
        row.protocol_data,
        tuple(
            MemberDescription(
                one.member_id,
                one.group_instance_id,
                one.client_id,
                one.client_host,
                read_assignment(bytes(one.member_assignment)) if is_consumer else frozenset(),
            )
            for one in row.members
        ),
        coordinator,
        authorized_operations=operations_of(row.authorized_operations),
    )


def read_assignment(data: bytes) -> frozenset[TopicPartition]:
    """Decodes a classic member's assignment, which its leader wrote and brokers do not read."""
    if len(data) < 2:
        return frozenset()
    (version,) = struct.unpack_from(">h", data)
    try:
        # Later versions only add fields at the end.
        assignment, _ = ConsumerProtocolAssignment.decode_from(data, min(max(version, 0), _NEWEST_ASSIGNMENT), 2)
    except ProtocolError:
        return frozenset()  # another kind of client, with its own format
    return frozenset(
        TopicPartition(topic.topic, index) for topic in assignment.assigned_partitions for index in topic.partitions
    )


async def delete_groups(operation: Operation, group_ids: Iterable[str], *, partial: bool = False) -> Results[str, None]:
    """Deletes groups that have no members, with their offsets."""

    def build(_broker: int, keys: Sequence[str]) -> DeleteGroupsRequest:
        return DeleteGroupsRequest(groups_names=list(keys))

    def read(_broker: int, _keys: Sequence[str], response: DeleteGroupsResponse) -> Outcome[str, None]:
        outcome: Outcome[str, None] = Outcome()
        for row in response.results:
            if outcome.settle(row.group_id, row.error_code, row.error_message, moved=GROUP_MOVED):
                outcome.completed[row.group_id] = None
        return outcome

    handler = Handler(build, read, Coordinators(CoordinatorType.GROUP))
    return (await run_keyed(operation, group_ids, handler)).checked(partial)


@dataclass(frozen=True, slots=True)
class MemberToRemove:
    """A static member by its instance id, or any by its member id."""

    group_instance_id: str | None = None
    member_id: str = ""

    def __str__(self) -> str:
        return self.group_instance_id or self.member_id


async def remove_members(
    operation: Operation,
    group_id: str,
    members: Iterable[MemberToRemove] | None = None,
    *,
    reason: str = _REASON,
    partial: bool = False,
) -> Results[MemberToRemove, None]:
    """Removes members from a classic group; by default all. Their partitions go to the others."""
    if members is None:
        described = (await describe_groups(operation, [group_id]))[group_id]
        members = [
            MemberToRemove(one.group_instance_id, "" if one.group_instance_id else one.member_id)
            for one in described.members
        ]
    wanted = list(dict.fromkeys(members))
    if not wanted:
        return Results({})

    def build(_broker: int, _keys: Sequence[str]) -> leave_api.LeaveGroupRequest:
        return leave_api.LeaveGroupRequest(
            group_id=group_id,
            members=[
                leave_api.MemberIdentity(
                    member_id=one.member_id, group_instance_id=one.group_instance_id, reason=reason[:255]
                )
                for one in wanted
            ],
        )

    def read(_broker: int, _keys: Sequence[str], response: Any) -> Outcome[str, leave_api.LeaveGroupResponse]:
        outcome: Outcome[str, leave_api.LeaveGroupResponse] = Outcome()
        if outcome.settle(group_id, response.error_code, moved=GROUP_MOVED):
            outcome.completed[group_id] = response
        return outcome

    handler = Handler(build, read, Coordinators(CoordinatorType.GROUP), allowed_versions=_MEMBERS)
    response = (await run_keyed(operation, [group_id], handler)).checked()[group_id]
    rows = {
        (row.group_instance_id or "", "" if row.group_instance_id else row.member_id): row for row in response.members
    }
    failed: dict[MemberToRemove, ApiError] = {}
    for one in wanted:
        row = rows.get((one.group_instance_id or "", "" if one.group_instance_id else one.member_id))
        error = UnknownMemberIdError() if row is None else error_of(row.error_code)
        if error is not None:
            failed[one] = error
    return Results({one: None for one in wanted if one not in failed}, failed).checked(partial)
