"""Compaction of random logs, with crashes: what a reader knows in the end does not change."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.common.clock import MockClock
from barnabas.log.cleaner import cleaner as cleaner_module
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.batch import RecordBatch
from log_fixtures import LogBox
from unit.log.cleaner.cleaner_samples import (
    DELETE_RETENTION_MS,
    RandomWriter,
    batches_in,
    clean,
    compacted,
    contents,
    described,
    latest_values,
    latest_values_of_read_committed_consumer,
    put,
    records_in,
)

CONFIG = compacted(segment_bytes=3000)
SLOW = settings(deadline=None, max_examples=25)


@contextmanager
def new_box() -> Iterator[LogBox]:
    with tempfile.TemporaryDirectory() as directory:
        yield LogBox(Path(directory))


def producers_of(log: UnifiedLog) -> list[tuple[int, int, int]]:
    return sorted((one.producer_id, one.producer_epoch, one.last_sequence) for one in log.producers.active())


@given(
    seed=st.integers(0, 2**32),
    rounds=st.lists(
        st.tuples(
            st.integers(5, 25),
            st.sampled_from([2, 5, 1000]),
            st.sampled_from([100, 1 << 16]),
            st.sampled_from([0, DELETE_RETENTION_MS + 1]),
        ),
        min_size=1,
        max_size=3,
    ),
)
@SLOW
def test_readers_know_the_same_in_the_end(seed: int, rounds: list[tuple[int, int, int, int]]) -> None:
    with new_box() as box:
        log = box.open(CONFIG)
        writer = RandomWriter(log, box.clock, random.Random(seed))
        clean_up_to = 0
        for batches, keys, io_buffer_size, wait_ms in rounds:
            writer.write(batches)
            writer.finish()
            known = latest_values(log)
            before = {record.offset: record for record in records_in(log)}
            end_offset, producers = log.log_end_offset, producers_of(log)
            clean_up_to, stats = clean(log, box.clock, clean_up_to, keys=keys, io_buffer_size=io_buffer_size)

            assert latest_values(log) == known
            assert latest_values_of_read_committed_consumer(log) == known
            left = records_in(log)
            offsets = [record.offset for record in left]
            assert offsets == sorted(set(offsets))
            for record in left:
                original = before[record.offset]
                assert (record.timestamp, record.key, record.value, record.headers) == (
                    original.timestamp,
                    original.key,
                    original.value,
                    original.headers,
                )
            if clean_up_to == end_offset:
                clean_keys = [record.key for record in left]
                assert len(clean_keys) == len(set(clean_keys))
            assert stats.messages_written <= stats.messages_read

            log.close()
            box.restart_process()
            log = box.open(CONFIG)
            assert (log.log_end_offset, log.log_start_offset) == (end_offset, 0)
            assert producers_of(log) == producers
            # Without the snapshots, the batches that are left have to be enough.
            shutil.copytree(log.directory, box.directory / "copy-0", ignore=shutil.ignore_patterns("*.snapshot"))
            copy = box.open(CONFIG, name="copy-0", had_clean_shutdown=False)
            assert producers_of(copy) == producers
            assert latest_values_of_read_committed_consumer(_with_high_watermark(copy)) == known
            copy.close_handlers()
            shutil.rmtree(box.directory / "copy-0")

            _with_high_watermark(log)
            writer.log = log
            box.clock.advance(wait_ms)
        log.close_handlers()


def _with_high_watermark(log: UnifiedLog) -> UnifiedLog:
    log.watermarks.update_high_watermark(log.log_end_offset)
    return log


def test_in_the_end_nothing_is_left_of_deleted_keys(tmp_path: Path) -> None:
    """Tombstones go when their time is over, and markers after their transactions."""
    box = LogBox(tmp_path)
    log = box.open(CONFIG)
    writer = RandomWriter(log, box.clock, random.Random(4))
    writer.write(120)
    writer.finish()
    known = latest_values(log)
    end = 0
    for turn in range(4):
        put(log, (b"other-%d" % turn, b"1"))
        log.roll()
        end, _ = clean(log, box.clock, end)
        known[b"other-%d" % turn] = b"1"
        assert latest_values(log) == known
        box.clock.advance(DELETE_RETENTION_MS + 1)
    assert sorted(key for _, key, _ in contents(log) if key is not None) == sorted(known)
    # The last thing of a producer stays, as long as the producer is not forgotten.
    kept = [batch for batch in batches_in(log) if batch.is_control_batch or not batch.record_count]
    data = {batch.producer_id for batch in batches_in(log) if batch.is_transactional and batch.record_count}
    assert len(kept) <= 4 + len(data) * 4
    log.close_handlers()


# Crashes


class CrashError(BaseException):
    """The process has ended."""


class Crash:
    """Ends the process before the n-th renaming or deleting of a file."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps > self.at:
            raise CrashError


def crash_before_step(monkeypatch: pytest.MonkeyPatch, number: int) -> Crash:
    crash = Crash(number)
    replace, unlink = Path.replace, Path.unlink

    def replace_or_crash(self: Path, target: Any) -> Path:
        crash.step()
        return replace(self, target)

    def unlink_or_crash(self: Path, missing_ok: bool = False) -> None:
        crash.step()
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "replace", replace_or_crash)
    monkeypatch.setattr(Path, "unlink", unlink_or_crash)
    # A process that is killed does not clean up.
    monkeypatch.setattr(cleaner_module, "_discard", lambda _: None)
    return crash


def described_all(log: UnifiedLog) -> list[Any]:
    return [described(batch) for batch in batches_in(log)]


@pytest.mark.parametrize("segment_bytes", [3000, 1 << 20])
def test_a_crash_at_any_moment_of_the_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment_bytes: int
) -> None:
    config = compacted(segment_bytes=segment_bytes)
    original = LogBox(tmp_path / "original")
    log = original.open(config)
    writer = RandomWriter(log, original.clock, random.Random(3))
    writer.write(24)
    writer.finish()
    known, records = latest_values(log), len(records_in(log))
    now = original.clock.milliseconds()
    end_offset, producers, before = log.log_end_offset, producers_of(log), described_all(log)
    log.close()

    outcomes = set()
    number = 0
    while True:
        box = LogBox(tmp_path / str(number), MockClock(now))
        shutil.copytree(original.directory, box.directory)
        log = box.open(config)
        crash = crash_before_step(monkeypatch, number)
        try:
            clean(log, box.clock)
        except CrashError:
            pass
        finally:
            monkeypatch.undo()
        finished = crash.steps <= number
        log.close_handlers()
        box.restart_process()
        log = _with_high_watermark(box.open(config, had_clean_shutdown=False))
        after = described_all(log)
        outcomes.add("before" if after == before else "after" if len(records_in(log)) < records else "between")
        assert latest_values(log) == known
        assert latest_values_of_read_committed_consumer(log) == known
        assert (log.log_end_offset, producers_of(log)) == (end_offset, producers)
        assert not [name for name in box.files() if name.endswith((".cleaned", ".swap", ".deleted"))]
        # It can be cleaned as if nothing had happened.
        clean(log, box.clock)
        assert latest_values(log) == known
        assert len(records_in(log)) < records
        log.close_handlers()
        shutil.rmtree(box.directory)
        if finished:
            break
        number += 1
    assert number > 12
    assert outcomes == {"before", "after"}


def test_what_is_described_is_all_of_a_batch() -> None:
    """The comparisons above are worth something only if they can fail."""
    with new_box() as box:
        log = box.open(CONFIG)
        put(log, (b"a", b"1"))
        (batch,) = batches_in(log)
        other = RecordBatch(bytearray(batch.view))
        other.set_partition_leader_epoch(5)
        assert described(batch) != described(other)
        log.close_handlers()
