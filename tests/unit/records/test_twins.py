"""The compiled record codec and its twin in plain Python: the same results for the same inputs, errors included."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from operator import attrgetter
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas._kernels.faults import Fault, record_error
from barnabas._kernels.pure import append_state as pure_state
from barnabas._kernels.pure import record_codec as pure
from barnabas._kernels.varint import encode_varint, encode_varlong
from barnabas.common.errors import ApiError
from unit.records.strategies import RecordInput, mutate, payloads, record_inputs, section_of

FIELDS = attrgetter("offset", "timestamp", "key", "value", "headers", "size_in_bytes")

states = (pytest.importorskip("barnabas._kernels.compiled.append_state", reason="it was not built"), pure_state)
compiled = pytest.importorskip("barnabas._kernels.compiled.record_codec", reason="the compiled codec was not built")

Outcome = tuple[str, Any]


def outcome(call: Callable[[], Any]) -> Outcome:
    """What comes of it: a value, or which error and what it says."""
    try:
        return "value", call()
    except ApiError as error:
        return type(error).__name__, str(error)


def read(twin: ModuleType, section: bytes, count: int, **options: Any) -> list[Any]:
    """All records up to the first fault, then the fault."""
    arguments = {"base_offset": 5, "base_timestamp": 1000, "log_append_time": None, "copy": True} | options
    seen: list[Any] = []
    records = twin.iterate_records(section, count, **arguments)
    try:
        seen.extend(map(FIELDS, records))
    except ApiError as error:
        seen.append((type(error).__name__, str(error)))
    seen.append(list(records))
    return seen


def walk(twin: ModuleType, section: bytes, count: int, base_timestamp: int, last: int, consecutive: bool) -> Outcome:
    return outcome(lambda: twin.walk_records(section, count, base_timestamp, last, consecutive))


def agree(section: bytes, count: int, base_timestamp: int = 1000, last: int | None = None) -> Outcome:
    """Asks both twins everything about a section; they must agree. Returns the verdict of the walk."""
    last = count - 1 if last is None else last
    assert read(compiled, section, count, base_timestamp=base_timestamp) == read(
        pure, section, count, base_timestamp=base_timestamp
    )
    for options in ({"log_append_time": 7}, {"copy": False}):
        assert read(compiled, section, count, **options) == read(pure, section, count, **options)
    verdicts = []
    for consecutive in (False, True):
        verdicts.append(walk(compiled, section, count, base_timestamp, last, consecutive))
        assert verdicts[-1] == walk(pure, section, count, base_timestamp, last, consecutive)
    return verdicts[-1]


def record(*fields: bytes, length: int | None = None) -> bytes:
    body = b"".join(fields)
    return encode_varint(len(body) if length is None else length) + body


HEAD = b"\0" + encode_varlong(0) + encode_varint(0)  # attributes, timestamp delta, offset delta
NULL = encode_varint(-1)
NO_HEADERS = encode_varint(0)


@pytest.mark.parametrize(
    ("section", "fault", "detail"),
    [
        (b"", Fault.TRUNCATED, 0),
        (b"\x80", Fault.TRUNCATED, 0),
        (record(HEAD, NULL, b"\x80\x80"), Fault.TRUNCATED, 0),
        (record(HEAD, NULL, encode_varint(1), b"v"), Fault.TRUNCATED, 0),
        (record(HEAD, NULL, NULL, encode_varint(1), encode_varint(1), b"k"), Fault.TRUNCATED, 0),
        (b"\xff" * 5 + b"\0", Fault.OVERLONG_VARINT, 0),
        (bytes.fromhex("8080808010"), Fault.OVERLONG_VARINT, 0),
        (record(b"\0", b"\xff" * 10, b"\0" * 20), Fault.OVERLONG_VARINT, 0),
        (record(b"\0", b"\xff" * 9 + b"\x02", b"\0" * 20), Fault.OVERLONG_VARINT, 0),
        (encode_varint(-1) + b"\0" * 20, Fault.RECORD_LENGTH, -1),
        (encode_varint(21) + b"\0" * 20, Fault.RECORD_LENGTH, 21),
        (encode_varint(2**31 - 1) + b"\0" * 20, Fault.RECORD_LENGTH, 2**31 - 1),
        (encode_varint(0), Fault.RECORD_LENGTH, 0),
        (record(HEAD), Fault.RECORD_LENGTH, 3),
        (record(HEAD, NULL, NULL, NO_HEADERS, length=5), Fault.RECORD_LENGTH, 5),
        (record(HEAD, encode_varint(-2), NULL, NO_HEADERS), Fault.FIELD_LENGTH, -2),
        (record(HEAD, NULL, encode_varint(-(2**31)), NO_HEADERS), Fault.FIELD_LENGTH, -(2**31)),
        (record(HEAD, NULL, encode_varint(5), b"abc", length=8), Fault.FIELD_LENGTH, 5),
        (record(HEAD, encode_varint(50), b"abc", length=7), Fault.FIELD_LENGTH, 50),
        (record(HEAD, NULL, encode_varint(3), b"abcd", NO_HEADERS, length=7), Fault.FIELD_LENGTH, 3),
        (record(HEAD, NULL, NULL, encode_varint(1), encode_varint(9), b"k", length=8), Fault.FIELD_LENGTH, 9),
        (
            record(HEAD, NULL, NULL, encode_varint(1), encode_varint(1), b"k", encode_varint(9), b"v", length=10),
            Fault.FIELD_LENGTH,
            9,
        ),
        (record(HEAD, NULL, NULL, encode_varint(-1)), Fault.HEADER_COUNT, -1),
        (record(HEAD, NULL, NULL, encode_varint(1000)), Fault.HEADER_COUNT, 1000),
        (record(HEAD, NULL, NULL, encode_varint(2**31 - 1), b"xx"), Fault.HEADER_COUNT, 2**31 - 1),
        (record(HEAD, NULL, NULL, encode_varint(1), NULL, NULL), Fault.NULL_HEADER_KEY, -1),
        (record(HEAD, NULL, NULL, encode_varint(1), encode_varint(-2), NULL), Fault.NULL_HEADER_KEY, -2),
        (record(HEAD, NULL, NULL, encode_varint(1), NO_HEADERS, encode_varint(-3)), Fault.FIELD_LENGTH, -3),
        (record(HEAD, NULL, NULL, NO_HEADERS, b"!!"), Fault.RECORD_SIZE, 2),
        (record(HEAD, NULL, NULL, NO_HEADERS) + b"!!!", Fault.TRAILING_BYTES, 3),
        (record(b"\0", encode_varlong(2**63 - 1), b"\0", NULL, NULL, NO_HEADERS), Fault.TIMESTAMP_RANGE, 0),
        (record(b"\0", b"\0", encode_varint(1), NULL, NULL, NO_HEADERS), Fault.OFFSET_DELTA, 1),
        (record(b"\0", b"\0", encode_varint(-1), NULL, NULL, NO_HEADERS), Fault.OFFSET_DELTA, -1),
    ],
)
def test_each_fault(section: bytes, fault: Fault, detail: int) -> None:
    expected = record_error(fault, 0, 0, detail)
    assert agree(section, 1) == (type(expected).__name__, str(expected))


def test_offset_deltas_of_compacted_batches() -> None:
    def section(*deltas: int) -> bytes:
        return b"".join(record(b"\0\0", encode_varint(delta), NULL, NULL, NO_HEADERS) for delta in deltas)

    for deltas, last, is_legal in [
        ((0, 5, 9), 9, True),
        ((3,), 3, True),
        ((0, 0), 5, False),
        ((4, 2), 5, False),
        ((0, 6), 5, False),
        ((-1,), 5, False),
    ]:
        agree(section(*deltas), len(deltas), last=last)
        verdict, value = walk(compiled, section(*deltas), len(deltas), 0, last, False)
        assert verdict == ("value" if is_legal else "InvalidRecordError"), (deltas, value)


def test_padded_numbers_are_read() -> None:
    padded = record(b"\0", b"\x80\0", b"\x80\x80\0", b"\x81\0", b"\x81\x80\0", b"\x80\0")
    assert agree(padded, 1) == ("value", (1000, 1000, 0, 0))
    assert read(compiled, padded, 1)[0] == (5, 1000, None, None, (), len(padded))


@given(st.lists(record_inputs, max_size=6), st.integers(-(2**63), 2**63 - 1), st.integers(0, 8))
def test_good_sections(records: list[RecordInput], base_timestamp: int, count: int) -> None:
    section = section_of(records)
    agree(section, len(records), base_timestamp)
    agree(section, count, base_timestamp)


@given(st.binary(max_size=60), st.integers(0, 4))
def test_any_bytes(section: bytes, count: int) -> None:
    agree(section, count)


@given(st.lists(record_inputs, min_size=1, max_size=4), st.integers(0, 2**32))
def test_damaged_sections(records: list[RecordInput], seed: int) -> None:
    agree(mutate(section_of(records), random.Random(seed)), len(records))


@given(
    st.none() | st.integers(-1, 2**63 - 1),
    st.integers(0, 300),
    st.sampled_from([1.0, 0.5, 1.05]),
    st.lists(st.tuples(record_inputs, st.integers(0, 4), st.booleans()), max_size=8),
)
def test_writing(
    base_timestamp: int | None, max_size: int, factor: float, steps: list[tuple[RecordInput, int, bool]]
) -> None:
    twins = [twin.AppendState(base_timestamp, max_size, factor) for twin in states]

    def same(question: Callable[[Any], Any]) -> Any:
        first, second = (question(twin) for twin in twins)
        assert first == second
        return first

    for inputs, gap, only_if_room in steps:
        same(lambda twin: twin.has_room_for(inputs.key, inputs.value, inputs.headers))  # noqa: B023
        same(lambda twin: twin.has_room_for(inputs.key, inputs.value, inputs.headers, inputs.timestamp))  # noqa: B023
        if only_if_room:
            same(lambda twin: twin.try_append(*inputs))  # noqa: B023
        elif gap:
            same(lambda twin: twin.append_with_delta(twin.last_offset_delta + gap, *inputs))  # noqa: B023
        else:
            same(lambda twin: twin.append(*inputs))  # noqa: B023
        same(lambda twin: (twin.record_count, twin.last_offset_delta, twin.records_size, twin.estimated_size))
        same(lambda twin: (twin.base_timestamp, twin.max_timestamp, twin.offset_delta_of_max_timestamp))
    same(lambda twin: twin.is_open)
    taken = same(lambda twin: twin.take(61))
    assert type(taken) is bytearray
    for twin in twins:
        assert not twin.is_open
        with pytest.raises(RuntimeError, match="taken already"):
            twin.take(61)
        with pytest.raises(RuntimeError, match="closed"):
            twin.append(1, None, None)


def shown_fields(future: Any) -> tuple[Any, ...]:
    return future.batch_result, future.index, future.timestamp_ms, future.key_size, future.value_size


@given(
    st.integers(60, 400),
    st.integers(0, 400),
    st.integers(0, 400),
    st.sampled_from([1.0, 0.5, 1.05]),
    st.lists(st.tuples(record_inputs, st.booleans(), st.booleans(), st.booleans(), st.booleans()), max_size=8),
)
def test_accepting(
    max_size: int,
    limit: int,
    sticky_limit: int,
    factor: float,
    steps: list[tuple[RecordInput, bool, bool, bool, bool]],
) -> None:
    """Futures, callbacks, limits and counts of the append state."""
    twins, now = [], iter(range(1, 100))
    for twin in states:
        appender = twin.AppendState(None, max_size, factor)
        appender.give_futures(twin.RecordFuture, "result", lambda: 7)
        appender.limit, appender.sticky_limit = limit, sticky_limit
        twins.append(appender)
    accepted = 0
    for inputs, sticky, decided, dated, called in steps:
        callback = next(now) if called else None
        before = twins[0].estimated_size
        futures = [
            twin.accept(
                inputs.timestamp if dated else None, inputs.key, inputs.value, inputs.headers, callback, sticky, decided
            )
            for twin in twins
        ]
        shown = [None if future is None else shown_fields(future) for future in futures]
        assert shown[0] == shown[1]
        assert shown[0] is None or shown[0][:2] == ("result", accepted)
        accepted += shown[0] is not None
        for name in ("record_count", "estimated_size", "max_record_size", "max_timestamp", "is_open"):
            assert getattr(twins[0], name) == getattr(twins[1], name), name
        assert [thunk[:2] for thunk in twins[0].thunks or ()] == [thunk[:2] for thunk in twins[1].thunks or ()]
        if not decided and shown[0] is not None:
            assert twins[0].estimated_size < limit
            assert not sticky or before < sticky_limit, "only the record that reaches the share is taken"
    assert twins[0].take_sticky_bytes() == twins[1].take_sticky_bytes() <= twins[0].estimated_size
    assert twins[0].take_sticky_bytes() == 0
    for twin in twins:
        twin.close_for_appends()
        assert twin.accept(1, None, None, (), None, False, True) is None
    assert twins[0].take(61) == twins[1].take(61)


@pytest.mark.parametrize(
    "record",
    [
        (-1, None, b"v", ()),
        (1, "text", b"v", ()),
        (1, None, bytearray(b"v"), ()),
        (1, None, b"v", {"a": b"b"}),
    ],
)
def test_what_is_not_accepted_as_it_is(record: tuple[Any, ...]) -> None:
    for twin in states:
        appender = twin.AppendState(None, 1000, 1.0)
        appender.give_futures(twin.RecordFuture, None, None)
        assert appender.accept(*record, None, False, True) is None
        assert appender.record_count == 0


@given(payloads, payloads, st.lists(st.tuples(st.text(max_size=5), payloads), max_size=3))
def test_sizes(key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]) -> None:
    assert compiled.size_of_payload(key, value, headers) == pure.size_of_payload(key, value, headers)
    assert compiled.encode_headers(headers) == pure.encode_headers(headers)


def test_errors_of_the_writers_agree() -> None:
    bad: list[tuple[Any, ...]] = [
        (-2, None, None),
        (2**63, None, None),
        (1, "text", None),
        (1, None, 3.5),
        (1, None, None, [("h", "text")]),
        (1, None, None, [(1, b"")]),
    ]
    for arguments in bad:
        for method in ("append", "try_append"):
            raised = []
            for twin in states:
                appender = twin.AppendState(None, 1000, 1.0)
                with pytest.raises((TypeError, ValueError)) as caught:
                    getattr(appender, method)(*arguments)
                raised.append(caught.type)
            assert raised[0] is raised[1]
    for twin in states:
        with pytest.raises(ValueError, match="invalid timestamp -5"):
            twin.AppendState(-5, 1000, 1.0)


def test_taking_with_another_reserve() -> None:
    for twin in states:
        for reserve in (0, 5, 61, 100):
            appender = twin.AppendState(None, 1000, 1.0)
            appender.append(1, None, b"v")
            assert appender.take(reserve) == bytes(reserve) + record(HEAD, NULL, encode_varint(1), b"v", NO_HEADERS)


def test_importing_the_package_is_cheap() -> None:
    program = (
        "import sys, barnabas.records, barnabas.records.validation, barnabas.records.control\n"
        "print(*sorted({'numpy', 'pyarrow', 'crc32c', 'barnabas._kernels.pure.record_codec'} & set(sys.modules)))"
    )
    inherited = {name: value for name, value in os.environ.items() if name != "BARNABAS_PURE"}
    loaded = subprocess.run([sys.executable, "-c", program], env=inherited, capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == ""
