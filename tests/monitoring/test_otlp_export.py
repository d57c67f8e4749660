"""Metrics and traces of a broker reach an OpenTelemetry collector, and a broker without one does nothing for it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from itertools import pairwise
from typing import Any

import pytest

from barnabas import EmbeddedBroker
from barnabas.clients.admin import KafkaAdminClient
from barnabas.clients.admin.topics import NewTopic
from barnabas.clients.producer import KafkaProducer
from barnabas.common.errors import InvalidConfigurationError
from barnabas.metrics.names import MBeanName
from barnabas.metrics.yammer.meter import Meter
from barnabas.telemetry.otlp_messages import STATIONS
from monitoring.collector import Collector


def broker_for(collector: Collector, **settings: Any) -> EmbeddedBroker:
    overrides = {"barnabas.otlp.endpoint": collector.endpoint, "barnabas.otlp.metrics.interval.ms": 100}
    return EmbeddedBroker(overrides=overrides | settings)


def produce(broker: EmbeddedBroker, count: int) -> None:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("orders", 1, 1)])
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, client_id="billing") as producer:
        for _ in range(count):
            producer.send("orders", b"value").result(60)


def attributes(of: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in of.attributes}


def metrics_in(message: Any) -> dict[str, Any]:
    return {
        metric.name: metric
        for one in message.resource_metrics
        for scope in one.scope_metrics
        for metric in scope.metrics
    }


def test_metrics_arrive_with_their_types() -> None:
    before_ns = time.time_ns() - 10**9
    settings = {"barnabas.otlp.headers": "x-token=secret, x-tenant=a"}
    with Collector() as collector, broker_for(collector, **settings) as broker:
        produce(broker, 5)
        name = "kafka_server_brokertopicmetrics_messagesin_total"

        def arrived() -> bool:
            found = metrics_in(collector.metrics[-1]) if collector.metrics else {}
            return name in found and any(
                attributes(point) == {"topic": "orders"} and point.as_double == 5
                for point in found[name].sum.data_points
            )

        collector.wait_for(arrived)
        message, headers = collector.metrics[-1], collector.headers[-1]
        resource = attributes(message.resource_metrics[0].resource)
        assert (resource["service.name"], resource["service.instance.id"]) == ("barnabas", "1")
        assert resource["kafka.cluster.id"] == broker.cluster_id
        assert (headers["x-token"], headers["x-tenant"]) == ("secret", "a")
    metrics = metrics_in(message)
    counter = metrics[name].sum
    assert (counter.is_monotonic, counter.aggregation_temporality) == (True, 2)
    assert all(before_ns < point.start_time_unix_nano <= point.time_unix_nano for point in counter.data_points)
    state = metrics["kafka_server_kafkaserver_brokerstate"].gauge.data_points[0]
    assert state.as_double == 3
    times = metrics["kafka_network_requestmetrics_totaltimems"].summary.data_points
    (produced,) = [point for point in times if attributes(point) == {"request": "Produce"}]
    assert produced.count == 5
    assert [value.quantile for value in produced.quantile_values] == [0.5, 0.75, 0.95, 0.98, 0.99, 0.999]
    assert produced.sum > 0


def test_a_sampled_request_is_a_trace_of_its_stations() -> None:
    with Collector() as collector, broker_for(collector, **{"barnabas.request.log.sample.rate": 1}) as broker:
        produce(broker, 1)
        collector.wait_for(lambda: any(span.name == "Produce" for span in collector.spans))
        spans = list(collector.spans)
    root = next(span for span in spans if span.name == "Produce")
    found = attributes(root)
    assert (found["messaging.system"], found["messaging.client.id"]) == ("kafka", "billing")
    assert (found["kafka.principal"], found["kafka.listener"]) == ("User:ANONYMOUS", "PLAINTEXT")
    assert found["kafka.request.bytes"] > 0
    assert not root.status.code
    assert abs(root.start_time_unix_nano - time.time_ns()) < 600 * 10**9
    children = [span for span in spans if span.parent_span_id == root.span_id]
    assert tuple(child.name for child in children) == STATIONS
    assert {child.trace_id for child in children} == {root.trace_id}
    assert len({span.span_id for span in spans}) == len(spans)
    # They follow each other without a gap.
    assert children[0].start_time_unix_nano == root.start_time_unix_nano
    for one, following in pairwise(children):
        assert one.start_time_unix_nano <= one.end_time_unix_nano == following.start_time_unix_nano
    assert children[-1].end_time_unix_nano == root.end_time_unix_nano


def test_a_collector_that_refuses_or_is_gone_costs_exports_only() -> None:
    failures = MBeanName("barnabas.telemetry", "OtlpExporter", "FailedExportsPerSec")
    with Collector(status=503) as collector, broker_for(collector) as broker:
        collector.wait_for(lambda: collector.refused >= 2)
        meter = broker.server.shared.registry.get(failures)
        assert isinstance(meter, Meter)
        collector.status = 200
        collector.wait_for(lambda: len(collector.metrics) >= 1)
        assert meter.count >= 2
        produce(broker, 1)
    # Nobody listens at its port any more.
    with broker_for(collector) as broker:
        produce(broker, 1)


def test_a_broker_without_a_collector_has_no_part_of_it() -> None:
    script = (
        "import sys, threading\n"
        "from barnabas import EmbeddedBroker\n"
        "with EmbeddedBroker() as broker:\n"
        "    assert broker.server.broker.telemetry.request_log.on_entry is None\n"
        "    print([name for name in sys.modules if 'otlp_' in name or name.startswith('opentelemetry')])\n"
        "    print([thread.name for thread in threading.enumerate() if 'otlp' in thread.name])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "[]\n[]\n"


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("barnabas.otlp.endpoint", "collector:4317", "expected a URL such as"),
        ("barnabas.otlp.endpoint", "http://me:token@127.0.0.1:4318", "must not have a user"),
        ("barnabas.otlp.headers", "just a token", "expected name=value"),
    ],
)
def test_settings_that_cannot_be_used_stop_the_start(setting: str, value: str, message: str) -> None:
    settings = {"barnabas.otlp.endpoint": "http://127.0.0.1:1", setting: value}
    with pytest.raises(InvalidConfigurationError, match=message) as caught:
        EmbeddedBroker(overrides=settings).start()
    assert "token" not in str(caught.value)
    assert not [thread for thread in threading.enumerate() if thread.name == "otlp-exporter"]
