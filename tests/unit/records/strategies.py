"""Record batches for tests: what records can look like, and how bytes get damaged."""

from __future__ import annotations

import random
import struct
from typing import NamedTuple

from hypothesis import strategies as st

from barnabas._kernels import checksum
from barnabas.records.batch import ATTRIBUTES_OFFSET, CRC_OFFSET, HEADER_SIZE, LOG_OVERHEAD, CompressionType
from barnabas.records.builder import RecordBatchBuilder

crc32c = checksum.crc32c

CODECS = [codec for codec in CompressionType if codec is not CompressionType.NONE]
# One less than there is: a delta of 2**63 - 1 from a base of -1 is the largest that can be written.
LARGEST_TIMESTAMP = 2**63 - 2


class RecordInput(NamedTuple):
    """What `append` is given."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


# Around the lengths at which a varint takes one byte more, and otherwise short.
payloads = st.none() | st.binary(max_size=12) | st.sampled_from([63, 64, 65, 8191, 8192, 8193]).map(lambda n: b"p" * n)
header_pairs = st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8) | st.just(b"h" * 70))
timestamps = (
    st.integers(1_700_000_000_000, 1_700_000_000_200)
    | st.integers(-1, LARGEST_TIMESTAMP)
    | st.sampled_from([-1, 0, LARGEST_TIMESTAMP])
)
record_inputs = st.builds(RecordInput, timestamps, payloads, payloads, st.lists(header_pairs, max_size=3).map(tuple))


def build(
    records: list[RecordInput], compression: CompressionType = CompressionType.NONE, level: int | None = None
) -> bytes:
    builder = RecordBatchBuilder(compression=compression, level=level)
    for record in records:
        builder.append(*record)
    return bytes(builder.close())


def section_of(records: list[RecordInput]) -> bytes:
    """The records section of an uncompressed batch."""
    return build(records)[HEADER_SIZE:]


def with_crc(batch: bytes | bytearray) -> bytes:
    """The batch with the length and checksum that its bytes call for: only what is inside is still wrong."""
    fixed = bytearray(batch)
    struct.pack_into(">i", fixed, 8, len(fixed) - LOG_OVERHEAD)
    struct.pack_into(">I", fixed, CRC_OFFSET, crc32c(bytes(fixed[ATTRIBUTES_OFFSET:])))
    return bytes(fixed)


def with_section(batch: bytes, section: bytes) -> bytes:
    """The batch with other bytes for its records section."""
    return with_crc(batch[:HEADER_SIZE] + section)


def mutate(data: bytes, source: random.Random, first: int = 0) -> bytes:
    """Damage of the kinds that bytes come to: flipped, overwritten, cut, inserted, repeated; from byte `first` on."""
    result = bytearray(data)
    for _ in range(source.choice((1, 1, 1, 2, 3, 6))):
        position = source.randrange(first, len(result) + 1) if len(result) > first else first
        kind = source.randrange(6)
        if kind == 0 and position < len(result):
            result[position] ^= 1 << source.randrange(8)
        elif kind == 1 and position < len(result):
            result[position] = source.choice((0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF, source.randrange(256)))
        elif kind == 2:
            del result[position : position + source.choice((1, 2, 4, 16, 10**6))]
        elif kind == 3:
            result[position:position] = source.randbytes(source.choice((1, 2, 5, 10)))
        elif kind == 4:
            result[position:position] = source.choice((b"\xff" * 5, b"\xff" * 10, b"\x80" * 6, b"\0" * 8))
        else:
            result += result[position : position + 64]
    return bytes(result)
