"""Metadata and DescribeTopicPartitions: what may be seen, what is hidden, and what is created on the way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from barnabas.broker.handlers.metadata import MetadataHandler
from barnabas.common.errors import Errors
from barnabas.common.identifiers import ZERO_UUID
from barnabas.metadata.cache import MetadataCache
from barnabas.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from barnabas.security.acl import AclOperation, ResourceType, acl
from barnabas.security.auth_helper import AuthHelper
from barnabas.security.principal import KafkaPrincipal
from barnabas.security.standard_authorizer import StandardAuthorizer
from barnabas.server.request import Request
from handler_fixtures import HandlerBench
from unit.metadata.samples import broker, image_of, metadata_version, topic, uid

pytestmark = pytest.mark.mechanism("R08")

ALICE = KafkaPrincipal.parse("User:alice")
NOT_ASKED = -2147483648


class Creator:
    """Promises to create everything."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def create_topics(self, names: Iterable[str], request: Request) -> Sequence[MetadataResponseTopic]:
        self.asked += names
        return [MetadataResponseTopic(error_code=Errors.UNKNOWN_TOPIC_OR_PARTITION, name=name) for name in names]


@pytest.fixture
def cache() -> MetadataCache:
    cache = MetadataCache(choose=lambda ids: ids[0])
    cache.set_image(
        image_of(
            [
                metadata_version(),
                broker(0),
                *topic("orders", uid(1), partitions=3, replicas=[0]),
                *topic("salaries", uid(2), partitions=1, replicas=[0]),
            ]
        )
    )
    return cache


@pytest.fixture
def bench() -> HandlerBench:
    return HandlerBench()


@pytest.fixture
def creator() -> Creator:
    return Creator()


def acls(*rules: tuple[AclOperation, ResourceType, str]) -> AuthHelper:
    """Alice may do these things; nobody may do any other."""
    return AuthHelper(StandardAuthorizer([acl("User:alice", *rule) for rule in rules]))


def handler(
    bench: HandlerBench, cache: MetadataCache, creator: Creator | None = None, auth: AuthHelper | None = None
) -> MetadataHandler:
    return MetadataHandler(bench.helper, auth or AuthHelper(), cache, "the-cluster", creator)


def named(*names: str, auto_create: bool = True) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=auto_create
    )


def errors(response: MetadataResponse) -> dict[str | None, int]:
    return {topic.name: topic.error_code for topic in response.topics}


def test_all_topics_and_the_cluster(bench: HandlerBench, cache: MetadataCache) -> None:
    response = bench.ask(handler(bench, cache), MetadataRequest(topics=None), 12)
    assert errors(response) == {"orders": 0, "salaries": 0}
    assert [partition.partition_index for partition in response.topics[0].partitions] == [0, 1, 2]
    assert [(node.node_id, node.host, node.port) for node in response.brokers] == [(0, "plaintext-0", 9092)]
    assert response.cluster_id == "the-cluster"
    assert response.controller_id == 0, "node 0 is a node like any other"


def test_an_empty_list_means_all_in_v0_and_none_later(bench: HandlerBench, cache: MetadataCache) -> None:
    family = handler(bench, cache)
    assert len(bench.ask(family, MetadataRequest(topics=[]), 0).topics) == 2
    assert not bench.ask(family, MetadataRequest(topics=[]), 1).topics


def test_by_id(bench: HandlerBench, cache: MetadataCache) -> None:
    body = MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=uid(1), name=None), MetadataRequestTopic(topic_id=uid(9), name=None)]
    )
    response = bench.ask(handler(bench, cache), body, 12)
    assert [(topic.name, topic.topic_id, topic.error_code) for topic in response.topics] == [
        (None, uid(9), Errors.UNKNOWN_TOPIC_ID),
        ("orders", uid(1), 0),
    ]


@pytest.mark.parametrize(
    ("name", "code"), [("new", Errors.UNKNOWN_TOPIC_OR_PARTITION), ("a/b", Errors.INVALID_TOPIC_EXCEPTION)]
)
def test_a_missing_topic_without_auto_creation(
    bench: HandlerBench, cache: MetadataCache, creator: Creator, name: str, code: Errors
) -> None:
    assert errors(bench.ask(handler(bench, cache, None), named(name), 12)) == {name: code}
    assert errors(bench.ask(handler(bench, cache, creator), named(name, auto_create=False), 12)) == {name: code}
    assert not creator.asked


def test_a_missing_topic_is_created(bench: HandlerBench, cache: MetadataCache, creator: Creator) -> None:
    response = bench.ask(handler(bench, cache, creator), named("orders", "new"), 12)
    assert errors(response) == {"orders": 0, "new": Errors.UNKNOWN_TOPIC_OR_PARTITION}
    assert creator.asked == ["new"]


def test_a_listing_of_all_topics_creates_nothing(bench: HandlerBench, cache: MetadataCache, creator: Creator) -> None:
    bench.ask(handler(bench, cache, creator), MetadataRequest(topics=None), 12)
    assert not creator.asked


@pytest.mark.mechanism("R04")
def test_what_may_not_be_described_is_hidden_or_refused(bench: HandlerBench, cache: MetadataCache) -> None:
    family = handler(bench, cache, auth=acls((AclOperation.DESCRIBE, ResourceType.TOPIC, "orders")))
    assert errors(bench.ask(family, MetadataRequest(topics=None), 12, principal=ALICE)) == {"orders": 0}
    response = bench.ask(family, named("orders", "salaries", "unknown"), 12, principal=ALICE)
    refused = Errors.TOPIC_AUTHORIZATION_FAILED
    assert errors(response) == {"orders": 0, "salaries": refused, "unknown": refused}
    assert all(topic.topic_id == ZERO_UUID for topic in response.topics if topic.error_code)
    by_id = MetadataRequest(topics=[MetadataRequestTopic(topic_id=uid(2), name=None)])
    (answer,) = bench.ask(family, by_id, 12, principal=ALICE).topics
    assert (answer.name, answer.topic_id, answer.error_code) == (None, uid(2), refused), "the name stays a secret"


@pytest.mark.mechanism("R04")
@pytest.mark.parametrize(
    ("rule", "created"),
    [
        ((AclOperation.CREATE, ResourceType.CLUSTER, "kafka-cluster"), ["a", "b"]),
        ((AclOperation.CREATE, ResourceType.TOPIC, "a"), ["a"]),
    ],
    ids=["cluster", "topic"],
)
def test_only_who_may_create_topics_creates_them(
    bench: HandlerBench,
    cache: MetadataCache,
    creator: Creator,
    rule: tuple[AclOperation, ResourceType, str],
    created: list[str],
) -> None:
    describe = [(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in "ab"]
    family = handler(bench, cache, creator, acls(*describe, rule))
    response = bench.ask(family, named("a", "b"), 12, principal=ALICE)
    assert creator.asked == created
    assert [name for name, code in errors(response).items() if code == Errors.TOPIC_AUTHORIZATION_FAILED] == [
        name for name in "ab" if name not in created
    ]


def test_authorized_operations_only_if_asked_for(bench: HandlerBench, cache: MetadataCache) -> None:
    family = handler(bench, cache, auth=acls((AclOperation.DESCRIBE, ResourceType.TOPIC, "orders")))
    body = named("orders")
    assert bench.ask(family, body, 10, principal=ALICE).topics[0].topic_authorized_operations == NOT_ASKED
    body.include_topic_authorized_operations = True
    body.include_cluster_authorized_operations = True
    response = bench.ask(family, body, 10, principal=ALICE)
    assert response.topics[0].topic_authorized_operations == 1 << AclOperation.DESCRIBE
    assert response.cluster_authorized_operations == 0, "who may not describe the cluster may do nothing to it"


def test_pages_of_partitions(bench: HandlerBench, cache: MetadataCache) -> None:
    family = handler(bench, cache)
    first = bench.ask(family, DescribeTopicPartitionsRequest(response_partition_limit=2), 0)
    assert [(topic.name, len(topic.partitions)) for topic in first.topics] == [("orders", 2)]
    assert first.next_cursor == Cursor(topic_name="orders", partition_index=2)
    rest = bench.ask(family, DescribeTopicPartitionsRequest(response_partition_limit=9, cursor=first.next_cursor), 0)
    assert [(topic.name, len(topic.partitions)) for topic in rest.topics] == [("orders", 1), ("salaries", 1)]
    assert rest.next_cursor is None
    assert rest.topics[0].topic_authorized_operations != NOT_ASKED


@pytest.mark.mechanism("R04")
def test_pages_leave_out_what_may_not_be_described(bench: HandlerBench, cache: MetadataCache) -> None:
    family = handler(bench, cache, auth=acls((AclOperation.DESCRIBE, ResourceType.TOPIC, "salaries")))
    everything = bench.ask(family, DescribeTopicPartitionsRequest(), 0, principal=ALICE)
    assert [topic.name for topic in everything.topics] == ["salaries"]
    named_one = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="orders")])
    (answer,) = bench.ask(family, named_one, 0, principal=ALICE).topics
    assert answer.error_code == Errors.TOPIC_AUTHORIZATION_FAILED
