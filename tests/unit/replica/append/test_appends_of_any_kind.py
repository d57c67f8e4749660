"""Appends of every kind of batch: what is in the partitions, and what is told of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.common.errors import Errors
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.log_validator import LogValidator
from barnabas.records.batch import CompressionType
from barnabas.records.control import ControlRecordType
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.partition.partition import Partition
from log_fixtures import NOW, client_batch, marker
from replica_fixtures import T0, T0_ID, TOPIC_ID, ReplicaBox, consumer
from unit.records.strategies import with_crc


@pytest.fixture
def boxes(tmp_path: Path) -> Iterator[list[ReplicaBox]]:
    boxes = [ReplicaBox([tmp_path / name]) for name in ("whole", "steps")]
    yield boxes
    for box in boxes:
        box.kill()


@pytest.fixture
def box(boxes: list[ReplicaBox]) -> ReplicaBox:
    return boxes[0]


def state(box: ReplicaBox) -> Any:
    """What is in the partitions, and what is told of them."""
    partitions = []
    for key, partition in sorted(box.manager.partitions.online.items()):
        log = partition.local_log_or_raise()
        partitions.append(
            (
                key,
                log.fetch_offset_snapshot(),
                log.recovery_point,
                [segment.records.read_bytes(0, segment.size) for segment in log.segments],
                log.producers.active(),
            )
        )
    meters = {name: meter.count for name, meter in box.manager.stats.all_topics.items()}
    return partitions, meters, box.answers.produced


def batch(chance: random.Random, number: int) -> bytearray:
    data = client_batch(
        [(chance.choice([b"k", b"k", b"k", None]), chance.randbytes(chance.randrange(300))) for _ in range(2)],
        **chance.choice(  # type: ignore[arg-type]
            [
                {},
                {"producer_id": 7, "epoch": 0, "sequence": chance.choice([2 * number, 0, 2, 9])},
                {"compression": CompressionType.LZ4},
                {"timestamps": [NOW, NOW + chance.choice([5, 2**40])]},
            ]
        ),
    )
    if chance.random() < 0.3:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        if chance.random() < 0.8:
            data = bytearray(with_crc(data))
    return data


@pytest.mark.parametrize("seed", range(6))
def test_it_makes_no_difference_how_batches_are_validated(
    boxes: list[ReplicaBox], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    whole = LogValidator._needs_no_change
    all_settings: list[dict[str, Any]] = [{}, {"flush.messages": 20}, {"cleanup.policy": "compact"}]
    settings = all_settings[seed % 3]
    for box in boxes:
        box.overrides["topic"] = dict(settings)
        box.create_topic(partitions=3)
    for number in range(40):
        entries = {
            TopicIdPartition(TOPIC_ID, "topic", index): batch(chance, number) for index in range(chance.randrange(1, 5))
        }
        acks = chance.choice([-1, 0, 1])
        waits = chance.random() < 0.3
        for box, way in zip(boxes, (whole, lambda *_: False), strict=True):
            monkeypatch.setattr(LogValidator, "_needs_no_change", way)
            if waits:
                end = box.manager.partitions.online[T0].local_log_or_raise().log_end_offset
                box.fetch({T0_ID: end}, params=consumer(max_wait_ms=10_000))
            box.produce({partition: memoryview(bytearray(data)) for partition, data in entries.items()}, acks=acks)
        assert state(boxes[0]) == state(boxes[1])
        assert len(boxes[0].answers.fetched) == len(boxes[1].answers.fetched)
    errors = {result.error for produced in boxes[0].answers.produced for result in produced.values()}
    assert {Errors.NONE, Errors.CORRUPT_MESSAGE} <= errors


def test_the_high_watermark_of_a_replicated_partition_waits_for_followers(box: ReplicaBox) -> None:
    box.create_topic(replicas=[1, 2])
    partition = box.manager.partitions.online[T0]
    for _ in range(2):
        box.produce(acks=1)
    log = partition.local_log_or_raise()
    assert (log.log_end_offset, log.high_watermark) == (2, 0)
    box.change(leader=2)
    box.produce()
    assert box.answers.produced[-1][T0_ID].error is Errors.NOT_LEADER_OR_FOLLOWER


def test_the_high_watermark_is_told_to_those_who_listen(box: ReplicaBox) -> None:
    box.create_topic()
    for _ in range(2):
        box.produce()
    log = box.manager.partitions.online[T0].local_log_or_raise()
    heard: list[int] = []
    log.watermarks.listener = heard.append
    box.produce()
    assert heard == [3]


def test_an_open_transaction_of_another_producer_holds_the_last_stable_offset(box: ReplicaBox) -> None:
    box.create_topic()
    partition = box.manager.partitions.online[T0]
    for _ in range(2):
        box.produce()
    log = partition.local_log_or_raise()
    guard = log.producers.maybe_start_transaction_verification(7, 0, 0, supports_epoch_bump=False)
    transactional = client_batch(producer_id=7, epoch=0, sequence=0, transactional=True)
    partition.append_records_to_leader(transactional, AppendOrigin.CLIENT, 1, guard, transaction_version=1)
    box.produce()
    assert (log.high_watermark, log.last_stable_offset) == (4, 2)
    abort = marker(ControlRecordType.ABORT, 7, 0)
    log.append_as_leader(abort, 0, AppendOrigin.COORDINATOR, transaction_version=1)
    assert log.last_stable_offset == 2, "the high watermark has not come to the marker"
    box.produce()
    assert log.last_stable_offset == 6


def test_a_disk_that_fails_takes_its_directory_offline(box: ReplicaBox, monkeypatch: pytest.MonkeyPatch) -> None:
    box.create_topic()
    partition: Partition = box.manager.partitions.online[T0]
    for _ in range(2):
        box.produce()

    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", fail)
        box.produce()
    assert box.answers.produced[-1][T0_ID].error is Errors.KAFKA_STORAGE_ERROR
    log = partition.local_log_or_raise()
    assert log.log_end_offset == 2
    assert log.watermarks._local_log.guard.channel.any_offline
