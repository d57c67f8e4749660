"""How much of a partition to ask for at once."""

from __future__ import annotations

from typing import Final

ANSWER_BYTES: Final = 12 * 1024 * 1024
"""What an answer grows to, if no setting says less. Twice as much saves something more, but only after some hundred
megabytes: until then, to find memory for the first answers costs the system more than that."""
QUICK_MS: Final = 25
SLOW_MS: Final = 250


class FetchSize:
    """The size of the answers of one node, for an application that reads tables.

    Whatever an answer holds, it takes both sides as much to ask for it, to find it, to hand it over and to make a table
    of it: with one megabyte of each of few partitions, about a third of all work. Beside that, a broker sends as many
    bytes as it was asked for and cuts off the last batch, which comes again with the next answer; the larger an answer,
    the smaller that part of it. So while answers are full and follow each other quickly, each may be twice as large as
    the one before, up to `ANSWER_BYTES` for all partitions. Where they take their time, because the network is slow or
    the application is, they become smaller again: nobody has to wait for seconds for the first record of a table.

    All sizes are ``max.partition.fetch.bytes`` times a power of two. No batch is larger than that by default, and many
    are nearly as large: with one and a half times as much, half an answer could be the beginning of a batch.

    Belongs to the background thread.
    """

    __slots__ = ("_answered_ms", "_asked", "_factor", "_least", "_most", "_partitions")

    def __init__(self, max_partition_fetch_bytes: int, fetch_max_bytes: int) -> None:
        self._least = max_partition_fetch_bytes
        self._most = min(ANSWER_BYTES, fetch_max_bytes)
        self._factor = 1
        self._partitions = 1
        self._asked = 0
        self._answered_ms: int | None = None

    def ask(self, partitions: int) -> int:
        """How much to ask for of each of so many partitions."""
        self._partitions = partitions
        while self._factor > 1 and self._factor * self._least * partitions > self._most:
            self._factor //= 2
        self._asked = self._factor * self._least
        return self._asked

    def answered(self, largest: int, now: int) -> None:
        """An answer has come, with so many bytes of the partition that it has most of."""
        before, self._answered_ms = self._answered_ms, now
        if before is None or largest * 2 <= self._asked:
            return  # all that there is has been read: nothing follows quickly, and it says nothing
        if now - before <= QUICK_MS:
            if 2 * self._factor * self._least * self._partitions <= self._most:
                self._factor *= 2
        elif now - before >= SLOW_MS and self._factor > 1:
            self._factor //= 2
