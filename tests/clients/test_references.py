"""Tables to and from a broker of the same user on this machine: their records do not go through the socket.

What happens on one connection is in ``tests/unit/network/transport/test_frame_references.py``; here are whole clients.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.clients.admin import KafkaAdminClient, NewTopic
from barnabas.clients.consumer import KafkaConsumer
from barnabas.clients.producer import KafkaProducer
from barnabas.common.topic_partition import TopicPartition
from barnabas.embedded import EmbeddedBroker
from barnabas.log.segment.file_records import FileRecords
from barnabas.network.transport.local import server as local_server
from barnabas.network.transport.local.frame_references import FrameReferences
from barnabas.network.transport.local.shared_memory import SharedMemory
from barnabas.records.batch import iter_batches
from clients.broker_process import BrokerProcess
from clients.drivers import create_topic
from clients.test_producer import stored

pa = pytest.importorskip("pyarrow")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has sockets and memory like that")

ROWS = 3_000
SECONDS = 30


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many references were followed, by broker and clients, which are all in this process."""
    counts: Counter[str] = Counter()

    def counting(name: str) -> None:
        inner = getattr(FrameReferences, name)

        def noting(self: FrameReferences, *arguments: Any) -> memoryview:
            counts[name.removeprefix("_in_")] += 1
            found: memoryview = inner(self, *arguments)
            return found

        monkeypatch.setattr(FrameReferences, name, noting)

    counting("_in_memory")
    counting("_in_files")
    return counts


def table(rows: int = ROWS) -> Any:
    return pa.table({"value": pa.array([b"%06d" % number + bytes(1_000) for number in range(rows)], pa.binary())})


def read_table(bootstrap: str, topic: str, rows: int = ROWS, **settings: Any) -> list[bytes]:
    values: list[bytes] = []
    with KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        empty = 0
        while len(values) < rows:
            polled = consumer.poll_table(SECONDS * 1000)
            # There may be polls that pass over an aborted transaction, and have nothing else to show.
            empty = 0 if polled.num_rows else empty + 1
            assert empty < 5, f"{len(values)} of {rows}"
            values += polled.column("value").to_pylist()
    return values


def produce(bootstrap: str, topic: str, **settings: Any) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap, **settings) as producer:
        producer.partitions_for(topic)  # so that the broker is known when the first table comes
        producer.send_table(topic, table(1)).result(SECONDS)
        producer.send_table(topic, table()).result(SECONDS)


def test_a_table_and_back(followed: Counter[str]) -> None:
    with EmbeddedBroker() as broker:
        produce(broker.bootstrap_servers, "rows")
        assert followed["memory"] >= 3
        values = read_table(broker.bootstrap_servers, "rows", ROWS + 1)
    assert values == [*table(1).column("value").to_pylist(), *table().column("value").to_pylist()]
    assert followed["files"] >= 1


def test_memory_that_a_client_goes_on_changing_does_not_get_into_the_log(
    followed: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile client of the same user: what has passed the check of its CRC must be what is written."""
    memories: list[SharedMemory] = []
    take = SharedMemory.take

    def noting(self: SharedMemory, size: int) -> memoryview | None:
        if self not in memories:
            memories.append(self)
        return take(self, size)

    def hostile(name: str) -> None:
        """Between the check of a batch and its write, all memory of the client is overwritten."""
        write = getattr(FileRecords, name)

        def changing(self: FileRecords, *arguments: Any) -> Any:
            if self.path.parent.name == "rows-0":
                for memory in memories:
                    os.pwrite(memory.fileno(), b"?" * memory.size, 0)
            return write(self, *arguments)

        monkeypatch.setattr(FileRecords, name, changing)

    monkeypatch.setattr(SharedMemory, "take", noting)
    hostile("append")
    one_batch = table(700)
    with (
        EmbeddedBroker() as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers, buffer_memory=8 << 20) as producer,
    ):
        producer.partitions_for("rows")
        for _ in range(5):
            producer.send_table("rows", one_batch).result(SECONDS)
        assert followed["memory"] >= 4
        assert memories
        values = read_table(broker.bootstrap_servers, "rows", 5 * 700)
    assert values == 5 * one_batch.column("value").to_pylist()


@pytest.mark.parametrize("where", ["producer", "broker"])
def test_not_without_the_local_socket(where: str, followed: Counter[str]) -> None:
    broker_settings = {"barnabas.local.socket.enable": "false"} if where == "broker" else {}
    client_settings = {"local_socket_enable": False} if where == "producer" else {}
    with EmbeddedBroker(overrides=broker_settings) as broker:
        produce(broker.bootstrap_servers, "rows", **client_settings)
        assert len(read_table(broker.bootstrap_servers, "rows", ROWS + 1, **client_settings)) == ROWS + 1
    assert not followed


def test_not_with_another_user(followed: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_server, "is_same_user", lambda _sock: False)
    with EmbeddedBroker() as broker:
        produce(broker.bootstrap_servers, "rows")
        assert len(read_table(broker.bootstrap_servers, "rows", ROWS + 1)) == ROWS + 1
    assert not followed


def test_not_where_requests_have_a_memory_limit(followed: Counter[str]) -> None:
    with EmbeddedBroker(overrides={"queued.max.request.bytes": "200000000"}) as broker:
        produce(broker.bootstrap_servers, "rows")
        assert len(read_table(broker.bootstrap_servers, "rows", ROWS + 1)) == ROWS + 1
    assert not followed


def test_not_if_nobody_answers(followed: Counter[str]) -> None:
    """With acks=0 a producer cannot know when the broker has seen a batch, and its memory may be used again."""
    with EmbeddedBroker() as broker:
        produce(broker.bootstrap_servers, "rows", acks=0, enable_idempotence=False)
        assert len(read_table(broker.bootstrap_servers, "rows", ROWS + 1)) == ROWS + 1
    assert not followed["memory"]


def test_compressed_tables_go_through_the_socket(followed: Counter[str]) -> None:
    with EmbeddedBroker() as broker:
        produce(broker.bootstrap_servers, "rows", compression_type="lz4")
        assert len(read_table(broker.bootstrap_servers, "rows", ROWS + 1)) == ROWS + 1
    assert not followed["memory"]


@pytest.mark.parametrize("config", [{"message.timestamp.type": "LogAppendTime"}, {"compression.type": "zstd"}])
def test_a_topic_that_has_batches_changed(config: dict[str, str], followed: Counter[str]) -> None:
    """The broker writes more than offsets into the header then, or compresses."""
    with EmbeddedBroker() as broker:
        with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("rows", num_partitions=1, configs=config)])
        produce(broker.bootstrap_servers, "rows")
        assert read_table(broker.bootstrap_servers, "rows", ROWS + 1)[1:] == table().column("value").to_pylist()
    assert followed["memory"] >= 3


def test_transactions(followed: Counter[str]) -> None:
    with EmbeddedBroker() as broker:
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="t") as producer:
            producer.init_transactions()
            for commit in (False, True):
                producer.begin_transaction()
                producer.send_table("rows", table())
                producer.flush()
                if commit:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()
        values = read_table(broker.bootstrap_servers, "rows", isolation_level="read_committed")
    assert values == table().column("value").to_pylist()
    assert followed["memory"] >= 6


def test_after_a_restart_there_is_new_memory(tmp_path: Path, followed: Counter[str]) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        port = broker.bootstrap_servers.rpartition(":")[2]
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        producer.send_table("rows", table(1)).result(SECONDS)
        producer.send_table("rows", table()).result(SECONDS)
        first = producer.accumulator.spare_buffers._memory
    with EmbeddedBroker(tmp_path, port=int(port)) as broker, producer:
        before = followed["memory"]
        assert before >= 3
        producer.send_table("rows", table(1)).result(SECONDS)
        producer.send_table("rows", table()).result(SECONDS)
        second = producer.accumulator.spare_buffers._memory
        assert followed["memory"] >= before + 3
        assert len(read_table(broker.bootstrap_servers, "rows", 2 * ROWS + 2)) == 2 * ROWS + 2
    assert first is not None
    assert second is not None
    assert first.retired
    assert second is not first


def test_slots_come_back(followed: Counter[str]) -> None:
    """Far more batches than there are slots, and all go the short way."""
    with EmbeddedBroker() as broker:
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, buffer_memory=8 << 20) as producer:
            producer.send_table("rows", table(1)).result(SECONDS)
            for _ in range(10):
                producer.send_table("rows", table()).result(SECONDS)
            memory = producer.accumulator.spare_buffers._memory
            assert memory is not None
            assert len(memory._free) == 8 + 1
        assert followed["memory"] >= 30


# -- a broker that ends, and one that is stopped for a while


def send_numbers(broker: BrokerProcess, rows: int, trouble: Callable[[], None], **settings: Any) -> None:
    """Sends a table that is far larger than the memory, and makes trouble when it has begun to flow; looks then whether
    all rows are in the log, once and in order."""
    create_topic(broker.bootstrap_servers, "numbers", partitions=2)
    table = pa.table(
        {
            "value": pa.array([b"%01000d" % row for row in range(rows)]),
            "partition": pa.array([row % 2 for row in range(rows)]),
        }
    )
    failures: list[BaseException] = []
    under_way = threading.Event()

    def troublemaker() -> None:
        try:
            assert under_way.wait(SECONDS)
            trouble()
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            failures.append(error)

    thread = threading.Thread(target=troublemaker, daemon=True)
    thread.start()
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, buffer_memory=6 << 20, **settings) as producer:
        producer.send_table("numbers", table.slice(0, 100)).result(SECONDS)
        futures = []
        for start in range(100, rows, 5_000):
            futures.append(producer.send_table("numbers", table.slice(start, 5_000)))
            if start > 10_000:
                under_way.set()
        assert sum(future.result(60).rows for future in futures) == rows - 100
        thread.join(60)
        assert producer.accumulator.pool.available_memory() == producer.accumulator.pool.total_memory
    assert not failures, failures
    for partition in range(2):
        assert stored(broker.data_dir, "numbers", partition) == list(range(partition, rows, 2))
        for file in (broker.data_dir / f"numbers-{partition}").glob("*.log"):
            for batch in iter_batches(file.read_bytes()):
                assert batch.is_valid()


def test_killed_and_restarted_while_tables_flow(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:

        def trouble() -> None:
            for _ in range(3):
                broker.kill()
                broker.start()

        send_numbers(broker, 60_000, trouble)


def test_a_broker_that_looks_at_it_late(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is stopped for longer than the client waits. The client connects anew and sends the batches again, through the
    socket; and when the broker goes on it has the requests of the connection before still, and what they refer to."""
    with BrokerProcess(tmp_path) as broker:

        def trouble() -> None:
            with caplog.at_level("WARNING", "barnabas"):
                before = len(caplog.records)
                broker.send_signal(signal.SIGSTOP)
                for _ in range(SECONDS * 100):
                    if any("sent again" in record.getMessage() for record in caplog.records[before:]):
                        break
                    threading.Event().wait(0.01)
                broker.send_signal(signal.SIGCONT)

        send_numbers(broker, 60_000, trouble, request_timeout_ms=5_000, delivery_timeout_ms=300_000)
    assert any("sent again" in record.getMessage() for record in caplog.records)
