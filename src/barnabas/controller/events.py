"""The three kinds of event that the controller's thread works through."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, Protocol, TypeVar

from barnabas.controller.result import ControllerResult

log = logging.getLogger(__name__)

T = TypeVar("T")


class EventHost(Protocol):
    """What an event asks of the controller that it runs in."""

    def event_started(self, created_ns: int | None) -> int:
        """Notes that an event begins; returns the time."""
        ...

    def event_ended(self, name: str, started_ns: int) -> None: ...

    def event_failed(self, name: str, started_ns: int | None, error: Exception) -> Exception:
        """Does what an error calls for, stepping down perhaps, and returns what to tell the caller."""
        ...

    def now_ns(self) -> int: ...

    def perform_write(self, event: ControllerWriteEvent[T], operation: Callable[[], ControllerResult[T]]) -> None: ...


class ControllerEvent:
    """Something internal: what Raft has to say, mostly."""

    __slots__ = ("_created_ns", "_handler", "_host", "_name", "_on_error", "_started_ns")

    def __init__(
        self,
        host: EventHost,
        name: str,
        handler: Callable[[], None],
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        self._host = host
        self._name = name
        self._handler = handler
        self._on_error = on_error
        self._created_ns = host.now_ns()
        self._started_ns: int | None = None

    def run(self) -> None:
        self._started_ns = self._host.event_started(self._created_ns)
        self._handler()
        self._host.event_ended(self._name, self._started_ns)

    def handle_exception(self, error: Exception) -> None:
        told = self._host.event_failed(self._name, self._started_ns, error)
        if self._on_error is not None:
            self._on_error(told)

    def __repr__(self) -> str:
        return self._name


class ControllerReadEvent(Generic[T]):
    """Looks at committed state."""

    __slots__ = ("_created_ns", "_host", "_name", "_reader", "_started_ns", "future")

    def __init__(self, host: EventHost, name: str, reader: Callable[[], T]) -> None:
        self._host = host
        self._name = name
        self._reader = reader
        self._created_ns = host.now_ns()
        self._started_ns: int | None = None
        self.future: Future[T] = new_future()

    def run(self) -> None:
        self._started_ns = self._host.event_started(self._created_ns)
        value = self._reader()
        self._host.event_ended(self._name, self._started_ns)
        self.future.set_result(value)

    def handle_exception(self, error: Exception) -> None:
        self.future.set_exception(self._host.event_failed(self._name, self._started_ns, error))

    def __repr__(self) -> str:
        return self._name


class ControllerWriteEvent(Generic[T]):
    """Makes records out of the newest state, has them appended, and answers when they are committed.

    ``on_appended`` is called, still inside the event, with the offset of the last record, or of the last one before if
    the operation wrote none.
    """

    __slots__ = ("_created_ns", "_host", "_operation", "_started_ns", "future", "name", "on_appended", "response")

    def __init__(
        self,
        host: EventHost,
        name: str,
        operation: Callable[[], ControllerResult[T]],
        on_appended: Callable[[int], None] | None = None,
        *,
        deferred: bool = False,
    ) -> None:
        self._host = host
        self.name = name
        self._operation = operation
        self.on_appended = on_appended
        # How long a deferred event was deferred says nothing about how busy the queue is.
        self._created_ns = None if deferred else host.now_ns()
        self._started_ns: int | None = None
        self.response: T
        self.future: Future[T] = new_future()

    def run(self) -> None:
        self._started_ns = self._host.event_started(self._created_ns)
        self._host.perform_write(self, self._operation)

    def handle_exception(self, error: Exception) -> None:
        self.complete(error)

    def complete(self, error: Exception | None) -> None:
        """Answers: with the response, or with an error if what it tells of will not be."""
        if error is not None:
            self.future.set_exception(self._host.event_failed(self.name, self._started_ns, error))
            return
        assert self._started_ns is not None
        self._host.event_ended(self.name, self._started_ns)
        self.future.set_result(self.response)

    def __repr__(self) -> str:
        return self.name


def new_future() -> Future[T]:
    """A future that its holder cannot cancel: the event behind it is in the queue and will be run."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    return future
