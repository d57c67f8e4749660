"""The two kernels behind `columns`, on bare records sections: what damage they find, and that they find the same."""

from __future__ import annotations

import mmap
import random
import statistics
import struct
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas._kernels import record_codec
from barnabas._kernels.pure import columns as _columns_pure
from barnabas._kernels.varint import encode_varint, encode_varlong
from barnabas.common.errors import ApiError, CorruptRecordError, InvalidRecordError
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.columns.arrow import encode_batch

walk_records = record_codec.walk_records

KERNELS: list[ModuleType] = [_columns_pure]
with suppress(ImportError):  # not built: the twin is all there is to test
    KERNELS.append(import_module("barnabas._kernels.compiled.columns"))

each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda module: module.__name__.rpartition(".")[2])

SIZES = (
    "records",
    "null_keys",
    "key_bytes",
    "null_values",
    "value_bytes",
    "headers",
    "header_key_bytes",
    "null_header_values",
    "header_value_bytes",
)


def record(
    *,
    delta: int = 0,
    timestamp_delta: int = 0,
    key: bytes | None = None,
    value: bytes | None = b"v",
    headers: bytes = b"\0",
    length: int | None = None,
) -> bytes:
    body = b"\0" + encode_varlong(timestamp_delta) + encode_varint(delta)
    for field in (key, value):
        body += b"\x01" if field is None else encode_varint(len(field)) + field
    body += headers
    return encode_varint(len(body) if length is None else length) + body


def section(kernel: ModuleType, data: Any, count: int, **options: Any) -> Any:
    arguments = {
        "base_offset": 100,
        "last_offset_delta": 1_000_000,
        "base_timestamp": 1000,
        "append_timestamp": None,
        "start_offset": 0,
        "scale": 1,
    } | options
    return kernel.Section(data, count, *arguments.values())


def sizes(scanned: Any) -> dict[str, int]:
    return dict(zip(SIZES, scanned.sizes, strict=True))


class Buffers:
    """Room for exactly what the sections take."""

    def __init__(self, kernel: ModuleType, *sections: Any) -> None:
        total = dict(zip(SIZES, kernel.totals(list(sections)), strict=True))
        rows, headers = total["records"], total["headers"]

        def binary(count: int, nulls: int, size: int) -> list[bytearray | None]:
            # All ones, to see that bits are cleared.
            return [
                bytearray(b"\xff" * ((count + 7) // 8)) if nulls else None,
                bytearray(4 * count + 4),
                bytearray(size),
            ]

        self.keys = binary(rows, total["null_keys"], total["key_bytes"])
        self.values = binary(rows, total["null_values"], total["value_bytes"])
        self.header_keys = binary(headers, 0, total["header_key_bytes"])
        self.header_values = binary(headers, total["null_header_values"], total["header_value_bytes"])
        self.numbers = [bytearray(8 * rows), bytearray(8 * rows), bytearray(4 * rows), bytearray(4 * rows + 4)]
        self.sink = kernel.ColumnSink(
            rows,
            kernel.BinarySink(*self.keys),
            kernel.BinarySink(*self.values),
            *self.numbers,
            kernel.BinarySink(*self.header_keys),
            kernel.BinarySink(*self.header_values),
        )

    def contents(self) -> list[Any]:
        return [*self.keys, *self.values, *self.header_keys, *self.header_values, *self.numbers]


def outcome(kernel: ModuleType, data: bytes, count: int, **options: Any) -> Any:
    """Sizes and all the columns' bytes, or the error."""
    try:
        scanned = section(kernel, data, count, **options)
    except ApiError as error:
        return type(error), str(error)
    buffers = Buffers(kernel, scanned)
    scanned.fill(buffers.sink)
    assert buffers.sink.is_full()
    return sizes(scanned), buffers.contents()


HEADER = encode_varint(1) + encode_varint(1) + b"h" + encode_varint(1) + b"x"
DAMAGE: dict[str, tuple[bytes, int, type[ApiError], str]] = {
    "no record, but a byte": (b"\x80", 0, CorruptRecordError, "claims 0 records, but its records section has 1 bytes"),
    "no room for the count": (record(), 2, CorruptRecordError, "claims 2 records, but its records section has 8 bytes"),
    "negative count": (record(), -1, CorruptRecordError, "claims -1 records"),
    "length varint is cut": (record() + b"\xff" * 4, 2, CorruptRecordError, "claims 2 records"),
    "length varint too long": (b"\xff" * 5 + b"\1" * 9, 1, CorruptRecordError, "varint that is longer than its type"),
    "length varint beyond 32 bits": (b"\xff" * 4 + b"\x10" * 9, 1, CorruptRecordError, "longer than its type allows"),
    "length negative": (record(length=-1), 1, CorruptRecordError, "has a length of -1 bytes"),
    "length too short": (record(length=5), 1, CorruptRecordError, "has a length of 5 bytes"),
    "length past the end": (record(length=9), 1, CorruptRecordError, "has a length of 9 bytes"),
    "length huge": (record(length=2**31 - 1), 1, CorruptRecordError, "has a length of 2147483647 bytes"),
    "length a little short": (record(length=6), 1, CorruptRecordError, "record 0 at byte 0 runs past the end"),
    "one byte too many": (record(headers=b"\0\0"), 1, CorruptRecordError, "length that differs by 1 bytes"),
    "trailing bytes": (record() + b"\0\0", 1, CorruptRecordError, "record 0 .* but 2 bytes are left after it"),
    "timestamp varint too long": (
        encode_varint(16) + b"\0" + b"\xff" * 10 + b"\0" * 5,
        1,
        CorruptRecordError,
        "varint that is longer than its type allows",
    ),
    "timestamp varint beyond 64 bits": (
        encode_varint(16) + b"\0" + b"\xff" * 9 + b"\2" + b"\0" * 5,
        1,
        CorruptRecordError,
        "varint that is longer than its type allows",
    ),
    "timestamp above 64 bits": (
        record(timestamp_delta=2**63 - 1000),
        1,
        CorruptRecordError,
        "has a timestamp beyond 64 bits",
    ),
    "offset varint too long": (
        encode_varint(11) + b"\0\0" + b"\xff" * 5 + b"\0" * 4,
        1,
        CorruptRecordError,
        "varint that is longer than its type allows",
    ),
    "offset negative": (record(delta=-1), 1, InvalidRecordError, "offset delta -1, which is outside the batch"),
    "offset beyond the batch": (record(delta=1_000_001), 1, InvalidRecordError, "offset delta 1000001"),
    "offset twice": (record(delta=3) * 2, 2, InvalidRecordError, "record 1 at byte 8 has offset delta 3"),
    "offset goes back": (record(delta=3) + record(delta=2), 2, InvalidRecordError, "record 1 .* not after the record"),
    "key length -2": (encode_varint(6) + b"\0\0\0\3\1\0", 1, CorruptRecordError, "field with a length of -2 bytes"),
    "key past the record": (encode_varint(6) + b"\0\0\0\x08\1\0", 1, CorruptRecordError, "field with a length of 4"),
    "key huge": (
        encode_varint(10) + b"\0\0\0" + encode_varint(2**31 - 1) + b"\1\0",
        1,
        CorruptRecordError,
        "field with a length of 2147483647 bytes",
    ),
    "key length most negative": (
        encode_varint(10) + b"\0\0\0" + encode_varint(-(2**31)) + b"\1\0",
        1,
        CorruptRecordError,
        "field with a length of -2147483648 bytes",
    ),
    "value length -2": (encode_varint(6) + b"\0\0\0\1\3\0", 1, CorruptRecordError, "field with a length of -2 bytes"),
    "value into the next record": (
        encode_varint(6) + b"\0\0\0\1\4\0" + record(delta=1),
        2,
        CorruptRecordError,
        "record 0 at byte 0 has a field with a length of 2 bytes",
    ),
    "header count negative": (record(headers=b"\1"), 1, CorruptRecordError, "claims -1 headers"),
    "header count too large": (record(headers=encode_varint(3) + b"\0" * 5), 1, CorruptRecordError, "claims 3 headers"),
    "header count huge": (record(headers=encode_varint(2**31 - 1)), 1, CorruptRecordError, "claims 2147483647 headers"),
    "header key null": (record(headers=b"\2\1\1"), 1, InvalidRecordError, "header without a key"),
    "header key past the record": (record(headers=b"\2\4\1"), 1, CorruptRecordError, "field with a length of 2 bytes"),
    "header value -2": (record(headers=b"\2\0\3"), 1, CorruptRecordError, "field with a length of -2 bytes"),
    "header value past the record": (record(headers=b"\2\0\2"), 1, CorruptRecordError, "with a length of 1 bytes"),
    "header cut": (record(headers=b"\2\2a"), 1, CorruptRecordError, "record 0 at byte 0 runs past the end"),
    "headers left over": (record(headers=b"\0" + HEADER), 1, CorruptRecordError, "length that differs by 5 bytes"),
    "damage in the third": (
        record() + record(delta=1) + record(delta=2, length=3),
        3,
        CorruptRecordError,
        "batch at offset 100: record 2 at byte 16 has a length of 3 bytes",
    ),
}


@each_kernel
@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named_with_record_and_byte(kernel: ModuleType, name: str) -> None:
    data, count, kind, problem = DAMAGE[name]
    with pytest.raises(kind, match=problem):
        section(kernel, data, count)


@each_kernel
def test_seven_bytes_are_the_smallest_record(kernel: ModuleType) -> None:
    smallest = record(value=None)
    assert len(smallest) == 7
    data = b"".join(record(value=None, delta=i) for i in range(60))
    assert len(data) == 420
    assert section(kernel, data, 60).sizes[0] == 60
    with pytest.raises(CorruptRecordError, match="claims 61 records"):
        section(kernel, data, 61)


@each_kernel
def test_two_bytes_are_the_smallest_header(kernel: ModuleType) -> None:
    data = record(headers=encode_varint(2) + b"\0\0" + b"\0\1")
    assert sizes(section(kernel, data, 1)) | {"headers": 2, "null_header_values": 1} == sizes(section(kernel, data, 1))


@each_kernel
def test_padded_varints_and_unknown_attributes_are_accepted(kernel: ModuleType) -> None:
    body = b"\x7f" + b"\x80" * 9 + b"\0" + b"\x80\x80\x80\x80\0" + b"\x81\0" + b"\x82\0v" + b"\x80\0"
    data = encode_varint(len(body)) + body
    scanned = section(kernel, data, 1)
    assert sizes(scanned) == dict.fromkeys(SIZES, 0) | {"records": 1, "null_keys": 1, "value_bytes": 1}


@each_kernel
def test_limits_of_numbers_that_are_fine(kernel: ModuleType) -> None:
    extreme = record(timestamp_delta=-(2**63)) + record(delta=1, timestamp_delta=2**63 - 1)
    scanned = section(kernel, extreme, 2, base_timestamp=0, base_offset=2**63 - 2, last_offset_delta=1)
    buffers = Buffers(kernel, scanned)
    scanned.fill(buffers.sink)
    assert struct.unpack("=2q", buffers.numbers[0]) == (2**63 - 2, 2**63 - 1)
    assert struct.unpack("=2q", buffers.numbers[1]) == (-(2**63), 2**63 - 1)
    with pytest.raises(InvalidRecordError, match="offset delta 1"):
        section(kernel, extreme, 2, base_timestamp=0, base_offset=2**63 - 1, last_offset_delta=1)
    # With append time the records' own timestamps do not count.
    assert section(kernel, extreme, 2, base_timestamp=2**63 - 1, append_timestamp=5).sizes[0] == 2
    largest = (2**63 - 1) // 1000
    fits = record(timestamp_delta=largest) + record(delta=1, timestamp_delta=-largest)
    assert section(kernel, fits, 2, base_timestamp=0, scale=1000).sizes[0] == 2
    for timestamp in (largest + 1, -largest - 1):
        with pytest.raises(InvalidRecordError, match=f"timestamp {timestamp}, which does not fit"):
            section(kernel, record(timestamp_delta=timestamp), 1, base_timestamp=0, scale=1000)
        with pytest.raises(InvalidRecordError, match=f"timestamp {timestamp}, which does not fit"):
            section(kernel, record(), 1, append_timestamp=timestamp, scale=1000)


@each_kernel
@pytest.mark.parametrize(
    ("start", "left"), [(-(2**63), 3), (0, 3), (100, 3), (101, 2), (103, 1), (104, 0), (2**63 - 1, 0)]
)
def test_records_before_the_start_are_checked_but_left_out(kernel: ModuleType, start: int, left: int) -> None:
    data = record(headers=HEADER) + record(delta=1, key=b"kk", headers=HEADER) + record(delta=3, key=b"k")
    scanned = section(kernel, data, 3, start_offset=start)
    found = sizes(scanned)
    assert (found["records"], found["value_bytes"], found["headers"]) == (left, left, min(max(left - 1, 0), 2))
    assert (found["null_keys"], found["key_bytes"]) == ((0, 0), (0, 1), (0, 3), (1, 3))[left]
    buffers = Buffers(kernel, scanned)
    scanned.fill(buffers.sink)
    assert buffers.sink.is_full()
    assert struct.unpack(f"={left}q", buffers.numbers[0]) == (100, 101, 103)[3 - left :]
    with pytest.raises(CorruptRecordError, match="record 0"):
        section(kernel, b"\2" + data[1:], 3, start_offset=start)


# --- the twins -------------------------------------------------------------------------------------------------------

payloads = st.none() | st.binary(max_size=5) | st.integers(0, 200).map(bytes)
headers_of = st.lists(st.tuples(st.text(max_size=3), payloads), max_size=3)
records_of = st.lists(st.tuples(payloads, payloads, headers_of, st.integers(-1, 2**62)), min_size=1, max_size=12)
mutations = st.lists(
    st.tuples(st.sampled_from(["flip", "delete", "insert"]), st.integers(0, 5000), st.integers(0, 255)), max_size=3
)


def mutated(data: bytearray, changes: list[tuple[str, int, int]]) -> bytes:
    for kind, where, byte in changes:
        position = where % (len(data) + 1)
        if kind == "insert":
            data.insert(position, byte)
        elif position < len(data):
            if kind == "delete":
                del data[position]
            else:
                data[position] ^= byte
    return bytes(data)


def check_alike(data: bytes, count: int, **options: Any) -> None:
    """Each kernel comes to the same result, and accepts what the plain parser accepts."""
    outcomes = [outcome(kernel, data, count, **options) for kernel in KERNELS]
    assert all(other == outcomes[0] for other in outcomes)
    if "scale" not in options and "append_timestamp" not in options and count >= 0:
        accepted = isinstance(outcomes[0][0], dict)
        try:
            walk_records(data, count, 1000, 1_000_000, False)
        except ApiError:
            assert not accepted
        else:
            # Without records the plain parser has nowhere to report bytes that are left over; its caller does.
            assert accepted or (count == 0 and data)


def fuzz(check: Callable[..., None], examples: int) -> Callable[[], None]:
    options = st.fixed_dictionaries(
        {},
        optional={
            "append_timestamp": st.integers(0, 2**62),
            "scale": st.just(1000),
            "start_offset": st.integers(90, 115),
        },
    )

    @settings(max_examples=examples, deadline=None)
    @given(records=records_of, changes=mutations, lie=st.sampled_from([0, 0, 0, 1, -1, 2**31]), options=options)
    def mutations_of_sections(records: Any, changes: Any, lie: int, options: dict[str, Any]) -> None:
        builder = RecordBatchBuilder()
        for key, value, headers, timestamp in records:
            builder.append(timestamp, key, value, headers)
        data = bytearray(builder.close()[61:])
        check(mutated(data, changes), min(len(records) + lie, 2**31 - 1), **options)

    return mutations_of_sections


def test_the_twins_agree_on_damaged_sections() -> None:
    fuzz(check_alike, 400)()


def usual_records(chance: random.Random) -> tuple[bytearray, list[int]]:
    """Records as most of them are, without headers and with short numbers, and where each begins."""
    data, starts, delta = bytearray(), [], -1
    for _ in range(chance.randint(1, 30)):
        delta += chance.choice([1, 1, 1, 2, 100])
        starts.append(len(data))
        timestamp_delta = chance.choice([0, 1, -1, 63, 64, -64, -65, 8191, 8192, 2**20 - 1, -(2**20), 2**20])
        key, value = [
            chance.choice([None, b"", b"k", chance.randbytes(chance.choice([5, 63, 64, 200]))]) for _ in range(2)
        ]
        if chance.random() < 0.1:
            value = bytes(chance.choice([8191, 8192, 9000]))
        headers = HEADER if chance.random() < 0.05 else b"\0"
        data += record(delta=delta, timestamp_delta=timestamp_delta, key=key, value=value, headers=headers)
    return data, starts


def test_the_twins_agree_on_usual_records() -> None:
    """These take a short way where they are compiled; damage is done where their numbers are."""
    largest = 2**63 - 1
    for seed in range(1500):
        chance = random.Random(seed)
        data, starts = usual_records(chance)
        for _ in range(chance.choice([0, 0, 1, 1, 2])):
            at = min(chance.choice(starts) + chance.choice([*range(8), -1]), len(data) - 1)
            data[at] = chance.choice([data[at] ^ 1 << chance.randrange(8), data[at] ^ 1, 0x80, 0xFF, 0, 1])
        options: dict[str, Any] = {}
        if chance.random() < 0.3:
            options["scale"] = 1000
        bound = largest // options.get("scale", 1)
        if chance.random() < 0.3:
            options["append_timestamp"] = chance.choice([-1, 5, bound, bound + 1 if bound < largest else 0, -bound])
        if chance.random() < 0.3:
            options["base_timestamp"] = chance.choice(
                [0, bound, bound - 100, bound - 2**20, bound - 2**21, 100 - bound]
            )
        if chance.random() < 0.3:
            options["start_offset"] = 100 + chance.randrange(40)
        if chance.random() < 0.2:
            options["last_offset_delta"] = len(starts) - 1
        cut = len(data) - chance.choice([0, 0, 0, 1, 5])
        count = len(starts) + chance.choice([0, 0, 0, 0, 1, -1])
        outcomes = [outcome(kernel, bytes(data[:cut]), count, **options) for kernel in KERNELS]
        assert all(other == outcomes[0] for other in outcomes), f"seed {seed}"


@each_kernel
def test_sections_of_many_sizes_in_many_threads(kernel: ModuleType) -> None:
    """The compiled kernel passes the memory of its notes from one section to the next: it has one owner at a time."""
    rounds = 20 if "compiled" in kernel.__name__ else 1
    kinds = []
    for count, value in ((3, b"a"), (500, b"b"), (3000, b"c"), (9000, b"d"), (9000, b"e")):
        data = b"".join([record(delta=delta, value=value) for delta in range(count)])
        offsets = struct.pack(f"={count}q", *range(100, 100 + count))
        kinds.append((data, count, bytearray(value * count), offsets))

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(rounds):
            kept = [(section(kernel, kind[0], kind[1]), kind) for kind in chance.choices(kinds, k=3)]
            chance.shuffle(kept)
            for scanned, (_, _, values, offsets) in kept:
                buffers = Buffers(kernel, scanned)
                scanned.fill(buffers.sink)
                assert buffers.values[2] == values
                assert buffers.numbers[0] == offsets

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, seed) for seed in range(4)]:
            done.result(60)


@pytest.mark.skipif(len(KERNELS) < 2, reason="the twin leaves memory to Python")
@pytest.mark.skipif(sys.platform != "linux", reason="counts page faults")
def test_no_fresh_memory_for_every_section() -> None:
    import resource

    count = 9000  # notes of 360 kB
    data = b"".join([record(delta=delta) for delta in range(count)])
    for kernel in KERNELS[1:]:
        counts = []
        for _ in range(12):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            kept = [section(kernel, data, count) for _ in range(8)]
            counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
            kept.clear()
        assert statistics.median(counts) < 100  # of 700 pages


@pytest.mark.parametrize("kernel", KERNELS[1:])
def test_a_section_is_of_one_batch_only(kernel: ModuleType) -> None:
    scanned = section(kernel, record(), 1)
    with pytest.raises(ValueError, match="one batch"):
        scanned.__init__(record(), 1, 0, 0, 0, None, 0, 1)


@pytest.mark.nightly
def test_the_twins_agree_on_very_many_damaged_sections() -> None:
    fuzz(check_alike, 50_000)()


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=80), count=st.integers(0, 12))
def test_the_twins_agree_on_any_bytes(data: bytes, count: int) -> None:
    check_alike(data, count)


def test_the_twins_agree_on_very_many_headers() -> None:
    """More than the twin reads side by side: it then walks."""
    entry = encode_varint(1) + b"h" + encode_varint(3) + b"abc"
    data = record(headers=encode_varint(200) + entry * 200) + record(delta=1, headers=encode_varint(2) + entry * 2)
    check_alike(data, 2)
    assert sizes(section(KERNELS[0], data, 2))["header_value_bytes"] == 606


# --- buffers ---------------------------------------------------------------------------------------------------------


@each_kernel
def test_several_sections_fill_one_set_of_columns(kernel: ModuleType) -> None:
    parts = [
        section(
            kernel,
            b"".join(record(delta=i, key=None if i % 3 else b"k") for i in range(count)),
            count,
            base_offset=base,
        )
        for base, count in ((0, 3), (10, 0), (20, 6), (30, 11))
    ]
    buffers = Buffers(kernel, *parts)
    assert not buffers.sink.is_full()
    for part in parts:
        part.fill(buffers.sink)
    assert buffers.sink.is_full()
    validity, offsets, data = buffers.keys
    keys = pa.Array.from_buffers(pa.binary(), 20, [pa.py_buffer(part) for part in (validity, offsets, data)])
    keys.validate(full=True)
    expected = [None if i % 3 else b"k" for count in (3, 6, 11) for i in range(count)]
    assert keys.to_pylist() == expected
    with pytest.raises(CorruptRecordError, match="changed while it was being read"):
        parts[0].fill(buffers.sink)


@each_kernel
def test_a_sink_that_is_too_small_is_never_overrun(kernel: ModuleType) -> None:
    scanned = section(kernel, record(key=b"abc", headers=HEADER) + record(delta=1), 2)
    small = section(kernel, record(key=b"ab", headers=HEADER) + record(delta=1, value=None), 2)
    with pytest.raises(CorruptRecordError, match="changed while it was being read"):
        scanned.fill(Buffers(kernel, small).sink)
    no_headers = section(kernel, record(key=b"abc") + record(delta=1), 2)
    with pytest.raises(CorruptRecordError, match="changed while it was being read"):
        scanned.fill(Buffers(kernel, no_headers).sink)
    larger = Buffers(kernel, scanned, scanned)
    scanned.fill(larger.sink)
    assert not larger.sink.is_full()


@pytest.mark.skipif(len(KERNELS) < 2, reason="the twin works on a copy")
def test_bytes_that_change_between_the_passes_do_no_harm() -> None:
    original = record(key=b"k", value=b"ab", headers=HEADER)
    for position in range(len(original)):
        for change in (0x01, 0x7F, 0xFF):
            data = bytearray(original)
            scanned = section(KERNELS[1], data, 1)
            buffers = Buffers(KERNELS[1], scanned)
            data[position] ^= change
            try:
                scanned.fill(buffers.sink)
            except CorruptRecordError as error:
                # Headers are the only thing that the second pass reads again.
                assert position >= len(original) - len(HEADER)
                assert "changed while it was being read" in str(error)  # noqa: PT017 - only some positions raise
            else:
                assert buffers.keys[1] == buffers.header_keys[1] == bytearray(struct.pack("=2i", 0, 1))
                assert buffers.values[1] == bytearray(struct.pack("=2i", 0, 2))
    data = bytearray(original)
    scanned = section(KERNELS[1], data, 1)
    buffers = Buffers(KERNELS[1], scanned)
    data[-len(HEADER) + 1 :] = encode_varint(2) + b"hx" + encode_varint(0)
    with pytest.raises(CorruptRecordError, match="changed while it was being read"):
        scanned.fill(buffers.sink)


TOO_SHORT = r"Arrow array|offsets buffer|validity bitmap"


@each_kernel
def test_buffers_that_are_too_short_for_their_arrays(kernel: ModuleType) -> None:
    two = struct.pack("=3i", 0, 1, 2)
    column = kernel.BinaryColumn(None, two, b"ab", False, 0, 2)
    for arguments in (
        (None, two, b"ab", False, 0, 3),
        (None, two, b"ab", False, 1, 2),
        (None, two, b"ab", True, 0, 2),
        (None, None, b"ab", False, 0, 1),
        (b"", two, b"ab", False, 0, 2),
        (None, two, b"ab", False, -1, 2),
        (None, two, b"ab", False, 0, -1),
    ):
        with pytest.raises(ValueError, match=TOO_SHORT):
            kernel.BinaryColumn(*arguments)
        with pytest.raises(ValueError, match=TOO_SHORT):
            kernel.HeaderColumn(*(arguments[:2] + arguments[3:]), column, column)
    one = kernel.BinaryColumn(None, two, b"ab", False, 0, 1)
    with pytest.raises(ValueError, match="differ in number"):
        kernel.HeaderColumn(None, two, False, 0, 2, column, one)
    with pytest.raises(ValueError, match="fewer timestamps than values"):
        kernel.Encoder(None, column, None, bytes(15), 0, 0)
    with pytest.raises(ValueError, match="validity bitmap"):
        kernel.BinarySink(bytearray(1), bytearray(4 * 10), bytearray(0))
    with pytest.raises(ValueError, match="aligned"):
        kernel.BinarySink(None, bytearray(0), bytearray(0))
    with pytest.raises(ValueError, match="no room for 3"):
        kernel.ColumnSink(3, None, None, bytearray(16), None, None, None, None, None)
    with pytest.raises(ValueError, match="need their keys and values"):
        kernel.ColumnSink(1, None, None, None, None, None, bytearray(8), None, None)
    with pytest.raises(ValueError, match="none"):
        section(kernel, b"", 0, scale=0)
    with pytest.raises((BufferError, ValueError)):
        kernel.BinarySink(None, bytes(8), bytearray(1))


@each_kernel
@pytest.mark.parametrize("offsets", [(0, 9), (2, 1), (-1, 1)])
def test_offsets_that_point_outside_the_data(kernel: ModuleType, offsets: tuple[int, int]) -> None:
    two = struct.pack("=2i", *offsets)
    fine = kernel.BinaryColumn(None, struct.pack("=2i", 0, 1), b"a", False, 0, 1)

    def value() -> Any:
        return kernel.Encoder(None, kernel.BinaryColumn(None, two, b"abc", False, 0, 1), None, None, 0, 0)

    def key() -> Any:
        return kernel.Encoder(kernel.BinaryColumn(None, two, b"abc", False, 0, 1), fine, None, None, 0, 0)

    def headers() -> Any:
        return kernel.Encoder(None, fine, kernel.HeaderColumn(None, two, False, 0, 1, fine, fine), None, 0, 0)

    for encoder in (value, key, headers):
        with pytest.raises(ValueError, match="record 0: the array's offsets point outside its data"):
            encoder().measure(0, 1000)


@each_kernel
def test_sections_that_were_not_measured_are_not_written(kernel: ModuleType) -> None:
    column = kernel.BinaryColumn(None, struct.pack("=3i", 0, 1, 2), b"ab", False, 0, 2)
    encoder = kernel.Encoder(None, column, None, None, 0, 7)
    count, size = encoder.measure(0, 1000)
    assert (count, size, encoder.length, encoder.base_timestamp(1)) == (2, 16, 2, 7)
    assert encoder.measure(0, 15) == (1, 8)
    assert encoder.measure(0, 1) == (1, 8)
    assert encoder.measure(2, 1000) == (0, 0)
    for arguments in ((0, 2, 15, 0), (0, 2, 17, 0), (0, 3, 24, 0), (-1, 1, 8, 0), (0, 0, 0, 0), (0, 2, 16, -1)):
        with pytest.raises(ValueError, match="records from"):
            encoder.write(*arguments)
    for first in (-1, 3):
        with pytest.raises(ValueError, match="no record"):
            encoder.measure(first, 1000)
        with pytest.raises(ValueError, match="no record"):
            encoder.base_timestamp(first)
    out, latest = encoder.write(0, 2, 16, 3)
    assert (bytes(out[:3]), len(out), latest) == (b"\0\0\0", 19, 7)


@each_kernel
def test_a_buffer_that_was_used_before(kernel: ModuleType) -> None:
    """Whatever was in it, and however long it was: the bytes are those that a new one gets."""
    column = kernel.BinaryColumn(None, struct.pack("=4i", 0, 1, 2, 100), b"ab" + b"x" * 98, False, 0, 3)
    encoder = kernel.Encoder(None, column, None, None, 0, 7)
    for before in (0, 1, 19, 5_000):
        for limit in (1_000, 16, 1):
            count, size = encoder.measure(0, limit)
            buffer = bytearray(b"\xff" * before)
            out, latest = encoder.write(0, count, size, 3, buffer)
            assert out is buffer
            assert (out, latest) == encoder.write(0, count, size, 3)
    buffer = bytearray(50)
    with memoryview(buffer), pytest.raises(BufferError):
        encoder.write(0, 2, 16, 3, buffer)


@each_kernel
def test_records_that_no_batch_can_carry(kernel: ModuleType) -> None:
    """The data is memory that is reserved but never touched: measuring looks at lengths only."""
    with mmap.mmap(-1, 5 << 29) as memory:
        view = memoryview(memory)
        offsets = struct.pack("=3q", 0, 5 << 28, 5 << 29)
        halves = kernel.BinaryColumn(None, offsets, view, True, 0, 2)
        encoder = kernel.Encoder(None, halves, None, None, 0, 0)
        count, size = encoder.measure(0, 2**40)
        assert (count, size - (5 << 28)) == (1, 15)
        whole = kernel.BinaryColumn(None, struct.pack("=2q", 0, 5 << 29), view, True, 0, 1)
        encoder = kernel.Encoder(None, whole, None, None, 0, 0)
        with pytest.raises(ValueError, match="record 0: larger than the 2147483586 bytes that a batch can carry"):
            encoder.measure(0, 2**40)
        array = pa.Array.from_buffers(pa.large_binary(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(view)])
        with pytest.raises(ValueError, match="2 records do not fit into one batch of 2 GiB"):
            encode_batch(values=array, timestamps=0)
        del encoder, whole, halves, array
        view.release()


@each_kernel
def test_threads_do_not_disturb_each_other(kernel: ModuleType) -> None:
    values = pa.array([bytes([i % 251]) * (i % 90) for i in range(3000)])
    _, offsets, data = values.buffers()
    encoder = kernel.Encoder(None, kernel.BinaryColumn(None, offsets, data, False, 0, 3000), None, None, 0, 0)

    def work(first: int) -> bytes:
        count, size = encoder.measure(first, 1 << 30)
        return bytes(encoder.write(first, count, size, 0)[0])

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, [0, 500, 0, 500] * 8))
    assert set(results) == {work(0), work(500)}
    assert len(set(results[0::2])) == len(set(results[1::2])) == 1
