"""The events of a coordinator's partition."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.coordinator.runtime.coordinator_shard import CoordinatorShard
from barnabas.coordinator.runtime.transaction_end import TransactionEnd
from barnabas.log.producers.verification_state import SENTINEL, VerificationGuard
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from barnabas.server.timer.timer_task import TimerTask

if TYPE_CHECKING:
    from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime

S = TypeVar("S", bound=CoordinatorShard)
T = TypeVar("T")


class _Event(Generic[S, T]):
    """The base of events: a name for the log, a partition, and a future."""

    __slots__ = ("_runtime", "future", "key", "name")

    def __init__(self, runtime: CoordinatorRuntime[S], name: str, partition: TopicPartition) -> None:
        self._runtime = runtime
        self.name = name
        self.key = partition
        self.future: Future[T] = Future()

    def fail(self, error: BaseException) -> None:
        # An event can fail twice: with its batch, and with the error that the failed batch raises.
        with suppress(InvalidStateError):
            self.future.set_exception(error)

    def complete(self, error: BaseException | None) -> None:
        if error is not None:
            self.fail(error)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.key}>"


class _AppendEvent(_Event[S, T]):
    """An event that appends records, and waits until they are committed, or times out."""

    __slots__ = ("_timeout",)

    def __init__(self, runtime: CoordinatorRuntime[S], name: str, partition: TopicPartition) -> None:
        super().__init__(runtime, name, partition)
        self._timeout: _OperationTimeout | None = None

    def _start_timeout(self, timeout_ms: int) -> None:
        if not self.future.done():
            self._timeout = _OperationTimeout(self._runtime, self, timeout_ms)
            self._runtime.start_timeout(self._timeout)

    def _cancel_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()


class WriteEvent(_AppendEvent[S, T]):
    """An operation that may write. Its response waits until its records are committed, or times out."""

    __slots__ = ("_guard", "_operation", "_producer_epoch", "_producer_id", "_result", "timeout_ms")

    def __init__(
        self,
        runtime: CoordinatorRuntime[S],
        name: str,
        partition: TopicPartition,
        timeout_ms: int,
        operation: Callable[[S], CoordinatorResult[T]],
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        guard: VerificationGuard = SENTINEL,
    ) -> None:
        super().__init__(runtime, name, partition)
        self.timeout_ms = timeout_ms
        self._operation = operation
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._guard = guard
        self._result: CoordinatorResult[T] | None = None

    def run(self) -> None:
        with self._runtime.active_context(self.key) as context:
            result = self._result = self._operation(context.active.shard)
            context.append(
                result.records,
                self,
                replay=result.replay_records,
                is_atomic=result.is_atomic,
                producer_id=self._producer_id,
                producer_epoch=self._producer_epoch,
                guard=self._guard,
            )
        self._start_timeout(self.timeout_ms)

    def complete(self, error: BaseException | None) -> None:
        if self.future.done():
            return
        self._cancel_timeout()
        result = self._result
        if result is not None and result.append_future is not None:
            _settle(result.append_future, error)
        if error is not None:
            self.fail(error)
        else:
            assert result is not None
            self.future.set_result(result.response)


class CompleteTransactionEvent(_AppendEvent[S, None]):
    """Ends a transaction in this partition."""

    __slots__ = ("_end", "_timeout_ms")

    def __init__(
        self,
        runtime: CoordinatorRuntime[S],
        name: str,
        partition: TopicPartition,
        end: TransactionEnd,
        timeout_ms: int,
    ) -> None:
        super().__init__(runtime, name, partition)
        self._end = end
        self._timeout_ms = timeout_ms

    def run(self) -> None:
        with self._runtime.active_context(self.key) as context:
            context.complete_transaction(self, self._end)
        self._start_timeout(self._timeout_ms)

    def complete(self, error: BaseException | None) -> None:
        if self.future.done():
            return
        self._cancel_timeout()
        if error is not None:
            self.fail(error)
        else:
            self.future.set_result(None)


class ReadEvent(_Event[S, T]):
    """An operation that only reads committed state."""

    __slots__ = ("_operation",)

    def __init__(
        self,
        runtime: CoordinatorRuntime[S],
        name: str,
        partition: TopicPartition,
        operation: Callable[[S, int], T],
    ) -> None:
        super().__init__(runtime, name, partition)
        self._operation = operation

    def run(self) -> None:
        with self._runtime.active_context(self.key) as context:
            coordinator = context.active
            response = self._operation(coordinator.shard, coordinator.last_committed_offset)
        self.future.set_result(response)


class InternalEvent(_Event[S, None]):
    """An operation of the runtime itself that must run in the partition's loop."""

    __slots__ = ("_operation",)

    def __init__(
        self, runtime: CoordinatorRuntime[S], name: str, partition: TopicPartition, operation: Callable[[], None]
    ) -> None:
        super().__init__(runtime, name, partition)
        self._operation = operation

    def run(self) -> None:
        self._operation()
        self.future.set_result(None)


class _OperationTimeout(TimerTask):
    """Times out a write that is not committed."""

    __slots__ = ("_event", "_runtime")

    def __init__(self, runtime: CoordinatorRuntime[Any], event: _Event[Any, Any], timeout_ms: int) -> None:
        super().__init__(timeout_ms)
        self._runtime = runtime
        self._event = event

    def run(self) -> None:
        event = self._event
        self._runtime.run_in_loop(
            f"timeout-of-{event.name}",
            event.key,
            lambda: event.complete(TimeoutError(f"{event.name} was not committed within {self.delay_ms} ms")),
        )


def _settle(future: Future[None], error: BaseException | None) -> None:
    with suppress(InvalidStateError):
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
