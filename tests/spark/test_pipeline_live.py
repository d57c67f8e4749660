"""The pipelines with a broker: everything once, through failures; and a dry run that reality agrees with."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import confluent_kafka
import pytest

from barnabas.cli.quota_requests import alter_quotas, describe_quotas
from barnabas.cli.telemetry_requests import alter_subscription
from barnabas.clients.common.blocking_client import BlockingClient
from barnabas.common.topic_names import CLIENT_TELEMETRY_TOPIC, QUOTA_USAGE_TOPIC, REQUEST_LOG_TOPIC
from barnabas.quota.config import QuotaWindows
from barnabas.spark.pipelines.config import PipelineConfig
from barnabas.spark.pipelines.data_files import DataFile
from barnabas.spark.pipelines.progress import BatchProgress, LineProgress
from barnabas.spark.pipelines.quota_advice import AdviceOptions, proposals
from barnabas.spark.pipelines.quota_dry_run import DryRunOptions
from barnabas.spark.pipelines.quota_proposal import Tenancy
from barnabas.spark.pipelines.runner import PipelineError, read_table, run_advice, run_dry_run, run_stream
from barnabas.spark.pipelines.table_formats import DeltaTableFormat, TableFile
from clients.broker_process import BrokerProcess
from clients.confluent_admin import AdminClient, NewTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOWS: Final = 3
PRODUCE: Final = "producer_byte_rate"
RECORD_BYTES: Final = 1_000


class Tenant(NamedTuple):
    """A producer that is given records at a steady pace, whether or not it can send them."""

    client_id: str
    rate: int
    seconds: float


def produce(bootstrap: str, topic: str, tenant: Tenant) -> None:
    producer: Any = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": tenant.client_id,
            "linger.ms": 20,
            "batch.size": 16_384,
            "log_level": 0,
        }
    )
    start = time.monotonic()
    made = 0
    while (now := time.monotonic() - start) < tenant.seconds:
        while made * RECORD_BYTES < now * tenant.rate:
            producer.produce(topic, bytes(RECORD_BYTES))
            made += 1
        producer.poll(0.005)
    assert producer.flush(120) == 0


def offer(bootstrap: str, topic: str, tenants: Sequence[Tenant]) -> None:
    """The workload: all tenants at once."""
    threads = [threading.Thread(target=produce, args=(bootstrap, topic, tenant)) for tenant in tenants]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def records_of(bootstrap: str, topic: str) -> list[tuple[int, bytes]]:
    """What is in the one partition of a topic by now, read without Spark. (To read the request log adds to it.)"""
    consumer: Any = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader of the test", "client.id": "reader", "log_level": 0}
    )
    _, end = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=60)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes]] = []
    while not found or found[-1][0] < end - 1:
        (message,) = consumer.consume(1, timeout=60)
        assert message.error() is None
        found.append((message.offset(), message.value()))
    consumer.close()
    return found


class Crashing(LineProgress):
    """Ends the query in the middle: in a batch's commit, before or after it has happened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, after: bool, at_batch: int) -> None:
        super().__init__()
        original = DeltaTableFormat.replace

        def replace(
            table: DeltaTableFormat,
            removed: Sequence[TableFile],
            added: Sequence[DataFile],
            *,
            same_rows: bool,
            batch: tuple[str, int] | None = None,
        ) -> None:
            crashes = batch is not None and batch[1] >= at_batch
            if not crashes or after:
                original(table, removed, added, same_rows=same_rows, batch=batch)
            if crashes:
                monkeypatch.setattr(DeltaTableFormat, "replace", original)
                raise RuntimeError("the power has gone")

        monkeypatch.setattr(DeltaTableFormat, "replace", replace)
        self.batches: list[BatchProgress] = []

    def note(self, pipeline: str, text: str) -> None:
        pass


@pytest.fixture
def quota_broker(tmp_path: Path, topic: str) -> Iterator[BrokerProcess]:
    overrides = {
        "barnabas.request.log.sample.rate": "1.0",
        "barnabas.quota.usage.interval.ms": "1000",
        "quota.window.num": str(WINDOWS),
    }
    with BrokerProcess(tmp_path, overrides) as process:
        admin = AdminClient({"bootstrap.servers": process.bootstrap_servers, "client.id": "operator"})
        for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
            future.result(60)
        yield process


@pytest.mark.mechanism("S05")
@pytest.mark.mechanism("S06")
@pytest.mark.mechanism("S07")
def test_every_record_is_in_the_tables_once(
    spark: SparkSession, quota_broker: BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap = quota_broker.bootstrap_servers
    with BlockingClient(bootstrap, client_id="operator") as client:
        alter_subscription(client, "all", {"metrics": "*", "interval.ms": "200"})
        alter_quotas(client, (("client-id", "busy"),), {PRODUCE: 30_000.0})
    tenants = [Tenant("busy", 60_000, 2.5), Tenant("idle", 5_000, 2.5)]
    config = PipelineConfig(out=str(tmp_path / "tables"), bootstrap_servers=bootstrap, once=True, sketch_k=200)
    offer(bootstrap, topic, tenants)
    # Three batches or four: one that succeeds, and two that do not at first.
    in_batches = replace(config, max_offsets_per_trigger=len(records_of(bootstrap, REQUEST_LOG_TOPIC)) // 3)
    for after in (False, True):
        with pytest.raises(PipelineError, match="the power has gone"):
            run_stream(spark, "requests", in_batches, Crashing(monkeypatch, after=after, at_batch=2 if after else 1))
    display = LineProgress()
    run_stream(spark, "requests", in_batches, display)
    run_stream(spark, "telemetry", config, display)
    run_stream(spark, "quotas", config, display)

    # Of what clients have done before the pipelines began, each request is counted as often as it is in the topic.
    log = [json.loads(value) for _, value in records_of(bootstrap, REQUEST_LOG_TOPIC)]
    ours = {"busy", "idle"}
    expected = Counter((one["client_id"], one["api"]) for one in log if one["client_id"] in ours)
    counted: Counter[tuple[str, str]] = Counter()
    for row in read_table(spark, config.out, "requests", "counts_1m").collect():
        if row["client_id"] in ours:
            counted[row["client_id"], row["api"]] += row["requests"]
    assert counted == expected
    latency = read_table(spark, config.out, "requests", "latency_1h").where("part = 'total'").collect()
    assert sum(row["count"] for row in latency if row["client_id"] in ours) == sum(expected.values())
    traffic = read_table(spark, config.out, "quotas", "traffic").where("client_id in ('busy', 'idle')")
    assert traffic.count() == sum(expected.values())

    usage = [json.loads(value) for _, value in records_of(bootstrap, QUOTA_USAGE_TOPIC)]
    throttled = sum(one["throttle_time_ms"] for one in usage if one["client_id"] == "busy")
    rows = read_table(spark, config.out, "quotas", "usage").where("client_id = 'busy'").collect()
    assert sum(row["throttle_ms"] for row in rows) == throttled > 0
    pushed = {offset for offset, _ in records_of(bootstrap, CLIENT_TELEMETRY_TOPIC)}
    metrics = read_table(spark, config.out, "telemetry", "metrics_1m").where("client_id = 'busy'")
    assert metrics.where("metric like 'org.apache.kafka.producer.%' and count > 0").count() > 0
    assert pushed
    for pipeline in ("requests", "telemetry", "quotas"):
        assert read_table(spark, config.out, pipeline, "dead_letters").count() == 0


@pytest.mark.nightly
@pytest.mark.mechanism("S07")
def test_reality_agrees_with_the_dry_run(
    spark: SparkSession, quota_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """A workload is recorded, advised on, tried on paper; then the advice is set, and the same workload comes again."""
    bootstrap = quota_broker.bootstrap_servers
    tenants = [Tenant("noisy", 400_000, 12), Tenant("middle", 100_000, 12), Tenant("quiet", 50_000, 12)]
    names = "|".join(tenant.client_id for tenant in tenants)
    config = PipelineConfig(out=str(tmp_path / "tables"), bootstrap_servers=bootstrap, once=True)
    windows = QuotaWindows(WINDOWS, 1)

    offer(bootstrap, topic, tenants)
    run_stream(spark, "quotas", config, LineProgress())
    advice = run_advice(spark, config.out, AdviceOptions({PRODUCE: 350_000}, windows=windows, client_pattern=names))
    verdicts = {row["client_id"]: row["verdict"] for row in advice.collect()}
    assert verdicts == {"noisy": "noisy", "middle": "well-behaved", "quiet": "well-behaved"}
    limits = tuple(proposals(advice, Tenancy.CLIENT_ID))
    tried = run_dry_run(spark, config.out, DryRunOptions(limits, windows=windows, client_pattern=names)).collect()
    foretold = {row["client_id"]: row["throttle_ms"] for row in tried}
    assert foretold["middle"] == foretold["quiet"] == 0
    assert foretold["noisy"] > 5_000

    before = read_table(spark, config.out, "quotas", "traffic").selectExpr("max(start_time_us)").collect()[0][0]
    with BlockingClient(bootstrap, client_id="operator") as client:
        for one in limits:
            alter_quotas(client, (("client-id", str(one.entity.client_id)),), {one.quota: one.limit})
        deadline = time.monotonic() + 60
        while len(describe_quotas(client)) < len(limits):
            assert time.monotonic() < deadline
    offer(bootstrap, topic, tenants)
    run_stream(spark, "quotas", config, LineProgress())
    again = read_table(spark, config.out, "quotas", "traffic").where(f"start_time_us > {before}")
    held_back = again.groupBy("client_id").sum("throttle_time_ms").collect()
    real = {row["client_id"]: row["sum(throttle_time_ms)"] for row in held_back}
    print(f"foretold {foretold}, real {real}")
    assert real["middle"] == real["quiet"] == 0
    assert real["noisy"] == pytest.approx(foretold["noisy"], rel=0.1)
