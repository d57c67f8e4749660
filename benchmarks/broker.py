"""A whole broker: how soon it is there, what it costs, and what many partitions cost. Apache Kafka beside it.

**Start-up** is from the start of the process to the first answer to ApiVersions, with modules that are compiled, as in
an installed package, and in turns: ours, Kafka's, ours again. Once with an empty directory, which ours has to format
first (Kafka's is formatted, which takes it another start of its virtual machine), once with a thousand partitions in
ten topics. **Memory** is what the process has in RAM a second later, before any client has come. Kafka runs with the
options of its own start script.

**Scale**: a thousand topics with ten partitions each are made and listed. A produce request should then cost as much as
it did with one topic. The broker is stopped and started again with them.

Where a target is an upper bound, the ratio says how much room there is: the bound divided by what was measured.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from barnabas.common.errors import Errors
from benchmarks.broker_process import BrokerProcess, ServerProcess, free_port, listeners_text, ports_of
from benchmarks.measure import Row
from benchmarks.waiting import until
from benchmarks.wire_client import WireClient, batch_of

ROUNDS = 3
EMPTY_MS = 400.0
WITH_PARTITIONS_MS = 1_000.0
RESIDENT_MB = 60.0
TOPICS = 10
SCALE_TOPICS = 1_000
SCALE_PARTITIONS = 10
CREATED_AT_ONCE = 100
SETTLE_S = 1.0
PRODUCE_RATIO = 0.8
"""How much of its speed a produce request may not lose with ten thousand partitions around it."""

ROOT = Path(__file__).resolve().parents[1]
JARS = ROOT / "target" / "server-jars"
KAFKA_OPTIONS = (
    "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
)  # fmt: skip
KAFKA_CLUSTER = "5L6g3nShT-eMCtK--X86sw"


class KafkaProcess(ServerProcess):
    """Apache Kafka, broker and controller in one process."""

    def __init__(
        self, directory: Path, overrides: Mapping[str, object] | None = None, listeners: Collection[str] = ()
    ) -> None:
        """``listeners``: further ones for clients, each named by its security protocol."""
        java = shutil.which("java")
        assert java is not None
        directory.mkdir()
        self.data_dir = directory / "data"
        ports, controller_port = ports_of(listeners), free_port()
        config = directory / "server.properties"
        config.write_text(
            "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
            f"listeners={listeners_text(ports | {'CONTROLLER': controller_port})}\n"
            f"controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}\n"
            f"log.dirs={self.data_dir}\noffsets.topic.replication.factor=1\n"
            + "".join(f"{key}={value}\n" for key, value in (overrides or {}).items())
        )
        run = [java, *KAFKA_OPTIONS, "-cp", f"{JARS}{os.sep}*"]
        super().__init__([*run, "kafka.Kafka", str(config)], ports, directory / "out", os.environ)
        format_command = [*run, "kafka.tools.StorageTool", "format", "-t", KAFKA_CLUSTER, "-c", str(config)]
        subprocess.run([*format_command, "--standalone"], check=True, capture_output=True, timeout=60)

    @staticmethod
    def is_available() -> bool:
        return shutil.which("java") is not None and any(JARS.glob("kafka_2.13-*.jar"))


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        pycache = compiled(directory / "pycache")
        contenders: dict[str, Callable[[Path], ServerProcess]] = {
            "barnabas": lambda place: BrokerProcess(place / "barnabas", "--quiet", pycache=pycache)
        }
        if KafkaProcess.is_available():
            contenders["Apache Kafka"] = lambda place: KafkaProcess(place / "kafka")
        return [*start_up(directory, contenders), *scale(directory, pycache)]


def compiled(pycache: Path) -> Path:
    """A first start leaves its compiled modules there, for all others."""
    with BrokerProcess(pycache.with_name("warm"), "--quiet", pycache=pycache):
        pass
    return pycache


# -- start-up


def start_up(directory: Path, contenders: dict[str, Callable[[Path], ServerProcess]]) -> list[Row]:
    rows: list[Row] = []
    for case, partitions, bound in (
        ("start with an empty directory", 0, EMPTY_MS),
        ("start with 1,000 partitions", 1_000, WITH_PARTITIONS_MS),
    ):
        place = Path(tempfile.mkdtemp(dir=directory))
        servers = {name: make(place) for name, make in contenders.items()}
        for server in servers.values():
            prepare(server, partitions)
        times: dict[str, list[float]] = {name: [] for name in servers}
        stops: dict[str, list[float]] = {name: [] for name in servers}
        memory: dict[str, float] = {}
        for _ in range(ROUNDS):
            for name, server in servers.items():
                if isinstance(server, BrokerProcess) and not partitions:
                    shutil.rmtree(server.data_dir)
                times[name].append(server.start() * 1000)
                time.sleep(SETTLE_S)
                memory[name] = server.resident_bytes / 1e6
                started = time.perf_counter()
                server.stop()
                stops[name].append((time.perf_counter() - started) * 1000)
        rows += bounded(case, "ms", {name: statistics.median(values) for name, values in times.items()}, bound)
        rows += bounded(f"{case}: stop", "ms", {name: statistics.median(values) for name, values in stops.items()})
        rows += bounded(f"{case}: memory when idle", "MB", memory, RESIDENT_MB if not partitions else None)
    return rows


def prepare(server: ServerProcess, partitions: int) -> None:
    """A first start, which makes the topics and does not count."""
    with server, WireClient(server.bootstrap_servers) as client:
        if partitions:
            names = [f"topic-{number}" for number in range(TOPICS)]
            assert set(client.create_topics([(name, partitions // TOPICS) for name in names])) == {Errors.NONE}
            await_leader(client, names[-1], partitions // TOPICS - 1)


def await_leader(client: WireClient, topic: str, partition: int) -> None:
    until(lambda: client.fetch(topic, partition)[0] is Errors.NONE, f"{topic}-{partition} is led")


def bounded(case: str, unit: str, measured: dict[str, float], bound: float | None = None) -> list[Row]:
    ours = measured["barnabas"]
    first = (
        Row(case, "barnabas", ours, unit)
        if bound is None
        else Row(case, "barnabas", ours, unit, bound / ours, f"{bound:,.0f} {unit}", 1.0)
    )
    peers = [
        Row(case, name, value, unit, value / ours, "barnabas") for name, value in measured.items() if name != "barnabas"
    ]
    return [first, *peers]


# -- scale


def scale(directory: Path, pycache: Path) -> list[Row]:
    count = SCALE_TOPICS * SCALE_PARTITIONS
    case = f"{SCALE_TOPICS:,} topics with {SCALE_PARTITIONS} partitions"
    broker = BrokerProcess(directory / "scale", "--quiet", pycache=pycache)
    broker.start()
    empty = broker.resident_bytes
    with WireClient(broker.bootstrap_servers) as client:
        client.create_topic("first", SCALE_PARTITIONS)
        before = produce_rate(client, ["first"])
        names = [f"topic-{number:04}" for number in range(SCALE_TOPICS)]
        started = time.perf_counter()
        for start in range(0, SCALE_TOPICS, CREATED_AT_ONCE):
            client.create_topics([(name, SCALE_PARTITIONS) for name in names[start : start + CREATED_AT_ONCE]])
        await_leader(client, names[-1], SCALE_PARTITIONS - 1)
        created = time.perf_counter() - started
        started = time.perf_counter()
        listed = client.metadata().topics
        listing = time.perf_counter() - started
        assert sum(len(topic.partitions) for topic in listed) == count + SCALE_PARTITIONS
        after = produce_rate(client, ["first"])
        per_partition = (broker.resident_bytes - empty) / count
        descriptors = broker.descriptors
    started = time.perf_counter()
    broker.stop()
    stopped = time.perf_counter() - started
    restarted = broker.start()
    broker.stop()
    few, many = f"{SCALE_PARTITIONS} partitions", f"{count:,} partitions"
    return [
        Row(case, "create", count / created, "partitions/s"),
        Row(case, "list all", listing * 1000, "ms"),
        Row(case, "memory of each partition", per_partition, "bytes"),
        Row(case, "open files", descriptors, ""),
        Row(case, "stop", stopped * 1000, "ms"),
        Row(case, "start again", restarted * 1000, "ms"),
        Row("produce requests, one after the other", many, after, "/s", after / before, few, PRODUCE_RATIO),
        Row("produce requests, one after the other", few, before, "/s"),
    ]


def produce_rate(client: WireClient, topics: Sequence[str], rounds: int = 7, requests: int = 500) -> float:
    batch = batch_of(bytes(1000))

    def work() -> float:
        started = time.perf_counter()
        for number in range(requests):
            topic = topics[number % len(topics)]
            assert client.produce_batch(topic, number % SCALE_PARTITIONS, batch)[0] is Errors.NONE
        return requests / (time.perf_counter() - started)

    work()
    return statistics.median(work() for _ in range(rounds))
