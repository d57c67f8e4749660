"""One data directory, used by Apache Kafka and by us in turns.

Both are given the same ``server.properties`` and the same ports, so that to clients it is one broker that is restarted,
and a producer that lives through it goes on where it was: with the same producer id, and with the next sequence number.

Each server finds what the others have written, adds to it, and leaves the rest as it is.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from benchmarks.waiting import until

from oracles.dump_log import complaints
from oracles.java_client import JavaClient
from oracles.kafka_server import CLUSTER_ID, KafkaServer
from oracles.kafka_tools import KafkaTools

pytestmark = pytest.mark.java

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SECONDS = 30
SEVERAL_SEGMENTS = {"retention.ms": "-1", "segment.ms": "300"}
"""The records are 10 ms apart, by their own time."""


class Site:
    """Data directories with their configuration, and what ought to be found in them."""

    def __init__(self, directory: Path, client: JavaClient, *, static_voters: bool) -> None:
        self.kafka = KafkaServer(
            directory,
            static_voters=static_voters,
            log_dirs=f"{directory / 'one'},{directory / 'two'}",
            log_index_interval_bytes="1000",
            offsets_topic_num_partitions="2",
            transaction_state_log_num_partitions="2",
            transaction_state_log_replication_factor="1",
            transaction_state_log_min_isr="1",
            # So that snapshots are made, and the next server has to read them.
            metadata_log_max_record_bytes_between_snapshots="3000",
            log_flush_start_offset_checkpoint_interval_ms="100",
            log_initial_task_delay_ms="500",
            # A Kafka that was killed waits for the end of its own session.
            broker_session_timeout_ms="2000",
            broker_heartbeat_interval_ms="500",
        )
        self._log_file = directory / "barnabas.log"
        self._client = client
        self._expected: dict[str, list[tuple[str, str, int]]] = {}
        """By partition: key, value and timestamp of each record that is still there, after those deleted."""
        self._first: dict[str, int] = {}
        self._configs: dict[str, dict[str, str]] = {}
        self._ids: dict[str, str] = {}
        self._producers: dict[str, list[int]] = {}
        """The state of the idempotent producer of a topic: its id, its epoch, and its last sequence number."""
        self._began = int(time.time() * 1000) - 3_600_000
        """The time of all first records: producers of old ones would be forgotten."""

    # -- servers

    def format(self) -> None:
        """``barnabas format``"""
        command = ["format", "--config", str(self.kafka.config_file), "--cluster-id", CLUSTER_ID]
        subprocess.run([sys.executable, "-m", "barnabas.cli.main", *command], check=True, capture_output=True)

    @contextmanager
    def apache_kafka(self, *, killed: bool = False) -> Iterator[None]:
        """Kafka itself; it has nothing to complain about in what it finds."""
        self.kafka.start()
        said = self.kafka.log_file.read_text().splitlines()
        complained = [line for line in said if _COMPLAINT.search(line) and not _KNOWN.search(line)]
        assert not complained, complained
        yield
        if killed:
            self._await_checkpoint()
            self.kafka.kill()
        else:
            self.kafka.stop()

    @contextmanager
    def barnabas(self, *, killed: bool = False) -> Iterator[None]:
        """``barnabas start`` with Kafka's configuration; it finds nothing to complain about either."""
        command = [sys.executable, "-m", "barnabas.cli.main", "start", "--config", str(self.kafka.config_file)]
        with self._log_file.open("wb") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert process.stdout is not None
        try:
            with process.stdout:
                assert process.stdout.readline(), self._log_file.read_text()  # the banner comes when it serves
                assert " WARNING " not in self._log_file.read_text(), self._log_file.read_text()
                yield
                if killed:
                    self._await_checkpoint()
                else:
                    process.send_signal(signal.SIGTERM)
                    assert process.wait(SECONDS) == 0
        finally:
            process.kill()
            process.wait()
        said = self._log_file.read_text()
        for sign in (" ERROR ", " CRITICAL ", "Traceback"):
            assert sign not in said, said

    def _await_checkpoint(self) -> None:
        """Until the offsets that logs start at are on disk, as they are from time to time; records are at once."""
        wanted = f"cut 0 {self._first['cut-0']}"
        checkpoints = "*/log-start-offset-checkpoint"
        until(lambda: any(wanted in file.read_text().splitlines() for file in self.kafka.directory.glob(checkpoints)))

    # -- what clients do

    def ask(self, op: str, **arguments: Any) -> Any:
        return self._client.ask(op, self.kafka.bootstrap_servers, **arguments)

    def create(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        wanted = {"name": topic, "partitions": partitions, "factor": 1, "configs": configs or {}}
        self._ids[topic] = self.ask("create_topics", topics=[wanted])[topic]["id"]
        until(lambda: topic in self.ask("list_topics"))
        self._configs[topic] = dict(configs or {})
        for index in range(partitions):
            self._expected[f"{topic}-{index}"] = []
            self._first[f"{topic}-{index}"] = 0

    def produce(self, topic: str, count: int, config: Mapping[str, str], *, name: str | None = None) -> None:
        """Appends records to partition 0, and expects them at the offsets that follow."""
        part = f"{topic}-0"
        kept = self._expected[part]
        begin = self._first[part] + len(kept)
        records = [
            {"partition": 0, "key": f"key {n}", "value": f"value {n} " + "x" * 200, "timestamp": self._began + 10 * n}
            for n in range(begin, begin + count)
        ]
        settings = {"acks": "all", "batch.size": "1500", **config}
        sent = self._client.produce(self.kafka.bootstrap_servers, topic, records, settings, name=name)
        assert [offset for _, offset, _ in sent] == list(range(begin, begin + count))
        kept += [(str(one["key"]), str(one["value"]), int(str(one["timestamp"]))) for one in records]

    def produce_idempotently(self, topic: str, count: int) -> None:
        """With a producer that lives as long as this object."""
        self.produce(topic, count, {"enable.idempotence": "true"}, name=f"{self.kafka.port} {topic}")
        part = f"{topic}-0"
        (state,) = self.ask("describe_producers", partitions=[part])[part]
        producer_id = self._producers.get(topic, state)[0]
        assert state == [producer_id, 0, len(self._expected[part]) - 1]
        self._producers[topic] = state

    def delete_records(self, topic: str, before: int) -> None:
        part = f"{topic}-0"
        assert self.ask("delete_records", before={part: before}) == {part: before}
        del self._expected[part][: before - self._first[part]]
        self._first[part] = before

    def delete(self, topic: str) -> None:
        assert self.ask("delete_topics", topics=[topic]) == {topic: "deleted"}
        for part in [part for part in self._expected if part.rpartition("-")[0] == topic]:
            del self._expected[part], self._first[part]
        del self._ids[topic], self._configs[topic]

    def alter(self, topic: str, **settings: str) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        ops = [["SET", name, value] for name, value in named.items()]
        change = {"type": "TOPIC", "name": topic, "ops": ops}
        assert self.ask("alter_configs", changes=[change]) == {f"TOPIC:{topic}": "altered"}
        self._configs[topic] |= named

    def transactions(self) -> None:
        """Some that ended well, and some that did not."""
        self.ask("create_topics", topics=[{"name": "__of-transactions", "partitions": 1, "factor": 1}])
        for outcome in ("commit", "abort", "commit", "abort"):
            config = {"transactional.id": "t", "acks": "all"}
            values = [f"{outcome} {n}" for n in range(3)]
            self.ask("transaction", topic="__of-transactions", values=values, outcome=outcome, config=config)

    def check_transactions(self) -> None:
        """Whoever reads committed records gets the aborted ones from the broker, and knows which these are."""

        def read(isolation: str, count: int) -> list[str]:
            config = {"isolation.level": isolation}
            got = self._client.consume(self.kafka.bootstrap_servers, {"__of-transactions-0": 0}, count, config)
            return [one["value"].split()[0] for one in got]

        assert read("read_committed", 6) == ["commit"] * 6
        assert read("read_uncommitted", 12) == (["commit"] * 3 + ["abort"] * 3) * 2
        end = self.ask("list_offsets", specs={"__of-transactions-0": "latest"}, committed=True)
        assert end["__of-transactions-0"][0] == 16  # each transaction ends with a marker

    def close(self) -> None:
        for topic in self._producers:
            self.ask("close_producer", name=f"{self.kafka.port} {topic}")

    # -- what has to be there

    def check(self) -> None:
        """All of it, by way of a client."""
        assert self.ask("describe_cluster")["clusterId"] == CLUSTER_ID
        topics = self.ask("list_topics")
        assert {name: topic_id for name, topic_id in topics.items() if not name.startswith("__")} == self._ids
        self._check_settings()
        producers = {f"{topic}-0": [state] for topic, state in self._producers.items()}
        assert self.ask("describe_producers", partitions=list(producers)) == producers
        ends = {part: [first, first + len(self._expected[part])] for part, first in self._first.items()}
        assert self.ask("consumer_offsets", partitions=list(ends)) == ends
        total = sum(map(len, self._expected.values()))
        found: dict[str, list[tuple[int, str, str, int]]] = {part: [] for part in ends}
        for one in self._client.consume(self.kafka.bootstrap_servers, self._first, total):
            record = one["offset"], one["key"], one["value"], one["timestamp"]
            found[f"{one['topic']}-{one['partition']}"].append(record)
        assert found == {
            part: [(offset, *record) for offset, record in enumerate(expected, self._first[part])]
            for part, expected in self._expected.items()
        }
        self._check_times()

    def check_files(self, tools: KafkaTools) -> None:
        """By way of ``kafka-dump-log``, while no server runs."""
        assert complaints(tools, [self.kafka.directory / "one", self.kafka.directory / "two"]) == []

    def snapshot_epochs(self) -> set[int]:
        """In which epochs, that is by which servers, snapshots of the metadata were written."""
        found = self.kafka.directory.glob("one/__cluster_metadata-0/*.checkpoint")
        return {int(file.stem.partition("-")[2]) for file in found}

    def _check_settings(self) -> None:
        resources = [{"type": "TOPIC", "name": topic} for topic in self._ids]
        found = {
            name.removeprefix("TOPIC:"): {
                name: entry["value"] for name, entry in entries.items() if entry["source"] == "DYNAMIC_TOPIC_CONFIG"
            }
            for name, entries in self.ask("describe_configs", resources=resources).items()
        }
        assert found == self._configs

    def _check_times(self) -> None:
        """Looks records up by their time; between two of them, it is the later that is found."""
        filled = {part: expected for part, expected in self._expected.items() if expected}
        for share in (0, 0.3, 0.999):
            chosen = {part: int(len(expected) * share) for part, expected in filled.items()}
            times = {part: filled[part][index][2] for part, index in chosen.items()}
            assert self.ask("offsets_for_times", times={part: at - 5 for part, at in times.items()}) == {
                part: [self._first[part] + index, times[part]] for part, index in chosen.items()
            }
        newest = self.ask("list_offsets", specs=dict.fromkeys(filled, "max_timestamp"))
        assert {part: found[:2] for part, found in newest.items()} == {
            part: [self._first[part] + len(expected) - 1, expected[-1][2]] for part, expected in filled.items()
        }
        assert set(self.ask("offsets_for_times", times=dict.fromkeys(self._first, 1 << 50)).values()) == {None}


_COMPLAINT = re.compile(r" (main|log-recovery\S*|\S*(raft-io|metadata-loader|quorum-controller)\S*) (ERROR|WARN) ")
"""Of those who read files."""
_KNOWN = re.compile(r"Performing controller activation|-delete/")
"""What Kafka says whenever it starts, and about a log that it deletes as soon as it has loaded it."""

QUOTA = [{"user": "somebody"}, {"producer_byte_rate": 12345678.0}]


def first_turn(site: Site) -> None:
    """What a cluster has seen after a while."""
    for codec in CODECS:
        site.create(f"of-{codec}", configs=SEVERAL_SEGMENTS)
        site.produce(f"of-{codec}", 60, {"compression.type": codec, "enable.idempotence": "false"})
    site.create("continued", 3, {"retention.ms": "-1", "segment.bytes": "1048576"})
    site.produce_idempotently("continued", 100)
    site.create("compacted", configs={"cleanup.policy": "compact", "segment.ms": "1000000"})
    site.create("gone")
    site.delete("gone")
    site.create("cut", configs=SEVERAL_SEGMENTS)
    site.produce("cut", 200, {})
    site.delete_records("cut", 150)
    entity, values = QUOTA
    assert site.ask("alter_quotas", changes=[{"entity": entity, "ops": values}]) == ["altered"]
    everybody = {"type": "BROKER", "name": "", "ops": [["SET", "log.cleaner.backoff.ms", "14999"]]}
    assert site.ask("alter_configs", changes=[everybody]) == {"BROKER:": "altered"}
    site.check()


def next_turn(site: Site, number: int) -> None:
    """Finds all of that, and goes on with it."""
    site.check()
    assert QUOTA in site.ask("describe_quotas")
    me = {"type": "BROKER", "name": "1"}
    backoff = site.ask("describe_configs", resources=[me])["BROKER:1"]["log.cleaner.backoff.ms"]
    assert (backoff["value"], backoff["source"]) == ("14999", "DYNAMIC_DEFAULT_BROKER_CONFIG")
    site.produce_idempotently("continued", 50)
    for codec in CODECS:
        site.produce(f"of-{codec}", 10, {"compression.type": codec})
    site.delete_records("cut", 150 + 10 * number)
    site.alter("compacted", delete_retention_ms=str(number))
    site.create(f"turn-{number}", 2, {"retention.ms": "-1"})
    site.produce(f"turn-{number}", 5, {})
    if number > 1:
        site.delete(f"turn-{number - 1}")
    assert site.ask("create_partitions", topics={"compacted": 1 + number}) == {"compacted": "created"}
    site.check()


@pytest.fixture
def site(tmp_path: Path, client: JavaClient, request: pytest.FixtureRequest) -> Iterator[Site]:
    made = Site(tmp_path, client, static_voters=request.param)
    yield made
    made.kafka.stop()


@pytest.mark.parametrize("site", [False], indirect=True, ids=["standalone"])
def test_a_directory_of_kafkas(site: Site, tools: KafkaTools) -> None:
    """With what only Kafka can write so far: transactions, offsets of groups, and credentials."""
    site.kafka.format()
    with site.apache_kafka(killed=True):
        first_turn(site)
        site.transactions()
        site.ask("commit_group_offsets", group="a group", offsets={"cut-0": 160})
        site.ask("add_scram", user="somebody")
    with site.barnabas():
        next_turn(site, 1)
        site.check_transactions()
    site.check_files(tools)
    with site.barnabas(killed=True):
        next_turn(site, 2)
    with site.apache_kafka():
        next_turn(site, 3)
        site.check_transactions()
        assert site.ask("group_offsets", group="a group") == {"cut-0": 160}
        assert site.ask("describe_scram") == {"somebody": "SCRAM-SHA-256"}
        site.close()
    assert site.snapshot_epochs() >= {0, 1, 2}  # of formatting, of Kafka, of ours


@pytest.mark.parametrize("site", [True, False], indirect=True, ids=["static-voters", "standalone"])
def test_a_directory_of_ours(site: Site, tools: KafkaTools) -> None:
    site.format()
    with site.barnabas():
        first_turn(site)
    with site.apache_kafka():
        next_turn(site, 1)
    with site.barnabas():
        next_turn(site, 2)
        site.close()
    site.check_files(tools)
    assert site.snapshot_epochs() - {0} == {1, 2, 3}  # 0 is of formatting, if the voter is in the log
