"""Other engines read the tables: DuckDB, Polars, delta-rs, pyiceberg, and Spark without our code; also in S3."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog

from barnabas.spark.pipelines.config import DELTA, ICEBERG, TABLE_FORMATS, PipelineConfig, TableOptions
from barnabas.spark.pipelines.quota_advice import AdviceOptions
from barnabas.spark.pipelines.quotas import QUOTAS, TRAFFIC, USAGE
from barnabas.spark.pipelines.runner import ADVICE, read_table, run_advice
from barnabas.spark.pipelines.stream import BatchWriter, compact
from barnabas.spark.pipelines.tables import pipeline_store
from spark.pipeline_records import START_US, raw_frame
from spark.pipeline_workload import SECONDS_PER_PART, quota_usage, request_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.mechanism("S10")

REQUESTS = SECONDS_PER_PART * 10
PARTS = 2
EXPECTED = {"User:quiet": PARTS * REQUESTS, "User:middle": PARTS * REQUESTS, "User:noisy": 2 * PARTS * REQUESTS}
"""Requests of each principal, in the table ``traffic``."""
BY_PRINCIPAL = "select principal, count(*) from {} group by all"


def write(spark: SparkSession, config: PipelineConfig) -> None:
    for part in range(PARTS):
        rows = quota_usage(START_US, part) + request_log(START_US, part)
        BatchWriter(QUOTAS, config).write(raw_frame(spark, rows), "q", part)


def by_duckdb(relation: Any) -> dict[str, int]:
    """Counted by DuckDB: of Parquet files, or of what another library hands over."""
    if isinstance(relation, list):
        found = duckdb.execute(BY_PRINCIPAL.format("read_parquet($files)"), {"files": relation}).fetchall()
    else:
        with duckdb.connect() as connection:
            connection.register("traffic", relation)
            found = connection.execute(BY_PRINCIPAL.format("traffic")).fetchall()
    return dict(found)


def by_polars(frame: pl.LazyFrame) -> dict[str, int]:
    return dict(frame.group_by("principal").agg(pl.len()).collect().iter_rows())


def usage_tags(rows: list[dict[str, Any]]) -> set[Any]:
    """The map of each row."""
    return {tuple(sorted(dict(row["tags"]).items())) for row in rows}


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_any_engine_reads_the_tables(
    spark: SparkSession, tmp_path: Path, table_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    config = PipelineConfig(out=str(tmp_path), tables=TableOptions(table_format), keep_hours=0)
    write(spark, config)
    place = tmp_path / "quotas"
    for compacted in (False, True):
        if compacted:
            compact(spark, QUOTAS, config)
        if table_format == DELTA:
            table = DeltaTable(place / "traffic")
            files = list(table.file_uris())
            assert by_duckdb(table.to_pyarrow_dataset()) == EXPECTED
            assert by_polars(pl.scan_delta(str(place / "traffic"))) == EXPECTED
            assert Counter(table.to_pyarrow_table().column("principal").to_pylist()) == EXPECTED
            usage = DeltaTable(place / "usage").to_pyarrow_table().to_pylist()
        else:
            with SqlCatalog("barnabas", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}") as catalog:
                iceberg = catalog.load_table("quotas.traffic")
                files = [task.file.file_path.removeprefix("file://") for task in iceberg.scan().plan_files()]
                assert by_duckdb(iceberg.scan().to_arrow()) == EXPECTED
                assert by_polars(pl.scan_iceberg(iceberg)) == EXPECTED
                assert Counter(iceberg.scan().to_arrow().column("principal").to_pylist()) == EXPECTED
                usage = catalog.load_table("quotas.usage").scan().to_arrow().to_pylist()
        assert by_duckdb(files) == EXPECTED
        rows = spark.read.parquet(*files).groupBy("principal").count().collect()
        assert {row["principal"]: row["count"] for row in rows} == EXPECTED
        assert usage_tags(usage) == {(("user", one),) for one in ("quiet", "middle", "noisy")}
        assert (len(files) == 1) is compacted


def test_readers_skip_files_by_the_bounds_of_their_times(spark: SparkSession, tmp_path: Path) -> None:
    config = PipelineConfig(out=str(tmp_path))
    write(spark, config)
    store = pipeline_store(str(tmp_path), "quotas")
    spans = sorted((one.first_us, one.last_us) for one in store.open(TRAFFIC).files("timestamp"))
    assert all(first is not None and last is not None and first < last for first, last in spans)
    assert len({one.path for one in store.open(USAGE).files()}) >= PARTS
    table = DeltaTable(tmp_path / "quotas" / "traffic")
    middle = START_US + SECONDS_PER_PART * 1_000_000
    early = [one for one in store.open(TRAFFIC).files("timestamp") if (one.last_us or 0) < middle]
    assert 0 < len(early) < len(spans)
    assert table.to_pyarrow_dataset().count_rows() == PARTS * REQUESTS * 4


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The address of an S3-compatible server with a bucket ``tables``.

    It is a process of its own: delta-rs keeps Python's lock while it waits for a response.
    """
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        reader = None
        try:
            found = next(match for line in server.stderr if (match := re.search(r"http://127\.0\.0\.1:\d+", line)))
            reader = threading.Thread(target=server.stderr.read)
            reader.start()
            request = urllib.request.Request(f"{found[0]}/tables", method="PUT")
            with urllib.request.urlopen(request, timeout=60) as response:
                assert response.status == 200
            yield found[0]
        finally:
            server.kill()
            if reader is not None:
                reader.join(60)


KEYS = {"key": "testing", "secret": "testing", "region": "us-east-1"}


@pytest.mark.parametrize("table_format", [DELTA, pytest.param(ICEBERG, marks=pytest.mark.nightly)])
def test_tables_in_an_object_store(spark: SparkSession, s3: str, tmp_path: Path, table_format: str) -> None:
    """Without a connector jar: also the advice, which reads the tables."""
    out = f"s3://tables/{table_format}"
    delta = {
        "AWS_ENDPOINT_URL": s3,
        "AWS_ACCESS_KEY_ID": KEYS["key"],
        "AWS_SECRET_ACCESS_KEY": KEYS["secret"],
        "AWS_REGION": KEYS["region"],
        "AWS_ALLOW_HTTP": "true",
    }
    iceberg = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "s3.endpoint": s3,
        "s3.access-key-id": KEYS["key"],
        "s3.secret-access-key": KEYS["secret"],
        "s3.region": KEYS["region"],
    }
    options = TableOptions(table_format, properties=delta if table_format == DELTA else iceberg)
    config = PipelineConfig(out=out, tables=options, keep_hours=0)
    for _ in range(2):  # the second time all batches are known
        write(spark, config)
    compact(spark, QUOTAS, config)
    if table_format == DELTA:
        rows = DeltaTable(f"{out}/quotas/traffic", storage_options=delta).to_pyarrow_table()
    else:
        rows = load_catalog("barnabas", **iceberg).load_table("quotas.traffic").scan().to_arrow()
    assert by_duckdb(rows) == EXPECTED
    tenants = read_table(spark, out, "quotas", "tenants_1m", options).collect()
    assert sum(row["requests"] for row in tenants) == sum(EXPECTED.values())
    advice = run_advice(spark, out, AdviceOptions({"producer_byte_rate": 100_000}), options)
    assert {row["client_id"] for row in advice.collect()} == {"quiet-1", "middle-1", "noisy-1"}
    assert read_table(spark, out, ADVICE, "limits", options).count() == 3
