"""Decides which thread reads fetched records from the broker's files."""

from __future__ import annotations

from typing import Final

from barnabas.network.transport.local.unread_message import FileReading, unread_file_of
from barnabas.records.unread_records import UnreadRecords

PATIENCE: Final = 64
"""How many fetches to wait, after one whose batches are unsuitable, before trying again."""


class FetchFiles:
    """Leaves records in the files of a broker on the same machine until a table is made of them, where that pays.

    Records that the background thread reads must be copied by the application's thread, when they have left the
    processor's cache. From the file, that thread reads a block at a time directly to its destination, and does not read
    the incomplete last batch of a fetch, which will come again. This suits only large plain batches: compressed or
    small ones, and those of transactions that may be aborted, must be in memory.

    Used by the background thread.
    """

    __slots__ = ("_is_committed", "_pause", "_reading")

    def __init__(self, reading: FileReading, *, is_committed: bool) -> None:
        """``is_committed``: the isolation level is read_committed, so transactional records are checked one by one."""
        self._reading = reading
        self._is_committed = is_committed
        self._pause = 0

    def ask(self, *, leave: bool) -> None:
        """Notes that a fetch is sent, and whether the application wants records left in files."""
        self._reading.left = leave and not self._pause
        if self._pause:
            self._pause -= 1

    def unread_records(self, records: object) -> UnreadRecords | None:
        """Returns the location of records left in files; None if they are in memory.

        Raises ``OSError`` or ``EOFError`` if they can no longer be read.
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
