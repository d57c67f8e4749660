"""murmur2, the hash that assigns keys to partitions: the twin of `compiled.murmur2`.

All clients of a topic must compute the same hash for the same key, or the records of one key end up in two partitions.
So this is bit for bit the variant of Kafka's Java client: 32 bits, a fixed seed, and the sign bit dropped.

>>> murmur2(b"kafka"), partition_for_key(b"kafka", 12)
(-798503068, 4)
"""

from __future__ import annotations

import struct
from typing import Final, TypeVar

Item = TypeVar("Item")

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def _hash(data: bytes | bytearray | memoryview) -> int:
    """Returns the hash as an unsigned number."""
    if type(data) is memoryview and (data.format != "B" or not data.contiguous):
        data = data.tobytes()
    length = len(data)
    h = (_SEED ^ length) & _MASK
    words = length >> 2
    for k in struct.unpack_from(f"<{words}I", data):
        k = k * _M & _MASK  # noqa: PLW2901 - the name the algorithm has for it
        h = (h * _M ^ (k ^ k >> 24) * _M) & _MASK
    if length & 3:
        h = (h ^ int.from_bytes(data[words << 2 :], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def murmur2(data: bytes | bytearray | memoryview) -> int:
    """Returns the hash as in Java: a signed 32-bit number."""
    h = _hash(data)
    return h - 0x100000000 if h & 0x80000000 else h


def partition_for_key(key: bytes | bytearray | memoryview, partition_count: int) -> int:
    """Returns the partition, out of `partition_count`, of a key's records."""
    if partition_count < 1:
        raise ValueError(f"a topic of {partition_count} partitions has none to choose from")
    return (_hash(key) & 0x7FFFFFFF) % partition_count


def item_for_key(key: object, items: tuple[Item, ...]) -> Item | None:
    """Returns the item of a key's partition, where `items` has one for each partition; None if the key is not bytes."""
    if type(key) is not bytes or not items:
        return None
    return items[(_hash(key) & 0x7FFFFFFF) % len(items)]
