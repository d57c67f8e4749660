"""Reads what is committed, as it comes: the view of an application that must see each result exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, TopicPartition

WAIT_S = 120


class CommittedReader:
    """Reads partitions of a topic from the beginning on, across whatever happens to the broker meanwhile."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, seen: Callable[[int, bytes, bytes], None]) -> None:
        """`seen` gets partition, key and value of each record."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                # It is asked again soon after the broker was killed, not after ten seconds.
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self._partitions = partitions
        self._seen = seen
        self.total = 0

    def read(self, total: int, *, to_the_end: bool = False) -> None:
        """Until so many have been read in all, and there are no more if that is asked for."""
        ended: set[int] = set()
        deadline = time.monotonic() + WAIT_S
        while self.total < total or (to_the_end and len(ended) < self._partitions):
            assert time.monotonic() < deadline, f"only {self.total} of {total} records came"
            message = self._consumer.poll(0.2)
            if message is None:
                continue
            error, partition = message.error(), message.partition()
            assert partition is not None
            if error is None:
                ended.discard(partition)
                self.total += 1
                self._seen(partition, message.key() or b"", message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(partition)

    def close(self) -> None:
        self._consumer.close()
