"""Compressed batches: what the broker accepts, and what it says of their decompressed size in advance."""

from __future__ import annotations

import gzip
import struct

import cramjam
import pytest

from barnabas.common.errors import ApiError
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.config.log_config import LogConfig
from barnabas.log.log_validator import LogValidator
from barnabas.records.batch import HEADER_SIZE, CompressionType
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.compressed_batch import decompressed_bound
from unit.records.strategies import with_crc

CODECS = [codec for codec in CompressionType if codec is not CompressionType.NONE]
every_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.codec_name)

NOW = 1_000_000
TWO = (NOW, NOW + 5)


def batch(
    codec: CompressionType, timestamps: tuple[int, ...] = (NOW, NOW + 5), key: bytes | None = b"k", **options: object
) -> bytes:
    settings = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 3, **options}
    builder = RecordBatchBuilder(compression=codec, **settings)  # type: ignore[arg-type]
    for timestamp in timestamps:
        builder.append(timestamp, key, b"value " * 9)
    return bytes(builder.close())


def records_of(count: int = 2) -> bytes:
    """The records of such a batch, not compressed."""
    return batch(CompressionType.NONE, TWO if count == 2 else (NOW,) * count)[HEADER_SIZE:]


def with_records(codec: CompressionType, compressed: bytes, count: int = 2) -> bytes:
    """A batch in which the records have been compressed by somebody else."""
    header = bytearray(batch(codec, TWO if count == 2 else (NOW,) * count)[:HEADER_SIZE])
    struct.pack_into(">i", header, 8, HEADER_SIZE - 12 + len(compressed))
    return bytes(with_crc(header + compressed))


def validate(data: bytes) -> bytes:
    """Returns the batch as the log writes it; raises ApiError if it is refused."""
    validator = LogValidator(TopicPartition("t", 0), LogConfig())
    return bytes(validator.validate(bytearray(data), AppendOrigin.CLIENT, NOW).view)


@every_codec
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"key": None},
        {"is_transactional": True},
        {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1},
        {"timestamps": (NOW + 5, NOW, NOW + 5)},
        {"timestamps": (-1,)},
        {"timestamps": (NOW,) * 30_000},
    ],
    ids=["", "no key", "transactional", "no producer", "falling", "no timestamp", "large"],
)
def test_valid_batches_are_appended_unchanged(codec: CompressionType, options: dict[str, object]) -> None:
    data = batch(codec, **options)  # type: ignore[arg-type]
    assert validate(data) == data


FRAMES = {
    "linked lz4 blocks": (CompressionType.LZ4, bytes(cramjam.lz4.compress(records_of(4000)))),
    "two zstd frames": (
        CompressionType.ZSTD,
        b"".join(bytes(cramjam.zstd.compress(half)) for half in (records_of()[:20], records_of()[20:])),
    ),
    "bare snappy": (CompressionType.SNAPPY, bytes(cramjam.snappy.compress_raw(records_of()))),
    "two gzip members": (CompressionType.GZIP, gzip.compress(records_of()[:20]) + gzip.compress(records_of()[20:])),
    "a large batch": (CompressionType.ZSTD, bytes(cramjam.zstd.compress(records_of(70_000)))),
}
COUNTS = {"linked lz4 blocks": 4000, "a large batch": 70_000}


@pytest.mark.parametrize("name", FRAMES)
def test_every_framing_of_a_codec_is_accepted(name: str) -> None:
    codec, compressed = FRAMES[name]
    data = with_records(codec, compressed, COUNTS.get(name, 2))
    assert validate(data) == data


@every_codec
def test_damaged_frames(codec: CompressionType) -> None:
    """The start and the end of a frame hold its lengths and marks. The batch's checksum is right: it was sent so."""
    good = batch(codec)[HEADER_SIZE:]
    frames = [good + tail for tail in (b"\0", bytes(4), good)] + [good[:-length] for length in range(1, 12)]
    places = {*range(min(24, len(good))), *range(max(len(good) - 12, 0), len(good))}
    frames += [
        good[:place] + bytes([good[place] ^ change]) + good[place + 1 :]
        for place in places
        for change in (1, 2, 4, 8, 16, 32, 64, 128, 255)
    ]
    refused = 0
    for frame in frames:
        data = with_records(codec, frame)
        try:
            assert len(validate(data)) == len(data)
        except ApiError:
            refused += 1
    assert refused > len(frames) // 3


@every_codec
def test_the_bound_is_at_least_the_decompressed_size(codec: CompressionType) -> None:
    timestamps = tuple(range(NOW, NOW + 2_000))
    data = memoryview(batch(codec, timestamps))
    size = len(batch(CompressionType.NONE, timestamps)) - HEADER_SIZE
    assert size <= decompressed_bound(data) <= size + (1 << 17), "a block of zstd may hold 128 KiB"


@pytest.mark.parametrize("codec", [CompressionType.ZSTD, CompressionType.LZ4, CompressionType.GZIP])
def test_the_bound_of_a_bomb_is_known_without_decompressing_it(codec: CompressionType) -> None:
    zeros = bytes(30 << 20)
    compressed = {
        CompressionType.ZSTD: lambda: bytes(cramjam.zstd.compress(zeros)),
        CompressionType.LZ4: lambda: bytes(cramjam.lz4.compress(zeros)),
        CompressionType.GZIP: lambda: gzip.compress(zeros),
    }[codec]()
    assert decompressed_bound(memoryview(with_records(codec, compressed))) >= len(zeros)


def test_the_bound_of_an_uncompressed_batch_is_zero() -> None:
    assert decompressed_bound(memoryview(batch(CompressionType.NONE))) == 0
    assert decompressed_bound(memoryview(b"short")) == 0


@every_codec
def test_the_bound_of_garbage_is_unknown_or_claimed(codec: CompressionType) -> None:
    bound = decompressed_bound(memoryview(with_records(codec, b"\xde\xad\xbe\xef" * 10)))
    assert bound == -1 or codec in {CompressionType.GZIP, CompressionType.SNAPPY}
