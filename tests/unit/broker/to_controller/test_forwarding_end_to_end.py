"""A broker's side of the conversation with real controllers, over real sockets (R10).

The controllers have their own threads and ports, and their log in memory. One of them leads, the other does not and
says so.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, repeat
from typing import Any

import pytest

from barnabas.broker.handlers.broker_api_versions import BrokerApiVersionManager
from barnabas.broker.handlers.forwarded import BARE_FORWARDED, ForwardedHandler
from barnabas.broker.node.broker_state import BrokerState
from barnabas.broker.to_controller.broker_lifecycle_manager import (
    BrokerLifecycleConfig,
    BrokerLifecycleManager,
    BrokerRegistrationInfo,
)
from barnabas.broker.to_controller.controller_node_provider import ControllerNodeProvider
from barnabas.broker.to_controller.forwarding_manager import ForwardingManager
from barnabas.broker.to_controller.node_to_controller_channel import (
    FORWARDING,
    HEARTBEAT,
    NodeToControllerChannelManager,
    NodeToControllerConfig,
)
from barnabas.common.clock import SYSTEM_CLOCK
from barnabas.common.errors import Errors
from barnabas.common.identifiers import Uuid
from barnabas.common.scheduler import MockScheduler
from barnabas.controller.config import ControllerConfig
from barnabas.controller.controller_apis import ControllerApisPlugins, make_controller_apis
from barnabas.controller.quorum_controller import QuorumController
from barnabas.controller.quorum_features import default_supported_features
from barnabas.coordinator.transaction.producer_id_manager import ProducerIdManager
from barnabas.metadata.cache import MetadataCache
from barnabas.metrics.registry import Metrics
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.network.client.node import Node
from barnabas.network.server.config import SocketServerConfig
from barnabas.network.server.endpoint import Endpoint
from barnabas.network.server.socket_server import SocketServer
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.security.auth_helper import AuthHelper
from barnabas.security.authorizer import ALLOWED, Action, AuthorizationResult
from barnabas.security.principal import ANONYMOUS, KafkaPrincipal
from barnabas.security.request_context import AuthorizableRequestContext
from barnabas.server.data_plane import DataPlane
from barnabas.server.dispatch import RequestRunner
from barnabas.server.handler_pool import KafkaRequestHandlerPool
from barnabas.server.request import Request
from barnabas.server.request_channel import RequestChannel
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_metrics import RequestTimes
from barnabas.server.throttling import NO_QUOTAS
from handler_fixtures import FakeQuota, HandlerBench
from local_raft_client import LocalRaftClient
from network_fixtures import WAIT_S, nothing_left_behind, within

CLUSTER_ID = "ezBUH3bTQrGbT7hFBsgH6g"
LISTENER = "CONTROLLER"
ALICE = KafkaPrincipal("User", "alice")
DIRECTORY = Uuid(b"d" * 16)


class Curious:
    """Allows everything, and remembers who wanted what."""

    def __init__(self) -> None:
        self.asked: list[tuple[KafkaPrincipal, ApiKey]] = []

    def authorize(self, context: AuthorizableRequestContext, actions: Sequence[Action]) -> list[AuthorizationResult]:
        self.asked.append((context.principal, context.api_key))
        return [ALLOWED] * len(actions)


class TopicQuota(FakeQuota):
    """Holds everybody back who creates topics, and nobody who asks for versions."""

    def maybe_record_and_get_throttle_time_ms(self, request: Request, now_ms: int) -> int:
        said = super().maybe_record_and_get_throttle_time_ms(request, now_ms)
        return said if request.api_key is ApiKey.CREATE_TOPICS else 0


class Quotas:
    """One request quota to play with."""

    def __init__(self, throttle_time_ms: int) -> None:
        self.request = TopicQuota(throttle_time_ms)
        self.controller_mutation = NO_QUOTAS.controller_mutation
        self.produce = NO_QUOTAS.produce
        self.fetch = NO_QUOTAS.fetch


class ControllerNode:
    """A controller with its listener."""

    def __init__(self, node_id: int, *, leads: bool, throttle_time_ms: int = 0) -> None:
        clock = SYSTEM_CLOCK
        self.raft = LocalRaftClient(node_id)
        self.controller = QuorumController(ControllerConfig(node_id, CLUSTER_ID, max_idle_interval_ms=0), self.raft)
        self.controller.start()
        registry = MetricsRegistry(clock)
        channel = RequestChannel(100, clock, RequestTimes(registry, clock))
        self.quotas = Quotas(throttle_time_ms)
        self.authorizer = Curious()
        authorizer: Any = self.authorizer
        describe_quorum: Any = lambda: None  # noqa: E731 - for the table of APIs; nobody asks
        apis = make_controller_apis(
            self.controller,
            RequestHandlerHelper(channel, clock, self.quotas),
            AuthHelper(authorizer),
            MetadataCache(),
            lambda: self.raft.leader_and_epoch.leader_id,
            plugins=ControllerApisPlugins(describe_quorum=describe_quorum),
        )
        self.apis = apis.apis
        runner = RequestRunner(apis, channel, clock)
        self._sockets = SocketServer(
            node_id,
            [Endpoint(LISTENER, port=0)],
            SocketServerConfig(num_network_threads=1),
            DataPlane(channel, runner, apis.versions, clock),
            Metrics(clock=clock),
        )
        self._channel = channel
        self._handlers = KafkaRequestHandlerPool(runner, 1, clock)
        self._sockets.enable_request_processing().result(WAIT_S)
        self.node = Node(node_id, "127.0.0.1", self._sockets.bound_port(LISTENER))
        if leads:
            self.raft.start()

    def close(self) -> None:
        self._sockets.stop_processing_requests()
        self._handlers.shutdown()
        self._channel.close()
        self.controller.close()
        self.raft.close()


@contextmanager
def controllers(*nodes: tuple[int, bool], throttle_time_ms: int = 0) -> Iterator[list[ControllerNode]]:
    with nothing_left_behind():
        started = [ControllerNode(node_id, leads=leads, throttle_time_ms=throttle_time_ms) for node_id, leads in nodes]
        try:
            yield started
        finally:
            for node in started:
                within(WAIT_S, node.close)


@contextmanager
def channel_to(nodes: ControllerNodeProvider, name: str = FORWARDING) -> Iterator[NodeToControllerChannelManager]:
    channel = NodeToControllerChannelManager(NodeToControllerConfig(1), name, nodes, WAIT_S * 1000)
    channel.start()
    try:
        yield channel
    finally:
        within(WAIT_S, channel.shutdown)


def provider(*nodes: ControllerNode, leaders: Iterator[int] | None = None) -> ControllerNodeProvider:
    led_by = repeat(nodes[0].node.id) if leaders is None else leaders
    return ControllerNodeProvider({node.node.id: node.node for node in nodes}, leader_id=lambda: next(led_by))


class Client(HandlerBench):
    """The part of a broker that clients see: requests come in here, and answers can be waited for."""

    def __init__(self, channel: NodeToControllerChannelManager, throttle_time_ms: int = 0) -> None:
        self.own_quotas = Quotas(throttle_time_ms)
        super().__init__(self.own_quotas)
        self.family = ForwardedHandler(self.helper, ForwardingManager(channel, self.registry))

    def create_topic(self, name: str) -> Any:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        request = self.request(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7, principal=ALICE)
        self.handle(self.family, request)
        while not self.is_answered(request):
            self.processor.responses.put(self.processor.next_response())
        return self.answer(request)


def start_broker(nodes: ControllerNodeProvider, controller: ControllerNode) -> BrokerLifecycleManager:
    manager = BrokerLifecycleManager(BrokerLifecycleConfig(1), [DIRECTORY])
    info = BrokerRegistrationInfo(CLUSTER_ID, [Endpoint("PLAINTEXT", port=9092)], default_supported_features())
    channel = NodeToControllerChannelManager(NodeToControllerConfig(1), HEARTBEAT, nodes, 9_000)
    manager.start(lambda: (controller.raft.high_watermark or 0) - 1, channel, info)
    return manager


@pytest.mark.mechanism("R10")
def test_a_broker_lives_from_registration_to_controlled_shutdown() -> None:
    with controllers((1, True)) as [controller]:
        manager = start_broker(provider(controller), controller)
        try:
            manager.initial_catch_up_future.result(WAIT_S)
            manager.set_ready_to_unfence().result(WAIT_S)
            assert manager.state is BrokerState.RUNNING
            names = {thread.name for thread in threading.enumerate()}
            assert "broker-1-to-controller-heartbeat-channel-manager" in names
            manager.begin_controlled_shutdown()
            manager.controlled_shutdown_future.result(WAIT_S)
        finally:
            within(WAIT_S, manager.close)


@pytest.mark.mechanism("R10")
def test_a_request_finds_its_way_from_the_wrong_controller_to_the_right_one() -> None:
    with controllers((1, True), (2, False)) as [right, wrong]:
        manager = start_broker(provider(right), right)
        try:
            manager.initial_catch_up_future.result(WAIT_S)
            manager.set_ready_to_unfence().result(WAIT_S)
            nodes = provider(right, wrong, leaders=chain([2], repeat(1)))
            with channel_to(nodes) as channel:
                answer = Client(channel).create_topic("orders")
                assert [(topic.name, topic.error_code) for topic in answer.topics] == [("orders", Errors.NONE)]
                assert channel.controller_api_versions is not None
            assert (ALICE, ApiKey.CREATE_TOPICS) in wrong.authorizer.asked, "it was asked"
            forwarded = [asked for asked in right.authorizer.asked if asked[1] is ApiKey.CREATE_TOPICS]
            assert {principal for principal, _ in forwarded} == {ALICE}, "the client is who it was"
            assert (ANONYMOUS, ApiKey.ENVELOPE) in right.authorizer.asked, "and the broker is who forwards"
        finally:
            within(WAIT_S, manager.close)


@pytest.mark.mechanism("R10")
def test_a_request_survives_a_controller_that_is_not_there() -> None:
    with controllers((1, True)) as [controller]:
        gone = Node(9, "127.0.0.1", 1)
        leaders = chain([9], repeat(1))
        nodes = ControllerNodeProvider({1: controller.node, 9: gone}, leader_id=lambda: next(leaders))
        with channel_to(nodes) as channel:
            answer = Client(channel).create_topic("orders")
            assert [topic.error_code for topic in answer.topics] == [Errors.INVALID_REPLICATION_FACTOR], "no broker"


@pytest.mark.mechanism("R10")
def test_the_client_is_throttled_by_its_broker_and_not_by_the_controller() -> None:
    with controllers((1, True), throttle_time_ms=300) as [controller], channel_to(provider(controller)) as channel:
        client = Client(channel, throttle_time_ms=100)
        assert client.create_topic("orders").throttle_time_ms == 300
        assert [time for _, time in client.own_quotas.request.throttled] == [300]
        assert not controller.quotas.request.throttled, "the connection of the broker serves all its clients"


@pytest.mark.mechanism("R03")
def test_what_a_broker_forwards_its_controller_serves() -> None:
    with controllers((1, True)) as [controller], channel_to(provider(controller)) as channel:
        assert set(BARE_FORWARDED) <= controller.apis
        versions = BrokerApiVersionManager(
            {*BARE_FORWARDED, ApiKey.API_VERSIONS},
            default_supported_features(),
            MetadataCache().features,
            lambda: channel.controller_api_versions,
        )
        before = versions.advertised()
        Client(channel).create_topic("orders")
        assert channel.controller_api_versions is not None
        assert versions.advertised() == before


def test_producer_ids_come_from_the_controller() -> None:
    with controllers((1, True)) as [controller]:
        manager = start_broker(provider(controller), controller)
        try:
            manager.initial_catch_up_future.result(WAIT_S)
            with channel_to(provider(controller)) as channel:
                ids = ProducerIdManager(1, lambda: manager.broker_epoch, channel, MockScheduler())
                assert [ids.next_producer_id(60_000).result(WAIT_S) for _ in range(3)] == [0, 1, 2]
        finally:
            within(WAIT_S, manager.close)
