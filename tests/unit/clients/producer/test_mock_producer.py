"""The producer for tests of applications."""

from __future__ import annotations

import contextlib

import pytest

from barnabas._kernels import murmur2
from barnabas.clients.producer import MockProducer
from barnabas.clients.producer.errors import IllegalStateError, SerializationError
from barnabas.clients.producer.partitioner import RoundRobinPartitioner
from barnabas.common.errors import NotEnoughReplicasError, ProducerFencedError
from barnabas.common.topic_partition import TopicPartition

partition_for_key = murmur2.partition_for_key


def test_remembers_and_completes() -> None:
    with MockProducer({"t": 3}) as producer:
        future = producer.send("t", b"v", key=b"k", headers={"h": b"x"}, timestamp_ms=7)
        metadata = future.result(0)
        assert (metadata.partition, metadata.offset) == (partition_for_key(b"k", 3), 0)
        assert (metadata.timestamp_ms, metadata.serialized_value_size) == (7, 1)
        (record,) = producer.history
        assert (record.key, record.value, record.headers) == (b"k", b"v", (("h", b"x"),))
        assert producer.send("t", b"v", key=b"k").result(0).offset == 1
        assert len(producer.partitions_for("t")) == 3
        producer.clear()
        assert producer.history == []
    with pytest.raises(IllegalStateError, match="closed"):
        producer.send("t", b"v")


def test_a_test_decides() -> None:
    producer = MockProducer(auto_complete=False)
    seen: list[object] = []
    futures = [
        producer.send("t", b"v", callback=lambda metadata, error: seen.append((metadata.offset, error)))
        for _ in range(4)
    ]
    assert not producer.flushed
    error = NotEnoughReplicasError()
    assert producer.complete_next()
    assert producer.error_next(error)
    assert [future.done() for future in futures] == [True, True, False, False]
    assert futures[1].exception(0) is error
    producer.flush()
    assert seen == [(0, None), (-1, error), (2, None), (3, None)]
    assert not producer.complete_next()
    producer.send_error = ValueError("no")
    with pytest.raises(ValueError, match="no"):
        producer.send("t", b"v")


def test_partitions_and_serializers() -> None:
    producer = MockProducer({"t": 2}, value_serializer=str.encode, partitioner=RoundRobinPartitioner())
    assert [producer.send("t", "v").result(0).partition for _ in range(4)] == [0, 1, 0, 1]
    assert producer.send("t", "v", partition=1).result(0).partition == 1
    with pytest.raises(ValueError, match="not in the range"):
        producer.send("t", "v", partition=2)
    with pytest.raises(SerializationError):
        producer.send("t", 5)
    assert [MockProducer({"t": 2}).send("t", b"v").result(0).partition] == [0]


def test_transactions() -> None:
    producer = MockProducer()
    with pytest.raises(IllegalStateError, match="hasn't been initialized"):
        producer.begin_transaction()
    producer.init_transactions()
    with pytest.raises(IllegalStateError, match="already been initialized"):
        producer.init_transactions()
    with pytest.raises(IllegalStateError, match="no open transaction"):
        producer.commit_transaction()
    with producer.transaction():
        producer.send("t", b"a")
        assert producer.history == []
        assert len(producer.uncommitted_records) == 1
        producer.send_offsets_to_transaction({TopicPartition("in", 0): 5}, "g")
    assert [record.value for record in producer.history] == [b"a"]
    assert producer.consumer_group_offsets[0]["g"][TopicPartition("in", 0)].offset == 5
    with contextlib.suppress(KeyError), producer.transaction():
        producer.send("t", b"b")
        raise KeyError
    assert producer.transaction_aborted
    assert len(producer.history) == 1
    assert producer.commit_count == 1
    producer.fence_producer()
    with pytest.raises(ProducerFencedError):
        producer.begin_transaction()
