"""Records as an application gets them: the compiled reader and its twin say the same about any bytes."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas._kernels.pure import consumer_record as pure
from barnabas.clients.consumer.errors import RecordDeserializationError
from barnabas.common.errors import ApiError
from barnabas.records.batch import RecordBatch
from barnabas.records.builder import RecordBatchBuilder

compiled: Any = pytest.importorskip("barnabas._kernels.compiled.consumer_record")
READERS = [pure, compiled]

FIELDS = (
    "topic",
    "partition",
    "offset",
    "key",
    "value",
    "headers",
    "timestamp",
    "timestamp_type",
    "serialized_key_size",
    "serialized_value_size",
    "leader_epoch",
)
field = st.none() | st.binary(max_size=200)
record = st.tuples(
    st.integers(0, 10**6), field, field, st.lists(st.tuples(st.text(max_size=5), field), max_size=3).map(tuple)
)


def section(records: list[tuple[int, bytes | None, bytes | None, Any]]) -> RecordBatch:
    builder = RecordBatchBuilder(base_offset=100)
    for timestamp, key, value, headers in records:
        builder.append(timestamp, key, value, headers)
    return RecordBatch(bytes(builder.close()))


def reader(module: Any, data: Any, count: int, start: int = 0, log_append_time: int | None = None, **given: Any) -> Any:
    return module.ConsumerRecordReader(
        data,
        count,
        100,
        given.pop("base", 0),
        log_append_time,
        start,
        "t",
        3,
        5,
        (given.get("key"), given.get("value")),
    )


def read_all(module: Any, data: Any, count: int, step: int, **arguments: Any) -> tuple[list[Any], str | None, int]:
    made = reader(module, data, count, **arguments)
    found: list[Any] = []
    error = None
    for _ in range(count + 2):
        try:
            made.read(found, step)
        except ApiError as caught:
            error = str(caught)
            break
        if made.exhausted:
            break
    return [tuple(getattr(one, name) for name in FIELDS) for one in found], error, made.next_offset


@given(st.lists(record, min_size=1, max_size=20), st.integers(1, 7), st.integers(95, 125))
def test_twins_agree(records: list[Any], step: int, start: int) -> None:
    batch = section(records)
    arguments = {"start": start, "base": batch.base_timestamp}
    data = batch.records_view
    seen = [read_all(module, data, len(records), step, **arguments) for module in READERS]
    assert seen[0] == seen[1]
    assert len(seen[0][0]) == len([number for number in range(100, 100 + len(records)) if number >= start])


@given(st.lists(record, min_size=1, max_size=5), st.data())
def test_twins_agree_about_damage(records: list[Any], data: st.DataObject) -> None:
    batch = section(records)
    octets = bytearray(batch.records_view)
    at = data.draw(st.integers(0, len(octets) - 1))
    octets[at] ^= data.draw(st.integers(1, 255))
    cut = bytes(octets[: data.draw(st.integers(0, len(octets)))])
    seen = [read_all(module, cut, len(records), 3, base=batch.base_timestamp) for module in READERS]
    assert seen[0] == seen[1]


@pytest.mark.parametrize("module", READERS)
def test_append_time_and_epoch(module: Any) -> None:
    batch = section([(5, None, b"x", ())])
    found: list[Any] = []
    size = reader(module, batch.records_view, 1, log_append_time=77).read(found, 10)
    assert size == len(batch.records_view)
    assert (found[0].timestamp, found[0].timestamp_type, found[0].leader_epoch) == (77, 1, 5)
    assert found[0].topic_partition == ("t", 3)
    assert "offset=100" in repr(found[0])


@pytest.mark.parametrize("module", READERS)
def test_a_deserializer_that_fails_is_met_again(module: Any) -> None:
    batch = section([(0, b"1", b"1", ()), (0, b"x", b"x", ()), (0, b"3", b"3", ())])
    made = reader(
        module, batch.records_view, 3, key=lambda _topic, _headers, data: int(data) if data != b"x" else 0,
        value=lambda _topic, _headers, data: int(data),
    )  # fmt: skip
    found: list[Any] = []
    for _ in range(2):
        with pytest.raises(RecordDeserializationError, match=r"VALUE .* offset 101"):
            made.read(found, 10)
    assert [one.value for one in found] == [1]
    assert made.next_offset == 101


@pytest.mark.parametrize("module", READERS)
def test_a_deserializer_cannot_read_from_its_own_consumer(module: Any) -> None:
    """The compiled reader would continue without its buffer, and end the process."""
    batch = section([(0, None, b"%d" % number, ()) for number in range(3)])
    nested: list[Any] = []
    refused: list[str] = []

    def deserialize(_topic: str, _headers: Any, data: bytes) -> bytes:
        with pytest.raises(RuntimeError, match="must not read from the consumer that called it") as error:
            made.read(nested, 1)
        refused.append(str(error.value))
        return data

    made = reader(module, batch.records_view, 3, value=deserialize)
    found: list[Any] = []
    made.read(found, 10)
    assert [one.value for one in found] == [b"0", b"1", b"2"]
    assert (nested, len(refused), made.exhausted) == ([], 3, True)


def test_records_can_be_compared_kept_and_sent() -> None:
    one = compiled.ConsumerRecord("t", 0, 1, b"k", b"v", headers=[("a", None)], timestamp=3, leader_epoch=2)
    assert pickle.loads(pickle.dumps(one)) == one
    assert hash(one) == hash(compiled.ConsumerRecord("t", 0, 1))
    assert one != compiled.ConsumerRecord("t", 0, 1, b"k", b"w")
    assert one != 5
