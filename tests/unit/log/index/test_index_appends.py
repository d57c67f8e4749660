"""Entries that an index must refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.common.clock import MockClock
from barnabas.log.config.log_config import LogConfig
from barnabas.log.index.abstract_index import AbstractIndex
from barnabas.log.index.offset_index import OffsetIndex
from barnabas.log.index.time_index import TimeIndex
from barnabas.log.segment.log_segment import LogSegment
from barnabas.log.storage_errors import FileClosedError
from log_fixtures import NOW, client_batch

BASE = 1_000


def append_entry(index: AbstractIndex, first: int, second: int) -> None:
    if isinstance(index, TimeIndex):
        index.maybe_append(first, second)
    elif isinstance(index, OffsetIndex):
        index.append(first, second)


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
def test_a_closed_index_takes_nothing(tmp_path: Path, kind: type[AbstractIndex]) -> None:
    index = kind(tmp_path / "index", BASE, 120)
    index.close()
    with pytest.raises((FileClosedError, ValueError)):
        append_entry(index, BASE + 5, BASE + 5)


@pytest.mark.parametrize(("offset", "timestamp"), [(BASE + 50, NOW + 500), (BASE + 20, NOW + 500)])
def test_what_is_not_in_order_is_refused(tmp_path: Path, offset: int, timestamp: int) -> None:
    """An index that is ahead of its log, which cannot be, is complained about and not made worse."""
    config = LogConfig(index_interval_bytes=100)
    segment = LogSegment(BASE, tmp_path, config, MockClock(NOW))
    segment.append(BASE, NOW, BASE, memoryview(client_batch([b"x" * 300], timestamp=NOW)))
    segment.append(BASE + 1, NOW + 1, BASE + 1, memoryview(client_batch([b"x" * 300], timestamp=NOW + 1)))
    assert segment.rolling_based_timestamp == NOW
    if offset == BASE + 50:
        segment.offset_index.append(offset, segment.size)
    segment.time_index.maybe_append(NOW + 2, BASE + 60)
    entries = segment.offset_index.entries, segment.time_index.entries
    batch = client_batch([b"x" * 1_000], timestamp=timestamp)
    segment.records.append(bytes(200))  # for an entry to be due
    with pytest.raises(ValueError, match="cannot be for"):
        segment.append(BASE + 20, timestamp, BASE + 20, memoryview(batch))
    assert segment.time_index.entries == entries[1]
    assert segment.offset_index.entries <= entries[0] + (offset == BASE + 20)
    segment.close_handlers()
