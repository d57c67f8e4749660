"""Waits for futures, with a timeout."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

from barnabas.common.errors import KafkaTimeoutError
from barnabas.server.purgatory.delayed_operation import DelayedOperation
from barnabas.server.purgatory.delayed_operation_purgatory import DelayedOperationPurgatory
from barnabas.server.timer.task_executor import TaskExecutor
from barnabas.server.timer.timer_task import Timer


class DelayedFuture(DelayedOperation):
    """Completes when all its futures are done; at the timeout the pending futures fail with a timeout error.

    So ``callback`` runs once, and every future is done by then.
    """

    __slots__ = ("_callback", "_futures")

    def __init__(self, timeout_ms: int, futures: Sequence[Future[Any]], callback: Callable[[], object]) -> None:
        super().__init__(timeout_ms)
        self._futures = tuple(futures)
        self._callback = callback

    def try_complete(self) -> bool:
        return all(future.done() for future in self._futures) and self.force_complete()

    def on_complete(self) -> None:
        for future in self._futures:
            if not future.done():
                with suppress(InvalidStateError):  # it has just completed
                    future.set_exception(KafkaTimeoutError(f"The request timed out after {self.delay_ms} ms."))
        self._callback()

    def on_expiration(self) -> None:
        """Does nothing: :meth:`on_complete` has done it all."""


class DelayedFuturePurgatory:
    """Holds requests that wait for futures, such as those of an authorizer that stores its ACLs externally.

    The thread that completes a future may belong to a plug-in and should not build and send the response. So the last
    future of a request passes the completion to this purgatory's thread, ``DelayedExecutor-<name>``.
    """

    def __init__(self, name: str, timer: Timer, broker_id: int = 0, reaper_enabled: bool = True) -> None:
        self._purgatory: DelayedOperationPurgatory[DelayedFuture] = DelayedOperationPurgatory(
            name, timer, broker_id, reaper_enabled=reaper_enabled
        )
        self._executor = TaskExecutor(f"DelayedExecutor-{name}", daemon=True)
        self._executor.start()

    def try_complete_else_watch(
        self, timeout_ms: int, futures: Sequence[Future[Any]], callback: Callable[[], object]
    ) -> DelayedFuture:
        """Runs ``callback`` when all futures are done or time out; on this thread if they are done already."""
        operation = DelayedFuture(timeout_ms, futures, callback)
        # The operation is its own key: its event concerns no other operation.
        if not self._purgatory.try_complete_else_watch(operation, [operation]):
            countdown = _Countdown(len(futures), operation, self._purgatory, self._executor)
            for future in futures:
                future.add_done_callback(countdown.count)  # called at once for a future that is done
        return operation

    def watched(self) -> int:
        return self._purgatory.watched()

    def num_delayed(self) -> int:
        return self._purgatory.num_delayed()

    def advance_clock(self, timeout_ms: int) -> None:
        self._purgatory.advance_clock(timeout_ms)

    def shutdown(self) -> None:
        self._executor.shutdown()
        self._purgatory.shutdown()


class _Countdown:
    """Counts down the futures of one operation; the last one triggers its completion."""

    __slots__ = ("_executor", "_lock", "_operation", "_purgatory", "_remaining")

    def __init__(
        self,
        futures: int,
        operation: DelayedFuture,
        purgatory: DelayedOperationPurgatory[DelayedFuture],
        executor: TaskExecutor,
    ) -> None:
        self._lock = threading.Lock()
        """Guards ``_remaining``."""
        self._remaining = futures
        self._operation = operation
        self._purgatory = purgatory
        self._executor = executor

    def count(self, _future: Future[Any]) -> None:
        with self._lock:
            self._remaining -= 1
            last = self._remaining == 0
        if last and not self._executor.submit((self,)):
            self.run()  # the executor is shut down: complete on this thread

    def run(self) -> None:
        # Through the watcher lists instead of force_complete, so that the operation is removed from them as well.
        self._purgatory.check_and_complete(self._operation)
