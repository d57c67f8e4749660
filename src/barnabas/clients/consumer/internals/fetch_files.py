"""Whether fetched records are read from the broker's files by this thread, or by who takes them."""

from __future__ import annotations

from typing import Final

from barnabas.network.transport.local.unread_message import FileReading, unread_file_of
from barnabas.records.unread_records import UnreadRecords

PATIENCE: Final = 64
"""So many fetches go by, after one with batches that it is no use to leave where they are, before it is tried again."""


class FetchFiles:
    """Leaves records in the files of a broker on the same machine until a table is made of them, where that pays.

    What the background thread reads, the application's thread has to copy, when the processor's cache has it no more.
    From the file, it reads a block at a time to where it stays; and what a fetch has too much, the first part of a
    batch that will come again, is not read at all. But that is only for large batches as they are: compressed ones,
    those of transactions that may have been aborted, and small ones, have to be in memory.

    Belongs to the background thread.
    """

    __slots__ = ("_is_committed", "_pause", "_reading")

    def __init__(self, reading: FileReading, *, is_committed: bool) -> None:
        """``is_committed`` says that records of transactions are looked at one by one."""
        self._reading = reading
        self._is_committed = is_committed
        self._pause = 0

    def ask(self, *, leave: bool) -> None:
        """A fetch goes out, for an application that would have its records left where they are, or not."""
        self._reading.left = leave and not self._pause
        if self._pause:
            self._pause -= 1

    def unread_records(self, records: object) -> UnreadRecords | None:
        """What is to be read of these by who takes them; None if they are in memory.

        ``OSError`` or ``EOFError`` if they can be read no more.
        """
        file = unread_file_of(records)
        if file is None:
            return None
        assert isinstance(records, memoryview)
        unread = UnreadRecords(records, file)
        if unread.read_headers(may_be_transactional=not self._is_committed):
            return unread
        self._pause = PATIENCE
        unread.read_all()
        return None
