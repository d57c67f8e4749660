"""The client's side of KIP-714: the decisions, and the bytes."""

from __future__ import annotations

import logging
import subprocess
import sys
from random import Random
from typing import Any

import pytest

from barnabas.clients.common.telemetry.client_telemetry_reporter import (
    DEFAULT_PUSH_INTERVAL_MS,
    ClientTelemetryReporter,
    State,
)
from barnabas.clients.testing import Fate, ScriptedCluster
from barnabas.common.clock import MockClock
from barnabas.common.errors import (
    AuthenticationError,
    Errors,
    KafkaTimeoutError,
    NetworkError,
    UnsupportedVersionError,
)
from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.metrics.config import MetricConfig
from barnabas.metrics.names import MetricName
from barnabas.metrics.registry import Metrics
from barnabas.metrics.stats import Avg, CumulativeSum, Meter
from barnabas.network.client.inflight import FOREVER
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from barnabas.records.batch import CompressionType
from barnabas.records.compression import decompress
from barnabas.telemetry.otlp import MetricPoint, decode_metrics

pytestmark = pytest.mark.mechanism("P16")

ID = Uuid(bytes(range(16)))
TIMEOUT_MS = 30_000
INTERVAL_MS = 10_000


class Client:
    """A client with two metrics, and a broker in one's head."""

    def __init__(self, **labels: str) -> None:
        self.clock = MockClock()
        self.metrics = Metrics(MetricConfig(tags={"client-id": "c"}), clock=self.clock)
        self.sensor = self.metrics.sensor("sent")
        self.sensor.add_compound(
            Meter(
                self.metrics.metric_name("record-send-rate", "producer-metrics"),
                self.metrics.metric_name("record-send-total", "producer-metrics"),
            )
        )
        self.sensor.add(self.metrics.metric_name("size-avg", "producer-topic-metrics", {"topic": "t"}), Avg())
        self.reporter = ClientTelemetryReporter("producer", self.metrics, labels, self.clock, Random(1))

    def due(self) -> int:
        return self.reporter.time_to_next_update(TIMEOUT_MS, self.clock.hi_res_milliseconds())

    def subscribe(self, **changes: Any) -> None:
        assert self.due() == 0
        request = self.reporter.create_request()
        assert isinstance(request, GetTelemetrySubscriptionsRequest)
        assert self.due() == TIMEOUT_MS
        wanted: dict[str, Any] = {
            "client_instance_id": ID,
            "subscription_id": 7,
            "accepted_compression_types": [CompressionType.ZSTD, CompressionType.GZIP],
            "push_interval_ms": INTERVAL_MS,
            "telemetry_max_bytes": 1_000_000,
            "delta_temporality": True,
            "requested_metrics": ["*"],
        }
        self.reporter.handle_response(GetTelemetrySubscriptionsResponse(**wanted | changes))

    def push(self, error: Errors = Errors.NONE, *, wait: bool = True) -> PushTelemetryRequest:
        if wait:
            self.clock.advance(self.due())
        assert self.due() == 0
        request = self.reporter.create_request()
        assert isinstance(request, PushTelemetryRequest)
        self.reporter.handle_response(PushTelemetryResponse(error_code=error))
        return request


def points(request: PushTelemetryRequest) -> dict[str, MetricPoint]:
    data = request.metrics
    if request.compression_type:
        data = bytes(decompress(CompressionType(request.compression_type), data, 1_000_000))
    return {point.name: point for point in decode_metrics(data)}


def test_asks_pushes_and_pushes_again() -> None:
    client = Client(client_rack="r1", transactional_id="")
    client.subscribe()
    first_ms = client.due()
    assert 0.5 * INTERVAL_MS <= first_ms <= 1.5 * INTERVAL_MS
    assert first_ms != INTERVAL_MS
    client.sensor.record(5)
    request = client.push()
    assert (request.client_instance_id, request.subscription_id, request.terminating) == (ID, 7, False)
    assert request.compression_type == CompressionType.ZSTD
    found = points(request)
    assert set(found) == {
        "org.apache.kafka.producer.record.send.rate",
        "org.apache.kafka.producer.record.send.total",
        "org.apache.kafka.producer.topic.size.avg",
        "org.apache.kafka.kafka.count.count",
    }
    total = found["org.apache.kafka.producer.record.send.total"]
    assert (total.kind, total.value, total.temporality, total.is_monotonic) == ("sum", 5.0, "delta", True)
    average = found["org.apache.kafka.producer.topic.size.avg"]
    assert (average.kind, average.value, average.attributes) == ("gauge", 5.0, {"topic": "t"})
    assert average.resource == {"client_rack": "r1"}
    assert client.due() == INTERVAL_MS


def test_the_first_pushes_of_many_clients_are_spread() -> None:
    delays = set()
    for seed in range(20):
        client = Client()
        client.reporter._random = Random(seed)
        client.subscribe()
        delays.add(client.due())
    assert len(delays) > 15
    assert min(delays) >= INTERVAL_MS // 2
    assert max(delays) <= INTERVAL_MS * 3 // 2


def total_of(request: PushTelemetryRequest) -> MetricPoint:
    return points(request)["org.apache.kafka.producer.record.send.total"]


def test_delta_is_what_came_since_the_last_push_that_was_taken() -> None:
    client = Client()
    start_ms = client.clock.milliseconds()
    client.subscribe()
    client.sensor.record(5)
    first = total_of(client.push())
    pushed_ms = client.clock.milliseconds()
    assert (first.value, first.start_time_unix_nano) == (5.0, start_ms * 1_000_000)
    client.sensor.record(3)
    second = total_of(client.push(Errors.THROTTLING_QUOTA_EXCEEDED))
    assert (second.value, second.start_time_unix_nano) == (3.0, pushed_ms * 1_000_000)
    client.clock.advance(client.due())
    client.subscribe()
    client.sensor.record(2)
    third = total_of(client.push())
    assert (third.value, third.start_time_unix_nano) == (5.0, pushed_ms * 1_000_000), "that which was refused is in it"
    assert total_of(client.push()).value == 0.0


def test_a_push_without_a_response_may_have_been_taken() -> None:
    client = Client()
    client.subscribe()
    client.sensor.record(5)
    client.clock.advance(client.due())
    assert client.reporter.create_request() is not None
    client.reporter.handle_failed_request(None)
    client.clock.advance(client.due())
    client.subscribe()
    assert total_of(client.push()).value == 0.0


def test_cumulative_is_the_total() -> None:
    client = Client()
    start_ms = client.clock.milliseconds()
    client.subscribe(delta_temporality=False)
    for expected in (5.0, 10.0):
        client.sensor.record(5)
        total = total_of(client.push())
        assert (total.value, total.temporality) == (expected, "cumulative")
        assert total.start_time_unix_nano == start_ms * 1_000_000


def test_another_temporality_starts_deltas_over() -> None:
    client = Client()
    client.subscribe()
    client.sensor.record(5)
    client.push(Errors.NONE)
    client.push(Errors.UNKNOWN_SUBSCRIPTION_ID)
    client.subscribe(delta_temporality=False)
    client.push(Errors.UNKNOWN_SUBSCRIPTION_ID)
    client.subscribe(delta_temporality=True)
    assert total_of(client.push()).value == 5.0


def test_only_what_is_asked_for() -> None:
    client = Client()
    client.sensor.record(1)
    client.subscribe(requested_metrics=["org.apache.kafka.producer.record.", "org.apache.kafka.nothing"])
    assert set(points(client.push())) == {
        "org.apache.kafka.producer.record.send.rate",
        "org.apache.kafka.producer.record.send.total",
    }


def test_what_has_no_value_is_left_out() -> None:
    client = Client()
    client.metrics.add_metric(client.metrics.metric_name("version", "app-info"), lambda *_: "4.0")
    client.metrics.add_metric(client.metrics.metric_name("broken", "app-info"), lambda *_: 1 / 0)
    client.metrics.add_metric(client.metrics.metric_name("whole", "app-info"), lambda *_: 3)
    client.subscribe()
    found = points(client.push())
    assert "org.apache.kafka.producer.topic.size.avg" not in found, "the average of nothing"
    assert "org.apache.kafka.app.info.version" not in found
    assert "org.apache.kafka.app.info.broken" not in found
    assert found["org.apache.kafka.app.info.whole"].value == 3


def test_metrics_that_come_and_go() -> None:
    client = Client()
    client.subscribe()
    client.push()
    client.clock.advance(1_000)
    name = MetricName("late-total", "producer-metrics")
    late = client.metrics.sensor("late")
    late.add(name, CumulativeSum())
    late.record(4)
    born_ms = client.clock.milliseconds()
    point = points(client.push())["org.apache.kafka.producer.late.total"]
    assert (point.value, point.start_time_unix_nano) == (4.0, born_ms * 1_000_000)
    client.metrics.remove_sensor("late")
    assert "org.apache.kafka.producer.late.total" not in points(client.push())
    late = client.metrics.sensor("late")
    late.add(name, CumulativeSum())
    late.record(1)
    assert points(client.push())["org.apache.kafka.producer.late.total"].value == 1.0, "nothing is left of the first"


def test_nothing_wanted_is_asked_again_after_the_interval() -> None:
    client = Client()
    client.subscribe(requested_metrics=[])
    assert client.reporter.state is State.SUBSCRIPTION_NEEDED
    assert client.due() == INTERVAL_MS
    client.clock.advance(INTERVAL_MS)
    request = client.reporter.create_request()
    assert isinstance(request, GetTelemetrySubscriptionsRequest)
    assert request.client_instance_id == ID


def test_a_senseless_interval_is_the_default() -> None:
    client = Client()
    client.subscribe(push_interval_ms=0, requested_metrics=[])
    assert client.due() == DEFAULT_PUSH_INTERVAL_MS


def test_compression_types_this_client_does_not_know_are_passed_over() -> None:
    client = Client()
    client.subscribe(accepted_compression_types=[99, CompressionType.LZ4])
    assert client.push().compression_type == CompressionType.LZ4
    client.push(Errors.UNKNOWN_SUBSCRIPTION_ID)
    client.subscribe(accepted_compression_types=[])
    request = client.push()
    assert request.compression_type == CompressionType.NONE
    assert points(request)


# -- errors


def test_an_unknown_subscription_is_asked_for_at_once() -> None:
    client = Client()
    client.subscribe()
    client.push(Errors.UNKNOWN_SUBSCRIPTION_ID)
    assert client.due() == 0
    client.subscribe(subscription_id=8)
    assert client.push().subscription_id == 8


def test_a_compression_type_that_is_refused_is_not_used_again() -> None:
    client = Client()
    client.subscribe()
    assert client.push(Errors.UNSUPPORTED_COMPRESSION_TYPE).compression_type == CompressionType.ZSTD
    client.subscribe()
    assert client.push(Errors.UNSUPPORTED_COMPRESSION_TYPE).compression_type == CompressionType.GZIP
    client.subscribe()
    assert client.push().compression_type == CompressionType.NONE


@pytest.mark.parametrize("error", [Errors.TELEMETRY_TOO_LARGE, Errors.THROTTLING_QUOTA_EXCEEDED])
def test_too_much_and_too_early_wait_for_the_interval(error: Errors) -> None:
    client = Client()
    client.subscribe()
    client.push(error)
    assert client.due() == INTERVAL_MS
    assert client.reporter.state is State.SUBSCRIPTION_NEEDED


def test_throttled_before_the_first_subscription() -> None:
    client = Client()
    client.reporter.create_request()
    client.reporter.handle_response(GetTelemetrySubscriptionsResponse(error_code=Errors.THROTTLING_QUOTA_EXCEEDED))
    assert client.due() == DEFAULT_PUSH_INTERVAL_MS


@pytest.mark.parametrize("error", [Errors.INVALID_REQUEST, Errors.INVALID_RECORD, Errors.UNKNOWN_SERVER_ERROR])
def test_errors_that_end_it(error: Errors, caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    client.subscribe()
    client.push(error)
    assert client.due() == FOREVER
    assert not client.reporter.is_enabled
    assert f"the broker says {error.name}" in caplog.text


def test_a_response_without_an_id_ends_it() -> None:
    client = Client()
    client.subscribe(client_instance_id=ZERO_UUID)
    assert client.due() == FOREVER


def test_a_lost_connection_waits() -> None:
    for error in (None, NetworkError()):
        client = Client()
        client.subscribe()
        client.clock.advance(client.due())
        client.reporter.create_request()
        client.reporter.handle_failed_request(error)
        assert client.due() == DEFAULT_PUSH_INTERVAL_MS


def test_a_cluster_without_telemetry_is_not_worth_a_word(caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    client.reporter.create_request()
    with caplog.at_level(logging.INFO):
        client.reporter.handle_failed_request(UnsupportedVersionError("no such thing"))
    assert client.due() == FOREVER
    assert not caplog.records


def test_who_is_not_let_in_keeps_silent(caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    client.reporter.create_request()
    client.reporter.handle_failed_request(AuthenticationError("who are you?"))
    assert client.due() == FOREVER
    assert "who are you?" in caplog.text


# -- the end


def test_the_last_push_does_not_wait() -> None:
    client = Client()
    client.subscribe()
    client.sensor.record(2)
    client.push()
    client.sensor.record(3)
    client.reporter.initiate_close()
    assert client.reporter.has_last_push
    request = client.push(wait=False)
    assert request.terminating
    assert total_of(request).value == 3.0
    assert client.reporter.state is State.TERMINATED
    assert client.due() == FOREVER
    client.reporter.initiate_close()
    client.reporter.close()


@pytest.mark.parametrize("subscribed", [None, False])
def test_without_a_subscription_there_is_no_last_push(subscribed: bool | None) -> None:
    client = Client()
    if subscribed is not None:
        client.subscribe(requested_metrics=[])
    client.reporter.initiate_close()
    assert not client.reporter.has_last_push
    assert client.due() == FOREVER
    assert client.reporter.create_request() is None


def test_responses_that_come_after_closing_are_passed_over() -> None:
    client = Client()
    client.subscribe()
    client.clock.advance(client.due())
    client.reporter.create_request()
    client.reporter.initiate_close()
    client.reporter.handle_response(PushTelemetryResponse(error_code=Errors.UNKNOWN_SUBSCRIPTION_ID))
    assert client.reporter.has_last_push
    client.reporter.create_request()
    client.reporter.handle_failed_request(None)
    assert client.reporter.state is State.TERMINATED
    other = Client()
    other.reporter.create_request()
    other.reporter.initiate_close()
    other.reporter.handle_response(GetTelemetrySubscriptionsResponse(client_instance_id=ID, requested_metrics=["*"]))
    assert other.reporter.state is State.TERMINATED


def test_no_state_follows_that_must_not() -> None:
    client = Client()
    with pytest.raises(RuntimeError, match="subscription needed cannot become push needed"):
        client.reporter._become(State.PUSH_NEEDED)
    with pytest.raises(TypeError, match="no response to a request of telemetry"):
        client.reporter.handle_response(ProduceResponse())
    assert "subscription needed" in repr(client.reporter)


def test_the_id_of_the_client() -> None:
    client = Client()
    with pytest.raises(KafkaTimeoutError, match="no id within 0 s"):
        client.reporter.client_instance_id(0)
    with pytest.raises(ValueError, match="cannot be negative"):
        client.reporter.client_instance_id(-1)
    client.subscribe()
    assert client.reporter.client_instance_id(0) == ID


def test_labels_can_be_added() -> None:
    client = Client(group_id="g")
    client.subscribe()
    client.reporter.update_labels({"group_member_id": "m"})
    request = client.push()
    assert next(iter(points(request).values())).resource == {"group_id": "g", "group_member_id": "m"}


def test_protobuf_is_loaded_only_by_a_push() -> None:
    program = (
        "import sys; import barnabas.clients.producer;"
        "heavy = ('opentelemetry', 'google.protobuf', 'numpy', 'pyarrow');"
        "sys.exit(any(name.startswith(heavy) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=180).returncode == 0


# -- in a producer, over a network

TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0), ApiKey.PUSH_TELEMETRY: (0, 0)}


def subscribe_next(cluster: ScriptedCluster, **changes: Any) -> None:
    wanted: dict[str, Any] = {"client_instance_id": ID, "push_interval_ms": INTERVAL_MS, "requested_metrics": ["*"]}
    response = GetTelemetrySubscriptionsResponse(**wanted | changes)
    cluster.on_next(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, lambda _: response)


def take_pushes(cluster: ScriptedCluster, count: int = 10) -> None:
    for _ in range(count):
        cluster.on_next(ApiKey.PUSH_TELEMETRY, lambda _: PushTelemetryResponse())


def test_a_producer_pushes_while_it_is_idle_and_when_it_is_closed() -> None:
    cluster = ScriptedCluster({"t": 1}, versions=TELEMETRY)
    subscribe_next(cluster, delta_temporality=True)
    take_pushes(cluster)
    producer = cluster.producer(transactional_id=None, client_rack="r1")
    future = producer.send("t", b"x")
    cluster.run_until(producer, future.done)
    assert cluster.run_while(producer, lambda: producer.client_instance_id(30)) == ID
    cluster.run_until(producer, lambda: len(cluster.requests(ApiKey.PUSH_TELEMETRY)) == 2)
    first, second = cluster.requests(ApiKey.PUSH_TELEMETRY)
    found = points(first)
    assert found["org.apache.kafka.producer.record.send.total"].value == 1.0
    assert found["org.apache.kafka.producer.topic.byte.total"].attributes == {"topic": "t"}
    assert found["org.apache.kafka.producer.node.request.latency.max"].attributes == {"node_id": "node-1"}
    assert found["org.apache.kafka.producer.record.queue.time.avg"].resource == {"client_rack": "r1"}
    assert points(second)["org.apache.kafka.producer.record.send.total"].value == 0.0
    telemetry = producer._telemetry
    assert telemetry is not None
    telemetry.initiate_close()
    producer.sender.initiate_close()
    producer.sender.run()
    *_, last = cluster.requests(ApiKey.PUSH_TELEMETRY)
    assert last.terminating
    producer.close()


def test_closing_does_not_wait_for_a_broker_that_is_gone() -> None:
    cluster = ScriptedCluster({"t": 1}, versions=TELEMETRY)
    subscribe_next(cluster)
    producer = cluster.producer()
    cluster.run_while(producer, lambda: producer.client_instance_id(30))
    cluster.stop(1)
    producer.sender.run_once()
    before = cluster.clock.milliseconds()
    telemetry = producer._telemetry
    assert telemetry is not None
    telemetry.initiate_close()
    producer.sender.initiate_close()
    producer.sender.run()
    assert cluster.clock.milliseconds() - before < 1_000
    assert not cluster.requests(ApiKey.PUSH_TELEMETRY)


def test_a_lost_response_is_asked_for_again() -> None:
    cluster = ScriptedCluster({"t": 1}, versions=TELEMETRY)
    lost: list[Any] = []

    def fate(handled: Any) -> Fate:
        if handled.header.api_key is ApiKey.GET_TELEMETRY_SUBSCRIPTIONS and not lost:
            lost.append(handled)
            return Fate(lose_response=True)
        return Fate()

    cluster.fate_of = fate
    subscribe_next(cluster)
    subscribe_next(cluster)
    producer = cluster.producer()
    before = cluster.clock.milliseconds()
    assert cluster.run_while(producer, lambda: producer.client_instance_id(1_000)) == ID
    assert lost
    assert cluster.clock.milliseconds() - before >= DEFAULT_PUSH_INTERVAL_MS


def test_a_cluster_without_telemetry_hears_nothing_of_it(caplog: pytest.LogCaptureFixture) -> None:
    cluster = ScriptedCluster({"t": 1})
    with caplog.at_level(logging.INFO):
        producer = cluster.producer()
        cluster.run_until(producer, producer.send("t", b"x").done)
    assert producer._telemetry is not None
    assert not producer._telemetry.is_enabled
    assert {record.message for record in caplog.records} == {
        "Cluster ID: scripted",
        "ProducerId set to 1001 with epoch 0",
    }
    with pytest.raises(KafkaTimeoutError):
        producer.client_instance_id(10)


def test_switched_off() -> None:
    from barnabas.clients.producer.errors import IllegalStateError

    cluster = ScriptedCluster({"t": 1}, versions=TELEMETRY)
    producer = cluster.producer(enable_metrics_push=False)
    cluster.run_until(producer, producer.send("t", b"x").done)
    assert not cluster.requests(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS)
    with pytest.raises(IllegalStateError, match="Telemetry is not enabled"):
        producer.client_instance_id(1)
