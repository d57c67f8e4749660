"""The states of a coordinator's partition on this broker."""

from __future__ import annotations

from enum import Enum
from typing import Final


class CoordinatorState(Enum):
    """::

    INITIAL ---> LOADING ---> ACTIVE ---> CLOSED      (CLOSED from everywhere)
                  ^  |          |
                  |  v          |  the log and the state machine disagree
                  FAILED <------+
    """

    INITIAL = "initial"
    LOADING = "loading"
    """The log is being replayed; clients must retry."""
    ACTIVE = "active"
    CLOSED = "closed"
    FAILED = "failed"
    """The load has failed; the next election tries again."""

    def can_transition_to(self, target: CoordinatorState) -> bool:
        return self in _PREVIOUS[target]


_PREVIOUS: Final = {
    CoordinatorState.INITIAL: frozenset[CoordinatorState](),
    CoordinatorState.LOADING: frozenset({CoordinatorState.INITIAL, CoordinatorState.FAILED}),
    CoordinatorState.ACTIVE: frozenset({CoordinatorState.LOADING}),
    CoordinatorState.CLOSED: frozenset(
        {
            CoordinatorState.INITIAL,
            CoordinatorState.LOADING,
            CoordinatorState.ACTIVE,
            CoordinatorState.FAILED,
        }
    ),
    CoordinatorState.FAILED: frozenset({CoordinatorState.LOADING, CoordinatorState.ACTIVE}),
}
"""The states from which each state can be reached."""
