"""FindCoordinator: who is responsible for a key."""

from __future__ import annotations

from typing import Any, cast

import pytest

from barnabas.broker.handlers.find_coordinator import SHARE, FindCoordinatorHandler
from barnabas.broker.node import coordinators
from barnabas.common.errors import (
    ApiError,
    CoordinatorNotAvailableError,
    Errors,
    GroupAuthorizationError,
    InvalidRequestError,
    TransactionalIdAuthorizationError,
)
from barnabas.common.java_hash import partition_for
from barnabas.metadata.cache import MetadataCache
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.security.acl import AclOperation, ResourceType
from barnabas.security.auth_helper import AuthHelper
from handler_fixtures import HandlerBench
from unit.broker.handlers.data_bench import ALICE, acls
from unit.metadata.samples import broker, image_of, metadata_version, partition, topic, uid

GROUP, TRANSACTION = coordinators.GROUP.key_type, coordinators.TRANSACTION.key_type


class Creations:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def create_topics(self, names: list[str]) -> None:
        self.asked += names


class World:
    """Groups are in two partitions: the first is led by broker 1, the second by nobody."""

    def __init__(self, auth: AuthHelper | None = None, *, broker_id: int = 1) -> None:
        self.loading: set[int] = set()
        cache = MetadataCache()
        cache.set_image(
            image_of(
                [
                    metadata_version(),
                    broker(1),
                    *topic("__consumer_offsets", uid(1), 1),
                    partition(uid(1), 1, replicas=[2], leader=-1),
                ]
            )
        )
        self.creations = Creations()
        self.bench = HandlerBench()
        self.handler = FindCoordinatorHandler(
            self.bench.helper,
            auth or AuthHelper(),
            cache,
            cast("Any", self.creations),
            dict.fromkeys((coordinators.GROUP, coordinators.TRANSACTION), cast("Any", self)),
            broker_id=broker_id,
        )

    def partition_for(self, key: str) -> int:
        return partition_for(key, 2)

    def is_loading(self, partition: int) -> bool:
        return partition in self.loading

    def find(self, version: int, *keys: str, key_type: int = GROUP) -> Any:
        body = FindCoordinatorRequest(key_type=key_type)
        if version < 4:
            (body.key,) = keys
        else:
            body.coordinator_keys = list(keys)
        return self.bench.ask(self.handler, body, version, principal=ALICE)


LED, LEADERLESS = "b", "a"
assert (partition_for(LED, 2), partition_for(LEADERLESS, 2)) == (0, 1)


@pytest.mark.mechanism("R09")
@pytest.mark.parametrize("version", range(7))
def test_the_leader_of_the_partition_of_the_key(version: int) -> None:
    answer = World().find(version, LED)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "plaintext-1", 9092)


@pytest.mark.parametrize("version", range(4))
def test_what_older_versions_say_when_all_is_well(version: int) -> None:
    message = World().find(version, LED).error_message
    assert message == ("NONE" if version >= 1 else ""), "Kafka's word, which tests of clients look for"


def test_a_client_is_not_sent_to_a_coordinator_that_has_not_read_its_partition() -> None:
    world = World()
    world.loading.add(0)
    assert world.find(4, LED).coordinators[0].error_code == Errors.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(CoordinatorNotAvailableError):
        world.find(3, LED)
    assert world.creations.asked == [], "the topic is there"
    world.loading.clear()
    assert world.find(4, LED).coordinators[0].node_id == 1


def test_what_another_broker_has_read_is_not_known_here() -> None:
    world = World(broker_id=2)
    world.loading.add(0)
    assert world.find(4, LED).coordinators[0].node_id == 1


def test_several_at_once() -> None:
    found = World().find(4, LED, LEADERLESS).coordinators
    assert [(one.key, one.error_code, one.node_id) for one in found] == [
        (LED, 0, 1),
        (LEADERLESS, Errors.COORDINATOR_NOT_AVAILABLE, -1),
    ]


@pytest.mark.parametrize("version", range(4))
def test_a_partition_without_a_leader(version: int) -> None:
    with pytest.raises(CoordinatorNotAvailableError):
        World().find(version, LEADERLESS)


def test_the_topic_is_made_when_first_asked_for() -> None:
    world = World()
    (found,) = world.find(4, "t", key_type=TRANSACTION).coordinators
    assert found.error_code == Errors.COORDINATOR_NOT_AVAILABLE
    assert world.creations.asked == ["__transaction_state"]
    world.find(4, LED)
    assert world.creations.asked == ["__transaction_state"], "the other one is there"


def test_share_groups_are_not_coordinated() -> None:
    (found,) = World().find(6, "k", key_type=SHARE).coordinators
    assert found.error_code == Errors.INVALID_REQUEST
    with pytest.raises(InvalidRequestError):
        World().find(1, "k", key_type=SHARE)


@pytest.mark.parametrize("key_type", [3, -1])
@pytest.mark.parametrize("version", [1, 6])
def test_keys_that_nobody_coordinates(key_type: int, version: int) -> None:
    with pytest.raises(InvalidRequestError):
        World().find(version, "k", key_type=key_type)


@pytest.mark.parametrize(
    ("key_type", "resource", "error"),
    [
        (GROUP, ResourceType.GROUP, GroupAuthorizationError),
        (TRANSACTION, ResourceType.TRANSACTIONAL_ID, TransactionalIdAuthorizationError),
    ],
)
def test_it_takes_describe(key_type: int, resource: ResourceType, error: type[ApiError]) -> None:
    world = World(acls((AclOperation.DESCRIBE, resource, LED)))
    with pytest.raises(error):
        world.find(3, "other", key_type=key_type)
    denied = world.find(4, "other", LED, key_type=key_type).coordinators
    assert [one.error_code for one in denied] == [
        error.code,
        0 if key_type == GROUP else Errors.COORDINATOR_NOT_AVAILABLE,
    ]
