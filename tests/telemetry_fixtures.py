"""Clients that push metrics, and payloads such as they push."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from barnabas.common.client_pattern import ClientPattern
from barnabas.common.errors import Errors
from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.metadata.cache import MetadataCache
from barnabas.protocol.message import Buffer
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.results import ProduceResult
from barnabas.telemetry.exporter import ClientTelemetryContext, ClientTelemetryPayload
from barnabas.telemetry.subscription_info import SubscriptionInfo
from barnabas.telemetry.telemetry_client import TelemetryClient

SOME_ID = Uuid(bytes(range(1, 17)))


def client(number: int = 1, **changes: object) -> TelemetryClient:
    """A client of a connection of its own."""
    values: dict[str, object] = {
        "connection_id": f"10.0.0.1:9092-10.0.0.7:{50_000 + number}-{number}",
        "client_id": f"billing-{number}",
        "software_name": "apache-kafka-java",
        "software_version": "4.4.0",
        "address": "10.0.0.7",
        "port": 50_000 + number,
        "principal": "User:alice",
        "listener": "PLAINTEXT",
    }
    return TelemetryClient(**(values | changes))  # type: ignore[arg-type]


def subscription(
    name: str = "all", metrics: Iterable[str] = ("*",), interval_ms: int = 10_000, **match: str
) -> SubscriptionInfo:
    patterns = {key: ClientPattern(pattern) for key, pattern in match.items()}
    return SubscriptionInfo(name, frozenset(metrics), interval_ms, patterns)


class Exports:
    """An exporter that remembers."""

    def __init__(self) -> None:
        self.pushes: list[tuple[ClientTelemetryContext, ClientTelemetryPayload]] = []
        self.failure: Exception | None = None
        self.closed = False
        self.properties: Mapping[str, str] = {}

    def configure(self, properties: Mapping[str, str]) -> None:
        self.properties = properties

    def export_metrics(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> None:
        if self.failure is not None:
            raise self.failure
        self.pushes.append((context, payload))

    def close(self) -> None:
        self.closed = True


class OneTopic(MetadataCache):
    """A cache that knows the leaders of one topic, which is not there at first."""

    def __init__(self) -> None:
        super().__init__()
        self.leaders: list[int] | None = None

    def num_partitions(self, topic: str) -> int | None:
        return None if self.leaders is None else len(self.leaders)

    def partition(self, topic: str, partition: int) -> Registration:  # type: ignore[override]
        assert self.leaders is not None
        return Registration(self.leaders[partition])


class Registration:
    def __init__(self, leader: int) -> None:
        self.leader = leader


class Appends:
    """A replica manager that keeps batches."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, int, bytes]] = []
        self.answer: Callable[[int], ProduceResult] | None = None
        self.internal_topics_allowed = False

    def append_records(
        self,
        timeout_ms: int,
        required_acks: int,
        entries: Mapping[TopicIdPartition, Buffer],
        callback: Callable[[dict[TopicIdPartition, ProduceResult]], object],
        *,
        internal_topics_allowed: bool = False,
        **_others: Any,
    ) -> None:
        self.internal_topics_allowed = internal_topics_allowed
        results = {}
        for (_, topic, number), records in entries.items():
            result = ProduceResult(Errors.NONE) if self.answer is None else self.answer(number)
            if not result.error:
                assert topic is not None
                self.batches.append((topic, number, bytes(records)))
            results[TopicIdPartition(ZERO_UUID, topic, number)] = result
        callback(results)
