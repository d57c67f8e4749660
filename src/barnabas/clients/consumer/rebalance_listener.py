"""What an application hears of rebalances."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.common.topic_partition import TopicPartition


class ConsumerRebalanceListener:
    """Told when partitions come and go; a subclass overrides what it wants to know.

    All calls come on the application's own thread, from inside ``poll()``, ``close()`` or ``unsubscribe()``, and the
    rebalance waits for them. So this is the place to commit, or to save state that belongs to partitions, before
    somebody else gets them. A partition is assigned, and then either revoked or lost, exactly once:

    * *assigned*: these are new; nothing of them has been fetched. Positions may be changed with ``seek``. Called after
      every rebalance, also when there is nothing new.
    * *revoked*: these will be somebody else's, but are not yet: offsets can still be committed.
    * *lost*: these are probably somebody else's by now, because this member was thrown out. Committing would fail.
      Unless overridden, it is taken for a revocation.

    If a call raises, ``poll()`` raises that; the rebalance goes on.
    """

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """They are this consumer's now."""

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """They are about to be taken away."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """They have been taken away."""
        self.on_partitions_revoked(partitions)
