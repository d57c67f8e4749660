"""The result of an operation that may change the state of a coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Generic, NamedTuple, TypeVar

from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord

T = TypeVar("T")


class CoordinatorResult(NamedTuple, Generic[T]):
    """Records to write, and the response to send when they are committed.

    The state machine does not change its state directly. It returns records, which are replayed into it when they are
    added to a batch, just as they will be when another broker loads them from the log. So there is one way to change
    state, and the state in memory can always be rebuilt from the log.

    Without records the response is sent when everything that it depends on is committed, usually at once.
    """

    records: Sequence[CoordinatorRecord] = ()
    response: T = None  # type: ignore[assignment]
    append_future: Future[None] | None = None
    """Completes with the outcome of the append before the response is sent, for operations that must react to it."""
    replay_records: bool = True
    """False if the state has already been changed directly: classic groups keep it in ordinary fields, and revert it
    themselves if `append_future` fails."""
    is_atomic: bool = True
    """Whether the records must be in one batch, so that they are written all or not at all."""


EMPTY_RESULT: CoordinatorResult[None] = CoordinatorResult()
