"""Damaged batches by the thousand: a value or one of our errors, the same from both codecs, in little memory."""

from __future__ import annotations

import contextlib
import random
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import pytest

from barnabas._kernels import record_codec
from barnabas._kernels.pure import record_codec as pure
from barnabas.common.errors import ApiError, CorruptRecordError, InvalidRecordError, ProtocolError
from barnabas.records.batch import HEADER_SIZE, CompressionType, RecordBatch, TimestampType, iter_batches
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.compression import compress, decompress
from barnabas.records.control import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch
from barnabas.records.reader import read_records, uncompressed_records
from barnabas.records.validation import AppendOrigin, validate_header, validate_records
from unit.records.strategies import CODECS, mutate, with_crc

FIELDS = attrgetter("offset", "timestamp", "key", "value", "headers", "size_in_bytes")
MAX_OUTPUT = 1 << 16


def corpus() -> list[bytes]:
    """Good batches of every kind, to start from."""
    source = random.Random(99)
    batches = []
    for codec in CompressionType:
        for size in (1, 3, 20):
            builder = RecordBatchBuilder(
                compression=codec, producer_id=size, producer_epoch=1, base_sequence=5, partition_leader_epoch=2
            )
            for index in range(size):
                builder.append(
                    1_700_000_000_000 + source.randrange(-100, 100),
                    source.choice((None, b"", b"key", source.randbytes(70))),
                    source.choice((None, b"", b"value" * 30, source.randbytes(10))),
                    source.choice(((), (), (("header", b"x"), ("", None)), ((f"h{index}", source.randbytes(3)),))),
                )
            batches.append(bytes(builder.close()))
    marker = EndTransactionMarker(ControlRecordType.ABORT, 5)
    batches.append(bytes(end_transaction_marker_batch(marker, producer_id=1, producer_epoch=0, timestamp_ms=1)))
    append_time = bytearray(batches[0])
    RecordBatch(append_time).set_max_timestamp(TimestampType.LOG_APPEND_TIME, 5)
    batches.append(bytes(append_time))
    batches.append(batches[0] + batches[3])
    return batches


CORPUS = corpus()


def damaged(seed: int, cases: int) -> Iterator[bytes]:
    """Half of the cases have length and checksum mended, so that the damage is met further inside."""
    source = random.Random(seed)
    for number in range(cases):
        batch = source.choice(CORPUS)
        match number % 4:
            case 0:
                yield mutate(batch, source)
            case 1:
                yield mutate(batch, source, first=17)
            case 2:
                data = mutate(batch, source, first=21)
                yield with_crc(data) if len(data) > HEADER_SIZE else data
            case _:
                yield with_crc(mutate(batch, source, first=HEADER_SIZE))


def outcome(tally: Counter[str], call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What the call returns, or which of our errors it raises and what that says. Any other error passes through."""
    try:
        result = call(*arguments, **options)
    except (ApiError, ProtocolError) as error:
        tally[type(error).__name__] += 1
        return type(error).__name__, str(error)
    tally["value"] += 1
    return result


def examine(data: bytes, tally: Counter[str]) -> None:
    """Everything that the package can be asked about bytes from outside."""
    outcome(tally, lambda: len(list(iter_batches(data, allow_partial=True))))
    batches = outcome(tally, lambda: list(iter_batches(data)))
    if isinstance(batches, tuple):
        return
    for batch in batches:
        assert repr(batch)
        assert isinstance(batch.is_valid(), bool)
        outcome(tally, validate_header, batch)
        for origin in AppendOrigin:
            outcome(tally, validate_header, batch, origin=origin, check_crc=False)
        for consecutive in (True, False):
            options = {"consecutive": consecutive, "check_max_timestamp": False}
            outcome(tally, validate_records, batch, max_decompressed_bytes=MAX_OUTPUT, **options)
        records = outcome(tally, lambda batch: list(read_records(batch, max_decompressed_bytes=MAX_OUTPUT)), batch)
        if isinstance(records, list) and records:
            outcome(tally, EndTransactionMarker.parse, records[0])
        compare_twins(batch)


def compare_twins(batch: RecordBatch) -> None:
    try:
        section = uncompressed_records(batch, MAX_OUTPUT)
    except ApiError:
        return
    assert len(section) <= max(MAX_OUTPUT, len(batch))
    ignored: Counter[str] = Counter()
    count, base_timestamp = batch.record_count, batch.base_timestamp
    walks, reads = [], []
    for twin in (record_codec, pure):
        walks.append(
            outcome(ignored, twin.walk_records, section, count, base_timestamp, batch.last_offset_delta, False)
        )
        records = twin.iterate_records(section, count, 0, base_timestamp, None, True)
        reads.append(outcome(ignored, lambda records: list(map(FIELDS, records)), records))
    assert walks[0] == walks[1]
    assert reads[0] == reads[1]


def run(seed: int, cases: int) -> Counter[str]:
    tally: Counter[str] = Counter()
    for data in damaged(seed, cases):
        try:
            examine(data, tally)
        except Exception as error:
            raise AssertionError(f"{type(error).__name__} from {data.hex()}") from error
    return tally


def test_the_corpus_itself_is_good() -> None:
    for data in CORPUS:
        for batch in iter_batches(data):
            validate_header(batch, origin=AppendOrigin.COORDINATOR)
            validate_records(batch)
            assert len(list(read_records(batch))) == batch.record_count


def test_damaged_batches() -> None:
    tally = run(seed=1, cases=5000)
    # The damage must reach every layer, or this would be testing the checksum only.
    assert tally["CorruptRecordError"] > 1000
    assert tally["InvalidRecordError"] > 1000
    assert tally["value"] > 1000


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2, 12))
def test_damaged_batches_all_night(seed: int) -> None:
    run(seed=seed, cases=10_000)


@pytest.mark.parametrize("codec", CODECS)
def test_damaged_compressed_data(codec: CompressionType) -> None:
    fuzz_codec(codec, seed=5, cases=1500)


@pytest.mark.nightly
@pytest.mark.parametrize("codec", CODECS)
def test_damaged_compressed_data_all_night(codec: CompressionType) -> None:
    fuzz_codec(codec, seed=6, cases=15_000)


def fuzz_codec(codec: CompressionType, seed: int, cases: int) -> None:
    source = random.Random(seed)
    text = b"the quick brown fox " * 200
    contents = [b"x", text, source.randbytes(3000), bytes(50_000), text + source.randbytes(40_000)]
    levels = {CompressionType.LZ4: (9, 1, 12), CompressionType.ZSTD: (3, -5, 19)}.get(codec, (None,))
    originals = [bytes(compress(codec, content, level)) for content in contents for level in levels]
    for _ in range(cases):
        data = mutate(source.choice(originals), source)
        limit = source.choice((0, 100, MAX_OUTPUT, MAX_OUTPUT))
        try:
            assert len(decompress(codec, data, limit)) <= limit
        except CorruptRecordError as error:
            assert str(error).startswith(f"{codec.codec_name}: ")  # noqa: PT017
        except Exception as error:
            raise AssertionError(f"{codec.codec_name}: {type(error).__name__} from {data.hex()}") from error


def test_memory_stays_bounded() -> None:
    """What damaged bytes make us allocate is in proportion to them and to the limit for decompression."""
    tally: Counter[str] = Counter()
    tracemalloc.start()
    try:
        for data in damaged(seed=3, cases=600):
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            examine(data, tally)
            _, peak = tracemalloc.get_traced_memory()
            # Records as objects take more room than as bytes: some 200 bytes for one of seven.
            assert peak - before < 50 * len(data) + 8 * MAX_OUTPUT
    finally:
        tracemalloc.stop()


def test_invalid_is_what_a_producer_wrote_and_corrupt_what_happened_to_it() -> None:
    """With the checksum mended, whatever is wrong with the records cannot be blamed on the way they took."""
    source = random.Random(8)
    for _ in range(500):
        data = with_crc(mutate(source.choice(CORPUS[:-1]), source, first=HEADER_SIZE))
        batch = RecordBatch(data)
        validate_header(batch, origin=AppendOrigin.COORDINATOR)
        with contextlib.suppress(InvalidRecordError):
            validate_records(batch, max_decompressed_bytes=MAX_OUTPUT)
