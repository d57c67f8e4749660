"""A real exporter in front of a broker: an OpenTelemetry Collector asks for offsets and lag, and shows them.

`make fuzz` builds the collector where there is Go (tests/collector.yaml); without it this test is skipped.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from benchmarks.broker_process import BrokerProcess, free_port
from benchmarks.waiting import until

from barnabas import KafkaAdminClient, KafkaProducer, TopicPartition
from monitoring.scrape import Scrape

pytestmark = pytest.mark.nightly

ROOT: Final = Path(__file__).resolve().parents[2]
COLLECTOR: Final = ROOT / "target" / "collector" / "build" / "collector"
WAIT_S: Final = 180.0
CONFIGURATION: Final = """
receivers:
  kafkametrics:
    brokers: ["{bootstrap}"]
    collection_interval: 1s
    scrapers: [brokers, topics, consumers]
exporters:
  prometheus:
    endpoint: 127.0.0.1:{port}
    add_metric_suffixes: false
service:
  telemetry:
    metrics:
      level: none
  pipelines:
    metrics:
      receivers: [kafkametrics]
      exporters: [prometheus]
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    running = BrokerProcess(tmp_path / "data", output=tmp_path / "broker.log", overrides={"num.partitions": 1})
    running.start()
    try:
        yield running
        assert "Traceback" not in running.text()
    finally:
        running.kill()


class Collector:
    """A collector as a process."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self._process = process
        self._address = f"http://127.0.0.1:{port}"
        self._log = log

    def value(self, metric: str, **labels: str) -> float | None:
        """Returns the sample of a metric that has these labels; None if there is none (yet)."""
        try:
            samples = Scrape.of(self._address).samples.get(metric, [])
        except OSError:
            return None  # it is starting
        return next((one.value for one in samples if labels.items() <= one.labels.items()), None)

    def wait_for(self, expected: float, metric: str, **labels: str) -> None:
        until(
            lambda: self.value(metric, **labels) == expected,
            lambda: f"{metric} is {self.value(metric, **labels)}; {self._log.read_text()[-2_000:]}",
            WAIT_S,
            pause_s=0.5,
            process=self._process,
        )


@contextmanager
def collector(bootstrap: str, directory: Path) -> Iterator[Collector]:
    port = free_port()
    settings = directory / "collector.yaml"
    settings.write_text(CONFIGURATION.format(bootstrap=bootstrap, port=port))
    log = directory / "collector.log"
    with log.open("wb") as output:
        process = subprocess.Popen([COLLECTOR, f"--config=file:{settings}"], stdout=output, stderr=subprocess.STDOUT)
    try:
        yield Collector(process, port, log)
    finally:
        process.kill()
        process.wait()


def test_a_collector_sees_offsets_and_lag(broker: BrokerProcess, tmp_path: Path) -> None:
    if not COLLECTOR.exists():
        pytest.skip("there is no collector: `make fuzz` builds it where there is Go")
    orders = TopicPartition("orders", 0)
    settings = {"bootstrap_servers": broker.bootstrap_servers}
    with KafkaProducer(**settings) as producer, KafkaAdminClient(**settings) as admin:  # type: ignore[arg-type]
        for _ in range(10):
            producer.send("orders", b"tea", partition=0).result()
        admin.alter_group_offsets("billing", {orders: 4})
        with collector(broker.bootstrap_servers, tmp_path) as seen:
            seen.wait_for(1, "kafka_brokers")
            seen.wait_for(1, "kafka_topic_partitions", topic="orders")
            seen.wait_for(10, "kafka_partition_current_offset", topic="orders", partition="0")
            seen.wait_for(4, "kafka_consumer_group_offset", group="billing", topic="orders", partition="0")
            seen.wait_for(6, "kafka_consumer_group_lag", group="billing", topic="orders", partition="0")
            producer.send("orders", b"tea", partition=0).result()
            admin.alter_group_offsets("billing", {orders: 11})
            seen.wait_for(11, "kafka_partition_current_offset", topic="orders", partition="0")
            seen.wait_for(0, "kafka_consumer_group_lag", group="billing", topic="orders", partition="0")
