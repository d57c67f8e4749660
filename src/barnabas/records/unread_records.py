"""Records of a fetch that are in a file still, but for the headers of their batches."""

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
"""Batches that are smaller, on average, are not worth it: each costs a system call for its header and one for its
records."""
LEAST_RECORD: Final = 48
"""The same of records: those that are shorter take as long to be looked at one by one as it takes to copy them once
more."""
_FIRST_FEW: Final = 4
"""So many batches are looked at before anything is said about their average."""
_length = _count = struct.Struct(">i").unpack_from
_COUNT_OFFSET: Final = 57
_attributes = struct.Struct(">h").unpack_from


class UnreadFile(Protocol):
    """Where they are."""

    @property
    def position(self) -> int:
        """Where in the file they begin."""

    def fileno(self) -> int: ...

    def read(self, into: memoryview, start: int) -> None:
        """Fills this, with what begins so many bytes behind the position; ``EOFError`` or ``OSError`` if that
        cannot be done."""

    def close(self) -> None: ...


class UnreadRecords:
    """Makes of a file what it would have been as a part of a message, as far as somebody needs it.

    ``octets`` is memory for all of it. The headers of batches are read into it at first; they say where records end
    and how many there are. Who makes columns of the records then reads them from the file to where they are to stay
    (`barnabas.records.columns`). Anybody else calls `read_all`, and has them in ``octets``.
    """

    __slots__ = ("_file", "octets")

    def __init__(self, octets: memoryview, file: UnreadFile) -> None:
        self.octets = octets
        self._file: UnreadFile | None = file

    @property
    def is_read(self) -> bool:
        """Whether ``octets`` has all of it."""
        return self._file is None

    def fileno(self) -> int:
        """-1 if all has been read."""
        return -1 if self._file is None else self._file.fileno()

    @property
    def position(self) -> int:
        return 0 if self._file is None else self._file.position

    def read_headers(self, *, may_be_transactional: bool) -> bool:
        """Reads the headers, which has to be done first; whether they are those of large batches of not too short
        records with nothing special about them.

        If not, it may have stopped half-way, and `read_all` is what is left.
        """
        octets, file = self.octets, self._file
        assert file is not None
        usual = TIMESTAMP_TYPE_MASK | (TRANSACTIONAL_MASK if may_be_transactional else 0)
        at, end, batches = 0, len(octets), 0
        while at < end:
            header = octets[at : at + HEADER_SIZE]
            file.read(header, at)
            if len(header) < HEADER_SIZE:
                break  # the beginning of one that was cut off
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
        """Reads all of it, if that has not been done before."""
        file = self._file
        if file is not None:
            file.read(self.octets, 0)
            self._file = None
            file.close()


__all__ = ["LEAST_BATCH", "UnreadFile", "UnreadRecords"]
