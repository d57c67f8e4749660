"""Slow log directories: when one is taken for slow, when for quick again, and the lanes for its work."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.waiting import until

from barnabas.common.clock import MockClock
from barnabas.log.dirs.log_dir_pace import (
    ASIDE_FACTOR,
    LANE_IDLE_MS,
    LANE_THREADS,
    LOG_INTERVAL_NS,
    QUICK_WRITES,
    SLOW_WRITE_NS,
    STALLED_SYNC_NS,
    SURELY_SLOW_NS,
    Lane,
    LogDirPace,
    LogDirPaces,
    run_delay_ns,
)

WAIT_S = 60
MS = 1_000_000
SLOW_NS = 50 * MS
QUICK_NS = MS


@pytest.fixture
def clock() -> MockClock:
    return MockClock()


@pytest.fixture
def paces(clock: MockClock) -> Iterator[LogDirPaces]:
    paces = LogDirPaces(clock, run_delay=lambda: 0)
    yield paces
    paces.close()


@pytest.fixture
def pace(paces: LogDirPaces) -> LogDirPace:
    return paces.of(Path("/disk2"))


def is_slow(pace: LogDirPace) -> bool:
    """As a call, which a type checker does not take to be what it was before."""
    return pace.is_slow


def write_quickly(pace: LogDirPace, times: int = QUICK_WRITES) -> None:
    for _ in range(times):
        pace.wrote(QUICK_NS)


def recover(pace: LogDirPace, clock: MockClock, slow_ns: int = SLOW_NS) -> None:
    clock.advance(slow_ns * ASIDE_FACTOR / MS)
    write_quickly(pace)
    assert not is_slow(pace)


class TestPace:
    def test_quick_writes_need_no_attention(self, pace: LogDirPace, paces: LogDirPaces) -> None:
        pace.wrote(SLOW_WRITE_NS)
        assert not is_slow(pace)
        assert not pace.is_aside()
        assert not paces.attentive

    def test_a_slow_write_sets_its_directory_aside_and_no_other(self, pace: LogDirPace, paces: LogDirPaces) -> None:
        pace.wrote(SLOW_WRITE_NS + 1)
        assert is_slow(pace)
        assert pace.is_aside()
        assert paces.attentive
        assert not paces.of(Path("/disk1")).is_aside()

    def test_is_quick_again_after_time_and_quick_writes(
        self, pace: LogDirPace, paces: LogDirPaces, clock: MockClock
    ) -> None:
        pace.wrote(SLOW_NS)
        write_quickly(pace, 100)
        assert is_slow(pace), "too early"
        clock.advance(SLOW_NS * ASIDE_FACTOR / MS)
        assert is_slow(pace), "nobody has tried"
        pace.wrote(QUICK_NS)
        assert not is_slow(pace)
        assert not paces.attentive

    def test_a_slow_write_meanwhile_starts_over(self, pace: LogDirPace, clock: MockClock) -> None:
        pace.wrote(SLOW_NS)
        clock.advance(SLOW_NS * ASIDE_FACTOR / MS)
        write_quickly(pace, QUICK_WRITES - 1)
        pace.wrote(SLOW_NS)
        write_quickly(pace)
        assert is_slow(pace)
        clock.advance(SLOW_NS * ASIDE_FACTOR / MS)
        pace.wrote(QUICK_NS)
        assert not is_slow(pace)

    def test_a_long_write_sets_aside_for_longer_but_not_for_ever(self, pace: LogDirPace, clock: MockClock) -> None:
        pace.wrote(3_600_000 * MS)
        clock.advance(59_999)
        write_quickly(pace)
        assert is_slow(pace)
        clock.advance(1)
        pace.wrote(QUICK_NS)
        assert not is_slow(pace)

    @pytest.mark.parametrize(
        ("delays_ms", "slow"),
        [
            ([1000, 1000 + 25], False),
            ([1000, 1000 + 24], True),
            ([1000, 1500, 1501], True),
            ([25], False),
            ([None], True),
        ],
        ids=["loaded", "disk", "each its own", "first", "unknown"],
    )
    def test_a_thread_that_waits_for_a_processor_is_not_the_disks_fault(
        self, clock: MockClock, delays_ms: list[int | None], slow: bool
    ) -> None:
        delays = iter(delays_ms)

        def delay_ns() -> int | None:
            delay_ms = next(delays)
            return None if delay_ms is None else delay_ms * MS

        pace = LogDirPaces(clock, run_delay=delay_ns).of(Path("/disk2"))
        for _ in delays_ms:
            assert not is_slow(pace)
            pace.wrote(SLOW_NS)
        assert is_slow(pace) is slow

    def test_nobody_waits_so_long_for_a_processor(self, clock: MockClock) -> None:
        pace = LogDirPaces(clock, run_delay=lambda: 1 << 60).of(Path("/disk2"))
        pace.wrote(SURELY_SLOW_NS - 1)
        assert not is_slow(pace)
        pace.wrote(SURELY_SLOW_NS)
        assert is_slow(pace)

    def test_run_delay_of_this_thread(self) -> None:
        delay = run_delay_ns()
        assert delay is None or delay >= 0

    def test_a_sync_in_progress_is_looked_at(self, pace: LogDirPace, paces: LogDirPaces, clock: MockClock) -> None:
        with pace.syncing():
            assert paces.attentive
            clock.advance(STALLED_SYNC_NS / MS)
            assert not pace.is_aside(), "disks that are all right may take that long"
            clock.advance(1)
            assert pace.is_aside()
            write_quickly(pace)
            assert pace.is_aside(), "it has not come back yet"
        assert is_slow(pace)
        pace.wrote(QUICK_NS)
        assert not is_slow(pace), "nobody has waited, so it need not stay aside"
        assert not paces.attentive

    def test_syncs_that_end_in_another_order(self, pace: LogDirPace, paces: LogDirPaces, clock: MockClock) -> None:
        first, second = pace.syncing(), pace.syncing()
        first.__enter__()
        clock.advance(STALLED_SYNC_NS / MS)
        second.__enter__()
        first.__exit__(None, None, None)
        clock.advance(1)
        assert not pace.is_aside()
        second.__exit__(None, None, None)
        assert not paces.attentive

    def test_a_log_that_syncs_by_count_needs_attention_for_good(self, paces: LogDirPaces) -> None:
        for _ in range(2):
            paces.attend_syncs_by_count()
        assert paces.attentive

    def test_a_directory_that_is_offline_is_not_slow(self, pace: LogDirPace, paces: LogDirPaces) -> None:
        for _ in range(2):
            pace.forget()
            assert not paces.attentive
            pace.wrote(SLOW_NS)
        pace.forget()
        assert not paces.attentive

    def test_expected_syncs_are_counted(self, pace: LogDirPace) -> None:
        for _ in range(2):
            pace.expect_sync("t-0")
        pace.sync_done("t-0")
        assert pace.expects_sync("t-0")
        assert not pace.expects_sync("t-1")
        pace.sync_done("t-0")
        assert not pace.expects_sync("t-0")


class TestLogLines:
    def lines(self, caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
        return [(record.levelno, record.getMessage()) for record in caplog.records]

    def test_one_for_each_end_of_a_slow_time(
        self, pace: LogDirPace, clock: MockClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        for _ in range(3):
            pace.wrote(2000 * MS)
        clock.advance(60_000)
        write_quickly(pace)
        (level, slow), (_, quick) = self.lines(caplog)
        assert level == logging.WARNING
        assert slow.startswith("Log directory /disk2 is slow: a write took 2000 ms.")
        assert quick == "Log directory /disk2 is quick again after 60000 ms"

    def test_no_more_than_one_a_minute(
        self, pace: LogDirPace, clock: MockClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        for _ in range(5):
            pace.wrote(SLOW_NS)
            recover(pace, clock)
        assert [level for level, _ in self.lines(caplog)] == [logging.INFO] * 2, "one slow, one quick"
        clock.advance(LOG_INTERVAL_NS / MS)
        pace.wrote(SLOW_NS)
        assert "slow 5 times since this was last logged" in self.lines(caplog)[-1][1]


class Work:
    """Tasks of a lane that wait until the test lets them go."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self.done: list[int] = []
        self.threads: list[str] = []
        self.started = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)

    def add(self, number: int) -> None:
        def task() -> None:
            self.threads.append(threading.current_thread().name)
            self.started.release()
            assert self.gate.acquire(timeout=WAIT_S)
            self.done.append(number)

        self._lane.submit(task)


@pytest.mark.mechanism("N22")
class TestLane:
    def test_threads_are_made_on_demand_and_end_when_idle(self, pace: LogDirPace, clock: MockClock) -> None:
        lane = pace.appends
        work = Work(lane)
        assert lane.threads == 0
        for number in range(LANE_THREADS + 3):
            work.add(number)
        for _ in range(LANE_THREADS):
            assert work.started.acquire(timeout=WAIT_S)
        assert lane.queued == 3
        assert sorted(work.threads) == [f"slow-log-dir-append-disk2-{number}" for number in range(LANE_THREADS)]
        assert all(
            thread.daemon for thread in threading.enumerate() if thread.name.startswith("slow-log-dir-append-disk2-")
        )
        work.gate.release(LANE_THREADS + 3)
        until(lambda: len(work.done) == LANE_THREADS + 3, "all done", WAIT_S)

        def all_gone() -> bool:
            clock.advance(LANE_IDLE_MS)  # again, for those that did not wait yet
            return lane.threads == 0

        until(all_gone, "idle threads have ended", WAIT_S)
        work.add(0)
        assert work.started.acquire(timeout=WAIT_S), "and another one is made"
        work.gate.release()

    def test_tasks_begin_in_order(self, pace: LogDirPace, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("barnabas.log.dirs.log_dir_pace.LANE_THREADS", 1)
        work = Work(pace.appends)
        for number in range(20):
            work.add(number)
        work.gate.release(20)
        until(lambda: len(work.done) == 20, "all done", WAIT_S)
        assert work.done == list(range(20))

    def test_an_idle_thread_is_used_again(self, pace: LogDirPace) -> None:
        lane = pace.appends
        for _ in range(5):
            done = threading.Event()
            lane.submit(done.set)
            assert done.wait(WAIT_S)
            until(lambda: lane._idle == 1, "idle", WAIT_S)
        assert lane.threads == 1

    def test_coordinators_have_a_lane_of_their_own(self, pace: LogDirPace) -> None:
        records, events = Work(pace.appends), Work(pace.coordination)
        for number in range(LANE_THREADS + 1):
            records.add(number)
        events.add(0)
        assert events.started.acquire(timeout=WAIT_S)
        assert events.threads == ["slow-log-dir-coordinator-disk2-0"]
        records.gate.release(LANE_THREADS + 1)
        events.gate.release()

    def test_a_task_that_fails_takes_nobody_with_it(self, pace: LogDirPace, caplog: pytest.LogCaptureFixture) -> None:
        done = threading.Event()
        for task in (lambda: 1 // 0, done.set):
            pace.appends.submit(task)  # type: ignore[arg-type]
        assert done.wait(WAIT_S)
        until(lambda: "A task of slow-log-dir-append-disk2 failed" in caplog.text, "logged", WAIT_S)

    def test_what_runs_in_a_lane_knows_that(self, pace: LogDirPace, paces: LogDirPaces) -> None:
        seen: queue.Queue[bool] = queue.Queue()
        pace.appends.submit(lambda: seen.put(paces.on_lane))
        assert seen.get(timeout=WAIT_S)
        assert not paces.on_lane

    def test_bytes_are_bounded(self, pace: LogDirPace, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("barnabas.log.dirs.log_dir_pace.LANE_BYTES", 10)
        lane, go_on = pace.appends, threading.Event()
        done: list[int] = []

        def submit(size: int) -> bool:
            def task() -> None:
                assert go_on.wait(WAIT_S)
                done.append(size)

            return lane.submit(task, size)

        assert [submit(size) for size in (6, 5, 4, 1, 0)] == [True, False, True, False, True]
        assert lane.held_bytes == 10
        go_on.set()
        until(lambda: len(done) == 3 and lane.held_bytes == 0, "all done", WAIT_S)
        assert submit(11), "one that is too large is accepted if it is alone"
        until(lambda: len(done) == 4, "done", WAIT_S)

    def test_closing_waits_for_what_is_in_the_lane(self, pace: LogDirPace, paces: LogDirPaces) -> None:
        work = Work(pace.appends)
        for number in range(LANE_THREADS + 3):
            work.add(number)
        work.gate.release(LANE_THREADS + 3)
        paces.close()
        assert len(work.done) == LANE_THREADS + 3
        assert pace.appends.threads == 0
        ran_here: list[threading.Thread] = []
        pace.appends.submit(lambda: ran_here.append(threading.current_thread()))
        assert ran_here == [threading.current_thread()]

    def test_closing_does_not_wait_for_a_disk_for_ever(
        self, pace: LogDirPace, paces: LogDirPaces, caplog: pytest.LogCaptureFixture
    ) -> None:
        work = Work(pace.appends)
        work.add(0)
        assert work.started.acquire(timeout=WAIT_S)
        paces.close(timeout_ms=0)
        assert "is not waited for" in caplog.text
        work.gate.release()
