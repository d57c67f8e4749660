"""A producer whose broker stands still: it holds back the application, and its memory stays within what it was given.

The broker is a real one, stopped in the midst of its work (SIGSTOP): its connections stay open, the kernel takes what
fits into the sockets' buffers, and no answer comes. The producer is a process of its own, so that what it has in RAM is
all its own.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.broker_process import BrokerProcess, source_environment
from benchmarks.wire_client import WireClient

BUFFER_MEMORY = 16 << 20
CONSTANT = 4 << 20
"""What a producer may take up beyond ``buffer.memory``: one object with a future for each batch, a response or two, and
what the allocator rounds up. It does not depend on how many records are sent."""
BLOCK_MS = 500
THREADS = 4
TOPIC = "stalled"
TIMEOUT_S = 60.0

PRODUCER = """
import json, sys, threading, time
from barnabas.clients.producer import KafkaProducer
from barnabas.clients.producer.errors import BufferExhaustedError

servers, topic, size, memory, block_ms, threads = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])

def memory_of(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name + ":"))

def tell(**what):
    print(json.dumps(what), flush=True)

value = bytes(size)
accepted = [0] * threads
waited = [0.0] * threads
exhausted = [0] * threads

def fill(number):
    while not exhausted[number] and accepted[number] * size < 4 * memory:  # else it would never end where this fails
        started = time.monotonic()
        future = producer.send(topic, value)
        if future.done() and isinstance(future.exception(), BufferExhaustedError):
            exhausted[number] += 1
            waited[number] = time.monotonic() - started
        else:
            accepted[number] += 1

settings = {"buffer_memory": memory, "max_block_ms": block_ms, "delivery_timeout_ms": 600_000}
with KafkaProducer(bootstrap_servers=servers, **settings) as producer:
    for _ in range(100):
        producer.send(topic, value).result(60)
    tell(before=memory_of("VmRSS"))
    sys.stdin.readline()
    for _ in range(2):
        exhausted = [0] * threads
        workers = [threading.Thread(target=fill, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    free = producer.metric("buffer-available-bytes")
    tell(peak=memory_of("VmHWM"), accepted=sum(accepted), waited=min(waited), free=free)
    sys.stdin.readline()
    producer.flush()
    tell(free=producer.metric("buffer-available-bytes"), failed=producer.metric("record-error-total"))
"""


class Producer:
    """The process, which says a line of JSON at each step and waits to be told to go on."""

    def __init__(self, servers: str, size: int) -> None:
        arguments = [servers, TOPIC, str(size), str(BUFFER_MEMORY), str(BLOCK_MS), str(THREADS)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", PRODUCER, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=source_environment(),
            text=True,
        )

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the producer has ended with {self.process.wait(TIMEOUT_S)}"
        heard = json.loads(line)
        assert isinstance(heard, dict)
        return heard

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", "--quiet") as running:
        with WireClient(running.bootstrap_servers) as wire:
            wire.create_topic(TOPIC, 3)
        try:
            yield running
        finally:
            running.process.send_signal(signal.SIGCONT)


@pytest.mark.skipif(sys.platform != "linux", reason="what a process has in RAM is read from /proc")
@pytest.mark.mechanism("P06")
@pytest.mark.parametrize("size", [100, 1024, 100_000])
def test_memory_stays_within_buffer_memory_while_the_broker_stands_still(broker: BrokerProcess, size: int) -> None:
    producer = Producer(broker.bootstrap_servers, size)
    try:
        before = producer.hear()["before"]
        broker.process.send_signal(signal.SIGSTOP)
        producer.go_on()
        stalled = producer.hear()
        # It took in what there was memory for, and then held back whoever wanted to send more, for as long as told.
        assert stalled["accepted"] * size > 0.8 * BUFFER_MEMORY
        assert stalled["accepted"] * size < BUFFER_MEMORY
        assert stalled["free"] < max(16_384, size + 100)
        assert stalled["waited"] >= BLOCK_MS / 1000 * 0.99
        assert stalled["peak"] - before < BUFFER_MEMORY + CONSTANT
        broker.process.send_signal(signal.SIGCONT)
        producer.go_on()
        # Whoever was turned away has been told; the rest arrives, and all the memory comes back.
        assert producer.hear() == {"free": BUFFER_MEMORY, "failed": 2 * THREADS}
        assert producer.process.wait(TIMEOUT_S) == 0
    finally:
        producer.process.kill()
        producer.process.wait(TIMEOUT_S)
        for stream in (producer.process.stdin, producer.process.stdout):
            assert stream is not None
            stream.close()
