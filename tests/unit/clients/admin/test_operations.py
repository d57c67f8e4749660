"""Whom the admin client asks, when it asks again, and what is left when time is over."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.clients.admin import AdminClientClosedError, NewTopic, OffsetSpec, TopicPartition
from barnabas.clients.admin import configs as config_operations
from barnabas.clients.admin.cluster import describe_cluster
from barnabas.clients.admin.group_offsets import alter_group_offsets
from barnabas.clients.admin.groups import delete_groups, describe_groups
from barnabas.clients.admin.offsets import list_offsets
from barnabas.clients.admin.topics import create_topics, describe_topics, list_topics
from barnabas.clients.testing import Fate, Handled, ScriptedCluster
from barnabas.common.errors import (
    BrokerNotAvailableError,
    CoordinatorLoadInProgressError,
    Errors,
    GroupAuthorizationError,
    KafkaTimeoutError,
    ProtocolError,
    ThrottlingQuotaExceededError,
    UnknownServerError,
    UnsupportedVersionError,
)
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Response
from barnabas.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from barnabas.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from unit.clients.admin.scripted_admin import ScriptedAdmin


@pytest.fixture
def scripted() -> ScriptedAdmin:
    return ScriptedAdmin(
        ScriptedCluster({"orders": 2}, nodes=2), default_api_timeout_ms=10_000, request_timeout_ms=2_000
    )


def deleted(*codes: Errors) -> Callable[[Handled], Response]:
    """A response to DeleteGroups: these codes for its groups, in their order; the last for all that follow."""

    def answer(handled: Handled) -> Response:
        assert isinstance(handled.body, DeleteGroupsRequest)
        names = handled.body.groups_names
        padded = [*codes, *[codes[-1]] * len(names)]
        return DeleteGroupsResponse(
            results=[
                DeletableGroupResult(group_id=name, error_code=code) for name, code in zip(names, padded, strict=False)
            ]
        )

    return answer


def coordinators(**nodes: int) -> Callable[[Handled], Response]:
    def answer(handled: Handled) -> Response:
        assert isinstance(handled.body, FindCoordinatorRequest)
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=nodes[key], host=f"node-{nodes[key]}.test", port=9092)
                for key in handled.body.coordinator_keys
            ]
        )

    return answer


# -- mistakes of the caller


def test_wrong_arguments_fail_their_operation_only(scripted: ScriptedAdmin) -> None:
    wrong = scripted.start(lambda operation: list_topics(operation, nonsense=1))  # type: ignore[call-arg]
    scripted.admin.core.runnable.run_once()  # raises nothing: the thread would end
    with pytest.raises(TypeError, match="nonsense"):
        wrong.result(0)
    assert scripted.run(list_topics) is not None


def test_a_value_that_cannot_be_encoded_fails_its_operation_only(scripted: ScriptedAdmin) -> None:
    wrong = scripted.start(lambda operation: create_topics(operation, [NewTopic("t", num_partitions=2**40)]))
    while not wrong.done():
        scripted.admin.core.runnable.run_once()
    with pytest.raises(ProtocolError, match="num_partitions"):
        wrong.result(0)
    assert scripted.run(list_topics) is not None


# -- keys and their brokers


def test_groups_are_looked_up_together_and_asked_about_by_coordinator(scripted: ScriptedAdmin) -> None:
    scripted.answer(ApiKey.FIND_COORDINATOR, coordinators(a=1, b=2, c=1))
    scripted.answer(ApiKey.DELETE_GROUPS, deleted(Errors.NONE), deleted(Errors.NONE))
    results = scripted.run(lambda operation: delete_groups(operation, ["a", "b", "c"]))
    assert list(results) == ["a", "b", "c"]
    assert scripted.count(ApiKey.FIND_COORDINATOR) == 1
    requests = scripted.cluster.requests(ApiKey.DELETE_GROUPS)
    assert sorted(request.groups_names for request in requests) == [["a", "c"], ["b"]]
    assert sorted(scripted.asked_nodes(ApiKey.DELETE_GROUPS)) == [1, 2]


def test_a_coordinator_that_loads_is_asked_again(scripted: ScriptedAdmin) -> None:
    scripted.answer(ApiKey.DELETE_GROUPS, deleted(Errors.COORDINATOR_LOAD_IN_PROGRESS), deleted(Errors.NONE))
    before = scripted.cluster.clock.milliseconds()
    assert list(scripted.run(lambda operation: delete_groups(operation, ["a"]))) == ["a"]
    assert scripted.count(ApiKey.FIND_COORDINATOR) == 1
    assert scripted.count(ApiKey.DELETE_GROUPS) == 2
    assert scripted.cluster.clock.milliseconds() - before >= 80, "not without a pause"


def test_a_coordinator_that_has_moved_is_looked_up_again(scripted: ScriptedAdmin) -> None:
    scripted.answer(ApiKey.FIND_COORDINATOR, coordinators(a=1), coordinators(a=2))
    scripted.answer(ApiKey.DELETE_GROUPS, deleted(Errors.NOT_COORDINATOR), deleted(Errors.NONE))
    scripted.run(lambda operation: delete_groups(operation, ["a"]))
    assert scripted.asked_nodes(ApiKey.DELETE_GROUPS) == [1, 2]


def test_a_lookup_is_tried_again(scripted: ScriptedAdmin) -> None:
    scripted.cluster.fail_next(ApiKey.FIND_COORDINATOR, Errors.COORDINATOR_NOT_AVAILABLE)
    scripted.answer(ApiKey.DELETE_GROUPS, deleted(Errors.NONE))
    scripted.run(lambda operation: delete_groups(operation, ["a"]))
    assert scripted.count(ApiKey.FIND_COORDINATOR) == 2


def test_a_lookup_that_is_refused_is_an_error(scripted: ScriptedAdmin) -> None:
    scripted.cluster.fail_next(ApiKey.FIND_COORDINATOR, Errors.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(GroupAuthorizationError):
        scripted.run(lambda operation: delete_groups(operation, ["a"]))


def test_a_lost_response_is_asked_for_again(scripted: ScriptedAdmin) -> None:
    lost = [Fate(lose_response=True)]
    scripted.cluster.fate_of = lambda handled: (
        lost.pop() if lost and handled.header.api_key is ApiKey.DELETE_GROUPS else Fate()
    )
    scripted.answer(ApiKey.DELETE_GROUPS, deleted(Errors.NONE), deleted(Errors.NONE))
    assert list(scripted.run(lambda operation: delete_groups(operation, ["a"]))) == ["a"]
    assert scripted.count(ApiKey.DELETE_GROUPS) == 2
    assert scripted.count(ApiKey.FIND_COORDINATOR) == 2, "the broker may be gone for good"


def test_keys_that_are_done_do_not_wait_for_the_rest(scripted: ScriptedAdmin) -> None:
    def answer(handled: Handled) -> Response:
        assert isinstance(handled.body, DeleteGroupsRequest)
        return DeleteGroupsResponse(
            results=[
                DeletableGroupResult(
                    group_id=name, error_code=0 if name == "a" else Errors.COORDINATOR_LOAD_IN_PROGRESS
                )
                for name in handled.body.groups_names
            ]
        )

    scripted.answer(ApiKey.DELETE_GROUPS, *[answer] * 50)
    results = scripted.run(lambda operation: delete_groups(operation, ["a", "b"], partial=True), timeout_ms=3_000)
    assert list(results) == ["a"]
    assert isinstance(results.errors["b"], KafkaTimeoutError)
    assert "COORDINATOR_LOAD_IN_PROGRESS" in str(results.errors["b"])
    requests = scripted.cluster.requests(ApiKey.DELETE_GROUPS)
    assert [request.groups_names for request in requests[:2]] == [["a", "b"], ["b"]]
    assert len(requests) < 12, "the pauses grow"


def test_a_response_that_leaves_out_a_key(scripted: ScriptedAdmin) -> None:
    scripted.answer(ApiKey.DELETE_GROUPS, DeleteGroupsResponse())
    with pytest.raises(UnknownServerError, match="does not include a"):
        scripted.run(lambda operation: delete_groups(operation, ["a"]))


def test_retries_can_be_turned_off() -> None:
    scripted = ScriptedAdmin(ScriptedCluster(), retries=0)
    scripted.answer(ApiKey.DELETE_GROUPS, deleted(Errors.COORDINATOR_LOAD_IN_PROGRESS))
    with pytest.raises(CoordinatorLoadInProgressError):
        scripted.run(lambda operation: delete_groups(operation, ["a"]))
    assert scripted.count(ApiKey.DELETE_GROUPS) == 1


def test_an_error_of_one_partition_is_not_tried_again(scripted: ScriptedAdmin) -> None:
    """Although it may pass elsewhere: a partition that does not exist has no offset to be set."""

    def committed(codes: dict[int, Errors]) -> OffsetCommitResponse:
        rows = [OffsetCommitResponsePartition(partition_index=index, error_code=code) for index, code in codes.items()]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="orders", partitions=rows)])

    scripted.answer(
        ApiKey.OFFSET_COMMIT,
        committed({0: Errors.COORDINATOR_LOAD_IN_PROGRESS, 9: Errors.COORDINATOR_LOAD_IN_PROGRESS}),
        committed({0: Errors.NONE, 9: Errors.UNKNOWN_TOPIC_OR_PARTITION}),
    )
    wanted = {TopicPartition("orders", 0): 1, TopicPartition("orders", 9): 1}
    results = scripted.run(lambda operation: alter_group_offsets(operation, "a", wanted, partial=True))
    assert list(results) == [TopicPartition("orders", 0)]
    assert scripted.count(ApiKey.OFFSET_COMMIT) == 2


def offsets(code: Errors, offset: int = -1) -> ListOffsetsResponse:
    row = ListOffsetsPartitionResponse(partition_index=0, error_code=code, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="orders", partitions=[row])])


def test_a_leader_that_has_moved_is_looked_up_again(scripted: ScriptedAdmin) -> None:
    partition = TopicPartition("orders", 0)

    def moved(_handled: Handled) -> Response:
        scripted.cluster.move_leader("orders", 0, to=2)
        return offsets(Errors.NOT_LEADER_OR_FOLLOWER)

    scripted.answer(ApiKey.LIST_OFFSETS, moved, offsets(Errors.NONE, 7))
    results = scripted.run(lambda operation: list_offsets(operation, {partition: OffsetSpec.latest()}))
    assert results[partition].offset == 7
    assert scripted.asked_nodes(ApiKey.LIST_OFFSETS) == [1, 2]


def test_a_missing_leader_is_waited_for_unless_one_is_in_a_hurry(scripted: ScriptedAdmin) -> None:
    partition = TopicPartition("orders", 1)
    scripted.run(list_topics)
    scripted.cluster.stop(2)
    with pytest.raises(KafkaTimeoutError, match="LEADER_NOT_AVAILABLE"):
        scripted.run(lambda operation: list_offsets(operation, {partition: OffsetSpec.latest()}), timeout_ms=2_000)
    results = scripted.run(
        lambda operation: list_offsets(operation, {partition: OffsetSpec.latest()}, patient=False, partial=True)
    )
    assert results.errors[partition].code == Errors.LEADER_NOT_AVAILABLE


# -- the controller


def created(*rows: tuple[str, Errors]) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult(name=name, error_code=code) for name, code in rows])


def test_a_controller_that_has_moved_is_looked_up_again(scripted: ScriptedAdmin) -> None:
    def metadata(controller: int) -> MetadataResponse:
        return MetadataResponse(
            cluster_id="scripted",
            controller_id=controller,
            brokers=[
                MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port)
                for node in scripted.cluster.nodes.values()
            ],
        )

    scripted.answer(ApiKey.METADATA, metadata(1), *[metadata(2)] * 10)
    scripted.answer(ApiKey.CREATE_TOPICS, created(("a", Errors.NOT_CONTROLLER)), created(("a", Errors.NONE)))
    assert list(scripted.run(lambda operation: create_topics(operation, ["a"]))) == ["a"]
    assert scripted.asked_nodes(ApiKey.CREATE_TOPICS) == [1, 2]


def test_topics_over_the_quota_are_tried_again_by_themselves(scripted: ScriptedAdmin) -> None:
    refused = Errors.THROTTLING_QUOTA_EXCEEDED
    scripted.answer(
        ApiKey.CREATE_TOPICS,
        created(("a", Errors.NONE), ("b", refused), ("c", Errors.TOPIC_ALREADY_EXISTS)),
        created(("b", refused)),
        created(("b", Errors.NONE)),
    )
    results = scripted.run(lambda operation: create_topics(operation, ["a", "b", "c"], partial=True))
    assert set(results) == {"a", "b"}
    assert set(results.errors) == {"c"}
    requests = scripted.cluster.requests(ApiKey.CREATE_TOPICS)
    assert [[topic.name for topic in request.topics] for request in requests] == [["a", "b", "c"], ["b"], ["b"]]


def test_topics_over_the_quota_can_be_an_error(scripted: ScriptedAdmin) -> None:
    scripted.answer(ApiKey.CREATE_TOPICS, created(("a", Errors.THROTTLING_QUOTA_EXCEEDED)))
    with pytest.raises(ThrottlingQuotaExceededError):
        scripted.run(lambda operation: create_topics(operation, ["a"], retry_on_quota_violation=False))


def test_brokers_are_not_given_more_time_than_the_client_has(scripted: ScriptedAdmin) -> None:
    scripted.answer(ApiKey.CREATE_TOPICS, created(("a", Errors.NONE)))
    scripted.run(lambda operation: create_topics(operation, [NewTopic("a", 1)]), timeout_ms=1_234)
    (request,) = scripted.cluster.requests(ApiKey.CREATE_TOPICS)
    assert 0 < request.timeout_ms <= 1_234


# -- brokers that know less


def test_topics_are_described_by_brokers_without_pages() -> None:
    scripted = ScriptedAdmin(ScriptedCluster({"orders": 2}, versions={ApiKey.DESCRIBE_TOPIC_PARTITIONS: (7, 7)}))
    results = scripted.run(lambda operation: describe_topics(operation, ["orders", "missing"], partial=True))
    assert [partition.partition for partition in results["orders"].partitions] == [0, 1]
    assert results.errors["missing"].code == Errors.UNKNOWN_TOPIC_OR_PARTITION


def test_groups_are_described_by_brokers_without_the_consumer_protocol() -> None:
    scripted = ScriptedAdmin(ScriptedCluster(versions={ApiKey.CONSUMER_GROUP_DESCRIBE: (7, 7)}))
    scripted.answer(
        ApiKey.DESCRIBE_GROUPS,
        DescribeGroupsResponse(groups=[DescribedGroup(group_id="a", group_state="Stable", protocol_type="consumer")]),
    )
    assert scripted.run(lambda operation: describe_groups(operation, ["a"]))["a"].state == "Stable"


def test_what_no_broker_has_is_an_error() -> None:
    scripted = ScriptedAdmin(ScriptedCluster(versions={ApiKey.DESCRIBE_CLUSTER: (7, 7)}))
    with pytest.raises(UnsupportedVersionError, match="DescribeCluster cannot be asked of any broker"):
        scripted.run(describe_cluster)


def test_only_subscriptions_can_be_listed_by_older_brokers() -> None:
    scripted = ScriptedAdmin(ScriptedCluster(versions={ApiKey.LIST_CONFIG_RESOURCES: (0, 0)}))
    with pytest.raises(UnsupportedVersionError):
        scripted.run(config_operations.list_config_resources)


# -- time and the end


def test_time_runs_out_while_a_broker_is_silent(scripted: ScriptedAdmin) -> None:
    scripted.run(list_topics)
    scripted.cluster.fate_of = lambda handled: (
        Fate(delay_ms=60_000) if handled.header.api_key is ApiKey.METADATA else Fate()
    )
    before = scripted.cluster.clock.milliseconds()
    with pytest.raises(KafkaTimeoutError):
        scripted.run(list_topics, timeout_ms=5_000)
    assert 4_000 <= scripted.cluster.clock.milliseconds() - before <= 5_500


def test_nobody_can_be_reached() -> None:
    cluster = ScriptedCluster(nodes=2)
    cluster.stop(1)
    cluster.stop(2)
    with pytest.raises(KafkaTimeoutError, match=r"node-1\.test:9092"):
        ScriptedAdmin(cluster).run(list_topics, timeout_ms=1_000)
    before = cluster.clock.milliseconds()
    with pytest.raises(BrokerNotAvailableError, match=r"node-2\.test:9092"):
        ScriptedAdmin(cluster, fail_fast=True).run(list_topics, timeout_ms=60_000)
    assert cluster.clock.milliseconds() - before < 1_000


def test_brokers_that_come_back_are_found(scripted: ScriptedAdmin) -> None:
    scripted.cluster.stop(1)
    scripted.cluster.stop(2)
    future = scripted.start(list_topics)
    for _ in range(20):
        scripted.admin.core.runnable.run_once()
    assert not future.done()
    scripted.cluster.start(2)
    topics = scripted.finish(future)
    assert list(topics) == ["orders"]


def test_closing_lets_operations_end(scripted: ScriptedAdmin) -> None:
    future = scripted.start(list_topics)
    scripted.admin.core.runnable.initiate_close(5_000)
    scripted.admin.core.runnable.run()
    assert list(future.result(0)) == ["orders"]
    with pytest.raises(AdminClientClosedError):
        scripted.start(list_topics)


def test_closing_at_once_fails_what_is_under_way(scripted: ScriptedAdmin) -> None:
    scripted.run(list_topics)
    scripted.answer(ApiKey.DELETE_GROUPS, deleted(Errors.COORDINATOR_LOAD_IN_PROGRESS))
    pausing = scripted.start(lambda operation: delete_groups(operation, ["a"]))
    while not scripted.count(ApiKey.DELETE_GROUPS):
        scripted.admin.core.runnable.run_once()
    scripted.cluster.fate_of = lambda _handled: Fate(delay_ms=60_000)
    waiting = scripted.start(list_topics)
    scripted.admin.core.runnable.run_once()
    scripted.admin.core.runnable.initiate_close(0)
    scripted.admin.core.runnable.run()
    for future in (pausing, waiting):
        with pytest.raises(AdminClientClosedError):
            future.result(0)
