"""The states of a classic group and their transitions."""

from __future__ import annotations

from enum import Enum
from typing import Final


class ClassicGroupState(Enum):
    """::

                       join                    all have joined
            EMPTY ------------> PREPARING ----------------------> COMPLETING
              ^                 REBALANCE <---------------------- REBALANCE
              |                  |  ^          join, leave,           |
              +------------------+  |          a timeout              | the leader's
                 all have left      |                                 | assignment is written
                                    |  join, leave, a timeout         v
                                    +----------------------------- STABLE

    and DEAD, from any state, when the group is deleted or another broker becomes the coordinator.

    The values are the names in the protocol.
    """

    EMPTY = "Empty"
    """It has no members, but may have offsets until they expire."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """It waits for members to join."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """It waits for the leader's assignment."""
    STABLE = "Stable"
    DEAD = "Dead"

    def can_transition_to(self, target: ClassicGroupState) -> bool:
        return self in VALID_PREVIOUS_STATES[target]


VALID_PREVIOUS_STATES: Final = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.PREPARING_REBALANCE: frozenset(
        {ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.EMPTY}
    ),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.COMPLETING_REBALANCE}),
    ClassicGroupState.DEAD: frozenset(
        {
            ClassicGroupState.STABLE,
            ClassicGroupState.PREPARING_REBALANCE,
            ClassicGroupState.COMPLETING_REBALANCE,
            ClassicGroupState.EMPTY,
            ClassicGroupState.DEAD,
        }
    ),
}
"""The states from which each state can be reached."""
