"""Statistics of the cleaner."""

from __future__ import annotations

from barnabas.common.clock import Clock


class PreCleanStats:
    """Statistics of the selection of a log to clean."""

    __slots__ = ("cleanable_partitions", "delayed_partitions", "max_compaction_delay_ms")

    def __init__(self) -> None:
        self.max_compaction_delay_ms = 0
        """How long the compaction of a log is overdue by its ``max.compaction.lag.ms``; the maximum of all logs."""
        self.delayed_partitions = 0
        self.cleanable_partitions = 0

    def update_max_compaction_delay(self, delay_ms: int) -> None:
        self.max_compaction_delay_ms = max(self.max_compaction_delay_ms, delay_ms)
        if delay_ms > 0:
            self.delayed_partitions += 1


class CleanerStats:
    """Statistics of one cleaning of one log."""

    __slots__ = (
        "_clock",
        "_end_ns",
        "_map_complete_ns",
        "_start_ns",
        "buffer_utilization",
        "bytes_read",
        "bytes_written",
        "invalid_messages_read",
        "map_bytes_read",
        "map_messages_read",
        "messages_read",
        "messages_written",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_ns = self._map_complete_ns = self._end_ns = clock.nanoseconds()
        self.map_bytes_read = 0
        self.map_messages_read = 0
        self.bytes_read = 0
        self.messages_read = 0
        self.bytes_written = 0
        self.messages_written = 0
        self.invalid_messages_read = 0
        """Records without a key, which are invalid in a compacted log and are dropped."""
        self.buffer_utilization = 0.0

    def map_done(self) -> None:
        self._map_complete_ns = self._clock.nanoseconds()

    def all_done(self) -> None:
        self._end_ns = self._clock.nanoseconds()

    @property
    def elapsed_seconds(self) -> float:
        return (self._end_ns - self._start_ns) / 1e9

    @property
    def elapsed_map_seconds(self) -> float:
        return (self._map_complete_ns - self._start_ns) / 1e9

    def __str__(self) -> str:
        return (
            f"read {self.map_bytes_read:,} bytes ({self.map_messages_read:,} records) for the keys in "
            f"{self.elapsed_map_seconds:.1f} s, which filled {self.buffer_utilization:.1%} of the memory for them; "
            f"went through {self.bytes_read:,} bytes ({self.messages_read:,} records), of which {self.bytes_written:,} "
            f"({self.messages_written:,} records) are left, in "
            f"{self.elapsed_seconds - self.elapsed_map_seconds:.1f} s"
        )
