"""The cleaner beside Apache Kafka's own: both make the same of a log, and of a log that the other has cleaned."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.log.unified_log import UnifiedLog
from log_fixtures import LogBox
from oracles.java import OracleUnavailableError
from oracles.log_cleaning import LogCleaningOracle
from unit.log.cleaner.cleaner_samples import (
    DELETE_RETENTION_MS,
    RandomWriter,
    batches_in,
    compacted,
    contents,
    described,
    new_cleaner,
    put_as_replica,
    to_clean,
)

pytestmark = pytest.mark.java

SEGMENT_BYTES = 1 << 16
CONFIG = compacted(segment_bytes=SEGMENT_BYTES)
KAFKA_CONFIG = {
    "cleanup.policy": "compact",
    "segment.index.bytes": CONFIG.segment_index_bytes,
    "index.interval.bytes": CONFIG.index_interval_bytes,
    "delete.retention.ms": DELETE_RETENTION_MS,
    "internal.segment.bytes": SEGMENT_BYTES,
}


@pytest.fixture(scope="module")
def kafka() -> Iterator[LogCleaningOracle]:
    try:
        oracle = LogCleaningOracle()
    except OracleUnavailableError as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(f"the Java oracle is not available: {reason}")
        pytest.skip(f"the Java oracle is not available: {reason}")
    with oracle:
        yield oracle


def described_log(log: UnifiedLog) -> list[Any]:
    return [described(batch) for batch in batches_in(log)]


def aborted_in(log: UnifiedLog) -> list[Any]:
    return [
        [txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset]
        for segment in log.segments
        for txn in segment.txn_index.all_aborted_txns()
    ]


def producers_of(log: UnifiedLog) -> list[list[int]]:
    return sorted([one.producer_id, one.producer_epoch, one.last_sequence] for one in log.producers.active())


@pytest.mark.parametrize("seed", range(12))
def test_both_leave_the_same(kafka: LogCleaningOracle, tmp_path: Path, seed: int) -> None:
    """Four rounds with writes in between. After each one we go on with Kafka's directory and Kafka with ours."""
    chance = random.Random(seed)
    ours, theirs = tmp_path / "a" / "topic-0", tmp_path / "b" / "topic-0"
    box = LogBox(ours.parent)
    log = box.open(CONFIG)
    writer = RandomWriter(log, box.clock, chance)
    first_dirty = 0
    horizons = empty = 0
    for turn in range(4):
        writer.write(40)
        writer.finish()
        log.close()
        shutil.rmtree(theirs.parent, ignore_errors=True)
        shutil.copytree(ours.parent, theirs.parent)
        now = box.clock.milliseconds()
        io_buffer_size = chance.choice((700, 1 << 15))

        log = box.open(CONFIG)
        cleanable = to_clean(log, first_dirty)
        end, stats = new_cleaner(box.clock, io_buffer_size=io_buffer_size).clean(cleanable)
        answer = kafka.ask_about(
            "clean",
            theirs,
            KAFKA_CONFIG,
            now,
            firstDirty=first_dirty,
            uncleanable=log.log_end_offset,
            memory=1 << 18,
            ioBuffer=io_buffer_size,
        )
        assert answer["end"] == end
        assert answer["firstUncleanable"] == cleanable.first_uncleanable_offset
        assert (answer["cleanBytes"], answer["cleanableBytes"]) == (cleanable.clean_bytes, cleanable.cleanable_bytes)
        assert answer["messagesWritten"] == stats.messages_written
        assert answer["segments"] == list(log.segments.base_offsets)
        assert stats.messages_written < stats.messages_read
        log.close()
        read = kafka.ask_about("read", ours, KAFKA_CONFIG, now)

        box.restart_process()
        log = box.open(CONFIG)
        their_log = LogBox(theirs.parent, box.clock).open(CONFIG)
        assert described_log(log) == described_log(their_log)
        assert aborted_in(log) == aborted_in(their_log)
        assert (read["batches"], read["end"]) == (len(batches_in(log)), log.log_end_offset)
        assert sorted(read["producers"]) == producers_of(log) == producers_of(their_log)
        horizons += sum(batch.delete_horizon_ms is not None for batch in batches_in(log))
        empty += sum(batch.record_count == 0 for batch in batches_in(log))

        log.close()
        their_log.close()
        if turn % 2 == 0:
            ours, theirs = theirs, ours
        box = LogBox(ours.parent, box.clock)
        box.clock.advance(chance.choice((0, DELETE_RETENTION_MS // 2, DELETE_RETENTION_MS + 1)))
        log = box.open(CONFIG)
        log.watermarks.update_high_watermark(log.log_end_offset)
        writer.log = log
        first_dirty = end
    assert horizons
    assert empty
    log.close()


@pytest.mark.parametrize("keys", [2, 5, 9])
def test_both_stop_where_the_map_is_full(kafka: LogCleaningOracle, tmp_path: Path, keys: int) -> None:
    """Which records stay is the same. (Only the delete horizons differ, of batches behind the end of the map.)"""
    ours, theirs = tmp_path / "a" / "topic-0", tmp_path / "b" / "topic-0"
    box = LogBox(ours.parent)
    log = box.open(CONFIG)
    writer = RandomWriter(log, box.clock, random.Random(keys), keys=30)
    writer.write(60)
    writer.finish()
    log.close()
    shutil.copytree(ours.parent, theirs.parent)
    first_dirty = 0
    for _ in range(3):
        log = box.open(CONFIG)
        end, _ = new_cleaner(box.clock, keys=keys).clean(to_clean(log, first_dirty))
        answer = kafka.ask_about(
            "clean",
            theirs,
            KAFKA_CONFIG,
            box.clock.milliseconds(),
            firstDirty=first_dirty,
            uncleanable=log.log_end_offset,
            memory=24 * round((keys + 0.5) / 0.9),
            ioBuffer=1 << 15,
        )
        assert answer["end"] == end
        assert end < log.log_end_offset
        their_log = LogBox(theirs.parent, box.clock).open(CONFIG)
        assert contents(log) == contents(their_log)
        their_log.close()
        log.close()
        first_dirty = end


def test_both_drop_records_without_keys(kafka: LogCleaningOracle, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "a" / "topic-0", tmp_path / "b" / "topic-0"
    box = LogBox(ours.parent)
    log = box.open(CONFIG)
    put_as_replica(log, (None, b"1"), (b"k", b"2"), (None, b"3"))
    put_as_replica(log, (None, b"4"))
    put_as_replica(log, (b"l", b"5"))
    log.roll()
    log.close()
    shutil.copytree(ours.parent, theirs.parent)
    log = box.open(CONFIG)
    _, stats = new_cleaner(box.clock).clean(to_clean(log))
    arguments = {"firstDirty": 0, "uncleanable": log.log_end_offset, "memory": 1 << 16, "ioBuffer": 1 << 15}
    answer = kafka.ask_about("clean", theirs, KAFKA_CONFIG, box.clock.milliseconds(), **arguments)
    their_log = LogBox(theirs.parent, box.clock).open(CONFIG)
    assert contents(log) == contents(their_log) == [(1, b"k", b"2"), (4, b"l", b"5")]
    assert stats.invalid_messages_read == answer["invalidMessages"] == 3
    log.close()
    their_log.close()
