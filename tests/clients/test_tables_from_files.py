"""Tables of a broker on this machine: their records are read from its files, by two threads, to where they stay."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas._kernels import is_compiled
from barnabas.clients.admin import KafkaAdminClient, NewTopic
from barnabas.clients.consumer import KafkaConsumer
from barnabas.clients.consumer.internals.fetch_files import FetchFiles
from barnabas.clients.consumer.internals.table_reader import THREAD_NAME, TableReader
from barnabas.clients.producer import KafkaProducer
from barnabas.common.errors import CorruptRecordError
from barnabas.common.topic_partition import TopicPartition
from barnabas.embedded import EmbeddedBroker
from barnabas.records.unread_records import UnreadRecords

pa = pytest.importorskip("pyarrow")

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has sockets and memory like that"),
    pytest.mark.skipif(not is_compiled("columns"), reason="the twin has everything in memory first"),
]

PARTITIONS = 4
ROWS = 3_000
"""Of each partition: some batches of a megabyte."""
WAIT_MS = 30_000
ALL = [TopicPartition("rows", number) for number in range(PARTITIONS)]


def value(partition: int, offset: int) -> bytes:
    return b"%d/%06d " % (partition, offset) * 100


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many answers were left in their files, and how many of those had to be read into memory after all."""
    counts: Counter[str] = Counter()
    find, read_all, halve = FetchFiles.unread_records, UnreadRecords.read_all, TableReader._read

    def finding(self: FetchFiles, records: object) -> UnreadRecords | None:
        found = find(self, records)
        counts["left"] += found is not None
        return found

    def reading(self: UnreadRecords) -> None:
        counts["read"] += not self.is_read
        read_all(self)

    def helping(self: TableReader, *arguments: Any) -> None:
        counts["helped"] += 1
        halve(self, *arguments)

    monkeypatch.setattr(FetchFiles, "unread_records", finding)
    monkeypatch.setattr(UnreadRecords, "read_all", reading)
    monkeypatch.setattr(TableReader, "_read", helping)
    return counts


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "data") as running:
        with KafkaAdminClient(bootstrap_servers=running.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("rows", num_partitions=PARTITIONS)])
        yield running


def fill(broker: EmbeddedBroker, *, rows: int = ROWS, **settings: Any) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **settings) as producer:
        for partition in range(PARTITIONS):
            values = pa.array([value(partition, offset) for offset in range(rows)], pa.binary())
            producer.send_table("rows", pa.table({"value": values}), partition=partition).result(30)


def consumer_of(broker: EmbeddedBroker, **settings: Any) -> KafkaConsumer:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, **{"auto_offset_reset": "earliest", **settings}
    )
    consumer.assign(ALL)
    return consumer


def take(table: Any, positions: dict[TopicPartition, int]) -> None:
    """Every row is the next one of its partition."""
    table.validate(full=True)
    columns = [table.column(name).to_pylist() for name in ("partition", "offset", "value")]
    for partition, offset, data in zip(*columns, strict=True):
        assert offset == positions[ALL[partition]]
        assert data == value(partition, offset)
        positions[ALL[partition]] = offset + 1


def read_all(consumer: KafkaConsumer, rows: int = ROWS) -> int:
    """Returns the largest number of chunks that a table had."""
    positions = dict.fromkeys(ALL, 0)
    chunks = 0
    while any(position < rows for position in positions.values()):
        table = consumer.poll_table(WAIT_MS)
        assert table.num_rows
        take(table, positions)
        chunks = max(chunks, table.column("value").num_chunks)
    return chunks


def open_logs() -> int:
    """Descriptors of this process that lead to a log; of the embedded broker, and of clients."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            found += link.readlink().suffix == ".log"
        except OSError:
            continue
    return found


def readers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(THREAD_NAME)]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="one processor, one thread")
def test_two_threads_read_and_nothing_is_read_twice(broker: EmbeddedBroker, counted: Counter[str]) -> None:
    fill(broker)
    before = open_logs()
    with consumer_of(broker, client_id="reader") as consumer:
        assert read_all(consumer) == 2
        assert counted["helped"]
        assert counted["left"] >= PARTITIONS
        assert not counted["read"]
        assert readers() == [f"{THREAD_NAME} | reader_0"]
    assert not readers()
    assert open_logs() == before


def test_one_processor_has_one_thread(
    broker: EmbeddedBroker, counted: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.clients.consumer.internals.table_reader._processors", lambda: 1)
    fill(broker)
    with consumer_of(broker) as consumer:
        assert read_all(consumer) == 1
        assert not readers()
    assert counted["left"] >= PARTITIONS
    assert not counted["helped"]


@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_application_does_meanwhile(seed: int, broker: EmbeddedBroker, counted: Counter[str]) -> None:
    """Tables of all kinds, records, seeks and pauses in any order: what comes is what is next, and tables that are kept
    stay as they were."""
    fill(broker)
    chance = random.Random(seed)
    positions = dict.fromkeys(ALL, 0)
    paused: set[TopicPartition] = set()
    kept: list[tuple[Any, dict[str, Any]]] = []
    before = open_logs()
    with consumer_of(broker, max_poll_records=chance.choice([1, 500])) as consumer:
        for _ in range(2):  # the first answer may have been asked for before it was known what will be made of it
            take(consumer.poll_table(WAIT_MS), positions)
        for _ in range(40):
            partition = chance.choice(ALL)
            match chance.randrange(10):
                case 0 | 1:
                    positions[partition] = chance.randrange(ROWS)
                    consumer.seek(partition, positions[partition])
                case 2:
                    consumer.pause(partition)
                    paused.add(partition)
                case 3 | 4:
                    consumer.resume(*paused)
                    paused.clear()
                case 5:
                    for record in consumer.poll(100):
                        at = ALL[record.partition]
                        assert (record.offset, record.value) == (positions[at], value(record.partition, record.offset))
                        positions[at] += 1
                case 6:
                    take(consumer.poll_table(100, max_records=chance.choice([1, 700])), positions)
                case 7:
                    take(consumer.poll_table(100, binary_type="binary_view"), positions)
                case _:
                    table = consumer.poll_table(100)
                    take(table, positions)
                    if table.num_rows and chance.random() < 0.3:
                        kept.append((table, table.to_pydict()))
            if all(position == ROWS for position in positions.values()):
                consumer.seek_to_beginning(*ALL)
                positions = dict.fromkeys(ALL, 0)
        for at in ALL:
            assert consumer.position(at) == positions[at]
        for table, content in kept:
            assert table.to_pydict() == content
        kept.clear()
    assert counted["left"]
    assert open_logs() == before


def test_what_was_fetched_before_its_topic_was_deleted(broker: EmbeddedBroker, counted: Counter[str]) -> None:
    """As it would be if it were in memory: the file is there as long as somebody has it open."""
    fill(broker)
    with consumer_of(broker) as consumer:
        positions = dict.fromkeys(ALL, 0)
        take(consumer.poll_table(WAIT_MS), positions)
        with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            while not consumer._core.buffer.waiting():  # the next answer comes while the application has the first
                admin.describe_topics(["rows"])
            admin.delete_topics(["rows"])
        for log in (broker.data_dir).rglob("rows-*/*.log"):
            log.unlink()
        ahead = sum(positions.values())
        take(consumer.poll_table(WAIT_MS), positions)
        assert sum(positions.values()) > ahead
    assert counted["left"]


@pytest.mark.parametrize("settings", [{"compression_type": "lz4"}, {"batch_size": 16_384}])
def test_batches_that_have_to_be_in_memory(
    settings: dict[str, Any], broker: EmbeddedBroker, counted: Counter[str]
) -> None:
    fill(broker, **settings)
    with consumer_of(broker) as consumer:
        read_all(consumer)
    assert not counted["left"]


def test_committed_records_of_transactions(broker: EmbeddedBroker, counted: Counter[str]) -> None:
    """Each batch has to be looked at, whether it is of a transaction that was aborted."""
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="t") as producer:
        producer.init_transactions()
        for commit in (False, True):
            producer.begin_transaction()
            values = pa.array([value(commit, offset) for offset in range(ROWS)], pa.binary())
            producer.send_table("rows", pa.table({"value": values}), partition=0)
            producer.flush()
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    for level, expected in (("read_committed", [1]), ("read_uncommitted", [0, 1])):
        counted.clear()
        found: list[bytes] = []
        with consumer_of(broker, isolation_level=level) as consumer:
            while len(found) < ROWS * len(expected):
                found += consumer.poll_table(WAIT_MS).column("value").to_pylist()
        assert found == [value(number, offset) for number in expected for offset in range(ROWS)]
        assert bool(counted["left"]) == (level == "read_uncommitted")


@pytest.mark.parametrize("damaged", [0, PARTITIONS - 1])
def test_damage_is_told_when_it_is_its_turn(damaged: int, broker: EmbeddedBroker, tmp_path: Path) -> None:
    """By whichever thread it was found: what is before it has been handed out by then, and it is told again until
    somebody seeks past it."""
    fill(broker)
    (log,) = (tmp_path / "data").rglob(f"rows-{damaged}/*.log")
    with log.open("r+b") as file:
        file.seek(1_500_000)  # in the second batch
        byte = file.read(1)
        file.seek(1_500_000)
        file.write(bytes([byte[0] ^ 1]))
    positions = dict.fromkeys(ALL, 0)
    with consumer_of(broker) as consumer:
        told: list[str] = []
        while len(told) < 2:
            try:
                take(consumer.poll_table(WAIT_MS), positions)
            except CorruptRecordError as error:
                told.append(str(error))
        assert told[0] == told[1]
        assert str(ALL[damaged]) in told[0]
        assert "seek past the record" in told[0]
        assert positions[ALL[damaged]] < ROWS
        positions[ALL[damaged]] = ROWS - 1
        consumer.seek(ALL[damaged], ROWS - 1)
        while any(position < ROWS for position in positions.values()):
            take(consumer.poll_table(WAIT_MS), positions)


def test_a_file_that_cannot_be_read_is_fetched_again(
    broker: EmbeddedBroker, counted: Counter[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker)
    fileno, broken = UnreadRecords.fileno, [2]

    def breaking(self: UnreadRecords) -> int:
        if broken[0]:
            broken[0] -= 1
            os.dup2(nothing.fileno(), fileno(self))
        return fileno(self)

    monkeypatch.setattr(UnreadRecords, "fileno", breaking)
    with Path(os.devnull).open("rb") as nothing, consumer_of(broker) as consumer:
        read_all(consumer)
    assert not broken[0]
    assert counted["left"] > PARTITIONS
    assert "Fetching again" in caplog.text


def test_headers_that_cannot_be_read_are_fetched_again(
    broker: EmbeddedBroker, counted: Counter[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker)
    read_headers, broken = UnreadRecords.read_headers, [2]

    def breaking(self: UnreadRecords, *, may_be_transactional: bool) -> bool:
        if broken[0]:
            broken[0] -= 1
            raise EOFError("no more of it")
        return read_headers(self, may_be_transactional=may_be_transactional)

    monkeypatch.setattr(UnreadRecords, "read_headers", breaking)
    with consumer_of(broker) as consumer:
        read_all(consumer)
    assert not broken[0]
    assert counted["left"]
    assert "are fetched again" in caplog.text
