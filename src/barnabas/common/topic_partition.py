"""A partition of a topic: what most things in a broker are keyed by."""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A topic's name and a partition's number.

    It is a tuple, so it compares and hashes at C speed; its text is the name that Kafka gives the directory of the
    partition's log.

    >>> str(TopicPartition("orders", 3))
    'orders-3'
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
