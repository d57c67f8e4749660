"""The Java client pushes its metrics to a broker that nobody has given a plug-in (KIP-714)."""

from __future__ import annotations

import pytest

from clients.broker_process import BrokerProcess
from clients.telemetry_pushes import subscribed
from oracles.java_client import JavaClient

pytestmark = [pytest.mark.java, pytest.mark.mechanism("Q12", "Q13", "Q14", "Q15")]


@pytest.mark.parametrize("metrics", ["*", "org.apache.kafka.producer.record."])
def test_a_producer_pushes_again_and_again(
    client: JavaClient, broker: BrokerProcess, bootstrap: str, topic: str, metrics: str
) -> None:
    config = {"client.id": topic, "metadata.max.age.ms": "1000"}
    with subscribed(broker, topic, metrics=metrics) as pushes:
        found = pushes.until(
            lambda some: len(some) >= 3,
            lambda: client.produce(bootstrap, topic, [{"value": "x"}], config, name=topic),
        )
        # It may push once more when it is closed, or not: its thread may have ended before it gets to that.
        client.ask("close_producer", bootstrap, name=topic)
    for push in found:
        headers = push.headers
        assert headers["client_id"] == topic
        assert headers["client_software_name"] == "apache-kafka-java"
        assert headers["client_software_version"].startswith("4.")
        assert headers["content_type"] == "OTLP"
        assert headers["compression"] == "zstd"
        assert all(point.temporality in {None, "delta"} for point in push.points)
    names = {name for push in found for name in push.names}
    assert "org.apache.kafka.producer.record.send.total" in names
    if metrics != "*":
        assert all(name.startswith(metrics) for name in names)
    assert len({push.headers["client_instance_id"] for push in found}) == 1
    # Deltas, so they add up to what was sent.
    sent = sum(
        point.value or 0
        for push in found
        for point in push.points
        if point.name == "org.apache.kafka.producer.record.send.total" and not point.attributes.get("topic")
    )
    assert sent >= 1
