"""A member of a group, in a process of its own, so that it can be killed: ``group_member.py KIND BOOTSTRAP GROUP
TOPIC``.

It tells on its standard output, one line of JSON each, what it is assigned, what is taken away from it, and what it
reads. It ends in order when its standard input is closed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

SESSION_MS = 20_000
HEARTBEAT_MS = 1000

_stop = threading.Event()


def tell(event: str, **fields: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, "time": time.monotonic(), **fields}) + "\n")
    sys.stdout.flush()


def numbers(partitions: Iterable[Any]) -> list[int]:
    return sorted(one.partition for one in partitions)


def kafka_python(bootstrap: str, group: str, topic: str) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            tell("assigned", partitions=numbers(assigned))

        def on_partitions_revoked(self, revoked: Any) -> None:
            tell("revoked", partitions=numbers(revoked))

        def on_partitions_lost(self, lost: Any) -> None:
            tell("revoked", partitions=numbers(lost))

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=True,
        auto_commit_interval_ms=200,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    consumer.subscribe([topic], listener=Listener())
    while not _stop.is_set():
        # kafka-python 3.0.12 forgets an assignment whose SyncGroup response comes after the poll that asked for it has
        # timed out, and then neither fetches nor sends heartbeats any more: the time-out is far from a rebalance's end.
        for records in consumer.poll(timeout_ms=2000).values():
            for record in records:
                tell("record", partition=record.partition, offset=record.offset)
    consumer.close()


def confluent(bootstrap: str, group: str, topic: str, protocol: str) -> None:
    from confluent_kafka import Consumer

    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 200,
        "group.protocol": protocol,
    }
    if protocol == "classic":
        settings |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
    consumer = Consumer(settings)
    incremental = protocol == "consumer"

    def on_assign(_consumer: Any, assigned: Any) -> None:
        tell("assigned", partitions=numbers(assigned), incremental=incremental)

    def on_revoke(_consumer: Any, revoked: Any) -> None:
        tell("revoked", partitions=numbers(revoked))

    consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke)
    while not _stop.is_set():
        record = consumer.poll(0.1)
        if record is not None and record.error() is None:
            tell("record", partition=record.partition(), offset=record.offset())
    consumer.close()


async def _aiokafka(bootstrap: str, group: str, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            tell("revoked", partitions=numbers(revoked))

        async def on_partitions_assigned(self, assigned: Any) -> None:
            tell("assigned", partitions=numbers(assigned))

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=200,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    while not _stop.is_set():
        for records in (await consumer.getmany(timeout_ms=100)).values():
            for record in records:
                tell("record", partition=record.partition, offset=record.offset)
    await consumer.stop()


KINDS: dict[str, Callable[[str, str, str], Any]] = {
    "kafka-python": kafka_python,
    "confluent-classic": partial(confluent, protocol="classic"),
    "confluent-consumer": partial(confluent, protocol="consumer"),
    "aiokafka": lambda *where: asyncio.run(_aiokafka(*where)),
}


def main() -> None:
    def wait_for_end() -> None:
        sys.stdin.read()
        _stop.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    kind, bootstrap, group, topic = sys.argv[1:]
    KINDS[kind](bootstrap, group, topic)
    tell("closed")


if __name__ == "__main__":
    main()
