"""The consumer for tests of applications."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.clients.consumer import (
    ConsumerRebalanceListener,
    ConsumerRecord,
    MockConsumer,
    OffsetAndMetadata,
    TopicPartition,
)
from barnabas.clients.consumer.errors import IllegalStateError, NoOffsetForPartitionError, WakeupError

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def filled(count: int = 3) -> MockConsumer:
    consumer = MockConsumer("earliest", max_poll_records=2)
    consumer.assign([T0])
    consumer.update_beginning_offsets({T0: 0})
    for offset in range(count):
        consumer.add_record(ConsumerRecord("t", 0, offset, value=b"%d" % offset, timestamp=offset * 10))
    return consumer


def test_reads_and_commits() -> None:
    consumer = filled()
    assert [record.offset for record in consumer.poll()] == [0, 1]
    assert consumer.position(T0) == 2
    assert consumer.current_lag(T0) == 1
    consumer.commit()
    assert consumer.committed([T0, T1]) == {T0: OffsetAndMetadata(2), T1: None}
    assert [record.offset for record in consumer.poll()] == [2]
    assert not consumer.poll()
    consumer.seek(T0, 1)
    assert [record.offset for record in consumer] == [1, 2]
    found = consumer.offsets_for_times({T0: 15})[T0]
    assert found is not None
    assert found.offset == 2
    consumer.seek_to_end()
    assert consumer.position(T0) == 3
    consumer.close()
    with pytest.raises(IllegalStateError):
        consumer.poll()


def test_iterating_commits_what_was_seen() -> None:
    consumer = filled()
    for record in consumer:
        if record.offset == 0:
            break
    consumer.commit()
    assert consumer.committed([T0]) == {T0: OffsetAndMetadata(1)}
    assert [record.offset for record in consumer.poll()] == [1, 2]


def test_paused_and_woken() -> None:
    consumer = filled()
    consumer.pause(T0)
    assert not consumer.poll()
    consumer.resume(T0)
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.poll()
    consumer.set_poll_error(ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        consumer.poll()
    assert len(consumer.poll()) == 2


def test_rebalances() -> None:
    calls: list[tuple[str, Sequence[TopicPartition]]] = []

    class Listener(ConsumerRebalanceListener):
        def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            calls.append(("assigned", partitions))

        def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            calls.append(("revoked", partitions))

    consumer = MockConsumer("earliest")
    consumer.subscribe(["t"], Listener())
    consumer.update_beginning_offsets({T0: 0, T1: 0})
    with pytest.raises(IllegalStateError):
        consumer.add_record(ConsumerRecord("t", 0, 0))
    consumer.schedule_poll_task(lambda: consumer.rebalance([T0]))
    consumer.schedule_poll_task(lambda: consumer.rebalance([T1]))
    consumer.poll()
    consumer.poll()
    assert calls == [("assigned", [T0]), ("revoked", [T0]), ("assigned", [T1])]
    assert consumer.assignment() == {T1}


def test_nowhere_to_begin() -> None:
    consumer = MockConsumer("none")
    consumer.assign([T0])
    with pytest.raises(NoOffsetForPartitionError):
        consumer.poll()
    consumer.commit({T0: 5})
    assert consumer.position(T0) == 5


def test_topics_as_positional_arguments() -> None:
    assert MockConsumer("orders", "returns").subscription() == {"orders", "returns"}
    assert MockConsumer("earliest", "orders").subscription() == {"orders"}
    assert MockConsumer("earliest").subscription() == frozenset()
