"""Many topics: they are made, listed, written to and found again, and nobody has to wait for the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.broker_process import BrokerProcess
from benchmarks.waiting import until
from benchmarks.wire_client import WireClient, batch_of

from barnabas.common.errors import Errors
from system.system_fixtures import descriptors

PARTITIONS = 10
PER_REQUEST = 100
ROUNDS = 5
REQUESTS = 300
"""In a round, which is a tenth of a second of the broker; its CPU time is counted in hundredths."""
BATCH = batch_of(bytes(1000))


def produce_seconds(broker: BrokerProcess, client: WireClient, topic: str) -> float:
    """What a request costs the broker: the least CPU time of a few rounds, as it has other things to do as well."""

    def one_round() -> float:
        before = broker.cpu_seconds
        for number in range(REQUESTS):
            assert client.produce_batch(topic, number % PARTITIONS, BATCH)[0] is Errors.NONE
        return (broker.cpu_seconds - before) / REQUESTS

    one_round()
    return min(one_round() for _ in range(ROUNDS))


@pytest.mark.parametrize(
    "topics", [pytest.param(100, id="100"), pytest.param(1000, id="1000", marks=pytest.mark.nightly)]
)
def test_topics_by_the_hundred(topics: int, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", pycache=tmp_path / "pycache")
    with descriptors(topics * PARTITIONS * 2), broker, WireClient(broker.bootstrap_servers) as client:
        client.create_topic("first", PARTITIONS)
        alone = produce_seconds(broker, client, "first")
        names = [f"topic-{number:04}" for number in range(topics)]
        for start in range(0, topics, PER_REQUEST):
            asked = [(name, PARTITIONS) for name in names[start : start + PER_REQUEST]]
            assert set(client.create_topics(asked)) == {Errors.NONE}
        until(lambda: client.fetch(names[-1], PARTITIONS - 1)[0] is Errors.NONE, "the last partition is led")
        listed = client.metadata().topics
        assert {topic.name for topic in listed} == {"first", *names}
        assert sum(len(topic.partitions) for topic in listed) == (topics + 1) * PARTITIONS
        crowded = produce_seconds(broker, client, "first")
        for number, name in enumerate(names):
            assert client.produce_batch(name, number % PARTITIONS, BATCH) == (Errors.NONE, 0)
        count = (topics + 1) * PARTITIONS
        assert broker.descriptors < count + 100
        print(
            f"\n{count} partitions: {broker.resident_bytes / 1e6:.0f} MB, {broker.descriptors} descriptors, "
            f"{crowded * 1e6:.0f} us for a produce request, {alone * 1e6:.0f} us with {PARTITIONS}"
        )
        assert crowded < 2 * alone + 0.0002, "the cost of a request does not grow with what is there besides"
        assert broker.stop() == 0
        broker.start()
        with WireClient(broker.bootstrap_servers) as again:
            assert len(again.metadata().topics) == topics + 1
            for number, name in enumerate(names[::50]):
                error, values = again.fetch(name, number * 50 % PARTITIONS)
                assert (error, len(values)) == (Errors.NONE, 1)
