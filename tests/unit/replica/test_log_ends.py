"""Partitions where a consumer has read everything: what they are told in short is what a read would tell."""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.common.errors import ApiError
from barnabas.common.identifiers import ZERO_UUID
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.fetch_isolation import FetchIsolation
from barnabas.log.unified_log import LogStartOffsetIncrementReason
from barnabas.protocol.messages.fetch import FetchPartition
from barnabas.records.control import ControlRecordType
from barnabas.replica.fetch_session import TopicIdPartition
from barnabas.replica.results import ClientMetadata, FetchParams, LogReadResult
from log_fixtures import client_batch, marker
from replica_fixtures import T0, T0_ID, ReplicaBox
from unit.metadata.samples import uid

CLIENT = ClientMetadata("", "c", "127.0.0.1", "User:ANONYMOUS", "PLAINTEXT")


@pytest.fixture(params=["_log_ends", "_log_ends_pure"])
def log_ends(request: pytest.FixtureRequest) -> Any:
    try:
        return importlib.import_module(f"barnabas.replica.{request.param}")
    except ImportError:
        pytest.skip("not built")


@pytest.fixture
def box(tmp_path: Path) -> Iterator[ReplicaBox]:
    box = ReplicaBox([tmp_path / "one"])
    yield box
    box.kill()


def asked(offset: int, epoch: int = -1, last_fetched_epoch: int = -1) -> FetchPartition:
    return FetchPartition(
        fetch_offset=offset,
        current_leader_epoch=epoch,
        last_fetched_epoch=last_fetched_epoch,
        partition_max_bytes=1 << 20,
    )


def read(partition: Any, request: FetchPartition, committed: bool, fetch_only_leader: bool) -> LogReadResult | None:
    """The other way; None for an error."""
    isolation = FetchIsolation.TXN_COMMITTED if committed else FetchIsolation.HIGH_WATERMARK
    params = FetchParams(-1, -1, 500, 1, 1 << 20, isolation, None if fetch_only_leader else CLIENT)
    assert params.fetch_only_leader == fetch_only_leader
    try:
        found: LogReadResult = partition.fetch_records(params, request, 0, 1 << 20, True, False)
    except ApiError:
        return None
    return found


def step(box: ReplicaBox, chance: random.Random) -> None:
    """Something happens to the partition."""
    match chance.randrange(6):
        case 0 | 1:
            box.produce({T0_ID: client_batch([b"v"] * chance.randrange(1, 4))}, acks=1)
        case 2:
            box.manager.partitions.online[T0].local_log_or_raise().roll()
        case 3:
            log = box.manager.partitions.online[T0].local_log_or_raise()
            offset = chance.randint(log.log_start_offset, log.high_watermark)
            log.maybe_increment_log_start_offset(offset, LogStartOffsetIncrementReason.CLIENT_RECORD_DELETION)
        case 4:
            box.change(leader=1)
        case _:
            pass


@pytest.mark.parametrize("seed", range(4))
def test_it_says_what_a_read_says_or_nothing(log_ends: Any, box: ReplicaBox, seed: int) -> None:
    chance = random.Random(seed)
    box.create_topic(leader_epoch=1, replicas=[1])
    partition = box.manager.partitions.online[T0]
    said = 0
    for _ in range(30):
        step(box, chance)
        end = partition.local_log_or_raise().log_end_offset
        for _ in range(6):
            offset = chance.choice([end, end, end, end - 1, end + 1, 0])
            epoch = chance.choice([-1, partition.leader_epoch, partition.leader_epoch, 0, 99])
            request = asked(offset, epoch, chance.choice([-1, -1, -1, partition.leader_epoch]))
            committed, only_leader = chance.random() < 0.5, chance.random() < 0.5
            found = log_ends.at_end(partition, request, committed, only_leader)
            if found is not None:
                said += 1
                assert found == read(partition, request, committed, only_leader)
                assert log_ends.at_end(partition, request, committed, only_leader) is found
    assert said > 15


def test_one_who_has_not_read_everything_has_to_read(log_ends: Any, box: ReplicaBox) -> None:
    box.create_topic()
    box.produce()
    partition = box.manager.partitions.online[T0]
    assert log_ends.at_end(partition, asked(0), False, True) is None
    assert log_ends.at_end(partition, asked(1), False, True) is not None
    box.produce()
    assert log_ends.at_end(partition, asked(1), False, True) is None


def test_what_is_not_replicated_is_no_plain_end(log_ends: Any, box: ReplicaBox) -> None:
    box.create_topic(replicas=[1, 2])
    box.produce(acks=1)
    partition = box.manager.partitions.online[T0]
    assert partition.local_log_or_raise().high_watermark == 0
    assert log_ends.at_end(partition, asked(0), False, True) is None


@pytest.mark.parametrize("committed", [True, False])
def test_an_open_transaction_is_no_plain_end(log_ends: Any, box: ReplicaBox, committed: bool) -> None:
    box.create_topic()
    partition = box.manager.partitions.online[T0]
    batch = client_batch(producer_id=7, epoch=0, sequence=0, transactional=True)
    log = partition.local_log_or_raise()
    guard = log.producers.maybe_start_transaction_verification(7, 0, 0, supports_epoch_bump=False)
    partition.append_records_to_leader(batch, AppendOrigin.CLIENT, 1, guard, transaction_version=1)
    assert log_ends.at_end(partition, asked(1), committed, True) is None
    abort = marker(ControlRecordType.ABORT, 7, 0)
    partition.append_records_to_leader(abort, AppendOrigin.COORDINATOR, 1, transaction_version=1)
    found = log_ends.at_end(partition, asked(2), committed, True)
    assert found is not None
    assert found == read(partition, asked(2), committed, True)


def test_a_broker_that_does_not_lead_answers_only_whom_it_may(log_ends: Any, box: ReplicaBox) -> None:
    box.create_topic(replicas=[2, 1])
    partition = box.manager.partitions.online[T0]
    assert log_ends.at_end(partition, asked(0), False, True) is None
    by_reading = read(partition, asked(0), False, False)  # which looks up where the high watermark is
    found = log_ends.at_end(partition, asked(0), False, False)
    assert found is not None
    assert found == by_reading == read(partition, asked(0), False, False)


def test_no_plain_end_while_a_log_directory_is_offline(log_ends: Any, box: ReplicaBox) -> None:
    box.create_topic()
    partition = box.manager.partitions.online[T0]
    assert log_ends.at_end(partition, asked(0), False, True) is not None
    channel = partition.local_log_or_raise().watermarks._local_log.guard.channel
    channel.maybe_add_offline_log_dir(Path("/elsewhere"), "test")
    assert log_ends.at_end(partition, asked(0), False, True) is None


def test_the_partitions_of_a_fetch_that_have_nothing_new(log_ends: Any, box: ReplicaBox) -> None:
    box.create_topic(partitions=3)
    box.produce({TopicIdPartition(T0_ID.topic_id, "topic", 1): client_batch()})
    online = box.manager.partitions.online
    names = [TopicIdPartition(T0_ID.topic_id, "topic", number) for number in range(4)]
    names += [TopicIdPartition(uid(99), "topic", 0), TopicIdPartition(ZERO_UUID, "topic", 0)]
    requests = [(name, asked(0)) for name in names]
    ends = log_ends.ends_of(requests, online, False, True)
    assert [None if end is None else end[0] for end in ends] == [names[0], None, names[2], None, None, names[5]]
    statuses = [
        (name, request, (name.topic, name.partition), end[1])
        for (name, request), end in zip(requests, ends, strict=True)
        if end is not None
    ]
    assert log_ends.changed(statuses, online, False, True) == []
    box.produce({names[2]: client_batch()})
    assert log_ends.changed(statuses, online, False, True) == [statuses[1]]
    assert log_ends.changed(statuses, online, True, True) == statuses, "these were told something else"
    box.delete_topic()
    assert log_ends.changed(statuses, online, False, True) == statuses
