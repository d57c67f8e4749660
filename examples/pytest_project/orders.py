"""Orders come in on one topic, invoices go out on another. An order makes one invoice, whatever happens in between."""

from __future__ import annotations

import json
from collections.abc import Iterator

from confluent_kafka import Consumer, Producer

ORDERS = "orders"
INVOICES = "invoices"
PRICES = {"tea": 3, "coffee": 4, "cake": 5}


def place(bootstrap_servers: str, customer: str, *items: str) -> None:
    """Writes an order; returns when it is safe."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
    producer.produce(ORDERS, json.dumps(items), key=customer)
    if producer.flush(10):
        raise TimeoutError("the order was not written")


class Billing:
    """Makes invoices of orders. Invoices and what was read for them are committed together, in one transaction."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": "billing"})
        self._producer.init_transactions(10)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "billing",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.subscribe([ORDERS])

    def bill_one(self, timeout_s: float = 10) -> bool:
        """Takes the next order; False if there is none. An item without a price is an error, and makes no invoice."""
        message = self._consumer.poll(timeout_s)
        if message is None or message.error() is not None:
            return False
        self._producer.begin_transaction()
        try:
            for item in json.loads(message.value() or b"[]"):
                self._producer.produce(INVOICES, f"{item} {PRICES[item]}", key=message.key())
            self._producer.send_offsets_to_transaction(
                self._consumer.position(self._consumer.assignment()), self._consumer.consumer_group_metadata(), 10
            )
        except Exception:
            self._producer.abort_transaction(10)
            raise
        self._producer.commit_transaction(10)
        return True

    def close(self) -> None:
        self._consumer.close()


def invoices(bootstrap_servers: str, count: int) -> Iterator[tuple[str, str]]:
    """The first so many lines of invoices: customer, and item with price."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "printer",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([INVOICES])
    try:
        while count:
            message = consumer.poll(10)
            if message is None:
                raise TimeoutError(f"{count} lines are missing")
            if message.error() is None:
                yield (message.key() or b"").decode(), (message.value() or b"").decode()
                count -= 1
    finally:
        consumer.close()
