"""Filter pushdown: uses a query's conditions to read less. Spark passes them before it plans the tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.topic_partition import TopicPartition
from barnabas.spark.offset_reader import OffsetReader
from barnabas.spark.offsets import Offsets
from barnabas.spark.source_batch import BatchReader
from barnabas.spark.source_options import SourceOptions

_NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})

Test = Callable[[Any], bool]


class FilteringBatchReader(BatchReader):
    """A batch reader that applies conditions on topic, partition, offset and timestamp.

    Conditions on the first three are applied exactly, by reading only those partitions and offsets; Spark does not
    check them again. For timestamps only a lower bound helps: the broker's time index gives the first record that is
    not older. Later records may still be older, so Spark checks that condition as well.

    It is a separate class, because Spark refuses every read from a reader that supports filters, unless the session
    allows it with ``spark.sql.python.filterPushdown.enabled``.
    """

    def __init__(
        self, options: SourceOptions, *, clock: Clock = SYSTEM_CLOCK, offsets: OffsetReader | None = None
    ) -> None:
        super().__init__(options, clock=clock, offsets=offsets)
        self._topics: list[Test] = []
        self._partitions: list[Test] = []
        self._first_offset = 0
        self._end_offset: int | None = None
        self._oldest_ms: int | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Takes the conditions it supports, and returns those that Spark has to check."""
        return [one for one in filters if not self._takes(one)]

    def _takes(self, condition: Filter) -> bool:
        """Applies a condition if possible; returns whether it holds for all rows that are read."""
        if isinstance(condition, IsNotNull):
            return len(condition.attribute) == 1 and condition.attribute[0] in _NEVER_NULL
        negated = isinstance(condition, Not)
        inner = condition.child if isinstance(condition, Not) else condition
        attribute: tuple[str, ...] = getattr(inner, "attribute", ())
        if len(attribute) != 1:
            return False
        if attribute[0] in {"topic", "partition"}:
            test = _equality(inner)
            if test is None:
                return False
            tests = self._topics if attribute[0] == "topic" else self._partitions
            tests.append((lambda value: not test(value)) if negated else test)
            return True
        if negated:
            return False
        if attribute[0] == "offset":
            return self._takes_offset(inner)
        if attribute[0] == "timestamp":
            self._note_time(inner)
        return False

    def _takes_offset(self, condition: Filter) -> bool:
        if isinstance(condition, EqualTo | EqualNullSafe) and condition.value is not None:
            first, end = condition.value, condition.value + 1
        elif isinstance(condition, GreaterThan):
            first, end = condition.value + 1, None
        elif isinstance(condition, GreaterThanOrEqual):
            first, end = condition.value, None
        elif isinstance(condition, LessThan):
            first, end = 0, condition.value
        elif isinstance(condition, LessThanOrEqual):
            first, end = 0, condition.value + 1
        else:
            return False
        self._first_offset = max(self._first_offset, first)
        if end is not None:
            self._end_offset = end if self._end_offset is None else min(self._end_offset, end)
        return True

    def _note_time(self, condition: Filter) -> None:
        if isinstance(condition, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual) and isinstance(
            condition.value, datetime
        ):
            value = condition.value if condition.value.tzinfo else condition.value.replace(tzinfo=UTC)
            # Truncated to milliseconds: starting slightly earlier is correct, as Spark checks the condition too.
            milliseconds = int(value.timestamp() * 1000)
            # A record without a time has -1 ms, and a lookup of -1 or -2 means something else.
            if milliseconds > 0:
                self._oldest_ms = max(milliseconds, self._oldest_ms or 0)

    def _narrow(self, starts: Offsets, ends: Offsets, offsets: OffsetReader) -> tuple[Offsets, Offsets]:
        chosen = [
            one
            for one in starts
            if all(test(one.topic) for test in self._topics) and all(test(one.partition) for test in self._partitions)
        ]
        oldest: Mapping[TopicPartition, int | None] = {}
        if self._oldest_ms is not None:
            oldest = offsets.list_offsets(dict.fromkeys(chosen, self._oldest_ms))
        narrowed_starts, narrowed_ends = {}, {}
        for one in chosen:
            end = ends[one] if self._end_offset is None else min(ends[one], self._end_offset)
            start = max(starts[one], self._first_offset)
            if one in oldest:
                found = oldest[one]
                start = end if found is None else max(start, found)
            narrowed_starts[one], narrowed_ends[one] = min(start, max(end, 0)), max(end, 0)
        return narrowed_starts, narrowed_ends


def _equality(condition: Filter) -> Test | None:
    if isinstance(condition, EqualTo | EqualNullSafe) and condition.value is not None:
        return lambda value: bool(value == condition.value)
    if isinstance(condition, In) and None not in condition.value:
        return lambda value: value in condition.value
    return None
