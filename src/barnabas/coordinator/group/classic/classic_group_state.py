"""The states of a classic group, and the only ways between them."""

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

    and DEAD, when the group is deleted or another broker is responsible, from everywhere.

    The values are the names that clients see.
    """

    EMPTY = "Empty"
    """No members; there may be offsets, until they expire."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are waited for at the barrier of JoinGroup."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The leader's assignment is waited for."""
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
"""From which states each state can be reached."""
