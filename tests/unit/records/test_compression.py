from __future__ import annotations

import gzip
import random
import struct
import tracemalloc
import zlib
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.errors import CorruptRecordError
from barnabas.records.batch import CompressionType
from barnabas.records.compression import check_level, compress, decompress, default_level
from barnabas.records.lz4_frame import _xxh32
from barnabas.records.zstd_frame import FrameScan
from unit.records.strategies import CODECS

GZIP, SNAPPY, LZ4, ZSTD = CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD
WORDS = [bytes(random.Random(seed).choices(b"abcdefghij", k=7)) for seed in range(200)]
TEXT = b" ".join(random.Random(1).choices(WORDS, k=40_000))
NOISE = random.Random(2).randbytes(200_000)
SAMPLES = {
    "one byte": b"x",
    "text": TEXT,
    "noise": NOISE,
    "zeros": bytes(300_000),
    "text and noise": TEXT[:100_000] + NOISE + TEXT,
    "a block exactly": TEXT[:65_536],
    "a block and a byte": TEXT[:65_537],
}
MIB = 1 << 20


def lz4_frame(**options: Any) -> bytes:
    compressor = cramjam.lz4.Compressor(**options)
    compressor.compress(TEXT)
    return bytes(compressor.finish())


def xxh32_of(flags: int, descriptor: int) -> int:
    return _xxh32(memoryview(bytes([flags, descriptor]))) >> 8 & 0xFF


# ------------------------------------------------------------------------------------------ round trips


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("codec", CODECS)
def test_round_trip_with_a_bound_that_just_suffices(codec: CompressionType, name: str) -> None:
    data = SAMPLES[name]
    compressed = compress(codec, data)
    assert decompress(codec, compressed, len(data)) == data
    assert decompress(codec, memoryview(bytearray(compressed)), 10 * MIB) == data
    with pytest.raises(CorruptRecordError, match=f"{codec.codec_name}: .*larger than {len(data) - 1} bytes"):
        decompress(codec, compressed, len(data) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_nothing(codec: CompressionType) -> None:
    assert decompress(codec, compress(codec, b""), 0) == b""
    with pytest.raises(CorruptRecordError, match=codec.codec_name):
        decompress(codec, b"", 100)


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (GZIP, [-1, *range(1, 10)]),
        (LZ4, list(range(1, 18))),
        (ZSTD, [-131072, -100, -1, 0, *range(1, 23)]),
    ],
)
def test_every_level(codec: CompressionType, levels: list[int]) -> None:
    data = TEXT[:70_000]
    for level in levels:
        assert decompress(codec, compress(codec, data, level), len(data)) == data


def test_levels_make_a_difference() -> None:
    # Which zlib this Python was built with decides which of the two is smaller, for text as regular as ours.
    assert len(compress(GZIP, TEXT, 9)) != len(compress(GZIP, TEXT, 1))
    assert len(compress(LZ4, TEXT, 12)) < len(compress(LZ4, TEXT, 1))
    assert len(compress(ZSTD, TEXT, 19)) < len(compress(ZSTD, TEXT, -50))


def test_default_levels() -> None:
    assert [default_level(codec) for codec in CompressionType] == [None, -1, None, 9, 3]
    assert compress(GZIP, TEXT) == compress(GZIP, TEXT, -1) == compress(GZIP, TEXT, 6)
    assert bytes(compress(ZSTD, TEXT)) == bytes(compress(ZSTD, TEXT, 3))
    assert compress(LZ4, TEXT) == compress(LZ4, TEXT, 9)


@pytest.mark.parametrize(
    ("codec", "level", "message"),
    [
        (GZIP, 0, "gzip level 0 is not between 1 and 9 or -1"),
        (GZIP, 10, "gzip level 10"),
        (GZIP, -2, "gzip level -2"),
        (LZ4, 0, "lz4 level 0 is not between 1 and 17"),
        (LZ4, 18, "lz4 level 18"),
        (ZSTD, 23, "zstd level 23 is not between -131072 and 22"),
        (ZSTD, -131073, "zstd level -131073"),
        (SNAPPY, 1, "snappy has no compression levels"),
        (CompressionType.NONE, 1, "none has no compression levels"),
    ],
)
def test_levels_that_are_not(codec: CompressionType, level: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_level(codec, level)
    with pytest.raises(ValueError, match=message):
        compress(codec, b"data", level)


def test_no_compression_copies_nothing() -> None:
    data = bytearray(b"data")
    assert compress(CompressionType.NONE, data) is data
    assert decompress(CompressionType.NONE, data, 1) is data


# ------------------------------------------------------------------------------------------ damage, and bombs


@pytest.mark.parametrize("codec", CODECS)
def test_every_cut_is_noticed(codec: CompressionType) -> None:
    compressed = bytes(compress(codec, TEXT[:40_000]))
    cuts = [
        *range(40),
        *random.Random(3).sample(range(len(compressed)), 200),
        *range(len(compressed) - 20, len(compressed)),
    ]
    for size in cuts:
        # Bare snappy has no end mark, and xerial has none either: a cut between blocks is a shorter stream.
        if codec is SNAPPY and size in xerial_boundaries(compressed):
            continue
        with pytest.raises(CorruptRecordError, match=f"^{codec.codec_name}:"):
            decompress(codec, compressed[:size], MIB)


def xerial_boundaries(compressed: bytes) -> set[int]:
    boundaries, position = {16}, 16
    while position < len(compressed):
        position += 4 + struct.unpack_from(">i", compressed, position)[0]
        boundaries.add(position)
    return boundaries


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_after_the_end_are_noticed(codec: CompressionType) -> None:
    compressed = bytes(compress(codec, TEXT[:1000]))
    for junk in (b"\0", b"junk", b"\0" * 16, NOISE[:100]):
        with pytest.raises(CorruptRecordError, match=f"^{codec.codec_name}:"):
            decompress(codec, compressed + junk, MIB)


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=200))
def test_any_bytes(codec: CompressionType, data: bytes) -> None:
    try:
        assert len(decompress(codec, data, 1000)) <= 1000
    except CorruptRecordError as error:
        assert str(error).startswith(f"{codec.codec_name}: ")  # noqa: PT017


def bombs() -> dict[str, tuple[CompressionType, bytes]]:
    """Small things that become (or claim to become) large."""
    size = 256 * MIB
    zeros = bytes(8 * MIB)
    deflate = zlib.compressobj(9, zlib.DEFLATED, 31)
    gzip_bomb = b"".join([*(deflate.compress(zeros) for _ in range(size // len(zeros))), deflate.flush()])
    zstd_zeros = bytes(cramjam.zstd.compress(zeros, level=1))
    # A window of 128 KiB and no content size; then RLE blocks of 128 KiB, four bytes each, and an empty last block.
    rle = bytes.fromhex("28b52ffd 00 38") + (struct.pack("<I", 1 << 17 << 3 | 1 << 1)[:3] + b"\0") * 2000 + b"\x01\0\0"
    lz4_block = bytes(cramjam.lz4.compress_block(bytes(4 * MIB), store_size=False))
    lz4_blocks = (struct.pack("<I", len(lz4_block)) + lz4_block) * 64
    lz4_plain = bytes([0x04, 0x22, 0x4D, 0x18, 0x60, 0x70, xxh32_of(0x60, 0x70)]) + lz4_blocks + bytes(4)
    lz4_linked = bytes([0x04, 0x22, 0x4D, 0x18, 0x40, 0x70, xxh32_of(0x40, 0x70)]) + lz4_blocks + bytes(4)
    snappy_block = bytes(cramjam.snappy.compress_raw(zeros))
    xerial = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    return {
        "gzip": (GZIP, gzip_bomb),
        "gzip in many members": (GZIP, gzip.compress(zeros) * 32),
        "zstd with a content size": (ZSTD, bytes(cramjam.zstd.compress(bytes(64 * MIB), level=1))),
        "zstd in many frames": (ZSTD, zstd_zeros * 32),
        "zstd of repeated bytes": (ZSTD, rle),
        "lz4 with independent blocks": (LZ4, lz4_plain),
        "lz4 with linked blocks": (LZ4, lz4_linked),
        "lz4 that announces its size": (LZ4, lz4_with_content_size(1 << 40)),
        "snappy blocks": (SNAPPY, xerial + (struct.pack(">i", len(snappy_block)) + snappy_block) * 32),
        "bare snappy": (SNAPPY, snappy_block),
        "snappy that claims 4 GiB": (SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\0" * 40),
    }


def lz4_with_content_size(size: int) -> bytes:
    block = bytes(cramjam.lz4.compress_block(bytes(65536), store_size=False))
    descriptor = bytes([0x68, 0x40]) + struct.pack("<Q", size)
    header = b"\x04\x22\x4d\x18" + descriptor + bytes([_xxh32(memoryview(descriptor)) >> 8 & 0xFF])
    return header + struct.pack("<I", len(block)) + block + bytes(4)


BOMBS = bombs()


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_go_off_in_a_small_room(name: str) -> None:
    codec, data = BOMBS[name]
    limit = MIB
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError, match=f"^{codec.codec_name}:"):
            decompress(codec, data, limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The output, its copy while it grows, and what zlib hands back of the input.
    assert peak < 2.5 * limit + len(data)


def test_gzip_with_many_tiny_members_is_not_read_over_and_over(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[int] = []

    class Counting:
        """zlib's decompressor, with a note of how much it was given: what it does not use, it copies."""

        def __init__(self, wbits: int) -> None:
            self._real = decompressobj(wbits)

        def decompress(self, data: memoryview, max_length: int) -> bytes:
            fed.append(len(data))
            return self._real.decompress(data, max_length)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

    decompressobj = zlib.decompressobj
    monkeypatch.setattr(zlib, "decompressobj", Counting)
    data = gzip.compress(b"", mtime=0) * 5000
    assert decompress(GZIP, data, 10) == b""
    assert len(fed) == 5000
    # The first gets everything, the others a kilobyte each; all that is left each time would be 250 MB.
    assert sum(fed) < len(data) + 5000 * 1024


# ------------------------------------------------------------------------------------------ gzip


def test_gzip_members_are_one_stream() -> None:
    data = gzip.compress(TEXT[:1000]) + gzip.compress(b"") + gzip.compress(TEXT[1000:100_000], 9) + gzip.compress(b"!")
    assert decompress(GZIP, data, MIB) == TEXT[:100_000] + b"!"


def test_gzip_checksum() -> None:
    data = bytearray(gzip.compress(TEXT))
    data[-5] ^= 1
    with pytest.raises(CorruptRecordError, match=r"gzip: .*incorrect data check"):
        decompress(GZIP, data, MIB)


# ------------------------------------------------------------------------------------------ snappy


def test_snappy_is_written_in_xerial_blocks() -> None:
    compressed = bytes(compress(SNAPPY, TEXT[:80_000]))
    assert compressed[:16] == b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01"
    assert len(xerial_boundaries(compressed)) - 1 == 3


def test_snappy_without_wrapping() -> None:
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), MIB) == TEXT


def test_snappy_with_the_version_written_the_wrong_way_round() -> None:
    data = b"\x82SNAPPY\0" + struct.pack("<ii", 1, 1) + bytes(compress(SNAPPY, TEXT))[16:]
    assert decompress(SNAPPY, data, MIB) == TEXT


def test_snappy_streams_written_in_several_goes() -> None:
    once = bytes(compress(SNAPPY, b"one"))
    assert decompress(SNAPPY, once + once + once[16:], MIB) == b"oneoneone"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x82SNAPPY\0\0\0\0\x01", "middle of the header"),
        (b"\x82SNAPPY\0\0\0\0\x01\0\0\0\0", "unknown block format 0"),
        (b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\0\0", "middle of a block length"),
        (b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\xff\xff\xff\xff", "a block of -1 bytes"),
        (b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\0\0\0\x05abcd", "a block of 5 bytes where 4 are left"),
        (b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\0\0\0\0", "an empty block"),
        (b"\xff\x01aaaa", "a block of 6 bytes claims to hold 255"),
    ],
)
def test_broken_snappy(data: bytes, message: str) -> None:
    with pytest.raises(CorruptRecordError, match=f"^snappy: .*{message}"):
        decompress(SNAPPY, data, MIB)


# ------------------------------------------------------------------------------------------ lz4


@pytest.mark.parametrize("level", [1, 3, 9, 17])
def test_lz4_blocks_are_independent(level: int) -> None:
    """Kafka's Java client refuses frames whose blocks refer to each other."""
    compressed = bytes(compress(LZ4, TEXT, level))
    assert compressed[:4] == bytes.fromhex("04224d18")
    assert compressed[4] & 0x20
    assert not compressed[4] & 0x0D  # neither content size nor content checksum nor dictionary
    assert compressed[5] == 0x40


def test_lz4_default_frame_is_the_one_java_writes() -> None:
    compressed = bytes(compress(LZ4, NOISE[:100]))
    assert compressed == bytes.fromhex("04224d18604082") + struct.pack("<I", 100 | 1 << 31) + NOISE[:100] + bytes(4)


@pytest.mark.parametrize("block_linked", [True, False])
@pytest.mark.parametrize("content_checksum", [True, False])
def test_lz4_frames_of_other_writers(block_linked: bool, content_checksum: bool) -> None:
    frame = lz4_frame(content_checksum=content_checksum, block_linked=block_linked)
    assert bool(frame[4] & 0x20) is not block_linked
    assert bool(frame[4] & 0x04) is content_checksum
    assert decompress(LZ4, frame, len(TEXT)) == TEXT
    with pytest.raises(CorruptRecordError, match=f"lz4: .*larger than {len(TEXT) - 1} bytes"):
        decompress(LZ4, frame, len(TEXT) - 1)
    if content_checksum:
        with pytest.raises(CorruptRecordError, match=r"lz4: .*hecksum"):
            decompress(LZ4, frame[:-1] + bytes([frame[-1] ^ 1]), MIB)


@pytest.mark.parametrize("block_code", [4, 5, 6, 7])
def test_lz4_block_sizes(block_code: int) -> None:
    size = 1 << (8 + 2 * block_code)
    data = (TEXT * 30)[: size + 100]
    blocks = [data[start : start + size] for start in range(0, len(data), size)]
    descriptor = bytes([0x68, block_code << 4]) + struct.pack("<Q", len(data))
    frame = b"\x04\x22\x4d\x18" + descriptor + bytes([_xxh32(memoryview(descriptor)) >> 8 & 0xFF])
    for block in blocks:
        compressed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        frame += struct.pack("<I", len(compressed)) + compressed
    frame += bytes(4)
    assert cramjam.lz4.decompress(frame).read() == data
    assert decompress(LZ4, frame, len(data)) == data


def test_lz4_announced_size_must_be_true() -> None:
    assert decompress(LZ4, lz4_with_content_size(65536), MIB) == bytes(65536)
    for size in (65535, 65537, 0):
        with pytest.raises(CorruptRecordError, match=r"^lz4: "):
            decompress(LZ4, lz4_with_content_size(size), MIB)


def test_lz4_several_frames_and_skippable_ones() -> None:
    skippable = bytes.fromhex("532a4d18") + struct.pack("<I", 5) + b"skip!"
    plain, linked = bytes(compress(LZ4, b"plain")), lz4_frame(block_linked=True)
    assert decompress(LZ4, plain + skippable + plain, MIB) == b"plainplain"
    assert decompress(LZ4, skippable + plain + linked, MIB) == b"plain" + TEXT
    with pytest.raises(CorruptRecordError, match="lz4: no frame in the data"):
        decompress(LZ4, skippable, MIB)
    with pytest.raises(CorruptRecordError, match="lz4: the data ends"):
        decompress(LZ4, plain + skippable[:-1], MIB)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ("04224d18 6040 83 00000000", "hash of the frame descriptor"),
        ("04224d18 2040 82 00000000", "descriptor 0x20 0x40 is not valid"),
        ("04224d18 6240 82 00000000", "descriptor 0x62 0x40 is not valid"),
        ("04224d18 6030 82 00000000", "descriptor 0x60 0x30 is not valid"),
        ("04224d18 60c0 82 00000000", "descriptor 0x60 0xc0 is not valid"),
        ("04224d18 6140 82 00000000", "needs a dictionary"),
        ("04224d18 6040 82 01000180", "a block of 65537 bytes is larger"),
        ("04224d18 6040 82 05000000 01", "the data ends"),
        ("04224d19 6040 82 00000000", "no frame at byte 0"),
    ],
)
def test_broken_lz4(frame: str, message: str) -> None:
    with pytest.raises(CorruptRecordError, match=f"^lz4: .*{message}"):
        decompress(LZ4, bytes.fromhex(frame), MIB)


def test_xxh32_of_known_inputs() -> None:
    assert _xxh32(memoryview(b"")) == 0x02CC5D05
    assert _xxh32(memoryview(b"a")) == 0x550D7456
    assert _xxh32(memoryview(b"abc")) == 0x32D153FF


# ------------------------------------------------------------------------------------------ zstd


def zstd_stream(data: bytes, level: int = 3) -> bytes:
    """Like Java: compressed as it comes, so the content size is not known when the header is written."""
    compressor = cramjam.zstd.Compressor(level=level)
    compressor.compress(data)
    return bytes(compressor.finish())


@pytest.mark.parametrize("level", [1, 3, 19, 22])
def test_zstd_of_unknown_size(level: int) -> None:
    text = TEXT[:50_000]
    frame = zstd_stream(text, level)
    assert frame[4] & 0xE0 == 0
    assert decompress(ZSTD, frame, len(text)) == text
    with pytest.raises(CorruptRecordError, match=r"zstd: .*larger than 1000 bytes"):
        decompress(ZSTD, frame, 1000)


def test_zstd_several_frames_and_skippable_ones() -> None:
    skippable = bytes.fromhex("5f2a4d18") + struct.pack("<I", 3) + b"abc"
    data = bytes(compress(ZSTD, b"one")) + skippable + zstd_stream(TEXT) + bytes(compress(ZSTD, NOISE))
    assert decompress(ZSTD, data, MIB) == b"one" + TEXT + NOISE
    with pytest.raises(CorruptRecordError, match="zstd: no frame in the data"):
        decompress(ZSTD, skippable, MIB)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("level", [-100, 1, 3, 19])
def test_the_bound_holds(name: str, level: int) -> None:
    data = SAMPLES[name]
    for frame in (bytes(compress(ZSTD, data, level)), zstd_stream(data, level)):
        assert FrameScan(frame).bound >= len(data)
        assert FrameScan(frame * 3).bound >= 3 * len(data)


def test_windows_are_cut_down_to_what_can_be_used() -> None:
    frame = zstd_stream(TEXT, 22)
    window = 1 << (10 + (frame[5] >> 3))
    assert window == 128 * MIB
    for given_data in (frame, memoryview(frame), bytearray(frame), memoryview(bytearray(frame * 2))):
        scan = FrameScan(given_data)
        frames = len(given_data) // len(frame)
        bound = scan.bound // frames
        assert bound <= 1 << (10 + (scan.data[5] >> 3)) < 2 * bound
        assert given_data[5] == frame[5]
        assert cramjam.zstd.decompress(bytes(scan.data)).read() == TEXT * frames
    # Ordinary windows stay as they are, without a copy.
    usual = zstd_stream(TEXT, 3)
    assert FrameScan(usual).data is usual


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ("28b52ffd", "the data ends"),
        ("28b52ffd 00 58 010000 0000000000000000", "no frame at byte 9"),
        ("28b52ffd 00 58 07000000", "reserved block type"),
        ("28b52ffd 20 05 2900 00 61626364", "the data ends"),
        ("28b52ffc 20 05 290000 6162636465", "no frame at byte 0"),
    ],
)
def test_broken_zstd(frame: str, message: str) -> None:
    with pytest.raises(CorruptRecordError, match=f"^zstd: .*{message}"):
        decompress(ZSTD, bytes.fromhex(frame), MIB)


def test_zstd_content_size_must_be_true() -> None:
    assert decompress(ZSTD, bytes.fromhex("28b52ffd 20 05 290000 6162636465"), MIB) == b"abcde"
    for claimed in ("04", "06", "00", "ff"):
        with pytest.raises(CorruptRecordError, match=r"^zstd: "):
            decompress(ZSTD, bytes.fromhex(f"28b52ffd 20 {claimed} 290000 6162636465"), MIB)
