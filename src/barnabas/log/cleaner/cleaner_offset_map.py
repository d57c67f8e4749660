"""The offset map of compaction: the last offset of each key."""

from __future__ import annotations

import struct
from typing import Final

BYTES_PER_ENTRY: Final = 32
"""The maximum memory per key: 24 bytes, and its share of the buckets' overhead and reserved space."""

_CODE_SIZE: Final = 16
_ENTRY_SIZE: Final = 24
_LONGEST_PLAIN: Final = _CODE_SIZE - 1
_LENGTHS: Final = tuple(bytes((length,)) for length in range(_CODE_SIZE))
_OFFSET: Final = struct.Struct(">q")
_SPLIT_AT: Final = 64
"""The mean number of entries in a bucket at which the number of buckets doubles."""


class OffsetMap:
    """Maps keys to their last offsets, in a bounded amount of memory.

    Keys may have any size, so a *code* of 16 bytes is stored: the MD5 of the key, or for shorter keys the key itself
    followed by its length, which is quicker. MD5 is not used for secrecy: a collision by chance between two keys of one
    log is less likely than a disk that returns other data than was written.

    **Why not a dict?** A dict of 16-byte strings and integers takes about 160 bytes for each key. Kafka has a table
    with open addressing, of 24 bytes for each; but probing it step by step is slow in Python. So this is a table of
    *buckets*, each a `bytearray` of consecutive entries, code and offset:

        bucket 0   code code code | offset | code code code | offset | ...
        bucket 1   ...

    A bucket has 32 to 64 entries on average, and `bytearray.find` searches one in a fraction of a microsecond. That
    takes 28 bytes for each key, and about as long as computing the MD5. When buckets get full, their number doubles.
    So the map grows with the number of keys, but never beyond `memory`.

    For one thread.
    """

    __slots__ = ("_buckets", "_mask", "_size", "latest_offset", "slots")

    def __init__(self, memory: int) -> None:
        self.slots = memory // BYTES_PER_ENTRY
        """The maximum number of keys."""
        self.latest_offset = -1
        """The last offset that the map covers."""
        self.clear()

    def clear(self) -> None:
        """Removes all keys and releases the memory."""
        self._buckets = [bytearray()]
        self._mask = 0
        self._size = 0
        self.latest_offset = -1

    def __len__(self) -> int:
        return self._size

    @property
    def utilization(self) -> float:
        """The fill level, from 0 to 1."""
        return self._size / self.slots if self.slots else 1.0

    def put(self, key: bytes | memoryview, offset: int) -> None:
        """Sets or replaces a key's offset; `ValueError` if the key is new and the map is full."""
        code = _code(key)
        bucket = self._buckets[hash(code) & self._mask]
        position = bucket.find(code)
        if position > 0 and position % _ENTRY_SIZE:
            position = _aligned(bucket, code, position)
        if position >= 0:
            _OFFSET.pack_into(bucket, position + _CODE_SIZE, offset)
        else:
            if self._size >= self.slots:
                raise ValueError(f"the offset map is full: it has {self._size} keys")
            bucket += code
            bucket += _OFFSET.pack(offset)
            self._size += 1
            if self._size > _SPLIT_AT * len(self._buckets):
                self._split()
        self.latest_offset = offset

    def get(self, key: bytes | memoryview) -> int:
        """Returns the offset of a key; -1 if it has none."""
        code = _code(key)
        bucket = self._buckets[hash(code) & self._mask]
        position = bucket.find(code)
        if position > 0 and position % _ENTRY_SIZE:
            position = _aligned(bucket, code, position)
        if position < 0:
            return -1
        offset: int = _OFFSET.unpack_from(bucket, position + _CODE_SIZE)[0]
        return offset

    def update_latest_offset(self, offset: int) -> None:
        """Marks the log up to this offset as covered."""
        self.latest_offset = offset

    def _split(self) -> None:
        """Doubles the number of buckets: each keeps the entries whose hash has a 0 in the next bit.

        Buckets are split one after the other, so that only one at a time needs memory for both halves.
        """
        count = len(self._buckets)
        for index in range(count):
            bucket = self._buckets[index]
            halves = (bytearray(), bytearray())
            for position in range(0, len(bucket), _ENTRY_SIZE):
                code = bytes(bucket[position : position + _CODE_SIZE])
                halves[hash(code) & count != 0].extend(bucket[position : position + _ENTRY_SIZE])
            self._buckets[index] = halves[0]
            self._buckets.append(halves[1])
        self._mask = 2 * count - 1

    def __repr__(self) -> str:
        return f"OffsetMap(size={self._size}, slots={self.slots}, latest_offset={self.latest_offset})"


def _code(key: bytes | memoryview) -> bytes:
    length = len(key)
    if length > _LONGEST_PLAIN:
        import hashlib

        return hashlib.md5(key, usedforsecurity=False).digest()
    return bytes(key).ljust(_LONGEST_PLAIN, b"\0") + _LENGTHS[length]


def _aligned(bucket: bytearray, code: bytes, position: int) -> int:
    """Finds the entry with this code, from a position where the same bytes occur unaligned by chance.

    That is not as rare as it seems: codes of short keys end in zeros, and offsets begin with zeros.
    """
    while position >= 0 and position % _ENTRY_SIZE:
        position = bucket.find(code, position + 1)
    return position
