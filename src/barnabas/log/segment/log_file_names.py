"""The names of the files of a partition.

The files of a segment share its base offset, padded to 20 digits, so that a directory listing sorted by name is sorted
by offset::

    00000000000000147001.log         record batches
    00000000000000147001.index       offset -> position in the .log
    00000000000000147001.timeindex   timestamp -> offset
    00000000000000147001.txnindex    aborted transactions; only if there was one
    00000000000000147001.snapshot    producers' state just before this offset

A second suffix tells a broker that starts after a crash how to handle a file: ``.deleted`` (to be removed; readers may
still use it), ``.cleaned`` (compaction did not finish it: worthless), ``.swap`` (compaction finished it: it replaces
its originals).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

LOG_FILE_SUFFIX: Final = ".log"
INDEX_FILE_SUFFIX: Final = ".index"
TIME_INDEX_FILE_SUFFIX: Final = ".timeindex"
TXN_INDEX_FILE_SUFFIX: Final = ".txnindex"
PRODUCER_SNAPSHOT_FILE_SUFFIX: Final = ".snapshot"

DELETED_FILE_SUFFIX: Final = ".deleted"
CLEANED_FILE_SUFFIX: Final = ".cleaned"
SWAP_FILE_SUFFIX: Final = ".swap"


def log_file(directory: Path, base_offset: int, suffix: str = "") -> Path:
    return directory / f"{base_offset:020d}{LOG_FILE_SUFFIX}{suffix}"


def offset_index_file(directory: Path, base_offset: int, suffix: str = "") -> Path:
    return directory / f"{base_offset:020d}{INDEX_FILE_SUFFIX}{suffix}"


def time_index_file(directory: Path, base_offset: int, suffix: str = "") -> Path:
    return directory / f"{base_offset:020d}{TIME_INDEX_FILE_SUFFIX}{suffix}"


def transaction_index_file(directory: Path, base_offset: int, suffix: str = "") -> Path:
    return directory / f"{base_offset:020d}{TXN_INDEX_FILE_SUFFIX}{suffix}"


def producer_snapshot_file(directory: Path, offset: int) -> Path:
    return directory / f"{offset:020d}{PRODUCER_SNAPSHOT_FILE_SUFFIX}"


def offset_from_file_name(name: str) -> int:
    """Returns the offset before the first dot; ValueError for any other file name."""
    digits = name.partition(".")[0]
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{name!r} does not begin with an offset")
    return int(digits)


def with_changed_suffix(path: Path, old_suffix: str, new_suffix: str) -> Path:
    """Returns the path with its suffix replaced; ValueError if it does not end in `old_suffix`."""
    if not path.name.endswith(old_suffix):
        raise ValueError(f"{path} does not end in {old_suffix!r}")
    return path.with_name(path.name.removesuffix(old_suffix) + new_suffix)
