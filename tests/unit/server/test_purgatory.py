"""Parking, events, timeouts, purging and shutdown of a purgatory."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.shutdownable_thread import FatalExitError
from barnabas.server.purgatory import DelayedOperation, DelayedOperationPurgatory
from barnabas.server.purgatory.delayed_operation_purgatory import SHARDS
from barnabas.server.timer import SystemTimer, Timer, TimerTask
from barnabas.server.timer.mock_timer import MockTimer

WAIT_S = 60
"""How long a test waits for another thread before it calls it stuck."""


class Operation(DelayedOperation):
    """Can be completed when ``ready``."""

    def __init__(self, delay_ms: int = 1_000, *, ready: bool = False) -> None:
        super().__init__(delay_ms)
        self.ready = ready
        self.attempts = 0
        self.completions = 0
        self.expirations = 0
        self.completed = threading.Event()

    def try_complete(self) -> bool:
        self.attempts += 1
        return self.ready and self.force_complete()

    def on_complete(self) -> None:
        self.completions += 1
        self.completed.set()

    def on_expiration(self) -> None:
        self.expirations += 1


Purgatory = DelayedOperationPurgatory[Any]


@pytest.fixture
def purgatory() -> Iterator[Purgatory]:
    """One that only the test's own calls drive."""
    purgatory: Purgatory = DelayedOperationPurgatory("Test", MockTimer(), reaper_enabled=False)
    yield purgatory
    purgatory.shutdown()


@pytest.mark.mechanism("N14")
class TestCompletion:
    def test_it_can_be_seen_whether_anybody_waits(self, purgatory: Purgatory) -> None:
        operation = Operation()
        assert not purgatory.is_watched(("t", 0))
        purgatory.try_complete_else_watch(operation, [("t", 0), ("t", 1)])
        assert [purgatory.is_watched(("t", number)) for number in range(3)] == [True, True, False]
        operation.ready = True
        assert purgatory.check_and_complete(("t", 0)) == 1
        assert not purgatory.is_watched(("t", 0))

    def test_what_can_be_completed_now_is_not_parked(self, purgatory: Purgatory) -> None:
        operation = Operation(ready=True)
        assert purgatory.try_complete_else_watch(operation, ["a", "b"])
        assert operation.attempts == 1
        assert operation.completions == 1
        assert purgatory.watched() == 0
        assert purgatory.num_delayed() == 0

    def test_what_cannot_is_parked_under_each_key_after_two_attempts(self, purgatory: Purgatory) -> None:
        operation = Operation()
        assert not purgatory.try_complete_else_watch(operation, ["a", "b", "c"])
        assert operation.attempts == 2  # not one for each key
        assert purgatory.watched() == 3
        assert sorted(map(str, purgatory.watched_keys())) == ["a", "b", "c"]
        assert purgatory.num_delayed() == 1

    def test_an_event_completes_what_has_become_ready(self, purgatory: Purgatory) -> None:
        first, second = Operation(), Operation()
        purgatory.try_complete_else_watch(first, ["a"])
        purgatory.try_complete_else_watch(second, ["b"])
        assert purgatory.check_and_complete("a") == 0
        first.ready = True
        assert purgatory.check_and_complete("b") == 0
        assert purgatory.check_and_complete("a") == 1
        assert first.completions == 1
        assert first.expirations == 0
        second.ready = True
        assert purgatory.check_and_complete("b") == 1
        assert purgatory.watched() == 0
        assert purgatory.num_delayed() == 0

    def test_one_event_completes_many_in_the_order_they_came(self, purgatory: Purgatory) -> None:
        order: list[int] = []

        class Numbered(Operation):
            def __init__(self, number: int) -> None:
                super().__init__()
                self.number = number

            def on_complete(self) -> None:
                order.append(self.number)

        operations = [Numbered(number) for number in range(20)]
        for operation in operations:
            purgatory.try_complete_else_watch(operation, ["a"])
        for operation in operations[::2]:
            operation.ready = True
        assert purgatory.check_and_complete("a") == 10
        assert order == list(range(0, 20, 2))
        assert purgatory.watched() == 10

    def test_an_event_that_nobody_waits_for(self, purgatory: Purgatory) -> None:
        assert purgatory.check_and_complete("nobody") == 0
        assert purgatory.watched_keys() == []

    def test_it_needs_a_key(self, purgatory: Purgatory) -> None:
        operation = Operation(ready=True)
        with pytest.raises(ValueError, match="no key"):
            purgatory.try_complete_else_watch(operation, [])
        assert operation.completions == 0

    def test_the_timeout_completes_what_no_event_did(self, purgatory: Purgatory) -> None:
        operation = Operation(50)
        purgatory.try_complete_else_watch(operation, ["a"])
        purgatory.advance_clock(49)
        assert operation.completions == 0
        purgatory.advance_clock(1)
        assert (operation.completions, operation.expirations) == (1, 1)
        assert purgatory.num_delayed() == 0
        operation.ready = True
        assert purgatory.check_and_complete("a") == 0
        assert operation.completions == 1

    def test_without_a_timer_nothing_expires(self) -> None:
        purgatory: Purgatory = DelayedOperationPurgatory("Test", MockTimer(), reaper_enabled=False, timer_enabled=False)
        operation = Operation(50)
        purgatory.try_complete_else_watch(operation, ["a"])
        assert purgatory.num_delayed() == 0
        purgatory.advance_clock(100_000)
        assert operation.completions == 0
        operation.ready = True
        assert purgatory.check_and_complete("a") == 1

    def test_the_same_key_twice_is_watched_once(self, purgatory: Purgatory) -> None:
        purgatory.try_complete_else_watch(Operation(), ["a", "a"])
        assert purgatory.watched() == 1

    def test_operations_with_equality_of_their_own(self, purgatory: Purgatory) -> None:
        @dataclass
        class Equal(Operation):  # a dataclass has no hash
            name: str

            def __post_init__(self) -> None:
                super().__init__()

        first, second = Equal("same"), Equal("same")
        assert first == second
        for operation in (first, second):
            purgatory.try_complete_else_watch(operation, ["a"])
        assert purgatory.watched() == 2
        second.ready = True
        assert purgatory.check_and_complete("a") == 1
        assert not first.is_completed()

    def test_an_event_inside_a_completion(self, purgatory: Purgatory) -> None:
        """A completion may lead to events, also for the key that it was completed by."""
        follower = Operation()

        class Leader(Operation):
            def on_complete(self) -> None:
                super().on_complete()
                follower.ready = True
                assert purgatory.check_and_complete("a") == 1

        leader = Leader()
        purgatory.try_complete_else_watch(leader, ["a"])
        purgatory.try_complete_else_watch(follower, ["a"])
        leader.ready = True
        assert purgatory.check_and_complete("a") == 1
        assert leader.completions == follower.completions == 1
        assert purgatory.watched() == 0

    def test_a_bad_operation_does_not_keep_the_others_from_completing(
        self, purgatory: Purgatory, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Bad(Operation):
            def try_complete(self) -> bool:
                if self.ready:
                    raise OSError("cannot look")
                return False

        class BadAtTheEnd(Operation):
            def on_complete(self) -> None:
                super().on_complete()
                raise OSError("cannot respond")

        bad, bad_at_the_end, good = Bad(), BadAtTheEnd(), Operation()
        for operation in (bad, bad_at_the_end, good):
            purgatory.try_complete_else_watch(operation, ["a"])
        for operation in (bad, bad_at_the_end, good):
            operation.ready = True
        assert purgatory.check_and_complete("a") == 1
        assert good.completions == 1
        assert "cannot look" in caplog.text
        assert "cannot respond" in caplog.text
        assert purgatory.watched() == 1  # the bad one waits for its timeout
        purgatory.advance_clock(1_000)
        assert (bad.completions, bad.expirations) == (1, 1)
        assert bad_at_the_end.completions == 1

    @pytest.mark.parametrize("attempt", [1, 2])
    def test_an_operation_that_fails_to_be_parked_never_responds(self, purgatory: Purgatory, attempt: int) -> None:
        """Its caller gets the error and answers the request with it: a second answer must not follow."""

        class Bad(Operation):
            def try_complete(self) -> bool:
                self.attempts += 1
                if self.attempts == attempt:
                    raise OSError("cannot look")
                return self.ready and self.force_complete()

        operation = Bad()
        with pytest.raises(OSError, match="cannot look"):
            purgatory.try_complete_else_watch(operation, ["a"])
        operation.ready = True
        assert purgatory.check_and_complete("a") == 0
        purgatory.advance_clock(10_000)
        assert operation.completions == 0
        assert purgatory.watched() == 0
        assert purgatory.num_delayed() == 0

    def test_a_fatal_error_gets_through(self, purgatory: Purgatory) -> None:
        class Fatal(Operation):
            def try_complete(self) -> bool:
                if self.ready:
                    raise FatalExitError
                return False

        operation = Fatal()
        purgatory.try_complete_else_watch(operation, ["a"])
        operation.ready = True
        with pytest.raises(FatalExitError):
            purgatory.check_and_complete("a")


@pytest.mark.mechanism("N16")
class TestWatcherLists:
    def test_there_are_512_shards(self, purgatory: Purgatory) -> None:
        assert SHARDS == 512
        assert len(purgatory._shards) == 0, "none before it is needed"
        assert len({id(purgatory._shards[number]._lock) for number in range(512)}) == 512
        assert len(purgatory._shards.made()) == 512

    def test_keys_are_spread_over_the_shards_and_found_again(self, purgatory: Purgatory) -> None:
        keys: list[Hashable] = [("topic", partition) for partition in range(5_000)]
        operation = Operation()
        purgatory.try_complete_else_watch(operation, keys)
        used = sum(bool(shard.count()) for shard in purgatory._shards.made())
        assert used > 480
        assert purgatory.watched() == 5_000
        assert set(purgatory.watched_keys()) == set(keys)

    @pytest.mark.parametrize("key", [-1, -513, 2**70, -(2**70), "x", ("t", 0), None, frozenset()])
    def test_any_hashable_is_a_key(self, purgatory: Purgatory, key: Hashable) -> None:
        purgatory.try_complete_else_watch(operation := Operation(), [key])
        operation.ready = True
        assert purgatory.check_and_complete(key) == 1

    def test_keys_of_one_shard_are_apart(self, purgatory: Purgatory) -> None:
        first, second = Operation(), Operation()
        purgatory.try_complete_else_watch(first, [3])
        purgatory.try_complete_else_watch(second, [3 + SHARDS])
        first.ready = second.ready = True
        assert purgatory.check_and_complete(3) == 1
        assert not second.is_completed()

    def test_an_empty_list_is_removed(self, purgatory: Purgatory) -> None:
        for number in range(1_000):
            purgatory.try_complete_else_watch(operation := Operation(), [number])
            operation.ready = True
            purgatory.check_and_complete(number)
        assert purgatory.watched_keys() == []


@pytest.mark.mechanism("N16")
class TestPurge:
    def make(self, purge_interval: int, timer: Timer | None = None) -> Purgatory:
        return DelayedOperationPurgatory(
            "Test", timer or MockTimer(), purge_interval=purge_interval, reaper_enabled=False
        )

    def park_and_complete(self, purgatory: Purgatory, key: Hashable = "event") -> Operation:
        """The operation stays behind under its second key, which never sees an event."""
        operation = Operation()
        purgatory.try_complete_else_watch(operation, [key, ("silent", id(operation))])
        operation.ready = True
        assert purgatory.check_and_complete(key) == 1
        return operation

    def test_completed_operations_stay_until_more_than_the_interval_have_gathered(self) -> None:
        purgatory = self.make(purge_interval=10)
        kept = [self.park_and_complete(purgatory) for _ in range(10)]
        purgatory.advance_clock(0)
        assert purgatory.watched() == 10
        kept.append(self.park_and_complete(purgatory))
        purgatory.advance_clock(0)
        assert purgatory.watched() == 0
        assert purgatory.watched_keys() == []
        self.park_and_complete(purgatory)  # the count starts anew
        purgatory.advance_clock(0)
        assert purgatory.watched() == 1

    def test_the_default_interval_is_1000(self) -> None:
        purgatory: Purgatory = DelayedOperationPurgatory("Test", MockTimer(), reaper_enabled=False)
        for _ in range(1_000):
            self.park_and_complete(purgatory)
        purgatory.advance_clock(0)
        assert purgatory.watched() == 1_000
        self.park_and_complete(purgatory)
        purgatory.advance_clock(0)
        assert purgatory.watched() == 0

    def test_interval_0_purges_every_cycle(self) -> None:
        purgatory = self.make(purge_interval=0)
        for _ in range(3):
            self.park_and_complete(purgatory)
            assert purgatory.watched() == 1
            purgatory.advance_clock(0)
            assert purgatory.watched() == 0

    def test_operations_that_still_wait_are_kept(self) -> None:
        purgatory = self.make(purge_interval=0)
        waiting = [Operation() for _ in range(5)]
        for operation in waiting:
            purgatory.try_complete_else_watch(operation, ["event", "other"])
        self.park_and_complete(purgatory)
        purgatory.advance_clock(0)
        assert purgatory.watched() == 10
        assert purgatory.num_delayed() == 5
        for operation in waiting:
            operation.ready = True
        assert purgatory.check_and_complete("other") == 5
        purgatory.advance_clock(0)
        assert purgatory.watched() == 0

    def test_expired_operations_are_purged_in_the_same_cycle(self) -> None:
        purgatory = self.make(purge_interval=0)
        purgatory.try_complete_else_watch(Operation(50), ["a", "b"])
        purgatory.advance_clock(50)
        assert purgatory.watched() == 0

    def test_one_completed_by_the_second_attempt_is_purged(self) -> None:
        class ReadyOnSecondLook(Operation):
            def try_complete(self) -> bool:
                self.attempts += 1
                return self.attempts == 2 and self.force_complete()

        purgatory = self.make(purge_interval=0)
        assert purgatory.try_complete_else_watch(ReadyOnSecondLook(), ["a", "b"])
        assert purgatory.num_delayed() == 0
        assert purgatory.watched() == 2
        purgatory.advance_clock(0)
        assert purgatory.watched() == 0

    def test_one_completed_at_once_does_not_count(self) -> None:
        purgatory = self.make(purge_interval=0)
        for _ in range(10):
            purgatory.try_complete_else_watch(Operation(ready=True), ["a"])
        assert purgatory._estimated_total == 0

    def test_what_is_purged_is_freed_at_once(self) -> None:
        """The point of interval 0: such an operation may hold a buffer of many megabytes."""
        purgatory = self.make(purge_interval=0)
        gc.disable()
        try:
            operation = self.park_and_complete(purgatory)
            freed = weakref.ref(operation)
            del operation
            assert freed() is not None  # the silent key has it
            purgatory.advance_clock(0)
            assert freed() is None
        finally:
            gc.enable()

    def test_a_purge_while_an_operation_is_being_parked_does_not_lose_count(self) -> None:
        """An operation is under its keys but not yet on the timer when a purge starts to count anew.

        Were it counted before the purge, the new count would lack it while the timer has it, and the difference of the
        two, by which a purge is due, would be one too small for ever.
        """

        class Interrupted(MockTimer):
            before_add: Callable[[], object] = staticmethod(lambda: None)

            def add(self, task: TimerTask) -> None:
                self.before_add()
                super().add(task)

        timer = Interrupted()
        purgatory = self.make(purge_interval=0, timer=timer)
        waiting = Operation(100_000)
        self.park_and_complete(purgatory)
        timer.before_add = lambda: purgatory.advance_clock(0)
        purgatory.try_complete_else_watch(waiting, ["x"])
        timer.before_add = lambda: None
        assert purgatory.watched() == 1
        self.park_and_complete(purgatory)
        purgatory.advance_clock(0)
        assert purgatory.watched() == 1  # just the one that waits

    def test_no_watcher_is_left_after_a_long_life(self) -> None:
        purgatory = self.make(purge_interval=100)
        freed: list[weakref.ref[Operation]] = []
        for number in range(3_000):
            operation = Operation(20)
            purgatory.try_complete_else_watch(operation, [number, ("p", number % 7), "all"])
            freed.append(weakref.ref(operation))
            match number % 3:
                case 0:
                    operation.ready = True
                    purgatory.check_and_complete(number)
                case 1:
                    operation.ready = True
                    purgatory.check_and_complete(("p", number % 7))
            if number % 50 == 0:
                purgatory.advance_clock(10)
            del operation
            bound = 3 * (150 + 50 + 50 + 1)
            assert purgatory.watched() <= bound
        purgatory.advance_clock(1_000)
        purgatory.check_and_complete("all")
        for key in purgatory.watched_keys():
            purgatory.check_and_complete(key)
        assert purgatory.watched() == 0
        assert purgatory.watched_keys() == []
        assert purgatory.num_delayed() == 0
        gc.collect()
        assert [ref for ref in freed if ref() is not None] == []


class CountingClock(MockClock):
    """Says how often a thread has begun to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0

    def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:
        with self._changed:
            self.waits += 1
            self._changed.notify_all()
        return super().wait(condition, timeout_ms)

    def await_waits(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.waits >= count, WAIT_S)


class Running:
    """A purgatory with its real threads, on a clock that the test moves."""

    def __init__(self, name: str = "Fetch", broker_id: int = 7, purge_interval: int = 1_000) -> None:
        self.clock = CountingClock()
        self.timer = SystemTimer(name, self.clock)
        self.purgatory: Purgatory = DelayedOperationPurgatory(name, self.timer, broker_id, purge_interval)

    def advance(self, milliseconds: int) -> None:
        """Moves the clock when the reaper waits, and returns when it waits again."""
        assert self.clock.await_waiters()
        before = self.clock.waits
        self.clock.advance(milliseconds)
        self.clock.await_waits(before + 1)


@pytest.fixture
def running() -> Iterator[Running]:
    running = Running()
    yield running
    running.purgatory.shutdown()


@pytest.mark.mechanism("N15")
class TestReaper:
    def test_it_expires_what_is_due(self, running: Running) -> None:
        operation = Operation(350)
        running.purgatory.try_complete_else_watch(operation, ["a"])
        running.advance(200)
        running.advance(149)
        assert not operation.is_completed()
        running.advance(1)
        assert operation.completed.wait(WAIT_S)
        assert running.purgatory.num_delayed() == 0

    def test_it_is_woken_by_an_operation_that_is_due_earlier(self, running: Running) -> None:
        assert running.clock.await_waiters()
        operation = Operation(10)  # the reaper has gone to wait for 200 ms
        running.purgatory.try_complete_else_watch(operation, ["a"])
        running.clock.await_waits(2)
        running.clock.advance(10)
        assert operation.completed.wait(WAIT_S)

    def test_it_purges(self) -> None:
        running = Running(purge_interval=0)
        operation = Operation()
        running.purgatory.try_complete_else_watch(operation, ["a", "b"])
        operation.ready = True
        running.purgatory.check_and_complete("a")
        running.advance(200)
        running.advance(200)
        assert running.purgatory.watched() == 0
        running.purgatory.shutdown()

    def test_operations_complete_on_the_executor(self, running: Running) -> None:
        threads: list[str] = []

        class Where(Operation):
            def on_complete(self) -> None:
                threads.append(threading.current_thread().name)
                super().on_complete()

        operation = Where(5)
        running.purgatory.try_complete_else_watch(operation, ["a"])
        running.advance(5)
        assert operation.completed.wait(WAIT_S)
        assert threads == ["executor-Fetch"]


@pytest.mark.mechanism("N22")
class TestThreads:
    def test_one_reaper_and_one_executor_with_the_documented_names_and_no_daemons(self) -> None:
        before = set(threading.enumerate())
        running = Running("Produce", broker_id=3)
        threads = set(threading.enumerate()) - before
        assert sorted(thread.name for thread in threads) == ["ExpirationReaper-3-Produce", "executor-Produce"]
        assert not any(thread.daemon for thread in threads)
        running.purgatory.shutdown()
        assert not any(thread.is_alive() for thread in threads)
        assert set(threading.enumerate()) <= before

    def test_without_a_reaper_there_is_none(self) -> None:
        timer = SystemTimer("NoReaper", MockClock())
        purgatory: Purgatory = DelayedOperationPurgatory("NoReaper", timer, reaper_enabled=False)
        assert [thread.name for thread in threading.enumerate() if "NoReaper" in thread.name] == ["executor-NoReaper"]
        purgatory.shutdown()
        assert [thread.name for thread in threading.enumerate() if "NoReaper" in thread.name] == []

    def test_shutdown_wakes_the_reaper_though_time_stands_still(self) -> None:
        for wheel_is_up_to_date in (False, True):
            running = Running()
            if wheel_is_up_to_date:
                operation = Operation(5)
                running.purgatory.try_complete_else_watch(operation, ["a"])
                running.advance(5)
            assert running.clock.await_waiters()
            closer = threading.Thread(target=running.purgatory.shutdown)
            closer.start()
            closer.join(WAIT_S)
            assert not closer.is_alive()

    def test_shutdown_again_is_harmless_and_keeps_what_waits(self) -> None:
        running = Running()
        operation = Operation()
        running.purgatory.try_complete_else_watch(operation, ["a"])
        running.purgatory.shutdown()
        running.purgatory.shutdown()
        assert not operation.is_completed()
        operation.ready = True
        assert running.purgatory.check_and_complete("a") == 1  # an event still completes it

    def test_what_comes_after_shutdown_does_not_wait(self) -> None:
        """Nobody is left to end the wait, so the operation ends as if its time was over."""
        running = Running()
        running.purgatory.shutdown()
        operation = Operation()
        assert not running.purgatory.try_complete_else_watch(operation, ["a"])
        assert (operation.completions, operation.expirations) == (1, 1)

    def test_it_can_be_printed(self, purgatory: Purgatory) -> None:
        purgatory.try_complete_else_watch(Operation(), ["a", "b"])
        assert repr(purgatory) == "<DelayedOperationPurgatory Test: 1 delayed, 2 watched>"
