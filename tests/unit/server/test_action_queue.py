"""Actions at the end of a request."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from barnabas.common.shutdownable_thread import FatalExitError
from barnabas.server.action_queue import DelayedActionQueue

WAIT_S = 60

pytestmark = pytest.mark.mechanism("R02")


def on_another_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_actions_wait_for_the_end_of_the_request_and_run_in_order() -> None:
    queue = DelayedActionQueue()
    ran: list[int] = []
    for number in range(5):
        queue.add(lambda number=number: ran.append(number))  # type: ignore[misc]
    assert ran == []
    assert queue.pending() == 5
    assert queue.try_complete_actions() == 5
    assert ran == [0, 1, 2, 3, 4]
    assert queue.pending() == 0
    assert queue.try_complete_actions() == 0


def test_an_action_is_run_by_the_thread_that_added_it() -> None:
    queue = DelayedActionQueue()
    ran_on: list[int] = []
    queue.add(lambda: ran_on.append(threading.get_ident()))

    def another_request() -> None:
        assert queue.pending() == 0
        assert queue.try_complete_actions() == 0

    on_another_thread(another_request)
    assert ran_on == []
    assert queue.try_complete_actions() == 1
    assert ran_on == [threading.get_ident()]


def test_an_action_runs_when_the_lock_of_its_request_is_free() -> None:
    """What the queue is for: the event needs the lock under which it came about."""
    queue = DelayedActionQueue()
    partition_lock = threading.Lock()
    seen: list[bool] = []

    def complete_fetches() -> None:
        seen.append(partition_lock.acquire(blocking=False))

    try:
        with partition_lock:
            queue.add(complete_fetches)
            # Another handler ends its request now; it must not run into our lock.
            on_another_thread(queue.try_complete_actions)
    finally:
        queue.try_complete_actions()
    assert seen == [True]


def test_an_action_may_add_actions() -> None:
    queue = DelayedActionQueue()
    ran: list[str] = []

    def first() -> None:
        ran.append("first")
        queue.add(lambda: ran.append("third"))

    queue.add(first)
    queue.add(lambda: ran.append("second"))
    assert queue.try_complete_actions() == 3
    assert ran == ["first", "second", "third"]


def test_an_action_that_ends_a_request_of_its_own_does_not_nest() -> None:
    """A completion may go through code that drains the queue; the actions behind it must not run inside it."""
    queue = DelayedActionQueue()
    ran: list[str] = []

    def outer() -> None:
        assert queue.try_complete_actions() == 0
        ran.append("outer is done")

    queue.add(outer)
    queue.add(lambda: ran.append("inner"))
    assert queue.try_complete_actions() == 2
    assert ran == ["outer is done", "inner"]


def test_an_action_that_fails_is_logged_and_the_rest_run(caplog: pytest.LogCaptureFixture) -> None:
    queue = DelayedActionQueue()
    ran: list[str] = []

    def fail() -> None:
        raise OSError("no such partition")

    queue.add(fail)
    queue.add(lambda: ran.append("after"))
    assert queue.try_complete_actions() == 2
    assert ran == ["after"]
    assert "no such partition" in caplog.text


def test_a_fatal_error_gets_through_and_leaves_the_queue_usable() -> None:
    queue = DelayedActionQueue()
    ran: list[str] = []

    def fail() -> None:
        raise FatalExitError

    queue.add(fail)
    queue.add(lambda: ran.append("after"))
    with pytest.raises(FatalExitError):
        queue.try_complete_actions()
    assert queue.try_complete_actions() == 1
    assert ran == ["after"]
