"""Rebalance callbacks for applications."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.common.topic_partition import TopicPartition


class ConsumerRebalanceListener:
    """Called when partitions are assigned and revoked; a subclass overrides the methods it needs.

    All calls run on the application's own thread, inside ``poll()``, ``close()`` or ``unsubscribe()``, and the
    rebalance waits for them. So this is the place to commit, or to save state of partitions, before another member gets
    them. A partition is assigned, and then either revoked or lost, exactly once:

    * *assigned*: these are new; nothing of them has been fetched. Positions may be changed with ``seek``. Called after
      every rebalance, also when there is nothing new.
    * *revoked*: these will go to another member, but have not yet: offsets can still be committed.
    * *lost*: these probably belong to another member already, because this one was removed. Committing would fail. By
      default it is treated as a revocation.

    If a call raises, ``poll()`` raises the same error; the rebalance continues.
    """

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Called when partitions have been assigned."""

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Called before partitions are revoked."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Called after partitions were lost."""
        self.on_partitions_revoked(partitions)
