"""The controller's listener over real sockets: what a broker forwards, and what comes back."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from barnabas.common.clock import SYSTEM_CLOCK
from barnabas.common.errors import Errors
from barnabas.common.identifiers import Uuid
from barnabas.controller.config import ControllerConfig
from barnabas.controller.controller_apis import INLINE_APIS, make_controller_apis
from barnabas.controller.quorum_controller import QuorumController
from barnabas.metadata.cache import MetadataCache
from barnabas.metrics.registry import Metrics
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.network.server.config import SocketServerConfig
from barnabas.network.server.endpoint import Endpoint
from barnabas.network.server.socket_server import SocketServer
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import encode_request
from barnabas.protocol.message import Request as RequestBody
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest, Listener
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.security.acl import CLUSTER_NAME, AclBinding, AclOperation, ResourceType, acl
from barnabas.security.auth_helper import AuthHelper
from barnabas.security.principal import KafkaPrincipal, serialize_principal
from barnabas.security.standard_authorizer import StandardAuthorizer
from barnabas.server.data_plane import DataPlane
from barnabas.server.dispatch import RequestRunner
from barnabas.server.handler_pool import KafkaRequestHandlerPool
from barnabas.server.request_channel import RequestChannel
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_metrics import RequestTimes
from local_raft_client import LocalRaftClient
from network_fixtures import WAIT_S, Client, Policy, every_policy, nothing_left_behind, within
from unit.controller.harness import CLUSTER_ID, supported_features, topic

CONTROLLER = "CONTROLLER"
NODE_ID = 1
ALICE = KafkaPrincipal("User", "alice")
BROKER_MAY_FORWARD = acl("User:ANONYMOUS", AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)


class Broker(Client):
    """A broker as the controller sees it: a connection that sends requests, some of them in Envelopes."""

    def call(self, body: RequestBody, version: int, correlation_id: int = 5) -> Any:
        self.send(encode_request(body, version, correlation_id, "broker"))
        return self.answer(body.api_key, version, correlation_id)

    def answer(self, api_key: ApiKey, version: int, correlation_id: int) -> Any:
        number, data = self.receive()
        assert number == correlation_id
        return api_key.response.decode(data[api_key.response_header_version(version) :], version)

    def forward(self, body: RequestBody, version: int, client: KafkaPrincipal = ALICE) -> EnvelopeResponse:
        envelope = EnvelopeRequest(
            request_data=encode_request(body, version, 99, "client")[4:],
            request_principal=serialize_principal(client),
            client_host_address=bytes([192, 0, 2, 7]),
        )
        answer = self.call(envelope, 0)
        assert isinstance(answer, EnvelopeResponse)
        return answer

    def register(self, broker_id: int = 7) -> None:
        """Becomes a broker that topics can be placed on."""
        registration = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=Uuid(b"i" * 16),
            listeners=[Listener(name="PLAINTEXT", host="localhost", port=9092)],
            features=supported_features(),
            log_dirs=[Uuid(b"l" * 16)],
        )
        answer = self.call(registration, 4)
        assert answer.error_code == Errors.NONE
        beat = BrokerHeartbeatRequest(
            broker_id=broker_id, broker_epoch=answer.broker_epoch, current_metadata_offset=answer.broker_epoch
        )
        assert not self.call(beat, 1).is_fenced


class ControllerNode:
    """A controller with all of its threads, behind a listener of its own."""

    def __init__(self, policy: Policy, authorizer: StandardAuthorizer | None) -> None:
        clock = SYSTEM_CLOCK
        self.raft = LocalRaftClient(NODE_ID, clock=clock)
        self.controller = QuorumController(
            ControllerConfig(NODE_ID, CLUSTER_ID, max_idle_interval_ms=0), self.raft, clock=clock
        )
        channel = RequestChannel(
            100,
            clock,
            RequestTimes(MetricsRegistry(clock), clock),
            short_apis=INLINE_APIS,
            parallel=policy.parallel,
        )
        apis = make_controller_apis(
            self.controller,
            RequestHandlerHelper(channel, clock),
            AuthHelper(authorizer),
            MetadataCache(),
            lambda: self.raft.leader_and_epoch.leader_id,
        )
        runner = RequestRunner(apis, channel, clock)
        self.channel = channel
        self.sockets = SocketServer(
            NODE_ID,
            [Endpoint(CONTROLLER, port=0)],
            SocketServerConfig(num_network_threads=1),
            DataPlane(channel, runner, apis.versions, clock, policy.hand_off),
            Metrics(clock=clock),
            clock,
        )
        self.handlers = KafkaRequestHandlerPool(runner, 2, clock)
        self.connections: list[Broker] = []

    def start(self) -> None:
        self.controller.start()
        self.raft.start()
        self.sockets.enable_request_processing().result(WAIT_S)

    def connect(self) -> Broker:
        client = Client.connect(self.sockets.bound_port(CONTROLLER))
        self.connections.append(Broker(client.socket))
        return self.connections[-1]

    def close(self) -> None:
        for connection in self.connections:
            connection.close()
        self.sockets.stop_processing_requests()
        self.handlers.shutdown()
        self.channel.close()
        self.controller.close()
        self.raft.close()


@contextmanager
def running(policy: Policy, *acls: AclBinding) -> Iterator[ControllerNode]:
    with nothing_left_behind():
        node = ControllerNode(policy, StandardAuthorizer(acls) if acls else None)
        try:
            node.start()
            yield node
        finally:
            within(2 * WAIT_S, node.close)


def create(*names: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[topic(name, 2, 1) for name in names], timeout_ms=60_000)


def inside(envelope: EnvelopeResponse, api_key: ApiKey, version: int) -> Any:
    """The response in an Envelope, which must be the one to the client's request."""
    assert envelope.error_code == Errors.NONE
    data = envelope.response_data
    assert data is not None
    assert struct.unpack_from(">i", data) == (99,)
    return api_key.response.decode(data[4 + api_key.response_header_version(version) :], version)


@pytest.mark.mechanism("R10")
@every_policy
def test_a_forwarded_request_comes_back_in_its_envelope(policy: Policy) -> None:
    with running(policy) as node:
        broker = node.connect()
        broker.register()
        for version in (2, 7):
            created = inside(broker.forward(create(f"orders-{version}"), version), ApiKey.CREATE_TOPICS, version)
            assert isinstance(created, CreateTopicsResponse)
            assert [(row.name, row.error_code) for row in created.topics] == [(f"orders-{version}", Errors.NONE)]
        again = inside(broker.forward(create("orders-7"), 7), ApiKey.CREATE_TOPICS, 7)
        assert again.topics[0].error_code == Errors.TOPIC_ALREADY_EXISTS
        delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders-7")], timeout_ms=60_000)
        gone = inside(broker.forward(delete, 6), ApiKey.DELETE_TOPICS, 6)
        assert isinstance(gone, DeleteTopicsResponse)
        assert [(row.name, row.error_code) for row in gone.responses] == [("orders-7", Errors.NONE)]


@pytest.mark.mechanism("R04")
@pytest.mark.mechanism("R10")
@every_policy
def test_the_client_is_judged_and_not_the_broker(policy: Policy) -> None:
    alice_may = acl("User:alice", AclOperation.CREATE, ResourceType.TOPIC, "orders", host="192.0.2.7")
    with running(policy, BROKER_MAY_FORWARD, alice_may) as node:
        broker = node.connect()
        broker.register()
        created = inside(broker.forward(create("orders", "bills"), 7), ApiKey.CREATE_TOPICS, 7)
        assert [(row.name, row.error_code) for row in created.topics] == [
            ("orders", Errors.NONE),
            ("bills", Errors.TOPIC_AUTHORIZATION_FAILED),
        ]
        bob = KafkaPrincipal("User", "bob")
        refused = inside(broker.forward(create("others"), 7, bob), ApiKey.CREATE_TOPICS, 7)
        assert [row.error_code for row in refused.topics] == [Errors.TOPIC_AUTHORIZATION_FAILED]


@pytest.mark.mechanism("R04")
@pytest.mark.mechanism("R12")
@every_policy
def test_who_is_no_broker_may_not_forward_or_act_as_one(policy: Policy) -> None:
    alice_may = acl("User:alice", AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    with running(policy, alice_may) as node:
        stranger = node.connect()
        answer = stranger.forward(create("orders"), 7)
        assert (answer.error_code, answer.response_data) == (Errors.CLUSTER_AUTHORIZATION_FAILED, None)
        beat = stranger.call(BrokerHeartbeatRequest(broker_id=7), 1)
        assert beat.error_code == Errors.CLUSTER_AUTHORIZATION_FAILED
        direct = stranger.call(create("orders"), 7)
        assert [row.error_code for row in direct.topics] == [Errors.TOPIC_AUTHORIZATION_FAILED]


@pytest.mark.mechanism("R10")
@every_policy
def test_a_broker_learns_that_the_controller_is_elsewhere(policy: Policy) -> None:
    with running(policy) as node:
        broker = node.connect()
        broker.register()
        node.raft.elect(NODE_ID + 1)
        answer = broker.forward(create("orders"), 7)
        assert (answer.error_code, answer.response_data) == (Errors.NOT_CONTROLLER, None)
        node.raft.elect(NODE_ID)
        created = inside(broker.forward(create("orders"), 7), ApiKey.CREATE_TOPICS, 7)
        assert created.topics[0].error_code == Errors.NONE, "the client has noticed nothing"


@pytest.mark.mechanism("R12")
@every_policy
def test_a_bad_request_inside_costs_the_broker_nothing(policy: Policy) -> None:
    """Else one client could cut off all others of its broker from the controller."""
    with running(policy) as node:
        broker = node.connect()
        broker.register()
        good = encode_request(create("orders"), 7, 99, "client")[4:]
        for data in (b"", good[:-2], b"\0\x13\0\x63" + good[4:], encode_request(MetadataRequest(), 9, 1, None)[4:]):
            envelope = EnvelopeRequest(
                request_data=data,
                request_principal=serialize_principal(ALICE),
                client_host_address=bytes([192, 0, 2, 7]),
            )
            answer = broker.call(envelope, 0)
            assert answer.error_code in (Errors.UNSUPPORTED_VERSION, Errors.INVALID_REQUEST)
            assert answer.response_data is None
        created = inside(broker.forward(create("orders"), 7), ApiKey.CREATE_TOPICS, 7)
        assert created.topics[0].error_code == Errors.NONE


@pytest.mark.mechanism("R12")
@every_policy
def test_a_request_that_can_get_no_response_ends_the_connection(policy: Policy) -> None:
    with running(policy) as node:
        heartbeat = encode_request(BrokerHeartbeatRequest(), 1, 1, "b")
        unreadable = heartbeat[:-6]
        frames = {
            "an API of brokers": encode_request(MetadataRequest(), 9, 1, "b"),
            "a version of the future": heartbeat[:6] + b"\0\x63" + heartbeat[8:],
            "a body cut short": struct.pack(">i", len(unreadable) - 4) + unreadable[4:],
        }
        for what, frame in frames.items():
            connection = node.connect()
            connection.send(frame)
            connection.await_close()
            assert node.connect().call(ApiVersionsRequest(), 0).error_code == Errors.NONE, what


@pytest.mark.mechanism("R12")
@every_policy
def test_a_broker_of_the_future_is_told_what_is_spoken(policy: Policy) -> None:
    with running(policy) as node:
        broker = node.connect()
        frame = encode_request(ApiVersionsRequest(), 3, 5, "b")
        broker.send(frame[:6] + b"\0\x63" + frame[8:])
        number, data = broker.receive()
        answer = ApiVersionsResponse.decode(data, 0)
        assert (number, answer.error_code) == (5, Errors.UNSUPPORTED_VERSION)
        assert [(row.api_key, row.max_version) for row in answer.api_keys] == [(ApiKey.API_VERSIONS, 5)]
        listed = broker.call(ApiVersionsRequest(client_software_name="b", client_software_version="1"), 5)
        assert ApiKey.ENVELOPE in {row.api_key for row in listed.api_keys}
