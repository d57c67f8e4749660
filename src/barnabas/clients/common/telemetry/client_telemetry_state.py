"""The states of client telemetry."""

from __future__ import annotations

from enum import Enum
from typing import Final


class ClientTelemetryState(Enum):
    """The states of a `ClientTelemetryReporter`, and which may follow which.

    ::

        SUBSCRIPTION_NEEDED <----- nothing wanted, or an error ------+
             | asks                                                  |
        SUBSCRIPTION_IN_PROGRESS ------------------------------------+
             | gets a subscription                                   |
        PUSH_NEEDED <--------------+                                 |
             | the interval is over| acknowledged                    |
        PUSH_IN_PROGRESS ----------+---------------------------------+
             |
             | the client is closed, in any of these with a subscription
        TERMINATING_PUSH_NEEDED --> TERMINATING_PUSH_IN_PROGRESS --> TERMINATED
    """

    SUBSCRIPTION_NEEDED = "subscription needed"
    SUBSCRIPTION_IN_PROGRESS = "subscription in progress"
    PUSH_NEEDED = "push needed"
    PUSH_IN_PROGRESS = "push in progress"
    TERMINATING_PUSH_NEEDED = "terminating push needed"
    TERMINATING_PUSH_IN_PROGRESS = "terminating push in progress"
    TERMINATED = "terminated"

    def may_become(self, state: ClientTelemetryState) -> bool:
        return state in _NEXT[self]

    @property
    def is_terminating(self) -> bool:
        """Whether the client is being closed, or has been."""
        return self in _TERMINATING


_S = ClientTelemetryState
_NEXT: Final = {
    _S.SUBSCRIPTION_NEEDED: {_S.SUBSCRIPTION_IN_PROGRESS, _S.TERMINATED},
    _S.SUBSCRIPTION_IN_PROGRESS: {
        _S.PUSH_NEEDED,
        _S.SUBSCRIPTION_NEEDED,
        _S.TERMINATING_PUSH_NEEDED,
        _S.TERMINATED,
    },
    _S.PUSH_NEEDED: {_S.PUSH_IN_PROGRESS, _S.SUBSCRIPTION_NEEDED, _S.TERMINATING_PUSH_NEEDED, _S.TERMINATED},
    _S.PUSH_IN_PROGRESS: {_S.PUSH_NEEDED, _S.SUBSCRIPTION_NEEDED, _S.TERMINATING_PUSH_NEEDED, _S.TERMINATED},
    _S.TERMINATING_PUSH_NEEDED: {_S.TERMINATING_PUSH_IN_PROGRESS, _S.TERMINATED},
    _S.TERMINATING_PUSH_IN_PROGRESS: {_S.TERMINATED},
    _S.TERMINATED: set(),
}
_TERMINATING: Final = {_S.TERMINATING_PUSH_NEEDED, _S.TERMINATING_PUSH_IN_PROGRESS, _S.TERMINATED}
