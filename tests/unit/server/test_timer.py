"""The timing wheel and the timers: buckets, levels, the delay queue, expiry, cancellation, threads."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest

from barnabas.common.clock import SYSTEM_CLOCK, MockClock
from barnabas.common.shutdownable_thread import FatalExitError
from barnabas.server.timer import SystemTimer, Timer, TimerClosedError, TimerTask, system_timer
from barnabas.server.timer.delay_queue import DelayQueue
from barnabas.server.timer.mock_timer import MockTimer
from barnabas.server.timer.timer_task_list import TimerTaskList
from barnabas.server.timer.timing_wheel import TimingWheel

WAIT_S = 60
"""How long a test waits for another thread before it calls it stuck."""

pytestmark = pytest.mark.mechanism("N15")


class Note(TimerTask):
    """Calls a function."""

    __slots__ = ("__weakref__", "action")

    def __init__(self, delay_ms: int, action: Callable[[], object] = lambda: None) -> None:
        super().__init__(delay_ms)
        self.action = action

    def run(self) -> None:
        self.action()


class Bench:
    """A system timer on a mock clock, and what it has run."""

    def __init__(self, **options: int) -> None:
        self.clock = MockClock()
        self.timer = SystemTimer("test", self.clock, **options)  # type: ignore[arg-type]
        self.ran: list[int] = []

    def add(self, delay_ms: int) -> Note:
        task = Note(delay_ms, lambda: self.ran.append(delay_ms))
        self.timer.add(task)
        return task

    def turn(self, milliseconds: int) -> list[int]:
        """Moves the clock, ticks the timer, and returns what that has run."""
        self.clock.advance(milliseconds)
        self.timer.advance_clock(0)
        return self.results()

    def results(self) -> list[int]:
        done = threading.Event()
        assert self.timer._executor.submit((Note(0, done.set),))  # the executor runs in order: what came before is done
        assert done.wait(WAIT_S)
        ran, self.ran = self.ran, []
        return ran


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.timer.close()


class TestTaskList:
    def test_tasks_leave_in_the_order_they_came(self) -> None:
        bucket = TimerTaskList()
        tasks = [Note(n) for n in range(5)]
        for task in tasks:
            bucket.add(task)
        assert len(bucket) == 5
        assert [bucket.pop() for _ in range(6)] == [*tasks, None]
        assert not bucket

    @pytest.mark.parametrize("position", [0, 1, 2])
    def test_any_task_can_be_unlinked(self, position: int) -> None:
        bucket = TimerTaskList()
        tasks = [Note(n) for n in range(3)]
        for task in tasks:
            bucket.add(task)
        TimerTaskList.unlink(tasks.pop(position))
        assert [bucket.pop(), bucket.pop(), bucket.pop()] == [*tasks, None]

    def test_expiration_is_news_once_per_round(self) -> None:
        bucket = TimerTaskList()
        assert bucket.set_expiration(40)
        assert not bucket.set_expiration(40)
        bucket.detach()
        assert bucket.set_expiration(40)
        assert bucket.set_expiration(60)

    def test_detach_moves_all_tasks_and_leaves_an_empty_list(self) -> None:
        bucket = TimerTaskList()
        tasks = [Note(n) for n in range(3)]
        for task in tasks:
            bucket.add(task)
        detached = bucket.detach()
        late = Note(9)
        bucket.add(late)
        TimerTaskList.unlink(tasks[1])
        assert [detached.pop(), detached.pop(), detached.pop()] == [tasks[0], tasks[2], None]
        assert [bucket.pop(), bucket.pop()] == [late, None]
        assert not bucket.detach()


class TestWheel:
    def wheel(self, start_ms: int = 0) -> tuple[TimingWheel, DelayQueue, MockClock]:
        clock = MockClock()
        clock.advance(start_ms)
        queue = DelayQueue(clock)
        return TimingWheel(1, 20, start_ms, queue), queue, clock

    @staticmethod
    def due(expiration_ms: int) -> Note:
        task = Note(0)
        task.expiration_ms = expiration_ms
        return task

    def test_what_is_past_is_refused(self) -> None:
        wheel, queue, _ = self.wheel(start_ms=100)
        for expiration in (-5, 0, 99, 100):
            assert not wheel.add(self.due(expiration))
        assert len(queue) == 0
        assert wheel.add(self.due(101))

    def test_one_bucket_is_queued_once_however_many_tasks_it_holds(self) -> None:
        wheel, queue, _ = self.wheel()
        for _ in range(100):
            assert wheel.add(self.due(7))
        assert len(queue) == 1
        wheel.add(self.due(8))
        assert len(queue) == 2

    @pytest.mark.parametrize(
        ("expiration", "levels", "bucket_start"),
        [
            (1, 1, 1),
            (19, 1, 19),
            (20, 2, 20),
            (39, 2, 20),
            (399, 2, 380),
            (400, 3, 400),
            (799, 3, 400),
            (8_000, 4, 8_000),
        ],
    )
    def test_overflow_wheels_come_when_needed(self, expiration: int, levels: int, bucket_start: int) -> None:
        wheel, queue, clock = self.wheel()
        assert wheel.levels() == 1
        assert wheel.add(self.due(expiration))
        assert wheel.levels() == levels
        clock.advance(bucket_start - 1)
        assert queue.poll() is None
        clock.advance(1)
        bucket = queue.poll()
        assert bucket is not None
        assert bucket.expiration_ms == bucket_start

    def test_a_bucket_stands_for_the_next_round_after_its_own(self) -> None:
        wheel, queue, clock = self.wheel()
        wheel.add(self.due(5))
        clock.advance(5)
        bucket = queue.poll()
        assert bucket is not None
        wheel.advance_clock(5)
        bucket.detach()
        assert wheel.add(self.due(24))  # 5 + 19: still on this level
        assert wheel.levels() == 1
        assert wheel.add(self.due(25))
        assert wheel.levels() == 2

    def test_an_overflow_wheel_starts_at_the_time_of_its_own_wheel(self) -> None:
        wheel, _, _ = self.wheel(start_ms=1_000_007)
        assert wheel.add(self.due(1_000_007 + 30))
        assert wheel.levels() == 2

    def test_all_levels_move_with_the_clock(self) -> None:
        wheel, _, _ = self.wheel()
        wheel.add(self.due(100_000))
        levels = wheel.levels()
        wheel.advance_clock(99_990)
        assert not wheel.add(self.due(99_990))
        assert wheel.add(self.due(255_999))  # the coarsest wheel has moved to 96,000 and spans 160,000
        assert wheel.levels() == levels

    def test_a_clock_never_goes_back(self) -> None:
        wheel, _, _ = self.wheel(start_ms=1_000)
        wheel.advance_clock(500)
        assert not wheel.add(self.due(900))

    @pytest.mark.parametrize(("tick", "size"), [(0, 20), (1, 1), (-1, 5), (1, 0)])
    def test_a_wheel_that_could_not_turn_is_refused(self, tick: int, size: int) -> None:
        with pytest.raises(ValueError, match="a wheel needs"):
            TimingWheel(tick, size, 0, DelayQueue(MockClock()))


class TestDelayQueue:
    @staticmethod
    def bucket(expiration_ms: int) -> TimerTaskList:
        bucket = TimerTaskList()
        bucket.set_expiration(expiration_ms)
        return bucket

    def test_buckets_come_out_in_order_and_not_before_they_are_due(self) -> None:
        clock = MockClock()
        queue = DelayQueue(clock)
        for expiration in (30, 10, 20, 10):
            queue.offer(self.bucket(expiration))
        seen = []
        for _ in range(31):
            while (bucket := queue.poll()) is not None:
                seen.append((clock.hi_res_milliseconds(), bucket.expiration_ms))
            clock.advance(1)
        assert seen == [(10, 10), (10, 10), (20, 20), (30, 30)]

    def test_no_wait_without_a_timeout(self) -> None:
        queue = DelayQueue(MockClock())
        assert not queue.await_due(0)
        assert not queue.await_due(-1)
        queue.offer(self.bucket(0))
        assert queue.await_due(0)
        assert queue.await_due(0)  # it is still in there
        assert queue.poll() is not None

    def wait_on_thread(self, queue: DelayQueue, timeout_ms: int) -> tuple[threading.Thread, list[bool]]:
        results: list[bool] = []
        thread = threading.Thread(target=lambda: results.append(queue.await_due(timeout_ms)))
        thread.start()
        return thread, results

    def test_the_wait_ends_with_the_timeout(self) -> None:
        clock = MockClock()
        queue = DelayQueue(clock)
        queue.offer(self.bucket(500))
        thread, results = self.wait_on_thread(queue, 200)
        assert clock.await_waiters()
        clock.advance(200)
        thread.join(WAIT_S)
        assert results == [False]

    def test_the_wait_ends_when_a_bucket_falls_due(self) -> None:
        clock = MockClock()
        queue = DelayQueue(clock)
        queue.offer(self.bucket(150))
        thread, results = self.wait_on_thread(queue, 200)
        assert clock.await_waiters()
        clock.advance(150)
        thread.join(WAIT_S)
        assert results == [True]

    def test_the_wait_is_no_longer_than_it_has_to_be(self) -> None:
        asked: list[float | None] = []

        class Telling(MockClock):
            def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:
                asked.append(timeout_ms)
                self.advance_without_waking(timeout_ms or 0)
                return True

            def advance_without_waking(self, milliseconds: float) -> None:
                with self._changed:
                    self._steady_ns += int(milliseconds * 1_000_000)

        queue = DelayQueue(Telling())
        assert not queue.await_due(200)
        queue.offer(self.bucket(230))
        queue.offer(self.bucket(1_000))
        assert queue.await_due(200)
        queue.poll()
        assert not queue.await_due(200)
        assert asked == [200, 30, 200]

    def test_an_earlier_bucket_shortens_the_wait(self) -> None:
        clock = MockClock()
        queue = DelayQueue(clock)
        queue.offer(self.bucket(10_000))
        thread, results = self.wait_on_thread(queue, 60_000)
        assert clock.await_waiters()
        queue.offer(self.bucket(0))
        thread.join(WAIT_S)
        assert results == [True]

    @pytest.mark.parametrize("timeout_ms", [60_000, 2**62, 2**200])
    def test_any_timeout_can_be_waited_for_on_the_real_clock(self, timeout_ms: int) -> None:
        queue = DelayQueue(SYSTEM_CLOCK)
        thread, results = self.wait_on_thread(queue, timeout_ms)
        queue.offer(self.bucket(0))
        thread.join(WAIT_S)
        assert results == [True]


class TestSystemTimer:
    def test_a_task_runs_when_its_delay_is_over_and_not_before(self, bench: Bench) -> None:
        bench.add(25)
        assert bench.timer.size() == 1
        assert bench.turn(24) == []
        assert bench.turn(1) == [25]
        assert bench.timer.size() == 0
        assert bench.turn(10_000) == []

    @pytest.mark.parametrize("delay", [1, 19, 20, 21, 399, 400, 401, 7_999, 8_000, 30_000, 86_400_000])
    def test_every_level_is_exact_to_the_millisecond(self, bench: Bench, delay: int) -> None:
        bench.clock.advance(7)  # so that ticks and spans do not start where the task does
        bench.add(delay)
        assert bench.turn(delay - 1) == []
        assert bench.turn(1) == [delay]

    def test_one_call_drains_all_that_is_due_in_order(self, bench: Bench) -> None:
        delays = [5_000, 1, 300, 20, 19, 8_001, 400, 2]
        for delay in delays:
            bench.add(delay)
        assert bench.turn(10_000) == sorted(delays)
        assert bench.timer.size() == 0

    def test_tasks_of_one_tick_run_in_the_order_they_came(self, bench: Bench) -> None:
        ran: list[int] = []
        for number in range(600):  # more than a batch
            bench.timer.add(Note(50, lambda number=number: ran.append(number)))  # type: ignore[misc]
        bench.turn(50)
        assert ran == list(range(600))

    @pytest.mark.parametrize("delay", [0, -1, -(2**62)])
    def test_without_a_delay_it_runs_at_the_next_tick(self, bench: Bench, delay: int) -> None:
        bench.add(delay)
        bench.timer.advance_clock(0)
        assert bench.results() == [delay]
        bench.clock.advance(12_345)  # the wheel's clock is now far behind
        bench.add(delay)
        bench.timer.advance_clock(0)
        assert bench.results() == [delay]

    def test_without_a_delay_and_with_the_wheel_up_to_date_it_needs_no_tick(self, bench: Bench) -> None:
        bench.add(0)
        assert bench.results() == [0]

    def test_a_huge_delay_is_kept_and_can_be_cancelled(self, bench: Bench) -> None:
        tasks = [bench.add(2**62), bench.add(2**62 - 1), bench.add(2**200)]
        bench.add(10)
        assert bench.turn(10) == [10]
        assert bench.timer._wheel.levels() < 60
        assert bench.turn(86_400_000 * 365) == []
        assert bench.timer.size() == 3
        assert all(task.cancel() for task in tasks)
        assert bench.timer.size() == 0

    def test_a_huge_delay_ends(self, bench: Bench) -> None:
        bench.add(2**62)
        assert bench.turn(2**62 - 1) == []
        assert bench.turn(1) == [2**62]

    def test_time_that_passes_between_adds_counts(self, bench: Bench) -> None:
        bench.add(100)
        bench.clock.advance(90)  # nobody ticks
        bench.add(30)
        assert bench.turn(9) == []
        assert bench.turn(1) == [100]
        assert bench.turn(19) == []
        assert bench.turn(1) == [30]

    def test_a_cancelled_task_does_not_run(self, bench: Bench) -> None:
        task = bench.add(50)
        assert task.cancel()
        assert not task.cancel()
        assert bench.timer.size() == 0
        assert bench.turn(1_000) == []

    def test_cancelling_what_does_not_wait_is_harmless(self, bench: Bench) -> None:
        assert not Note(5).cancel()
        task = bench.add(5)
        assert bench.turn(5) == [5]
        assert not task.cancel()
        assert bench.timer.size() == 0

    def test_a_task_added_again_waits_anew(self, bench: Bench) -> None:
        task = bench.add(100)
        bench.clock.advance(60)
        bench.timer.add(task)
        assert bench.timer.size() == 1
        assert bench.turn(60) == []
        assert bench.turn(40) == [100]
        bench.timer.add(task)  # also after it has run
        assert bench.turn(100) == [100]
        bench.timer.add(task)  # or was cancelled
        task.cancel()
        bench.timer.add(task)
        assert bench.turn(100) == [100]

    def test_a_task_may_add_itself(self, bench: Bench) -> None:
        ran: list[int] = []

        def again() -> None:
            ran.append(bench.clock.hi_res_milliseconds())
            bench.timer.add(task)

        task = Note(10, again)
        bench.timer.add(task)
        for _ in range(30):
            bench.turn(1)
        assert ran == [10, 20, 30]

    def test_a_task_has_one_timer(self, bench: Bench) -> None:
        task = Note(10)
        bench.timer.add(task)
        other = Bench()
        with pytest.raises(ValueError, match="belongs to another timer"):
            other.timer.add(task)
        other.timer.close()
        assert bench.timer.size() == 1

    def test_a_cancelled_task_is_freed_at_once(self, bench: Bench) -> None:
        """By its reference count: the cycle collector is off."""
        gc.disable()
        try:
            for delay in (5, 500, 30_000, 2**62):
                neighbours = [Note(delay), Note(delay)]
                task = Note(delay)
                for each in (neighbours[0], task, neighbours[1]):
                    bench.timer.add(each)
                freed = weakref.ref(task)
                task.cancel()
                del task
                assert freed() is None
        finally:
            gc.enable()

    def test_a_cancelled_task_keeps_none_of_its_neighbours(self, bench: Bench) -> None:
        gc.disable()
        try:
            before, task, after = Note(500), Note(500), Note(500)
            for each in (before, task, after):
                bench.timer.add(each)
            freed = [weakref.ref(before), weakref.ref(after)]
            task.cancel()
            before.cancel()
            after.cancel()
            del before, after, each
            assert [ref() for ref in freed] == [None, None]
        finally:
            gc.enable()

    def test_of_many_that_run_each_is_let_go_of_before_the_next(self, bench: Bench) -> None:
        gc.disable()
        try:
            seen: list[object] = []
            task = Note(5)
            freed = weakref.ref(task)
            bench.timer.add(task)
            bench.timer.add(Note(5, lambda: seen.append(freed())))
            del task
            bench.turn(5)
            assert seen == [None]
        finally:
            gc.enable()

    def test_wheel_and_links_are_only_touched_under_the_lock(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With a GIL few of the mistakes that this rules out would ever show."""
        touched: list[str] = []

        def guarded(owner: type, name: str) -> None:
            original = getattr(owner, name)

            def checked(*arguments: object) -> object:
                assert bench.timer._lock.locked(), name
                touched.append(name)
                return original(*arguments)

            static = isinstance(owner.__dict__[name], staticmethod)
            monkeypatch.setattr(owner, name, staticmethod(checked) if static else checked)

        for name in ("add", "unlink", "detach", "pop", "set_expiration"):
            guarded(TimerTaskList, name)
        for name in ("add", "advance_clock"):
            guarded(TimingWheel, name)
        task = bench.add(30)
        bench.timer.add(task)
        assert task.cancel()
        bench.timer.add(task)
        bench.clock.advance(30)
        bench.timer.advance_clock(0)
        assert set(touched) == {"add", "unlink", "detach", "pop", "set_expiration", "advance_clock"}
        assert bench.results() == [30]

    def test_a_task_that_has_run_is_let_go_of(self, bench: Bench) -> None:
        gc.disable()
        try:
            task = Note(5)
            bench.timer.add(task)
            freed = weakref.ref(task)
            del task
            bench.turn(5)
            assert freed() is None
        finally:
            gc.enable()

    def test_a_failing_task_is_logged_and_the_next_one_runs(
        self, bench: Bench, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail() -> None:
            raise OSError("cannot respond")

        bench.timer.add(Note(5, fail))
        bench.add(5)
        assert bench.turn(5) == [5]
        assert "cannot respond" in caplog.text

    def test_a_fatal_task_ends_the_process(self) -> None:
        statuses: list[int] = []
        ended = threading.Event()

        def fail() -> None:
            raise FatalExitError(7)

        def end(status: int) -> None:
            statuses.append(status)
            ended.set()

        timer = SystemTimer("fatal", MockClock(), exit_procedure=end)
        timer.add(Note(0, fail))
        assert ended.wait(WAIT_S)
        assert statuses == [7]
        timer.close()

    def test_a_wait_ends_when_something_falls_due(self, bench: Bench) -> None:
        bench.add(30)
        results: list[bool] = []
        thread = threading.Thread(target=lambda: results.append(bench.timer.advance_clock(200)))
        thread.start()
        assert bench.clock.await_waiters()
        bench.clock.advance(20)  # the bucket of the coarser wheel
        thread.join(WAIT_S)
        assert results == [True]
        assert bench.results() == []
        assert bench.turn(10) == [30]

    def test_wake_ends_a_wait_though_time_stands_still(self, bench: Bench) -> None:
        bench.timer.wake()  # nobody waits: the next one finds it
        bench.timer.advance_clock(600_000)
        thread = threading.Thread(target=bench.timer.advance_clock, args=(600_000,))
        thread.start()
        assert bench.clock.await_waiters()
        bench.timer.wake()
        thread.join(WAIT_S)
        assert not thread.is_alive()
        assert bench.timer.size() == 0

    def test_tasks_can_be_cancelled_and_added_anew_between_the_batches_of_a_flush(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(system_timer, "FLUSH_BATCH", 2)
        ran: list[int] = []
        tasks = [Note(25, lambda number=number: ran.append(number)) for number in range(6)]  # type: ignore[misc]
        for task in tasks:
            bench.timer.add(task)
        bench.clock.advance(25)
        bucket = bench.timer._take_due_bucket()  # 20-39 of the second level
        assert bucket is not None
        assert bench.timer._move_on(bucket)  # 0 and 1 are in the bucket of 25
        assert bench.timer.size() == 6
        assert tasks[3].cancel()
        bench.timer.add(tasks[4])  # waits anew
        assert bench.timer.size() == 5
        assert not bench.timer._move_on(bucket)  # 2 and 5
        bench.timer.advance_clock(0)
        bench.results()
        assert ran == [0, 1, 2, 5]
        assert bench.timer.size() == 1
        bench.turn(25)
        assert ran == [0, 1, 2, 5, 4]

    def test_a_big_bucket_does_not_keep_the_lock(self, bench: Bench) -> None:
        """Its tasks are moved in batches, and whoever wants to add gets in between."""
        many = system_timer.FLUSH_BATCH * 10
        for _ in range(many):
            bench.timer.add(Note(30))
        bench.clock.advance(30)
        bucket = bench.timer._take_due_bucket()
        assert bucket is not None
        batches = 1
        while bench.timer._move_on(bucket):
            batches += 1
        assert batches == 10
        assert bench.timer.size() == many

    @pytest.mark.mechanism("N22")
    def test_its_thread_has_the_documented_name_and_ends_with_it(self) -> None:
        timer = SystemTimer("Produce", MockClock())
        [thread] = [thread for thread in threading.enumerate() if thread.name == "executor-Produce"]
        assert not thread.daemon
        timer.close()
        assert not thread.is_alive()
        timer.close()  # again: nothing happens

    def test_close_runs_what_has_fallen_due(self) -> None:
        bench = Bench()
        release = threading.Event()
        bench.timer.add(Note(0, lambda: release.wait(WAIT_S)))
        bench.add(5)
        bench.clock.advance(5)
        bench.timer.advance_clock(0)
        closer = threading.Thread(target=bench.timer.close)
        closer.start()
        release.set()
        closer.join(WAIT_S)
        assert bench.ran == [5]

    def test_a_closed_timer_takes_nothing_more(self) -> None:
        bench = Bench()
        waiting = bench.add(5)
        bench.timer.close()
        with pytest.raises(TimerClosedError):
            bench.add(10)
        with pytest.raises(TimerClosedError):
            bench.add(0)
        bench.clock.advance(5)
        bench.timer.advance_clock(0)
        assert bench.ran == []
        assert bench.timer.size() == 1  # dropped with the timer
        assert waiting.cancel()

    def test_a_task_may_close_its_timer(self) -> None:
        bench = Bench()
        bench.timer.add(Note(0, bench.timer.close))
        bench.timer._executor.join(WAIT_S)
        assert not bench.timer._executor.is_alive()

    def test_on_the_real_clock(self) -> None:
        timer = SystemTimer("real")
        done = threading.Event()
        started = SYSTEM_CLOCK.hi_res_milliseconds()
        timer.add(Note(5, done.set))
        while timer.size():
            timer.advance_clock(200)
        assert done.wait(WAIT_S)
        assert SYSTEM_CLOCK.hi_res_milliseconds() - started >= 5
        timer.close()

    def test_it_can_be_printed(self, bench: Bench) -> None:
        task = bench.add(5)
        assert repr(bench.timer) == "<SystemTimer test: 1 waiting>"
        assert repr(task) == "<Note delay=5ms due at 5>"
        task.cancel()
        assert repr(task) == "<Note delay=5ms idle>"


class TestMockTimer:
    def test_it_is_a_timer(self) -> None:
        timer: Timer = MockTimer()
        timer.wake()
        assert timer.size() == 0

    def test_tasks_run_on_the_caller_at_the_time_they_are_due(self) -> None:
        timer = MockTimer()
        seen: list[tuple[int, int, int]] = []
        for delay in (30, 10, 10, 40):
            timer.add(
                Note(
                    delay,
                    lambda delay=delay: seen.append(  # type: ignore[misc]
                        (delay, timer.clock.hi_res_milliseconds(), threading.get_ident())
                    ),
                )
            )
        here = threading.get_ident()
        assert timer.advance_clock(35)
        assert seen == [(10, 10, here), (10, 10, here), (30, 30, here)]
        assert timer.clock.hi_res_milliseconds() == 35
        assert not timer.advance_clock(4)
        assert timer.size() == 1

    def test_cancel_and_add_anew(self) -> None:
        timer = MockTimer()
        ran: list[str] = []
        first, second = Note(10, lambda: ran.append("first")), Note(10, lambda: ran.append("second"))
        timer.add(first)
        timer.add(second)
        assert first.cancel()
        assert not first.cancel()
        timer.advance_clock(5)
        timer.add(second)
        timer.advance_clock(9)
        assert ran == []
        timer.advance_clock(1)
        assert ran == ["second"]
        assert timer.size() == 0

    def test_a_cancelled_task_is_freed_at_once(self) -> None:
        timer = MockTimer()
        task = Note(10)
        timer.add(task)
        freed = weakref.ref(task)
        task.cancel()
        del task
        assert freed() is None

    def test_a_task_added_on_the_way_runs_in_the_same_call(self) -> None:
        timer = MockTimer()
        ran: list[int] = []
        timer.add(Note(10, lambda: timer.add(Note(10, lambda: ran.append(timer.clock.hi_res_milliseconds())))))
        timer.advance_clock(30)
        assert ran == [20]

    def test_without_a_delay_it_runs_at_once(self) -> None:
        timer = MockTimer()
        ran: list[str] = []
        timer.add(Note(0, lambda: ran.append("now")))
        timer.add(Note(-3, lambda: ran.append("before")))
        assert ran == ["now", "before"]
        assert timer.size() == 0

    def test_closed_or_foreign(self) -> None:
        timer = MockTimer()
        task = Note(10)
        timer.add(task)
        with pytest.raises(ValueError, match="belongs to another timer"):
            MockTimer().add(task)
        timer.close()
        with pytest.raises(TimerClosedError):
            timer.add(Note(10))
        assert not timer.advance_clock(20)
