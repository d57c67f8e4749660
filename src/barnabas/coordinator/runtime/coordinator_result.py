"""What a coordinator's state machine answers to a request that may change its state."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Generic, NamedTuple, TypeVar

from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord

T = TypeVar("T")


class CoordinatorResult(NamedTuple, Generic[T]):
    """Records to write, and the answer to give once they are committed.

    The state machine does not change its state itself: it says which records would, and they are replayed into it the
    moment they are appended, just as they will be when another broker loads them from the log. So there is one way in
    which state changes, and what is in memory can always be rebuilt from what is on disk.

    Without records the answer is given when everything that it may rest upon is committed, which is mostly at once.
    """

    records: Sequence[CoordinatorRecord] = ()
    response: T = None  # type: ignore[assignment]
    append_future: Future[None] | None = None
    """Told what became of the records, before the answer is given; for who has to do something else about it."""
    replay_records: bool = True
    """False if the state has been changed already, by hand: classic groups keep theirs in plain fields, and undo it
    themselves when `append_future` fails."""
    is_atomic: bool = True
    """Whether the records have to be in one batch, so that they are there all or not at all."""


EMPTY_RESULT: CoordinatorResult[None] = CoordinatorResult()
