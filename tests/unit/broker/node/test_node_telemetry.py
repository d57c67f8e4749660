"""Telemetry of a whole broker: subscriptions from the metadata log, topics that are made, settings that change."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from benchmarks.waiting import until as wait_until

from barnabas import EmbeddedBroker
from barnabas.broker.node.node_telemetry import NodeTelemetry, subscription_of
from barnabas.clients.common.blocking_client import BlockingClient, ClientError
from barnabas.clients.common.topic_tail import TopicTail
from barnabas.common.errors import Errors, InvalidConfigurationError, InvalidRequestError
from barnabas.common.identifiers import Uuid
from barnabas.common.topic_names import CLIENT_TELEMETRY_TOPIC, QUOTA_USAGE_TOPIC, REQUEST_LOG_TOPIC
from barnabas.protocol.messages import incremental_alter_configs as alter
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestEntryData,
)
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from barnabas.records.builder import RecordBatchBuilder

CLIENT_METRICS, BROKER = 16, 4
WAIT_S = 60.0


class Cluster:
    """A broker and a client of it."""

    def __init__(self, broker: EmbeddedBroker, client: BlockingClient) -> None:
        self.broker = broker
        self.client = client
        server = broker.server.broker
        assert server is not None
        assert server.telemetry is not None
        self.telemetry: NodeTelemetry = server.telemetry

    def alter(self, kind: int, name: str, settings: Mapping[str, str | None]) -> int:
        configs = [
            alter.AlterableConfig(name=key, config_operation=1 if value is None else 0, value=value)
            for key, value in settings.items()
        ]
        resource = alter.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        answer: alter.IncrementalAlterConfigsResponse = self.client.send(
            alter.IncrementalAlterConfigsRequest(resources=[resource])
        )
        return answer.responses[0].error_code

    def subscribe(self, name: str, settings: Mapping[str, str | None]) -> GetTelemetrySubscriptionsResponse:
        """Makes a subscription and returns what the client is told of it."""
        assert self.alter(CLIENT_METRICS, name, settings) == 0
        until(lambda: name in self.telemetry.client_metrics.subscriptions)
        response: GetTelemetrySubscriptionsResponse = self.client.send(GetTelemetrySubscriptionsRequest())
        return response

    def tail(self, topic: str, count: int) -> list[Any]:
        """Returns the first records of a topic."""
        reader = TopicTail(self.client, topic, from_beginning=True)
        found: list[Any] = []

        def enough() -> bool:
            found.extend(tailed.record for tailed in reader.poll(100))
            return len(found) >= count

        wait_until(enough, lambda: f"only {len(found)} of {count} records came in {topic}", WAIT_S)
        return found


def push_for(subscription: GetTelemetrySubscriptionsResponse) -> PushTelemetryRequest:
    return PushTelemetryRequest(
        client_instance_id=subscription.client_instance_id,
        subscription_id=subscription.subscription_id,
        metrics=b"otlp",
    )


def until(condition: Callable[[], object]) -> None:
    wait_until(condition, "it never came to that", WAIT_S)


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """Starts a broker with two partitions in each telemetry topic, and a client of it."""
    settings = {
        "barnabas.quota.usage.interval.ms": 200,
        "barnabas.telemetry.topics.num.partitions": 2,
        "barnabas.telemetry.advertise": "always",
    }
    with (
        EmbeddedBroker(overrides=settings) as broker,
        BlockingClient(broker.bootstrap_servers, client_id="me") as client,
    ):
        yield Cluster(broker, client)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as shared:
        yield shared


@pytest.mark.mechanism("Q15")
@pytest.mark.mechanism("Q14")
def test_from_a_subscription_to_a_record(cluster: Cluster) -> None:
    client, manager = cluster.client, cluster.telemetry.client_metrics
    response = cluster.subscribe("mine", {"metrics": "a.,b.", "interval.ms": "100", "match": "client_id=me"})
    assert response.requested_metrics == ["a.", "b."]
    assert response.push_interval_ms == 100
    assert response.telemetry_max_bytes == 1_048_576
    push = push_for(response)
    pushed: PushTelemetryResponse = client.send(push)
    assert pushed.error_code == Errors.NONE
    (record,) = cluster.tail(CLIENT_TELEMETRY_TOPIC, 1)
    headers = dict(record.headers)
    assert record.value == b"otlp"
    assert headers["client_id"] == b"me"
    assert headers["client_software_name"] == b"barnabas"
    assert headers["client_source_port"].isdigit()

    assert cluster.alter(CLIENT_METRICS, "mine", dict.fromkeys(("metrics", "interval.ms", "match"))) == 0
    until(lambda: "mine" not in manager.subscriptions)
    assert client.send(push).error_code == Errors.UNKNOWN_SUBSCRIPTION_ID
    known = GetTelemetrySubscriptionsRequest(client_instance_id=response.client_instance_id)
    assert client.send(known).requested_metrics == []


@pytest.mark.mechanism("Q14")
def test_a_client_is_forgotten_when_it_disconnects(cluster: Cluster) -> None:
    manager = cluster.telemetry.client_metrics
    uuid = Uuid(b"0123456789abcdef")
    with BlockingClient(cluster.broker.bootstrap_servers) as client:
        client.send(GetTelemetrySubscriptionsRequest(client_instance_id=uuid))
        assert manager.instance(uuid) is not None
    until(lambda: manager.instance(uuid) is None)


def test_the_request_log_is_turned_on_and_off_while_the_broker_runs(cluster: Cluster) -> None:
    log = cluster.telemetry.request_log
    assert log.sample_rate == 0.0
    assert cluster.alter(BROKER, "", {"barnabas.request.log.sample.rate": "2"}) != 0
    assert cluster.alter(BROKER, "", {"barnabas.request.log.sample.rate": "1"}) == 0
    until(lambda: log.sample_rate == 1.0)
    cluster.client.send(
        CreateTopicsRequest(
            topics=[CreatableTopic(name="logged", num_partitions=1, replication_factor=1)], timeout_ms=60_000
        )
    )
    found: list[dict[str, Any]] = []

    def logged() -> bool:
        found[:] = [json.loads(record.value) for record in cluster.tail(REQUEST_LOG_TOPIC, 1)]
        # Two network threads log them, each when it has sent its response.
        return {one["forwarded"] for one in found if one["api"] == "CreateTopics"} == {False, True}

    until(logged)
    made = [one for one in found if one["api"] == "CreateTopics"]
    by_client = next(one for one in made if not one["forwarded"])
    by_broker = next(one for one in made if one["forwarded"])
    assert by_client["client_id"] == by_broker["client_id"] == "me"
    assert by_client["errors"] == by_broker["errors"] == {}
    assert by_broker["listener"] == "CONTROLLER"
    for one in found:
        moments = [one[name] for name in one if name.endswith("_time_us") and name != "callback_time_us"]
        assert len(moments) == 6
        assert moments == sorted(moments)
        assert one["errors"] is not None, one
    assert cluster.alter(BROKER, "", {"barnabas.request.log.sample.rate": None}) == 0
    until(lambda: log.sample_rate == 0.0)


def test_the_use_of_quotas_is_reported_without_any_setting(cluster: Cluster) -> None:
    entity = [EntityData(entity_type="client-id", entity_name="me")]

    def set_quotas(remove: bool) -> None:
        ops = [
            OpData(key=key, value=1e6, remove=remove)
            for key in ("producer_byte_rate", "request_percentage", "controller_mutation_rate")
        ]
        cluster.client.send(AlterClientQuotasRequest(entries=[RequestEntryData(entity=entity, ops=ops)]))

    set_quotas(False)
    node = cluster.broker.server
    for role in (node.broker, node.controller):
        assert role is not None
        quotas = role.quotas
        assert quotas is not None
        until(lambda quotas=quotas: quotas.controller_mutation.is_enabled)  # type: ignore[misc]
    cluster.client.send(
        CreateTopicsRequest(
            topics=[CreatableTopic(name="used", num_partitions=3, replication_factor=1)], timeout_ms=60_000
        )
    )
    builder = RecordBatchBuilder()
    builder.append(1, None, bytes(1_000))
    data = TopicProduceData(name="used", partition_data=[PartitionProduceData(index=0, records=bytes(builder.close()))])
    topic_id = _topic_id(cluster.client, "used")
    data.topic_id = topic_id
    cluster.client.send(ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[data]))
    found: list[dict[str, Any]] = []

    def reported() -> bool:
        # The broker itself makes this topic, and whoever looks late finds that reported, too.
        said = [json.loads(record.value) for record in cluster.tail(QUOTA_USAGE_TOPIC, 1)]
        found[:] = [one for one in said if one["client_id"] == "me"]
        quotas = {one["quota"] for one in found}
        return quotas == {"producer_byte_rate", "request_percentage", "controller_mutation_rate"}

    until(reported)
    produced = sum(one["amount"] for one in found if one["quota"] == "producer_byte_rate")
    assert 1_000 < produced < 1_300
    assert sum(one["amount"] for one in found if one["quota"] == "controller_mutation_rate") == 3
    set_quotas(True)


def _topic_id(client: BlockingClient, topic: str) -> Uuid:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    until(lambda: not client.send(asked).topics[0].error_code)
    response: MetadataResponse = client.send(asked)
    return response.topics[0].topic_id


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    with running_cluster() as own:
        yield own


def test_the_topics_are_internal_and_clients_cannot_write_to_them(own_cluster: Cluster) -> None:
    cluster = own_cluster
    subscription = cluster.subscribe("any", {"metrics": "a.", "interval.ms": "100", "match": "client_id=me"})
    assert cluster.client.send(push_for(subscription)).error_code == Errors.NONE
    cluster.tail(CLIENT_TELEMETRY_TOPIC, 1)
    names = [MetadataRequestTopic(name=CLIENT_TELEMETRY_TOPIC)]
    response: MetadataResponse = cluster.client.send(MetadataRequest(topics=names))
    assert response.topics[0].is_internal
    assert len(response.topics[0].partitions) == 2
    builder = RecordBatchBuilder()
    builder.append(1, None, b"forged")
    data = TopicProduceData(
        name=CLIENT_TELEMETRY_TOPIC,
        topic_id=response.topics[0].topic_id,
        partition_data=[PartitionProduceData(index=0, records=bytes(builder.close()))],
    )
    answer = cluster.client.send(ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[data]))
    assert answer.responses[0].partition_responses[0].error_code == Errors.INVALID_TOPIC_EXCEPTION


def test_what_is_queued_is_written_before_the_broker_ends(tmp_path: Any) -> None:
    with EmbeddedBroker(tmp_path, overrides={"barnabas.request.log.sample.rate": 1}) as broker:
        with BlockingClient(broker.bootstrap_servers) as client:
            client.send(MetadataRequest(topics=[]))
            writer = Cluster(broker, client).telemetry.request_log._writer
            until(lambda: writer.written)
        logged = [writer.queued + writer.written]
        with BlockingClient(broker.bootstrap_servers, client_id="last") as client:
            client.send(MetadataRequest(topics=[]))
            # The network thread logs a request after it has sent the response. These are ApiVersions and Metadata.
            until(lambda: writer.queued + writer.written >= logged[0] + 2)
    with EmbeddedBroker(tmp_path) as broker, BlockingClient(broker.bootstrap_servers) as client:
        found: list[str] = []
        tail = TopicTail(client, REQUEST_LOG_TOPIC, from_beginning=True)

        def read_last() -> bool:
            found.extend(json.loads(bytes(tailed.record.value or b""))["client_id"] for tailed in tail.poll(100))
            return "last" in found

        until(read_last)


def test_nothing_is_created_where_nothing_is_to_be_told() -> None:
    settings = {"barnabas.telemetry.advertise": "always"}
    with EmbeddedBroker(overrides=settings) as broker, BlockingClient(broker.bootstrap_servers) as client:
        client.send(GetTelemetrySubscriptionsRequest())
        response: MetadataResponse = client.send(MetadataRequest(topics=None))
        assert response.topics == []


@pytest.mark.mechanism("Q15")
def test_a_plug_in_is_given_pushes_as_well() -> None:
    settings = {
        "barnabas.telemetry.exporters": "telemetry_fixtures.Exports",
        "barnabas.telemetry.advertise": "always",
        "my.setting": "x",
    }
    with EmbeddedBroker(overrides=settings) as broker, BlockingClient(broker.bootstrap_servers) as client:
        answer = client.send(GetTelemetrySubscriptionsRequest())
        client.send(
            PushTelemetryRequest(
                client_instance_id=answer.client_instance_id, subscription_id=answer.subscription_id, metrics=b"otlp"
            )
        )
        telemetry = Cluster(broker, client).telemetry
        plug_in: Any = telemetry._exporters._exporters[1]
        assert [payload.data for _, payload in plug_in.pushes] == [b"otlp"]
        assert plug_in.properties["my.setting"] == "x"
    assert plug_in.closed


def test_a_plug_in_that_is_none_keeps_the_broker_from_starting() -> None:
    broker = EmbeddedBroker(overrides={"barnabas.telemetry.exporters": "nowhere.Exporter"})
    with pytest.raises(InvalidConfigurationError, match="cannot import the class"):
        broker.start()


@pytest.mark.mechanism("Q12")
def test_settings_of_a_subscription() -> None:
    made = subscription_of("s", {"metrics": "a., b.", "interval.ms": "500", "match": "client_id=x.*"})
    assert made.metrics == {"a.", "b."}
    assert made.interval_ms == 500
    assert made.matches({"client_id": "xyz"})
    assert not made.matches({"client_id": "yz"})
    assert subscription_of("s", {"metrics": "*"}).interval_ms == 300_000
    with pytest.raises(InvalidRequestError):
        subscription_of("s", {"interval.ms": "99"})


def test_a_tail_waits_for_its_topic_and_reads_only_what_is_new(cluster: Cluster) -> None:
    tail = TopicTail(cluster.client, "tailed")
    assert tail.poll(1) == []
    cluster.client.send(
        CreateTopicsRequest(
            topics=[CreatableTopic(name="tailed", num_partitions=1, replication_factor=1)], timeout_ms=60_000
        )
    )
    topic_id = _topic_id(cluster.client, "tailed")
    _write(cluster.client, "tailed", topic_id, b"first")
    values: list[Any] = []

    def read_first() -> bool:
        values.extend(one.record.value for one in tail.poll(50))
        return values == [b"first"]

    until(read_first)
    late = TopicTail(cluster.client, "tailed")
    assert late.poll(1) == []
    _write(cluster.client, "tailed", topic_id, b"second")
    assert [one.record.value for one in late.poll(1_000)] == [b"second"]
    assert [one.record.value for one in tail.poll(1_000)] == [b"second"]


def test_a_tail_of_what_cannot_be_read(cluster: Cluster) -> None:
    with pytest.raises(ClientError, match="INVALID_TOPIC"):
        TopicTail(cluster.client, "not/a/topic").poll(1)


def _write(client: BlockingClient, topic: str, topic_id: Uuid, value: bytes) -> None:
    builder = RecordBatchBuilder()
    builder.append(1, None, value)
    data = TopicProduceData(
        name=topic,
        topic_id=topic_id,
        partition_data=[PartitionProduceData(index=0, records=bytes(builder.close()))],
    )
    client.send(ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[data]))
