"""A log directory on a file system without space: an error for that directory, never a signal that ends the process.

The file system is a small tmpfs. There, even reading a hole of a sparse file through a memory map takes a page, and a
process that cannot get one receives a SIGBUS.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from benchmarks.broker_process import BrokerDiedError, BrokerProcess
from benchmarks.waiting import until
from benchmarks.wire_client import WireClient

from barnabas.clients.producer.errors import BufferExhaustedError
from barnabas.clients.producer.kafka_producer import KafkaProducer
from barnabas.common.errors import Errors

SIZE = "4m"
RECORDS = 20


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    path = tmp_path / "tmpfs"
    path.mkdir()
    if sys.platform != "linux":
        pytest.skip("a tmpfs is mounted on Linux only")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(path)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a tmpfs cannot be mounted: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(path: Path) -> Path:
    """A file that takes all the space there is."""
    filler = path / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler


def write(broker: BrokerProcess, topic: str, partitions: int = 1) -> None:
    with WireClient(broker.bootstrap_servers) as client:
        client.create_topic(topic, partitions)
        for partition in range(partitions):
            for number in range(RECORDS):
                assert client.produce(topic, partition, b"%d" % number)[0] is Errors.NONE


def make_sparse(data: Path) -> int:
    """Gives all indexes the size that Kafka, and earlier versions of this broker, give them; returns how many."""
    indexes = [*data.rglob("*.index"), *data.rglob("*.timeindex")]
    for path in indexes:
        with path.open("r+b") as file:
            file.truncate(10 * 1024 * 1024 // 24 * 24)
    return len(indexes)


def test_a_start_without_space_is_an_error_with_its_reason(tmpfs: Path) -> None:
    broker = BrokerProcess(tmpfs / "data", output=tmpfs.with_name("output"))
    broker.start()
    write(broker, "orders")
    broker.kill()
    assert make_sparse(tmpfs / "data") >= 4
    filler = fill(tmpfs)
    with pytest.raises(BrokerDiedError):
        broker.start()
    assert broker.process.returncode == 1, broker.text()
    assert "the broker cannot start: cannot write" in broker.text()
    assert "No space left on device" in broker.text().splitlines()[-1]
    filler.unlink()
    with broker, WireClient(broker.bootstrap_servers) as client:
        assert client.fetch("orders", 0) == (Errors.NONE, [b"%d" % number for number in range(RECORDS)])


def test_a_log_directory_without_space_goes_offline_and_the_others_serve(tmpfs: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmpfs / "second"
    overrides = {"log.dirs": f"{first},{second}", "metadata.log.dir": first}
    broker = BrokerProcess(first, overrides=overrides, output=tmp_path / "output")
    broker.start()
    write(broker, "orders", 2)
    broker.kill()
    kept = [int(path.name[-1]) for path in first.glob("orders-*")]
    lost = [int(path.name[-1]) for path in second.glob("orders-*")]
    assert len(kept) == len(lost) == 1
    assert make_sparse(second) == 2
    fill(tmpfs)
    values = [b"%d" % number for number in range(RECORDS)]
    with broker, WireClient(broker.bootstrap_servers) as client:
        until(lambda: client.fetch("orders", kept[0]) == (Errors.NONE, values), broker.text)
        assert client.produce("orders", kept[0], b"more")[0] is Errors.NONE
        until(lambda: client.fetch("orders", lost[0])[0] is not Errors.NONE, broker.text)
        assert f"Log directory {second} has failed and goes offline" in broker.text()
        assert "No space left on device" in broker.text()


def test_a_producer_says_why_its_records_are_not_sent(tmpfs: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmpfs / "second"
    overrides = {"log.dirs": f"{first},{second}", "metadata.log.dir": first}
    broker = BrokerProcess(first, overrides=overrides, output=tmp_path / "output")
    with broker:
        with WireClient(broker.bootstrap_servers) as client:
            client.create_topic("orders", 2)
        (full,) = (int(path.name[-1]) for path in second.glob("orders-*"))
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, buffer_memory=1 << 20, max_block_ms=2_000)
        with ExitStack() as stack:
            stack.callback(producer.close, 0)
            errors = (producer.send("orders", bytes(50_000), partition=full) for _ in range(1_000))
            failed = next(future for future in errors if future.done() and future.exception(0) is not None)
        assert isinstance(failed.exception(0), BufferExhaustedError)
        assert "the last error of orders-" in str(failed.exception(0))
        assert "KAFKA_STORAGE_ERROR from node 1" in str(failed.exception(0))
