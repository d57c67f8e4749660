"""The request log as tables of latency: where the time goes, percentiles that can be merged, and samples."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from barnabas.spark.pipelines.config import PipelineConfig
from barnabas.spark.pipelines.dead_letter import mark_late
from barnabas.spark.pipelines.requests import KEYS, REQUESTS
from barnabas.spark.pipelines.rollup import merge_rows, percentiles
from spark.pipeline_records import SECOND, START_US, moment, raw_frame, request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.mechanism("S06")

CONFIG = PipelineConfig(out="nowhere", sketch_k=4_096)


def tables(spark: SparkSession, rows: list[tuple[object, ...]]) -> Mapping[str, DataFrame]:
    parsed = REQUESTS.parse(mark_late(raw_frame(spark, rows), {}, 0), CONFIG)
    assert parsed.where("problem is not null").isEmpty()
    return REQUESTS.rows(parsed, CONFIG)


def total_of(offset: int, milliseconds: float, **fields: object) -> tuple[object, ...]:
    """A request of the first minute that took so long as a whole."""
    start = START_US + offset % 59 * SECOND
    return request(offset, start, end_time_us=start + 15_000 + int(milliseconds * 1_000), **fields)


def test_where_the_time_goes(spark: SparkSession) -> None:
    one = request(0, START_US, throttle_time_ms=70, callback_time_us=1_000)
    two = request(1, START_US + 30 * SECOND, client_id=None)
    rows = {(row["client_id"], row["part"]): row for row in tables(spark, [one, two])["latency_1m"].collect()}
    expected = {"queue": 1, "local": 2, "remote": 4, "response_queue": 8, "send": 16, "total": 31, "throttle": 0}
    assert {part: rows[None, part]["sum"] for part in expected} == expected
    # What was done after the wait is time of a handler, and all parts still add up.
    assert {part: rows["alpha", part]["p99"] for part in expected} == {
        **expected,
        "local": 3,
        "remote": 3,
        "throttle": 70,
    }
    row = rows["alpha", "total"]
    assert (row["window_start"].isoformat(), row["api"], row["principal"]) == (
        moment(START_US).replace(tzinfo=None).isoformat(),
        "Produce",
        "User:ANONYMOUS",
    )


def test_counts_are_weighted(spark: SparkSession) -> None:
    rows = [
        request(0, START_US, sample_rate=0.1, errors={"NOT_LEADER_OR_FOLLOWER": 1}),
        request(1, START_US, sample_rate=0.1, throttle_time_ms=5),
        request(2, START_US, sample_rate=1.0, errors=None),
    ]
    found = {row["sample_rate"]: row for row in tables(spark, rows)["counts_1m"].collect()}
    sampled, all_of_them = found[0.1], found[1.0]
    assert (sampled["requests"], sampled["weight"], sampled["request_bytes"]) == (2, 20, 20_000)
    assert (sampled["failed"], sampled["throttled"], sampled["throttle_ms"]) == (10, 10, 50)
    assert (all_of_them["weight"], all_of_them["failed"]) == (1, 0)


def test_percentiles_of_merged_sketches_are_those_of_all_values(spark: SparkSession) -> None:
    """Two batches, two minutes, two clients; the hour of all is as if there had been one sketch."""
    numbers = random.Random(7)
    values = [numbers.lognormvariate(1, 1.2) for _ in range(4_000)]
    rows = [
        request(
            place,
            start := START_US + place % 2 * 60 * SECOND,
            end_time_us=start + 15_000 + int(value * 1_000),
            client_id=f"c{place % 3}",
        )
        for place, value in enumerate(values)
    ]
    halves = [tables(spark, rows[:2_000])["latency_1m"], tables(spark, rows[2_000:])["latency_1m"]]
    minutes = merge_rows(halves[0].unionByName(halves[1]), KEYS)
    assert minutes.where("part = 'total'").count() == 6
    hours = merge_rows(minutes, KEYS, "1 hour").where("part = 'total'")
    assert hours.count() == 3
    row = percentiles(hours, sample_rate="sample_rate").collect()[0]
    totals = sorted(int(value * 1_000) / 1_000 + 15 for value in values)
    assert row["count"] == len(values)
    assert row["mean"] == pytest.approx(sum(totals) / len(totals))
    for name, rank, error in (("p50", 0.5, 0.005), ("p99", 0.99, 0.002), ("p999", 0.999, 0.0009)):
        place = sum(one <= row[name] for one in totals) / len(totals)
        assert place == pytest.approx(rank, abs=error), name


def test_samples_of_different_rates_have_different_weights(spark: SparkSession) -> None:
    """All of 100 slow requests are in the log, and a tenth of 900 fast ones."""
    slow = [total_of(place, 100) for place in range(100)]
    fast = [total_of(1_000 + place, 1, sample_rate=0.1) for place in range(90)]
    rows = tables(spark, slow + fast)["latency_1m"].where("part = 'total'")
    weighted = percentiles(rows, ["api"], {"p80": 0.8, "p95": 0.95}, sample_rate="sample_rate").collect()[0]
    assert weighted["weight"] == pytest.approx(1_000)
    assert (weighted["p80"], weighted["p95"]) == (16, 115)
    assert percentiles(rows, ["api"], {"p80": 0.8}).collect()[0]["p80"] == 115, "what it is without"
