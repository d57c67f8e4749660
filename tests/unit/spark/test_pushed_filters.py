"""Conditions of a query decide which offsets are read, and never leave out a row that meets them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, cast

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual

from barnabas.common.topic_partition import TopicPartition
from barnabas.spark.offset_reader import OffsetReader
from barnabas.spark.pushed_filters import FilteringBatchReader
from barnabas.spark.source_options import SourceOptions

PARTITION = TopicPartition("t", 0)
TIMES_MS = [-1, -1, 1_000, 2_000, 3_000]
"""Of the records at offsets 0 to 4. The first two have no time."""


class Offsets:
    """The offsets of a topic with `TIMES_MS`."""

    def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        assert all(time_ms >= 0 for time_ms in wanted.values()), "the earliest or latest offset"
        return {
            one: next((offset for offset, found in enumerate(TIMES_MS) if found >= time_ms), None)
            for one, time_ms in wanted.items()
        }


def first_offset(condition: Filter) -> int:
    """Returns where a query with a condition begins to read."""
    options = SourceOptions.of({"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "t", "pushDownFilters": "true"})
    offsets: Any = Offsets()
    reader = FilteringBatchReader(options, offsets=cast("OffsetReader", offsets))
    assert list(reader.pushFilters([condition])) == [condition]  # Spark checks it as well
    starts, ends = reader._narrow({PARTITION: 0}, {PARTITION: len(TIMES_MS)}, offsets)
    assert ends == {PARTITION: len(TIMES_MS)}
    return starts[PARTITION]


def at(milliseconds: float) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize(
    ("condition", "first"),
    [
        (GreaterThanOrEqual(("timestamp",), at(2_000)), 3),
        (GreaterThan(("timestamp",), at(2_000)), 3),
        (EqualTo(("timestamp",), at(999.5)), 2),
        (GreaterThan(("timestamp",), at(9_000)), 5),
        (EqualTo(("timestamp",), at(-1)), 0),
        (GreaterThanOrEqual(("timestamp",), at(-2)), 0),
        (GreaterThan(("timestamp",), at(-86_400_000)), 0),
    ],
)
def test_a_lower_bound_of_time_keeps_all_records_that_meet_it(condition: Filter, first: int) -> None:
    assert first_offset(condition) == first
