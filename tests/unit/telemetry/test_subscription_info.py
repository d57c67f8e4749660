"""Which clients a subscription is for, and what becomes of several for one client."""

from __future__ import annotations

import pytest

from barnabas.common.identifiers import Uuid, uuid_from_string, uuid_to_string
from barnabas.telemetry.subscription_info import (
    DEFAULT_INTERVAL_MS,
    ClientSubscription,
    SubscriptionInfo,
    subscription_id,
    uuid_hash,
)
from barnabas.telemetry.telemetry_client import TelemetryClient, source_port
from telemetry_fixtures import SOME_ID, client, subscription

pytestmark = pytest.mark.mechanism("Q12")


def resolved(*subscriptions: SubscriptionInfo, of: TelemetryClient | None = None) -> ClientSubscription:
    return ClientSubscription.of(subscriptions, SOME_ID, of or client())


@pytest.mark.parametrize(
    ("name", "matching", "other"),
    [
        ("client_id", "billing-[0-9]+", "billing"),
        ("client_instance_id", uuid_to_string(SOME_ID), uuid_to_string(Uuid(bytes(16)))),
        ("client_software_name", "apache-.*", "librdkafka"),
        ("client_software_version", r"4\.4\..*", "4"),
        ("client_source_address", r"10\.0\.0\.7", r"10\.0\.0\."),
        ("client_source_port", "50001", "5000"),
    ],
)
def test_a_client_is_told_apart_by_each_of_six_attributes_from_end_to_end(name: str, matching: str, other: str) -> None:
    assert resolved(subscription("s", ["*"], 1_000, **{name: matching})).metrics == ("*",)
    assert resolved(subscription("s", ["*"], 1_000, **{name: other})).metrics == ()


def test_all_patterns_of_a_subscription_have_to_match() -> None:
    assert resolved(subscription(client_id="billing-1", client_source_port="50001")).metrics == ("*",)
    assert resolved(subscription(client_id="billing-1", client_source_port="50002")).metrics == ()


def test_what_a_client_does_not_have_matches_nothing() -> None:
    anonymous = client(client_id=None, port=None)
    assert resolved(subscription(client_id=".*"), of=anonymous).metrics == ()
    assert resolved(subscription(client_source_port=".*"), of=anonymous).metrics == ()
    assert resolved(subscription(), of=anonymous).metrics == ("*",)


def test_metrics_are_united_and_the_shortest_interval_counts() -> None:
    found = resolved(
        subscription("a", ["consumer.", "producer."], 60_000),
        subscription("b", ["producer.", "admin."], 20_000),
        subscription("elsewhere", ["streams."], 100, client_id="other"),
    )
    assert found.metrics == ("admin.", "consumer.", "producer.")
    assert found.push_interval_ms == 20_000


def test_all_metrics_take_in_the_others() -> None:
    assert resolved(subscription("a", ["producer."]), subscription("b", ["*", "x"], 500)).metrics == ("*",)


def test_no_subscription_asks_for_nothing_every_five_minutes() -> None:
    assert resolved() == ClientSubscription(subscription_id((), DEFAULT_INTERVAL_MS, SOME_ID), (), 300_000)


def test_a_longer_interval_than_the_default_is_not_reached() -> None:
    """As in Kafka: the default takes part in the choice of the shortest."""
    assert resolved(subscription(interval_ms=3_600_000)).push_interval_ms == 300_000


@pytest.mark.parametrize(
    ("identifier", "metrics", "interval_ms", "expected"),
    [  # computed with Kafka's Uuid and Java's CRC32C
        ("s2-cBYgNSfCAkNvVMrOB4A", ["*"], 300_000, -1256947485),
        ("s2-cBYgNSfCAkNvVMrOB4A", [], 300_000, 1569117214),
        ("s2-cBYgNSfCAkNvVMrOB4A", ["org.apache.kafka.client.producer."], 100, -2057204104),
        ("AAAAAAAAAAAAAAAAAAAAAQ", ["*"], 300_000, 1012207394),
        ("AAAAAAAAAAAAAAAAAAAAAQ", ["org.apache.kafka.client.producer."], 100, 203424185),
    ],
)
def test_the_id_is_kafkas(identifier: str, metrics: list[str], interval_ms: int, expected: int) -> None:
    assert subscription_id(metrics, interval_ms, uuid_from_string(identifier)) == expected


def test_the_hash_of_a_uuid_is_javas() -> None:
    assert uuid_hash(uuid_from_string("s2-cBYgNSfCAkNvVMrOB4A")) == -1992192064


def test_the_id_changes_with_metrics_interval_and_client_and_with_nothing_else() -> None:
    ids = {
        resolved(subscription()).subscription_id,
        resolved(subscription(interval_ms=9_999)).subscription_id,
        resolved(subscription(metrics=["x"])).subscription_id,
        ClientSubscription.of([subscription()], Uuid(bytes(16)), client()).subscription_id,
    }
    assert len(ids) == 4
    assert resolved(subscription("renamed"), of=client(9)) == resolved(subscription())
    one, other = subscription("a", ["x", "y"]), subscription("b", ["z"])
    assert resolved(one, other) == resolved(other, one)


@pytest.mark.parametrize(
    ("connection_id", "port"),
    [("10.0.0.1:9092-10.0.0.7:51820-4", 51820), ("::1:9092-fe80::7:51820-12", 51820), ("odd", None)],
)
def test_the_port_of_a_client(connection_id: str, port: int | None) -> None:
    assert source_port(connection_id) == port
