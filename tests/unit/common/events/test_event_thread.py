"""A thread that runs functions one after the other."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from barnabas.common.clock import SYSTEM_CLOCK
from barnabas.common.events.event_thread import EventThread
from barnabas.common.shutdownable_thread import FatalExitError

WAIT_S = 60


def made(exits: list[int] | None = None) -> EventThread:
    return EventThread("loader", SYSTEM_CLOCK, (exits if exits is not None else []).append)


def test_functions_run_in_order_on_one_thread_of_that_name() -> None:
    thread, done = made(), threading.Event()
    seen: list[tuple[int, str]] = []

    def note(number: int) -> None:
        seen.append((number, threading.current_thread().name))

    thread.execute(partial(note, 0))
    thread.start()
    for number in range(1, 5):
        thread.execute(partial(note, number))
    thread.execute(done.set)
    assert done.wait(WAIT_S)
    thread.close()
    assert seen == [(number, "loader") for number in range(5)]


def test_a_function_that_fails_is_logged_and_the_next_one_runs(caplog: pytest.LogCaptureFixture) -> None:
    thread, done = made(), threading.Event()
    thread.start()

    def broken() -> None:
        raise RuntimeError("oops")

    thread.execute(broken)
    thread.execute(done.set)
    assert done.wait(WAIT_S)
    thread.close()
    assert "oops" in caplog.text


def test_what_cannot_go_on_ends_the_process() -> None:
    exits: list[int] = []
    thread = made(exits)
    thread.start()

    def fatal() -> None:
        raise FatalExitError(3)

    thread.execute(fatal)
    thread.close()
    assert exits == [3]


def test_after_the_end_nothing_runs_and_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    thread = made()
    thread.start()
    thread.close()
    seen: list[int] = []
    thread.execute(lambda: seen.append(1))
    thread.close()
    assert seen == []
    assert caplog.text == ""
