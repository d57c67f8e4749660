"""Records in bulk: producing as fast as a client can, and reading all that is there."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.broker_process import ServerProcess
from benchmarks.peers import java_tools, python_clients, rdkafka_client
from benchmarks.peers.case import JAVA, RDKAFKA, Metric, new_topic, number_of, remove_topic, size_text
from benchmarks.peers.listeners import WITHOUT_TLS, ClientListener

LINGER_MS = 5
"""What librdkafka has by default."""
WARM_UP_PART = 0.2
"""Records that a producer sends before the clock is started, in proportion to those after it."""
FLOWING = "throughput without the client's pauses"


def _labels(listener: ClientListener) -> list[str]:
    return [listener.label] if listener.label else []


@dataclass(frozen=True, slots=True)
class Produce:
    """As fast as the client can. CPU is the broker's, counted from before the client connects until it is done, and for
    all records, those of the client's warm-up too."""

    client: str
    size: int
    acks: str
    partitions: int
    megabytes: float
    clients: int = 1
    codec: str = "none"
    target: float | None = None
    cpu_target: float | None = None
    listener: ClientListener = WITHOUT_TLS

    @property
    def key(self) -> str:
        parts = ["produce", self.client.lower(), f"{self.size}B", f"acks-{self.acks}", f"{self.partitions}p"]
        parts += [f"{self.clients}c"] * (self.clients > 1) + [self.codec] * (self.codec != "none")
        return "-".join(parts + _labels(self.listener))

    @property
    def title(self) -> str:
        several = f", {self.clients} clients" if self.clients > 1 else ""
        codec = f", {self.codec}" if self.codec != "none" else ""
        idempotent = " idempotent" if self.acks == "all" and self.client in {JAVA, RDKAFKA} else ""
        plural = "s" if self.partitions > 1 else ""
        return (
            f"produce {size_text(self.size)}, acks={self.acks}{idempotent}, {self.partitions} partition{plural}"
            f"{several}{codec}, {', '.join([self.client, *_labels(self.listener)])}"
        )

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (
            Metric("throughput", "MB/s", target=self.target),
            Metric("broker CPU", "s/GB", more_is_better=False, target=self.cpu_target),
        )

    def prepare(self, server: ServerProcess) -> None:
        pass

    def measure(self, server: ServerProcess) -> dict[str, float]:
        topic = new_topic(server, self.partitions)
        records = number_of(self.size, self.megabytes)
        warm_up = int(records * WARM_UP_PART)
        idempotent = "true" if self.acks == "all" else "false"
        settings = {"acks": self.acks, "compression.type": self.codec, "enable.idempotence": idempotent}
        address = server.address(self.listener.name)
        before = server.cpu_seconds
        if self.client == JAVA:
            rate = java_tools.produce(
                address, topic, records, self.size, warm_up, {**settings, **self.listener.java}
            ).records_per_s
        elif self.client in python_clients.NAMES:
            warm_up = python_clients.WARM_UP
            rate = python_clients.produce(self.client, address, topic, self.size, records)
        else:
            rate = rdkafka_client.ask(
                {
                    "job": "produce",
                    "bootstrap": address,
                    "topic": topic,
                    "records": records,
                    "warm_up": warm_up,
                    "size": self.size,
                    "clients": self.clients,
                    "settings": {**settings, **self.listener.rdkafka},
                }
            )["rate"]
        cpu = server.cpu_seconds - before
        remove_topic(server, topic)
        return {"throughput": rate * self.size / 1e6, "broker CPU": cpu / ((records + warm_up) * self.size / 1e9)}

    def clean_up(self, server: ServerProcess) -> None:
        pass


@dataclass(slots=True)
class Consume:
    """Everything that is in a topic, from its beginning.

    librdkafka fetches ahead until 64 MB are waiting, and asks for nothing for up to a second then: a broker that is
    quicker than the program which takes the records makes it stop more often. Whether a single read of two seconds has
    no such pause or two of them is chance, with either broker. So a round of that client has several `reads`, one after
    the other, each with a consumer of its own, and counts their records and their time together; what the rate is
    without the pauses is told beside it.
    """

    client: str
    size: int
    partitions: int
    megabytes: float
    reads: int = 1
    target: float | None = None
    cpu_target: float | None = None
    listener: ClientListener = WITHOUT_TLS
    _topics: dict[int, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        parts = ["consume", self.client.lower(), f"{self.size}B", f"{self.partitions}p"]
        return "-".join(parts + _labels(self.listener))

    @property
    def title(self) -> str:
        client = ", ".join([self.client, *_labels(self.listener)])
        return f"consume {size_text(self.size)}, catch-up, {self.partitions} partitions, {client}"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        throughput = Metric("throughput", "MB/s", target=self.target)
        cpu = Metric("broker CPU", "s/GB", more_is_better=False, target=self.cpu_target)
        if self.client == RDKAFKA:
            return (throughput, Metric(FLOWING, "MB/s"), cpu)
        return (throughput, cpu)

    def prepare(self, server: ServerProcess) -> None:
        topic = self._topics[server.port] = new_topic(server, self.partitions)
        rdkafka_client.ask(
            {
                "job": "produce",
                "bootstrap": server.bootstrap_servers,
                "topic": topic,
                "records": number_of(self.size, self.megabytes),
                "warm_up": 0,
                "size": self.size,
                "clients": 1,
                # Keyless records stick to a partition for a while; this spreads them evenly.
                "settings": {"acks": "1", "linger.ms": LINGER_MS, "sticky.partitioning.linger.ms": 0},
            }
        )

    def measure(self, server: ServerProcess) -> dict[str, float]:
        records = number_of(self.size, self.megabytes)
        topic = self._topics[server.port]
        address = server.address(self.listener.name)
        before = server.cpu_seconds
        rates: dict[str, float] = {}
        if self.client == JAVA:
            rates["throughput"] = java_tools.consume(address, topic, records, self.listener.java)
        elif self.client in python_clients.NAMES:
            rates["throughput"] = python_clients.consume(self.client, address, topic, self.partitions, records)
        else:
            answer = rdkafka_client.ask(
                {
                    "job": "consume",
                    "bootstrap": address,
                    "topic": topic,
                    "records": records,
                    "partitions": self.partitions,
                    "reads": self.reads,
                    "settings": dict(self.listener.rdkafka),
                }
            )
            rates = {"throughput": answer["steady_rate"], FLOWING: answer["flowing_rate"]}
        cpu = server.cpu_seconds - before
        return {
            **{name: rate * self.size / 1e6 for name, rate in rates.items()},
            "broker CPU": cpu / (self.reads * records * self.size / 1e9),
        }

    def clean_up(self, server: ServerProcess) -> None:
        if (topic := self._topics.pop(server.port, None)) is not None:
            remove_topic(server, topic)
