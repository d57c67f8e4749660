"""The metrics of the metadata quorum: what a node that has elected itself and written records shows."""

from __future__ import annotations

from typing import Any

from barnabas import EmbeddedBroker
from barnabas.clients.admin import KafkaAdminClient
from barnabas.clients.admin.topics import NewTopic
from barnabas.raft.raft_metrics import GROUP


def values(broker: EmbeddedBroker) -> dict[str, Any]:
    metrics = broker.server.shared.metrics.metrics
    return {name.name: metric.value() for name, metric in metrics.items() if name.group == GROUP}


def test_a_sole_voter() -> None:
    with EmbeddedBroker() as broker:
        before = values(broker)
        assert (before["current-leader"], before["current-vote"], before["current-epoch"]) == (1, 1, 1)
        assert (before["current-state"], before["number-of-voters"], before["log-end-epoch"]) == ("leader", 1, 1)
        assert 0 < before["high-watermark"] <= before["log-end-offset"]
        assert before["append-records-rate"] > 0
        assert before["fetch-records-rate"] == 0
        assert before["commit-latency-max"] >= before["commit-latency-avg"] > 0
        assert before["election-latency-max"] >= 0
        with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", 3, 1)])
        after = values(broker)
        # A topic and three partitions.
        assert after["high-watermark"] >= before["high-watermark"] + 4
        assert after["append-records-rate"] > before["append-records-rate"]
