"""The progress of a task in one of its offset ranges."""

from __future__ import annotations

from barnabas.clients.common.topic_reader import Leader
from barnabas.network.client.node import Node
from barnabas.spark.offset_ranges import OffsetRange


class RangeProgress:
    """The next offset to fetch, the node to fetch it from, and the failures since the last progress."""

    __slots__ = (
        "empty_since_ms",
        "failing_since_ms",
        "failures",
        "leader",
        "max_bytes",
        "node",
        "partition",
        "position",
        "retry_at_ms",
        "wanted",
    )

    def __init__(self, wanted: OffsetRange, max_bytes: int) -> None:
        self.wanted = wanted
        self.partition = wanted.topic_partition
        self.position = wanted.start
        self.max_bytes = max_bytes
        self.leader: Leader | None = None
        self.node: Node | None = None
        """The node to fetch from: the leader, or the preferred read replica."""
        self.failing_since_ms: float | None = None
        self.failures = 0
        self.retry_at_ms = 0.0
        self.empty_since_ms: float | None = None
        """When the broker first returned nothing at this position, although the range has more."""

    @property
    def is_done(self) -> bool:
        return self.position >= self.wanted.end

    def lead_by(self, leader: Leader) -> None:
        self.leader, self.node = leader, leader.node

    def advance(self, position: int) -> None:
        """Notes progress: earlier failures do not count any more."""
        self.position = position
        self.failing_since_ms = self.empty_since_ms = None
        self.failures = 0

    def finish(self) -> None:
        """Gives up the rest of the range."""
        self.position = self.wanted.end

    def __repr__(self) -> str:
        return f"RangeProgress({self.wanted}, at {self.position})"
