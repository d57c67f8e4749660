"""The pending transactional operation of an application."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from barnabas.clients.producer.errors import IllegalStateError
from barnabas.clients.producer.internals.transaction_state import State
from barnabas.clients.producer.internals.transactional_request_result import TransactionalRequestResult


class _Operation(NamedTuple):
    result: TransactionalRequestResult
    state: State
    name: str


class PendingOperation:
    """Remembers an operation whose caller gave up waiting, so that the caller can repeat it.

    The operation goes on meanwhile. Repeating it returns the same result; another operation is refused. Guarded by the
    transaction manager's lock.
    """

    __slots__ = ("_operation",)

    def __init__(self) -> None:
        self._operation: _Operation | None = None

    def run(
        self, begin: Callable[[], TransactionalRequestResult], state: State, name: str
    ) -> TransactionalRequestResult:
        """Begins an operation that leads to ``state``, or returns the result of the same one that is still pending."""
        pending = self._unacknowledged()
        if pending is not None:
            if pending.state is not state:
                raise self._refused(name, pending)
            return pending.result
        result = begin()
        self._operation = _Operation(result, state, name)
        return result

    def raise_if_pending(self, name: str) -> None:
        """Raises `IllegalStateError` if an operation has to be repeated before this one."""
        pending = self._unacknowledged()
        if pending is not None:
            raise self._refused(name, pending)

    def fail(self, error: Exception) -> None:
        """Fails the operation for the thread that waits for it."""
        if self._operation is not None and not self._operation.result.is_completed:
            self._operation.result.fail(error)

    def _unacknowledged(self) -> _Operation | None:
        if self._operation is not None and self._operation.result.is_acked:
            self._operation = None
        return self._operation

    @staticmethod
    def _refused(name: str, pending: _Operation) -> IllegalStateError:
        return IllegalStateError(
            f"Cannot attempt operation `{name}` because the previous call to `{pending.name}` timed out and must be "
            "retried"
        )
