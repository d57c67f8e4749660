from __future__ import annotations

import gzip
import struct
from contextlib import suppress
from importlib import import_module
from types import ModuleType

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas._kernels import compressed_batch
from barnabas._kernels.pure import compressed_batch as pure
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.config.log_config import LogConfig
from barnabas.log.log_validator import LogValidator
from barnabas.records.batch import HEADER_SIZE, CompressionType, RecordBatch
from barnabas.records.builder import RecordBatchBuilder
from unit.records.strategies import with_crc

TWINS: list[ModuleType] = [pure]
with suppress(ImportError):  # not built here
    TWINS.append(import_module("barnabas._kernels.compiled.compressed_batch"))

both = pytest.mark.parametrize("twin", TWINS, ids=lambda module: module.__name__.split(".")[-2])
CODECS = [codec for codec in CompressionType if codec is not CompressionType.NONE]
every_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.codec_name)

NOW = 1_000_000
TWO = (NOW, NOW + 5)
BEFORE, AFTER = 2**63 - 1, 3_600_000
"""As topics have it if nobody says otherwise."""


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


def patched(data: bytes, form: str, position: int, value: int) -> bytes:
    """With another value in the header, and a checksum that fits."""
    changed = bytearray(data)
    struct.pack_into(">" + form, changed, position, value)
    return bytes(with_crc(changed))


def size(twin: ModuleType, data: bytes, **changes: int) -> int:
    limits = {
        "max_size": 1_000_000,
        "max_decompressed": 2**31 - 1,
        "now_ms": NOW,
        "before": BEFORE,
        "after": AFTER,
        "keys_needed": False,
        **changes,
    }
    found: int = twin.size_if_plain(memoryview(data), *limits.values())
    return found


@both
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
def test_batches_in_order(twin: ModuleType, codec: CompressionType, options: dict[str, object]) -> None:
    data = batch(codec, **options)  # type: ignore[arg-type]
    plain = batch(CompressionType.NONE, **options)  # type: ignore[arg-type]
    expected = len(plain) - HEADER_SIZE
    for _ in range(2):  # the second one in memory that has been used before
        assert size(twin, data, max_size=len(data)) == expected
    assert size(twin, data, max_size=len(data) - 1) == -1
    assert size(twin, data, max_decompressed=expected) == expected
    assert size(twin, data, max_decompressed=expected - 1) == -1


@both
@every_codec
def test_everything_else_is_for_somebody_to_look_at(twin: ModuleType, codec: CompressionType) -> None:
    good = batch(codec)
    for data in [
        b"",
        good[:-1],
        good[:61],
        good + b"\0",
        good + good,
        good[:-1] + bytes([good[-1] ^ 1]),
        batch(CompressionType.NONE),
        batch(codec, is_control=True),
        patched(good, "q", 0, 1),
        bytes(good[:16] + b"\1" + good[17:]),
        patched(good, "h", 21, 0x08 | codec),
        patched(good, "h", 21, 0x40 | codec),
        patched(good, "h", 21, 5),
        patched(good, "h", 21, 7),
        patched(good, "h", 21, 0),
        patched(good, "i", 23, 2),
        patched(good, "i", 57, 1),
        patched(patched(good, "i", 57, 3), "i", 23, 2),
        patched(patched(good, "i", 57, 1), "i", 23, 0),
        patched(good, "q", 27, -2),
        patched(good, "q", 35, NOW + 6),
        patched(good, "q", 35, NOW + 4),
        patched(good, "h", 51, -1),
        patched(good, "i", 53, -1),
    ]:
        assert size(twin, data) == -1


@both
@every_codec
def test_the_limits_of_the_topic(twin: ModuleType, codec: CompressionType) -> None:
    good = batch(codec)
    assert size(twin, batch(codec, key=b""), keys_needed=True) > 0
    assert size(twin, batch(codec, key=None), keys_needed=True) == -1
    assert size(twin, good, after=5) > 0
    assert size(twin, good, after=4) == -1
    assert size(twin, good, now_ms=NOW + 10, before=10) > 0
    assert size(twin, good, now_ms=NOW + 10, before=9) == -1


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
def test_unusual_frames_are_in_order_or_for_somebody_to_look_at(name: str) -> None:
    codec, compressed = FRAMES[name]
    count = COUNTS.get(name, 2)
    data = with_records(codec, compressed, count)
    expected = len(records_of(count))
    assert size(pure, data) == expected
    for twin in TWINS[1:]:
        assert size(twin, data) in (expected, -1)


@every_codec
def test_frames_that_are_damaged_at_their_ends(codec: CompressionType) -> None:
    """Where their heads, their lengths and their marks are. The checksum of the batch fits: somebody sent them so."""
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
        found = size(pure, data)
        refused += found < 0
        for twin in TWINS[1:]:
            assert size(twin, data) in (found, -1)
    assert refused > len(frames) // 3


def test_somebody_was_chosen() -> None:
    assert compressed_batch.size_if_plain in [twin.size_if_plain for twin in TWINS]


@settings(max_examples=400)
@given(st.data())
def test_what_is_plain_would_pass_as_it_is(data: st.DataObject) -> None:
    """Whatever is changed about a batch, or about its records before they are compressed: yes only if the validator
    finds nothing to say or to do, and the compiled twin no more often than that."""
    codec = data.draw(st.sampled_from(CODECS))
    timestamps = tuple(data.draw(st.lists(st.sampled_from([-1, 0, NOW - 50, NOW, NOW + 50]), min_size=1, max_size=3)))
    key = data.draw(st.sampled_from([None, b"k"]))
    changed = bytearray(batch(codec, timestamps, key=key))
    if data.draw(st.booleans()):
        inside = bytearray(batch(CompressionType.NONE, timestamps, key=key)[HEADER_SIZE:])
        inside[data.draw(st.integers(0, len(inside) - 1))] = data.draw(st.integers(0, 255))
        plain = RecordBatch(bytes(changed))
        builder = {
            CompressionType.GZIP: gzip.compress,
            CompressionType.ZSTD: cramjam.zstd.compress,
            CompressionType.LZ4: cramjam.lz4.compress,
            CompressionType.SNAPPY: cramjam.snappy.compress_raw,
        }[plain.compression_type]
        changed[HEADER_SIZE:] = bytes(builder(bytes(inside)))  # type: ignore[operator]
        struct.pack_into(">i", changed, 8, len(changed) - 12)
        changed = bytearray(with_crc(changed))
    for _ in range(data.draw(st.integers(0, 2))):
        place = data.draw(st.integers(0, len(changed) - 1))
        changed[place] = data.draw(st.one_of(st.integers(0, 3), st.integers(0, 255)))
    if data.draw(st.booleans()):
        changed = bytearray(with_crc(changed))
    compacted = data.draw(st.booleans())
    before, after = data.draw(st.sampled_from([20, NOW, BEFORE])), data.draw(st.sampled_from([20, AFTER]))
    pure, *others = (size(twin, bytes(changed), before=before, after=after, keys_needed=compacted) for twin in TWINS)
    assert all(found in (pure, -1) for found in others)
    if pure >= 0:
        config = LogConfig.from_properties(
            {
                "cleanup.policy": "compact" if compacted else "delete",
                "message.timestamp.before.max.ms": before,
                "message.timestamp.after.max.ms": after,
            }
        )
        validated = LogValidator(TopicPartition("t", 0), config).validate(bytes(changed), AppendOrigin.CLIENT, NOW)
        assert validated.view == changed


# -- how much it can come to


@both
@every_codec
def test_the_bound_is_no_less_than_what_comes_out(twin: ModuleType, codec: CompressionType) -> None:
    timestamps = tuple(range(NOW, NOW + 2_000))
    data = memoryview(batch(codec, timestamps))
    size = len(batch(CompressionType.NONE, timestamps)) - HEADER_SIZE
    bound = twin.decompressed_bound(data)
    assert size <= bound <= size + (1 << 17), "a block of zstd may stand for 128 KiB"


@both
@pytest.mark.parametrize("codec", [CompressionType.ZSTD, CompressionType.LZ4, CompressionType.GZIP])
def test_the_bound_of_a_bomb_is_known_without_decompressing_it(twin: ModuleType, codec: CompressionType) -> None:
    zeros = bytes(30 << 20)
    compressed = {
        CompressionType.ZSTD: lambda: bytes(cramjam.zstd.compress(zeros)),
        CompressionType.LZ4: lambda: bytes(cramjam.lz4.compress(zeros)),
        CompressionType.GZIP: lambda: gzip.compress(zeros),
    }[codec]()
    bound = twin.decompressed_bound(memoryview(with_records(codec, compressed)))
    assert bound == -1 or bound >= len(zeros)


@both
def test_the_bound_of_what_is_not_compressed_is_nothing(twin: ModuleType) -> None:
    assert twin.decompressed_bound(memoryview(batch(CompressionType.NONE))) == 0
    assert twin.decompressed_bound(memoryview(b"short")) == 0


@both
@every_codec
def test_the_bound_of_garbage_is_not_known_or_claimed(twin: ModuleType, codec: CompressionType) -> None:
    bound = twin.decompressed_bound(memoryview(with_records(codec, b"\xde\xad\xbe\xef" * 10)))
    assert bound == -1 or codec in {CompressionType.GZIP, CompressionType.SNAPPY}
