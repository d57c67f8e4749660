"""What stands between sockets and handlers: opened, enabled, stopped and closed, and its figures."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from benchmarks.wire_client import WireClient

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.node.request_serving import RequestServing, startup_seconds
from barnabas.common.clock import MockClock
from barnabas.embedded import EmbeddedBroker
from barnabas.metrics.yammer.registry import Gauge, MetricsRegistry
from barnabas.network.server.endpoint import Endpoint
from barnabas.server.handler_pool import HandlerIdleTime


def serving_of(broker: EmbeddedBroker) -> RequestServing:
    server = broker.server.broker
    assert server is not None
    assert server.serving is not None
    return server.serving


def handlers(role: str = "data-plane") -> int:
    return sum(thread.name.startswith(f"{role}-kafka-request-handler") for thread in threading.enumerate())


def test_a_start_may_take_forever() -> None:
    config = KafkaConfig.for_zero_configuration(Path("data"))
    assert startup_seconds(config) is None, "Kafka's default is more than can be waited for"
    config = KafkaConfig.for_zero_configuration(Path("data"), overrides={"server.max.startup.time.ms": 1500})
    assert startup_seconds(config) == 1.5


def test_the_pool_has_the_threads_that_it_is_told_to() -> None:
    before = handlers()
    with EmbeddedBroker(overrides={"num.io.threads": 3}) as broker, WireClient(broker.bootstrap_servers) as client:
        assert handlers() - before == 6, "three for the broker and three for the controller"
        serving_of(broker).resize_handlers(5)
        client.create_topic("orders")
        assert handlers() - before == 8
    assert handlers() == before


def test_one_aggregate_of_idleness_and_one_for_each_role() -> None:
    with EmbeddedBroker() as broker:
        names = {name.name for name in broker.server.shared.registry.metrics if name.type == "KafkaRequestHandlerPool"}
        assert {"RequestHandlerAvgIdlePercent", "BrokerRequestHandlerAvgIdlePercent"} <= names
        assert "ControllerRequestHandlerAvgIdlePercent" in names


@pytest.mark.parametrize("is_busy", [False, True])
def test_the_aggregate_is_the_mean_over_the_handlers_of_both_roles(is_busy: bool) -> None:
    """KIP-1207: two idle pools are as idle as one, and a busy broker shows beside its idle controller."""
    clock = MockClock()
    registry = MetricsRegistry(clock)
    idle_time = HandlerIdleTime(registry)
    broker, controller = idle_time.of("broker"), idle_time.of("controller")
    for _ in range(1000):
        clock.advance(100)
        for _ in range(6):
            broker(0 if is_busy else 100_000_000, 6)
        for _ in range(2):
            controller(100_000_000, 2)
    found = {name.name: round(metric.one_minute_rate, 2) for name, metric in registry.metrics.items()}  # type: ignore[union-attr]
    assert found == {
        "RequestHandlerAvgIdlePercent": 0.25 if is_busy else 1.0,
        "BrokerRequestHandlerAvgIdlePercent": 0.0 if is_busy else 1.0,
        "ControllerRequestHandlerAvgIdlePercent": 1.0,
    }


def test_queues_and_memory_can_be_looked_at() -> None:
    with EmbeddedBroker(overrides={"queued.max.request.bytes": 200_000_000}) as broker:
        found = {
            name.name: metric.value()
            for name, metric in broker.server.shared.registry.metrics.items()
            if isinstance(metric, Gauge) and name.domain == "kafka.network"
        }
        assert found["RequestQueueSize"] == 0
        assert found["ResponseQueueSize"] == 0
        assert found["MemoryPoolAvailable"] == 200_000_000
        assert found["MemoryPoolUsed"] == 0
        assert found["ExpiredConnectionsKilledCount"] == 0


def test_the_metrics_of_a_listener_are_removed_with_it() -> None:
    with EmbeddedBroker() as broker:
        serving, registry = serving_of(broker), broker.server.shared.registry

        def listeners() -> set[str | None]:
            return {name.tags.get("listener") for name in registry.metrics if name.name == "AcceptorBlockedPercent"}

        before = listeners()
        for _ in range(2):
            serving.add_listeners(broker.server.config, [Endpoint("LATE", host="127.0.0.1", port=0)])
            assert listeners() == before | {"LATE"}
            serving.remove_listeners(["LATE"])
            assert listeners() == before


def test_to_close_what_was_never_opened_does_no_harm() -> None:
    with EmbeddedBroker() as broker:
        shared = broker.server.shared
        assert broker.server.broker is not None
        quotas = broker.server.broker.quotas
        assert quotas is not None
        serving = RequestServing(
            broker.server.config,
            shared.clock,
            shared.request_times,
            shared.registry,
            shared.metrics,
            shared.exit_procedure,
            role="broker",
            quotas=quotas,
            idle_time=shared.idle_time,
        )
        serving.resize_handlers(3)
        serving.stop()
        serving.close()
