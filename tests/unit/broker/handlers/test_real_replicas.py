"""The handlers of records over a real replica manager and real logs: what a client gets in the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from barnabas.common.errors import Errors
from barnabas.common.identifiers import Uuid
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, LeaderIdAndEpoch, ReplicaState
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records.batch import CompressionType, iter_batches
from barnabas.records.reader import read_records
from log_fixtures import NOW, client_batch
from unit.broker.handlers.data_bench import NOBODY, SMALL, T
from unit.broker.handlers.real_bench import RealBench
from unit.metadata.samples import uid

REPLICATED = uid(50)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[RealBench]:
    bench = RealBench(tmp_path)
    yield bench
    bench.box.stop()


def produce_request(
    batch: bytes | bytearray, *, topic: Uuid = T, index: int = 0, acks: int = -1, timeout_ms: int = 1000
) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=bytes(batch))]
    topics = [TopicProduceData(topic_id=topic, partition_data=data)]
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics)


def produce(bench: RealBench, batch: bytes | bytearray, **options: Any) -> tuple[Errors, int]:
    (topic,) = bench.answered_now(produce_request(batch, **options)).responses
    (answer,) = topic.partition_responses
    return Errors(answer.error_code), answer.base_offset


def fetch_request(offset: int = 0, *, topic: Uuid = T, index: int = 0, **fields: Any) -> FetchRequest:
    part = FetchPartition(
        partition=index,
        fetch_offset=offset,
        partition_max_bytes=fields.pop("partition_max_bytes", 1 << 20),
        current_leader_epoch=fields.pop("epoch", -1),
        log_start_offset=fields.pop("log_start_offset", -1),
    )
    return FetchRequest(
        topics=[FetchTopic(topic_id=topic, partitions=[part])],
        **{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **fields},
    )


def only(response: Any) -> Any:
    (topic,) = response.responses
    (data,) = topic.partitions
    return data


def values(data: Any) -> list[bytes]:
    batches = iter_batches(cast("bytes", data.records), allow_partial=True)
    return [cast("bytes", record.value) for batch in batches for record in read_records(batch)]


def list_offset(bench: RealBench, timestamp: int, *, replica_id: int = -1, topic: str = "t") -> tuple[Errors, int, int]:
    asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])
    (answer,) = bench.answered_now(ListOffsetsRequest(replica_id=replica_id, topics=[asked])).topics
    (found,) = answer.partitions
    return Errors(found.error_code), found.timestamp, found.offset


@pytest.mark.mechanism("R05", "R07")
def test_what_is_produced_is_fetched(bench: RealBench) -> None:
    end = 0
    for acks in (-1, 1, 0):
        for compression in CompressionType:
            for batch in ([b"a", b"b"], [b"c"]):
                body = produce_request(client_batch(batch, compression=compression), acks=acks)
                assert bench.had_no_answer(bench.send(body)) == (acks == 0)
            data = only(bench.answered_now(fetch_request(end)))
            assert values(data) == [b"a", b"b", b"c"]
            assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (end + 3, end + 3, 0)
            assert values(only(bench.answered_now(fetch_request(end + 2)))) == [b"c"]
            end += 3
            assert only(bench.answered_now(fetch_request(end))).records == b""


@pytest.mark.mechanism("R07")
def test_a_long_poll_ends_with_the_next_append_or_with_its_time(bench: RealBench) -> None:
    waiting = [bench.send(fetch_request(max_wait_ms=500)) for _ in range(2)]
    assert not any(map(bench.is_answered, waiting))
    assert produce(bench, client_batch([b"news"])) == (Errors.NONE, 0)
    assert [values(only(bench.answer(request))) for request in waiting] == [[b"news"], [b"news"]]
    expiring = bench.send(fetch_request(1, max_wait_ms=500))
    bench.box.pass_time(499)
    assert not bench.is_answered(expiring)
    bench.box.pass_time(2)
    assert only(bench.answer(expiring)).records == b""


@pytest.mark.mechanism("R07")
def test_a_session_over_a_real_log(bench: RealBench) -> None:
    produce(bench, client_batch([b"one"]))
    session = bench.answered_now(fetch_request(session_epoch=0)).session_id
    assert session
    moved = fetch_request(1, session_id=session, session_epoch=1)
    assert bench.answered_now(moved).responses == []
    produce(bench, client_batch([b"two"]))
    nothing_new = FetchRequest(min_bytes=1, session_id=session, session_epoch=2)
    assert values(only(bench.answered_now(nothing_new))) == [b"two"]


@pytest.mark.mechanism("R07")
def test_errors_of_a_fetch(bench: RealBench) -> None:
    produce(bench, client_batch([b"one"]))
    cases = {
        Errors.OFFSET_OUT_OF_RANGE: fetch_request(2),
        Errors.UNKNOWN_LEADER_EPOCH: fetch_request(epoch=5),
        Errors.UNKNOWN_TOPIC_OR_PARTITION: fetch_request(index=7),
        Errors.UNKNOWN_TOPIC_ID: fetch_request(topic=NOBODY),
    }
    for error, body in cases.items():
        data = only(bench.answered_now(body))
        assert (Errors(data.error_code), data.high_watermark, data.records) == (error, -1, b"")


@pytest.mark.mechanism("R07")
def test_a_reader_gets_one_batch_however_little_it_wants(bench: RealBench) -> None:
    for value in (b"one", b"two"):
        produce(bench, client_batch([value]))
    for size in (0, 1):
        for body in (fetch_request(max_bytes=size), fetch_request(partition_max_bytes=size)):
            assert values(only(bench.answered_now(body))) == [b"one"]


@pytest.mark.mechanism("R13")
@pytest.mark.parametrize("size", [-1, -(2**31)])
def test_a_negative_size_is_refused(bench: RealBench, size: int, caplog: pytest.LogCaptureFixture) -> None:
    assert bench.answered_now(fetch_request(max_bytes=size)).error_code == Errors.INVALID_REQUEST
    assert only(bench.answered_now(fetch_request(partition_max_bytes=size))).error_code == Errors.INVALID_REQUEST
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.mechanism("R06")
def test_all_acks_wait_for_followers(bench: RealBench) -> None:
    bench.box.create_topic("replicated", REPLICATED, replicas=[1, 2])
    request = bench.send(produce_request(client_batch([b"x"]), topic=REPLICATED, timeout_ms=1000))
    assert not bench.is_answered(request)
    follower: dict[str, Any] = {"topic": REPLICATED, "replica_state": ReplicaState(replica_id=2, replica_epoch=102)}
    data = only(bench.answered_now(fetch_request(0, log_start_offset=0, **follower)))
    assert values(data) == [b"x"]  # past the high watermark: it is a follower
    assert only(bench.answered_now(fetch_request(0, topic=REPLICATED))).records == b""
    assert not bench.is_answered(request)
    bench.send(fetch_request(1, log_start_offset=0, **follower))
    assert bench.answer(request).responses[0].partition_responses[0].base_offset == 0
    late = bench.send(produce_request(client_batch([b"y"]), topic=REPLICATED, timeout_ms=1000))
    bench.box.pass_time(1001)
    assert bench.answer(late).responses[0].partition_responses[0].error_code == Errors.REQUEST_TIMED_OUT


@pytest.mark.mechanism("R05", "R07")
def test_a_broker_that_does_not_lead_says_who_does(bench: RealBench) -> None:
    bench.box.create_topic("elsewhere", REPLICATED, replicas=[1, 2], leader=2, leader_epoch=4)
    body = produce_request(client_batch(), topic=REPLICATED)
    response = bench.answered_now(body)
    answer = response.responses[0].partition_responses[0]
    assert answer.error_code == Errors.NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 4)
    assert [(node.node_id, node.host) for node in response.node_endpoints] == [(2, "plaintext-2")]
    bench.box.change(REPLICATED, leader=1)
    response = bench.answered_now(fetch_request(topic=REPLICATED, epoch=4))
    assert only(response).error_code == Errors.FENCED_LEADER_EPOCH
    assert only(response).current_leader == LeaderIdAndEpoch(leader_id=1, leader_epoch=5)


@pytest.mark.mechanism("R06")
def test_acks_that_there_are_not(bench: RealBench) -> None:
    assert produce(bench, client_batch(), acks=2) == (Errors.INVALID_REQUIRED_ACKS, -1)


def test_duplicates_of_a_producer_get_the_response_of_the_first(bench: RealBench) -> None:
    batch = client_batch([b"a"], producer_id=7, epoch=0, sequence=0)
    assert produce(bench, batch) == (Errors.NONE, 0)
    assert produce(bench, client_batch([b"b"])) == (Errors.NONE, 1)
    assert produce(bench, client_batch([b"a"], producer_id=7, epoch=0, sequence=0)) == (Errors.NONE, 0)
    (topic,) = bench.answered_now(
        DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 1, 9])])
    ).topics
    known, empty, missing = topic.partitions
    assert [(state.producer_id, state.last_sequence) for state in known.active_producers] == [(7, 0)]
    assert empty.active_producers == []
    assert missing.error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION


def test_offsets(bench: RealBench) -> None:
    none = -1
    assert list_offset(bench, -3) == (Errors.NONE, none, none)
    for step in range(3):
        produce(bench, client_batch([b"v"], timestamp=NOW + step * 10))
    expected = {
        -1: (none, 3),
        -2: (none, 0),
        -3: (NOW + 20, 2),
        -4: (none, 0),
        -5: (none, none),
        -6: (none, none),
        0: (NOW, 0),
        NOW + 5: (NOW + 10, 1),
        NOW + 20: (NOW + 20, 2),
        NOW + 21: (none, none),
    }
    for timestamp, found in expected.items():
        assert list_offset(bench, timestamp) == (Errors.NONE, *found), timestamp
    assert list_offset(bench, -1, topic="nope")[0] is Errors.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offset(bench, -1, replica_id=-2) == (Errors.NONE, none, 3)


def test_the_end_of_an_epoch(bench: RealBench) -> None:
    produce(bench, client_batch([b"a", b"b"]))
    asked = [(0, -1, 0), (0, -1, 5), (0, 9, 0), (9, -1, 0)]
    body = OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            OffsetForLeaderTopic(
                topic="t",
                partitions=[
                    OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
                    for index, current, epoch in asked
                ],
            )
        ],
    )
    (topic,) = bench.answered_now(body).topics
    assert [(Errors(one.error_code), one.leader_epoch, one.end_offset) for one in topic.partitions] == [
        (Errors.NONE, 0, 2),
        (Errors.NONE, -1, -1),
        (Errors.UNKNOWN_LEADER_EPOCH, -1, -1),
        (Errors.UNKNOWN_TOPIC_OR_PARTITION, -1, -1),
    ]


def test_deleting_records(bench: RealBench) -> None:
    for _ in range(4):
        produce(bench, client_batch([b"v"]))
    body = DeleteRecordsRequest(
        timeout_ms=1000,
        topics=[
            DeleteRecordsTopic(
                name="t",
                partitions=[
                    DeleteRecordsPartition(partition_index=0, offset=2),
                    DeleteRecordsPartition(partition_index=1, offset=1),
                ],
            ),
            DeleteRecordsTopic(name="compact", partitions=[DeleteRecordsPartition(partition_index=0, offset=0)]),
        ],
    )
    answers = {
        f"{topic.name}-{part.partition_index}": (part.low_watermark, Errors(part.error_code))
        for topic in bench.answered_now(body).topics
        for part in topic.partitions
    }
    assert answers == {
        "t-0": (2, Errors.NONE),
        "t-1": (-1, Errors.OFFSET_OUT_OF_RANGE),
        "compact-0": (-1, Errors.POLICY_VIOLATION),
    }
    assert only(bench.answered_now(fetch_request(1))).error_code == Errors.OFFSET_OUT_OF_RANGE
    assert list_offset(bench, -2) == (Errors.NONE, -1, 2)


def test_log_directories(bench: RealBench) -> None:
    produce(bench, client_batch([b"v"]))
    body = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="t", partitions=[0])])
    response = bench.answered_now(body)
    assert sorted(Path(result.log_dir).name for result in response.results) == ["a", "b"]
    (found,) = [topic for result in response.results for topic in result.topics]
    assert found.partitions[0].partition_size == len(client_batch([b"v"]))
    everything = bench.answered_now(DescribeLogDirsRequest(topics=None))
    assert sum(len(topic.partitions) for result in everything.results for topic in result.topics) == 4
    moves = AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDir(path="/nowhere", topics=[AlterReplicaLogDirTopic(name="t", partitions=[0])])]
    )
    (topic,) = bench.answered_now(moves).results
    assert topic.partitions[0].error_code == Errors.LOG_DIR_NOT_FOUND


def test_a_disk_that_fails(bench: RealBench) -> None:
    """The clients are sent away, and the partitions on the other disk go on."""
    partition = bench.box.manager.get_partition_or_exception(("t", 0))
    directory = partition.local_log_or_raise().parent_dir
    bench.box.manager.handle_log_dir_failure(directory)
    codes = set()
    for index in (0, 1):
        codes.add(produce(bench, client_batch(), index=index)[0])
        data = only(bench.answered_now(fetch_request(index=index)))
        codes.add(Errors(data.error_code))
    assert Errors.KAFKA_STORAGE_ERROR in codes
    assert codes <= {Errors.KAFKA_STORAGE_ERROR, Errors.NONE}
    assert Errors.NONE in codes or produce(bench, client_batch(), topic=SMALL)[0] is Errors.NONE
