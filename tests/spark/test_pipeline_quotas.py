"""Who uses what, who is noisy, which limits would have been right, and what they would have done."""

from __future__ import annotations

import json
import random
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.cli.main import run
from barnabas.quota.config import QuotaWindows
from barnabas.quota.quota_entity import QuotaEntity
from barnabas.spark.pipelines.config import PipelineConfig
from barnabas.spark.pipelines.dead_letter import mark_late
from barnabas.spark.pipelines.quota_advice import AdviceOptions, advise, proposals, shares
from barnabas.spark.pipelines.quota_dry_run import DryRunOptions, dry_run, summary
from barnabas.spark.pipelines.quota_proposal import ProposedLimit, Tenancy
from barnabas.spark.pipelines.quota_replay import QuotaReplay
from barnabas.spark.pipelines.quota_traffic import recorded
from barnabas.spark.pipelines.quotas import QUOTAS, noisy_neighbours
from barnabas.spark.pipelines.runner import PipelineError, read_table, run_advice, run_dry_run
from barnabas.spark.pipelines.stream import BatchWriter
from spark.pipeline_records import SECOND, START_US, raw_frame, request, usage
from spark.report_tables import minutes_with_idle_clients

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.mechanism("S07")

CONFIG = PipelineConfig(out="nowhere")
PRODUCE = "producer_byte_rate"
WINDOWS = QuotaWindows(3, 1)


def tables(spark: SparkSession, rows: list[Any]) -> Mapping[str, DataFrame]:
    parsed = QUOTAS.parse(mark_late(raw_frame(spark, rows), {}, 0), CONFIG)
    assert parsed.where("problem is not null").isEmpty()
    return QUOTAS.rows(parsed, CONFIG)


def steady(client_id: str, rate: int, seconds: int, first: int) -> list[Any]:
    """So many bytes a second, in requests of a tenth of that, on a connection of its own."""
    return [
        request(
            first + place,
            START_US + place * SECOND // 10,
            client_id=client_id,
            connection_id=f"connection of {client_id}",
            request_bytes=rate // 10,
        )
        for place in range(seconds * 10)
    ]


def workload() -> list[Any]:
    """For eight seconds: three tenants, one of them noisy."""
    return [
        *steady("quiet", 10_000, 8, 0),
        *steady("middle", 30_000, 8, 1_000),
        *steady("noisy", 90_000, 8, 2_000),
    ]


def test_who_uses_what(spark: SparkSession) -> None:
    rows = [
        usage(0, START_US, throttle_count=2, throttle_time_ms=350.0),
        usage(1, START_US, quota="request_percentage", amount=2_000.0, unit="thread_ms", limit=None),
        *steady("quiet", 10_000, 1, 0),
        *[request(100 + place, START_US, api="Fetch", client_id="noisy", response_bytes=9_000) for place in range(5)],
        request(200, START_US, client_id="noisy", sample_rate=0.5, throttle_time_ms=40),
        request(201, START_US, api="BrokerHeartbeat", client_id="1"),
        request(202, START_US, forwarded=True, client_id="elsewhere"),
    ]
    found = tables(spark, rows)
    used = {row["quota"]: row for row in found["usage"].collect()}
    assert (used[PRODUCE]["rate"], used[PRODUCE]["used_of_limit"], used[PRODUCE]["throttle_ms"]) == (500, 0.5, 350)
    # 2 s of a thread in 10 s are 20 percent of one.
    assert (used["request_percentage"]["rate"], used["request_percentage"]["used_of_limit"]) == (20, None)
    tenants = {row["client_id"]: row for row in found["tenants_1m"].collect()}
    assert tenants.keys() == {"quiet", "noisy"}
    noisy = tenants["noisy"]
    assert (noisy["requests"], noisy["produced_bytes"], noisy["fetched_bytes"]) == (7, 2_000, 45_000)
    assert (noisy["throttled"], noisy["throttle_ms"], noisy["max_throttle_ms"]) == (2, 80, 40)
    assert tenants["quiet"]["thread_ms"] == pytest.approx(10 * (2 + 16))
    noise = noisy_neighbours(found["tenants_1m"], at_least=1.5).collect()
    assert [(row["client_id"], row["quota"]) for row in noise] == [("quiet", PRODUCE)]
    assert noise[0]["share"] == pytest.approx(10_000 / 12_000)
    assert noise[0]["noise"] == pytest.approx(2 * 10_000 / 12_000)
    assert noise[0]["others_queue_ms"] == pytest.approx(1)


def test_an_idle_client_is_no_sharer(spark: SparkSession) -> None:
    rows = [{**row, "window_start": row["window_start"] // 60_000_000} for row in minutes_with_idle_clients()]
    noise = noisy_neighbours(spark.createDataFrame(rows)).collect()
    assert {(row["client_id"], row["quota"]) for row in noise} == {("loud", PRODUCE), ("loud", "request_percentage")}
    assert {row["tenants"] for row in noise} == {11}


def test_the_fair_share_is_max_min_fair(spark: SparkSession) -> None:
    """Against the definition: the level at which what everybody gets adds up to the capacity."""
    numbers = random.Random(3)
    capacity = 100.0
    spans = {place: [numbers.expovariate(1 / 40) for _ in range(numbers.randint(1, 6))] for place in range(25)}
    spans[25] = [10, 30, 90]
    spans[26] = [50, 50]
    rows = [
        (PRODUCE, 1, span, "", f"c{place}", float(demand))
        for span, demands in spans.items()
        for place, demand in enumerate(demands)
    ]
    frame = spark.createDataFrame(
        rows, "quota string, node_id int, span int, user string, client_id string, demand double"
    )
    found = shares(frame, ["quota", "node_id", "span"], AdviceOptions({PRODUCE: capacity})).collect()
    levels = {row["span"]: row["fair_share"] for row in found}
    assert levels[25] == pytest.approx(60)
    assert levels[26] is None, "there is enough for both"
    for span, demands in spans.items():
        level = levels[span]
        if sum(demands) <= capacity:
            assert level is None
        else:
            assert sum(min(demand, level) for demand in demands) == pytest.approx(capacity)


def test_advice_holds_back_the_noisy_and_nobody_else(spark: SparkSession) -> None:
    traffic = tables(spark, workload())["traffic"].persist()
    options = AdviceOptions({PRODUCE: 100_000}, windows=WINDOWS)
    advice = advise(traffic, options).persist()
    rows = {row["client_id"]: row for row in advice.collect()}
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "quiet": "well-behaved",
        "middle": "well-behaved",
        "noisy": "noisy",
    }
    assert rows["noisy"]["limit"] == rows["noisy"]["fair_share"] == 60_000
    assert rows["noisy"]["share"] == pytest.approx(90 / 130)
    assert rows["quiet"]["peak"] < rows["quiet"]["limit"] <= 1.26 * rows["quiet"]["peak"]

    limits = tuple(proposals(advice, options.tenancy))
    tried = DryRunOptions(limits, windows=WINDOWS)
    throttles = dry_run(traffic, tried).persist()
    outcome = {row["client_id"]: row for row in summary(throttles, traffic, tried).collect()}
    assert outcome["quiet"]["throttle_ms"] == outcome["middle"]["throttle_ms"] == 0
    # 720,000 bytes at 60,000 bytes/s take 12 s; two seconds' worth are free, and the last wait is after the end.
    assert 8_000 < outcome["noisy"]["throttle_ms"] < 12_500
    assert outcome["noisy"]["max_behind_ms"] > 2_000
    assert outcome["noisy"]["amount"] == 720_000
    assert outcome["noisy"]["recorded_throttle_ms"] == 0
    # The same as the replay by itself, which has its own tests.
    alone = QuotaReplay(limits, WINDOWS).run(recorded(traffic.where("client_id = 'noisy'").toPandas()))
    assert outcome["noisy"]["throttle_ms"] == sum(one.delay_ms for one in alone)

    strict = advise(traffic, AdviceOptions({PRODUCE: 100_000}, windows=WINDOWS, simultaneous=True))
    levels = {row["client_id"]: row["limit"] for row in strict.collect()}
    assert levels["noisy"] <= 60_000
    enough = advise(traffic, AdviceOptions({PRODUCE: 1_000_000}, Tenancy.USER, windows=WINDOWS)).collect()
    assert [(row["user"], row["verdict"], row["fair_share"]) for row in enough] == [("ANONYMOUS", "well-behaved", None)]


def test_jobs_replace_their_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path)
    with pytest.raises(PipelineError, match="no traffic"):
        run_advice(spark, out, AdviceOptions({PRODUCE: 100_000}))
    BatchWriter(QUOTAS, PipelineConfig(out=out)).write(raw_frame(spark, workload()), "q", 0)
    for capacity in (100_000, 90_000):
        found = run_advice(spark, out, AdviceOptions({PRODUCE: capacity}, windows=WINDOWS)).collect()
        assert {row["capacity"] for row in found} == {capacity}
    limits = (ProposedLimit(PRODUCE, QuotaEntity(client_id="noisy"), 60_000),)
    rows = run_dry_run(spark, out, DryRunOptions(limits, windows=WINDOWS, client_pattern="noisy|quiet")).collect()
    assert [row["client_id"] for row in rows if row["throttle_ms"]] == ["noisy"]
    minutes = read_table(spark, out, "quota-dry-run", "throttles_1m").collect()
    assert sum(row["throttle_ms"] for row in minutes) == sum(row["throttle_ms"] for row in rows)
    with pytest.raises(PipelineError, match="has no table"):
        read_table(spark, out, "quotas", "limits")
    # The same table from the command line, as JSON, with this session in the place of a new one.
    monkeypatch.setattr("barnabas.cli.pipeline._session", lambda *_: nullcontext(spark))
    assert run(["pipeline", "show", "quota-dry-run", "throttles_1m", "--out", out, "-n", "1000", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert sorted(row["throttle_ms"] for row in shown) == sorted(row["throttle_ms"] for row in minutes)


def test_what_cannot_be_advised_on_is_refused() -> None:
    with pytest.raises(ValueError, match="needs the capacity of a broker"):
        AdviceOptions({})
    with pytest.raises(ValueError, match="would throttle well-behaved clients"):
        AdviceOptions({PRODUCE: 1.0}, headroom=0.9)
    with pytest.raises(ValueError, match="cannot be replayed"):
        AdviceOptions({"controller_mutation_rate": 1.0})
    with pytest.raises(ValueError, match="needs limits"):
        DryRunOptions(())
