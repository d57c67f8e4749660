"""Tables are fetched ahead of the application: whatever it does meanwhile, what it gets is what comes next."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from barnabas._kernels import is_compiled
from barnabas.clients.consumer import TopicPartition
from barnabas.clients.consumer.internals.fetch_collector import Collected
from barnabas.clients.consumer.testing import ConsumerCluster
from barnabas.records.columns import early as _columns_early

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
COUNT = 60


def value(partition: int, offset: int) -> bytes:
    return b"%d of %d " % (offset, partition) * 9


def filled() -> ConsumerCluster:
    cluster = ConsumerCluster({"t": len(PARTITIONS)})
    for partition in range(len(PARTITIONS)):
        for base in range(0, COUNT, 4):
            cluster.append("t", partition, [value(partition, base + number) for number in range(4)])
    return cluster


@pytest.mark.parametrize("binary_type", ["binary", "binary_view", "shared columns"])
@pytest.mark.parametrize("seed", range(5))
def test_seeks_and_pauses_while_fetches_are_on_their_way(
    seed: int, binary_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And all tables stay as they were, however long they are kept."""
    if binary_type == "shared columns":
        binary_type = "binary"
        monkeypatch.setattr(_columns_early, "EARLY_BYTES", 1)
        monkeypatch.setattr(_columns_early, "EARLY_RECORD_BYTES", 0)
    source = random.Random(seed)
    cluster = filled()
    consumer = cluster.consumer(auto_offset_reset="earliest", max_partition_fetch_bytes=source.choice((1, 700, 5000)))
    consumer.assign(PARTITIONS)
    expected = dict.fromkeys(PARTITIONS, 0)
    paused: set[TopicPartition] = set()
    kept: list[tuple[pa.Table, list[dict[str, Any]]]] = []
    seen = 0
    for _ in range(80):
        for _ in range(source.randrange(4)):
            consumer.network_thread.run_once()
        partition = source.choice(PARTITIONS)
        match source.randrange(8):
            case 0:
                expected[partition] = source.randrange(COUNT)
                consumer.seek(partition, expected[partition])
            case 1:
                consumer.pause(partition)
                paused.add(partition)
            case 2 | 3:
                consumer.resume(*paused)
                paused.clear()
            case 4:
                records = cluster.run(consumer, lambda: consumer.poll(10, max_records=3))
                for record in records:
                    at = TopicPartition(record.topic, record.partition)
                    assert (record.offset, record.value) == (expected[at], value(record.partition, record.offset))
                    assert at not in paused
                    expected[at] += 1
            case _:
                limit = source.choice((None, None, 5))
                table = cluster.run(
                    consumer, partial(consumer.poll_table, 10, max_records=limit, binary_type=binary_type)
                )
                table.validate(full=True)
                rows = table.to_pylist()
                seen += len(rows)
                for row in rows:
                    at = TopicPartition(row["topic"], row["partition"])
                    assert (row["offset"], row["value"]) == (expected[at], value(row["partition"], row["offset"]))
                    assert at not in paused
                    expected[at] += 1
                kept.append((table, rows))
                if len(kept) > 6:
                    kept.pop(source.randrange(len(kept)))
        for at, offset in expected.items():
            assert cluster.run(consumer, partial(consumer.position, at)) == offset
    assert seen > COUNT
    assert all(table.to_pylist() == rows for table, rows in kept)


def test_old_news_does_not_end_a_wait() -> None:
    """A response was told of, and has been taken: the next poll waits for the next one at once."""
    cluster = filled()
    consumer = cluster.consumer(auto_offset_reset="earliest")
    consumer.assign(PARTITIONS)
    while not cluster.run(consumer, lambda: consumer.poll_table(1000)).num_rows:
        pass
    core, looked = consumer._core, []
    core.buffer.notify()

    def collect() -> Collected:
        looked.append(True)
        return Collected()

    steps = core.poll(5000, collect)
    assert isinstance(next(steps), float | int)
    assert looked == [True]
    assert not core.buffer.take_news()

    def told_meanwhile() -> Collected:
        core.buffer.notify()
        return Collected()

    steps = core.poll(5000, told_meanwhile)
    next(steps)
    assert core.buffer.take_news(), "what is told while it looks may be about what it has looked at already"


@pytest.mark.skipif(not is_compiled("columns"), reason="the twin copies nothing early")
def test_long_records_of_several_partitions_share_their_columns() -> None:
    cluster = ConsumerCluster({"t": len(PARTITIONS)})
    long = bytes(2000)
    for partition in range(len(PARTITIONS)):
        for _ in range(4):
            cluster.append("t", partition, [long] * 60)
    consumer = cluster.consumer(auto_offset_reset="earliest")
    consumer.assign(PARTITIONS)
    table = cluster.run(consumer, lambda: consumer.poll_table(1000))
    assert table.num_rows == 4 * 60 * len(PARTITIONS)
    assert table.column("value").num_chunks == 1
    assert table.column("partition").to_pylist() == [number for number in range(len(PARTITIONS)) for _ in range(240)]
    assert table.column("offset").to_pylist() == [*range(240)] * len(PARTITIONS)
