"""CreateTopics, DeleteTopics and CreatePartitions at the controller: rights, duplicates, what a denial gives away."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.common.errors import Errors
from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.controller.controller_apis import ControllerApisConfig, ControllerApisPlugins
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.security.acl import CLUSTER_NAME, AclOperation, ResourceType, acl
from barnabas.server.request import Request
from barnabas.server.throttling import UNLIMITED_BANDWIDTH
from handler_fixtures import FakeQuota
from unit.controller.apis_bench import ALICE, ApisBench, CountedQuota, authorizer
from unit.controller.harness import topic

OK = Errors.NONE
DENIED = Errors.TOPIC_AUTHORIZATION_FAILED
TOPIC = ResourceType.TOPIC
NOWHERE = Uuid(b"there is nothing")


def create(*names: str, partitions: int = 1, **fields: Any) -> CreateTopicsRequest:
    topics = [topic(name, partitions, 1) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=1000, **fields)


def codes(rows: Any) -> list[tuple[Any, int]]:
    return [(row.name, row.error_code) for row in rows]


# -- CreateTopics


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_created(version: int) -> None:
    bench = ApisBench()
    response = bench.ask(create("orders", "bills", partitions=3), version)
    assert codes(response.topics) == [("orders", OK), ("bills", OK)]
    assert len(bench.harness.managers.replication.topics) == 2
    if version >= 5:
        assert response.topics[0].num_partitions == 3
        assert response.topics[0].configs
    if version >= 7:
        assert response.topics[0].topic_id == bench.harness.topic_id("orders")


def test_nothing_is_created_when_only_asked_whether_it_could() -> None:
    bench = ApisBench()
    assert codes(bench.ask(create("orders", validate_only=True), 7).topics) == [("orders", OK)]
    assert not bench.harness.managers.replication.topics


@pytest.mark.mechanism("R04")
def test_a_right_on_the_topic_is_enough_and_a_denial_is_the_topics_alone() -> None:
    bench = ApisBench(authorizer=authorizer(acl("User:alice", AclOperation.CREATE, TOPIC, "orders")))
    response = bench.ask(create("orders", "bills"), 7, ALICE)
    assert codes(response.topics) == [("orders", OK), ("bills", DENIED)]
    assert list(bench.harness.managers.replication.topic_ids) == ["orders"]
    orders = response.topics[0]
    assert orders.topic_config_error_code == DENIED, "its settings are not shown without DescribeConfigs"
    assert (orders.num_partitions, orders.configs) == (-1, [])


@pytest.mark.mechanism("R04")
def test_a_right_on_the_cluster_is_good_for_all_topics() -> None:
    acls = (
        acl("User:alice", AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME),
        acl("User:alice", AclOperation.DESCRIBE_CONFIGS, TOPIC, "bills"),
    )
    response = ApisBench(authorizer=authorizer(*acls)).ask(create("orders", "bills"), 7, ALICE)
    assert codes(response.topics) == [("orders", OK), ("bills", OK)]
    assert [topic.topic_config_error_code for topic in response.topics] == [DENIED, OK]


def test_a_topic_that_is_named_twice_fails_whatever_the_rights_on_it() -> None:
    bench = ApisBench(authorizer=authorizer(acl("User:alice", AclOperation.CREATE, TOPIC, "bills")))
    response = bench.ask(create("orders", "bills", "orders", "__cluster_metadata"), 7, ALICE)
    assert codes(response.topics) == [
        ("orders", Errors.INVALID_REQUEST),
        ("bills", OK),
        ("__cluster_metadata", Errors.INVALID_REQUEST),
    ]


def test_the_metadata_log_cannot_be_created() -> None:
    response = ApisBench().ask(create("__cluster_metadata"), 7)
    assert codes(response.topics) == [("__cluster_metadata", Errors.INVALID_REQUEST)]


def test_a_request_that_waits_too_long_is_given_up() -> None:
    bench = ApisBench()
    request = bench.send(create("orders"), 7)
    bench.harness.clock.advance(1001)
    bench.harness.step()
    assert codes(bench.bench.answer(request).topics) == [("orders", Errors.REQUEST_TIMED_OUT)]
    assert not bench.harness.managers.replication.topics


def test_a_request_with_nothing_left_to_do_does_not_time_out() -> None:
    """A topic that is named twice is refused before the request gets to the controller's queue, and to its time-out."""
    bench = ApisBench()
    bench.harness.create("bills", 1, 1)
    new = create("orders", "orders")
    new.timeout_ms = -1
    assert codes(bench.ask(new, 7).topics) == [("orders", Errors.INVALID_REQUEST)]
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="bills")] * 2, timeout_ms=0)
    assert codes(bench.ask(deletion, 6).responses) == [("bills", Errors.INVALID_REQUEST)]
    more = grow("bills", "bills")
    more.timeout_ms = 0
    assert codes(bench.ask(more, 3).results) == [("bills", Errors.INVALID_REQUEST)]


@pytest.mark.mechanism("R12")
def test_what_fails_as_a_whole_fails_every_topic() -> None:
    response = ApisBench().ask(create("orders", "bills", partitions=6_000), 7)
    assert codes(response.topics) == [("orders", Errors.POLICY_VIOLATION), ("bills", Errors.POLICY_VIOLATION)]
    assert "12000 partitions" in response.topics[0].error_message


# -- the mutation quota


class Quotas:
    """Two quota managers that remember."""

    def __init__(self) -> None:
        self.request = FakeQuota()
        self.controller_mutation = FakeQuota()
        self.produce = self.fetch = UNLIMITED_BANDWIDTH


@pytest.mark.mechanism("R11")
@pytest.mark.parametrize(
    ("version", "created"),
    [(5, ["orders", "bills"]), (6, ["orders"])],
    ids=["an old client gets it all", "a newer one is told"],
)
def test_the_mutation_quota(version: int, created: list[str]) -> None:
    quotas = Quotas()
    made: list[CountedQuota] = []

    def new_quota(request: Request, strict_since_version: int) -> CountedQuota:
        made.append(CountedQuota(4, strict=request.api_version >= strict_since_version, throttle_time_ms=700))
        return made[-1]

    bench = ApisBench(quotas=quotas, plugins=ControllerApisPlugins(new_mutation_quota=new_quota))
    request = bench.send(create("orders", "bills", partitions=3), version)
    bench.harness.step()
    response = bench.bench.answer(request)
    assert list(bench.harness.managers.replication.topic_ids) == created
    expected = OK if version < 6 else Errors.THROTTLING_QUOTA_EXCEEDED
    assert codes(response.topics) == [("orders", OK), ("bills", expected)]
    assert response.throttle_time_ms == 700
    assert quotas.controller_mutation.throttled == [(request, 700)]
    assert len(made) == 1
    assert made[0].permits == (-2 if version < 6 else 1)


@pytest.mark.mechanism("R11")
def test_a_change_that_failed_is_paid_for_too() -> None:
    quotas = Quotas()
    quota = CountedQuota(0, strict=False, throttle_time_ms=300)
    plugins = ControllerApisPlugins(new_mutation_quota=lambda _request, _strict: quota)
    bench = ApisBench(quotas=quotas, plugins=plugins)
    response = bench.ask(create("orders", partitions=20_000), 7)
    assert codes(response.topics) == [("orders", Errors.POLICY_VIOLATION)]
    assert response.throttle_time_ms == 300


@pytest.mark.parametrize(
    ("body", "strict_since"),
    [
        (create("orders"), 6),
        (DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")]), 5),
        (CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="orders", count=2)]), 3),
    ],
)
def test_since_when_clients_understand_the_quota(body: Any, strict_since: int) -> None:
    asked: list[int] = []

    def new_quota(_request: Request, strict_since_version: int) -> CountedQuota:
        asked.append(strict_since_version)
        return CountedQuota(100, strict=True)

    bench = ApisBench(plugins=ControllerApisPlugins(new_mutation_quota=new_quota))
    bench.ask(body, body.versions.highest)
    assert asked == [strict_since]


# -- DeleteTopics


def delete(*topics: str | Uuid | tuple[str, Uuid] | None) -> DeleteTopicsRequest:
    states = []
    for given in topics:
        if isinstance(given, tuple):
            states.append(DeleteTopicState(name=given[0], topic_id=given[1]))
        elif isinstance(given, str) or given is None:
            states.append(DeleteTopicState(name=given))
        else:
            states.append(DeleteTopicState(topic_id=given))
    return DeleteTopicsRequest(topics=states, timeout_ms=1000)


def rows(response: Any) -> list[tuple[str | None, Uuid, int]]:
    return [(row.name, row.topic_id, row.error_code) for row in response.responses]


def with_topics(*names: str, **settings: Any) -> tuple[ApisBench, dict[str, Uuid]]:
    bench = ApisBench(**settings)
    for name in names:
        assert bench.harness.create(name, 2, 1).error_code == OK
    return bench, {name: bench.harness.topic_id(name) for name in names}


def remaining(bench: ApisBench) -> list[str]:
    return sorted(bench.harness.managers.replication.topic_ids)


@pytest.mark.parametrize("version", range(1, 6))
def test_topics_are_deleted_by_name(version: int) -> None:
    bench, _ = with_topics("orders", "bills")
    response = bench.ask(DeleteTopicsRequest(topic_names=["orders", "none"], timeout_ms=1000), version)
    assert codes(response.responses) == [("orders", OK), ("none", Errors.UNKNOWN_TOPIC_OR_PARTITION)]
    assert remaining(bench) == ["bills"]


def test_topics_are_deleted_by_name_and_by_id() -> None:
    bench, ids = with_topics("orders", "bills", "rest")
    response = bench.ask(delete("orders", ids["bills"], NOWHERE), 6)
    assert rows(response) == [
        ("orders", ids["orders"], OK),
        ("bills", ids["bills"], OK),
        (None, NOWHERE, Errors.UNKNOWN_TOPIC_ID),
    ]
    assert remaining(bench) == ["rest"]


def test_topics_that_are_not_given_properly_stay() -> None:
    bench, ids = with_topics("orders", "bills", "cases", "rest")
    response = bench.ask(
        delete("orders", "orders", ids["bills"], ids["bills"], None, ("cases", ids["cases"]), "rest"), 6
    )
    bad = Errors.INVALID_REQUEST
    assert rows(response) == [
        ("orders", ZERO_UUID, bad),
        (None, ids["bills"], bad),
        (None, ZERO_UUID, bad),
        ("cases", ids["cases"], bad),
        ("rest", ids["rest"], OK),
    ]
    assert remaining(bench) == ["bills", "cases", "orders"]


@pytest.mark.parametrize("order", ["name first", "id first", "id twice"])
def test_a_topic_given_by_name_and_by_id_stays(order: str) -> None:
    bench, ids = with_topics("orders")
    given: dict[str, list[str | Uuid]] = {
        "name first": ["orders", ids["orders"]],
        "id first": [ids["orders"], "orders"],
        "id twice": [ids["orders"], ids["orders"], "orders"],
    }
    response = bench.ask(delete(*given[order]), 6)
    assert {row.error_code for row in response.responses} == {Errors.INVALID_REQUEST}
    assert len(response.responses) == 2
    assert remaining(bench) == ["orders"]


@pytest.mark.mechanism("R04")
def test_a_denial_does_not_tell_what_there_is() -> None:
    acls = (
        acl("User:alice", AclOperation.DELETE, TOPIC, "mine"),
        acl("User:alice", AclOperation.DESCRIBE, TOPIC, "seen"),
        acl("User:alice", AclOperation.DESCRIBE, TOPIC, "seen-nothing"),
    )
    bench, ids = with_topics("mine", "seen", "secret", authorizer=authorizer(*acls))
    response = bench.ask(delete("mine", "seen", "seen-nothing", "secret", "nothing"), 6, ALICE)
    assert rows(response) == [
        ("mine", ids["mine"], OK),
        ("seen", ZERO_UUID, DENIED),
        ("seen-nothing", ZERO_UUID, Errors.UNKNOWN_TOPIC_OR_PARTITION),
        ("secret", ZERO_UUID, DENIED),
        ("nothing", ZERO_UUID, DENIED),
    ]
    assert [row.error_message for row in response.responses][3:] == [None, None]
    assert remaining(bench) == ["secret", "seen"]


@pytest.mark.mechanism("R04")
def test_an_id_brings_no_name_to_light() -> None:
    acls = (
        acl("User:alice", AclOperation.DELETE, TOPIC, "mine"),
        acl("User:alice", AclOperation.DESCRIBE, TOPIC, "seen"),
    )
    bench, ids = with_topics("mine", "seen", "secret", authorizer=authorizer(*acls))
    response = bench.ask(delete(ids["mine"], ids["seen"], ids["secret"]), 6, ALICE)
    assert rows(response) == [
        ("mine", ids["mine"], OK),
        ("seen", ids["seen"], DENIED),
        (None, ids["secret"], DENIED),
    ]


@pytest.mark.mechanism("R04")
def test_delete_on_the_cluster_is_good_for_all_topics() -> None:
    acls = (acl("User:alice", AclOperation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME),)
    bench, ids = with_topics("orders", "bills", authorizer=authorizer(*acls))
    response = bench.ask(delete("orders", ids["bills"], "none"), 6, ALICE)
    assert [row.error_code for row in response.responses] == [OK, OK, Errors.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize(("version", "error"), [(2, Errors.INVALID_REQUEST), (3, Errors.TOPIC_DELETION_DISABLED)])
def test_deletion_can_be_switched_off(version: int, error: Errors) -> None:
    bench, _ = with_topics("orders", config=ControllerApisConfig(delete_topic_enable=False))
    response = bench.ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000), version)
    assert codes(response.responses) == [("orders", error)]
    assert remaining(bench) == ["orders"]


# -- CreatePartitions


def grow(*names: str, count: int = 5, **fields: Any) -> CreatePartitionsRequest:
    topics = [CreatePartitionsTopic(name=name, count=count, assignments=None) for name in names]
    return CreatePartitionsRequest(topics=topics, timeout_ms=1000, **fields)


@pytest.mark.parametrize("version", range(4))
def test_topics_get_more_partitions(version: int) -> None:
    bench, ids = with_topics("orders")
    response = bench.ask(grow("orders", "none"), version)
    assert codes(response.results) == [("orders", OK), ("none", Errors.UNKNOWN_TOPIC_OR_PARTITION)]
    found = bench.harness.managers.replication.topic(ids["orders"])
    assert found is not None
    assert len(found.partitions) == 5


def test_no_partitions_are_made_when_only_asked_whether_they_could() -> None:
    bench, ids = with_topics("orders")
    assert codes(bench.ask(grow("orders", validate_only=True), 3).results) == [("orders", OK)]
    found = bench.harness.managers.replication.topic(ids["orders"])
    assert found is not None
    assert len(found.partitions) == 2


@pytest.mark.mechanism("R04")
def test_partitions_need_alter_on_the_topic() -> None:
    acls = (
        acl("User:alice", AclOperation.ALTER, TOPIC, "orders"),
        acl("User:alice", AclOperation.DESCRIBE, TOPIC, "bills"),
    )
    bench, _ = with_topics("orders", "bills", authorizer=authorizer(*acls))
    response = bench.ask(grow("orders", "bills", "twice", "twice"), 3, ALICE)
    assert codes(response.results) == [("orders", OK), ("bills", DENIED), ("twice", Errors.INVALID_REQUEST)]
