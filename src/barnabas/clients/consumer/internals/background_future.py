"""Futures of the background thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def new_future() -> Future[T]:
    """Returns a future that cannot be cancelled: a caller may stop waiting, but the operation goes on."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    return future


def completed(value: T) -> Future[T]:
    future: Future[T] = new_future()
    future.set_result(value)
    return future


def then(future: Future[T], call: Callable[[BaseException | None], None]) -> None:
    """Calls with the error, if there was one, when the future is done; at once if it is already."""
    future.add_done_callback(lambda ended: call(ended.exception()))
