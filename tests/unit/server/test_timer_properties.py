"""The timing wheel against a model that is too simple to be wrong, at scale, and with many threads."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.common.clock import MockClock
from barnabas.server.timer import SystemTimer, Timer, TimerTask
from barnabas.server.timer.mock_timer import MockTimer

WAIT_S = 30
"""How long a test waits for another thread before it calls it stuck."""

pytestmark = pytest.mark.mechanism("N15")

DELAYS = st.one_of(
    st.integers(-5, 60),  # the first two levels and the edge of each
    st.integers(-5, 10_000),
    st.sampled_from([2**31, 2**62]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), DELAYS),
        st.tuples(st.just("add anew"), st.integers(0, 1_000)),
        st.tuples(st.just("cancel"), st.integers(0, 1_000)),
        st.tuples(st.just("pass"), st.integers(0, 2_000)),  # time passes, but nobody ticks the timer
        st.tuples(st.just("tick"), st.one_of(st.integers(0, 50), st.integers(0, 12_000))),
    ),
    max_size=80,
)


@pytest.fixture
def eager_switching() -> Iterator[None]:
    """Lets threads take turns every few bytecodes where there is a GIL, so that a few rounds see many interleavings."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Task(TimerTask):
    def __init__(self, delay_ms: int, clock: MockClock, ran: list[Task]) -> None:
        super().__init__(delay_ms)
        self.clock = clock
        self.ran = ran
        self.runs = 0
        self.was_early = False

    def run(self) -> None:
        self.runs += 1
        self.was_early |= self.clock.hi_res_milliseconds() < self.expiration_ms
        self.ran.append(self)


class Call:
    """Something to hand to an executor."""

    def __init__(self) -> None:
        self.done = threading.Event()

    def run(self) -> None:
        self.done.set()


def settle(timer: Timer) -> None:
    """Returns when the timer's executor has run all that it was given."""
    if isinstance(timer, SystemTimer):
        call = Call()
        assert timer._executor.submit((call,))
        assert call.done.wait(WAIT_S)


def play(timer: Timer, clock: MockClock, steps: list[tuple[str, int]]) -> None:
    """Does the steps to the timer and to a model, which knows when each task is due and nothing else."""
    due: dict[Task, int] = {}
    ran: list[Task] = []
    known: list[Task] = []  # those with a delay: the others may run as soon as they are added, or with the next tick
    for step, value in [*steps, ("tick", 20_000)]:
        now = clock.hi_res_milliseconds()
        match step:
            case "add":
                task = Task(value, clock, ran)
                if value > 0:
                    known.append(task)
                due[task] = now + value
                timer.add(task)
            case "add anew" if known:
                task = known[value % len(known)]
                due[task] = now + task.delay_ms
                timer.add(task)
            case "cancel" if known:
                task = known[value % len(known)]
                assert task.cancel() == (due.pop(task, None) is not None)
            case "pass":
                clock.advance(value)
            case "tick":
                clock.advance(value)
                timer.advance_clock(0)
                settle(timer)
                now += value
                expected = [task for task, expiration in due.items() if expiration <= now]
                assert set(ran) == set(expected)  # all that is due, and nothing that is not
                assert len(ran) == len(expected)  # and each once
                in_order = [due.pop(task) for task in ran if task.delay_ms > 0]
                assert in_order == sorted(in_order)
                for task in ran:
                    assert not task.was_early
                    due.pop(task, None)
                ran.clear()
                assert timer.size() == len(due)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.sampled_from([2, 3, 20]))
def test_each_task_runs_once_never_early_and_with_the_tick_that_it_is_due(
    steps: list[tuple[str, int]], wheel_size: int
) -> None:
    clock = MockClock()
    clock.advance(wheel_size * 13)  # a start in the middle of a round
    timer = SystemTimer("property", clock, wheel_size=wheel_size)
    try:
        play(timer, clock, steps)
    finally:
        timer.close()


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_the_mock_timer_does_the_same(steps: list[tuple[str, int]]) -> None:
    timer = MockTimer()
    play(timer, timer.clock, steps)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 2_000), min_size=1, max_size=40), st.sampled_from([7, 10]))
def test_a_coarse_tick_is_as_exact_as_the_tick(delays: list[int], tick_ms: int) -> None:
    """All that is due in a tick runs when the tick begins."""
    clock = MockClock()
    timer = SystemTimer("coarse", clock, tick_ms=tick_ms)
    ran: list[Task] = []
    try:
        for delay in delays:
            timer.add(Task(delay, clock, ran))
        for now in range(0, 2_001, tick_ms):
            timer.advance_clock(0)
            settle(timer)
            assert len(ran) == sum(delay // tick_ms * tick_ms <= now for delay in delays)
            clock.advance(tick_ms)
    finally:
        timer.close()


def test_a_hundred_thousand_tasks_expire_each_once_and_in_order() -> None:
    clock = MockClock()
    timer = SystemTimer("many", clock)
    ran: list[Task] = []
    chance = random.Random(20_230_501)
    tasks = [Task(chance.randrange(1, 60_000), clock, ran) for _ in range(100_000)]
    try:
        for task in tasks:
            timer.add(task)
        assert timer.size() == 100_000
        cancelled = [task for task in chance.sample(tasks, 20_000) if task.cancel()]
        assert len(cancelled) == 20_000
        assert timer.size() == 80_000
        for _ in range(60):
            clock.advance(1_000)
            timer.advance_clock(0)
        settle(timer)
        assert timer.size() == 0
        assert len(ran) == 80_000
        assert len(set(ran)) == 80_000
        assert not set(ran) & set(cancelled)
        assert not any(task.was_early for task in ran)
        expirations = [task.expiration_ms for task in ran]
        assert expirations == sorted(expirations)
    finally:
        timer.close()


def test_a_million_milliseconds_without_tasks_cost_nothing() -> None:
    """The clock jumps from bucket to bucket and does not step through the time between."""
    clock = MockClock()
    timer = SystemTimer("jump", clock)
    ran: list[Task] = []
    try:
        timer.add(Task(10**12, clock, ran))
        clock.advance(10**12)
        timer.advance_clock(0)
        settle(timer)
        assert len(ran) == 1
    finally:
        timer.close()


@pytest.mark.usefixtures("eager_switching")
@pytest.mark.parametrize("tickers", [1, 3])
def test_many_threads_add_and_cancel_while_others_tick(tickers: int) -> None:
    """Each task is either run once or cancelled once, and none runs early, whoever meets whom in the wheel."""
    clock = MockClock()
    timer = SystemTimer("threads", clock)
    ran: list[Task] = []  # appended to by the executor only
    workers, rounds = 4, 1_500
    outcomes: list[list[tuple[Task, bool]]] = [[] for _ in range(workers)]
    started = threading.Barrier(workers + tickers)
    finished = threading.Event()
    failures: list[BaseException] = []

    def work(number: int) -> None:
        chance = random.Random(number)
        started.wait(WAIT_S)
        waiting: list[Task] = []
        for _ in range(rounds):
            task = Task(chance.choice([-1, 0, 1, 2, 5, 19, 20, 21, 45, 400, 401, 3_000]), clock, ran)
            timer.add(task)
            waiting.append(task)
            if chance.random() < 0.5:
                other = waiting.pop(chance.randrange(len(waiting)))
                outcomes[number].append((other, other.cancel()))
        outcomes[number] += [(task, False) for task in waiting]

    def tick() -> None:
        started.wait(WAIT_S)
        while not finished.is_set():
            clock.advance(1)
            timer.advance_clock(0)

    def guarded(function: object, *arguments: object) -> None:
        try:
            assert callable(function)
            function(*arguments)
        except BaseException as failure:
            failures.append(failure)
            raise

    threads = [threading.Thread(target=guarded, args=(work, number)) for number in range(workers)]
    ticking = [threading.Thread(target=guarded, args=(tick,)) for _ in range(tickers)]
    for thread in [*threads, *ticking]:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    finished.set()
    for thread in ticking:
        thread.join(WAIT_S)
    assert failures == []
    clock.advance(10_000)
    timer.advance_clock(0)
    settle(timer)
    assert timer.size() == 0
    timer.close()
    for task, cancelled in [outcome for each in outcomes for outcome in each]:
        assert task.runs == (0 if cancelled else 1), (task, cancelled)
        assert not task.was_early


@pytest.mark.usefixtures("eager_switching")
def test_one_task_added_and_cancelled_by_all_threads_at_once() -> None:
    """It ends up waiting or not, but never twice, and the count agrees."""
    clock = MockClock()
    timer = SystemTimer("one", clock)
    ran: list[Task] = []
    task = Task(50, clock, ran)
    started = threading.Barrier(4)

    def work() -> None:
        started.wait(WAIT_S)
        for _ in range(1_000):
            timer.add(task)
            task.cancel()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert timer.size() == 0
    timer.add(task)
    assert timer.size() == 1
    clock.advance(50)
    timer.advance_clock(0)
    settle(timer)
    timer.close()
    assert task.runs == 1
