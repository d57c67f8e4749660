"""Batches that the compiled kernel reads by itself: the same comes out as if each were looked at one by one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from barnabas._kernels import checksum, is_compiled
from barnabas._kernels import columns as _columns_kernel
from barnabas._kernels.pure import columns as _columns_pure
from barnabas.common.errors import BarnabasError, CorruptRecordError, InvalidRecordError
from barnabas.records.batch import CompressionType, RecordBatch, TimestampType
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.columns import arrow as columns
from barnabas.records.columns import early as _columns_early
from barnabas.records.columns.arrow import assemble_batches, assemble_sections, fetch_sections, shared_columns
from barnabas.records.control import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch

crc32c = checksum.crc32c

PRODUCER = 7


def batch(chance: random.Random, base_offset: int) -> bytes:
    kind = chance.choice(["plain", "plain", "plain", "append time", "transactional", "compressed", "marker", "damaged"])
    if kind == "marker":
        decision = chance.choice([ControlRecordType.ABORT, ControlRecordType.COMMIT])
        return bytes(
            end_transaction_marker_batch(
                EndTransactionMarker(decision, 0),
                producer_id=PRODUCER,
                producer_epoch=0,
                timestamp_ms=5,
                base_offset=base_offset,
            )
        )
    transactional = kind == "transactional"
    builder = RecordBatchBuilder(
        base_offset=base_offset,
        compression=CompressionType.GZIP if kind == "compressed" else CompressionType.NONE,
        producer_id=PRODUCER if transactional else -1,
        producer_epoch=0 if transactional else -1,
        base_sequence=0 if transactional else -1,
        is_transactional=transactional,
    )
    for _ in range(chance.randint(1, 5)):
        value = chance.choice([None, b"", chance.randbytes(20)])
        builder.append(chance.randint(0, 99), chance.choice([None, b"k"]), value)
    data = bytearray(builder.close())
    if kind == "append time":
        RecordBatch(data).set_max_timestamp(TimestampType.LOG_APPEND_TIME, 1234)
    elif kind == "damaged" and chance.random() < 0.3:
        at = chance.randrange(len(data))
        data[at] ^= 1 << chance.randrange(8)
        if chance.random() < 0.7:  # so that what is wrong is found by what comes after the checksum
            data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    return bytes(data)


@pytest.fixture(params=["all later", "keys and values early"])
def early(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether keys and values are copied when they are checked, however few and short they are."""
    is_early: bool = request.param != "all later"
    monkeypatch.setattr(_columns_early, "EARLY_BYTES", 1 if is_early else 1 << 40)
    monkeypatch.setattr(_columns_early, "EARLY_RECORD_BYTES", 0)
    return is_early


def read(data: bytes, options: dict[str, Any]) -> Any:
    try:
        fetched = fetch_sections(memoryview(data), **options)
    except (BarnabasError, ValueError) as error:
        return type(error), str(error)
    table = assemble_sections([fetched])
    table.validate(full=True)
    return table.to_pylist(), table.schema, fetched.next_offset, fetched.size_in_bytes, fetched.records


@pytest.mark.usefixtures("early")
@pytest.mark.skipif(not is_compiled("columns"), reason="the twin reads nothing by itself")
def test_the_same_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(300):
        chance = random.Random(seed)
        data, offset = b"", chance.randint(0, 3)
        for _ in range(chance.randint(1, 8)):
            data += batch(chance, offset)
            offset += 5
        data = data[: len(data) - chance.choice([0, 0, 1, 30, 70])]
        options = {
            "start_offset": chance.choice([0, 0, chance.randint(0, 12)]),
            "aborted": chance.choice([None, [], [(PRODUCER, 0)]]),
            "check_crc": chance.random() < 0.7,
            "binary_type": chance.choice(["binary", "binary_view"]),
            "raw_timestamps": chance.random() < 0.3,
        }
        found = read(data, options)
        with monkeypatch.context() as patched:
            patched.setattr(_columns_kernel, "plain_sections", _columns_pure.plain_sections)
            patched.setattr(_columns_kernel, "totals", _columns_pure.totals)
            assert found == read(data, options), f"seed {seed}"


@pytest.mark.skipif(not is_compiled("columns"), reason="the twin reads nothing by itself")
def test_a_run_ends_where_something_else_begins() -> None:
    builder = RecordBatchBuilder(base_offset=3)
    builder.append(1, None, b"v")
    plain = bytes(builder.close())
    other = RecordBatchBuilder(base_offset=5, compression=CompressionType.GZIP)
    other.append(1, None, b"w")
    data = plain + plain + bytes(other.close()) + plain
    sections, at, next_offset, is_end = _columns_kernel.plain_sections(
        memoryview(data), 0, 0, 1, True, True, None, False, None
    )
    assert (len(sections), at, next_offset, is_end) == (2, 2 * len(plain), 4, False)
    assert _columns_kernel.totals(sections) == _columns_pure.totals(sections)
    assert _columns_kernel.totals(sections)[0] == 2


@pytest.mark.skipif(not is_compiled("columns"), reason="the twin reads nothing by itself")
def test_the_beginning_of_a_batch_with_something_wrong_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is cut off is passed over. What cannot be the beginning of a batch is damage, as soon as it can be seen."""
    builder = RecordBatchBuilder(base_offset=3)
    builder.append(1, None, bytes(90))
    sound = bytes(builder.close())
    seen = set()
    for size in [*range(1, 70), len(sound) - 1, len(sound)]:
        for at, wrong in ((8, 0xFF), (8, 0x01), (11, 13), (11, 48), (11, 49), (11, 60), (11, 255), (16, 1), (16, 3)):
            data = bytearray(sound)
            data[at] = wrong
            found = read(sound + bytes(data[:size]), {})
            with monkeypatch.context() as patched:
                patched.setattr(_columns_kernel, "plain_sections", _columns_pure.plain_sections)
                assert found == read(sound + bytes(data[:size]), {}), f"{size} bytes with {wrong} at {at}"
            seen.add(found[0] if isinstance(found[0], type) else None)
    assert seen == {None, CorruptRecordError, InvalidRecordError}


def long_batch(chance: random.Random, base_offset: int) -> bytearray:
    builder = RecordBatchBuilder(base_offset=base_offset)
    size, limit = 0, chance.choice([60_000, 65_496, 65_600, 131_000, 131_200, 300_000])
    while size < limit:
        value = chance.randbytes(chance.choice([10, 1000, 5000, 70_000]))
        size += len(value)
        key = chance.choice([None, None, b"key", bytes(300)])
        builder.append(
            chance.randint(0, 99),
            key,
            value if chance.random() < 0.9 else None,
            [("h", b"v")] if chance.random() < 0.05 else [],
        )
    return bytearray(builder.close())


@pytest.mark.usefixtures("early")
@pytest.mark.skipif(not is_compiled("columns"), reason="the twin reads nothing by itself")
def test_long_batches_come_out_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are gone through block by block: whatever is wrong in whichever block, a wrong checksum comes first."""
    found_corrupt = found_invalid = 0
    for seed in range(60):
        chance = random.Random(seed)
        first, second = long_batch(chance, 0), long_batch(chance, 1000)
        if seed % 3:
            damaged = chance.choice([first, second])
            # Among what the checksum covers: numbers of the header, of the first record, of any byte, and the last one.
            at = chance.choice([57, 58, 60, 61, 62, 64, 65, 66, chance.randrange(61, len(damaged)), len(damaged) - 1])
            damaged[at] ^= 1 << chance.randrange(8)
            if seed % 3 == 1:
                damaged[17:21] = crc32c(damaged[21:]).to_bytes(4, "big")
        data = bytes(first + second)
        options = {"check_crc": chance.random() < 0.8}
        found = read(data, options)
        found_corrupt += found[0] is CorruptRecordError
        found_invalid += found[0] is InvalidRecordError
        with monkeypatch.context() as patched:
            patched.setattr(_columns_kernel, "plain_sections", _columns_pure.plain_sections)
            patched.setattr(_columns_kernel, "totals", _columns_pure.totals)
            assert found == read(data, options), f"seed {seed}"
            if seed % 3 == 2 and options["check_crc"]:
                assert "its checksum is" in found[1]
    assert found_corrupt
    assert found_invalid


# Records of this size are copied early by themselves.
LONG = 1000


def long_records(count: int, base_offset: int, key: bytes | None = None, seed: int = 0) -> bytearray:
    chance = random.Random(seed)
    builder = RecordBatchBuilder(base_offset=base_offset)
    for _ in range(count):
        builder.append(5, key, chance.randbytes(LONG))
    return bytearray(builder.close())


def as_before(fetched: list[columns.FetchedSections]) -> Any:
    """The same of sections whose keys and values are copied last."""
    for one in fetched:
        one.early = None
    return assemble_sections(fetched)


compiled = pytest.mark.skipif(not is_compiled("columns"), reason="the twin copies nothing early")


@compiled
@pytest.mark.parametrize("key", [None, b"", b"key"])
def test_long_values_are_copied_when_they_are_checked(key: bytes | None) -> None:
    data = bytes(long_records(800, 0, key, 1) + long_records(800, 800, key, 2))
    fetched = fetch_sections(data, start_offset=3)
    assert fetched.early is not None
    table = assemble_sections([fetched])
    assert table.equals(assemble_sections([fetched]))  # as often as one likes
    assert table.equals(as_before([fetched]))
    assert table.column("offset")[0].as_py() == 3
    keys, values = table.column("key").chunk(0), table.column("value").chunk(0)
    assert table.num_rows == 1597
    assert (keys.null_count, values.null_count) == (1597 if key is None else 0, 0)
    # Memory that is not needed is not kept.
    assert keys.buffers()[2].size == 1597 * len(key or b"")
    assert values.buffers()[2].size == 1597 * LONG
    assert values.buffers()[0] is None


@compiled
def test_keys_that_take_more_room_than_they_are_given_are_copied_later() -> None:
    fetched = fetch_sections(bytes(long_records(1200, 0, bytes(LONG // 4))))
    assert fetched.early is not None
    table = assemble_sections([fetched])
    assert table.column("key").to_pylist() == [bytes(LONG // 4)] * 1200
    assert table.equals(as_before([fetched]))


@compiled
def test_values_that_take_less_room_than_they_are_given() -> None:
    """Of a key it is not known how long it is, when room is made for the values."""
    builder = RecordBatchBuilder()
    for _ in range(1200):
        builder.append(5, bytes(LONG), b"short")
    fetched = fetch_sections(bytes(builder.close()))
    table = assemble_sections([fetched])
    assert table.column("value").chunk(0).buffers()[2].size == 1200 * len("short")
    assert table.equals(as_before([fetched]))


@compiled
def test_several_responses_of_which_some_are_long() -> None:
    """Each long one is a chunk; the others that follow each other are one together."""
    short = [bytes(long_records(3, base, b"k", base)) for base in (0, 10, 20, 30)]
    other = RecordBatchBuilder(base_offset=3000, compression=CompressionType.GZIP)
    other.append(1, None, None)
    long = bytes(long_records(1200, 100, None, 5))
    mixed = bytes(long_records(1200, 1500, b"m", 6)) + bytes(other.close()) + bytes(long_records(1200, 4000, b"n", 7))
    answers = [short[0], short[1], long, mixed, short[2], long, short[3], short[3]]
    fetched = [fetch_sections(answer) for answer in answers]
    assert [one.early is not None for one in fetched] == [False, False, True, True, False, True, False, False]
    table = assemble_sections(fetched)
    table.validate(full=True)
    lengths = [len(chunk) for chunk in table.column("value").chunks]
    assert lengths == [6, 1200, 1200, 1 + 1200 + 3, 1200, 6]
    assert table.column("offset").to_pylist()[2406:2408] == [3000, 4000]
    assert table.equals(as_before(fetched))
    assert as_before(fetched).column("value").num_chunks == 1


@compiled
def test_a_long_batch_with_a_wrong_byte_in_any_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of what was copied comes out, and the error is the one that comes without the compiled kernel."""
    sound = bytes(long_records(600, 0, b"k", 1))
    batch = long_records(600, 600, b"k", 2)
    for at in [*range(21, len(batch), 1 << 16), len(batch) - 1]:
        batch[at] ^= 4
        for data in (sound + batch, bytes(batch) + sound):
            with pytest.raises(CorruptRecordError, match="its checksum is") as found:
                fetch_sections(data)
            with monkeypatch.context() as patched:
                patched.setattr(_columns_kernel, "plain_sections", _columns_pure.plain_sections)
                with pytest.raises(CorruptRecordError) as expected:
                    fetch_sections(data)
            assert str(found.value) == str(expected.value)
        batch[at] ^= 4
    assert fetch_sections(sound + batch).records == 1200


@compiled
def test_sinks_get_nothing_of_a_damaged_batch() -> None:
    sound, batch = bytes(long_records(600, 0, b"k", 1)), long_records(600, 600, b"k", 2)
    batch[-5] ^= 1
    rows, size, is_all = _columns_kernel.plain_extent(memoryview(sound + batch), 0, True)
    assert (rows, is_all) == (1200, True)
    assert 1200 * (LONG + 1) <= size < 1.02 * 1200 * (LONG + 1)
    keys, values = (
        _columns_kernel.BinarySink(bytearray(rows), bytearray(4 * rows + 4), bytearray(size)) for _ in range(2)
    )
    sink = _columns_kernel.ColumnSink(rows, keys, values, bytearray(8 * rows), None, None, None, None, None)
    sections, at, next_offset, is_end = _columns_kernel.plain_sections(
        memoryview(sound + batch), 0, 0, 1, True, True, None, False, sink
    )
    assert (len(sections), at, next_offset, is_end) == (1, len(sound), 600, False)
    assert (keys.rows, keys.used, values.rows, values.used) == (600, 600, 600, 600 * LONG)
    assert sink.rows == 600
    assert not sink.open


def answers(chance: random.Random) -> list[tuple[memoryview, int]]:
    """What came of some partitions, with what is wanted of it."""
    found = []
    for _ in range(chance.randint(1, 6)):
        data, offset = b"", chance.randint(0, 3)
        for _ in range(chance.randint(0, 4)):
            if chance.random() < 0.7:
                builder = RecordBatchBuilder(base_offset=offset)
                for _ in range(chance.randint(1, 4)):
                    builder.append(chance.randint(0, 99), chance.choice([None, b"k"]), chance.randbytes(30))
                data += bytes(builder.close())
            else:
                data += batch(chance, offset)
            offset += 5
        data = data[: len(data) - chance.choice([0, 0, 0, 1, 30, 70])]
        found.append((memoryview(data), chance.choice([0, 0, 0, chance.randint(0, 12)])))
    return found


@pytest.mark.parametrize("later", [False, True])
def test_several_responses_fill_the_same_columns(later: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is in them, and whatever is wrong with some: rows, and their order, are those of each by itself."""
    monkeypatch.setattr(_columns_early, "EARLY_BYTES", 1 << 40 if later else 1)
    monkeypatch.setattr(_columns_early, "EARLY_RECORD_BYTES", 0)
    alone_in_one = failed = 0
    for seed in range(400):
        chance = random.Random(seed)
        buffers = answers(chance)
        options: dict[str, Any] = {
            "aborted": chance.choice([None, None, [], [(PRODUCER, 0)]]),
            "check_crc": chance.random() < 0.8,
        }
        wanted = chance.choice([None, ("value",), ("timestamp", "key", "offset")])
        shared = shared_columns(buffers, columns=wanted, aborted=options["aborted"] is not None)
        together: list[columns.FetchedSections] = []
        alone: list[columns.FetchedSections] = []
        errors: list[tuple[str, str]] = []
        for octets, start_offset in buffers:
            error = ""
            try:
                together.append(
                    fetch_sections(octets, columns=wanted, start_offset=start_offset, shared=shared, **options)
                )
            except (BarnabasError, ValueError) as reason:
                error = str(reason)
                failed += 1
            try:
                alone.append(fetch_sections(octets, columns=wanted, start_offset=start_offset, **options))
            except (BarnabasError, ValueError) as reason:
                errors.append((str(reason), error))
        assert all(found == expected for found, expected in errors)
        if not together:
            continue
        assert [one.records for one in together] == [one.records for one in alone]
        expected = as_before(alone)
        table = assemble_sections(together)
        table.validate(full=True)
        assert table.equals(expected), f"seed {seed}"
        alone_in_one += shared is not None and len(assemble_batches(together)) == 1 and len(together) > 1
        # As often as one likes, in any order, and any number of them.
        chosen = [number for number in range(len(together)) if chance.random() < 0.8] or [0]
        chance.shuffle(chosen)
        assert assemble_sections([together[number] for number in chosen]).equals(
            as_before([alone[number] for number in chosen])
        ), f"seed {seed}"
    assert failed
    assert bool(alone_in_one) == (not later and is_compiled("columns"))


def test_shared_columns_are_the_same_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_columns_kernel, "plain_extent", lambda *_: (1200, 1200 * LONG, True))
    data = memoryview(bytes(long_records(1200, 0)))
    shared = shared_columns([(data, 0)])
    assert shared is not None
    with pytest.raises(ValueError, match="the same shared columns"):
        fetch_sections(data, columns=["value"], shared=shared)
    assert shared_columns([(data, 0)], binary_type="binary_view") is None


@compiled
def test_the_columns_of_two_responses_that_are_too_long_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    data = memoryview(bytes(long_records(1200, 0)))
    monkeypatch.setattr(_columns_early, "MAX_COLUMN_BYTES", 2_000_000)
    shared = shared_columns([(data, 0), (data, 0)])
    fetched = [fetch_sections(data, shared=shared) for _ in range(2)]
    assert [len(batch) for batch in assemble_batches(fetched)] == [1200, 1200]
    monkeypatch.undo()
    shared = shared_columns([(data, 0), (data, 0)])
    fetched = [fetch_sections(data, shared=shared) for _ in range(2)]
    assert [len(batch) for batch in assemble_batches(fetched)] == [2400]


@compiled
@pytest.mark.usefixtures("early")
def test_batches_with_all_fields_null_some_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """All or none of a batch are not told apart one by one; and rows go on at any bit of the validity bitmap."""
    for seed in range(60):
        chance = random.Random(seed)
        data, offset = b"", 0
        for _ in range(chance.randint(1, 12)):
            builder = RecordBatchBuilder(base_offset=offset)
            null_keys, null_values = (chance.choice([0.0, 0.0, 0.3, 1.0, 1.0]) for _ in range(2))
            for _ in range(chance.choice([1, 3, 7, 8, 9, 16, 40])):
                key = None if chance.random() < null_keys else chance.randbytes(chance.randint(0, 3))
                value = None if chance.random() < null_values else chance.randbytes(chance.randint(0, 40))
                builder.append(5, key, value)
                offset += 1
            data += bytes(builder.close())
        options = {"start_offset": chance.choice([0, chance.randint(0, 9)])}
        found = read(data, options)
        with monkeypatch.context() as patched:
            for name in ("plain_sections", "Section", "BinarySink", "ColumnSink", "totals"):
                patched.setattr(_columns_kernel, name, getattr(_columns_pure, name))
            patched.setattr(_columns_early, "EARLY_BYTES", 1 << 40)
            assert found == read(data, options), f"seed {seed}"
