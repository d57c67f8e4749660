"""What a producer can send that no producer should: one batch with one thing wrong, and what Kafka answers to it.

The codes in here were recorded from Apache Kafka 4.3.1, given the very same bytes. Where ours is another on purpose,
the entry says what Kafka's is, and why.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from barnabas._kernels import checksum
from barnabas._kernels.varint import encode_varint, encode_varlong
from barnabas.common.errors import Errors
from barnabas.records.batch import (
    ATTRIBUTES_OFFSET,
    CONTROL_MASK,
    CRC_OFFSET,
    DELETE_HORIZON_MASK,
    HEADER_SIZE,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAX_TIMESTAMP_OFFSET,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    CompressionType,
)
from barnabas.records.compression import compress
from log_fixtures import NOW, client_batch

crc32c = checksum.crc32c

COUNT_OFFSET = 57
LAST_OFFSET_DELTA_OFFSET = 23
BASE_TIMESTAMP_OFFSET = 27
PRODUCER_ID_OFFSET = 43
PRODUCER_EPOCH_OFFSET = 51
BASE_SEQUENCE_OFFSET = 53


@dataclass(frozen=True)
class Hostile:
    """A produce request of one partition, and its response."""

    name: str
    records: bytes | None
    error: Errors
    topic: str = "t"
    version: int = 12
    kafka: Errors | None = None
    """What Kafka says, where we say something else."""
    why: str = ""
    """Why we do."""

    @property
    def kafkas(self) -> Errors:
        return self.error if self.kafka is None else self.kafka


def sealed(batch: bytearray | bytes) -> bytes:
    """With the checksum made right again: the producer meant what it wrote."""
    batch = bytearray(batch)
    struct.pack_into(">I", batch, CRC_OFFSET, crc32c(memoryview(batch)[ATTRIBUTES_OFFSET:]))
    return bytes(batch)


def patched(offset: int, form: str, value: int, batch: bytes | bytearray | None = None) -> bytes:
    """A batch with one field of its header overwritten."""
    data = bytearray(good() if batch is None else batch)
    struct.pack_into(form, data, offset, value)
    return sealed(data)


def good(count: int = 3) -> bytes:
    return bytes(client_batch([(b"k%d" % index, b"value %d" % index) for index in range(count)]))


def attributes(mask: int, batch: bytes | None = None) -> bytes:
    data = good() if batch is None else batch
    (old,) = struct.unpack_from(">h", data, ATTRIBUTES_OFFSET)
    return patched(ATTRIBUTES_OFFSET, ">h", old | mask, data)


def with_records(section: bytes, count: int = 1, codec: int = 0, last_delta: int | None = None) -> bytes:
    """A batch with these bytes where its records should be."""
    data = bytearray(good(1)[:HEADER_SIZE]) + section
    struct.pack_into(">i", data, LENGTH_OFFSET, len(data) - LOG_OVERHEAD)
    struct.pack_into(">h", data, ATTRIBUTES_OFFSET, codec)
    struct.pack_into(">i", data, LAST_OFFSET_DELTA_OFFSET, count - 1 if last_delta is None else last_delta)
    struct.pack_into(">i", data, COUNT_OFFSET, count)
    return sealed(data)


def record(body: bytes, length: int | None = None) -> bytes:
    return encode_varint(len(body) if length is None else length) + body


def body(
    *,
    offset_delta: int = 0,
    timestamp_delta: int = 0,
    key_length: int = -1,
    key: bytes = b"",
    value_length: int = 1,
    value: bytes = b"v",
    headers: int = 0,
    rest: bytes = b"",
) -> bytes:
    return b"".join(
        (
            b"\0",
            encode_varlong(timestamp_delta),
            encode_varint(offset_delta),
            encode_varint(key_length),
            key,
            encode_varint(value_length),
            value,
            encode_varint(headers),
            rest,
        )
    )


def legacy(magic: int) -> bytes:
    """A message of a format from before Kafka 0.11, right in itself."""
    content = bytes([magic, 0]) + (struct.pack(">q", NOW) if magic else b"") + struct.pack(">ii", -1, 1) + b"v"
    message = struct.pack(">I", zlib.crc32(content)) + content
    return struct.pack(">qi", 0, len(message)) + message


def packed_as(codec: CompressionType, data: bytes) -> bytes:
    return bytes(compress(codec, data, None))


def zeros(size: int) -> bytes:
    return gzip.compress(bytes(size), 9)


BAD = Errors.INVALID_RECORD
CORRUPT = Errors.CORRUPT_MESSAGE
UNKNOWN = Errors.UNKNOWN_SERVER_ERROR

CRASH = "an exception that nobody caught, which a client takes for a bug of the broker; it is the client's"
LENIENT = "it goes into the log as it is, and readers have to cope with it"
REPAIRED = "the broker does not look at it, and writes another value over it"


def framing() -> Iterator[Hostile]:
    """Sizes, magic, checksum: what decides where a batch begins and ends."""
    batch = good()
    yield Hostile("a good batch", batch, Errors.NONE)
    yield Hostile(
        "null", None, BAD, kafka=UNKNOWN, why="Kafka never answers at all: the error answer fails in the same way"
    )
    yield Hostile("nothing", b"", BAD)
    yield Hostile("eleven bytes", batch[:11], BAD)
    yield Hostile("twelve bytes", batch[:12], BAD)
    yield Hostile("sixteen bytes", batch[:16], BAD)
    yield Hostile("a header cut off", batch[:40], BAD)
    yield Hostile("the last byte missing", batch[:-1], BAD)
    for length in (-(2**31), -1, 0, 13):
        yield Hostile(f"a length of {length}", patched(LENGTH_OFFSET, ">i", length), CORRUPT)
    yield Hostile("a length of 14", patched(LENGTH_OFFSET, ">i", 14), CORRUPT)
    yield Hostile(
        "a length of 14 and no more", patched(LENGTH_OFFSET, ">i", 14)[:26], CORRUPT, kafka=UNKNOWN, why=CRASH
    )
    yield Hostile("a length of 48 and no more", patched(LENGTH_OFFSET, ">i", 48)[:60], CORRUPT)
    yield Hostile("a header alone", with_records(b"", 0, last_delta=0), BAD)
    yield Hostile("two gigabytes claimed", patched(LENGTH_OFFSET, ">i", 2**31 - 1), BAD, kafka=UNKNOWN, why=CRASH)
    yield Hostile("a megabyte claimed", patched(LENGTH_OFFSET, ">i", 1 << 20), BAD)
    yield Hostile("five bytes behind it", batch + b"trash", Errors.NONE)
    yield Hostile("sixteen zeros behind it", batch + bytes(16), CORRUPT)
    yield Hostile("half a batch behind it", batch + batch[:50], Errors.NONE)
    yield Hostile("two batches", batch + batch, BAD)
    yield Hostile("a message of format 0", legacy(0), BAD)
    yield Hostile("a message of format 1", legacy(1), BAD)
    for magic in (3, 127, -1):
        yield Hostile(f"magic {magic}", patched(MAGIC_OFFSET, ">b", magic), CORRUPT)
    flipped = bytearray(batch)
    flipped[-1] ^= 1
    yield Hostile("a bit flipped in the last record", bytes(flipped), CORRUPT)
    flipped = bytearray(batch)
    flipped[CRC_OFFSET] ^= 1
    yield Hostile("a wrong checksum", bytes(flipped), CORRUPT)
    yield Hostile("a bit flipped before the checksum, in the leader epoch", patched(12, ">i", 77), Errors.NONE)


def headers() -> Iterator[Hostile]:
    """The other fields of the header, under a right checksum."""
    yield Hostile("a base offset", patched(0, ">q", 5), BAD)
    yield Hostile("a negative base offset", patched(0, ">q", -5), BAD)
    yield Hostile("a control batch", attributes(CONTROL_MASK), BAD)
    yield Hostile(
        "append time from a client",
        attributes(TIMESTAMP_TYPE_MASK),
        Errors.INVALID_TIMESTAMP,
        kafka=Errors.NONE,
        why=REPAIRED,
    )
    yield Hostile("a delete horizon", attributes(DELETE_HORIZON_MASK), Errors.NONE)
    yield Hostile("unused attributes", attributes(0x7F80), Errors.NONE)
    for codec in (5, 6, 7):
        yield Hostile(
            f"codec {codec}", attributes(codec), Errors.UNSUPPORTED_COMPRESSION_TYPE, kafka=UNKNOWN, why=CRASH
        )
    zstd = bytes(client_batch([b"v" * 100], compression=CompressionType.ZSTD))
    yield Hostile("zstd before v7", zstd, Errors.UNSUPPORTED_COMPRESSION_TYPE, version=6)
    yield Hostile("zstd", zstd, Errors.NONE, version=7)
    yield Hostile(
        "transactional without a transactional id",
        attributes(TRANSACTIONAL_MASK),
        Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )
    for count in (0, -1, -(2**31), 2, 4, 2**31 - 1):
        yield Hostile(f"{count} records claimed of three", patched(COUNT_OFFSET, ">i", count), BAD)
    for delta in (-1, -(2**31), 0, 1, 3, 2**31 - 1):
        yield Hostile(
            f"last offset delta {delta} of three records", patched(LAST_OFFSET_DELTA_OFFSET, ">i", delta), BAD
        )
    less = patched(COUNT_OFFSET, ">i", 2, patched(LAST_OFFSET_DELTA_OFFSET, ">i", 1))
    yield Hostile("two records claimed of three, and nothing contradicts", less, BAD)
    more = patched(COUNT_OFFSET, ">i", 4, patched(LAST_OFFSET_DELTA_OFFSET, ">i", 3))
    yield Hostile("four records claimed of three, and nothing contradicts", more, BAD)
    billions = patched(COUNT_OFFSET, ">i", 2**31 - 1, patched(LAST_OFFSET_DELTA_OFFSET, ">i", 2**31 - 2))
    yield Hostile("two billion records claimed", billions, BAD)
    yield Hostile(
        "a base timestamp of -2", patched(BASE_TIMESTAMP_OFFSET, ">q", -2), BAD, kafka=Errors.NONE, why=LENIENT
    )
    yield Hostile(
        "a largest timestamp of -2", patched(MAX_TIMESTAMP_OFFSET, ">q", -2), BAD, kafka=Errors.NONE, why=REPAIRED
    )
    yield Hostile("a wrong largest timestamp", patched(MAX_TIMESTAMP_OFFSET, ">q", NOW - 5), Errors.NONE)
    yield Hostile("a time in the far future", bytes(client_batch(timestamp=2**62)), Errors.INVALID_TIMESTAMP)
    yield Hostile("a time of -1", bytes(client_batch(timestamp=-1)), Errors.NONE)
    numbered = bytes(client_batch(producer_id=7001, epoch=0, sequence=0))
    yield Hostile("a producer's batch", numbered, Errors.NONE)
    yield Hostile(
        "a producer without an epoch",
        patched(PRODUCER_EPOCH_OFFSET, ">h", -1, numbered),
        BAD,
        kafka=Errors.INVALID_PRODUCER_EPOCH,
        why="the epoch is not old, it is missing",
    )
    yield Hostile("a producer without a sequence", patched(BASE_SEQUENCE_OFFSET, ">i", -1, numbered), BAD)
    yield Hostile("a producer id of -2", patched(PRODUCER_ID_OFFSET, ">q", -2, numbered), Errors.NONE)
    gap = bytes(client_batch(producer_id=7001, epoch=0, sequence=9))
    yield Hostile("a gap in a producer's sequence", gap, Errors.OUT_OF_ORDER_SEQUENCE_NUMBER)
    newer = bytes(client_batch(producer_id=7001, epoch=3, sequence=5))
    yield Hostile("a new epoch that does not begin at 0", newer, Errors.OUT_OF_ORDER_SEQUENCE_NUMBER)
    yield Hostile("a new epoch", bytes(client_batch(producer_id=7001, epoch=3, sequence=0)), Errors.NONE)
    yield Hostile("an old epoch", numbered, Errors.INVALID_PRODUCER_EPOCH)


def insides() -> Iterator[Hostile]:
    """The records themselves, under a right checksum."""
    yield Hostile("a good record", with_records(record(body())), Errors.NONE)
    yield Hostile("no bytes for a record", with_records(b""), BAD)
    yield Hostile("a negative record length", with_records(record(body(), -5)), BAD)
    yield Hostile("a record length of 0", with_records(record(body(), 0)), BAD)
    yield Hostile("a record longer than its batch", with_records(record(body(), 1000)), BAD)
    yield Hostile("a record of two gigabytes", with_records(record(body(), 2**31 - 1)), BAD)
    yield Hostile("a record shorter than it says", with_records(record(body(), len(body()) - 1)), BAD)
    yield Hostile("a record with bytes left over", with_records(record(body(rest=b"xx"))), BAD)
    yield Hostile("a byte after the last record", with_records(record(body()) + b"\0"), BAD)
    yield Hostile("a length without an end", with_records(b"\xff" * 12), BAD, kafka=UNKNOWN, why=CRASH)
    yield Hostile("a key length of -2", with_records(record(body(key_length=-2))), BAD, kafka=Errors.NONE, why=LENIENT)
    yield Hostile("a key of two gigabytes", with_records(record(body(key_length=2**31 - 1))), BAD)
    yield Hostile("a value length of -2", with_records(record(body(value_length=-2))), BAD)
    yield Hostile("a value of two gigabytes", with_records(record(body(value_length=2**31 - 1))), BAD)
    yield Hostile("-1 headers", with_records(record(body(headers=-1))), BAD)
    yield Hostile("two billion headers", with_records(record(body(headers=2**31 - 1))), BAD)
    yield Hostile("a header without a key", with_records(record(body(headers=1, rest=b"\x01\x01"))), BAD)
    yield Hostile(
        "an offset delta of 1 at first", with_records(record(body(offset_delta=1))), BAD, kafka=Errors.NONE, why=LENIENT
    )
    yield Hostile(
        "a negative offset delta", with_records(record(body(offset_delta=-1))), BAD, kafka=Errors.NONE, why=LENIENT
    )
    twice = record(body()) + record(body())
    yield Hostile("an offset twice", with_records(twice, 2), BAD, kafka=Errors.NONE, why=LENIENT)
    backwards = record(body(offset_delta=1)) + record(body())
    yield Hostile("offsets backwards", with_records(backwards, 2), BAD, kafka=Errors.NONE, why=LENIENT)
    yield Hostile(
        "a record's time of -2",
        with_records(record(body(timestamp_delta=-NOW - 2))),
        BAD,
        kafka=Errors.NONE,
        why=LENIENT,
    )
    yield Hostile("record attributes", with_records(record(b"\x7f" + body()[1:])), Errors.NONE)


def compressed() -> Iterator[Hostile]:
    """Codecs: garbage, lies about sizes, bombs."""
    for codec in (CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD):
        name = codec.codec_name
        garbage = with_records(b"\xde\xad\xbe\xef" * 8, codec=codec)
        yield Hostile(f"{name}: garbage", garbage, BAD, kafka=UNKNOWN, why=CRASH)
        empty = BAD if codec is CompressionType.ZSTD else UNKNOWN
        yield Hostile(f"{name}: nothing", with_records(b"", codec=codec), BAD, kafka=empty, why=CRASH)
        packed = packed_as(codec, record(body(value_length=4000, value=bytes(4000))))
        yield Hostile(f"{name}: fine", with_records(packed, codec=codec), Errors.NONE)
        half = with_records(packed[: len(packed) // 2], codec=codec)
        yield Hostile(f"{name}: cut off", half, BAD, kafka=UNKNOWN, why=CRASH)
        ignored = codec in {CompressionType.GZIP, CompressionType.LZ4}
        trailing = with_records(packed + b"trash", codec=codec)
        yield Hostile(
            f"{name}: bytes behind it",
            trailing,
            BAD,
            kafka=Errors.NONE if ignored else UNKNOWN,
            why=LENIENT if ignored else CRASH,
        )
        tail = packed_as(codec, record(body()) + b"more")
        yield Hostile(f"{name}: a byte after the last record", with_records(tail, codec=codec), BAD)
        claims = with_records(packed_as(codec, record(body(), 2**31 - 1)), codec=codec)
        yield Hostile(f"{name}: a record of two gigabytes", claims, BAD, kafka=Errors.NONE, why=LENIENT)
        many = packed_as(codec, record(body()))
        yield Hostile(f"{name}: two billion records", with_records(many, 2**31 - 1, codec), BAD)
    bomb = zeros(32 << 20)
    yield Hostile("a bomb of 32 MiB of zeros", with_records(bomb, codec=CompressionType.GZIP), BAD)
    size = 16 << 20
    large = gzip.compress(record(body(value_length=size, value=bytes(size))), 1)
    yield Hostile(
        "a bomb that is one proper record of 16 MiB", with_records(large, codec=CompressionType.GZIP), Errors.NONE
    )


def topics() -> Iterator[Hostile]:
    """Settings of the topic that the batch does not fit."""
    keyless = bytes(client_batch([b"no key"]))
    yield Hostile("no key for a compacted topic", keyless, BAD, topic="compact")
    yield Hostile("a key for a compacted topic", good(), Errors.NONE, topic="compact")
    large = bytes(client_batch([bytes(1000)]))
    yield Hostile("larger than the topic allows", large, Errors.MESSAGE_TOO_LARGE, topic="small")
    bad = bytearray(large)
    bad[-1] ^= 1
    yield Hostile("larger than the topic allows, and damaged", bytes(bad), Errors.MESSAGE_TOO_LARGE, topic="small")


_FAMILIES: dict[str, Callable[[], Iterator[Hostile]]] = {
    "framing": framing,
    "headers": headers,
    "insides": insides,
    "compressed": compressed,
    "topics": topics,
}
FAMILIES = tuple(_FAMILIES)


@cache
def family(name: str) -> tuple[Hostile, ...]:
    """All of a kind. They are made when they are asked for: a bomb takes a while to make."""
    return tuple(_FAMILIES[name]())


def everything() -> list[Hostile]:
    return [hostile for name in FAMILIES for hostile in family(name)]
