"""Segments beside Apache Kafka's own classes: either reads what the other wrote, and both write the same bytes."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.log.segment.log_segment import LogSegment
from barnabas.protocol.internal.storage import AbortedTxn
from barnabas.records.batch import CompressionType, RecordBatch, TimestampType
from oracles.java import OracleUnavailableError
from oracles.log_files import LogFilesOracle
from segment_fixtures import NOW, Config, append, batch_of, open_segment

pytestmark = pytest.mark.java

BASE = 4_000_000_000
CONFIG = Config(segment_index_bytes=1 << 16, index_interval_bytes=512)
ASK: dict[str, Any] = {"interval": CONFIG.index_interval_bytes, "index_bytes": CONFIG.segment_index_bytes}


@pytest.fixture(scope="module")
def kafka() -> Iterator[LogFilesOracle]:
    try:
        oracle = LogFilesOracle()
    except OracleUnavailableError as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(f"the Java oracle is not available: {reason}")
        pytest.skip(f"the Java oracle is not available: {reason}")
    with oracle:
        yield oracle


def random_batches(seed: int, count: int) -> list[bytes]:
    """All codecs, both kinds of timestamps and none at all, gaps, sizes from one record to more than the interval."""
    chance = random.Random(seed)
    batches: list[bytes] = []
    offset, now = BASE + chance.randrange(3), NOW
    for _ in range(count):
        now += chance.randrange(-300, 500)
        times = [now + chance.randrange(-50, 50) for _ in range(chance.choice([1, 1, 2, 5, 20]))]
        options: dict[str, Any] = {"compression": chance.choice(list(CompressionType))}
        if chance.random() < 0.2:
            options |= {"timestamp_type": TimestampType.LOG_APPEND_TIME, "log_append_time": now + 60}
        elif chance.random() < 0.1:
            times = [-1] * len(times)
        epoch = -1 if chance.random() < 0.1 else len(batches) // 10
        value = chance.randbytes(chance.choice([0, 10, 100, 700]))
        batches.append(batch_of(offset, times, value=value, partition_leader_epoch=epoch, **options))
        offset = RecordBatch(batches[-1]).next_offset + chance.choice([0, 0, 0, 1, 7])
    return batches


def contents(segment: LogSegment) -> dict[str, bytes]:
    return {path.suffix: path.read_bytes() for path in segment.paths if path.exists()}


def with_aborted(segment: LogSegment) -> list[list[int]]:
    """Transactions that ended somewhere in the segment."""
    rows = [
        [7, BASE - 5, BASE + 10, BASE + 8],
        [8, BASE + 8, BASE + 30, BASE + 31],
        [2**40, BASE + 40, BASE + 41, BASE],
    ]
    for producer_id, first, last, stable in rows:
        segment.append_aborted_txn(
            AbortedTxn(producer_id=producer_id, first_offset=first, last_offset=last, last_stable_offset=stable)
        )
    return rows


@pytest.mark.parametrize("seed", range(4))
def test_kafka_finds_in_our_files_what_we_find(kafka: LogFilesOracle, tmp_path: Path, seed: int) -> None:
    batches = random_batches(seed, 120)
    segment = open_segment(tmp_path, BASE, CONFIG)
    for batch in batches:
        append(segment, batch)
    rows = with_aborted(segment)
    segment.close()
    before = contents(segment)
    segment = open_segment(tmp_path, BASE, CONFIG)
    end = segment.read_next_offset()
    chance = random.Random(seed)
    offsets = [BASE, *(chance.randrange(BASE - 2, end + 3) for _ in range(60)), end - 1, end]
    times = [(chance.randrange(NOW - 5000, NOW + 20_000), chance.choice([0, *offsets])) for _ in range(80)]
    timestamps = [(-5, 0), *times]
    ranges = [[BASE + n, BASE + n + size] for n in (0, 5, 10, 11, 30, 31, 41, 42) for size in (1, 8, 25)]
    for max_size, min_one in ((100, True), (3000, False), (10, False)):
        answer = kafka.ask_about(
            "describe",
            tmp_path,
            BASE,
            offsets=offsets,
            timestamps=timestamps,
            ranges=ranges,
            maxSize=max_size,
            minOneMessage=min_one,
            **ASK,
        )
        offset_index, time_index = segment.offset_index, segment.time_index
        assert offset_index.entries > 20
        assert answer["offsetIndex"] == [list(offset_index.entry(n)) for n in range(offset_index.entries)]
        assert answer["timeIndex"] == [list(time_index.entry(n)) for n in range(time_index.entries)]
        assert answer["aborted"] == rows
        assert answer["nextOffset"] == end
        assert answer["size"] == segment.size
        assert (answer["maxTimestamp"], answer["offsetOfMaxTimestamp"]) == segment.max_timestamp_and_offset
        reads = [segment.read(offset, max_size, segment.size, min_one) for offset in offsets]
        assert answer["reads"] == [
            read and [*read.fetch_offset_metadata, len(read.records), read.first_entry_incomplete] for read in reads
        ]
        starts = [offset_index.lookup(offset) for offset in offsets]
        assert answer["upperBounds"] == [segment.fetch_upper_bound_offset(start, max_size) for start in starts]
        found = [segment.find_offset_by_timestamp(*wanted) for wanted in timestamps]
        assert sum(record is not None for record in found) > 10
        assert answer["byTimestamp"] == [
            record and [record.timestamp, record.offset, -1 if record.leader_epoch is None else record.leader_epoch]
            for record in found
        ]
        collected = [segment.collect_aborted_txns(*wanted) for wanted in ranges]
        assert answer["collected"] == [
            [[txn.producer_id for txn in result.aborted_transactions], result.is_complete] for result in collected
        ]
    # Opening and closing it was all that Kafka did.
    assert contents(segment) == before


@pytest.mark.parametrize("together", [1, 2, 15])
def test_both_write_the_same_bytes(kafka: LogFilesOracle, tmp_path: Path, together: int) -> None:
    batches = random_batches(together, 150)
    groups = [batches[n : n + together] for n in range(0, len(batches), together)]
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    segment = open_segment(ours, BASE, CONFIG)
    for group in groups:
        append(segment, *group)
    rows = with_aborted(segment)
    segment.close()
    (tmp_path / "input").write_bytes(b"".join(batches))
    sizes = [sum(map(len, group)) for group in groups]
    kafka.ask_about("append", theirs, BASE, input=str(tmp_path / "input"), sizes=sizes, aborted=rows, **ASK)
    written = contents(open_segment(theirs, BASE, CONFIG))
    assert set(written) == {".log", ".index", ".timeindex", ".txnindex"}
    assert contents(segment) == written


@pytest.mark.parametrize("cut", [0, 1, 30, 61, 400, 2000])
def test_both_recover_the_same(kafka: LogFilesOracle, tmp_path: Path, cut: int) -> None:
    data = b"".join(random_batches(cut, 100))
    found = []
    for name in ("ours", "theirs"):
        directory = tmp_path / name
        directory.mkdir()
        segment = open_segment(directory, BASE, CONFIG)
        segment.records.append(data[: len(data) - cut])
        if name == "ours":
            epochs: list[list[int]] = []
            truncated = segment.recover(None, lambda epoch, offset: epochs.append([epoch, offset]))  # noqa: B023
            segment.close()
        else:
            segment.close()
            segment.offset_index_path.unlink()
            segment.time_index_path.unlink()
            answer = kafka.ask_about("recover", directory, BASE, **ASK)
            truncated, epochs = answer["truncated"], answer["epochs"]
        found.append((truncated, epochs, contents(segment)))
    assert found[0] == found[1]


@pytest.mark.parametrize("keep", [0, 1, 37, 99, 100])
def test_both_truncate_the_same(kafka: LogFilesOracle, tmp_path: Path, keep: int) -> None:
    batches = random_batches(keep, 100)
    offset = RecordBatch(batches[keep]).last_offset if keep < 100 else RecordBatch(batches[-1]).next_offset
    found = []
    for name in ("ours", "theirs"):
        directory = tmp_path / name
        directory.mkdir()
        segment = open_segment(directory, BASE, CONFIG)
        for batch in batches:
            append(segment, batch)
        with_aborted(segment)
        segment.close()
        if name == "ours":
            segment = open_segment(directory, BASE, CONFIG)
            truncated = segment.truncate_to(offset)
            segment.close()
        else:
            truncated = kafka.ask_about("truncate", directory, BASE, offset=offset, **ASK)["truncated"]
        found.append((truncated, contents(segment)))
    assert found[0] == found[1]
    assert len(found[0][1][".log"]) == sum(map(len, batches[:keep]))


def test_kafka_rebuilds_what_a_crash_of_ours_left(kafka: LogFilesOracle, tmp_path: Path) -> None:
    """Entries not yet written to the index files: what a killed broker leaves behind."""
    batches = random_batches(9, 60)
    segment = open_segment(tmp_path, BASE, CONFIG)
    for batch in batches:
        append(segment, batch)
    segment.close_handlers()
    assert segment.offset_index_path.stat().st_size == 0
    assert kafka.ask_about("recover", tmp_path, BASE, **ASK)["truncated"] == 0
    again = open_segment(tmp_path, BASE, CONFIG)
    assert again.read_next_offset() == RecordBatch(batches[-1]).next_offset
    again.sanity_check()
    again.offset_index.sanity_check()
    assert again.offset_index.entries > 10
