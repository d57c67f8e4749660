"""murmur2, the hash that assigns keys to partitions: the twin of `compiled.murmur2`.

All clients of a topic must compute the same hash for the same key, or the records of one key end up in two partitions.
So this is bit for bit the variant of Kafka's Java client: 32 bits, a fixed seed, and the sign bit dropped.

>>> murmur2(b"kafka"), partition_for_key(b"kafka", 12)
(-798503068, 4)
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Buffer = Any

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
    rest = length & 3
    if rest:
        tail = words << 2
        if rest == 3:
            h ^= data[tail + 2] << 16
        if rest >= 2:
            h ^= data[tail + 1] << 8
        h = (h ^ data[tail]) * _M & _MASK
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


def partitions_for_keys(
    validity: Buffer | None,
    offsets: Buffer | None,
    data: Buffer | None,
    wide: bool,
    first: int,
    length: int,
    count: int,
    out: npt.NDArray[np.int32],
) -> None:
    """Writes the partition of each key of an Arrow array to `out`, as 32-bit numbers; -1 where the key is null."""
    import numpy as np  # only producers of tables need it

    if count < 1:
        raise ValueError(f"a topic of {count} partitions has none to choose from")
    if first < 0 or length < 0 or len(out) != length:
        raise ValueError("one 32-bit number for each key")
    if not length:
        return
    valid = np.ones(length, np.bool_)
    if validity is not None:
        if len(validity) * 8 < first + length:
            raise ValueError("the validity bitmap is shorter than its array")
        bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")
        valid = bits[first : first + length].astype(np.bool_)
    width = 8 if wide else 4
    if offsets is None or len(offsets) < (first + length + 1) * width:
        raise ValueError("the offsets buffer is shorter than its array")
    bounds = np.frombuffer(offsets, np.int64 if wide else np.int32, first + length + 1)[first:].astype(np.int64)
    octets = np.frombuffer(b"" if data is None else data, np.uint8)
    starts, lengths = bounds[:-1], np.diff(bounds)
    outside = valid & ((starts < 0) | (lengths < 0) | (bounds[1:] > len(octets)))
    if outside.any():
        raise ValueError(f"record {int(outside.argmax())}: the array's offsets point outside its data")
    rows = np.flatnonzero(valid)
    out[:] = -1
    hashes = _hash_all(octets, starts[rows], lengths[rows])
    out[rows] = (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % count


def _hash_all(
    octets: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint32]:
    """Hashes all keys at once, word by word, each time those keys that are long enough. Wraps at 32 bits."""
    import numpy as np

    multiplier = np.uint32(_M)
    h = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    words = lengths >> 2
    for word in range(int(words.max(initial=0))):
        long_enough = np.flatnonzero(words > word)
        at = starts[long_enough] + 4 * word
        k = octets[at].astype(np.uint32)
        for byte in (1, 2, 3):
            k |= octets[at + byte].astype(np.uint32) << np.uint32(8 * byte)
        k *= multiplier
        k = (k ^ (k >> np.uint32(24))) * multiplier
        h[long_enough] = (h[long_enough] * multiplier) ^ k
    rest = lengths & 3
    tails = starts + (words << 2)
    for byte in (2, 1, 0):
        longer = np.flatnonzero(rest > byte)
        h[longer] ^= octets[tails[longer] + byte].astype(np.uint32) << np.uint32(8 * byte)
    h[rest > 0] *= multiplier
    h = (h ^ (h >> np.uint32(13))) * multiplier
    return h ^ (h >> np.uint32(15))
