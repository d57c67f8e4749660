"""Java's hash of a string, by which Kafka maps groups and transactional IDs to partitions."""

from __future__ import annotations

from functools import lru_cache


def java_hash_code(text: str) -> int:
    """Returns ``String.hashCode``: a signed 32-bit number, from UTF-16 code units.

    >>> java_hash_code("group"), java_hash_code("")
    (98629247, 0)
    """
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (31 * value + unit) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for at in range(0, len(units), 2):
            value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


@lru_cache(maxsize=65536)
def partition_for(key: str, num_partitions: int) -> int:
    """Returns the partition of an internal topic for a group or a transactional ID.

    It uses the absolute value of the hash. The lowest number has none, and becomes 0. (Producers map keys differently:
    they drop the sign bit.)
    """
    value = java_hash_code(key)
    return 0 if value == -(1 << 31) else abs(value) % num_partitions
