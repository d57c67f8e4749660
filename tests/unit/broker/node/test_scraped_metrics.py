"""The families of network threads, with threads that have connections of the test's choice."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from barnabas.broker.node.scraped_metrics import MOST_SOFTWARE, NetworkMetrics
from barnabas.common.clock import MockClock
from barnabas.metrics.families import EVERYTHING, MetricFamily
from barnabas.network.server.endpoint import Endpoint


def processor_with(software: list[tuple[str, str]]) -> Any:
    contexts = [SimpleNamespace(client_software_name=name, client_software_version=one) for name, one in software]
    channels = {str(number): SimpleNamespace(context=context) for number, context in enumerate(contexts)}
    stats = SimpleNamespace(connections_created=len(software), connections_closed=0)
    return SimpleNamespace(
        id=0,
        endpoint=Endpoint("PLAINTEXT"),
        selector=SimpleNamespace(channels=channels, stats=stats),
        thread=SimpleNamespace(ident=None, is_alive=lambda: True),
    )


def families(processor: Any) -> dict[str, MetricFamily]:
    metrics = NetworkMetrics(lambda: [processor], MockClock())
    return {family.name: family for family in metrics.families(EVERYTHING)}


def test_connections_by_software() -> None:
    found = families(processor_with([("librdkafka", "2.8"), ("barnabas", "0.2.0"), ("librdkafka", "2.8")]))
    family = found["kafka_server_socket_server_metrics_connections"]
    assert [(labels.text, value) for _, labels, value in family.samples] == [
        (
            '{clientSoftwareName="barnabas",clientSoftwareVersion="0.2.0",listener="PLAINTEXT",networkProcessor="0"}',
            1,
        ),
        (
            '{clientSoftwareName="librdkafka",clientSoftwareVersion="2.8",listener="PLAINTEXT",networkProcessor="0"}',
            2,
        ),
    ]


def test_clients_cannot_fill_the_page_with_names() -> None:
    """A name may have 32 KiB, and every connection another one."""
    many = [(f"invented-{number}", "1") for number in range(10 * MOST_SOFTWARE)]
    found = families(processor_with([*many, ("librdkafka", "2.8"), ("librdkafka", "2.8")]))
    samples = found["kafka_server_socket_server_metrics_connections"].samples
    values = {labels.pairs["clientSoftwareName"]: value for _, labels, value in samples}
    assert len(values) == MOST_SOFTWARE + 1
    assert values["librdkafka"] == 2, "the most frequent ones are shown"
    assert values["other"] == len(many) + 2 - 2 - (MOST_SOFTWARE - 1)
    assert sum(values.values()) == len(many) + 2
