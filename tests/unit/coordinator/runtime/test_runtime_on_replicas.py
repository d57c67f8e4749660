"""The runtime over a real replica manager: what it writes is on disk, and what is on disk it reads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from barnabas.common.errors import InvalidProducerEpochError, InvalidTxnStateError, NotLeaderOrFollowerError
from barnabas.common.snapshot_registry import TimelineHashMap
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.runtime.coordinator_loader import LogCoordinatorLoader
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord, CoordinatorRecordSerde
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime, RuntimeParts
from barnabas.coordinator.runtime.coordinator_shard import ShardContext
from barnabas.coordinator.runtime.coordinator_state import CoordinatorState
from barnabas.coordinator.runtime.partition_writer import ReplicaPartitionWriter
from barnabas.coordinator.runtime.transaction_end import TransactionEnd
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import MetadataImage
from barnabas.protocol.internal.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from barnabas.protocol.internal.topics import CONSUMER_OFFSETS
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.control import ControlRecordType
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.server.timer.mock_timer import MockTimer
from coordinator_fixtures import DirectEventProcessor, InlineExecutor
from replica_fixtures import TOPIC_ID, ReplicaBox, follower

P0 = TopicPartition("__consumer_offsets", 0)
SERDE = CoordinatorRecordSerde(CONSUMER_OFFSETS)


class Numbers:
    def __init__(self, context: ShardContext) -> None:
        self.numbers: TimelineHashMap[str, int] = TimelineHashMap(context.registry)
        self.markers: list[tuple[int, ControlRecordType]] = []
        self.transactional: list[int] = []

    def on_loaded(self, image: MetadataImage) -> None: ...

    def on_unloaded(self) -> None: ...

    def on_new_metadata_image(self, image: MetadataImage, delta: MetadataDelta) -> None: ...

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        assert isinstance(record.key, OffsetCommitKey)
        assert isinstance(record.value, OffsetCommitValue)
        if producer_id >= 0:
            self.transactional.append(producer_id)
        self.numbers[record.key.group] = record.value.offset

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, result: ControlRecordType) -> None:
        self.markers.append((producer_id, result))


class Box:
    def __init__(self, replicas: ReplicaBox, buffer_size: int = 1 << 20) -> None:
        self.replicas = replicas
        self.writer = ReplicaPartitionWriter(replicas.manager)
        self.timer = MockTimer()
        self.processor = DirectEventProcessor()
        self.loader = LogCoordinatorLoader(replicas.manager, SERDE, replicas.scheduler, replicas.clock, buffer_size)
        self.runtime: CoordinatorRuntime[Numbers] = CoordinatorRuntime(
            RuntimeParts(self.processor, self.loader, self.writer, SERDE, self.timer, InlineExecutor(), replicas.clock),
            Numbers,
            name="test",
        )

    def load(self, epoch: int = 0) -> None:
        self.runtime.schedule_load_operation(P0, epoch).result(0)
        self.replicas.scheduler.tick()

    def put(self, name: str, number: int) -> Future[None]:
        record = CoordinatorRecord(OffsetCommitKey(group=name), OffsetCommitValue(offset=number), 3)
        return self.runtime.schedule_write_operation("put", P0, lambda _: CoordinatorResult([record]))

    def put_transactional(self, name: str, number: int, epoch: int = 0) -> Future[None]:
        record = CoordinatorRecord(OffsetCommitKey(group=name), OffsetCommitValue(offset=number), 3)
        return self.runtime.schedule_transactional_write_operation(
            "put", P0, "t", 9, epoch, lambda _: CoordinatorResult([record]), 4
        )

    def shard(self) -> Numbers:
        return self.runtime.schedule_read_operation("look", P0, lambda shard, _: shard).result(0)

    def committed(self) -> dict[str, int]:
        return dict(
            self.runtime.schedule_read_operation("look", P0, lambda shard, at: shard.numbers.items_at(at)).result(0)
        )


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[ReplicaBox]:
    box = ReplicaBox([tmp_path / "logs"])
    yield box
    box.stop()


def test_what_is_written_is_on_disk_and_read_again(replicas: ReplicaBox) -> None:
    replicas.create_topic(P0.topic)
    box = Box(replicas)
    box.load()
    for number in range(20):
        assert box.put("a", number).result(0) is None, "with one replica it is committed at once"
    again = Box(replicas, buffer_size=100)
    again.load()
    assert again.committed() == {"a": 19}


def test_a_response_waits_for_the_followers(replicas: ReplicaBox) -> None:
    replicas.create_topic(P0.topic, replicas=(1, 2))
    box = Box(replicas)
    box.load()
    answer = box.put("a", 1)
    assert not answer.done()
    assert box.committed() == {}
    key = TopicIdPartition(TOPIC_ID, P0.topic, 0)
    replicas.fetch({key: 0}, params=follower(2, max_wait_ms=0))
    assert not answer.done()
    replicas.fetch({key: 1}, params=follower(2, max_wait_ms=0))
    assert answer.result(0) is None
    assert box.committed() == {"a": 1}


def test_a_high_watermark_that_rises_between_the_load_and_its_end_is_seen(replicas: ReplicaBox) -> None:
    """Nobody reports it again before the next write, which the responses to heartbeats would wait for."""
    replicas.create_topic(P0.topic, replicas=(1, 2))
    before = Box(replicas)
    before.load()
    before.put("a", 1)
    box = Box(replicas)
    box.runtime.schedule_load_operation(P0, 1).result(0)
    box.processor.hold()
    replicas.scheduler.tick()
    key = TopicIdPartition(TOPIC_ID, P0.topic, 0)
    replicas.fetch({key: 0}, params=follower(2, max_wait_ms=0))
    replicas.fetch({key: 1}, params=follower(2, max_wait_ms=0))
    box.processor.release()
    assert box.committed() == {"a": 1}


def test_a_broker_that_does_not_lead(replicas: ReplicaBox) -> None:
    replicas.create_topic(P0.topic, replicas=(2, 1), leader=2)
    box = Box(replicas)
    box.load()
    assert box.runtime.state_of(P0) is CoordinatorState.FAILED
    with pytest.raises(NotLeaderOrFollowerError):
        box.writer.append(P0, bytearray())


def test_leadership_that_is_lost_between_operations(replicas: ReplicaBox) -> None:
    replicas.create_topic(P0.topic, replicas=(1, 2))
    box = Box(replicas)
    box.load()
    replicas.change(leader=2)
    with pytest.raises(NotLeaderOrFollowerError):
        box.put("a", 1).result(0)
    assert box.shard().numbers.present == {}


def test_transactions_and_their_markers(replicas: ReplicaBox) -> None:
    replicas.create_topic(P0.topic)
    box = Box(replicas)
    box.load()
    box.put_transactional("a", 1, epoch=3).result(0)
    box.runtime.schedule_transaction_completion("end", P0, TransactionEnd(9, 3, 0, ControlRecordType.COMMIT, 0)).result(
        0
    )
    again = Box(replicas)
    again.load()
    assert again.shard().transactional == [9]
    assert again.shard().markers == [(9, ControlRecordType.COMMIT)]
    with pytest.raises(InvalidProducerEpochError):
        box.put_transactional("a", 2, epoch=2).result(0)


def test_a_transaction_is_verified_with_its_coordinator(replicas: ReplicaBox) -> None:
    replicas.create_topic(P0.topic)
    box = Box(replicas)
    box.load()
    asked: list[tuple[Any, ...]] = []
    answers: list[Future[None]] = []

    def verify(*arguments: Any) -> Future[None]:
        asked.append(arguments)
        answers.append(Future())
        return answers[-1]

    box.writer.verifier = verify
    answer = box.put_transactional("a", 1)
    assert asked == [(P0, "t", 9, 0, 4)]
    assert not answer.done()
    answers[0].set_result(None)
    assert answer.result(0) is None
    assert box.put_transactional("a", 2).result(0) is None
    assert len(asked) == 1, "it goes on: there is nothing to verify"
    box.runtime.schedule_transaction_completion("end", P0, TransactionEnd(9, 0, 0, ControlRecordType.ABORT, 0)).result(
        0
    )
    answer = box.put_transactional("a", 3)
    answers[1].set_exception(InvalidTxnStateError())
    with pytest.raises(InvalidTxnStateError):
        answer.result(0)


def test_a_verification_does_not_wait_for_a_slow_log_directory(replicas: ReplicaBox) -> None:
    """It takes the lock of the log, which is held while the disk is written to."""
    replicas.create_topic(P0.topic)
    box = Box(replicas)
    box.load()
    log = replicas.manager.get_partition_or_exception(P0).local_log_or_raise()
    log.pace.wrote(2_000_000_000)
    locked, go_on = threading.Event(), threading.Event()

    def hold_lock() -> None:
        with log._lock:
            locked.set()
            assert go_on.wait(60)

    thread = threading.Thread(target=hold_lock)
    thread.start()
    assert locked.wait(60)
    answer = box.put_transactional("a", 1)
    assert not answer.done()
    go_on.set()
    thread.join(60)
    assert answer.result(60) is None


def test_records_of_a_later_kafka_are_skipped(replicas: ReplicaBox) -> None:
    replicas.create_topic(P0.topic)
    builder = RecordBatchBuilder()
    builder.append(0, b"\x7f\x00what", b"?")
    builder.append(0, SERDE.serialize(CoordinatorRecord(OffsetCommitKey(group="a")))[0], b"\x00\x7f")
    key, value = SERDE.serialize(CoordinatorRecord(OffsetCommitKey(group="a"), OffsetCommitValue(offset=1), 3))
    builder.append(0, key, value)
    writer = ReplicaPartitionWriter(replicas.manager)
    writer.append(P0, builder.close())
    box = Box(replicas)
    box.load()
    assert box.committed() == {"a": 1}


def test_a_loader_that_is_closed_loads_nothing(replicas: ReplicaBox) -> None:
    replicas.create_topic(P0.topic)
    box = Box(replicas)
    box.load()
    box.put("a", 1).result(0)
    again = Box(replicas)
    again.loader.close()
    again.load()
    assert again.runtime.state_of(P0) is CoordinatorState.FAILED
