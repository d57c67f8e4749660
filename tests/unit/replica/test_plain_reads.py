"""Reads from the middle of a log, done in one go: they give what a read by way of the partition gives, or nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.common.errors import ApiError
from barnabas.common.identifiers import ZERO_UUID
from barnabas.log.fetch_isolation import FetchIsolation
from barnabas.log.unified_log import LogStartOffsetIncrementReason
from barnabas.network.send import FileRegion
from barnabas.protocol.messages.fetch import FetchPartition
from barnabas.replica import log_reads
from barnabas.replica.fetch_session import TopicIdPartition
from barnabas.replica.plain_reads import skip_known
from barnabas.replica.replica_quota import UNBOUNDED_QUOTA
from barnabas.replica.results import ClientMetadata, FetchParams
from log_fixtures import client_batch
from replica_fixtures import T0, T0_ID, ReplicaBox
from unit.metadata.samples import uid

plain_reads = pytest.importorskip("barnabas.replica._plain_reads", reason="not built")

CLIENT = ClientMetadata("", "c", "127.0.0.1", "User:ANONYMOUS", "PLAINTEXT")


@pytest.fixture
def box(tmp_path: Path) -> Iterator[ReplicaBox]:
    box = ReplicaBox([tmp_path / "one"])
    yield box
    box.kill()


def asked(offset: int, epoch: int = -1, last_fetched_epoch: int = -1, max_bytes: int = 1 << 20) -> FetchPartition:
    return FetchPartition(
        fetch_offset=offset,
        current_leader_epoch=epoch,
        last_fetched_epoch=last_fetched_epoch,
        partition_max_bytes=max_bytes,
    )


def params(fetch_only_leader: bool = True, max_bytes: int = 1 << 20) -> FetchParams:
    client = None if fetch_only_leader else CLIENT
    return FetchParams(-1, -1, 500, 1, max_bytes, FetchIsolation.HIGH_WATERMARK, client)


def shown(result: Any) -> Any:
    """With regions that can be compared, which tell one file from another by its number."""
    if result is None:
        return None
    records = result.info.records
    if isinstance(records, FileRegion):
        records = (int(records.fd), records.position, records.count)
    return result._replace(info=result.info._replace(records=records))


def read(partition: Any, request: FetchPartition, max_bytes: int, at_least_one: bool, fetch_only_leader: bool) -> Any:
    """The other way; None for an error."""
    try:
        return partition.fetch_records(params(fetch_only_leader), request, 0, max_bytes, at_least_one, False)
    except ApiError:
        return None


def step(box: ReplicaBox, chance: random.Random) -> None:
    """Something happens to the partition."""
    log = box.manager.partitions.online[T0].local_log_or_raise()
    match chance.randrange(9):
        case 0 | 1 | 2:
            box.produce({T0_ID: client_batch([chance.randbytes(chance.choice([5, 700, 9_000]))] * 3)}, acks=1)
        case 3 | 4:
            for _ in range(20):
                box.produce({T0_ID: client_batch([b"v" * chance.randrange(400)])}, acks=1)
        case 5:
            log.roll()
        case 6:
            offset = chance.randint(log.log_start_offset, log.high_watermark)
            log.maybe_increment_log_start_offset(offset, LogStartOffsetIncrementReason.CLIENT_RECORD_DELETION)
        case 7:
            box.change(leader=1)
        case _:
            log.update_high_watermark(chance.randint(log.log_start_offset, log.log_end_offset))


@pytest.mark.parametrize("seed", range(6))
def test_it_says_what_a_read_says_or_nothing(box: ReplicaBox, seed: int) -> None:
    chance = random.Random(seed)
    box.create_topic(leader_epoch=1, replicas=[1])
    partition = box.manager.partitions.online[T0]
    said = said_below_the_end = 0
    for _ in range(40):
        step(box, chance)
        log = partition.local_log_or_raise()
        for _ in range(8):
            offset = chance.randint(log.log_start_offset - 1, log.log_end_offset + 1)
            epoch = chance.choice([-1, partition.leader_epoch, partition.leader_epoch, 0, 99])
            request = asked(offset, epoch, chance.choice([-1, -1, -1, partition.leader_epoch]))
            max_bytes = chance.choice([0, 1, 100, 5_000, 1 << 20])
            at_least_one, only_leader = chance.random() < 0.5, chance.random() < 0.5
            # First the other way, which finds out where the high watermark is that was set to an offset.
            expected = read(partition, request, max_bytes, at_least_one, only_leader)
            found = plain_reads.plain_read(partition, request, max_bytes, at_least_one, only_leader)
            if found is not None:
                said += 1
                said_below_the_end += log.high_watermark < log.log_end_offset
                assert shown(found) == shown(expected)
                assert type(found) is type(expected)
    assert said > 30
    assert said_below_the_end


def test_what_is_said_of_reads_in_the_middle(box: ReplicaBox) -> None:
    """Or nothing in here would compare anything."""
    box.create_topic()
    for _ in range(50):
        box.produce({T0_ID: client_batch([b"v" * 500] * 3)}, acks=1)
    partition = box.manager.partitions.online[T0]
    for offset in range(150):
        assert plain_reads.plain_read(partition, asked(offset), 10_000, False, True) is not None
    for offset in (-1, 150, 151):
        assert plain_reads.plain_read(partition, asked(offset), 10_000, False, True) is None


@pytest.mark.parametrize("high_watermark", range(13))
def test_nothing_is_said_of_what_is_behind_the_high_watermark(box: ReplicaBox, high_watermark: int) -> None:
    """In its segment, and in those behind that."""
    box.create_topic()
    log = box.manager.partitions.online[T0].local_log_or_raise()
    for number in range(12):
        if number % 4 == 0:
            log.roll()
        box.produce({T0_ID: client_batch([b"v"])}, acks=1)
    partition = box.manager.partitions.online[T0]
    log.update_high_watermark(high_watermark)
    log.fetch_offset_snapshot()  # finds out where that is
    for offset in range(13):
        found = plain_reads.plain_read(partition, asked(offset), 10_000, True, True)
        if offset < high_watermark:
            assert shown(found) == shown(read(partition, asked(offset), 10_000, True, True))
            last_in_segment = min(offset - offset % 4 + 4, high_watermark)
            assert found.info.records.count == (last_in_segment - offset) * log.size // 12
        else:
            assert found is None


@pytest.mark.parametrize("seed", range(4))
def test_batches_that_the_index_points_to_are_found_and_those_in_between(box: ReplicaBox, seed: int) -> None:
    chance = random.Random(seed)
    box.create_topic()
    for _ in range(60):
        size = chance.choice([10, 100, 1_500, 9_000, 40_000])
        box.produce({T0_ID: client_batch([b"v" * size] * chance.randrange(1, 4))}, acks=1)
    partition = box.manager.partitions.online[T0]
    for offset in range(partition.local_log_or_raise().log_end_offset):
        found = plain_reads.plain_read(partition, asked(offset), 10_000, True, True)
        assert shown(found) == shown(read(partition, asked(offset), 10_000, True, True)) is not None


def test_what_needs_more_than_a_look_is_left_alone(box: ReplicaBox, monkeypatch: pytest.MonkeyPatch) -> None:
    box.create_topic()
    box.produce()
    box.produce()
    partition = box.manager.partitions.online[T0]
    log = partition.local_log_or_raise()
    marks, local_log = log.watermarks, log.watermarks._local_log

    def found() -> Any:
        return plain_reads.plain_read(partition, asked(0), 10_000, True, True)

    assert found() is not None
    with monkeypatch.context() as patch:
        patch.setattr(marks, "_first_unstable_offset", log.log_end_offset_metadata)
        assert found() is None
    high_watermark = marks._high_watermark
    marks._high_watermark = high_watermark._replace(segment_base_offset=-1, relative_position_in_segment=-1)
    assert found() is None
    marks._high_watermark = high_watermark
    records = local_log.segments.active.records
    damaged = bytearray(records.read_bytes(0, 61))
    damaged[16] = 1
    handle, records._handle = records._handle, None
    assert found() is None
    records._handle = handle
    assert found() is not None
    records.path.write_bytes(damaged)
    assert found() is None
    local_log.guard.channel.maybe_add_offline_log_dir(Path("/elsewhere"), "test")
    assert found() is None


@pytest.mark.parametrize("seed", range(4))
def test_a_fetch_of_many_partitions_gets_the_same(box: ReplicaBox, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chance = random.Random(seed)
    box.create_topic(partitions=5)
    names = [TopicIdPartition(T0_ID.topic_id, "topic", number) for number in range(6)]
    for name in names[:4]:
        for _ in range(chance.randrange(1, 12)):
            box.produce({name: client_batch([b"v" * 900] * 3)}, acks=1)
    names += [TopicIdPartition(uid(99), "topic", 0), TopicIdPartition(ZERO_UUID, "topic", 1)]
    reads = box.manager._fetches._reads
    for _ in range(30):
        chance.shuffle(names)
        requests = [
            (name, asked(chance.choice([0, 0, 1, 4, 9]), max_bytes=chance.choice([0, 3_000, 9_000]))) for name in names
        ]
        limit = chance.choice([0, 2_000, 5_000, 20_000])
        got = []
        for way in (plain_reads.read_plain, skip_known):
            monkeypatch.setattr(log_reads, "read_plain", way)
            results = reads.read_from_log(params(max_bytes=limit), requests, UNBOUNDED_QUOTA, False)
            got.append([(name, shown(result)) for name, result in results])
        assert got[0] == got[1]
        assert [name for name, _ in got[0]] == names
