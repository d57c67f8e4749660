"""Producers beside each other: ours, kafka-python, aiokafka and confluent-kafka (librdkafka), on one broker of ours.

Each run is a process of its own (see `producer_clients`) that sends a fixed number of records without keys to a new
topic, acks=all and otherwise with the client's own defaults. How many depends on how fast it is: a run takes about a
second, for a shorter one would tell how clients start. `send_table` gets tables of ten megabytes. Clients take turns;
the medians of the rounds are compared. A run begins when what the one before has written is deleted, and a round when
nothing is left to write: else the disk of a small machine sets the pace, or the host that gives it memory (see
`quiet`). Afterwards the broker is asked how many records it has: a client that lost some would be quick.

What the defaults mean: kafka-python and aiokafka fill batches of 16 KiB, about 150 records of 100 bytes or 15 of 1 KiB.
Ours take up to 256 KiB while they wait to be sent, librdkafka's up to a million bytes. A broker has work to do for each
batch, so that it is often the batches, not the clients, that are compared; confluent-kafka and ours are therefore there
a second time, with batches of 16 KiB.
Ours and kafka-python 3 are idempotent, the other two are not.

What no producer can pass stands below: the same bytes sent by a bare loop, received and written to a file by another
(see `ceiling`).

Beside the rate stands what a record costs the producer's process in processor time. Broker and producer share the
machine, and on one with few cores each slows down the other, so the two tell different things.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.common.errors import Errors
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from benchmarks import ceiling
from benchmarks.broker_process import BrokerProcess, source_environment
from benchmarks.measure import Row
from benchmarks.peers.quiet import await_deleted, settle
from benchmarks.producer_clients import WARM_UP
from benchmarks.wire_client import WireClient

ROUNDS = 5
PARTITIONS = 6
SIZES = {"100-byte values": (100, 2_000_000), "1 KiB values": (1024, 500_000)}
SLOW = 30
"""The part of the records that slow clients send: one in so many."""
FAST = 2
"""How many times as many tables have."""
OVERRIDES = {"log.segment.delete.delay.ms": 0, "log.initial.task.delay.ms": 0}
"""Gigabytes a round: the files of a deleted topic go at once, not a minute later."""
TIMEOUT_S = 120.0
OURS = "barnabas"
TABLE = "barnabas send_table"
TABLE_OVER_TCP = "barnabas send_table over TCP"
PEERS = {"kafka-python": ("kafka", 3.0), "aiokafka": ("aiokafka", 1.5), "confluent-kafka": ("confluent_kafka", 0.5)}
"""The module of each, and how many times its rate ours is to reach."""
SLOW_PEERS = frozenset({"kafka-python", "aiokafka"})
SMALL_BATCHES = ("barnabas, batch.size=16384", "confluent-kafka, batch.size=16384")
TABLE_TARGET = 3.0
"""`send_table` against single sends of confluent-kafka."""
STRIDE = 3
"""How many places further on in the list of clients each round begins."""
CEILING = "no client, no broker: receive, write to a file"
CEILING_BYTES = 1_000_000_000
CEILING_ROUNDS = 3
LATEST = -1


@dataclass(slots=True)
class Runs:
    """What was measured for one client and one size."""

    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)


def contenders() -> list[str]:
    names = [OURS]
    if importlib.util.find_spec("pyarrow") is not None:
        names += [TABLE, TABLE_OVER_TCP]
    names += [name for name, (module, _) in PEERS.items() if importlib.util.find_spec(module) is not None]
    return [*names, *SMALL_BATCHES] if "confluent-kafka" in names else names


def run() -> list[Row]:
    rows: list[Row] = []
    with (
        tempfile.TemporaryDirectory() as name,
        BrokerProcess(Path(name) / "data", "--quiet", overrides=OVERRIDES) as broker,
    ):
        for case, (size, count) in SIZES.items():
            measured = {client: Runs() for client in contenders()}
            for number in range(ROUNDS + 1):
                settle([broker])
                # Each begins a round in turn: the first ones find more room for what they write.
                order = list(measured.items())
                first = number * STRIDE % len(order)
                for client, runs in order[first:] + order[:first]:
                    # The first round reads modules from the disk and warms up the broker.
                    wanted = records_for(client, count if number else count // 10)
                    await_deleted([broker])
                    rate, cpu_us = produce(broker.bootstrap_servers, client, size, wanted)
                    if number:
                        runs.rates.append(rate)
                        runs.cpu_us.append(cpu_us)
            rows += compared(case, measured)
            rows += [Row(case, f"{CEILING}, {way}", bare_rate(broker, size, way), "records/s") for way in ceiling.WAYS]
    return rows


def bare_rate(broker: BrokerProcess, size: int, way: str) -> float:
    """Records/s of this size that go through a bare loop."""
    rates = []
    for _ in range(CEILING_ROUNDS):
        settle([broker])
        rates.append(ceiling.written(CEILING_BYTES, way) / size)
    return statistics.median(rates)


def records_for(client: str, count: int) -> int:
    """How many records keep a client busy for about as long as so many keep one that sends them one by one."""
    if client in SLOW_PEERS:
        return count // SLOW
    return count * FAST if client in {TABLE, TABLE_OVER_TCP} else count


def compared(case: str, measured: dict[str, Runs]) -> list[Row]:
    ours = measured[OURS].rate
    rows = [
        Row(case, OURS, ours, "records/s", ours / measured[peer].rate, peer, target)
        for peer, (_, target) in PEERS.items()
        if peer in measured
    ]
    if TABLE in measured and "confluent-kafka" in measured:
        against = measured["confluent-kafka"].rate
        for client, target in ((TABLE, TABLE_TARGET), (TABLE_OVER_TCP, None)):
            table = measured[client].rate
            rows.append(Row(case, client, table, "records/s", table / against, "confluent-kafka", target))
    ours_small, theirs_small = SMALL_BATCHES
    if theirs_small in measured:
        small = measured[ours_small].rate
        rows.append(Row(case, ours_small, small, "records/s", small / measured[theirs_small].rate, theirs_small))
    rows += [
        Row(case, client, runs.rate, "records/s")
        for client, runs in measured.items()
        if client not in {OURS, TABLE, TABLE_OVER_TCP, ours_small}
    ]
    return rows + [
        Row(f"{case}: processor time of the producer", client, statistics.median(runs.cpu_us) * 1000, "ns/record")
        for client, runs in measured.items()
    ]


def produce(servers: str, client: str, size: int, count: int) -> tuple[float, float]:
    """One run; records/s, and microseconds of processor time for a record."""
    topic = "records"
    with WireClient(servers) as wire:
        wire.create_topic(topic, PARTITIONS)
        command = [sys.executable, "-m", "benchmarks.producer_clients", client, servers, topic, str(size), str(count)]
        done = subprocess.run(command, capture_output=True, check=False, timeout=TIMEOUT_S, env=source_environment())
        if done.returncode:
            raise RuntimeError(f"{client} failed:\n{done.stderr.decode(errors='replace')}")
        report = json.loads(done.stdout)
        written = record_count(wire, topic)
        assert written == count + WARM_UP, f"{client} has sent {count + WARM_UP} records, and there are {written}"
        deleted = wire.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 5, DeleteTopicsResponse)
        assert [Errors.for_code(row.error_code) for row in deleted.responses] == [Errors.NONE]
    return count / report["seconds"], report["cpu_seconds"] / count * 1e6


def record_count(wire: WireClient, topic: str) -> int:
    asked = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in range(PARTITIONS)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=asked)])
    response = wire.ask(request, 6, ListOffsetsResponse)
    assert all(row.error_code == 0 for row in response.topics[0].partitions)
    return sum(row.offset for row in response.topics[0].partitions)
