"""Topics: create, list, describe and delete them, and add partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from barnabas.clients.admin.internals.admin_api_driver import error_of
from barnabas.clients.admin.internals.node_choice import ANY, CONTROLLER
from barnabas.clients.admin.internals.operation import Operation
from barnabas.clients.admin.results import Results
from barnabas.common.errors import (
    ApiError,
    Errors,
    InvalidTopicError,
    NotControllerError,
    ThrottlingQuotaExceededError,
    UnknownServerError,
    UnsupportedVersionError,
)
from barnabas.common.identifiers import ZERO_UUID, Uuid, uuid_to_string
from barnabas.network.client.node import Node
from barnabas.protocol.messages import create_partitions as partitions_api
from barnabas.protocol.messages import create_topics as create_api
from barnabas.protocol.messages import delete_topics as delete_api
from barnabas.protocol.messages import describe_topic_partitions as describe_api
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.versions import VersionRange
from barnabas.security.acl import AclOperation, from_bit_field

T = TypeVar("T")
V = TypeVar("V")

_NO_OPERATIONS: Final = -(2**31)
_STATES: Final = VersionRange(6, 6)
"""The versions of DeleteTopics that name a topic by name or by id, Kafka 2.8 and later."""
_METADATA_TOPIC_IDS: Final = VersionRange(12, 13)
_PARTITION_LIMIT: Final = 2_000


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. The broker has defaults for the number of partitions and replicas."""

    name: str
    num_partitions: int | None = None
    replication_factor: int | None = None
    replicas_assignments: Mapping[int, Sequence[int]] | None = None
    """The replicas of each partition, the preferred leader first; replaces the two numbers."""
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A created topic."""

    name: str
    topic_id: str
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str | None]
    """Empty if the principal may not see it."""


@dataclass(frozen=True, slots=True)
class TopicListing:
    """An existing topic."""

    name: str
    topic_id: str
    is_internal: bool


@dataclass(frozen=True, slots=True)
class TopicPartitionInfo:
    """A partition and its replicas."""

    partition: int
    leader: Node | None
    leader_epoch: int
    replicas: tuple[Node, ...]
    isr: tuple[Node, ...]
    eligible_leader_replicas: tuple[Node, ...] = ()
    """Replicas that left the ISR when it was at its minimum size, so they have all committed records (KIP-966)."""
    last_known_elr: tuple[Node, ...] = ()
    offline_replicas: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its partitions, by number."""

    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[TopicPartitionInfo, ...]
    authorized_operations: frozenset[AclOperation] | None = None
    """The operations this principal may do; None if not requested or unknown."""


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The new total number of partitions of a topic, and the replicas of the new ones."""

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None


def operations_of(field_value: int) -> frozenset[AclOperation] | None:
    """Decodes the operations of a bit field; None if they were not reported."""
    return None if field_value == _NO_OPERATIONS else frozenset(from_bit_field(field_value))


async def create_topics(
    operation: Operation,
    topics: Iterable[NewTopic | str],
    *,
    validate_only: bool = False,
    retry_on_quota_violation: bool = True,
    partial: bool = False,
) -> Results[str, CreatedTopic]:
    """Creates topics; with ``validate_only`` it only checks whether they could be created."""
    wanted = {topic.name: topic for topic in (NewTopic(one) if isinstance(one, str) else one for one in topics)}

    def request(names: list[str]) -> create_api.CreateTopicsRequest:
        return create_api.CreateTopicsRequest(
            topics=[_creatable(wanted[name]) for name in names],
            timeout_ms=operation.remaining_ms,
            validate_only=validate_only,
        )

    def read(response: create_api.CreateTopicsResponse) -> Iterable[tuple[str, int, str | None, CreatedTopic]]:
        for row in response.topics:
            configs = {config.name: config.value for config in row.configs or ()}
            made = CreatedTopic(
                row.name, uuid_to_string(row.topic_id), row.num_partitions, row.replication_factor, configs
            )
            yield row.name, row.error_code, row.error_message, made

    return (await _change(operation, list(wanted), request, read, retry_on_quota_violation)).checked(partial)


def _creatable(topic: NewTopic) -> create_api.CreatableTopic:
    assignments = topic.replicas_assignments
    if assignments is not None and (topic.num_partitions is not None or topic.replication_factor is not None):
        raise ValueError(
            f"{topic.name}: with replicas_assignments, there can be no num_partitions or replication_factor"
        )
    return create_api.CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.num_partitions is None else topic.num_partitions,
        replication_factor=-1 if topic.replication_factor is None else topic.replication_factor,
        assignments=[
            create_api.CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in (assignments or {}).items()
        ],
        configs=[create_api.CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


async def delete_topics(
    operation: Operation, topics: Iterable[str], *, retry_on_quota_violation: bool = True, partial: bool = False
) -> Results[str, None]:
    """Deletes topics with their records."""

    def request(names: list[str]) -> delete_api.DeleteTopicsRequest:
        return delete_api.DeleteTopicsRequest(
            topics=[delete_api.DeleteTopicState(name=name) for name in names],
            timeout_ms=operation.remaining_ms,
        )

    def read(response: delete_api.DeleteTopicsResponse) -> Iterable[tuple[str, int, str | None, None]]:
        return ((row.name or "", row.error_code, row.error_message, None) for row in response.responses)

    names = list(dict.fromkeys(topics))
    return (await _change(operation, names, request, read, retry_on_quota_violation, _STATES)).checked(partial)


async def delete_topics_by_id(
    operation: Operation, topic_ids: Iterable[Uuid], *, retry_on_quota_violation: bool = True, partial: bool = False
) -> Results[Uuid, None]:
    """Deletes topics by id, so that a recreated topic of the same name is not affected."""

    def request(ids: list[Uuid]) -> delete_api.DeleteTopicsRequest:
        return delete_api.DeleteTopicsRequest(
            topics=[delete_api.DeleteTopicState(name=None, topic_id=one) for one in ids],
            timeout_ms=operation.remaining_ms,
        )

    def read(response: delete_api.DeleteTopicsResponse) -> Iterable[tuple[Uuid, int, str | None, None]]:
        return ((row.topic_id, row.error_code, row.error_message, None) for row in response.responses)

    ids = list(dict.fromkeys(topic_ids))
    return (await _change(operation, ids, request, read, retry_on_quota_violation, _STATES)).checked(partial)


async def create_partitions(
    operation: Operation,
    new_partitions: Mapping[str, NewPartitions | int],
    *,
    validate_only: bool = False,
    retry_on_quota_violation: bool = True,
    partial: bool = False,
) -> Results[str, None]:
    """Adds partitions to topics. A number is the new total."""
    wanted = {name: NewPartitions(value) if isinstance(value, int) else value for name, value in new_partitions.items()}

    def topic(name: str) -> partitions_api.CreatePartitionsTopic:
        assignments = wanted[name].new_assignments
        return partitions_api.CreatePartitionsTopic(
            name=name,
            count=wanted[name].total_count,
            assignments=None
            if assignments is None
            else [partitions_api.CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in assignments],
        )

    def request(names: list[str]) -> partitions_api.CreatePartitionsRequest:
        return partitions_api.CreatePartitionsRequest(
            topics=[topic(name) for name in names], timeout_ms=operation.remaining_ms, validate_only=validate_only
        )

    def read(response: partitions_api.CreatePartitionsResponse) -> Iterable[tuple[str, int, str | None, None]]:
        return ((row.name, row.error_code, row.error_message, None) for row in response.results)

    return (await _change(operation, list(wanted), request, read, retry_on_quota_violation)).checked(partial)


async def _change(
    operation: Operation,
    keys: list[T],
    make_request: Callable[[list[T]], Any],
    read: Callable[[Any], Iterable[tuple[T, int, str | None, V]]],
    retry_on_quota_violation: bool,
    allowed_versions: VersionRange | None = None,
) -> Results[T, V]:
    """Requests a change of each topic from the controller.

    A topic that exceeds the quota of changes (KIP-599) is retried, by itself, after the throttle time of the response;
    until then this client and the broker mute the connection.
    """
    completed: dict[T, V] = {}
    failed: dict[T, ApiError] = {}

    async def attempt(asked: list[T]) -> list[T]:
        """Returns the keys to retry."""

        def take(response: Any) -> list[T]:
            rows = list(read(response))
            for _, code, message, _ in rows:
                if code == Errors.NOT_CONTROLLER:
                    raise NotControllerError(message)  # the whole request went to the wrong broker
            held_back: list[T] = []
            for key, code, message, value in rows:
                error = error_of(code, message)
                if error is None:
                    completed[key] = value
                    continue
                failed[key] = error
                if isinstance(error, ThrottlingQuotaExceededError) and retry_on_quota_violation:
                    held_back.append(key)
            included = {row[0] for row in rows}
            for key in asked:
                if key not in included:
                    failed[key] = UnknownServerError(f"The controller's response does not include {key}.")
            return held_back

        return await operation.ask(CONTROLLER, lambda: make_request(asked), take, allowed_versions)

    attempts = 0
    open_keys = list(keys)
    while open_keys:
        for key in open_keys:
            failed.pop(key, None)
        open_keys = await attempt(open_keys)
        if open_keys:
            try:
                await operation.back_off(attempts, failed[open_keys[0]])
            except ApiError:
                break  # they fail with their last error
            attempts += 1
    return Results(completed, {key: failed[key] for key in keys if key in failed})


async def list_topics(operation: Operation, *, list_internal: bool = False) -> dict[str, TopicListing]:
    """Returns all topics, by name."""

    def read(response: MetadataResponse) -> dict[str, TopicListing]:
        return {
            topic.name: TopicListing(topic.name, uuid_to_string(topic.topic_id), topic.is_internal)
            for topic in sorted(response.topics, key=lambda topic: topic.name or "")
            if topic.name is not None and (list_internal or not topic.is_internal)
        }

    return await operation.ask(ANY, MetadataRequest(topics=None, allow_auto_topic_creation=False), read)


async def describe_topics(
    operation: Operation,
    topics: Iterable[str],
    *,
    include_authorized_operations: bool = False,
    partition_size_limit: int = _PARTITION_LIMIT,
    partial: bool = False,
) -> Results[str, TopicDescription]:
    """Returns topics with their partitions.

    They come in pages of ``partition_size_limit`` partitions, which bounds the response for a huge topic; brokers
    without paging send one response. The former always report the authorized operations, the latter on request.
    """
    names = list(dict.fromkeys(topics))
    failed: dict[str, ApiError] = {
        name: InvalidTopicError("The name of a topic must not be empty.") for name in names if not name
    }
    wanted = [name for name in names if name]
    if not wanted:
        return Results({}, failed).checked(partial)
    try:
        found = await _describe_by_pages(operation, wanted, partition_size_limit)
    except UnsupportedVersionError:
        found = await _describe_at_once(operation, wanted, include_authorized_operations)
    failed |= found.errors
    return Results(dict(found), {name: failed[name] for name in names if name in failed}).checked(partial)


async def _nodes(operation: Operation) -> dict[int, Node]:
    def read(response: MetadataResponse) -> dict[int, Node]:
        return {one.node_id: Node(one.node_id, one.host, one.port, one.rack) for one in response.brokers}

    return await operation.ask(ANY, MetadataRequest(topics=[], allow_auto_topic_creation=False), read)


async def _describe_by_pages(operation: Operation, names: list[str], limit: int) -> Results[str, TopicDescription]:
    nodes = await _nodes(operation)
    described: dict[str, TopicDescription] = {}
    failed: dict[str, ApiError] = {}
    rest = sorted(names)
    cursor: describe_api.Cursor | None = None
    while rest:
        request = describe_api.DescribeTopicPartitionsRequest(
            topics=[describe_api.TopicRequest(name=name) for name in rest],
            response_partition_limit=limit,
            cursor=cursor,
        )
        response: describe_api.DescribeTopicPartitionsResponse = await operation.ask(ANY, request, lambda page: page)
        for row in response.topics:
            name = row.name or ""
            error = error_of(row.error_code)
            if error is not None:
                failed[name] = error
                continue
            before = described[name].partitions if name in described else ()
            described[name] = TopicDescription(
                name,
                uuid_to_string(row.topic_id),
                row.is_internal,
                before + tuple(_paged_partition(partition, nodes) for partition in row.partitions),
                operations_of(row.topic_authorized_operations),
            )
        cursor = response.next_cursor
        if cursor is None:
            break
        rest = [name for name in rest if name >= cursor.topic_name]
    return Results({name: described[name] for name in names if name in described}, failed)


def _paged_partition(
    row: describe_api.DescribeTopicPartitionsResponsePartition, nodes: Mapping[int, Node]
) -> TopicPartitionInfo:
    return TopicPartitionInfo(
        row.partition_index,
        _node(row.leader_id, nodes) if row.leader_id >= 0 else None,
        row.leader_epoch,
        *(
            tuple(_node(one, nodes) for one in ids or ())
            for ids in (
                row.replica_nodes,
                row.isr_nodes,
                row.eligible_leader_replicas,
                row.last_known_elr,
                row.offline_replicas,
            )
        ),
    )


def _node(node_id: int, nodes: Mapping[int, Node]) -> Node:
    """Returns a node; one that is down is known only by its id."""
    return nodes.get(node_id) or Node(node_id, "", -1)


async def _describe_at_once(
    operation: Operation, names: list[str], include_authorized_operations: bool
) -> Results[str, TopicDescription]:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=include_authorized_operations,
    )
    response: MetadataResponse = await operation.ask(ANY, request, lambda body: body)
    described, failed = _of_metadata(response)
    return Results(
        {name: described[name] for name in names if name in described},
        {name: failed[name] for name in names if name in failed},
    )


def _of_metadata(response: MetadataResponse) -> tuple[dict[str, TopicDescription], dict[str, ApiError]]:
    nodes = {one.node_id: Node(one.node_id, one.host, one.port, one.rack) for one in response.brokers}
    described: dict[str, TopicDescription] = {}
    failed: dict[str, ApiError] = {}
    for row in response.topics:
        error = error_of(row.error_code)
        if error is not None:
            failed[row.name or ""] = error
            continue
        partitions = tuple(
            TopicPartitionInfo(
                one.partition_index,
                _node(one.leader_id, nodes) if one.leader_id >= 0 else None,
                one.leader_epoch,
                tuple(_node(replica, nodes) for replica in one.replica_nodes),
                tuple(_node(replica, nodes) for replica in one.isr_nodes),
                offline_replicas=tuple(_node(replica, nodes) for replica in one.offline_replicas),
            )
            for one in sorted(row.partitions, key=lambda one: one.partition_index)
        )
        described[row.name or ""] = TopicDescription(
            row.name or "",
            uuid_to_string(row.topic_id),
            row.is_internal,
            partitions,
            operations_of(row.topic_authorized_operations),
        )
    return described, failed


async def describe_topics_by_id(
    operation: Operation, topic_ids: Iterable[Uuid], *, partial: bool = False
) -> Results[Uuid, TopicDescription]:
    """Returns topics by id."""
    ids = list(dict.fromkeys(topic_ids))
    if ZERO_UUID in ids:
        raise InvalidTopicError("A topic ID must not be zero.")
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=None, topic_id=one) for one in ids], allow_auto_topic_creation=False
    )
    response: MetadataResponse = await operation.ask(ANY, request, lambda body: body, _METADATA_TOPIC_IDS)
    by_id = {row.topic_id: row for row in response.topics}
    described: dict[Uuid, TopicDescription] = {}
    failed: dict[Uuid, ApiError] = {}
    for one in ids:
        row = by_id.get(one)
        code = Errors.UNKNOWN_TOPIC_ID if row is None else row.error_code
        error = error_of(code)
        if error is not None:
            failed[one] = error
        else:
            assert row is not None
            described[one] = _of_metadata(response)[0][row.name or ""]
    return Results(described, failed).checked(partial)
