"""Requests that are done on the leader, and wait for followers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Generic, TypeVar

from barnabas.common.errors import Errors
from barnabas.replica.results import DeleteRecordsResult, ProduceResult
from barnabas.server.purgatory import DelayedOperation

Key = TypeVar("Key")
Result = TypeVar("Result", ProduceResult, DeleteRecordsResult)


class DelayedReplication(DelayedOperation, Generic[Key, Result]):
    """A request whose response has one result for each partition, some of which wait for followers.

    Until its followers have caught up, the result of a partition is REQUEST_TIMED_OUT, so that the timeout needs no
    further work. A subclass says when a partition is done, and sets its result.
    """

    __slots__ = ("_callback", "_results")

    def __init__(
        self,
        delay_ms: int,
        waiting: Collection[Key],
        results: dict[Key, Result],
        callback: Callable[[dict[Key, Result]], object],
    ) -> None:
        """`results`: the results of all partitions of the request, including those of `waiting` on success."""
        super().__init__(delay_ms)
        self._results: dict[Key, Result] = results
        self._callback: Callable[[dict[Key, Result]], object] = callback
        for partition in waiting:
            results[partition] = results[partition]._replace(error=Errors.REQUEST_TIMED_OUT)

    def on_complete(self) -> None:
        self._callback(self._results)
