"""Why batches are not delivered, for the messages of timeouts."""

from __future__ import annotations

from barnabas.common.topic_partition import TopicPartition


class DeliveryErrors:
    """The last send error of each partition, and the topics without a leader.

    Written by the I/O thread; other threads read it when they run out of memory.
    """

    __slots__ = ("last", "leaderless_topics")

    def __init__(self) -> None:
        self.last: dict[TopicPartition, str] = {}
        """The last send error of each partition, removed by a success; the latest error is last."""
        self.leaderless_topics: set[str] = set()
        """Topics with batches for partitions that have no leader. Replaced as a whole."""

    def note(self, partition: TopicPartition, error: str) -> None:
        """Records why a batch is sent again."""
        self.last.pop(partition, None)
        self.last[partition] = error

    def why_unsent(self, partition: TopicPartition) -> str | None:
        """Returns why the batches of a partition are not sent, if known."""
        error = self.last.get(partition)
        if error is None and partition.topic in self.leaderless_topics:
            return "no leader is known"
        return error

    def why_memory_is_not_freed(self) -> str:
        """Returns the end of a message about exhausted memory."""
        errors = list(self.last.copy().items())
        if errors:
            partition, error = errors[-1]
            others = f" (and {len(errors) - 1} more partitions)" if len(errors) > 1 else ""
            return f". Batches wait to be sent again: the last error of {partition} was {error}{others}"
        topics = sorted(self.leaderless_topics)
        if topics:
            return f". Batches wait for a leader of partitions of {', '.join(topics[:3])}"
        return ""
