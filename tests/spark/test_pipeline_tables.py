"""That a record counts once, whatever happens, and that nothing which cannot be used gets lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset
import pytest

from barnabas.spark.pipelines import requests
from barnabas.spark.pipelines.config import PipelineConfig
from barnabas.spark.pipelines.dead_letter import DEAD_LETTERS
from barnabas.spark.pipelines.manifest import ForeignTablesError, Manifest, ManifestStore
from barnabas.spark.pipelines.requests import COUNTS_1M, LATENCY_1M, REQUESTS
from barnabas.spark.pipelines.stream import BatchWriter
from barnabas.spark.pipelines.tables import TableStore, table_files
from spark.pipeline_records import SECOND, START_US, raw_frame, record, request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.mechanism("S06")

QUERY = "q1"


class Crash(BaseException):
    """The process is gone."""


class Tables:
    """The tables of ``requests``, written batch by batch."""

    def __init__(self, spark: SparkSession, out: Path) -> None:
        self.config = PipelineConfig(out=str(out), compact_every=1_000, lateness_ms=60_000, sketch_k=200)
        self.store = TableStore(spark, str(out), REQUESTS.name)
        self._spark = spark

    def write(self, batch_id: int, rows: list[tuple[Any, ...]], query: str = QUERY) -> None:
        """As a process does that has just been started."""
        BatchWriter(REQUESTS, self.config).write(raw_frame(self._spark, rows), query, batch_id)

    def requests(self) -> int:
        """How many requests the table has counted."""
        return sum(row["requests"] for row in self.store.read(COUNTS_1M).collect())

    def dead_letters(self) -> list[Any]:
        return self.store.read(DEAD_LETTERS).orderBy("offset").collect()


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Tables:
    return Tables(spark, tmp_path)


def some(first: int, count: int, start_us: int = START_US) -> list[tuple[Any, ...]]:
    return [request(offset, start_us + offset * SECOND) for offset in range(first, first + count)]


def crash_at(name: str, monkeypatch: pytest.MonkeyPatch, *, after: bool) -> Callable[[], None]:
    """Lets the process end in a method of the store of manifests; the way back is returned."""
    original = getattr(ManifestStore, name)

    def crashing(self: ManifestStore, *arguments: Any) -> None:
        if after:
            original(self, *arguments)
        raise Crash

    monkeypatch.setattr(ManifestStore, name, crashing)
    return lambda: monkeypatch.setattr(ManifestStore, name, original)


def test_a_batch_that_is_run_again_counts_once(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    tables.write(0, some(0, 3))
    for after in (False, True):  # the segments are written, the manifest is not; both are, and Spark does not know
        recover = crash_at("commit", monkeypatch, after=after)
        batch = 2 if after else 1
        with pytest.raises(Crash):
            tables.write(batch, some(3 * batch, 3))
        assert tables.requests() == (9 if after else 3)
        recover()
        tables.write(batch, some(3 * batch, 3))
        assert tables.requests() == 3 * (batch + 1)
    tables.write(2, some(6, 3))
    assert tables.requests() == 9


def test_another_checkpoint_is_refused(tables: Tables) -> None:
    tables.write(0, some(0, 3))
    with pytest.raises(ForeignTablesError, match="another checkpoint"):
        tables.write(0, some(0, 3), query="q2")
    assert tables.requests() == 3


def test_what_cannot_be_used_is_kept_with_the_reason(tables: Tables) -> None:
    topic = "__request_log"
    good = some(0, 2)
    document = json.loads(good[0][1])
    wrong = {
        10: (b"\xff\x00 no JSON", "not JSON"),
        11: (b'{"schema_version": "one"}', "not JSON, or not of the types"),
        12: (json.dumps({**document, "schema_version": 2}).encode(), "schema_version is 2"),
        13: (json.dumps({**document, "api": None}).encode(), "api is missing"),
        14: (json.dumps({**document, "sample_rate": 0.0}).encode(), "sample_rate is not between"),
        15: (None, "no value"),
    }
    elsewhere = record("mirrored", 16, START_US, good[0][1])
    wrongs = [record(topic, offset, START_US, value) for offset, (value, _) in wrong.items()]
    tables.write(0, [*good, *wrongs, elsewhere])
    *found, other = tables.dead_letters()
    assert (other["topic"], other["reason"]) == ("mirrored", f"of topic mirrored, and this reads {topic}")
    assert [(row["topic"], row["partition"], row["offset"]) for row in found] == [(topic, 0, one) for one in wrong]
    for row in found:
        value, reason = wrong[row["offset"]]
        assert row["reason"].startswith(reason)
        assert (None if row["value"] is None else bytes(row["value"])) == value, "it can be read again"
    assert tables.requests() == 2


def test_what_is_too_late_is_kept_too(tables: Tables) -> None:
    tables.write(0, some(0, 2, START_US + 300 * SECOND))
    just_in_time = request(2, START_US + 245 * SECOND)
    late = request(3, START_US + 200 * SECOND)
    elsewhere = list(request(0, START_US))
    elsewhere[3] = 1  # another partition is read later, and nothing of it is late by that
    tables.write(1, [just_in_time, late, tuple(elsewhere)])
    (row,) = tables.dead_letters()
    assert row["offset"] == 3
    assert row["reason"].startswith("late: ")
    assert tables.requests() == 4


def test_compaction_changes_nothing_but_the_number_of_files(tables: Tables, tmp_path: Path) -> None:
    hour = 3_600 * SECOND
    for batch, start in enumerate((0, 1, 4_000, 4_001, 8_000)):
        tables.write(batch, some(batch * 4, 4, START_US + start * SECOND))

    def content() -> list[Any]:
        kept = ("count", "weight", "min", "max", "p50", "p99", "p999")
        frame = tables.store.read(LATENCY_1M).orderBy("window_start", "part")
        return [tuple(row[name] for name in ("window_start", "part", *kept)) for row in frame.collect()]

    before = content()
    first = tables.store.compact(REQUESTS.all_tables, 60 * SECOND)
    assert content() == before
    # Without Spark and without a merge there is one row for each window and key now.
    plain = pyarrow.dataset.dataset([str(one) for one in table_files(tmp_path, "requests", "latency_1m")]).to_table()
    assert plain.num_rows == len(before)
    assert tables.store.compact(REQUESTS.all_tables, 60 * SECOND) is not None
    tables.write(5, some(20, 4, START_US + 8_001 * SECOND))
    second = tables.store.compact(REQUESTS.all_tables, 60 * SECOND)
    closed = [one for one in first.tables["latency_1m"] if one.last_us < START_US + 2 * hour]
    assert closed
    assert set(closed) <= set(second.tables["latency_1m"]), "what is closed is not written again"
    assert tables.requests() == 24


def test_old_versions_go_and_take_their_files_along(tables: Tables, tmp_path: Path) -> None:
    tables.write(0, some(0, 2))
    store = tables.store.manifests
    manifest = store.latest()
    (segment,) = manifest.tables["counts_1m"]
    assert tables.store.files.exists(segment.path)
    kept = dict(manifest.tables)
    del kept["counts_1m"]
    for _ in range(12):
        manifest = manifest.with_tables(kept)
        store.commit(manifest)
    assert store.latest() == manifest
    assert not tables.store.files.exists(segment.path)
    assert all(tables.store.files.exists(one.path) for segments in kept.values() for one in segments)
    assert Manifest.from_json(manifest.to_json()) == manifest
    with pytest.raises(ValueError, match="of format 2"):
        Manifest.from_json(manifest.to_json().replace(b'"format": 1', b'"format": 2'))


def test_a_table_without_rows_has_its_columns(tables: Tables) -> None:
    frame = tables.store.read(LATENCY_1M)
    assert frame.count() == 0
    assert set(requests.KEYS) <= set(frame.columns)
    assert table_files(tables.config.out, "requests", "latency_1m") == []
