"""The partitions of a whole column of keys, with numpy: what `_table_hash` is compiled from, and takes over for."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Buffer = Any

_SEED: Final = np.uint32(0x9747B28C)
_M: Final = np.uint32(0x5BD1E995)


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
    """Writes to `out`, 32-bit numbers, the partition of each key of an Arrow array; -1 where the key is null."""
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
    """murmur2 of all keys at once: word by word, each time those keys that are long enough. Wraps as 32 bits do."""
    h = _SEED ^ lengths.astype(np.uint32)
    words = lengths >> 2
    for word in range(int(words.max(initial=0))):
        long_enough = np.flatnonzero(words > word)
        at = starts[long_enough] + 4 * word
        k = octets[at].astype(np.uint32)
        for byte in (1, 2, 3):
            k |= octets[at + byte].astype(np.uint32) << np.uint32(8 * byte)
        k *= _M
        k = (k ^ (k >> np.uint32(24))) * _M
        h[long_enough] = (h[long_enough] * _M) ^ k
    rest = lengths & 3
    tails = starts + (words << 2)
    for byte in (2, 1, 0):
        longer = np.flatnonzero(rest > byte)
        h[longer] ^= octets[tails[longer] + byte].astype(np.uint32) << np.uint32(8 * byte)
    h[rest > 0] *= _M
    h = (h ^ (h >> np.uint32(13))) * _M
    return h ^ (h >> np.uint32(15))
