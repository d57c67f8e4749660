"""Metrics that clients of other projects push, read back from the topic that the broker writes them to."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest

from barnabas.cli.telemetry_requests import alter_subscription, subscriptions
from barnabas.clients.common.blocking_client import BlockingClient
from barnabas.clients.common.topic_tail import TopicTail
from barnabas.common.topic_names import CLIENT_TELEMETRY_TOPIC
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.telemetry.otlp import MetricPoint, decode_metrics
from clients.broker_process import BrokerProcess

SECONDS: Final = 60


@dataclass(frozen=True)
class Push:
    """One push: who has sent it, and what is in it."""

    headers: dict[str, str]
    points: list[MetricPoint]

    @property
    def names(self) -> set[str]:
        return {point.name for point in self.points}


class Pushes:
    """All pushes of the client with one client id."""

    def __init__(self, client: BlockingClient, client_id: str) -> None:
        self._tail = TopicTail(client, CLIENT_TELEMETRY_TOPIC, from_beginning=True)
        self._client_id = client_id
        self.found: list[Push] = []

    def until(self, enough: Callable[[list[Push]], bool], work: Callable[[], object] = lambda: None) -> list[Push]:
        """Reads until there are enough, and has the client do something meanwhile."""
        deadline = time.monotonic() + SECONDS
        while not enough(self.found):
            assert time.monotonic() < deadline, f"only {len(self.found)} pushes of {self._client_id} came"
            work()
            for tailed in self._tail.poll(100):
                record = tailed.record
                headers = {name: "" if value is None else bytes(value).decode() for name, value in record.headers}
                if headers["client_id"] == self._client_id:
                    self.found.append(Push(headers, decode_metrics(bytes(record.value or b""))))
        return self.found


def _wait_until_advertised(client: BlockingClient) -> None:
    """Returns when a client that connects now gets to know that the broker takes metrics."""
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    deadline = time.monotonic() + 60
    while ApiKey.PUSH_TELEMETRY not in {row.api_key for row in client.send(request).api_keys}:
        assert time.monotonic() < deadline, "the broker does not advertise PushTelemetry"


@contextmanager
def subscribed(broker: BrokerProcess, client_id: str, **settings: Any) -> Iterator[Pushes]:
    """With the client asked for all its metrics, as often as that can be."""
    if "KAFKA_BOOTSTRAP_SERVERS" in os.environ:
        pytest.skip("Apache Kafka has no such topic")
    wanted = {"metrics": "*", "interval.ms": "200", "match": f"client_id={client_id}", **settings}
    with BlockingClient(broker.bootstrap_servers) as client:
        for other in subscriptions(client):  # of tests before this one: a client gets the union of all that match
            alter_subscription(client, other, dict.fromkeys(wanted))
        alter_subscription(client, client_id, wanted)
        assert client_id in subscriptions(client)
        _wait_until_advertised(client)
        try:
            yield Pushes(client, client_id)
        finally:
            alter_subscription(client, client_id, dict.fromkeys(wanted))
