"""Chains futures, for operations that take several steps in the controller.

A step runs on the thread that completes the previous future, for the controller its event thread: a step must be short.
An error of any step, including the first, becomes the error of the resulting future. The error is passed on and not
raised again, because each raise would add frames that refer to the futures, which refer to the error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def then(future: Future[A], step: Callable[[A], Future[B]]) -> Future[B]:
    """Calls `step` with the result of `future`; returns a future of the step's result."""
    whole: Future[B] = Future()

    def finish(last: Future[B]) -> None:
        error = last.exception()
        if error is None:
            whole.set_result(last.result())
        else:
            whole.set_exception(error)

    def begin(first: Future[A]) -> None:
        if (failure := first.exception()) is not None:
            whole.set_exception(failure)
            return
        try:
            step(first.result()).add_done_callback(finish)
        except Exception as error:  # noqa: BLE001 - passed to the future
            whole.set_exception(error)

    future.add_done_callback(begin)
    return whole


def mapped(future: Future[A], function: Callable[[A], B]) -> Future[B]:
    """Returns a future whose result is `function` of the result of `future`."""
    whole: Future[B] = Future()

    def finish(first: Future[A]) -> None:
        if (failure := first.exception()) is not None:
            whole.set_exception(failure)
            return
        try:
            whole.set_result(function(first.result()))
        except Exception as error:  # noqa: BLE001 - passed to the future
            whole.set_exception(error)

    future.add_done_callback(finish)
    return whole


def all_of(futures: Sequence[Future[A]]) -> Future[list[A]]:
    """Returns a future of all results in order, once the last is complete; an error waits for the others, too."""
    whole: Future[list[A]] = Future()
    left = len(futures)
    lock = threading.Lock()  # guards `left`: futures may be completed by several threads

    def done(_: Future[A]) -> None:
        nonlocal left
        with lock:
            left -= 1
            if left:
                return
        failure = next((error for future in futures if (error := future.exception()) is not None), None)
        if failure is None:
            whole.set_result([future.result() for future in futures])
        else:
            whole.set_exception(failure)

    if not futures:
        whole.set_result([])
    for future in futures:
        future.add_done_callback(done)
    return whole
