"""Events, timeouts and parking at the same time: at every point where they can meet, and by brute force.

The first half of this file is a harness. It parks one operation and stops at each step of the way (before and after
the operation looks at its condition, before and after it is put under each key, before and after it goes on the timer).
There it lets another thread do something, such as an event, until that thread is done or has to wait for the
operation's lock, and goes on. So all the ways in which the two can interleave are played through, one by one, without
leaving any to chance. That the harness finds the mistakes that it is for is tested, too: by making them.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import pytest

from barnabas.common.clock import MockClock
from barnabas.server.purgatory import DelayedOperation, DelayedOperationPurgatory
from barnabas.server.purgatory.delayed_operation_purgatory import SHARDS
from barnabas.server.purgatory.watcher_list import WatcherList
from barnabas.server.timer import SystemTimer, TimerTask
from barnabas.server.timer.mock_timer import MockTimer

WAIT_S = 30
"""How long a test waits for another thread before it calls it stuck."""

pytestmark = pytest.mark.mechanism("N14")

KEYS: list[Hashable] = ["a", "b"]


class Meeting:
    """Counts the steps of the thread that parks, and at one of them lets another thread in."""

    def __init__(self, step: int | None, intrude: Callable[[], object]) -> None:
        self._step = step
        self._intrude = intrude
        self._parker = threading.get_ident()
        self._intruder: threading.Thread | None = None
        self._moved = threading.Event()
        self.steps: list[str] = []
        self.blocked = False

    def reach(self, name: str) -> None:
        if threading.get_ident() != self._parker:
            return
        self.steps.append(name)
        if len(self.steps) - 1 == self._step:
            self._intruder = threading.Thread(target=self._run)
            self._intruder.start()
            assert self._moved.wait(WAIT_S)

    def must_wait(self) -> None:
        """The intruder cannot go on before the parker does."""
        if threading.get_ident() != self._parker:
            self.blocked = True
            self._moved.set()

    def _run(self) -> None:
        self._intrude()
        self._moved.set()

    def end(self) -> None:
        if self._intruder is not None:
            self._intruder.join(WAIT_S)
            assert not self._intruder.is_alive()


class TellingLock:
    """An operation's lock that tells the meeting when a thread has to wait for it."""

    def __init__(self, meeting: Meeting) -> None:
        self._lock = threading.RLock()
        self._meeting = meeting

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._meeting.must_wait()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Operation(DelayedOperation):
    def __init__(self, condition: list[bool]) -> None:
        super().__init__(1_000)
        self.condition = condition
        self.meeting: Meeting | None = None
        self.completions = 0
        self.expirations = 0

    def meet(self, meeting: Meeting) -> None:
        self.meeting = meeting
        self._lock = TellingLock(meeting)  # type: ignore[assignment]

    def try_complete(self) -> bool:
        assert self.meeting is not None
        self.meeting.reach("before looking")
        ready = self.condition[0]
        self.meeting.reach("after looking")
        return ready and self.force_complete()

    def on_complete(self) -> None:
        self.completions += 1

    def on_expiration(self) -> None:
        self.expirations += 1


class Timer(MockTimer):
    meeting: Meeting

    def add(self, task: TimerTask) -> None:
        self.meeting.reach("before the timer")
        super().add(task)
        self.meeting.reach("after the timer")


class Shard(WatcherList[Any]):
    __slots__ = ("meeting",)
    meeting: Meeting

    def watch(self, key: Hashable, operation: Any) -> None:
        self.meeting.reach(f"before watching {key}")
        super().watch(key, operation)
        self.meeting.reach(f"after watching {key}")


Intrusion = Callable[[DelayedOperationPurgatory[Any], Operation, list[bool]], object]


def event_for(key: Hashable) -> Intrusion:
    """What the operation waits for comes true, and those who wait under the key hear of it."""

    def event(purgatory: DelayedOperationPurgatory[Any], _: Operation, condition: list[bool]) -> None:
        condition[0] = True
        purgatory.check_and_complete(key)

    return event


def force(_: DelayedOperationPurgatory[Any], operation: Operation, __: list[bool]) -> None:
    operation.force_complete()


def force_when_ready(_: DelayedOperationPurgatory[Any], operation: Operation, condition: list[bool]) -> None:
    condition[0] = True
    operation.force_complete()


def expire(_: DelayedOperationPurgatory[Any], operation: Operation, __: list[bool]) -> None:
    operation.run()


def purge(purgatory: DelayedOperationPurgatory[Any], _: Operation, __: list[bool]) -> None:
    purgatory.advance_clock(0)


def park(
    intrusion: Intrusion,
    step: int | None,
    operation_type: type[Operation] = Operation,
    purgatory_type: type[DelayedOperationPurgatory[Any]] = DelayedOperationPurgatory,
) -> tuple[Operation, DelayedOperationPurgatory[Any], Meeting]:
    """Parks an operation and lets the intrusion happen at the given step."""
    condition = [False]
    operation = operation_type(condition)
    timer = Timer()
    purgatory = purgatory_type("Race", timer, reaper_enabled=False, purge_interval=0)
    purgatory._shards.update({number: Shard() for number in range(SHARDS)})
    meeting = Meeting(step, lambda: intrusion(purgatory, operation, condition))
    operation.meet(meeting)
    timer.meeting = meeting
    for shard in purgatory._shards.made():
        assert isinstance(shard, Shard)
        shard.meeting = meeting
    purgatory.try_complete_else_watch(operation, KEYS)
    meeting.reach("at the end")
    meeting.end()
    return operation, purgatory, meeting


STEPS = park(force, None)[2].steps


def test_the_steps_of_parking_are_all_there() -> None:
    assert STEPS == [
        "before looking",
        "after looking",
        "before watching a",
        "after watching a",
        "before watching b",
        "after watching b",
        "before looking",
        "after looking",
        "before the timer",
        "after the timer",
        "at the end",
    ]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("step", range(len(STEPS)))
def test_no_event_is_missed_at_any_step(step: int, key: Hashable) -> None:
    operation, purgatory, _ = park(event_for(key), step)
    assert operation.completions == 1, STEPS[step]
    assert operation.expirations == 0
    assert purgatory.num_delayed() == 0
    purgatory.advance_clock(10_000)
    assert operation.completions == 1
    assert purgatory.watched() == 0


@pytest.mark.parametrize("intrusion", [force, force_when_ready, expire])
@pytest.mark.parametrize("step", range(len(STEPS)))
def test_a_completion_from_outside_at_any_step_is_the_only_one(step: int, intrusion: Intrusion) -> None:
    operation, purgatory, _ = park(intrusion, step)
    assert operation.completions == 1, STEPS[step]
    assert operation.expirations == (intrusion is expire)
    assert purgatory.num_delayed() == 0
    purgatory.advance_clock(10_000)
    assert operation.completions == 1
    assert purgatory.watched() == 0


@pytest.mark.mechanism("N16")
@pytest.mark.parametrize("step", range(len(STEPS)))
def test_a_purge_at_any_step_takes_nothing_away(step: int) -> None:
    operation, purgatory, _ = park(purge, step)
    assert purgatory.watched() == len(KEYS)
    assert purgatory.num_delayed() == 1
    operation.condition[0] = True
    assert purgatory.check_and_complete("b") == 1
    purgatory.advance_clock(0)
    assert purgatory.watched() == 0


def test_who_finds_the_operation_while_it_is_parked_waits_for_the_outcome() -> None:
    """From the first key on until the second attempt has ended, an event has to wait for the lock."""
    blocked = {STEPS[step] for step in range(3, 8) if park(event_for("a"), step)[2].blocked}
    assert blocked == set(STEPS[3:8])
    assert not park(event_for("a"), 8)[2].blocked


class NoSecondLook(Operation):
    """The mistake that the second attempt is there to prevent."""

    def safe_try_complete_or_else(self, action: Callable[[], object]) -> bool:
        with self._lock:
            if self.try_complete():
                return True
            action()
            return False


class NoSecondCancel(DelayedOperationPurgatory[Any]):
    """Another: an operation completed before it is put on the timer stays on it."""

    def _add_to_timer(self, operation: Any) -> None:
        self._timer.add(operation)


class NoCheckUnderTheLock(Operation):
    """A third: two threads that both find it incomplete both complete it."""

    def force_complete(self) -> bool:
        if self.is_completed():
            return False
        with self._lock:
            self._completed = True
            self.cancel()
            self.on_complete()
            return True


def test_the_harness_finds_a_missing_second_look() -> None:
    missed = []
    for step in range(len(park(force, None, NoSecondLook)[2].steps)):
        operation, _, meeting = park(event_for("a"), step, NoSecondLook)
        if not operation.is_completed():
            missed.append(meeting.steps[step])
    assert missed == ["after looking", "before watching a"]


def test_the_harness_finds_an_operation_left_on_the_timer() -> None:
    left = []
    for step in range(len(STEPS)):
        _, purgatory, meeting = park(force, step, purgatory_type=NoSecondCancel)
        if purgatory.num_delayed():
            left.append(meeting.steps[step])
    assert left == ["before the timer"]


def test_the_harness_finds_a_second_completion() -> None:
    twice = [step for step in range(len(STEPS)) if park(force_when_ready, step, NoCheckUnderTheLock)[0].completions > 1]
    assert twice != []


# By brute force.


class Racer(DelayedOperation):
    """Waits for a counter to reach its number."""

    def __init__(self, delay_ms: int, counter: list[int], number: int) -> None:
        super().__init__(delay_ms)
        self.counter = counter
        self.number = number
        self.completions = 0
        self.expirations = 0

    def try_complete(self) -> bool:
        return self.counter[0] >= self.number and self.force_complete()

    def on_complete(self) -> None:
        self.completions += 1

    def on_expiration(self) -> None:
        self.expirations += 1


@pytest.fixture
def eager_switching() -> Iterator[None]:
    """Lets threads take turns every few bytecodes where there is a GIL, so that a few rounds see many interleavings."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(*calls: Callable[[], object]) -> None:
    """Runs each on a thread of its own, and passes on the first failure."""
    failures: list[BaseException] = []

    def call(function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as failure:
            failures.append(failure)
            raise

    threads = [threading.Thread(target=call, args=(function,)) for function in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert failures == []


@pytest.mark.usefixtures("eager_switching")
def test_parking_against_events_for_many_rounds() -> None:
    """No timer, so an operation whose event was missed would be there in the end."""
    rounds = 1_500
    purgatory: DelayedOperationPurgatory[Racer] = DelayedOperationPurgatory(
        "Race", MockTimer(), reaper_enabled=False, timer_enabled=False, purge_interval=50
    )
    counter = [0]
    operations = [Racer(1, counter, number) for number in range(1, rounds + 1)]
    barrier = threading.Barrier(3)

    def park_all() -> None:
        for operation in operations:
            barrier.wait(WAIT_S)
            purgatory.try_complete_else_watch(operation, ["a", "b", ("c", operation.number)])

    def events() -> None:
        for number in range(1, rounds + 1):
            barrier.wait(WAIT_S)
            counter[0] = number
            purgatory.check_and_complete("a")

    def echo() -> None:
        for _ in range(rounds):
            barrier.wait(WAIT_S)
            purgatory.check_and_complete("b")
            purgatory.advance_clock(0)

    together(park_all, events, echo)
    assert [operation.completions for operation in operations] == [1] * rounds
    purgatory.advance_clock(0)
    for key in purgatory.watched_keys():
        purgatory.check_and_complete(key)
    assert purgatory.watched() == 0


@pytest.mark.usefixtures("eager_switching")
@pytest.mark.parametrize("seed", range(3))
def test_everything_at_once(seed: int) -> None:
    """Parking, events, timeouts, outside completions, purges: each operation is completed exactly once."""
    clock = MockClock()
    purgatory: DelayedOperationPurgatory[Racer] = DelayedOperationPurgatory(
        "Race", SystemTimer("Race", clock), purge_interval=20
    )
    each, parkers = 400, 3
    counter = [0]
    operations: list[list[Racer]] = [[] for _ in range(parkers)]
    parked = threading.Event()

    def park_some(number: int) -> None:
        chance = random.Random(seed * 10 + number)
        for _ in range(each):
            operation = Racer(chance.choice([0, 1, 3, 20, 50, 500]), counter, counter[0] + chance.randrange(1, 40))
            operations[number].append(operation)
            keys = chance.sample(range(12), 3)
            purgatory.try_complete_else_watch(operation, keys)
            if chance.random() < 0.1:
                operation.force_complete()

    def raise_counter() -> None:
        while not parked.is_set():
            counter[0] += 1
            purgatory.check_and_complete(counter[0] % 12)

    def pass_time() -> None:
        while not parked.is_set():
            clock.advance(1)

    def park_all() -> None:
        try:
            together(*[lambda number=number: park_some(number) for number in range(parkers)])
        finally:
            parked.set()

    together(park_all, raise_counter, pass_time)
    everything = [operation for some in operations for operation in some]
    waiting = [operation for operation in everything if not operation.is_completed()]
    done = threading.Event()

    class Last(Racer):
        def on_complete(self) -> None:
            done.set()

    # The executor runs in order: when the last to expire has run, all have.
    purgatory.try_complete_else_watch(Last(1_000, [0], 1), ["last"])
    for _ in range(2_000):
        if done.is_set():
            break
        assert clock.await_waiters()
        clock.advance(10)
    assert done.wait(WAIT_S)
    purgatory.shutdown()
    assert purgatory.num_delayed() == 0
    assert [operation.completions for operation in everything] == [1] * len(everything)
    assert all(operation.expirations <= 1 for operation in everything)
    assert all(operation.is_completed() for operation in waiting)
