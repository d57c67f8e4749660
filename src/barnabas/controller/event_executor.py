"""Runs the controller's operations as events of one thread, and completes them when their records are committed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from barnabas.common.clock import Clock
from barnabas.common.errors import ApiError, KafkaTimeoutError, UnknownServerError
from barnabas.common.events.deferred_event_queue import DeferredEventQueue
from barnabas.common.events.event_queue import EventQueueClosedError, KafkaEventQueue
from barnabas.common.log_safety import LimitedLogger
from barnabas.controller.leadership import INACTIVE, ControllerLeadership
from barnabas.controller.managers import ControllerManagers
from barnabas.controller.metrics import QuorumControllerMetrics
from barnabas.controller.periodic_tasks import PeriodicTaskError
from barnabas.controller.request_context import ControllerRequestContext
from barnabas.controller.result import ControllerResult
from barnabas.raft.client import ApiMessageAndVersion, NotLeaderError, RaftClient

log = LimitedLogger(logging.getLogger(__name__))

T = TypeVar("T")


class ControllerEventExecutor:
    """Owns the event queue and the purgatory of responses that wait for a commit.

    - A *write* generates records from the newest state. The records are appended and replayed at once; the future
      completes when the last of them is committed.
    - A *read* uses committed state; its future completes at once.
    - An *internal event* is neither: a commit or a leader change that Raft reports.

    Any thread may call the methods of the first section. Everything else runs on the event thread.
    """

    def __init__(
        self,
        queue: KafkaEventQueue,
        managers: ControllerManagers,
        leadership: ControllerLeadership,
        raft: RaftClient[ApiMessageAndVersion],
        metrics: QuorumControllerMetrics,
        *,
        clock: Clock,
        max_records_per_batch: int,
    ) -> None:
        self._queue = queue
        self._managers = managers
        self._offsets = managers.offsets
        self._leadership = leadership
        self._raft = raft
        self._metrics = metrics
        self._clock = clock
        self._max_records_per_batch = max_records_per_batch
        self.deferred = DeferredEventQueue()

    # -- adding events

    def write(
        self,
        name: str,
        context: ControllerRequestContext,
        operation: Callable[[], ControllerResult[T]],
        on_appended: Callable[[int], None] | None = None,
    ) -> Future[T]:
        event = ControllerWriteEvent(self, name, operation, on_appended, created_ns=self.now_ns())
        self._queue.append(event, context.deadline_ns)
        return event.future

    def write_next(
        self, name: str, operation: Callable[[], ControllerResult[None]], on_appended: Callable[[int], None]
    ) -> None:
        """Adds a write at the front of the queue."""
        self._queue.prepend(ControllerWriteEvent(self, name, operation, on_appended))

    def read(
        self,
        name: str,
        context: ControllerRequestContext,
        reader: Callable[[int], T],
        *,
        only_when_active: bool = True,
    ) -> Future[T]:
        """Adds a read; `reader` is called with the last stable offset."""

        def read() -> T:
            if only_when_active and not self._leadership.is_active:
                raise self._leadership.not_controller()
            return reader(self._offsets.last_stable_offset)

        future: Future[T] = new_future()
        self._queue.append(
            ControllerEvent(self, name, read, future.set_exception, future.set_result), context.deadline_ns
        )
        return future

    def run(self, name: str, handler: Callable[[], None], on_error: Callable[[Exception], None] | None = None) -> None:
        """Adds an internal event."""
        self._queue.append(ControllerEvent(self, name, handler, on_error))

    def schedule_task(self, tag: str, time_ns: int, operation: Callable[[], ControllerResult[None]]) -> None:
        self._queue.schedule_deferred(tag, time_ns, ControllerWriteEvent(self, tag, operation))

    def cancel_task(self, tag: str) -> None:
        self._queue.cancel_deferred(tag)

    # -- running events

    def now_ns(self) -> int:
        return self._clock.nanoseconds()

    def event_started(self, created_ns: int | None) -> int:
        now_ns = self._clock.nanoseconds()
        self._metrics.count("EventQueueOperationsStartedCount")
        if created_ns is not None:
            self._metrics.event_waited(now_ns - created_ns)
        return now_ns

    def event_ended(self, name: str, started_ns: int) -> None:
        elapsed_ns = self._clock.nanoseconds() - started_ns
        self._metrics.event_processed(elapsed_ns)
        log.debug("%s took %d us", name, elapsed_ns // 1000)

    def event_failed(self, name: str, started_ns: int | None, error: Exception) -> Exception:
        """Handles an error of an event, and returns the error for its caller.

        An ApiError is a normal response. NotLeaderError ends the leadership. So does an unexpected error: another
        controller may not have the problem, and this one restarts from the committed state.
        """
        if isinstance(error, EventQueueClosedError):
            return KafkaTimeoutError("The controller is shutting down.")
        if isinstance(error, ApiError):
            if isinstance(error, KafkaTimeoutError) and started_ns is None:
                self._metrics.count("EventQueueOperationsTimedOutCount")
            log.debug("%s: %s", name, error)
            return error
        if isinstance(error, PeriodicTaskError):
            self._metrics.count("MetadataErrorCount")
            log.error("%s", error, exc_info=error)
            return UnknownServerError(str(error))
        lost_leadership = isinstance(error, NotLeaderError)
        if lost_leadership:
            log.info("%s: %s", name, error)
        else:
            self._metrics.count("MetadataErrorCount")
            log.error("%s failed unexpectedly; returning to the committed state", name, exc_info=error)
        if self._leadership.is_active:
            self._leadership.renounce()
        return self._leadership.not_controller() if lost_leadership else UnknownServerError(str(error))

    def perform_write(self, event: ControllerWriteEvent[T], operation: Callable[[], ControllerResult[T]]) -> None:
        epoch = self._leadership.epoch
        if epoch == INACTIVE:
            raise self._leadership.not_controller()
        result = operation()
        event.response = result.response
        if result.records:
            offset: int | None = self._append(result, epoch)
            last_offset = offset
        else:
            # The response may depend on records of earlier writes, so it waits for the newest of them.
            offset = self.deferred.highest_pending_offset
            last_offset = self._offsets.next_write_offset - 1
        if event.on_appended is not None:
            assert last_offset is not None
            event.on_appended(last_offset)
        if offset is None:
            event.complete(None)
        else:
            self.deferred.add(offset, event)

    def _append(self, result: ControllerResult[Any], epoch: int) -> int:
        """Writes and replays the records of an operation; returns the offset of the last."""
        records = result.records
        limit = self._max_records_per_batch
        if result.is_atomic and len(records) > limit:
            raise RuntimeError(f"{len(records)} records must be written atomically, but a batch holds {limit}")
        replay = self._managers.replay.or_exit
        last_offset = -1
        for start in range(0, len(records), limit):
            batch = records[start : start + limit]
            last_offset = self._raft.prepare_append(epoch, batch)
            offset = last_offset - len(batch) + 1
            for message, _ in batch:
                replay(message, offset)
                offset += 1
            self._raft.schedule_prepared_append()
            self._offsets.handle_schedule_append(last_offset)
        return last_offset


class ControllerEvent(Generic[T]):
    """A read or an internal event: calls `handler`, then `on_success` or `on_error`."""

    __slots__ = ("_created_ns", "_executor", "_handler", "_name", "_on_error", "_on_success", "_started_ns")

    def __init__(
        self,
        executor: ControllerEventExecutor,
        name: str,
        handler: Callable[[], T],
        on_error: Callable[[Exception], None] | None = None,
        on_success: Callable[[T], None] | None = None,
    ) -> None:
        self._executor = executor
        self._name = name
        self._handler = handler
        self._on_error = on_error
        self._on_success = on_success
        self._created_ns = executor.now_ns()
        self._started_ns: int | None = None

    def run(self) -> None:
        self._started_ns = self._executor.event_started(self._created_ns)
        value = self._handler()
        self._executor.event_ended(self._name, self._started_ns)
        if self._on_success is not None:
            self._on_success(value)

    def handle_exception(self, error: Exception) -> None:
        reported = self._executor.event_failed(self._name, self._started_ns, error)
        if self._on_error is not None:
            self._on_error(reported)

    def __repr__(self) -> str:
        return self._name


class ControllerWriteEvent(Generic[T]):
    """Generates records from the newest state, appends them, and completes its future when they are committed.

    ``on_appended`` is called inside the event with the offset of the last record, or of the last record before it if
    the operation wrote none. A periodic task has no ``created_ns``: its delay is not queue time.
    """

    __slots__ = ("_created_ns", "_executor", "_operation", "_started_ns", "future", "name", "on_appended", "response")

    def __init__(
        self,
        executor: ControllerEventExecutor,
        name: str,
        operation: Callable[[], ControllerResult[T]],
        on_appended: Callable[[int], None] | None = None,
        *,
        created_ns: int | None = None,
    ) -> None:
        self._executor = executor
        self.name = name
        self._operation = operation
        self.on_appended = on_appended
        self._created_ns = created_ns
        self._started_ns: int | None = None
        self.response: T
        self.future: Future[T] = new_future()

    def run(self) -> None:
        self._started_ns = self._executor.event_started(self._created_ns)
        self._executor.perform_write(self, self._operation)

    def handle_exception(self, error: Exception) -> None:
        self.complete(error)

    def complete(self, error: Exception | None) -> None:
        """Completes the future with the response, or with an error if the records will not be committed."""
        if error is not None:
            self.future.set_exception(self._executor.event_failed(self.name, self._started_ns, error))
            return
        assert self._started_ns is not None
        self._executor.event_ended(self.name, self._started_ns)
        self.future.set_result(self.response)

    def __repr__(self) -> str:
        return self.name


def new_future() -> Future[T]:
    """Returns a future that cannot be cancelled: its event is in the queue and will run."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    return future
