"""Each of these tests has a Kafka of its own; `barnabas_broker` is all that it takes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import orders
import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic


@pytest.fixture
def bootstrap(barnabas_broker) -> str:
    """A broker with the topics of the application, and nothing in them."""
    admin = AdminClient({"bootstrap.servers": barnabas_broker.bootstrap_servers})
    for created in admin.create_topics([NewTopic(orders.ORDERS, 1, 1), NewTopic(orders.INVOICES, 1, 1)]).values():
        created.result(10)
    return barnabas_broker.bootstrap_servers


@contextlib.contextmanager
def billing(bootstrap: str) -> Iterator[orders.Billing]:
    with contextlib.closing(orders.Billing(bootstrap)) as running:
        yield running


def test_a_broker_per_test_is_empty(barnabas_broker):
    admin = AdminClient({"bootstrap.servers": barnabas_broker.bootstrap_servers})
    assert orders.ORDERS not in admin.list_topics(timeout=10).topics


def test_an_order_makes_an_invoice(bootstrap):
    orders.place(bootstrap, "anna", "tea", "cake")
    with billing(bootstrap) as running:
        assert running.bill_one()
    assert list(orders.invoices(bootstrap, 2)) == [("anna", "tea 3"), ("anna", "cake 5")]


def test_what_fails_half_way_is_not_seen_and_is_done_again(bootstrap, monkeypatch):
    orders.place(bootstrap, "ben", "tea", "gin")
    with billing(bootstrap) as running, pytest.raises(KeyError):
        running.bill_one()  # it has written the tea by then
    monkeypatch.setitem(orders.PRICES, "gin", 9)
    with billing(bootstrap) as another:
        assert another.bill_one()
    assert list(orders.invoices(bootstrap, 2)) == [("ben", "tea 3"), ("ben", "gin 9")]


def test_an_order_is_billed_once(bootstrap):
    for customer in ("anna", "ben"):
        orders.place(bootstrap, customer, "coffee")
        with billing(bootstrap) as running:
            assert running.bill_one()
    assert list(orders.invoices(bootstrap, 2)) == [("anna", "coffee 4"), ("ben", "coffee 4")]


class TestLimits:
    """These want another broker: its settings are a fixture, too, under Kafka's names."""

    @pytest.fixture
    def barnabas_overrides(self):
        return {"message.max.bytes": 2_000}

    def test_an_order_can_be_too_large(self, bootstrap):
        outcomes = []
        producer = Producer({"bootstrap.servers": bootstrap})
        for size in (1_000, 3_000):
            producer.produce(orders.ORDERS, b"x" * size, on_delivery=lambda error, _message: outcomes.append(error))
            assert producer.flush(10) == 0
        assert outcomes[0] is None
        assert outcomes[1].code() == KafkaError.MSG_SIZE_TOO_LARGE
