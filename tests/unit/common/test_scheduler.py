"""The scheduler: when tasks run, on which threads, and what happens to them when things go wrong."""

from __future__ import annotations

import doctest
import logging
import threading
import weakref
from collections.abc import Iterator

import pytest

from barnabas.common import scheduler as scheduler_module
from barnabas.common.clock import MockClock, SystemClock
from barnabas.common.scheduler import KafkaScheduler, MockScheduler, Task
from barnabas.common.shutdownable_thread import FatalExitError

PATIENCE = 60
"""Seconds of real time after which a test gives up on a thread."""


@pytest.fixture
def clock() -> MockClock:
    return MockClock()


@pytest.fixture
def scheduler(clock: MockClock) -> Iterator[KafkaScheduler]:
    scheduler = KafkaScheduler(threads=3, clock=clock)
    yield scheduler
    scheduler.shutdown()


def each(*tasks: Task) -> Task:
    """One task after the other."""

    def run() -> None:
        for task in tasks:
            task()

    return run


def test_doctests() -> None:
    assert doctest.testmod(scheduler_module).failed == 0


class TestKafkaScheduler:
    def test_a_task_without_delay_runs_at_once_on_a_thread_of_the_pool(self, scheduler: KafkaScheduler) -> None:
        names: list[str] = []
        done = threading.Event()

        def task() -> None:
            names.append(threading.current_thread().name)
            assert threading.current_thread().daemon
            done.set()

        scheduler.schedule("task", task)
        assert done.wait(PATIENCE)
        assert names == ["kafka-scheduler-0"]

    def test_tasks_that_wait_share_a_thread(self, scheduler: KafkaScheduler) -> None:
        """Also those that come before the thread for the first of them has begun to run."""
        for number in range(20):
            scheduler.schedule(f"later-{number}", lambda: None, delay_ms=1_000)
        assert len(scheduler._threads) == 1

    def test_a_delayed_task_waits_for_its_time(self, scheduler: KafkaScheduler, clock: MockClock) -> None:
        done = threading.Event()
        scheduler.schedule("later", done.set, delay_ms=100)
        assert clock.await_waiters()
        clock.advance(99)
        assert clock.await_waiters()
        assert not done.is_set()
        clock.advance(1)
        assert done.wait(PATIENCE)

    def test_an_earlier_task_overtakes(self, scheduler: KafkaScheduler, clock: MockClock) -> None:
        order: list[str] = []
        done = threading.Event()
        scheduler.schedule("late", each(lambda: order.append("late"), done.set), delay_ms=50)
        assert clock.await_waiters()
        early = threading.Event()
        scheduler.schedule("early", each(lambda: order.append("early"), early.set), delay_ms=10)
        clock.advance(10)
        assert early.wait(PATIENCE)
        clock.advance(40)
        assert done.wait(PATIENCE)
        assert order == ["early", "late"]

    def test_a_periodic_task_runs_again_and_again_until_cancelled(
        self, scheduler: KafkaScheduler, clock: MockClock
    ) -> None:
        ran = threading.Semaphore(0)
        task = scheduler.schedule("tick", ran.release, delay_ms=5, period_ms=20)
        for step in (5, 20, 20):
            assert clock.await_waiters()
            clock.advance(step)
            assert ran.acquire(timeout=PATIENCE)
        task.cancel()
        clock.advance(1000)
        marker = threading.Event()
        scheduler.schedule("marker", marker.set)
        assert marker.wait(PATIENCE)
        assert not ran.acquire(blocking=False)

    def test_a_frequent_task_does_not_wait_for_a_rare_one(self) -> None:
        """Nor do others: a task that is overdue at the head of the queue would hold up all that come after it."""
        waits_for_long = threading.Event()

        class Clock(SystemClock):
            def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:
                if timeout_ms is not None and timeout_ms > 1_000:
                    waits_for_long.set()
                return super().wait(condition, timeout_ms)

        scheduler = KafkaScheduler(threads=2, clock=Clock())
        runs = threading.Semaphore(0)
        busy = threading.Event()

        def often() -> None:
            if not busy.is_set():
                busy.set()
                # While this runs, the other thread goes to wait for the rare task.
                assert waits_for_long.wait(PATIENCE)
            runs.release()

        scheduler.schedule("often", often, period_ms=1)
        assert busy.wait(PATIENCE)
        scheduler.schedule("rare", lambda: None, delay_ms=3_600_000)
        for _ in range(3):
            assert runs.acquire(timeout=PATIENCE)
        scheduler.shutdown()

    def test_a_failing_periodic_task_is_reported_and_runs_again(
        self, scheduler: KafkaScheduler, clock: MockClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        ran = threading.Semaphore(0)

        def fail() -> None:
            ran.release()
            raise OSError("no space left")

        with caplog.at_level(logging.ERROR):
            scheduler.schedule("checkpoint", fail, period_ms=10)
            assert ran.acquire(timeout=PATIENCE)
            assert clock.await_waiters()
            clock.advance(10)
            assert ran.acquire(timeout=PATIENCE)
        assert "checkpoint failed" in caplog.text
        assert "no space left" in caplog.text

    def test_missed_ticks_are_left_out(self, scheduler: KafkaScheduler, clock: MockClock) -> None:
        ran = threading.Semaphore(0)
        scheduler.schedule("tick", ran.release, period_ms=10)
        assert ran.acquire(timeout=PATIENCE)
        assert clock.await_waiters()
        clock.advance(35)
        assert ran.acquire(timeout=PATIENCE)
        assert clock.await_waiters()
        assert not ran.acquire(blocking=False)
        clock.advance(5)  # 40 is the next multiple of 10
        assert ran.acquire(timeout=PATIENCE)

    def test_threads_are_started_as_needed_up_to_the_limit(self, scheduler: KafkaScheduler) -> None:
        started = threading.Semaphore(0)
        go_on = threading.Event()
        names: set[str] = set()

        def block() -> None:
            names.add(threading.current_thread().name)
            started.release()
            go_on.wait(PATIENCE)

        for _ in range(5):
            scheduler.schedule("block", block)
        for _ in range(3):
            assert started.acquire(timeout=PATIENCE)
        assert not started.acquire(blocking=False)
        assert names == {"kafka-scheduler-0", "kafka-scheduler-1", "kafka-scheduler-2"}
        assert scheduler.pending_tasks == 2
        go_on.set()
        for _ in range(2):
            assert started.acquire(timeout=PATIENCE)

    def test_no_thread_before_the_first_task(self, scheduler: KafkaScheduler) -> None:
        before = set(threading.enumerate())
        other = KafkaScheduler()
        assert set(threading.enumerate()) <= before
        other.shutdown()

    def test_a_blocked_task_does_not_hold_up_others(self, scheduler: KafkaScheduler, clock: MockClock) -> None:
        go_on = threading.Event()
        blocked = threading.Event()
        scheduler.schedule("block", each(blocked.set, lambda: go_on.wait(PATIENCE)))
        done = threading.Event()
        scheduler.schedule("later", done.set, delay_ms=10)
        assert blocked.wait(PATIENCE)
        assert clock.await_waiters()
        clock.advance(10)
        assert done.wait(PATIENCE)
        go_on.set()

    def test_shutdown_drops_what_waits_and_joins_what_runs(self, clock: MockClock) -> None:
        scheduler = KafkaScheduler(threads=2, clock=clock)
        running = threading.Event()
        finished = threading.Event()
        go_on = threading.Event()

        def work() -> None:
            running.set()
            go_on.wait(PATIENCE)
            finished.set()

        never = threading.Event()
        scheduler.schedule("work", work)
        scheduler.schedule("never", never.set, delay_ms=10)
        assert running.wait(PATIENCE)
        stopper = threading.Thread(target=scheduler.shutdown)
        stopper.start()
        go_on.set()
        stopper.join(PATIENCE)
        assert finished.is_set()
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("kafka-scheduler-")]
        clock.advance(10)
        assert not never.is_set()

    def test_after_shutdown_tasks_are_taken_and_not_run(self, clock: MockClock) -> None:
        scheduler = KafkaScheduler(clock=clock)
        scheduler.shutdown()
        task = scheduler.schedule("too late", pytest.fail)
        assert task.cancelled
        assert scheduler.pending_tasks == 0

    def test_a_task_may_shut_the_scheduler_down(self, clock: MockClock) -> None:
        scheduler = KafkaScheduler(clock=clock)
        done = threading.Event()
        scheduler.schedule("end", each(scheduler.shutdown, done.set))
        assert done.wait(PATIENCE)

    def test_a_fatal_error_ends_the_process(self, clock: MockClock) -> None:
        statuses: list[int] = []
        ended = threading.Event()

        def end(status: int) -> None:
            statuses.append(status)
            ended.set()

        scheduler = KafkaScheduler(clock=clock, exit_procedure=end)

        def fatal() -> None:
            raise FatalExitError(3, "all log directories have failed")

        scheduler.schedule("fatal", fatal)
        assert ended.wait(PATIENCE)
        assert statuses == [3]
        scheduler.shutdown()

    def test_resize_ends_surplus_threads(self, scheduler: KafkaScheduler, clock: MockClock) -> None:
        started = threading.Semaphore(0)
        go_on = threading.Event()
        for _ in range(3):
            scheduler.schedule("block", each(started.release, lambda: go_on.wait(PATIENCE)))
        for _ in range(3):
            assert started.acquire(timeout=PATIENCE)
        go_on.set()
        assert clock.await_waiters(3)
        scheduler.resize(1)
        threads = [thread for thread in threading.enumerate() if thread.name.startswith("kafka-scheduler-")]
        assert clock.await_waiters(1)
        for thread in threads:
            thread.join(0.2)
        assert sum(thread.is_alive() for thread in threads) == 1
        done = threading.Event()
        scheduler.schedule("still works", done.set)
        assert done.wait(PATIENCE)

    @pytest.mark.parametrize("period", [0, -2])
    def test_periods_that_cannot_be(self, scheduler: KafkaScheduler, period: int) -> None:
        with pytest.raises(ValueError, match="period"):
            scheduler.schedule("x", lambda: None, period_ms=period)

    def test_a_period_of_ages_is_no_problem(self, scheduler: KafkaScheduler, clock: MockClock) -> None:
        done = threading.Event()
        scheduler.schedule("never", pytest.fail, delay_ms=2**63 - 1, period_ms=2**63 - 1)
        scheduler.schedule("now", done.set)
        assert done.wait(PATIENCE)
        assert clock.await_waiters()
        clock.advance(3_600_000)
        assert clock.await_waiters()

    def test_a_cancelled_task_lets_go_of_its_work(self, scheduler: KafkaScheduler) -> None:
        class Log:
            def flush(self) -> None: ...

        log = Log()
        alive = weakref.ref(log)
        task = scheduler.schedule("flush", log.flush, delay_ms=10**9)
        del log
        assert alive() is not None
        task.cancel()
        assert alive() is None


class TestMockScheduler:
    def test_nothing_runs_by_itself(self) -> None:
        scheduler = MockScheduler()
        ran: list[int] = []
        scheduler.schedule("now", lambda: ran.append(1))
        assert ran == []
        assert scheduler.tick() == 1
        assert ran == [1]

    def test_tasks_see_the_time_they_were_due_at(self) -> None:
        clock = MockClock(milliseconds=1000)
        scheduler = MockScheduler(clock)
        seen: list[int] = []
        scheduler.schedule("b", lambda: seen.append(clock.milliseconds()), 30)
        scheduler.schedule("a", lambda: seen.append(clock.milliseconds()), 10)
        assert scheduler.pending == ["a", "b"]
        scheduler.advance(50)
        assert seen == [1010, 1030]
        assert clock.milliseconds() == 1050

    def test_a_task_that_schedules_another_in_time_sees_it_run(self) -> None:
        scheduler = MockScheduler()
        ran: list[str] = []
        scheduler.schedule("outer", lambda: scheduler.schedule("inner", lambda: ran.append("inner"), 5), 5)
        scheduler.advance(10)
        assert ran == ["inner"]

    def test_cancel_and_clear(self) -> None:
        scheduler = MockScheduler()
        scheduler.schedule("x", pytest.fail).cancel()
        scheduler.schedule("y", pytest.fail)
        scheduler.clear()
        assert scheduler.advance(100) == 0

    def test_errors_come_out(self) -> None:
        scheduler = MockScheduler()
        scheduler.schedule("x", lambda: int("x"))
        with pytest.raises(ValueError, match="invalid literal"):
            scheduler.tick()
