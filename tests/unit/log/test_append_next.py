"""Index entries in a hurry: the same index as by the way that checks everything, and no entry that it would refuse."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from barnabas.common.clock import MockClock
from barnabas.log import abstract_index
from barnabas.log.abstract_index import AbstractIndex
from barnabas.log.log_config import LogConfig
from barnabas.log.log_segment import LogSegment
from barnabas.log.offset_index import OffsetIndex, OffsetPosition
from barnabas.log.storage_errors import FileClosedError
from barnabas.log.time_index import TimeIndex, TimestampOffset
from log_fixtures import NOW, client_batch

BASE = 1_000


def append_checked(index: AbstractIndex, first: int, second: int) -> None:
    if isinstance(index, TimeIndex):
        index.maybe_append(first, second)
    elif isinstance(index, OffsetIndex):
        index.append(first, second)


def append_in_a_hurry(index: AbstractIndex, first: int, second: int) -> None:
    if isinstance(index, TimeIndex):
        index.append_next(first, second - BASE, TimestampOffset(first, second))
    else:
        index.append_next(first - BASE, second, OffsetPosition(first, second))


def state(index: Any) -> tuple[Any, ...]:
    return (
        index.entries,
        index.is_full,
        index.last_entry,
        type(index.last_entry),
        [index.entry(slot) for slot in range(index.entries)],
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
def test_both_ways_lead_to_the_same_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[AbstractIndex], seed: int
) -> None:
    monkeypatch.setattr(abstract_index, "WARM_BYTES", 240)  # so that entries leave memory, too
    source = random.Random(seed)
    size = source.choice([120, 600, 1_200])
    checked, hurried = kind(tmp_path / "checked", BASE, size), kind(tmp_path / "hurried", BASE, size)
    first, second = (NOW, BASE) if kind is TimeIndex else (BASE, 0)
    while not checked.is_full:
        first += source.randrange(1, 100)
        second += source.randrange(1, 100)
        append_checked(checked, first, second)
        append_in_a_hurry(hurried, first, second)
        assert len(hurried._keys) == len(checked._keys) <= 240 // kind.layout.size
        assert state(hurried) == state(checked)
        if source.random() < 0.1:
            target = source.randrange(first - 300, first + 1)
            assert hurried.lookup(target) == checked.lookup(target)  # type: ignore[attr-defined]
    assert hurried.is_full
    for index in (checked, hurried):
        index.close()
    assert (tmp_path / "hurried").read_bytes() == (tmp_path / "checked").read_bytes()


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
def test_a_closed_index_takes_nothing(tmp_path: Path, kind: type[AbstractIndex]) -> None:
    index = kind(tmp_path / "index", BASE, 120)
    index.close()
    with pytest.raises(FileClosedError):
        append_in_a_hurry(index, BASE + 5, BASE + 5)


@pytest.mark.parametrize(("offset", "timestamp"), [(BASE + 50, NOW + 500), (BASE + 20, NOW + 500)])
def test_what_is_not_in_order_is_refused_as_ever(tmp_path: Path, offset: int, timestamp: int) -> None:
    """An index that is ahead of its log, which cannot be, is complained about and not made worse."""
    config = LogConfig(index_interval_bytes=100)
    segment = LogSegment(BASE, tmp_path, config, MockClock(NOW))
    segment.append(BASE, NOW, BASE, client_batch([b"x" * 300], timestamp=NOW))
    segment.append(BASE + 1, NOW + 1, BASE + 1, client_batch([b"x" * 300], timestamp=NOW + 1))
    assert segment.rolling_based_timestamp == NOW
    if offset == BASE + 50:
        segment.offset_index.append(offset, segment.size)
    segment.time_index.maybe_append(NOW + 2, BASE + 60)
    entries = segment.offset_index.entries, segment.time_index.entries
    batch = client_batch([b"x" * 1_000], timestamp=timestamp)
    segment.records.append(bytes(200))  # for an entry to be due
    with pytest.raises(ValueError, match="cannot be for"):
        segment.append_if_room(BASE + 20, timestamp, memoryview(batch), len(batch), config, NOW)
    assert segment.time_index.entries == entries[1]
    assert segment.offset_index.entries <= entries[0] + (offset == BASE + 20)
    segment.close_handlers()
