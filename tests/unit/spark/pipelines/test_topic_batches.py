"""The life of a batch: added once, noted when it is in the table, compacted every few batches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.spark.pipelines.tables import BatchState, ForeignTablesError
from barnabas.spark.pipelines.topic_batches import AddedBatch, TopicBatch, TopicTableWriter

pytestmark = pytest.mark.mechanism("S10")

QUERY = "q"
TABLES: Any = ("rows", "dead")


class Store:
    """Keeps the state, and counts compactions."""

    def __init__(self) -> None:
        self.noted = BatchState()
        self.compacted: list[tuple[Any, ...]] = []

    def state(self) -> BatchState:
        return self.noted

    def set_state(self, state: BatchState) -> None:
        self.noted = state

    def compact(self, *arguments: Any) -> None:
        self.compacted.append(arguments)


class Batch:
    """Counts how often Spark runs it."""

    sparkSession = "spark"  # noqa: N815 - Spark's name

    def __init__(self) -> None:
        self.runs = 0

    def count(self) -> int:
        self.runs += 1
        return 0


class Bench:
    def __init__(self, *, run_skipped: bool = False) -> None:
        self.store = Store()
        self.added: list[tuple[int, bool]] = []
        self.fails = False
        pipeline = SimpleNamespace(compact_every=3, keep_hours=7)
        config = SimpleNamespace(name="t", pipeline=pipeline, store=lambda: self.store)
        self.writer = TopicTableWriter(cast("Any", config), self.add, run_skipped=run_skipped)

    def add(self, batch: TopicBatch) -> AddedBatch:
        if self.fails:
            raise RuntimeError("the disk is full")
        self.added.append((batch.batch_id, batch.is_first))
        return AddedBatch(TABLES, 2)

    def write(self, batch_id: int, query_id: str = QUERY) -> Batch:
        batch = Batch()
        self.writer.write(cast("Any", batch), query_id, batch_id)
        return batch


def test_a_batch_is_added_once_and_its_dead_letters_are_counted() -> None:
    bench = Bench()
    for batch_id in (0, 0, 1, 0):
        assert bench.write(batch_id).runs == 0
    assert bench.added == [(0, True), (1, False)]
    assert bench.store.noted == BatchState(QUERY, 1, dead_letters=4)


def test_a_batch_that_fails_is_not_noted() -> None:
    bench = Bench()
    bench.fails = True
    with pytest.raises(RuntimeError, match="the disk is full"):
        bench.write(0)
    assert bench.store.noted == BatchState()


def test_a_stateful_query_runs_a_batch_that_is_skipped() -> None:
    bench = Bench(run_skipped=True)
    assert [bench.write(0).runs for _ in range(2)] == [0, 1]
    assert bench.added == [(0, True)]


def test_every_few_batches_the_tables_are_compacted() -> None:
    bench = Bench()
    for batch_id in range(6):
        bench.write(batch_id)
    assert bench.store.compacted == [("spark", TABLES, 0, 7)] * 2
    bench.write(5)
    assert len(bench.store.compacted) == 2


def test_the_table_of_another_query_is_left_alone() -> None:
    bench = Bench()
    bench.write(0)
    with pytest.raises(ForeignTablesError, match="another checkpoint"):
        bench.write(1, "other")
    assert bench.added == [(0, True)]
