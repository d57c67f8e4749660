"""Chooses the fetch size per partition."""

from __future__ import annotations

from typing import Final

RESPONSE_BYTES: Final = 12 * 1024 * 1024
"""The size to which responses grow, if no setting is lower. Twice as much saves a little more, but only after some
hundred megabytes: until then, allocating memory for the first responses costs more."""
QUICK_MS: Final = 25
SLOW_MS: Final = 250


class FetchSize:
    """The response size of one node, for an application that reads tables.

    Requesting, finding, transferring and converting a response costs both sides the same, whatever its size: with one
    megabyte of each of few partitions, about a third of all work. Also, a broker cuts off the last batch at the
    requested size, and the batch comes again with the next response; the larger a response, the smaller that part of
    it. So while responses are full and follow each other quickly, each may be twice as large as the one before, up to
    `RESPONSE_BYTES` for all partitions. If they are slow, because of the network or the application, they become
    smaller again, so that the first record of a table does not take seconds.

    All sizes are ``max.partition.fetch.bytes`` times a power of two. By default no batch is larger than that, and many
    are nearly as large: with one and a half times as much, half a response could be the beginning of a batch.

    Used by the background thread.
    """

    __slots__ = ("_asked", "_factor", "_least", "_most", "_partitions", "_responded_ms")

    def __init__(self, max_partition_fetch_bytes: int, fetch_max_bytes: int) -> None:
        self._least = max_partition_fetch_bytes
        self._most = min(RESPONSE_BYTES, fetch_max_bytes)
        self._factor = 1
        self._partitions = 1
        self._asked = 0
        self._responded_ms: int | None = None

    def ask(self, partitions: int) -> int:
        """Returns the size to request of each of so many partitions."""
        self._partitions = partitions
        while self._factor > 1 and self._factor * self._least * partitions > self._most:
            self._factor //= 2
        self._asked = self._factor * self._least
        return self._asked

    def responded(self, largest: int, now: int) -> None:
        """Handles a response; the bytes are those of its largest partition."""
        before, self._responded_ms = self._responded_ms, now
        if before is None or largest * 2 <= self._asked:
            return  # the end of the log was reached: the size says nothing
        if now - before <= QUICK_MS:
            if 2 * self._factor * self._least * self._partitions <= self._most:
                self._factor *= 2
        elif now - before >= SLOW_MS and self._factor > 1:
            self._factor //= 2
