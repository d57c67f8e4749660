"""librdkafka (confluent-kafka) as the client, in a process of its own.

``python -m benchmarks.peers.rdkafka_client JOB``: the job is a JSON object; the answer is one, on standard output. The
interpreter's part of it is the same for both brokers.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.peers.client_process import run_client

STALL_S: Final = 30.0
BATCH: Final = 10_000
WARM_UP_S: Final = 1.0
CALL_S: Final = 0.05
"""How long a call waits for the records that it asks for."""
PAUSE_S: Final = 0.4
"""Longer without a record, and it is the client that does not ask: its queue was full, and it waits for a second."""


def ask(job: dict[str, Any]) -> dict[str, Any]:
    """Has another process do it."""
    return run_client("benchmarks.peers.rdkafka_client", json.dumps(job))


def produce(job: dict[str, Any]) -> dict[str, Any]:
    from confluent_kafka import Producer

    payload = (b"barnabas " * (job["size"] // 9 + 1))[: job["size"]]
    failed: list[object] = []

    def on_delivery(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    settings = {"bootstrap.servers": job["bootstrap"], "on_delivery": on_delivery, **job["settings"]}
    producers = [Producer(settings) for _ in range(job["clients"])]
    for producer in producers:
        producer.list_topics(job["topic"], timeout=10)
        producer.produce(job["topic"], payload)
        producer.flush(10)

    def send(each: int) -> None:
        for _ in range(each):
            for producer in producers:
                while True:
                    try:
                        producer.produce(job["topic"], payload)
                    except BufferError:
                        producer.poll(0.01)
                    else:
                        break
        for producer in producers:
            producer.flush(60)

    send(job["warm_up"] // len(producers))
    started = time.perf_counter()
    each = job["records"] // len(producers)
    send(each)
    elapsed = time.perf_counter() - started
    if failed:
        raise RuntimeError(f"{len(failed)} records were not taken: {failed[0]}")
    return {"rate": each * len(producers) / elapsed}


def consume(job: dict[str, Any]) -> dict[str, Any]:
    """Reads all of it, as often as it is asked to, with a new consumer each time; their times are added up."""
    times = [read(job) for _ in range(job["reads"])]
    whole, steady, flowing = (
        sum(column) for column in zip(*((each.whole, each.steady, each.flowing) for each in times), strict=True)
    )
    counted = sum(each.counted for each in times)
    return {
        "rate": job["records"] * len(times) / whole,
        "steady_rate": counted / steady if steady else 0.0,
        "flowing_rate": counted / flowing if flowing else 0.0,
    }


@dataclass(frozen=True, slots=True)
class ReadTimes:
    whole: float
    """From the beginning, with connecting."""
    steady: float
    """From the first records to the last."""
    flowing: float
    """That, without the pauses."""
    counted: int
    """Records after the first ones."""


def read(job: dict[str, Any]) -> ReadTimes:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": job["bootstrap"],
            "group.id": "benchmark",
            "enable.auto.commit": False,
            **job["settings"],
        }
    )
    consumer.assign([TopicPartition(job["topic"], partition, 0) for partition in range(job["partitions"])])
    seen = 0
    started = last = time.perf_counter()
    first: float | None = None
    counted_from = 0
    # Of a run of calls that bring nothing, how long it has lasted; and what runs that were pauses have taken in all.
    silent = paused = 0.0
    while seen < job["records"]:
        called = time.perf_counter()
        batch = consumer.consume(BATCH, CALL_S)
        if batch:
            paused += silent if silent > PAUSE_S else 0.0
            silent = 0.0
            last = time.perf_counter()
            if first is None:
                first, counted_from, paused = last, len(batch), 0.0
        else:
            silent += time.perf_counter() - called
            if silent > STALL_S:
                raise RuntimeError(f"{seen} of {job['records']} records came")
        seen += len(batch)
    consumer.close()
    assert first is not None
    return ReadTimes(last - started, last - first, last - first - paused, seen - counted_from)


def latency(job: dict[str, Any]) -> dict[str, Any]:
    """From before `produce` to the arrival at a consumer in the same process, at a fixed rate. The first second does
    not count."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    topic, rate, seconds = job["topic"], job["rate"], job["seconds"]
    producer = Producer({"bootstrap.servers": job["bootstrap"], "linger.ms": 0, **job["settings"]})
    consumer = Consumer({"bootstrap.servers": job["bootstrap"], "group.id": "benchmark", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(job["partitions"])])
    producer.produce(topic, b"first")
    producer.flush(10)
    deadline = time.perf_counter() + STALL_S
    while (first := consumer.poll(0.1)) is None or first.error():
        if time.perf_counter() > deadline:
            raise RuntimeError("the first record did not come")
    total = int(rate * (seconds + WARM_UP_S))
    times: list[float] = []
    padding = bytes(max(0, job["size"] - 20))

    def receive() -> None:
        last = time.perf_counter()
        while len(times) < total and time.perf_counter() - last < STALL_S:
            message = consumer.poll(0.5)
            if message is not None and not message.error():
                last = time.perf_counter()
                times.append(last - float((message.value() or b"")[:20]))

    receiver = threading.Thread(target=receive)
    receiver.start()
    started = time.perf_counter()
    for number in range(total):
        due = started + number / rate
        # Waiting in `poll` serves delivery reports meanwhile.
        while (wait := due - time.perf_counter()) > 0:
            producer.poll(wait)
        producer.produce(topic, f"{time.perf_counter():020.9f}".encode() + padding)
    producer.flush(10)
    receiver.join()
    consumer.close()
    if len(times) < total:
        raise RuntimeError(f"{len(times)} of {total} records came")
    counted = sorted(times[int(rate * WARM_UP_S) :])
    return {name: counted[min(len(counted) - 1, int(len(counted) * part))] * 1000 for name, part in PARTS.items()}


PARTS: Final = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
JOBS: Final[dict[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "produce": produce,
    "consume": consume,
    "latency": latency,
}

if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    print(json.dumps(JOBS[asked["job"]](asked)))
