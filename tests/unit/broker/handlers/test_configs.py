"""The configuration family: who answers, who may, and what is passed on to the controller."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.config.config_admin_manager import ConfigAdminManager
from barnabas.broker.config.config_helper import ConfigHelper
from barnabas.broker.config.dynamic_broker_config import DynamicBrokerConfig
from barnabas.broker.config.reconfigurables import DynamicThreadPool
from barnabas.broker.handlers.configs import ConfigsHandler
from barnabas.common.errors import ClusterAuthorizationError, Errors, InvalidRequestError
from barnabas.controller.configuration_control_manager import ConfigOperation
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.configs import ConfigResourceType
from barnabas.protocol.internal.metadata import ConfigRecord
from barnabas.protocol.message import Request as RequestMessage
from barnabas.protocol.message import Response
from barnabas.protocol.messages import alter_configs, incremental_alter_configs
from barnabas.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest
from barnabas.security.acl import AclOperation, ResourceType, acl
from barnabas.security.auth_helper import AuthHelper
from barnabas.security.principal import KafkaPrincipal
from barnabas.security.standard_authorizer import StandardAuthorizer
from barnabas.server.request import Request
from handler_fixtures import FakeQuota, HandlerBench
from unit.broker.config.configs import node
from unit.metadata.samples import broker, image_of, metadata_version, topic, uid

TOPIC, BROKER, LOGGER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER
CLIENT_METRICS, GROUP = ConfigResourceType.CLIENT_METRICS, ConfigResourceType.GROUP
SET, DELETE, APPEND, SUBTRACT = ConfigOperation
ALICE = KafkaPrincipal.parse("User:alice")


def throttling(throttle_time_ms: int) -> Any:
    """Quotas that hold everybody back."""
    return SimpleNamespace(request=FakeQuota(throttle_time_ms))


class World:
    """A broker with the id 1, and a controller that agrees to everything it is not told to refuse."""

    def __init__(self, authorizer: StandardAuthorizer | None = None, throttle_time_ms: int = 0) -> None:
        self.bench = HandlerBench(throttling(throttle_time_ms))
        self.cache = MetadataCache()
        config = [
            ConfigRecord(resource_type=CLIENT_METRICS, resource_name="m2", name="metrics", value="*"),
            ConfigRecord(resource_type=CLIENT_METRICS, resource_name="m1", name="metrics", value="*"),
            ConfigRecord(resource_type=GROUP, resource_name="g", name="share.isolation.level", value="read_committed"),
            ConfigRecord(resource_type=BROKER, resource_name="1", name="num.io.threads", value="9"),
        ]
        self.cache.set_image(
            image_of(
                [
                    metadata_version(),
                    broker(1),
                    broker(2, fenced=True),
                    broker(3, listeners=["OTHER"]),
                    *topic("b", uid(1), partitions=1, replicas=[1]),
                    *topic("a", uid(2), partitions=1, replicas=[1]),
                    *config,
                ]
            )
        )
        self.dynamic = DynamicBrokerConfig(node())
        self.dynamic.add_reconfigurable(DynamicThreadPool({}))
        self.forwarded: list[RequestMessage] = []
        self.refusals: dict[str, Errors] = {}
        self.forgets: set[str] = set()
        self.is_old = False
        self.handler = ConfigsHandler(
            self.bench.helper,
            AuthHelper(authorizer),
            self.cache,
            ConfigHelper(1, self.cache, self.dynamic),
            ConfigAdminManager(1, self.cache, self.dynamic),
            self.forward,
        )

    def forward(
        self, request: Request, body: RequestMessage | None, callback: Callable[[Response | None], None]
    ) -> None:
        assert body is not None
        self.forwarded.append(body)
        if self.is_old:
            callback(None)
            return
        assert isinstance(body, AlterConfigsRequest | IncrementalAlterConfigsRequest)
        is_legacy = isinstance(body, AlterConfigsRequest)
        wanted: list[Any] = list(body.resources)
        response = AlterConfigsResponse if is_legacy else IncrementalAlterConfigsResponse
        answers = [
            alter_configs.AlterConfigsResourceResponse(
                error_code=self.refusals.get(resource.resource_name, Errors.NONE),
                error_message="no" if resource.resource_name in self.refusals else None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in reversed(wanted)
            if resource.resource_name not in self.forgets
        ]
        callback(response(throttle_time_ms=99, responses=answers))

    def alter(self, *resources: Any, validate_only: bool = False, principal: KafkaPrincipal | None = None) -> list[Any]:
        """Codes of IncrementalAlterConfigs; what has been sent is checked on the way."""
        body = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
        answer = self.bench.ask(self.handler, body, 1, principal=principal)
        assert [(r.resource_type, r.resource_name) for r in answer.responses] == [
            (r.resource_type, r.resource_name) for r in resources
        ]
        self.answer = answer
        return [Errors(response.error_code) for response in answer.responses]

    def describe(self, *resources: tuple[int, str], principal: KafkaPrincipal | None = None, version: int = 4) -> Any:
        body = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
                for kind, name in resources
            ],
            include_synonyms=True,
        )
        return self.bench.ask(self.handler, body, version, principal=principal)

    def list(self, version: int, *kinds: int, principal: KafkaPrincipal | None = None) -> Any:
        body = ListConfigResourcesRequest(resource_types=list(kinds))
        return self.bench.ask(self.handler, body, version, principal=principal)


def resource(kind: int, name: str, *configs: tuple[str, int, str | None]) -> Any:
    return incremental_alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in configs
        ],
    )


def legacy(kind: int, name: str, **settings: str | None) -> Any:
    return alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            alter_configs.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()
        ],
    )


@pytest.fixture
def world() -> World:
    return World()


# -- describing


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_describe_in_all_versions(world: World, version: int) -> None:
    answer = world.describe((TOPIC, "a"), (BROKER, "1"), (TOPIC, "no"), version=version)
    assert isinstance(answer, DescribeConfigsResponse)
    assert [(r.resource_name, r.error_code) for r in answer.results] == [
        ("a", 0),
        ("1", 0),
        ("no", Errors.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    entry = next(e for e in answer.results[1].configs if e.name == "num.io.threads")
    assert (entry.value, entry.config_source, entry.config_type) == ("8", 5, 3 if version >= 3 else 0)
    assert [(s.name, s.value, s.source) for s in entry.synonyms] == [("num.io.threads", "8", 5)]


def test_an_unknown_type_ends_the_request(world: World) -> None:
    with pytest.raises(InvalidRequestError):
        world.describe((TOPIC, "a"), (3, "x"))


@pytest.mark.mechanism("R04")
def test_who_may_describe() -> None:
    world = World(
        StandardAuthorizer(
            [
                acl("User:alice", AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "a"),
                acl("User:alice", AclOperation.DESCRIBE_CONFIGS, ResourceType.GROUP, "g"),
            ]
        )
    )
    asked = [
        (BROKER, "1"),
        (TOPIC, "a"),
        (LOGGER, "1"),
        (TOPIC, "b"),
        (GROUP, "g"),
        (GROUP, "h"),
        (CLIENT_METRICS, "m1"),
    ]
    answer = world.describe(*asked, principal=ALICE)
    found = {(r.resource_type, r.resource_name): Errors(r.error_code) for r in answer.results}
    assert found == {
        (TOPIC, "a"): Errors.NONE,
        (GROUP, "g"): Errors.NONE,
        (TOPIC, "b"): Errors.TOPIC_AUTHORIZATION_FAILED,
        (GROUP, "h"): Errors.GROUP_AUTHORIZATION_FAILED,
        (BROKER, "1"): Errors.CLUSTER_AUTHORIZATION_FAILED,
        (LOGGER, "1"): Errors.CLUSTER_AUTHORIZATION_FAILED,
        (CLIENT_METRICS, "m1"): Errors.CLUSTER_AUTHORIZATION_FAILED,
    }
    assert all(not r.configs for r in answer.results if r.error_code)


# -- altering


def test_topics_groups_and_subscriptions_are_the_controllers_business(world: World) -> None:
    resources = [resource(kind, "x", ("k", SET, "v")) for kind in (TOPIC, GROUP, CLIENT_METRICS)]
    assert world.alter(*resources, validate_only=True) == [Errors.NONE] * 3
    (body,) = world.forwarded
    assert isinstance(body, IncrementalAlterConfigsRequest)
    assert body.resources == resources
    assert body.validate_only


@pytest.mark.mechanism("R10")
def test_both_parts_of_a_response_in_the_order_of_the_request(world: World) -> None:
    world.refusals = {"b": Errors.INVALID_CONFIG}
    world.forgets = {"c"}
    codes = world.alter(
        resource(TOPIC, "a", ("k", SET, "v")),
        resource(BROKER, "2", ("num.io.threads", SET, "8")),
        resource(TOPIC, "b", ("k", SET, "v")),
        resource(LOGGER, "1", ("root", SET, "LOUD")),
        resource(TOPIC, "c", ("k", SET, "v")),
    )
    assert codes == [
        Errors.NONE,
        Errors.INVALID_REQUEST,
        Errors.INVALID_CONFIG,
        Errors.INVALID_CONFIG,
        Errors.UNKNOWN_SERVER_ERROR,
    ]
    assert [r.error_message for r in world.answer.responses][2] == "no"
    assert world.answer.throttle_time_ms == 0, "the broker throttles its client itself"
    assert [r.resource_name for r in world.forwarded[0].resources] == ["a", "b", "c"]  # type: ignore[attr-defined]


def test_loggers_are_changed_here(world: World) -> None:
    log = logging.getLogger("barnabas.testing.handlers.configs")
    before = log.level
    try:
        assert world.alter(resource(LOGGER, "1", (log.name, SET, "ERROR")), validate_only=True) == [Errors.NONE]
        assert log.level == before
        assert world.alter(resource(LOGGER, "1", (log.name, SET, "ERROR"))) == [Errors.NONE]
        assert log.level == logging.ERROR
        assert world.alter(resource(LOGGER, "1", (log.name, DELETE, None))) == [Errors.NONE]
        assert log.level == logging.NOTSET
    finally:
        log.setLevel(before)
    assert world.forwarded == []


@pytest.mark.mechanism("R04")
def test_who_may_change_loggers() -> None:
    world = World(StandardAuthorizer([]))
    codes = world.alter(resource(LOGGER, "1", ("root", SET, "INFO")), principal=ALICE)
    assert codes == [Errors.CLUSTER_AUTHORIZATION_FAILED]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("log.dirs", SET, "/a"), "dynamically"),
        (("num.io.threads", SET, "0"), "at least 1"),
        (("num.io.threads", SET, "100"), "halve or double"),
        (("ssl.keystore.location", SET, "/k"), "listener"),
        (("num.io.threads", 7, "8"), "Unknown operation 7"),
        (("num.io.threads", SET, None), "no value for these keys"),
    ],
)
def test_settings_that_this_broker_cannot_have(world: World, change: Any, message: str) -> None:
    assert world.alter(resource(BROKER, "1", change)) == [Errors.INVALID_REQUEST]
    assert message in world.answer.responses[0].error_message
    assert world.forwarded == []


def test_settings_for_all_brokers(world: World) -> None:
    assert world.alter(resource(BROKER, "", ("num.io.threads", SET, "10"))) == [Errors.NONE]
    assert world.alter(resource(BROKER, "", ("cordoned.log.dirs", SET, "data"))) == [Errors.INVALID_REQUEST]
    assert len(world.forwarded) == 1


def test_what_there_is_already_counts(world: World) -> None:
    # In the metadata this broker has 9 threads, so taking that away is a step from what is in force, 8, to 8.
    assert world.alter(resource(BROKER, "1", ("num.io.threads", DELETE, None))) == [Errors.NONE]
    assert world.alter(resource(BROKER, "1", ("max.connections", SET, "5"))) == [Errors.NONE]


def test_lists(world: World) -> None:
    assert world.alter(resource(BROKER, "1", ("cordoned.log.dirs", APPEND, "data"))) == [Errors.NONE]
    assert world.alter(resource(BROKER, "1", ("cordoned.log.dirs", APPEND, "elsewhere"))) == [Errors.INVALID_REQUEST]
    assert world.alter(resource(BROKER, "1", ("cordoned.log.dirs", SUBTRACT, "elsewhere"))) == [Errors.NONE]
    assert world.alter(resource(BROKER, "1", ("num.io.threads", APPEND, "1"))) == [Errors.INVALID_CONFIG]
    assert world.alter(resource(BROKER, "1", ("no.such", APPEND, "1"))) == [Errors.INVALID_CONFIG]


@pytest.mark.parametrize("name", ["2", "x", "-"])
def test_other_brokers(world: World, name: str) -> None:
    assert world.alter(resource(BROKER, name, ("num.io.threads", SET, "8"))) == [Errors.INVALID_REQUEST]
    # The name comes before what the change itself gets wrong, which would be INVALID_CONFIG.
    assert world.alter(resource(BROKER, name, ("num.io.threads", APPEND, "8"))) == [Errors.INVALID_REQUEST]


def test_requests_that_contradict_themselves(world: World) -> None:
    twice = [resource(TOPIC, "a", ("k", SET, "v")), resource(TOPIC, "a", ("l", SET, "v"))]
    assert world.alter(*twice, resource(TOPIC, "b")) == [Errors.INVALID_REQUEST, Errors.INVALID_REQUEST, Errors.NONE]
    keys = resource(TOPIC, "a", ("k", SET, "v"), ("k", SET, "w"))
    assert world.alter(keys) == [Errors.INVALID_REQUEST]
    assert world.alter(resource(7, "a")) == [Errors.INVALID_REQUEST]


def test_nothing_to_do(world: World) -> None:
    assert world.alter() == []
    assert world.forwarded == []


def test_a_controller_that_does_not_speak_the_version(world: World) -> None:
    world.is_old = True
    for body, version in (
        (IncrementalAlterConfigsRequest(resources=[resource(TOPIC, "a")]), 1),
        (AlterConfigsRequest(resources=[legacy(TOPIC, "a")]), 2),
    ):
        request = world.bench.request(body, version)
        world.bench.handle(world.handler, request)
        assert world.bench.was_closed(request)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_older_request(world: World, version: int) -> None:
    world.refusals = {"b": Errors.POLICY_VIOLATION}
    resources = [
        legacy(TOPIC, "a", retention_ms="5"),
        legacy(BROKER, "1", num_io_threads="9"),
        legacy(BROKER, "1x"),
        legacy(LOGGER, "1", root="INFO"),
        legacy(TOPIC, "b", retention_ms="5"),
        legacy(GROUP, "g", x=None),
    ]
    body = AlterConfigsRequest(resources=resources, validate_only=True)
    answer = world.bench.ask(world.handler, body, version)
    assert [Errors(r.error_code).name for r in answer.responses] == [
        "NONE",
        "NONE",
        "INVALID_REQUEST",
        "INVALID_REQUEST",
        "POLICY_VIOLATION",
        "INVALID_REQUEST",
    ]
    (forwarded,) = world.forwarded
    assert isinstance(forwarded, AlterConfigsRequest)
    assert [r.resource_name for r in forwarded.resources] == ["a", "1", "b"]
    assert forwarded.validate_only


def test_the_older_request_is_checked_as_a_whole(world: World) -> None:
    body = AlterConfigsRequest(resources=[legacy(BROKER, "1", num_io_threads="50")])
    answer = world.bench.ask(world.handler, body, 2)
    assert answer.responses[0].error_code == Errors.INVALID_REQUEST
    assert world.forwarded == []


# -- listing


def test_list_version_0(world: World) -> None:
    answer = world.list(0)
    assert answer.error_code == 0
    assert [(r.resource_type, r.resource_name) for r in answer.config_resources] == [(16, "m1"), (16, "m2")]


def test_list_everything(world: World) -> None:
    answer = world.list(1)
    assert {(r.resource_type, r.resource_name) for r in answer.config_resources} == {
        (TOPIC, "a"),
        (TOPIC, "b"),
        (BROKER, "1"),
        (BROKER, "2"),
        (LOGGER, "1"),
        (LOGGER, "2"),
        (CLIENT_METRICS, "m1"),
        (CLIENT_METRICS, "m2"),
        (GROUP, "g"),
    }, "a broker that is not on this listener cannot be named here"


@pytest.mark.parametrize(("kind", "names"), [(TOPIC, ["a", "b"]), (GROUP, ["g"]), (BROKER, ["1", "2"])])
def test_list_one_kind(world: World, kind: int, names: list[str]) -> None:
    answer = world.list(1, kind)
    assert [r.resource_name for r in answer.config_resources] == names
    assert {r.resource_type for r in answer.config_resources} == {kind}


def test_list_an_unknown_kind(world: World) -> None:
    answer = world.list(1, TOPIC, 99)
    assert (answer.error_code, answer.config_resources) == (Errors.UNSUPPORTED_VERSION, [])


@pytest.mark.mechanism("R04")
def test_who_may_list() -> None:
    world = World(StandardAuthorizer([]))
    with pytest.raises(ClusterAuthorizationError):
        world.list(1, principal=ALICE)


@pytest.mark.mechanism("R11")
def test_throttling() -> None:
    world = World(throttle_time_ms=7)
    world.refusals = {}
    assert world.describe((TOPIC, "a")).throttle_time_ms == 7
    assert world.list(1).throttle_time_ms == 7
    world.alter(resource(TOPIC, "a", ("k", SET, "v")))
    assert world.answer.throttle_time_ms == 7
