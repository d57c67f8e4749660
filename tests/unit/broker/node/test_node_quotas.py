"""Quotas in a whole node: what is set over the protocol arrives where it is enforced."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from benchmarks.waiting import until

from barnabas import EmbeddedBroker
from barnabas.broker.node.broker_server import BrokerServer
from barnabas.cli.quota_requests import alter_quotas
from barnabas.clients.common.blocking_client import BlockingClient
from barnabas.common.config_def import ConfigError
from barnabas.common.errors import Errors
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.quota.client_quota_manager import NO_LIMIT
from barnabas.quota.quota_factory import QuotaManagers
from unit.quota.test_quota_factory import ByTeam

_BROKER, _TOPIC = 4, 2
_SET, _DELETE = 0, 1


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(overrides={"barnabas.http.listener": "127.0.0.1:0"}) as started:
        yield started


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[BlockingClient]:
    with BlockingClient(broker.bootstrap_servers, client_id="client") as made:
        yield made


def server_of(broker: EmbeddedBroker) -> BrokerServer:
    server = broker.server.broker
    assert server is not None
    return server


def quotas_of(broker: EmbeddedBroker) -> QuotaManagers:
    quotas = server_of(broker).quotas
    assert quotas is not None
    return quotas


def eventually(condition: Callable[[], object]) -> None:
    until(condition, "not true", 60)


def configure(client: BlockingClient, kind: int, name: str, setting: str, value: str | None) -> None:
    config = AlterableConfig(name=setting, config_operation=_DELETE if value is None else _SET, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    response: IncrementalAlterConfigsResponse = client.send(IncrementalAlterConfigsRequest(resources=[resource]))
    assert [(one.error_code, one.error_message) for one in response.responses] == [(0, None)]


@pytest.mark.mechanism("Q10")
@pytest.mark.mechanism("Q07")
def test_a_request_quota_is_set_enforced_and_taken_away(broker: EmbeddedBroker, client: BlockingClient) -> None:
    quotas, server = quotas_of(broker), server_of(broker)
    assert server.serving is not None
    sockets = server.serving.socket_server
    assert sockets is not None

    def measured() -> set[bool]:
        return {processor.selector.reactor.record_time_per_connection for processor in sockets.processors}

    assert measured() == {False}
    entity = (("client-id", "client"),)
    alter_quotas(client, entity, {"request_percentage": 0.000_001})
    eventually(lambda: quotas.request.is_enabled)
    assert measured() == {True}, "the network threads' time counts too"
    response: MetadataResponse = client.send(MetadataRequest(topics=[]))
    assert response.throttle_time_ms == 1_000
    with urllib.request.urlopen(f"{broker.server.http_address}/quotas", timeout=60) as answer:
        page: dict[str, Any] = json.load(answer)
    assert page["node"] == 1
    assert page["callback"] is None
    assert page["windows"]["request_percentage"] == {"samples": 11, "window_ms": 1_000}
    (usage,) = (one for one in page["quotas"] if one["key"] == "request_percentage")
    assert usage["tags"] == {"user": "", "client-id": "client"}
    assert usage["limit"] == 0.000_001
    with BlockingClient(broker.bootstrap_servers, client_id="operator") as operator:
        alter_quotas(operator, entity, {"request_percentage": None})
    eventually(lambda: measured() == {False})


@pytest.mark.mechanism("Q08")
@pytest.mark.mechanism("R11")
def test_mutations_are_charged_on_the_controller_and_told_by_the_broker(
    broker: EmbeddedBroker, client: BlockingClient
) -> None:
    controller = broker.server.controller
    assert controller is not None
    assert controller.quotas is not None
    mutations = controller.quotas.controller_mutation
    entity = (("client-id", "client"),)
    alter_quotas(client, entity, {"controller_mutation_rate": 0.5})
    eventually(lambda: mutations.is_enabled)

    def create(*names: str) -> CreateTopicsResponse:
        topics = [CreatableTopic(name=name, num_partitions=10, replication_factor=1) for name in names]
        response: CreateTopicsResponse = client.send(CreateTopicsRequest(topics=topics, timeout_ms=60_000))
        return response

    response = create("made", "refused")
    assert {topic.name: topic.error_code for topic in response.topics} == {
        "made": Errors.NONE,
        "refused": Errors.THROTTLING_QUOTA_EXCEEDED,
    }
    assert 8_000 <= response.throttle_time_ms <= 9_000, "5.5 permits of which 10 are taken: 4.5 are missing"
    with BlockingClient(broker.bootstrap_servers, client_id="operator") as operator:
        alter_quotas(operator, entity, {"controller_mutation_rate": None})
    # The broker holds the client back, for seconds; whom another test has left muted is let go before that.
    eventually(lambda: quotas_of(broker).request.throttled_channels == 1)
    assert controller.quotas.request.throttled_channels == 0, "and nobody the broker"


@pytest.mark.mechanism("Q09")
def test_replication_throttles_follow_the_settings(broker: EmbeddedBroker) -> None:
    quotas = quotas_of(broker)
    with BlockingClient(broker.bootstrap_servers, client_id="operator") as client:
        topic = CreatableTopic(
            name="throttled",
            num_partitions=2,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="leader.replication.throttled.replicas", value="1:1")],
        )
        client.send(CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
        eventually(lambda: quotas.leader.is_throttled(TopicPartition("throttled", 1)))
        assert not quotas.leader.is_throttled(TopicPartition("throttled", 0))
        configure(client, _BROKER, "1", "leader.replication.throttled.rate", "1000")
        configure(client, _BROKER, "", "replica.alter.log.dirs.io.max.bytes.per.second", "2000")
        eventually(lambda: quotas.alter_log_dirs.upper_bound == 2_000)
        assert quotas.leader.upper_bound == 1_000
        configure(client, _TOPIC, "throttled", "leader.replication.throttled.replicas", None)
        eventually(lambda: not quotas.leader.is_throttled(TopicPartition("throttled", 1)))
        configure(client, _BROKER, "1", "leader.replication.throttled.rate", None)
        configure(client, _BROKER, "", "replica.alter.log.dirs.io.max.bytes.per.second", None)
        eventually(lambda: quotas.leader.upper_bound == NO_LIMIT and quotas.alter_log_dirs.upper_bound == NO_LIMIT)


@pytest.mark.mechanism("Q11")
def test_a_broker_has_the_callback_that_its_settings_name() -> None:
    name = f"{ByTeam.__module__}.{ByTeam.__name__}"
    with EmbeddedBroker(overrides={"client.quota.callback.class": name}) as broker:
        callback = quotas_of(broker).callback
        assert type(callback).__name__ == "ByTeam"
        with BlockingClient(broker.bootstrap_servers) as client:
            client.nodes()
        assert "Request-ANONYMOUS" in broker.server.shared.metrics.sensors, "measured by the callback's tags"


@pytest.mark.mechanism("Q11")
def test_a_callback_that_there_is_not_keeps_a_broker_from_starting() -> None:
    with (
        pytest.raises(ConfigError, match=r"client\.quota\.callback\.class"),
        EmbeddedBroker(overrides={"client.quota.callback.class": "com.example.Callback"}),
    ):
        pass
