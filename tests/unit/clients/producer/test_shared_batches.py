"""Batches of tables in memory that brokers look at, too, and write offsets into."""

from __future__ import annotations

import sys
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from barnabas.clients.producer import KafkaProducer, TableSendError
from barnabas.clients.producer.internals.spare_buffers import SpareBuffers
from barnabas.clients.testing import Fate, ScriptedCluster
from barnabas.common.errors import Errors
from barnabas.network.transport.local.shared_memory import SharedMemory
from barnabas.protocol.api_keys import ApiKey
from barnabas.records.batch import HEADER_SIZE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has memory like that")

SLOT, SLOTS = 1 << 20, 6


def sharing(cluster: ScriptedCluster, **settings: Any) -> KafkaProducer:
    """A producer that has found a broker on its machine."""
    producer = cluster.producer(**settings)
    producer.accumulator.spare_buffers.share(lambda: True, SLOT, (SLOTS - 1) * SLOT)
    return producer


def memory_of(producer: KafkaProducer) -> SharedMemory:
    memory = producer.accumulator.spare_buffers._memory
    assert memory is not None
    return memory


def scribble(producer: KafkaProducer) -> int:
    """What a broker might do to the headers of the batches that it was sent."""
    found = 0
    for batch in producer.accumulator.incomplete.copy_all():
        if batch.is_closed and isinstance(batch.records, memoryview):
            batch.records[:HEADER_SIZE] = b"\x77" * HEADER_SIZE
            found += 1
    return found


def numbered(first: int, count: int) -> pa.Table:
    return pa.table({"value": pa.array([b"%01000d" % number for number in range(first, first + count)])})


def numbers(cluster: ScriptedCluster) -> list[int]:
    return [int(record.value or b"-1") for record in cluster.records("t", 0)]


def send(cluster: ScriptedCluster, producer: KafkaProducer, table: pa.Table) -> Any:
    future = cluster.run_while(producer, lambda: producer.send_table("t", table))
    cluster.run_until(producer, future.done)
    return future


def scribbling(
    cluster: ScriptedCluster, producer: KafkaProducer, error: Errors, *, scribbles: bool = True
) -> list[int]:
    """Has the next produce request answered like that, after what a broker does to a batch. With an error, nothing was
    appended."""
    found: list[int] = []

    def answer(handled: Any) -> Any:
        response = cluster._produce(handled, handled.body, error)
        if scribbles:
            found.append(scribble(producer))
        return response

    cluster.on_next(ApiKey.PRODUCE, answer)
    return found


@pytest.mark.mechanism("P09")
@pytest.mark.parametrize("error", [Errors.NOT_LEADER_OR_FOLLOWER, Errors.NOT_ENOUGH_REPLICAS, Errors.REQUEST_TIMED_OUT])
def test_a_batch_that_is_sent_again_is_what_it_was(error: Errors) -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = sharing(cluster)
    send(cluster, producer, numbered(0, 300)).result()
    found = scribbling(cluster, producer, error)
    send(cluster, producer, numbered(300, 300)).result()
    assert found == [1]
    assert numbers(cluster) == list(range(600))
    assert len(memory_of(producer)._free) == SLOTS


def test_a_lost_response() -> None:
    """And a producer that numbers its batches anew."""
    cluster = ScriptedCluster({"t": 1})
    producer = sharing(cluster)
    send(cluster, producer, numbered(0, 300)).result()
    cluster.fates.append(Fate(lose_response=True))
    send(cluster, producer, numbered(300, 300)).result()
    assert numbers(cluster) == list(range(600))


@pytest.mark.mechanism("P08")
def test_a_batch_that_is_too_large_is_split() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = sharing(cluster)
    send(cluster, producer, numbered(0, 300)).result()
    scribbling(cluster, producer, Errors.MESSAGE_TOO_LARGE, scribbles=False)
    send(cluster, producer, numbered(300, 300)).result()
    assert numbers(cluster) == list(range(600))
    assert len(memory_of(producer)._free) == SLOTS


def test_one_that_is_refused_gives_its_place_back() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = sharing(cluster)
    send(cluster, producer, numbered(0, 300)).result()
    for _ in range(2 * SLOTS):
        found = scribbling(cluster, producer, Errors.INVALID_RECORD)
        with pytest.raises(TableSendError):
            send(cluster, producer, numbered(300, 300)).result(0)
        assert found == [1]
    assert len(memory_of(producer)._free) == SLOTS


def test_one_that_never_leaves_gives_its_place_back() -> None:
    """It waits for longer than it may, or there is no memory for it in the first place."""
    cluster = ScriptedCluster({"t": 1})
    producer = sharing(cluster, buffer_memory=1_400_000, max_block_ms=1_000, delivery_timeout_ms=31_000)
    send(cluster, producer, numbered(0, 300)).result()
    memory = memory_of(producer)
    cluster.stop(1)
    future = cluster.run_while(producer, lambda: producer.send_table("t", numbered(300, 2_000)))
    cluster.run_until(producer, future.done)
    assert len(numbers(cluster)) == 300
    with pytest.raises(TableSendError):
        future.result(0)
    assert len(memory._free) == SLOTS


def test_what_the_network_has_stays_where_it_is() -> None:
    """Given up while it is in flight, a batch keeps its place until the response: the broker may be looking at it."""
    cluster = ScriptedCluster({"t": 1})
    producer = sharing(cluster)
    send(cluster, producer, numbered(0, 300)).result()
    memory = memory_of(producer)
    seen: list[int] = []

    def answer(handled: Any) -> Any:
        producer.accumulator.abort_batches(RuntimeError("enough"))
        seen.append(len(memory._free))
        return cluster._produce(handled, handled.body, Errors.NONE)

    cluster.on_next(ApiKey.PRODUCE, answer)
    future = send(cluster, producer, numbered(300, 300))
    with pytest.raises(TableSendError):
        future.result(0)
    cluster.run_until(producer, lambda: len(memory._free) == SLOTS)
    assert seen == [SLOTS - 1]


def test_more_batches_than_slots() -> None:
    """The others are in memory of their own. Whatever happens to some of them, all arrive, once and in order."""
    chance = Random(5)
    for _ in range(12):
        cluster = ScriptedCluster({"t": 1})
        producer = sharing(cluster, batch_size=200_000, max_request_size=300_000)
        send(cluster, producer, numbered(0, 1)).result()
        cluster.fates.extend(
            Fate(lose_response=chance.random() < 0.2, lose_request=chance.random() < 0.2) for _ in range(12)
        )
        send(cluster, producer, numbered(1, 5_000)).result(0)
        assert numbers(cluster) == list(range(5_001))
        pool = producer.accumulator.pool
        assert pool.available_memory() == pool.total_memory


def test_spare_buffers_that_nobody_wants_to_share() -> None:
    spare = SpareBuffers(10 * SLOT)
    wanted = False
    spare.share(lambda: wanted, SLOT, 4 * SLOT)
    assert spare.take(SLOT) is None
    wanted = True
    shared = spare.take(SLOT // 2)
    assert isinstance(shared, memoryview)
    assert len(shared) == SLOT // 2
    assert spare.take(SLOT + 2 * 4096) is None  # larger than agreed
    assert spare.take(1_000) is None
    spare.clear()
    assert spare.take(SLOT) is None


def test_retired_memory_is_replaced() -> None:
    spare = SpareBuffers(10 * SLOT)
    spare.share(lambda: True, SLOT, 4 * SLOT)
    first = spare.take(SLOT)
    assert isinstance(first, memoryview)
    memory = spare._memory
    assert memory is not None
    memory.retire()
    second = spare.take(SLOT)
    assert isinstance(second, memoryview)
    assert spare._memory is not memory
    spare.give(first)  # which is of no use
    assert spare._memory is not None
    assert len(spare._memory._free) == 4


def test_a_system_without_memory_to_share(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise OSError("no such thing here")

    monkeypatch.setattr("os.memfd_create", refuse)
    spare = SpareBuffers(10 * SLOT)
    spare.share(lambda: True, SLOT, 4 * SLOT)
    assert spare.take(SLOT) is None
    spare.give(bytearray(SLOT))
    assert isinstance(spare.take(SLOT), bytearray)
