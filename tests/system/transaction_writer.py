"""Writes transactions one after the other, and says how each of them ended and how long each call took.

A process of its own, for a test that kills the broker: ``python transaction_writer.py <client> <address> <topic>
<partitions> <transactional id>``. The client is ``ours`` or ``confluent``.

Transaction *n* writes ``<transactional id> n`` to each partition; every second one commits an offset of a group, and
every fourth one is aborted. Each call prints a line of JSON before and after it; a line with an ``outcome`` ends a
transaction. After an error the process closes the producer and goes on with a new one of the same transactional id.
SIGUSR1 prints the stacks of all threads.
"""

from __future__ import annotations

import faulthandler
import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from barnabas.clients.producer import KafkaProducer
from barnabas.common.errors import BarnabasError
from barnabas.common.topic_partition import TopicPartition

PAUSE_S = 0.02
"""Between two transactions: the broker's log stays small, and most kills still hit one."""
REQUEST_TIMEOUT_MS = 180_000
"""Longer than the test waits: a response or a wake-up that is lost is not covered up by a request that is repeated."""
OFFSETS_S = 20


def say(**values: Any) -> None:
    print(json.dumps({"at": time.monotonic(), **values}), flush=True)


@contextmanager
def timed(call: str) -> Iterator[None]:
    say(begins=call)
    started = time.monotonic()
    try:
        yield
    finally:
        say(ended=call, seconds=round(time.monotonic() - started, 3))


class Client(Protocol):
    def initialize(self) -> None: ...
    def begin(self) -> None: ...
    def write(self, topic: str, partition: int, value: bytes) -> None: ...
    def send_offset(self, topic: str, offset: int) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class OurClient:
    """Barnabas' producer."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._group = name
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=name,
            linger_ms=1,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=2 * REQUEST_TIMEOUT_MS,
            max_block_ms=2 * REQUEST_TIMEOUT_MS,
        )
        self.initialize = self._producer.init_transactions
        self.begin = self._producer.begin_transaction
        self.commit = self._producer.commit_transaction
        self.abort = self._producer.abort_transaction
        self.close = self._producer.close

    def write(self, topic: str, partition: int, value: bytes) -> None:
        self._producer.send(topic, value, partition=partition)

    def send_offset(self, topic: str, offset: int) -> None:
        self._producer.send_offsets_to_transaction({TopicPartition(topic, 0): offset}, self._group)


class ConfluentClient:
    """librdkafka, whose calls wait for ever by default. Two of its own stalls are bounded here:

    * send_offsets_to_transaction() can lose its TxnOffsetCommit and wait for ever (2.16). Seen for 360 s on a broker
      that was never killed: the last thing on each of its connections was a response, 355 s ago on the newest one.
    * abort_transaction() waits for a batch whose connection broke until ``transaction.timeout.ms`` is over: the batch
      is put back to be sent again, but a producer that aborts sends nothing.
    """

    def __init__(self, bootstrap: str, name: str) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
            "metadata.recovery.strategy": "none",  # "rebootstrap" loses a TxnOffsetCommit more often
        }
        self._consumer = Consumer({**settings, "group.id": name})
        self._producer = Producer(
            {**settings, "transactional.id": name, "linger.ms": 1, "transaction.timeout.ms": 10_000}
        )
        self.initialize = self._producer.init_transactions
        self.begin = self._producer.begin_transaction
        self.commit = self._producer.commit_transaction
        self.abort = self._producer.abort_transaction

    def write(self, topic: str, partition: int, value: bytes) -> None:
        self._producer.produce(topic, value, partition=partition)

    def send_offset(self, topic: str, offset: int) -> None:
        self._producer.send_offsets_to_transaction(
            [ConfluentPartition(topic, 0, offset)], self._consumer.consumer_group_metadata(), OFFSETS_S
        )

    def close(self) -> None:
        self._producer.purge()
        self._consumer.close()


CLIENTS: dict[str, type[OurClient | ConfluentClient]] = {"ours": OurClient, "confluent": ConfluentClient}


def run(client: Client, topic: str, partitions: int, name: str, numbers: Iterator[int]) -> None:
    """Writes transactions until one fails."""
    with timed("init"):
        client.initialize()
    for number in numbers:
        outcome = "aborted"
        try:
            client.begin()
            with timed("write"):
                for partition in range(partitions):
                    client.write(topic, partition, f"{name} {number}".encode())
            if number % 2:
                with timed("offsets"):
                    client.send_offset(topic, number)
            if number % 4 == 3:
                with timed("abort"):
                    client.abort()
            else:
                outcome = "unknown"
                with timed("commit"):
                    client.commit()
                outcome = "committed"
        finally:
            say(number=number, outcome=outcome)
        time.sleep(PAUSE_S)


def main() -> None:
    faulthandler.register(signal.SIGUSR1)
    kind, bootstrap, topic, partitions, name = sys.argv[1:6]
    numbers = iter(range(1 << 31))
    while True:
        client = CLIENTS[kind](bootstrap, name)
        try:
            run(client, topic, int(partitions), name, numbers)
        except (KafkaException, BarnabasError) as error:
            say(error=repr(error))
        with timed("close"):
            client.close()


if __name__ == "__main__":
    main()
