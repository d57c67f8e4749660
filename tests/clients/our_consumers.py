"""Consumers of ours for tests: in threads, in processes, and beside members of other projects."""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.waiting import until

from barnabas.clients.consumer import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from barnabas.clients.consumer.group_metadata import CloseOptions
from barnabas.clients.producer import KafkaProducer
from clients.member_processes import Member
from oracles.java import class_path
from oracles.line_program import compiled_classes

PARTITIONS: Final = 4
EVERYTHING: Final = set(range(PARTITIONS))
_SCRIPT: Final = Path(__file__).with_name("our_group_member.py")

SESSION_MS: Final = "20000"
"""Long enough for a member that gets no processor for a while, short enough for a test that waits for its end."""

KINDS: Final[dict[str, dict[str, str]]] = {
    "consumer": {"group.protocol": "consumer"},
    "range": {
        "group.protocol": "classic",
        "partition.assignment.strategy": "range",
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": "300",
    },
    "cooperative-sticky": {
        "group.protocol": "classic",
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": "300",
    },
}
"""Settings of ours, which are also those of the Java client."""


class ThreadMember(ConsumerRebalanceListener):
    """A consumer that reads in a thread, and keeps books about what it has."""

    def __init__(self, kind: str, bootstrap: str, group: str, topics: Any, **settings: Any) -> None:
        self.kind = kind
        self.partitions: set[int] = set()
        self.held: list[tuple[int, float, float]] = []
        self.records: list[tuple[int, int]] = []
        self.calls: list[tuple[str, tuple[TopicPartition, ...]]] = []
        self._since: dict[TopicPartition, float] = {}
        self._stop = threading.Event()
        self._going = threading.Event()
        self._going.set()
        """While it is not set, the application does not poll."""
        self.error: BaseException | None = None
        self._close_options: CloseOptions | None = None
        self.consumer = KafkaConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
                **KINDS.get(kind, {}),
                **settings,
            }
        )
        self.consumer.subscribe(topics, self)
        self._thread = threading.Thread(target=self._run, name=f"member {kind}")
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._going.wait()
                for record in self.consumer.poll(100):
                    self.records.append((record.partition, record.offset))
        except BaseException as error:  # noqa: BLE001 - the test is told
            self.error = error
        finally:
            self.consumer.close(self._close_options)

    def pause(self) -> None:
        """Polls no more, until `resume`."""
        self._going.clear()

    def resume(self) -> None:
        self._going.set()

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("assigned", tuple(partitions)))
        now = time.monotonic()
        for one in partitions:
            assert one not in self._since, f"{one} assigned twice"
            self._since[one] = now
        self.partitions = {one.partition for one in self._since}

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("revoked", tuple(partitions)))
        self._drop(partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("lost", tuple(partitions)))
        self._drop(partitions)

    def _drop(self, partitions: Sequence[TopicPartition]) -> None:
        now = time.monotonic()
        for one in partitions:
            self.held.append((one.partition, self._since.pop(one), now))
        self.partitions = {one.partition for one in self._since}

    @property
    def owned(self) -> set[TopicPartition]:
        return set(self._since)

    def stop(self) -> None:
        self._stop.set()
        self._going.set()
        self._thread.join(120)

    def close(self, options: CloseOptions | None = None) -> None:
        """Leaves in order; raises what went wrong before that."""
        self._close_options = options
        self.stop()
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error


def process_member(kind: str, bootstrap: str, group: str, topic: str) -> Member:
    """One of ours that can be killed."""
    settings = [f"{name}={value}" for name, value in KINDS[kind].items()]
    command = [sys.executable, str(_SCRIPT), bootstrap, group, topic, *settings]
    return Member(f"ours-{kind}", bootstrap, group, topic, command=command)


_JAVA_ASSIGNORS: Final = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


def java_member(kind: str, bootstrap: str, group: str, topic: str) -> Member:
    """Kafka's own consumer."""
    jars = class_path()
    path = ":".join(map(str, [compiled_classes("GroupMember", jars), *jars]))
    settings = [f"{name}={_JAVA_ASSIGNORS.get(value, value)}" for name, value in KINDS[kind].items()]
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    command = ["java", *options, "-cp", path, "GroupMember", bootstrap, group, topic, *settings]
    return Member(f"java-{kind}", bootstrap, group, topic, command=command)


class OurWriter:
    """Writes records to all partitions until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5)
        self._topic = topic
        self._stop = threading.Event()
        self.written: set[tuple[int, int]] = set()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        sent = []
        while not self._stop.wait(0.005):
            number += 1
            sent.append(self._producer.send(self._topic, str(number).encode(), partition=number % PARTITIONS))
        self._producer.flush()
        for future in sent:
            metadata = future.result(60)
            self.written.add((metadata.partition, metadata.offset))

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.close()


def settle(members: Sequence[Any], seconds: float = 120) -> None:
    """Waits until the members have all partitions between them, each one, and none has nothing."""

    def settled() -> bool:
        owned = [number for member in members for number in list(member.partitions)]
        return sorted(owned) == sorted(EVERYTHING) and all(member.partitions for member in members)

    until(settled, lambda: [(member.kind, member.partitions) for member in members], seconds)


def wait_for_all(members: Sequence[Any], written: set[tuple[int, int]], seconds: float = 120) -> None:
    def missing() -> set[tuple[int, int]]:
        return written - set().union(*(set(member.records) for member in members))

    until(lambda: not missing(), lambda: f"{len(missing())} of {len(written)} records were not delivered", seconds)


def end(members: Iterable[Any]) -> None:
    """Whatever has happened, nothing is left behind."""
    for member in members:
        if isinstance(member, Member):
            if member.is_running:
                member.kill()
        else:
            member.stop()


def unique(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"
