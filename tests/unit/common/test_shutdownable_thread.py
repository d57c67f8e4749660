"""Threads that are told to stop: the loop, the two halves of shutdown, errors, fatal errors."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.shutdownable_thread import FatalExitError, ShutdownableThread

WAIT_S = 60
"""How long a test waits for another thread before it calls it stuck."""


class Worker(ShutdownableThread):
    """Runs a function per turn, and can be looked at from outside."""

    def __init__(
        self,
        work: Callable[[Worker], object],
        exit_procedure: Callable[[int], object] = lambda status: pytest.fail(f"exit with {status}"),
        clock: MockClock | None = None,
        daemon: bool = False,
    ) -> None:
        super().__init__("worker", exit_procedure=exit_procedure, clock=clock or MockClock(), daemon=daemon)
        self.work = work
        self.turns = 0
        self.turned = threading.Event()
        self.wake = threading.Event()
        self.wake_ups = 0

    def do_work(self) -> None:
        self.turns += 1
        self.turned.set()
        self.work(self)

    def on_shutdown_initiated(self) -> None:
        self.wake_ups += 1
        self.wake.set()


def block(worker: Worker) -> None:
    assert worker.wake.wait(WAIT_S)


@pytest.mark.mechanism("N22")
def test_it_has_its_name_and_is_no_daemon_unless_asked_for() -> None:
    assert Worker(block).name == "worker"
    assert not Worker(block).daemon
    assert Worker(block, daemon=True).daemon


def test_a_daemon_parent_does_not_make_it_a_daemon() -> None:
    """Python's threads inherit the flag; a purgatory may be made on a handler thread, which is a daemon."""
    made: list[Worker] = []
    parent = threading.Thread(target=lambda: made.append(Worker(block)), daemon=True)
    parent.start()
    parent.join(WAIT_S)
    assert not made[0].daemon


@pytest.mark.mechanism("N22")
def test_shutdown_ends_the_loop_and_joins_the_thread() -> None:
    worker = Worker(block)
    assert worker.is_running()
    assert not worker.is_started()
    worker.start()
    assert worker.turned.wait(WAIT_S)
    assert worker.is_started()
    assert worker.is_running()
    assert not worker.is_shutdown_initiated()
    worker.shutdown()
    assert not worker.is_alive()
    assert worker.is_shutdown_complete()
    assert not worker.is_thread_failed()
    assert worker.turns == 1


def test_work_repeats_until_shutdown() -> None:
    worker = Worker(lambda worker: worker.turns == 1_000 and worker.initiate_shutdown())
    worker.start()
    worker.join(WAIT_S)
    assert worker.turns == 1_000


def test_only_the_first_call_initiates() -> None:
    worker = Worker(block)
    worker.start()
    assert worker.initiate_shutdown()
    assert not worker.initiate_shutdown()
    assert worker.wake_ups == 1
    worker.await_shutdown()
    worker.shutdown()  # again: nothing happens
    assert worker.wake_ups == 1


def test_many_callers_of_shutdown_all_return() -> None:
    worker = Worker(block)
    worker.start()
    callers = [threading.Thread(target=worker.shutdown) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(WAIT_S)
        assert not caller.is_alive()
    assert worker.wake_ups == 1


def test_a_thread_that_never_started_can_be_shut_down() -> None:
    worker = Worker(block)
    worker.shutdown()
    assert not worker.is_alive()
    worker.start()  # and if it is started afterwards, it ends without working
    worker.join(WAIT_S)
    assert worker.turns == 0


def test_waiting_without_having_asked_is_an_error() -> None:
    worker = Worker(block)
    with pytest.raises(RuntimeError, match="shutdown was not requested"):
        worker.await_shutdown()


def test_an_exception_is_logged_and_ends_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Worker) -> None:
        raise OSError("disk gone")

    worker = Worker(fail)
    worker.start()
    worker.join(WAIT_S)
    assert worker.turns == 1
    assert worker.is_thread_failed()
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.exc_info is not None
    assert "disk gone" in str(record.exc_info[1])
    worker.shutdown()
    assert not worker.is_thread_failed()


def test_an_exception_after_shutdown_was_asked_for_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    def fail_when_woken(worker: Worker) -> None:
        block(worker)
        raise OSError("socket closed")

    worker = Worker(fail_when_woken)
    worker.start()
    worker.shutdown()
    assert not worker.is_thread_failed()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_fatal_error_exits_with_its_status() -> None:
    statuses: list[int] = []

    def fail(_: Worker) -> None:
        raise FatalExitError(3, "metadata log is corrupt")

    worker = Worker(fail, exit_procedure=statuses.append)
    worker.start()
    worker.join(WAIT_S)
    assert statuses == [3]
    assert worker.is_shutdown_complete()


def test_an_exit_procedure_may_shut_the_failed_thread_down() -> None:
    """An embedding program's exit procedure stops the broker, which waits for all threads, this one too."""

    def fail(_: Worker) -> None:
        raise FatalExitError

    def stop_everything(_: int) -> None:
        stopper = threading.Thread(target=worker.initiate_shutdown)
        stopper.start()
        stopper.join(WAIT_S)
        assert not stopper.is_alive()
        stopped.set()

    stopped = threading.Event()
    worker = Worker(fail, exit_procedure=stop_everything)
    worker.start()
    assert stopped.wait(WAIT_S)
    worker.join(WAIT_S)


def test_a_fatal_error_is_no_exception_and_has_no_good_status() -> None:
    assert not issubclass(FatalExitError, Exception)
    assert FatalExitError().status == 1
    with pytest.raises(ValueError, match="must not be 0"):
        FatalExitError(0)


def test_the_default_exit_ends_the_whole_process_and_keeps_its_output() -> None:
    program = """
import logging, sys, threading
from barnabas.common.shutdownable_thread import FatalExitError, ShutdownableThread
logging.basicConfig(level=logging.CRITICAL)
class Broken(ShutdownableThread):
    def do_work(self) -> None:
        sys.stdout.write("said")
        raise FatalExitError(42, "cannot go on")
Broken("broken").start()
threading.Event().wait()
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 42
    assert done.stdout == "said"
    assert "cannot go on" in done.stderr


def test_pause_lasts_as_long_as_asked() -> None:
    clock = MockClock()
    results: list[bool] = []

    def pause_once(worker: Worker) -> None:
        results.append(worker.pause(250))
        worker.initiate_shutdown()

    worker = Worker(pause_once, clock=clock)
    worker.start()
    assert clock.await_waiters()
    clock.advance(249)
    assert clock.await_waiters()
    assert results == []
    clock.advance(1)
    worker.join(WAIT_S)
    assert results == [False]


def test_shutdown_ends_a_pause() -> None:
    clock = MockClock()
    results: list[bool] = []
    worker = Worker(lambda worker: results.append(worker.pause(600_000)), clock=clock)
    worker.start()
    assert clock.await_waiters()
    worker.shutdown()
    assert results == [True]
