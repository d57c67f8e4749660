"""Kafka's own performance tools as clients: kafka-producer-perf-test and kafka-consumer-perf-test."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.broker import JARS

TIMEOUT_S = 120
OPTIONS = ("-Xmx512M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Djava.awt.headless=true")
"""As its script has it."""
PRODUCED = re.compile(
    r"([\d.]+) (?:steady state )?records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency,"
    r" ([\d.]+) ms max latency, (\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99.9th"
)


class ToolFailedError(RuntimeError):
    """A tool did not do what it was asked for; the message is what it printed."""


@dataclass(frozen=True, slots=True)
class Produced:
    records: float
    records_per_s: float
    p50_ms: float
    p99_ms: float


def _run(main: str, *arguments: str) -> str:
    java = shutil.which("java")
    assert java is not None
    command = [java, *OPTIONS, "-cp", f"{JARS}{os.sep}*", f"org.apache.kafka.tools.{main}", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    if result.returncode != 0:
        raise ToolFailedError(f"{main} {' '.join(arguments)}\n{result.stdout}\n{result.stderr}")
    return result.stdout


def produce(bootstrap: str, topic: str, records: int, size: int, warm_up: int, properties: dict[str, str]) -> Produced:
    """Sends as fast as it can. The first records are for the tool's own virtual machine to warm up."""
    text = _run(
        "ProducerPerformance",
        "--bootstrap-server", bootstrap,
        "--topic", topic,
        "--num-records", str(records + warm_up),
        "--warmup-records", str(warm_up),
        "--record-size", str(size),
        "--throughput", "-1",
        "--command-property", *(f"{name}={value}" for name, value in properties.items()),
    )  # fmt: skip
    found = PRODUCED.findall(text)
    if not found:
        raise ToolFailedError(text)
    # The last line sums up what came after the warm-up.
    sent, rate, _, _, _, p50, _, p99, _ = found[-1]
    if float(sent) != records:
        raise ToolFailedError(f"{sent} of {records} records were counted:\n{text}")
    return Produced(float(sent), float(rate), float(p50), float(p99))


def consume(bootstrap: str, topic: str, records: int, properties: Mapping[str, str]) -> float:
    """Returns records per second, without the time that joining the group took."""
    arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records)]
    for name, value in properties.items():
        arguments += ["--command-property", f"{name}={value}"]
    text = _run("ConsumerPerformance", *arguments)
    header, values = [[field.strip() for field in line.split(",")] for line in text.strip().splitlines()[-2:]]
    row = dict(zip(header, values, strict=True))
    seen = int(row["data.consumed.in.nMsg"])
    if seen < records:
        raise ToolFailedError(f"{seen} of {records} records came:\n{text}")
    return seen / (int(row["fetch.time.ms"]) / 1000)
