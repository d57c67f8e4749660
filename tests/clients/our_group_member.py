"""A `KafkaConsumer` of ours in a process of its own, so that it can be killed: ``our_group_member.py BOOTSTRAP GROUP
TOPIC key=value...``. It says what `group_member.py` says."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from barnabas.clients.consumer import ConsumerRebalanceListener, KafkaConsumer, TopicPartition

_stop = threading.Event()


def tell(event: str, **fields: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, "time": time.monotonic(), **fields}) + "\n")
    sys.stdout.flush()


class Listener(ConsumerRebalanceListener):
    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        tell("assigned", partitions=[one.partition for one in partitions])

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        tell("revoked", partitions=[one.partition for one in partitions])


def main() -> None:
    def wait_for_end() -> None:
        sys.stdin.read()
        _stop.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    bootstrap, group, topic, *settings = sys.argv[1:]
    given = dict(one.split("=", 1) for one in settings)
    with KafkaConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 200,
            **given,
        }
    ) as consumer:
        consumer.subscribe([topic], Listener())
        while not _stop.is_set():
            for record in consumer.poll(100):
                tell("record", partition=record.partition, offset=record.offset)
    tell("closed")


if __name__ == "__main__":
    main()
