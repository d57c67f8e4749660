"""Reading records: positions, isolation, errors of fetches, and what is asked of brokers for it, in mock time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from barnabas._kernels import record_batch
from barnabas.clients.common.partition_errors import RECOVERIES, Recovery
from barnabas.clients.consumer import ConsumerRecord, KafkaConsumer, TopicPartition
from barnabas.clients.consumer.errors import (
    FetchOffsetOutOfRangeError,
    NoOffsetForPartitionError,
    RecordDeserializationError,
)
from barnabas.clients.consumer.internals.completed_fetch import CompletedFetch, FetchReading
from barnabas.clients.consumer.testing import ConsumerCluster
from barnabas.common.errors import CorruptRecordError, Errors, TopicAuthorizationError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.fetch import PartitionData
from barnabas.records.batch import CompressionType, TimestampType
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.control import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch

offset_after = record_batch.offset_after

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def cluster_with(*counts: int, nodes: int = 1) -> ConsumerCluster:
    """A topic with so many records in each partition, in batches of five; the value of a record is its offset."""
    cluster = ConsumerCluster({"t": len(counts)}, nodes=nodes)
    for partition, count in enumerate(counts):
        for base in range(0, count, 5):
            cluster.append("t", partition, [b"%d" % offset for offset in range(base, min(base + 5, count))])
    return cluster


def values(records: Iterable[ConsumerRecord]) -> list[int]:
    return [int(record.value) for record in records]


def poll(cluster: ConsumerCluster, consumer: KafkaConsumer, *, times: int = 1, **arguments: int) -> list[int]:
    found: list[int] = []
    for _ in range(times):
        found += values(cluster.run(consumer, lambda: consumer.poll(1000, **arguments)))
    return found


def assigned(cluster: ConsumerCluster, *partitions: TopicPartition, **settings: Any) -> KafkaConsumer:
    consumer = cluster.consumer(**{"auto_offset_reset": "earliest", **settings})
    consumer.assign(partitions or [T0])
    return consumer


def test_polls_by_so_many() -> None:
    cluster = cluster_with(12)
    consumer = assigned(cluster, max_poll_records=5)
    assert poll(cluster, consumer) == [0, 1, 2, 3, 4]
    for _ in range(5):
        consumer.network_thread.run_once()
    assert len(cluster.requests(ApiKey.FETCH)) == 1, "not while there is something left of it"
    assert poll(cluster, consumer, max_records=3) == [5, 6, 7]
    assert cluster.run(consumer, lambda: consumer.position(T0)) == 8
    assert consumer.current_lag(T0) == 4
    assert poll(cluster, consumer, times=2) == [8, 9, 10, 11]


def test_what_a_record_has() -> None:
    cluster = ConsumerCluster({"t": 1})
    cluster.append("t", 0, [b"x", None], timestamp=77, headers=(("h", b"1"), ("n", None)))
    cluster.append("t", 0, [b"y"], timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=99)
    consumer = assigned(cluster)
    records = cluster.run(consumer, lambda: consumer.poll(1000))
    first, second, third = records[T0]
    assert first == ConsumerRecord(
        "t", 0, 0, b"0", b"x", headers=(("h", b"1"), ("n", None)), timestamp=77, serialized_key_size=1,
        serialized_value_size=1, leader_epoch=0,
    )  # fmt: skip
    assert (second.value, second.serialized_value_size) == (None, -1)
    assert (third.timestamp, third.timestamp_type) == (99, TimestampType.LOG_APPEND_TIME)
    assert records.next_offsets()[T0].offset == 3
    assert list(records) == [first, second, third]
    assert len(records) == 3


def test_the_offset_that_was_asked_for_is_in_the_middle_of_a_batch() -> None:
    cluster = cluster_with(10)
    consumer = assigned(cluster)
    consumer.seek(T0, 7)
    assert poll(cluster, consumer) == [7, 8, 9]


def test_compressed_batches_and_gaps() -> None:
    cluster = ConsumerCluster({"t": 1})
    cluster.append("t", 0, [b"0", b"1"], compression=CompressionType.LZ4)
    builder = RecordBatchBuilder(base_offset=2, partition_leader_epoch=0)
    builder.append_with_offset(3, 0, None, b"3", ())
    builder.override_last_offset(9)
    cluster.append_batch("t", 0, builder.close())
    consumer = assigned(cluster)
    assert poll(cluster, consumer) == [0, 1, 3]
    assert cluster.run(consumer, lambda: consumer.position(T0)) == 10, "behind the batch, not behind its last record"


def test_partitions_take_turns() -> None:
    cluster = cluster_with(3, 3)
    consumer = assigned(cluster, T0, T1)
    assert sorted(poll(cluster, consumer, times=2)) == [0, 0, 1, 1, 2, 2]
    first = cluster.requests(ApiKey.FETCH)[0]
    assert [row.partition for topic in first.topics for row in topic.partitions] == [0, 1]


# --- iterating


def test_iterating_moves_the_position_record_by_record() -> None:
    cluster = cluster_with(10)
    consumer = assigned(cluster)
    records = iter(consumer)
    seen = cluster.run(consumer, lambda: [next(records).offset for _ in range(3)])
    assert seen == [0, 1, 2]
    assert cluster.run(consumer, lambda: consumer.position(T0)) == 3
    assert consumer._core.subscriptions.positions.all_consumed()[T0].offset == 3, "what commit() would commit"
    assert poll(cluster, consumer) == [3, 4, 5, 6, 7, 8, 9], "poll goes on where the iteration was left"


def test_seek_while_iterating() -> None:
    cluster = cluster_with(10)
    consumer = assigned(cluster)
    records = iter(consumer)
    assert cluster.run(consumer, lambda: next(records)).offset == 0
    consumer.seek(T0, 8)
    assert cluster.run(consumer, lambda: [next(records).offset for _ in range(2)]) == [8, 9]


def test_poll_table_while_iterating() -> None:
    cluster = cluster_with(10)
    consumer = assigned(cluster)
    records = iter(consumer)
    cluster.run(consumer, lambda: [next(records) for _ in range(4)])
    table = cluster.run(consumer, lambda: consumer.poll_table(1000))
    assert table.column("offset").to_pylist() == [4, 5, 6, 7, 8, 9]


# --- sessions


def test_incremental_sessions_name_only_what_has_changed() -> None:
    cluster = cluster_with(3, 3, 0)
    consumer = assigned(cluster, T0, T1, TopicPartition("t", 2))
    poll(cluster, consumer, times=2)
    cluster.append("t", 2, [b"0"])
    cluster.turn_until(consumer, lambda: len(cluster.requests(ApiKey.FETCH)) >= 3)
    full, second, third = cluster.requests(ApiKey.FETCH)[:3]
    assert (full.session_id, full.session_epoch) == (0, 0)
    assert len(full.topics[0].partitions) == 3
    assert (second.session_epoch, third.session_epoch) == (1, 2)
    assert [(row.partition, row.fetch_offset) for row in second.topics[0].partitions] == [(0, 3), (1, 3)]
    assert third.topics == []


def test_a_session_that_the_broker_has_lost_begins_anew() -> None:
    cluster = cluster_with(3)
    consumer = assigned(cluster)
    assert poll(cluster, consumer) == [0, 1, 2]
    cluster.session_epochs.clear()
    cluster.append("t", 0, [b"3"])
    assert poll(cluster, consumer) == [3]
    epochs = [request.session_epoch for request in cluster.requests(ApiKey.FETCH)]
    assert epochs[-2:] == [1, 0]


def test_the_session_is_closed_with_the_consumer() -> None:
    cluster = cluster_with(3)
    consumer = assigned(cluster)
    poll(cluster, consumer)
    consumer.close()
    last = cluster.requests(ApiKey.FETCH)[-1]
    assert (last.session_id, last.session_epoch) == (1, -1)


def test_topics_without_ids_are_called_by_name() -> None:
    cluster = cluster_with(3)
    cluster.versions[ApiKey.METADATA] = (0, 9)
    consumer = assigned(cluster)
    assert poll(cluster, consumer) == [0, 1, 2]
    versions = {handled.header.api_version for handled in cluster.handled if handled.header.api_key is ApiKey.FETCH}
    assert versions == {12}


# --- pausing


def test_paused_partitions_keep_what_was_fetched() -> None:
    cluster = cluster_with(6, 3)
    consumer = assigned(cluster, T0, T1, max_poll_records=2)
    assert poll(cluster, consumer) == [0, 1]
    consumer.pause(T0)
    assert consumer.paused() == {T0}
    assert poll(cluster, consumer, times=3) == [0, 1, 2], "of the other one"
    fetches = len(cluster.requests(ApiKey.FETCH))
    consumer.resume(T0)
    assert poll(cluster, consumer, times=2) == [2, 3, 4, 5]
    again = cluster.requests(ApiKey.FETCH)[fetches:]
    offsets = [row.fetch_offset for body in again for topic in body.topics for row in topic.partitions]
    assert 2 not in offsets, "it was there all the time"


# --- transactions


def transactional(cluster: ConsumerCluster, producer_id: int, *records: bytes) -> None:
    cluster.append("t", 0, records, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)


def end(cluster: ConsumerCluster, producer_id: int, kind: ControlRecordType) -> None:
    log = cluster.log("t")
    cluster.append_batch(
        "t",
        0,
        end_transaction_marker_batch(
            EndTransactionMarker(kind, 0),
            base_offset=log.end_offset,
            producer_id=producer_id,
            producer_epoch=0,
            timestamp_ms=0,
        ),
    )


def with_transactions() -> ConsumerCluster:
    """0 and 1 aborted, 3 committed in between and by another, 6 by nobody, then an open one from 7 on."""
    cluster = ConsumerCluster({"t": 1})
    transactional(cluster, 7, b"0", b"1")
    end(cluster, 7, ControlRecordType.ABORT)
    transactional(cluster, 9, b"3")
    end(cluster, 9, ControlRecordType.COMMIT)
    transactional(cluster, 7, b"5")
    end(cluster, 7, ControlRecordType.COMMIT)
    cluster.append("t", 0, [b"7"])
    cluster.log("t").aborted.append((7, 0))
    return cluster


@pytest.mark.parametrize(("level", "expected"), [("read_uncommitted", [0, 1, 3, 5, 7]), ("read_committed", [3, 5, 7])])
def test_isolation(level: str, expected: list[int]) -> None:
    cluster = with_transactions()
    consumer = assigned(cluster, isolation_level=level)
    assert poll(cluster, consumer) == expected
    assert cluster.run(consumer, lambda: consumer.position(T0)) == 8


@pytest.mark.parametrize(("level", "expected"), [("read_uncommitted", [0, 1, 3, 5, 7]), ("read_committed", [3, 5, 7])])
def test_isolation_of_tables(level: str, expected: list[int]) -> None:
    cluster = with_transactions()
    consumer = assigned(cluster, isolation_level=level)
    table = cluster.run(consumer, lambda: consumer.poll_table(1000))
    assert table.column("offset").to_pylist() == expected
    assert cluster.run(consumer, lambda: consumer.position(T0)) == 8


def test_nothing_but_aborted_records_moves_the_position() -> None:
    cluster = ConsumerCluster({"t": 1})
    transactional(cluster, 7, b"0", b"1")
    end(cluster, 7, ControlRecordType.ABORT)
    cluster.log("t").aborted.append((7, 0))
    consumer = assigned(cluster, isolation_level="read_committed")
    assert poll(cluster, consumer) == []
    assert cluster.run(consumer, lambda: consumer.position(T0)) == 3


# --- tables


def test_tables() -> None:
    cluster = ConsumerCluster({"t": 1, "u": 1})
    cluster.append("t", 0, [b"a", None], timestamp=1_000, headers=(("h", b"1"),))
    cluster.append("u", 0, [b"b"], timestamp=2_000)
    consumer = assigned(cluster, T0, TopicPartition("u", 0))
    table = cluster.run(consumer, lambda: consumer.poll_table(1000, include_headers=True))
    rows = sorted(table.to_pylist(), key=lambda row: (row["topic"], row["offset"]))
    assert table.schema.names == [
        "topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"
    ]  # fmt: skip
    assert [(row["topic"], row["partition"], row["offset"], row["key"], row["value"]) for row in rows] == [
        ("t", 0, 0, b"0", b"a"),
        ("t", 0, 1, b"1", None),
        ("u", 0, 0, b"0", b"b"),
    ]
    assert rows[0]["headers"] == [{"key": "h", "value": b"1"}]
    assert rows[2]["timestamp"].timestamp() == 2
    assert cluster.run(consumer, lambda: consumer.poll_table(10)).num_rows == 0


def test_tables_by_so_many_and_mixed_with_records() -> None:
    cluster = cluster_with(12)
    consumer = assigned(cluster)

    def offsets(**arguments: object) -> list[int]:
        table = cluster.run(consumer, lambda: consumer.poll_table(1000, **arguments))  # type: ignore[arg-type]
        found: list[int] = table.column("value").cast("string").cast("int64").to_pylist()
        return found

    assert offsets(max_records=2, columns=["value"]) == [0, 1]
    assert offsets(max_records=2, columns=["value"]) == [2, 3]
    assert poll(cluster, consumer, max_records=3) == [4, 5, 6]
    assert offsets(max_records=2) == [7, 8]
    assert cluster.run(consumer, lambda: consumer.position(T0)) == 9
    assert offsets() == [9, 10, 11]


def test_a_table_of_several_topics() -> None:
    cluster = ConsumerCluster({"t": 2, "u": 1})
    expected = []
    for topic, partition in (("t", 1), ("u", 0), ("t", 0)):
        cluster.append(topic, partition, [b"%s%d" % (topic.encode(), partition)] * 2)
        expected += [(topic, partition, offset, f"{topic}{partition}".encode()) for offset in (0, 1)]
    consumer = assigned(cluster, T0, T1, TopicPartition("u", 0))
    columns = ["topic", "partition", "offset", "value"]
    table = cluster.run(consumer, lambda: consumer.poll_table(1000, columns=columns))
    assert table.schema.names == columns
    assert sorted(tuple(row.values()) for row in table.to_pylist()) == sorted(expected)
    table.validate(full=True)
    assert table.column("topic").num_chunks == table.column("partition").num_chunks == 1


def test_what_is_left_of_a_response_and_whole_ones_make_one_table() -> None:
    cluster = cluster_with(7, 3)
    consumer = assigned(cluster, T0, T1)

    def rows(**arguments: Any) -> list[tuple[int, int]]:
        wanted = ["value", "partition"]
        table = cluster.run(consumer, lambda: consumer.poll_table(1000, columns=wanted, **arguments))
        table.validate(full=True)
        chunks.append(table.column("value").num_chunks)
        return [(row["partition"], int(row["value"])) for row in table.to_pylist()]

    chunks: list[int] = []
    first = rows(max_records=2)
    left = rows()
    expected = {0: list(range(7)), 1: list(range(3))}
    assert {number: [value for at, value in first + left if at == number] for number in (0, 1)} == expected
    consumer.seek_to_beginning()
    assert sorted(rows()) == [(0, value) for value in range(7)] + [(1, value) for value in range(3)]
    assert chunks == [1, 2, 1], "one for what was left, one for all that was decoded"
    assert cluster.run(consumer, lambda: consumer.position(T0)) == 7
    assert cluster.run(consumer, lambda: consumer.position(T1)) == 3


def table_offsets(cluster: ConsumerCluster, consumer: KafkaConsumer) -> list[int]:
    offsets: list[int] = cluster.run(consumer, lambda: consumer.poll_table(1000)).column("offset").to_pylist()
    for _ in range(5):
        consumer.network_thread.run_once()
    return offsets


def test_tables_are_fetched_ahead_by_one_response() -> None:
    cluster = cluster_with(30)
    consumer = assigned(cluster, max_partition_fetch_bytes=1)  # a batch for each response
    assert table_offsets(cluster, consumer) == [0, 1, 2, 3, 4]
    assert len(cluster.requests(ApiKey.FETCH)) == 3, "the second answer and a third, but no fourth"
    assert table_offsets(cluster, consumer) == [5, 6, 7, 8, 9]
    assert len(cluster.requests(ApiKey.FETCH)) == 4
    assert cluster.run(consumer, lambda: consumer.position(T0)) == 10
    consumer.seek(T0, 2)
    assert table_offsets(cluster, consumer) == [2, 3, 4], "what was fetched ahead is not wanted any more"
    consumer.pause(T0)
    assert table_offsets(cluster, consumer) == []
    consumer.resume(T0)
    assert table_offsets(cluster, consumer) == [5, 6, 7, 8, 9]
    # Whoever reads records instead has one response at a time again, after what is there.
    asked = len(cluster.requests(ApiKey.FETCH))
    assert poll(cluster, consumer, max_records=5) == [10, 11, 12, 13, 14]
    for _ in range(5):
        consumer.network_thread.run_once()
    assert len(cluster.requests(ApiKey.FETCH)) == asked
    assert poll(cluster, consumer, times=4) == list(range(15, 30))


def test_the_next_fetch_goes_out_when_responses_were_thrown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The background thread sleeps, as there was nothing to ask for: it has to be told that there is room again."""
    cluster = cluster_with(30)
    consumer = assigned(cluster, max_partition_fetch_bytes=1)
    assert table_offsets(cluster, consumer) == [0, 1, 2, 3, 4]  # and two responses have been fetched ahead
    consumer.seek(T0, 20)
    woken = []
    monkeypatch.setattr(consumer.network_thread, "wakeup", lambda: woken.append(True))
    assert consumer.poll_table().num_rows == 0
    assert woken
    monkeypatch.undo()
    assert table_offsets(cluster, consumer) == [20, 21, 22, 23, 24]


def test_the_next_fetch_goes_out_when_an_error_was_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_with(3)
    consumer = assigned(cluster)
    cluster.partition_errors[T0] = [Errors.TOPIC_AUTHORIZATION_FAILED]
    consumer.poll()
    cluster.turn_until(consumer, lambda: bool(cluster.requests(ApiKey.FETCH)))
    for _ in range(5):
        consumer.network_thread.run_once()
    woken = []
    monkeypatch.setattr(consumer.network_thread, "wakeup", lambda: woken.append(True))
    with pytest.raises(TopicAuthorizationError):
        consumer.poll()
    assert woken


def test_nobody_is_woken_while_a_response_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """With it, the background thread will look at what there is room for by itself."""
    cluster = cluster_with(30)
    consumer = assigned(cluster, max_partition_fetch_bytes=1)
    cluster.run(consumer, lambda: consumer.poll_table(1000, max_records=1))
    manager = consumer.network_thread._managers[-1]
    buffer = manager._buffer  # type: ignore[attr-defined]
    for _ in range(5):
        consumer.network_thread.run_once()
    assert buffer.ends() == {T0: None}
    assert buffer.holds_up, "two answers are here, and nothing is asked for"
    woken = []
    monkeypatch.setattr(consumer.network_thread, "wakeup", lambda: woken.append(True))
    assert consumer.poll_table().num_rows == 4
    assert woken
    woken.clear()
    for _ in range(2):
        manager.poll(0)  # the first one takes note of the request that goes out now, which is not sent in here
        assert not buffer.holds_up
    assert consumer.poll_table().num_rows == 5
    assert not woken


def test_a_partition_that_was_paused_is_fetched_on_when_it_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is under way then: nobody would look at it, if the background thread were not told."""
    cluster = cluster_with(30)
    consumer = assigned(cluster, max_partition_fetch_bytes=1)
    assert table_offsets(cluster, consumer) == [0, 1, 2, 3, 4]
    consumer.pause(T0)
    for _ in range(5):
        consumer.network_thread.run_once()
    consumer.resume(T0)
    woken = []
    monkeypatch.setattr(consumer.network_thread, "wakeup", lambda: woken.append(True))
    assert consumer.poll_table().num_rows == 5
    assert woken


def test_a_response_that_was_read_is_let_go_of() -> None:
    """Even if the next one of the partition is there already: the memory of one is used for another."""
    cluster = cluster_with(30)
    consumer = assigned(cluster, max_partition_fetch_bytes=1)
    assert table_offsets(cluster, consumer) == [0, 1, 2, 3, 4]
    for _ in range(5):
        consumer.network_thread.run_once()
    buffer = consumer.network_thread._managers[-1]._buffer  # type: ignore[attr-defined]
    assert consumer.poll_table().num_rows == 5
    assert not buffer.is_empty()
    assert buffer.next_in_line is None


def test_nothing_is_fetched_ahead_of_an_error() -> None:
    cluster = cluster_with(10)
    consumer = assigned(cluster, max_partition_fetch_bytes=1)
    cluster.run(consumer, lambda: consumer.poll_table(1000, max_records=1))
    buffer = consumer.network_thread._managers[-1]._buffer  # type: ignore[attr-defined]
    for _ in range(5):
        consumer.network_thread.run_once()
    assert buffer.ends() == {T0: None}, "two answers"
    taken = [buffer.poll(), buffer.next_in_line]
    assert [fetch.end_offset() for fetch in taken] == [10, 5]
    taken[1].drain()
    assert buffer.ends() == {}
    refused = PartitionData(error_code=Errors.NOT_LEADER_OR_FOLLOWER.value)
    buffer.add([CompletedFetch(T0, refused, 5, FetchReading())])
    assert buffer.ends() == {T0: None}


def test_the_end_of_what_was_fetched() -> None:
    batch = RecordBatchBuilder(base_offset=7)
    batch.append(0, b"k", b"v")
    batch.append(0, b"k", b"v")
    data = bytes(batch.close())
    assert offset_after(memoryview(data)) == 9
    assert offset_after(memoryview(data + data[:-1])) == 9, "what was cut off does not count"
    assert offset_after(memoryview(data[:-1])) is None
    assert offset_after(memoryview(b"")) is None


def test_tables_with_columns_that_there_are_not() -> None:
    cluster = cluster_with(1)
    consumer = assigned(cluster)
    with pytest.raises(ValueError, match="no column size"):
        consumer.poll_table(columns=["value", "size"])
    with pytest.raises(ValueError, match="at least 1"):
        consumer.poll_table(max_records=0)


@pytest.mark.parametrize("arguments", [{}, {"max_records": 3}, {"include_headers": True}], ids=str)
def test_tables_of_views(arguments: dict[str, Any]) -> None:
    cluster = ConsumerCluster({"t": 2})
    for number in range(4):
        cluster.append("t", number % 2, [b"%d" % number * 20, None, b"short"])
    tables = {}
    for kind in ("binary", "binary_view"):
        consumer = assigned(cluster, T0, T1)
        parts: list[pa.Table] = []
        while sum(part.num_rows for part in parts) < 12:
            parts.append(cluster.run(consumer, lambda: consumer.poll_table(1000, binary_type=kind, **arguments)))  # noqa: B023
        consumer.close()
        tables[kind] = pa.concat_tables(parts)
        tables[kind].validate(full=True)
        assert str(tables[kind].schema.field("key").type) == str(tables[kind].schema.field("value").type) == kind
    rows = [sorted(table.to_pylist(), key=lambda row: (row["partition"], row["offset"])) for table in tables.values()]
    assert rows[0] == rows[1]


def test_views_and_copies_of_one_response() -> None:
    cluster = cluster_with(12)
    consumer = assigned(cluster)

    def take(kind: str) -> pa.Table:
        table = cluster.run(consumer, lambda: consumer.poll_table(1000, max_records=3, binary_type=kind))
        assert str(table.schema.field("value").type) == kind
        return table

    found = [take(kind).column("value").to_pylist() for kind in ("binary", "binary_view", "binary")]
    assert found == [[b"%d" % number for number in range(first, first + 3)] for first in (0, 3, 6)]
    empty = consumer.poll_table(columns=["value"], binary_type="binary_view", max_records=100).slice(0, 0)
    assert str(empty.schema.field("value").type) == "binary_view"
    with pytest.raises(ValueError, match="no binary type text"):
        consumer.poll_table(binary_type="text")


def test_tables_skip_paused_partitions() -> None:
    cluster = cluster_with(3, 2)
    consumer = assigned(cluster, T0, T1)
    consumer.pause(T0)
    table = cluster.run(consumer, lambda: consumer.poll_table(1000))
    assert table.column("partition").to_pylist() == [1, 1]


# --- what can be wrong with a fetch


def test_a_leader_that_moved() -> None:
    cluster = cluster_with(3, nodes=2)
    consumer = assigned(cluster)
    assert poll(cluster, consumer) == [0, 1, 2]
    cluster.move_leader("t", 0, to=2)
    cluster.append("t", 0, [b"3"])
    assert poll(cluster, consumer) == [3]
    validated = cluster.requests(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    assert [row.leader_epoch for topic in validated[0].topics for row in topic.partitions] == [0]
    assert validated[0].replica_id == -1


def test_the_old_leader_says_who_leads_now() -> None:
    cluster = cluster_with(3, nodes=2)
    cluster.tell_leaders = True
    consumer = assigned(cluster)
    assert poll(cluster, consumer) == [0, 1, 2]
    metadata = len(cluster.requests(ApiKey.METADATA))
    cluster.move_leader("t", 0, to=2)
    cluster.append("t", 0, [b"3"])
    cluster.turn_until(
        consumer,
        lambda: any(handled.node_id == 2 for handled in cluster.handled if handled.header.api_key is ApiKey.FETCH),
    )
    assert len(cluster.requests(ApiKey.METADATA)) == metadata, "nobody had to be asked"
    assert poll(cluster, consumer) == [3]


def test_a_log_that_was_cut_back() -> None:
    cluster = cluster_with(10, nodes=2)
    consumer = assigned(cluster)
    assert poll(cluster, consumer) == list(range(10))
    log = cluster.log("t")
    del log.batches[1:]
    log.epoch_ends[0] = 5
    cluster.move_leader("t", 0, to=2)
    cluster.append("t", 0, [b"50", b"51"])
    assert poll(cluster, consumer) == [50, 51], "from where both logs agree"
    assert cluster.run(consumer, lambda: consumer.position(T0)) == 7


def test_out_of_range_resets() -> None:
    cluster = cluster_with(10)
    consumer = assigned(cluster)
    consumer.seek(T0, 100)
    assert poll(cluster, consumer, times=2)[:3] == [0, 1, 2]


def test_out_of_range_without_a_policy() -> None:
    cluster = cluster_with(10)
    consumer = assigned(cluster, auto_offset_reset="none")
    consumer.seek(T0, 100)
    with pytest.raises(FetchOffsetOutOfRangeError) as caught:
        poll(cluster, consumer)
    assert caught.value.offset_out_of_range_partitions == {T0: 100}
    consumer.seek(T0, 9)
    assert poll(cluster, consumer) == [9]


def test_no_position_and_no_policy() -> None:
    cluster = cluster_with(10)
    consumer = assigned(cluster, auto_offset_reset="none")
    with pytest.raises(NoOffsetForPartitionError):
        poll(cluster, consumer)
    with pytest.raises(NoOffsetForPartitionError):
        cluster.run(consumer, lambda: consumer.position(T0))
    consumer.seek(T0, 3)
    assert poll(cluster, consumer)[0] == 3


@pytest.mark.parametrize(
    "error",
    [error for error, recovery in RECOVERIES.items() if recovery in {Recovery.REFRESH_METADATA, Recovery.RETRY}],
)
def test_errors_that_pass(error: Errors) -> None:
    cluster = cluster_with(3)
    consumer = assigned(cluster)
    cluster.partition_errors[T0] = [error, error]
    assert poll(cluster, consumer) == [0, 1, 2]


@pytest.mark.parametrize("error", [error for error, recovery in RECOVERIES.items() if recovery is Recovery.FAIL])
def test_errors_that_are_reported(error: Errors) -> None:
    cluster = cluster_with(3)
    consumer = assigned(cluster)
    cluster.partition_errors[T0] = [error]
    assert error.exception is not None
    with pytest.raises(error.exception):
        poll(cluster, consumer)


def test_not_allowed() -> None:
    cluster = cluster_with(3)
    consumer = assigned(cluster)
    cluster.partition_errors[T0] = [Errors.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(TopicAuthorizationError, match="t"):
        poll(cluster, consumer)
    assert poll(cluster, consumer) == [0, 1, 2], "told once"


def test_an_error_waits_for_the_records_before_it() -> None:
    cluster = cluster_with(3, 1)
    consumer = assigned(cluster, T0, T1)
    cluster.partition_errors[T1] = [Errors.TOPIC_AUTHORIZATION_FAILED]
    assert poll(cluster, consumer) == [0, 1, 2]
    with pytest.raises(TopicAuthorizationError):
        poll(cluster, consumer)


def damaged(cluster: ConsumerCluster) -> None:
    cluster.append("t", 0, [b"5"])
    batch = bytearray(cluster.log("t").batches.pop())
    batch[-2] ^= 0xFF
    cluster.append_batch("t", 0, batch)


def test_a_damaged_partition_keeps_no_other_from_its_table() -> None:
    cluster = cluster_with(0, 3)
    damaged(cluster)
    consumer = assigned(cluster, T1, T0)
    table = cluster.run(consumer, lambda: consumer.poll_table(1000))
    assert table.column("partition").to_pylist() == [1, 1, 1]
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match="t-0"):
            cluster.run(consumer, lambda: consumer.poll_table(1000))
    consumer.seek(T0, 1)
    assert cluster.run(consumer, lambda: consumer.poll_table(10)).num_rows == 0


def test_damage_is_told_after_what_is_whole() -> None:
    cluster = cluster_with(5)
    damaged(cluster)
    consumer = assigned(cluster)
    assert poll(cluster, consumer) == [0, 1, 2, 3, 4]
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match="t-0"):
            poll(cluster, consumer)
    cluster.append("t", 0, [b"6"])
    consumer.seek(T0, 6)
    assert poll(cluster, consumer, times=2) == [6]


def test_check_crcs_can_be_left_out() -> None:
    cluster = ConsumerCluster({"t": 1})
    cluster.append("t", 0, [b"5"])
    batch = bytearray(cluster.log("t").batches.pop())
    batch[17] ^= 0xFF  # of the checksum itself
    cluster.append_batch("t", 0, batch)
    assert poll(cluster, assigned(cluster, check_crcs=False)) == [5]
    with pytest.raises(CorruptRecordError):
        poll(cluster, assigned(cluster))


def test_part_of_a_batch_and_no_progress() -> None:
    cluster = ConsumerCluster({"t": 1})
    cluster.append("t", 0, [b"5" * 100])
    cluster.log("t").cut_to = 30
    consumer = assigned(cluster)
    with pytest.raises(CorruptRecordError, match="no complete records"):
        poll(cluster, consumer)


# --- deserializers


def test_deserializers() -> None:
    cluster = cluster_with(2)
    consumer = assigned(cluster, key_deserializer=bytes.decode, value_deserializer=int)
    records = cluster.run(consumer, lambda: consumer.poll(1000))
    assert [(record.key, record.value) for record in records] == [("0", 0), ("1", 1)]


def test_a_deserializer_that_fails() -> None:
    cluster = ConsumerCluster({"t": 1})
    cluster.append("t", 0, [b"1", b"x", b"3"])
    consumer = assigned(cluster, value_deserializer=int)
    assert [record.value for record in cluster.run(consumer, lambda: consumer.poll(1000))] == [1]
    with pytest.raises(RecordDeserializationError):
        cluster.run(consumer, lambda: consumer.poll(1000))
    with pytest.raises(RecordDeserializationError) as caught:
        cluster.run(consumer, lambda: consumer.poll(1000))
    assert (caught.value.partition, caught.value.offset) == (T0, 1)
    assert cluster.run(consumer, lambda: consumer.position(T0)) == 1
    consumer.seek(T0, 2)
    assert [record.value for record in cluster.run(consumer, lambda: consumer.poll(1000))] == [3]


# --- the replica next door


def test_preferred_read_replica() -> None:
    cluster = cluster_with(3, nodes=2)
    cluster.log("t").preferred_read_replica = 2
    consumer = assigned(cluster, client_rack="b", metadata_max_age_ms=10_000)

    def fetched_from() -> list[int]:
        return [handled.node_id for handled in cluster.handled if handled.header.api_key is ApiKey.FETCH]

    assert poll(cluster, consumer, times=2) == [0, 1, 2]
    assert fetched_from()[:2] == [1, 2]
    assert cluster.requests(ApiKey.FETCH)[0].rack_id == "b"
    cluster.partition_errors[T0] = [Errors.OFFSET_OUT_OF_RANGE]
    seen = len(fetched_from())
    cluster.append("t", 0, [b"3"])
    cluster.turn_until(consumer, lambda: len(fetched_from()) > seen)
    poll(cluster, consumer)
    assert 1 in fetched_from()[seen:], "the leader is asked, and nothing is reset"
    assert cluster.run(consumer, lambda: consumer.position(T0)) >= 3


def test_the_preference_expires() -> None:
    cluster = cluster_with(3, nodes=2)
    cluster.log("t").preferred_read_replica = 2
    consumer = assigned(cluster, metadata_max_age_ms=10_000)
    poll(cluster, consumer, times=2)
    subscriptions = consumer._core.subscriptions
    now = cluster.clock.hi_res_milliseconds()
    assert subscriptions.positions.preferred_read_replica(T0, now) == 2
    assert subscriptions.positions.preferred_read_replica(T0, now + 10_001) is None
