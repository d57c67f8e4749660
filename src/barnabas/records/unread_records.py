"""Fetched records that are still in a file; only their batch headers are in memory."""

from __future__ import annotations

import struct
from typing import Final, Protocol

from barnabas.records.batch import (
    ATTRIBUTES_OFFSET,
    HEADER_SIZE,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_OFFSET,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)

LEAST_BATCH: Final = 1 << 16
"""The smallest average batch size for reading on demand: a batch takes a system call for header and records each."""
LEAST_RECORD: Final = 48
"""The smallest record size for reading on demand: reading shorter records one by one takes as long as another copy."""
_FIRST_FEW: Final = 4
"""How many batches are read before their average size is checked."""
_length = _count = struct.Struct(">i").unpack_from
_COUNT_OFFSET: Final = 57
_attributes = struct.Struct(">h").unpack_from


class UnreadFile(Protocol):
    """The file that holds the records."""

    @property
    def position(self) -> int:
        """The position of the first batch in the file."""

    def fileno(self) -> int: ...

    def read(self, into: memoryview, start: int) -> None:
        """Fills `into` with the bytes from `position + start` on; ``EOFError`` or ``OSError`` on failure."""

    def close(self) -> None: ...


class UnreadRecords:
    """Reads the records of a fetch response from a file on demand.

    ``octets`` is memory for all batches. First the batch headers are read into it; they tell where the records end and
    how many there are. `barnabas.records.columns.arrow` then reads the records from the file directly to their final
    place. All other users call `read_all`, which reads them into ``octets``.
    """

    __slots__ = ("_file", "octets")

    def __init__(self, octets: memoryview, file: UnreadFile) -> None:
        self.octets = octets
        self._file: UnreadFile | None = file

    @property
    def is_read(self) -> bool:
        """Whether ``octets`` is complete."""
        return self._file is None

    def fileno(self) -> int:
        """Returns the file descriptor; -1 if everything has been read."""
        return -1 if self._file is None else self._file.fileno()

    @property
    def position(self) -> int:
        return 0 if self._file is None else self._file.position

    def read_headers(self, *, may_be_transactional: bool) -> bool:
        """Reads the headers; returns whether all batches are large and ordinary, with records that are not too short.

        It has to be called first. If it returns false, it may have stopped half-way, and only `read_all` may follow.
        """
        octets, file = self.octets, self._file
        assert file is not None
        usual = TIMESTAMP_TYPE_MASK | (TRANSACTIONAL_MASK if may_be_transactional else 0)
        at, end, batches = 0, len(octets), 0
        while at < end:
            header = octets[at : at + HEADER_SIZE]
            file.read(header, at)
            if len(header) < HEADER_SIZE:
                break  # the start of a truncated batch
            (length,), (attributes,) = _length(header, LENGTH_OFFSET), _attributes(header, ATTRIBUTES_OFFSET)
            (count,) = _count(header, _COUNT_OFFSET)
            at += LOG_OVERHEAD + length
            batches += 1
            if (
                header[MAGIC_OFFSET] != MAGIC
                or attributes & ~usual
                or length < max(HEADER_SIZE - LOG_OVERHEAD, LEAST_RECORD * count)
                or (batches > _FIRST_FEW and batches * LEAST_BATCH > at)
            ):
                return False
        return batches > 0

    def read_all(self) -> None:
        """Reads all bytes, unless they have been read before."""
        file = self._file
        if file is not None:
            file.read(self.octets, 0)
            self._file = None
            file.close()


__all__ = ["LEAST_BATCH", "UnreadFile", "UnreadRecords"]
