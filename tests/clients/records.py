"""Records as every client sees them, and samples that are easy to get wrong."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


class Record(NamedTuple):
    """What a producer is given and what a consumer must find. An offset of -1 is one not known yet."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = 0
    offset: int = -1


def at(records: list[Record], first: int = 0) -> list[Record]:
    """The same records with the offsets that they get in a partition where ``first`` is the next one."""
    return [record._replace(offset=first + number) for number, record in enumerate(records)]


RECENTLY: Final = int(time.time() * 1000) - 3_600_000
"""A timestamp of the past that no retention time has passed by: old records may go at any moment."""

SAMPLES: Final = [
    Record(b"plain", timestamp=RECENTLY),
    Record(b"with a key", key=b"key", timestamp=RECENTLY + 5),
    Record(b"", key=b"", timestamp=RECENTLY + 3),
    Record(None, key=b"deleted", timestamp=RECENTLY + 7),
    Record(b"two headers", headers=(("h", b"1"), ("h", b"2")), timestamp=RECENTLY + 8),
    Record(b"empty header", headers=(("empty", b""),), timestamp=RECENTLY + 9),
    Record("текст 文字 🪳".encode(), key="ключ".encode(), headers=(("имя", "é".encode()),), timestamp=RECENTLY + 10),
    Record(b"compressible " * 4_000, key=b"long", timestamp=RECENTLY + 2),
    Record(b"last", key=b"k" * 300, timestamp=RECENTLY + 11),
]
"""Text that every client can carry, kcat's JSON included; timestamps not in order."""

BINARY: Final = [
    *SAMPLES,
    Record(bytes(range(256)), key=bytes(reversed(range(256))), headers=(("b", b"\x00\xff"),), timestamp=RECENTLY + 12),
    Record(b"odd headers", headers=(("", b"nameless"), ("long", b"x" * 1000)), timestamp=RECENTLY + 13),
]
"""And bytes that are no text, for the clients that are libraries."""

NULL_HEADER: Final = Record(b"null header", headers=(("null", None),), timestamp=RECENTLY + 14)
