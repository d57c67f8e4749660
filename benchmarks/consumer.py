"""Consumers beside each other: ours, kafka-python, aiokafka and confluent-kafka (librdkafka), on one broker of ours.

A topic is filled once by confluent-kafka, and every run, a process of its own (see `consumer_clients`), reads all of
it, without a group and with the client's own defaults; those that make an object of Python's for each field of a record
read a fifth of it, which takes them longer still. Clients take turns; the medians of the rounds are compared.

What no consumer can pass stands below: the same bytes of a file, sent by a bare loop and received by another (see
`ceiling`).

Beside the rate stands what a record costs the consumer's process in processor time. Broker and consumer share the
machine, and on one with few cores each slows down the other, so the two tell different things.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka

from benchmarks import ceiling
from benchmarks.broker_process import BrokerProcess, source_environment
from benchmarks.measure import Row
from benchmarks.wire_client import WireClient

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
PARTITIONS = 6
SIZES = {"100-byte values": (100, 2_000_000), "1 KiB values": (1024, 750_000)}
SLOW = 5
"""The part of a topic that slow clients read: one in so many."""
TIMEOUT_S = 120.0
OURS = "barnabas"
POLL = "barnabas poll"
TABLE = "barnabas poll_table"
VIEWS = "barnabas poll_table of views"
"""With ``binary_type="binary_view"``: keys and values are not copied."""
TABLE_OVER_TCP = "barnabas poll_table over TCP"
PEERS = {"kafka-python": ("kafka", 3.0), "aiokafka": ("aiokafka", 1.0)}
"""The module of each, and how many times its rate iterating over ours is to reach."""
BATCHED = "confluent-kafka"
TABLE_TARGET = 3.0
"""`poll_table` against confluent-kafka's ``consume`` of batches."""
CEILING = "no client, no broker: send a file, receive"
CEILING_BYTES = 1_000_000_000


@dataclass(slots=True)
class Runs:
    """What was measured for one client and one size."""

    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)


def contenders() -> list[str]:
    names = [OURS, POLL]
    if importlib.util.find_spec("pyarrow") is not None:
        names += [TABLE, VIEWS, TABLE_OVER_TCP]
    return [*names, *(name for name, (module, _) in PEERS.items() if importlib.util.find_spec(module)), BATCHED]


def run() -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name, BrokerProcess(Path(name) / "data", "--quiet") as broker:
        for case, (size, count) in SIZES.items():
            topic = f"records-{size}"
            fill(broker.bootstrap_servers, topic, size, count)
            measured = {client: Runs() for client in contenders()}
            bare: dict[str, list[float]] = {way: [] for way in ceiling.WAYS}
            for number in range(ROUNDS + 1):
                for way, rates in bare.items():
                    if number:
                        rates.append(ceiling.read(CEILING_BYTES, way) / size)
                for client, runs in measured.items():
                    wanted = count // SLOW if client in PEERS else count
                    rate, cpu_us = consume(broker.bootstrap_servers, client, topic, wanted)
                    if number:  # the first round reads modules from the disk and warms up the broker
                        runs.rates.append(rate)
                        runs.cpu_us.append(cpu_us)
            rows += compared(case, measured)
            rows += [
                Row(case, f"{CEILING}, {way}", statistics.median(rates), "records/s") for way, rates in bare.items()
            ]
    return rows


def fill(servers: str, topic: str, size: int, count: int) -> None:
    with WireClient(servers) as wire:
        wire.create_topic(topic, PARTITIONS)
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 20})
    value = bytes(number % 251 for number in range(size))
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS)
            except BufferError:
                producer.poll(0.01)
            else:
                break
    assert producer.flush() == 0


def compared(case: str, measured: dict[str, Runs]) -> list[Row]:
    ours = measured[OURS].rate
    rows = [
        Row(case, OURS, ours, "records/s", ours / measured[peer].rate, peer, target)
        for peer, (_, target) in PEERS.items()
        if peer in measured
    ]
    rows.append(
        Row(case, POLL, measured[POLL].rate, "records/s", measured[POLL].rate / measured[BATCHED].rate, BATCHED)
    )
    for name, target in ((TABLE, TABLE_TARGET), (VIEWS, TABLE_TARGET), (TABLE_OVER_TCP, None)):
        if name in measured:
            table = measured[name].rate
            rows.append(Row(case, name, table, "records/s", table / measured[BATCHED].rate, BATCHED, target))
    rows += [Row(case, peer, runs.rate, "records/s") for peer, runs in measured.items() if peer in {*PEERS, BATCHED}]
    return rows + [
        Row(f"{case}: processor time of the consumer", client, statistics.median(runs.cpu_us) * 1000, "ns/record")
        for client, runs in measured.items()
    ]


def consume(servers: str, client: str, topic: str, count: int) -> tuple[float, float]:
    """One run; records/s, and microseconds of processor time for a record."""
    command = [sys.executable, "-m", "benchmarks.consumer_clients", client, servers, topic, str(PARTITIONS), str(count)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=TIMEOUT_S, env=source_environment())
    if done.returncode:
        raise RuntimeError(f"{client} failed:\n{done.stderr.decode(errors='replace')}")
    report = json.loads(done.stdout)
    return report["records"] / report["seconds"], report["cpu_seconds"] / report["records"] * 1e6
