"""Spark's stock Kafka connector as the client: one session for all rounds, so that its virtual machine stays warm."""

from __future__ import annotations

import json
import select
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from benchmarks.broker_process import ServerProcess, source_environment
from benchmarks.peers import rdkafka_client
from benchmarks.peers.case import Metric, new_topic, remove_topic
from benchmarks.spark import JARS

TIMEOUT_S = 120
VALUE_BYTES = 100
PARTITIONS = 2
WRITTEN_SHARE = 4
"""What is written is kept, so it is less than what is read."""


class SparkWorker:
    """A process with a session (`spark_client`); a line with a job goes in, a line with the answer comes out."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.peers.spark_client"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=source_environment(),
        )

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], TIMEOUT_S)[0]:
            raise TimeoutError(f"no answer from Spark in {TIMEOUT_S} s")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"Spark's process has ended with {self._process.wait(TIMEOUT_S)}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(20)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait(20)
        self._process.stdout.close()


@dataclass(slots=True)
class StockConnector:
    """A query that reads a topic into nothing, and one that writes rows to a topic, with the connector's defaults."""

    records: int
    _topics: dict[int, str] = field(default_factory=dict)
    _worker: SparkWorker | None = None

    key = "spark-stock-connector"

    @staticmethod
    def is_available() -> bool:
        has_jars = any(JARS.glob("spark-sql-kafka*.jar"))
        return has_jars and shutil.which("java") is not None and find_spec("pyspark") is not None

    @property
    def title(self) -> str:
        return f"rows of {VALUE_BYTES} B, {PARTITIONS} partitions, Spark's stock connector"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (Metric("read", "rows/s"), Metric("written", "rows/s"))

    def prepare(self, server: ServerProcess) -> None:
        if self._worker is None:
            self._worker = SparkWorker()
        topic = self._topics[server.port] = new_topic(server, PARTITIONS)
        rdkafka_client.ask(
            {
                "job": "produce",
                "bootstrap": server.bootstrap_servers,
                "topic": topic,
                "records": self.records,
                "warm_up": 0,
                "size": VALUE_BYTES,
                "clients": 1,
                "settings": {"acks": "1", "sticky.partitioning.linger.ms": 0},
            }
        )
        self.measure(server)

    def measure(self, server: ServerProcess) -> dict[str, float]:
        assert self._worker is not None
        job = {"bootstrap": server.bootstrap_servers, "size": VALUE_BYTES, "partitions": PARTITIONS}
        read = self._worker.ask({**job, "job": "read", "topic": self._topics[server.port]})
        # The client's first record, which finds out about the topic, is one more.
        assert read["rows"] >= self.records, read
        sink = new_topic(server, PARTITIONS)
        count = self.records // WRITTEN_SHARE
        written = self._worker.ask({**job, "job": "write", "topic": sink, "records": count})
        remove_topic(server, sink)
        return {"read": read["rows"] / read["seconds"], "written": count / written["seconds"]}

    def clean_up(self, server: ServerProcess) -> None:
        topic = self._topics.pop(server.port, None)
        if not self._topics and self._worker is not None:
            self._worker.close()
            self._worker = None
        if topic is not None:
            remove_topic(server, topic)
