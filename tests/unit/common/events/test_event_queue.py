"""The event queue: order, deadlines, deferred events, shutdown, and its thread."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.errors import KafkaTimeoutError
from barnabas.common.events.event_queue import FEW_STALE, EventQueueClosedError, KafkaEventQueue
from barnabas.common.shutdownable_thread import FatalExitError

MS = 1_000_000


class Note:
    """Writes down what happened to it."""

    def __init__(self, name: str, notes: list[str], error: BaseException | None = None) -> None:
        self._name = name
        self._notes = notes
        self._error = error

    def run(self) -> None:
        self._notes.append(self._name)
        if self._error is not None:
            raise self._error

    def handle_exception(self, error: Exception) -> None:
        self._notes.append(f"{self._name}: {type(error).__name__}")


@pytest.fixture
def clock() -> MockClock:
    return MockClock()


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def queue(clock: MockClock) -> KafkaEventQueue:
    return KafkaEventQueue("queue", clock)


def test_events_run_in_order_and_a_prepended_one_first(queue: KafkaEventQueue, notes: list[str]) -> None:
    for name in "ab":
        queue.append(Note(name, notes))
    queue.prepend(Note("first", notes))
    assert len(queue) == 3
    assert queue.run_until_idle() == 3
    assert notes == ["first", "a", "b"]
    assert len(queue) == 0
    assert not queue.run_once()


def test_an_event_that_waits_past_its_deadline_is_told_so(
    queue: KafkaEventQueue, clock: MockClock, notes: list[str]
) -> None:
    queue.append(Note("late", notes), deadline_ns=clock.nanoseconds() + 5 * MS)
    queue.append(Note("patient", notes))
    clock.advance(5)
    queue.run_until_idle()
    assert notes == ["late: KafkaTimeoutError", "patient"]


def test_an_event_that_has_run_is_not_kept_until_its_deadline(
    queue: KafkaEventQueue, clock: MockClock, notes: list[str]
) -> None:
    """A client may set a time-out of 24 days, and send as many requests with it as it likes."""
    in_24_days = clock.nanoseconds() + (2**31 - 1) * MS
    queue.schedule_deferred("periodic", clock.nanoseconds() + MS, Note("periodic", notes))
    kept: list[weakref.ref[Note]] = []
    for number in range(1_000):
        event = Note(str(number), [])
        kept.append(weakref.ref(event))
        queue.append(event, in_24_days + number)
        queue.schedule_deferred("replaced", in_24_days, event)
        del event
        queue.run_until_idle()
    assert sum(reference() is not None for reference in kept) == 1, "the deferred one; each may be a request of 10 MB"
    assert sum(type(one).__name__ == "_Entry" for one in gc.get_objects()) <= 2 * FEW_STALE + 2, "nor their deadlines"
    clock.advance(1)
    assert queue.run_until_idle() == 1
    assert notes == ["periodic"]
    assert queue.next_deadline_ns() == in_24_days
    assert len(queue) == 1


def test_an_event_that_runs_in_time_does_not_time_out_later(
    queue: KafkaEventQueue, clock: MockClock, notes: list[str]
) -> None:
    queue.append(Note("a", notes), deadline_ns=clock.nanoseconds() + 5 * MS)
    queue.run_until_idle()
    clock.advance(50)
    queue.run_until_idle()
    assert notes == ["a"]
    assert queue.next_deadline_ns() is None


def test_a_deferred_event_runs_when_its_time_comes_before_what_is_queued(
    queue: KafkaEventQueue, clock: MockClock, notes: list[str]
) -> None:
    queue.schedule_deferred("tag", clock.nanoseconds() + 10 * MS, Note("deferred", notes))
    queue.run_until_idle()
    assert notes == []
    clock.advance(10)
    queue.append(Note("queued", notes))
    queue.run_until_idle()
    assert notes == ["deferred", "queued"]


def test_a_tag_has_one_event(queue: KafkaEventQueue, clock: MockClock, notes: list[str]) -> None:
    now = clock.nanoseconds()
    queue.schedule_deferred("tag", now + 10 * MS, Note("old", notes))
    queue.schedule_deferred("tag", now + 20 * MS, Note("new", notes))
    assert len(queue) == 1
    clock.advance(15)
    queue.run_until_idle()
    assert notes == []
    clock.advance(5)
    queue.run_until_idle()
    assert notes == ["new"]


def test_the_earlier_time_can_be_kept(queue: KafkaEventQueue, clock: MockClock, notes: list[str]) -> None:
    now = clock.nanoseconds()
    queue.schedule_deferred("tag", now + 10 * MS, Note("old", notes))
    queue.schedule_deferred("tag", now + 20 * MS, Note("new", notes), earliest=True)
    clock.advance(10)
    queue.run_until_idle()
    assert notes == ["new"]


def test_a_deferred_event_can_be_cancelled(queue: KafkaEventQueue, clock: MockClock, notes: list[str]) -> None:
    queue.schedule_deferred("tag", clock.nanoseconds() + 10 * MS, Note("deferred", notes))
    queue.cancel_deferred("tag")
    queue.cancel_deferred("other")
    clock.advance(20)
    queue.run_until_idle()
    assert (notes, len(queue)) == ([], 0)


def test_an_error_goes_to_the_event_and_the_queue_goes_on(queue: KafkaEventQueue, notes: list[str]) -> None:
    queue.append(Note("bad", notes, ValueError("no")))
    queue.append(Note("good", notes))
    queue.run_until_idle()
    assert notes == ["bad", "bad: ValueError", "good"]


def test_shutdown_refuses_what_has_a_time_and_runs_the_rest(
    queue: KafkaEventQueue, clock: MockClock, notes: list[str]
) -> None:
    queue.append(Note("plain", notes))
    queue.append(Note("deadline", notes), deadline_ns=clock.nanoseconds() + 10 * MS)
    queue.schedule_deferred("tag", clock.nanoseconds() + 20 * MS, Note("deferred", notes))
    queue.begin_shutdown("the test")
    queue.append(Note("too late", notes))
    queue.close()
    assert notes == [
        "too late: EventQueueClosedError",
        "deadline: EventQueueClosedError",
        "deferred: EventQueueClosedError",
        "plain",
    ]


def test_the_thread_runs_events_of_others_and_waits_for_time(clock: MockClock) -> None:
    queue = KafkaEventQueue("quorum-controller-3-event-handler", clock)
    queue.start()
    names: list[str] = []
    ran = threading.Event()

    class Probe:
        def run(self) -> None:
            names.append(threading.current_thread().name)
            ran.set()

        def handle_exception(self, error: Exception) -> None:
            raise AssertionError(error)

    queue.append(Probe())
    assert ran.wait(60)
    ran.clear()
    queue.schedule_deferred("later", clock.nanoseconds() + 1000 * MS, Probe())
    assert clock.await_waiters(1)
    assert not ran.is_set()
    clock.advance(1000)
    assert ran.wait(60)
    queue.close()
    assert names == ["quorum-controller-3-event-handler"] * 2
    with pytest.raises(RuntimeError, match="already started"):
        queue.start()


def test_a_fatal_error_ends_the_thread_and_the_process(clock: MockClock, notes: list[str]) -> None:
    statuses: list[int] = []
    ended = threading.Event()

    def exit_procedure(status: int) -> None:
        statuses.append(status)
        ended.set()

    queue = KafkaEventQueue("queue", clock, exit_procedure)
    queue.start()
    queue.append(Note("fatal", notes, FatalExitError(3)))
    assert ended.wait(60)
    queue.append(Note("after", notes))
    queue.close()
    assert statuses == [3]
    assert notes == ["fatal", "after: EventQueueClosedError"]


def test_timeouts_are_api_errors() -> None:
    assert issubclass(KafkaTimeoutError, TimeoutError)
    assert not issubclass(EventQueueClosedError, KafkaTimeoutError)
