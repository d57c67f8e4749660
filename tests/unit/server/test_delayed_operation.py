"""The contract of a delayed operation: completed exactly once, whoever comes first."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from barnabas.server.purgatory import DelayedOperation
from barnabas.server.timer.mock_timer import MockTimer

WAIT_S = 30

pytestmark = pytest.mark.mechanism("N14")


class Operation(DelayedOperation):
    """Can be completed when ``ready``, and writes down what happens to it."""

    def __init__(self, delay_ms: int = 1_000) -> None:
        super().__init__(delay_ms)
        self.ready = False
        self.history: list[str] = []

    def try_complete(self) -> bool:
        self.history.append("try")
        return self.ready and self.force_complete()

    def on_complete(self) -> None:
        self.history.append("complete")

    def on_expiration(self) -> None:
        self.history.append("expire")


class TellingLock:
    """A re-entrant lock that says when a thread is about to wait for it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.contended = threading.Event()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.contended.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.fixture
def eager_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def all_at_once(*calls: Callable[[], object]) -> list[object]:
    """Calls each on a thread of its own, all released by one barrier; returns what they returned."""
    barrier = threading.Barrier(len(calls))
    results: list[object] = [None] * len(calls)

    def call(number: int) -> None:
        barrier.wait(WAIT_S)
        results[number] = calls[number]()

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    return results


def test_force_complete_completes_once() -> None:
    operation = Operation()
    assert not operation.is_completed()
    assert operation.force_complete()
    assert operation.is_completed()
    assert not operation.force_complete()
    assert operation.history == ["complete"]


def test_completion_takes_it_off_the_timer() -> None:
    timer = MockTimer()
    operation = Operation(50)
    timer.add(operation)
    operation.force_complete()
    assert timer.size() == 0
    timer.advance_clock(100)
    assert operation.history == ["complete"]


def test_expiry_completes_and_then_says_so() -> None:
    timer = MockTimer()
    operation = Operation(50)
    timer.add(operation)
    timer.advance_clock(49)
    assert operation.history == []
    timer.advance_clock(1)
    assert operation.history == ["complete", "expire"]
    assert operation.is_completed()


def test_expiry_after_completion_does_nothing() -> None:
    """The executor may have it in hand when an event completes it."""
    operation = Operation()
    operation.force_complete()
    operation.run()
    assert operation.history == ["complete"]


def test_it_is_complete_when_on_complete_runs() -> None:
    """So that a completion that sets off another event does not come back to itself."""
    seen: list[bool] = []

    class Looking(Operation):
        def on_complete(self) -> None:
            seen.append(self.is_completed())
            seen.append(self.force_complete())

    assert Looking().force_complete()
    assert seen == [True, False]


def test_safe_try_complete() -> None:
    operation = Operation()
    assert not operation.safe_try_complete()
    operation.ready = True
    assert operation.safe_try_complete()
    assert not operation.safe_try_complete()
    assert operation.history == ["try", "try", "complete"]  # after completion nothing is tried


def test_or_else_acts_between_two_attempts() -> None:
    operation = Operation()
    assert not operation.safe_try_complete_or_else(lambda: operation.history.append("action"))
    assert operation.history == ["try", "action", "try"]


def test_or_else_does_nothing_if_the_first_attempt_succeeds() -> None:
    operation = Operation()
    operation.ready = True
    assert operation.safe_try_complete_or_else(lambda: operation.history.append("action"))
    assert operation.history == ["try", "complete"]


def test_or_else_sees_what_became_true_meanwhile() -> None:
    operation = Operation()
    assert operation.safe_try_complete_or_else(lambda: setattr(operation, "ready", True))
    assert operation.history == ["try", "try", "complete"]


def test_or_else_holds_the_lock_from_the_first_attempt_to_the_second() -> None:
    operation = Operation()
    free: list[bool] = []

    def probe() -> None:
        thread = threading.Thread(target=lambda: free.append(operation._lock.acquire(blocking=False)))
        thread.start()
        thread.join(WAIT_S)

    operation.safe_try_complete_or_else(probe)
    assert free == [False]
    probe()
    assert free == [False, True]


def test_try_complete_and_on_complete_never_overlap() -> None:
    """A timeout that strikes while an event looks at the operation waits until it has looked."""
    looking, may_finish = threading.Event(), threading.Event()
    history: list[str] = []

    class Slow(Operation):
        def try_complete(self) -> bool:
            history.append("looks")
            looking.set()
            assert may_finish.wait(WAIT_S)
            history.append("has looked")
            return False

        def on_complete(self) -> None:
            history.append("completes")

    operation = Slow()
    operation._lock = lock = TellingLock()  # type: ignore[assignment]
    event = threading.Thread(target=operation.safe_try_complete)
    event.start()
    assert looking.wait(WAIT_S)
    timeout = threading.Thread(target=operation.run)
    timeout.start()
    assert lock.contended.wait(WAIT_S)
    may_finish.set()
    event.join(WAIT_S)
    timeout.join(WAIT_S)
    assert history == ["looks", "has looked", "completes"]


def test_a_loser_does_not_wait_for_the_winner() -> None:
    completing, may_finish = threading.Event(), threading.Event()

    class Slow(Operation):
        def on_complete(self) -> None:
            completing.set()
            assert may_finish.wait(WAIT_S)

    operation = Slow()
    winner = threading.Thread(target=operation.force_complete)
    winner.start()
    assert completing.wait(WAIT_S)
    assert not operation.force_complete()
    may_finish.set()
    winner.join(WAIT_S)


def test_a_completion_that_fails_is_still_the_only_one() -> None:
    class Failing(Operation):
        def on_complete(self) -> None:
            self.history.append("complete")
            raise OSError("connection lost")

    operation = Failing()
    with pytest.raises(OSError, match="connection lost"):
        operation.force_complete()
    assert operation.is_completed()
    assert not operation.force_complete()
    assert operation.history == ["complete"]


def test_an_abandoned_operation_is_never_completed() -> None:
    timer = MockTimer()
    operation = Operation(50)
    operation.ready = True
    timer.add(operation)
    assert operation.abandon()
    assert not operation.abandon()
    assert operation.is_completed()
    assert timer.size() == 0
    assert not operation.safe_try_complete()
    operation.run()
    assert operation.history == []


@pytest.mark.usefixtures("eager_switching")
def test_exactly_one_of_many_threads_completes_it() -> None:
    for number in range(200):
        abandon = number % 4 == 0
        operation = Operation()
        operation.ready = True
        results = all_at_once(
            operation.force_complete,
            operation.force_complete,
            operation.safe_try_complete,
            operation.safe_try_complete,
            operation.abandon if abandon else operation.force_complete,
        )
        assert sorted(map(bool, results)) == [False, False, False, False, True]
        assert operation.history.count("complete") == (0 if abandon and results[4] else 1)


@pytest.mark.usefixtures("eager_switching")
def test_timeout_and_event_together_complete_it_once() -> None:
    for _ in range(200):
        operation = Operation()
        operation.ready = True
        _, by_event = all_at_once(operation.run, operation.safe_try_complete)
        assert operation.history.count("complete") == 1
        assert ("expire" in operation.history) != by_event


def test_it_can_be_printed() -> None:
    operation = Operation(30)
    assert repr(operation) == "<Operation delay=30ms pending>"
    operation.force_complete()
    assert repr(operation) == "<Operation delay=30ms completed>"
