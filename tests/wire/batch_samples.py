"""Record batches that every implementation must agree on."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from barnabas.records.batch import CompressionType, RecordBatch
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.reader import Record, read_records
from barnabas.records.validation import AppendOrigin, validate_header, validate_records
from unit.records.strategies import RecordInput, header_pairs, payloads

NOW = 1_700_000_000_000
_SOURCE = random.Random(7)

SAMPLES: dict[str, list[RecordInput]] = {
    "one value": [RecordInput(NOW, None, b"value")],
    "a tombstone": [RecordInput(NOW, b"key", None)],
    "nothing but empty": [RecordInput(NOW, b"", b""), RecordInput(NOW, None, None)],
    "headers": [
        RecordInput(NOW, b"k", b"v", (("name", b"value"), ("name", None), ("", b""), ("grüße ☃", b"\xff\0"))),
        RecordInput(NOW, b"k", b"v"),
    ],
    "timestamps back and forth": [RecordInput(NOW + step, b"k", b"v") for step in (0, 70, -9000, 86_400_000, -1)],
    "lengths around a varint's steps": [
        RecordInput(NOW, b"k" * size, b"v" * size) for size in (1, 62, 63, 64, 65, 127, 128, 8190, 8191, 8192, 8193)
    ],
    "a thousand": [RecordInput(NOW + index, b"%d" % index, b"value %d " % (index % 7) * 4) for index in range(1000)],
    "more than a block": [RecordInput(NOW, b"k", _SOURCE.randbytes(5000) + bytes(5000)) for _ in range(30)],
    "one large value": [RecordInput(NOW, None, b"0123456789abcdef" * 12_000)],
    "incompressible": [RecordInput(NOW, None, _SOURCE.randbytes(90_000))],
}

# Timestamps as clients have them: not negative, and not near the end of time.
record_lists = st.lists(
    st.builds(
        RecordInput,
        st.integers(0, 2**42),
        payloads,
        payloads,
        st.lists(header_pairs, max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=5,
)


def ours(
    records: list[RecordInput], compression: CompressionType, level: int | None = None, leader_epoch: int = 0
) -> bytes:
    """The batch as we write it, as a producer with an id."""
    builder = RecordBatchBuilder(
        compression=compression,
        level=level,
        producer_id=4711,
        producer_epoch=3,
        base_sequence=2**31 - 2,
        is_transactional=True,
        partition_leader_epoch=leader_epoch,
    )
    for record in records:
        builder.append(*record)
    return bytes(builder.close())


def read_by_us(data: bytes) -> tuple[RecordBatch, list[Record]]:
    """Somebody else's batch, validated to the last byte as a broker would."""
    batch = RecordBatch(data)
    assert len(batch) == len(data)
    validate_header(batch, origin=AppendOrigin.CLIENT)
    validate_records(batch)
    return batch, list(read_records(batch))


def expected(records: list[RecordInput]) -> list[tuple[object, ...]]:
    """What a reader should find: offset, timestamp, key, value, headers."""
    return [
        (offset, record.timestamp, record.key, record.value, list(record.headers))
        for offset, record in enumerate(records)
    ]


def found(records: list[Record]) -> list[tuple[object, ...]]:
    return [(record.offset, record.timestamp, record.key, record.value, list(record.headers)) for record in records]
