"""Reads of a partition: a naive walk over all batches gives the same, whatever happened to the log before."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from barnabas.common.errors import (
    ApiError,
    Errors,
    FencedLeaderEpochError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
)
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.fetch_isolation import FetchIsolation
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.log.unified_log import LogStartOffsetIncrementReason, UnifiedLog
from barnabas.network.reactor.send import FileRegion
from barnabas.protocol.messages.fetch import FetchPartition
from barnabas.records.control import ControlRecordType
from barnabas.replica.partition.partition import Partition
from barnabas.replica.results import ClientMetadata, FetchParams, FetchPartitionData
from log_fixtures import client_batch, marker
from replica_fixtures import T0, T0_ID, ReplicaBox

CLIENT = ClientMetadata("", "c", "127.0.0.1", "User:ANONYMOUS", "PLAINTEXT")
ISOLATIONS = list(FetchIsolation)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[ReplicaBox]:
    box = ReplicaBox([tmp_path / "one"])
    yield box
    box.kill()


def asked(offset: int, epoch: int = -1) -> FetchPartition:
    return FetchPartition(fetch_offset=offset, current_leader_epoch=epoch, partition_max_bytes=1 << 20)


def read(
    partition: Partition,
    request: FetchPartition,
    isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
    *,
    max_bytes: int = 10_000,
    at_least_one: bool = True,
    only_leader: bool = True,
) -> FetchPartitionData:
    params = FetchParams(-1, -1, 500, 1, 1 << 20, isolation, None if only_leader else CLIENT)
    return partition.fetch_records(params, request, 0, max_bytes, at_least_one, False)


def limit_of(log: UnifiedLog, isolation: FetchIsolation) -> int:
    return {
        FetchIsolation.LOG_END: log.log_end_offset,
        FetchIsolation.HIGH_WATERMARK: log.high_watermark,
        FetchIsolation.TXN_COMMITTED: log.last_stable_offset,
    }[isolation]


def expected(log: UnifiedLog, offset: int, limit: int, max_bytes: int, at_least_one: bool) -> bytes | None:
    """What a reader gets, found by going through every batch of the log; None if the offset is out of range."""
    if not log.log_start_offset <= offset <= log.log_end_offset:
        return None
    for segment in log.segments:
        whole = segment.records.path.read_bytes()
        start = end = first = None
        for batch in segment.records.batches():
            if batch.last_offset >= offset and start is None:
                start, first = batch.position, batch.size_in_bytes
            # A batch that the limit is inside of is not shown.
            if batch.last_offset < limit:
                end = batch.position + batch.size_in_bytes
        if start is None or first is None:
            continue
        if end is None or end <= start or offset >= limit:
            return b""
        size = max(max_bytes, first) if at_least_one else max_bytes
        return b"" if size < first else whole[start : min(end, start + size)]
    return b""


def content(data: FetchPartitionData) -> bytes:
    region = data.records
    if not isinstance(region, FileRegion):
        return bytes(region)
    with Path(f"/proc/self/fd/{int(region.fd)}").open("rb") as file:
        file.seek(region.position)
        return file.read(region.count)


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
            ends = [batch.last_offset + 1 for segment in log.segments for batch in segment.records.batches()]
            within = [end for end in ends if end >= log.log_start_offset]
            if within:
                log.watermarks.update_high_watermark(chance.choice(within))


@pytest.mark.parametrize("seed", range(6))
def test_a_read_gives_what_is_there(box: ReplicaBox, seed: int) -> None:
    chance = random.Random(seed)
    box.create_topic(leader_epoch=1, replicas=[1])
    partition = box.manager.partitions.online[T0]
    found = found_below_the_end = 0
    for _ in range(30):
        step(box, chance)
        log = partition.local_log_or_raise()
        for _ in range(6):
            offset = chance.randint(log.log_start_offset - 1, log.log_end_offset + 1)
            isolation = chance.choice(ISOLATIONS)
            max_bytes, at_least_one = chance.choice([0, 1, 100, 5_000, 1 << 20]), chance.random() < 0.5
            limit = limit_of(log, isolation)
            wanted = expected(log, offset, limit, max_bytes, at_least_one)
            ask = partial(read, partition, asked(offset), isolation, max_bytes=max_bytes, at_least_one=at_least_one)
            if wanted is None:
                with pytest.raises(OffsetOutOfRangeError):
                    ask()
                continue
            data = ask()
            assert content(data) == wanted
            assert data.fetch_offset_metadata.message_offset == offset
            offsets = (data.log_start_offset, data.high_watermark, data.last_stable_offset)
            assert offsets == (log.log_start_offset, log.high_watermark, log.last_stable_offset)
            assert (data.aborted_transactions is not None) == (isolation is FetchIsolation.TXN_COMMITTED)
            found += bool(wanted)
            found_below_the_end += bool(wanted) and limit < log.log_end_offset
    assert found > 20
    assert found_below_the_end


@pytest.mark.parametrize("high_watermark", range(13))
def test_nothing_behind_the_high_watermark_is_read(box: ReplicaBox, high_watermark: int) -> None:
    """In its segment, and in those behind it."""
    box.create_topic()
    partition = box.manager.partitions.online[T0]
    log = partition.local_log_or_raise()
    for number in range(12):
        if number % 4 == 0:
            log.roll()
        box.produce({T0_ID: client_batch([b"v"])}, acks=1)
    log.watermarks.update_high_watermark(high_watermark)
    for offset in range(13):
        data = read(partition, asked(offset))
        last_in_segment = min(offset - offset % 4 + 4, high_watermark)
        assert len(data.records) == max(last_in_segment - offset, 0) * log.size // 12


def test_the_leader_epoch_and_the_role_are_checked(box: ReplicaBox) -> None:
    box.create_topic(leader_epoch=3, replicas=[1, 2])
    partition = box.manager.partitions.online[T0]
    assert read(partition, asked(0, epoch=3)).error is Errors.NONE
    with pytest.raises(FencedLeaderEpochError):
        read(partition, asked(0, epoch=2))
    box.change(leader=2)
    with pytest.raises(NotLeaderOrFollowerError):
        read(partition, asked(0))
    assert read(partition, asked(0), only_leader=False).fetch_offset_metadata == LogOffsetMetadata(0, 0, 0)


def test_an_open_transaction_bounds_a_committed_read(box: ReplicaBox) -> None:
    box.create_topic()
    partition = box.manager.partitions.online[T0]
    log = partition.local_log_or_raise()
    batch = client_batch(producer_id=7, epoch=0, sequence=0, transactional=True)
    guard = log.producers.maybe_start_transaction_verification(7, 0, 0, supports_epoch_bump=False)
    partition.append_records_to_leader(batch, AppendOrigin.CLIENT, 1, guard, transaction_version=1)
    open_read = read(partition, asked(0), FetchIsolation.TXN_COMMITTED)
    assert (open_read.records, open_read.high_watermark, open_read.last_stable_offset) == (b"", 1, 0)
    assert read(partition, asked(0)).records
    abort = marker(ControlRecordType.ABORT, 7, 0)
    partition.append_records_to_leader(abort, AppendOrigin.COORDINATOR, 1, transaction_version=1)
    data = read(partition, asked(0), FetchIsolation.TXN_COMMITTED)
    assert (data.high_watermark, data.last_stable_offset) == (2, 2)
    assert data.records
    assert [txn.producer_id for txn in data.aborted_transactions or ()] == [7]


def test_a_failed_log_directory_is_not_read(box: ReplicaBox) -> None:
    box.create_topic()
    box.produce(acks=1)
    partition = box.manager.partitions.online[T0]
    log = partition.local_log_or_raise()
    channel = log.watermarks._local_log.guard.channel
    channel.maybe_add_offline_log_dir(Path("/elsewhere"), "test")
    assert read(partition, asked(0)).records
    channel.maybe_add_offline_log_dir(log.directory.parent, "test")
    with pytest.raises(ApiError, match="offline"):
        read(partition, asked(0))
