"""What clients are told about topics: Metadata and DescribeTopicPartitions, with their errors."""

from __future__ import annotations

import time

import pytest

from barnabas.common.errors import Errors, InvalidRequestError
from barnabas.common.identifiers import ZERO_UUID
from barnabas.metadata.cluster_responses import metadata_response
from barnabas.metadata.directory_id import LOST, UNASSIGNED
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.topic_responses import (
    describe_topic_partitions,
    missing_topic,
    requested_topics,
    topic_metadata,
)
from barnabas.protocol.internal.metadata import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    TopicRecord,
)
from barnabas.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from unit.metadata.samples import LISTENER, broker, image_of, metadata_version, partition, topic, uid

pytestmark = pytest.mark.mechanism("R08")

ORDERS = uid(1)
VERSIONS = range(14)


def cluster(*records: object) -> MetadataImage:
    return image_of([metadata_version(), broker(1, rack="r1"), broker(2), broker(3), *records])  # type: ignore[list-item]


def ask(
    image: MetadataImage, request: MetadataRequest, version: int = 12, listener: str = LISTENER
) -> MetadataResponse:
    response = metadata_response(image, request, version, listener, "cluster", lambda ids: ids[0])
    again = MetadataResponse.decode(response.encode(version), version)
    assert [found.name for found in again.topics] == [found.name for found in response.topics]
    return response


def by_name(*names: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])


def one_partition(image: MetadataImage, version: int = 12, listener: str = LISTENER) -> MetadataResponsePartition:
    ((found,),) = [found.partitions for found in topic_metadata(image, ["orders"], listener, version)]
    return found


# -- what is asked for


def test_all_topics() -> None:
    image = cluster(*topic("orders", ORDERS), *topic("__consumer_offsets", uid(2)))
    for version in VERSIONS:
        topics: list[MetadataRequestTopic] | None = (
            None if version else []
        )  # v0 has no null, so an empty list means all
        response = ask(image, MetadataRequest(topics=topics), version)
        assert [(found.name, found.is_internal) for found in response.topics] == [
            ("__consumer_offsets", True),
            ("orders", False),
        ]
        asked = requested_topics(image, MetadataRequest(topics=topics), version)
        assert asked.all_topics


def test_no_topics() -> None:
    image = cluster(*topic("orders", ORDERS))
    for version in VERSIONS[1:]:
        assert ask(image, MetadataRequest(topics=[]), version).topics == []


def test_topics_by_name() -> None:
    image = cluster(*topic("orders", ORDERS, partitions=2), *topic("payments", uid(2)))
    for version in VERSIONS:
        response = ask(image, by_name("orders", "unknown", "orders", "not/valid", ""), version)
        assert [(found.error_code, found.name, found.topic_id, len(found.partitions)) for found in response.topics] == [
            (Errors.NONE, "orders", ORDERS, 2),
            (Errors.UNKNOWN_TOPIC_OR_PARTITION, "unknown", ZERO_UUID, 0),
            (Errors.INVALID_TOPIC_EXCEPTION, "not/valid", ZERO_UUID, 0),
            (Errors.INVALID_TOPIC_EXCEPTION, "", ZERO_UUID, 0),
        ]


def test_topics_by_id() -> None:
    image = cluster(*topic("orders", ORDERS), *topic("payments", uid(2)))
    request = MetadataRequest(
        topics=[
            MetadataRequestTopic(topic_id=ORDERS, name=None),
            MetadataRequestTopic(topic_id=uid(9), name=None),
            MetadataRequestTopic(topic_id=ORDERS, name=None),
        ]
    )
    for version in (12, 13):
        response = ask(image, request, version)
        assert [(found.error_code, found.name, found.topic_id) for found in response.topics] == [
            (Errors.UNKNOWN_TOPIC_ID, None, uid(9)),
            (Errors.NONE, "orders", ORDERS),
        ]
    asked = requested_topics(image, request, 12)
    assert asked.by_id
    assert asked.names == ["orders"]


@pytest.mark.parametrize("version", [10, 11])
def test_ids_came_with_version_12(version: int) -> None:
    image = cluster(*topic("orders", ORDERS))
    for asked in (MetadataRequestTopic(topic_id=ORDERS, name="orders"), MetadataRequestTopic(name=None)):
        with pytest.raises(InvalidRequestError, match=f"v{version}"):
            requested_topics(image, MetadataRequest(topics=[asked]), version)


def test_a_missing_internal_topic_is_still_internal() -> None:
    found = missing_topic("__consumer_offsets")
    assert found.is_internal
    assert found.error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION


def test_the_frame_of_the_response() -> None:
    image = image_of([metadata_version(), broker(1, rack="r1"), broker(2, listeners=["SSL"]), broker(3, fenced=True)])
    response = ask(image, MetadataRequest(topics=[]))
    assert [(node.node_id, node.host, node.port, node.rack) for node in response.brokers] == [
        (1, "plaintext-1", 9092, "r1")
    ]
    assert response.cluster_id == "cluster"
    assert response.controller_id == 1
    nobody = ask(image, MetadataRequest(topics=[]), listener="OTHER")
    assert nobody.brokers == []
    assert nobody.controller_id == -1


# -- partitions


def test_a_healthy_partition() -> None:
    image = cluster(
        TopicRecord(name="orders", topic_id=ORDERS),
        partition(ORDERS, 0, replicas=[2, 3, 1], isr=[2, 1], leader=2, leader_epoch=5),
    )
    for version in VERSIONS:
        assert one_partition(image, version) == MetadataResponsePartition(
            error_code=0,
            partition_index=0,
            leader_id=2,
            leader_epoch=5,
            replica_nodes=[2, 3, 1],
            isr_nodes=[2, 1],
            offline_replicas=[],
        )


def test_no_leader() -> None:
    image = cluster(
        TopicRecord(name="orders", topic_id=ORDERS), partition(ORDERS, 0, replicas=[2], leader=-1, leader_epoch=5)
    )
    for version in VERSIONS:
        found = one_partition(image, version)
        assert (found.error_code, found.leader_id, found.leader_epoch) == (Errors.LEADER_NOT_AVAILABLE, -1, 5)


def test_a_leader_that_is_not_registered() -> None:
    image = cluster(TopicRecord(name="orders", topic_id=ORDERS), partition(ORDERS, 0, replicas=[9]))
    for version in VERSIONS:
        found = one_partition(image, version)
        assert (found.error_code, found.leader_id) == (Errors.LEADER_NOT_AVAILABLE, -1)
        assert found.offline_replicas == [9]


def test_a_leader_without_this_listener() -> None:
    image = cluster(TopicRecord(name="orders", topic_id=ORDERS), partition(ORDERS, 0, replicas=[1]))
    for version in VERSIONS:
        found = one_partition(image, version, "SSL")
        expected = Errors.LISTENER_NOT_FOUND if version >= 6 else Errors.LEADER_NOT_AVAILABLE
        assert (found.error_code, found.leader_id, found.offline_replicas) == (expected, -1, [1])


def test_addresses_are_those_of_the_listener_that_was_asked() -> None:
    image = image_of([metadata_version(), broker(1, listeners=["PLAINTEXT", "SSL"]), *topic("orders", ORDERS)])
    assert [node.host for node in ask(image, by_name("orders"), listener="SSL").brokers] == ["ssl-1"]
    assert [node.host for node in ask(image, by_name("orders")).brokers] == ["plaintext-1"]


def test_replicas_that_are_down() -> None:
    """Offline: fenced, unknown, or on another listener. Version 0 takes them out, and says so."""
    image = image_of(
        [
            metadata_version(),
            broker(1),
            broker(2, fenced=True),
            broker(3, listeners=["SSL"]),
            TopicRecord(name="orders", topic_id=ORDERS),
            partition(ORDERS, 0, replicas=[1, 2, 3, 4], isr=[1, 2]),
        ]
    )
    for version in VERSIONS[1:]:
        found = one_partition(image, version)
        assert found.error_code == Errors.NONE
        assert found.replica_nodes == [1, 2, 3, 4]
        assert found.isr_nodes == [1, 2]
        assert found.offline_replicas == [2, 3, 4]
    old = one_partition(image, 0)
    assert (old.error_code, old.leader_id) == (Errors.REPLICA_NOT_AVAILABLE, 1)
    assert old.replica_nodes == old.isr_nodes == [1]


def test_version_0_names_the_lack_of_a_leader_first() -> None:
    image = image_of(
        [metadata_version(), TopicRecord(name="orders", topic_id=ORDERS), partition(ORDERS, 0, replicas=[1, 2])]
    )
    found = one_partition(image, 0)
    assert found.error_code == Errors.LEADER_NOT_AVAILABLE
    assert found.replica_nodes == found.isr_nodes == []


def test_replicas_in_directories_that_failed() -> None:
    image = image_of(
        [
            metadata_version(),
            broker(1, log_dirs=[uid(201)]),
            broker(2, log_dirs=[uid(202)]),
            broker(3, log_dirs=[uid(203)]),
            broker(4),
            TopicRecord(name="orders", topic_id=ORDERS),
            partition(ORDERS, 0, replicas=[1, 2, 3, 4], directories=[uid(201), uid(299), LOST, uid(298)], leader=1),
            partition(ORDERS, 1, replicas=[1, 2], directories=[UNASSIGNED, uid(202)]),
        ]
    )
    ((first, second),) = [found.partitions for found in topic_metadata(image, ["orders"], LISTENER, 12)]
    assert first.offline_replicas == [2, 3]  # broker 4 has never told its directories, and is trusted
    assert second.offline_replicas == []


# -- answers that are kept


def test_partitions_are_made_once() -> None:
    image = cluster(*topic("orders", ORDERS, partitions=3), *topic("payments", uid(2)))

    def partitions(image: MetadataImage, name: str, version: int = 12, listener: str = LISTENER) -> object:
        (found,) = topic_metadata(image, [name], listener, version)
        return found.partitions

    first = partitions(image, "orders")
    assert partitions(image, "orders") is first
    assert partitions(image, "orders", version=9) is first
    assert partitions(image, "orders", version=5) is not first
    assert partitions(image, "orders", listener="SSL") is not first
    payments = partitions(image, "payments")
    changed = image_of([PartitionChangeRecord(topic_id=ORDERS, partition_id=1, leader=-1)], image)
    assert partitions(changed, "orders") is not first
    assert partitions(changed, "payments") is payments
    assert partitions(image, "orders") is first  # the old image still gives the old answer


def test_a_response_is_new_when_a_broker_changes() -> None:
    image = cluster(TopicRecord(name="orders", topic_id=ORDERS), partition(ORDERS, 0, replicas=[1, 2]))
    assert one_partition(image).offline_replicas == []
    fenced = image_of([BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=102, fenced=1)], image)
    assert one_partition(fenced).offline_replicas == [2]
    assert one_partition(image).offline_replicas == []
    back = image_of([BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=102, fenced=-1)], fenced)
    assert one_partition(back).offline_replicas == []


def test_topics_of_a_response_belong_to_the_caller() -> None:
    image = cluster(*topic("orders", ORDERS))
    (mine,) = topic_metadata(image, ["orders"], LISTENER, 12)
    mine.topic_authorized_operations = 7
    (other,) = topic_metadata(image, ["orders"], LISTENER, 12)
    assert other.topic_authorized_operations == -2147483648


def test_a_thousand_topics_are_told_quickly() -> None:
    """In CPU time of this thread, with room for a slow machine; measured, it is 1 ms, and 7 ms the first time."""
    image = cluster(*(record for n in range(1000) for record in topic(f"t{n}", uid(n + 1), 10, replicas=[1, 2, 3])))
    request = MetadataRequest(topics=None)
    response = metadata_response(image, request, 12, LISTENER, "c", min)
    best = float("inf")
    for _ in range(5):
        started = time.thread_time()
        response = metadata_response(image, request, 12, LISTENER, "c", min)
        best = min(best, time.thread_time() - started)
    assert sum(len(found.partitions) for found in response.topics) == 10_000
    assert best < 0.010


# -- DescribeTopicPartitions


def describe(
    image: MetadataImage, request: DescribeTopicPartitionsRequest, **options: int
) -> DescribeTopicPartitionsResponse:
    response = describe_topic_partitions(image, request, LISTENER, **options)  # type: ignore[arg-type]
    assert DescribeTopicPartitionsResponse.decode(response.encode(0), 0) == response
    return response


def pages(image: MetadataImage, request: DescribeTopicPartitionsRequest) -> list[list[str]]:
    """All pages, as the partitions on each."""
    found = []
    for _ in range(50):
        response = describe(image, request)
        found.append([f"{on.name}-{p.partition_index}" for on in response.topics for p in on.partitions])
        if response.next_cursor is None:
            return found
        request.cursor = Cursor(
            topic_name=response.next_cursor.topic_name, partition_index=response.next_cursor.partition_index
        )
    raise AssertionError("the pages do not come to an end")


def names_wanted(*names: str) -> list[TopicRequest]:
    return [TopicRequest(name=name) for name in names]


def test_a_described_partition() -> None:
    image = cluster(
        TopicRecord(name="orders", topic_id=ORDERS),
        partition(ORDERS, 0, replicas=[1, 2, 9], isr=[1], elr=[2], last_known_elr=[9], leader_epoch=3),
        partition(ORDERS, 1, replicas=[9]),
    )
    (found,) = describe(image, DescribeTopicPartitionsRequest()).topics
    assert (found.error_code, found.name, found.topic_id, found.is_internal) == (0, "orders", ORDERS, False)
    first, second = found.partitions
    assert (first.leader_id, first.leader_epoch, first.replica_nodes, first.isr_nodes) == (1, 3, [1, 2, 9], [1])
    assert (first.eligible_leader_replicas, first.last_known_elr, first.offline_replicas) == ([2], [9], [9])
    assert (second.leader_id, second.error_code) == (-1, 0)
    assert second.eligible_leader_replicas == second.last_known_elr == []  # not null: Java's admin client fails on it


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7, 100])
def test_pages(limit: int) -> None:
    image = cluster(*topic("b", uid(1), partitions=3), *topic("a", uid(2), partitions=2), *topic("c", uid(3)))
    everything = ["a-0", "a-1", "b-0", "b-1", "b-2", "c-0"]
    found = pages(image, DescribeTopicPartitionsRequest(response_partition_limit=limit))
    assert [name for page in found for name in page] == everything
    assert all(len(page) == limit for page in found[:-1])
    wanted = names_wanted("c", "b", "b")
    found = pages(image, DescribeTopicPartitionsRequest(topics=wanted, response_partition_limit=limit))
    assert [name for page in found for name in page] == everything[2:]


def test_the_brokers_own_limit_and_a_limit_of_nothing() -> None:
    image = cluster(*topic("a", uid(1), partitions=5))
    assert len(describe(image, DescribeTopicPartitionsRequest(), max_partitions=2).topics[0].partitions) == 2
    for limit in (0, -5):
        response = describe(image, DescribeTopicPartitionsRequest(response_partition_limit=limit))
        assert len(response.topics[0].partitions) == 1


def test_a_cursor_into_something_that_has_gone() -> None:
    image = cluster(*topic("a", uid(1), partitions=2), *topic("c", uid(2)))
    gone = DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="b", partition_index=1))
    assert [found.name for found in describe(image, gone).topics] == ["c"]
    beyond = DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="a", partition_index=7))
    assert [(found.name, len(found.partitions)) for found in describe(image, beyond).topics] == [("a", 0), ("c", 1)]


def test_topics_that_do_not_exist() -> None:
    image = cluster(*topic("b", uid(1)))
    wanted = DescribeTopicPartitionsRequest(topics=names_wanted("zzz", "b", "a/b", "__transaction_state"))
    assert [(found.error_code, found.name, found.is_internal) for found in describe(image, wanted).topics] == [
        (Errors.UNKNOWN_TOPIC_OR_PARTITION, "__transaction_state", True),
        (Errors.INVALID_TOPIC_EXCEPTION, "a/b", False),
        (Errors.NONE, "b", False),
        (Errors.UNKNOWN_TOPIC_OR_PARTITION, "zzz", False),
    ]


def test_a_full_page_points_at_the_next_topic_whatever_it_is() -> None:
    image = cluster(*topic("a", uid(1)))
    request = DescribeTopicPartitionsRequest(topics=names_wanted("a", "b"), response_partition_limit=1)
    response = describe(image, request)
    assert [found.name for found in response.topics] == ["a"]
    assert response.next_cursor == Cursor(topic_name="b", partition_index=0)
    request.cursor = response.next_cursor
    after = describe(image, request)
    assert [(found.name, found.error_code) for found in after.topics] == [("b", Errors.UNKNOWN_TOPIC_OR_PARTITION)]
    assert after.next_cursor is None


@pytest.mark.parametrize(
    ("cursor", "topics"),
    [
        (Cursor(topic_name="a", partition_index=-1), []),
        (Cursor(topic_name="a", partition_index=0), ["b"]),
        (Cursor(topic_name="", partition_index=0), ["b"]),
    ],
)
def test_cursors_that_make_no_sense(cursor: Cursor, topics: list[str]) -> None:
    image = cluster(*topic("a", uid(1)), *topic("b", uid(2)))
    request = DescribeTopicPartitionsRequest(topics=names_wanted(*topics), cursor=cursor)
    with pytest.raises(InvalidRequestError, match="cursor"):
        describe_topic_partitions(image, request, LISTENER)


def test_topics_that_the_client_may_not_see() -> None:
    image = cluster(*topic("a", uid(1)), *topic("b", uid(2)), *topic("c", uid(3)))
    asked: list[str] = []

    def is_authorized(name: str) -> bool:
        asked.append(name)
        return name != "b"

    everything = describe_topic_partitions(
        image, DescribeTopicPartitionsRequest(), LISTENER, is_authorized=is_authorized
    )
    assert [found.name for found in everything.topics] == ["a", "c"]
    named = DescribeTopicPartitionsRequest(topics=names_wanted("c", "b", "a"), response_partition_limit=1)
    asked.clear()
    response = describe_topic_partitions(image, named, LISTENER, is_authorized=is_authorized)
    assert [(found.name, found.error_code, found.topic_id) for found in response.topics] == [
        ("a", Errors.NONE, uid(1)),
        ("b", Errors.TOPIC_AUTHORIZATION_FAILED, ZERO_UUID),
    ]
    assert response.next_cursor == Cursor(topic_name="c", partition_index=0)
    assert asked == ["a", "b", "c"]
