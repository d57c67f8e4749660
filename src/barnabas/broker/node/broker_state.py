"""The states of a broker, and the transitions between them."""

from __future__ import annotations

from enum import IntEnum


class BrokerState(IntEnum):
    """The state of a broker; the numbers are the values of the metric ``BrokerState``.

    ============================ ============================== =====================================================
    from                         to                             when
    ============================ ============================== =====================================================
    NOT_RUNNING                  STARTING                       it begins to register
    STARTING                     RECOVERY                       it is registered, and has read that in the metadata log
    RECOVERY                     RUNNING                        its logs are loaded, and the controller has unfenced it
    RUNNING                      PENDING_CONTROLLED_SHUTDOWN    it has been asked to stop
    any but SHUTTING_DOWN        SHUTTING_DOWN                  the controller permits it, or it cannot go on
    ============================ ============================== =====================================================
    """

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7

    def can_become(self, following: BrokerState) -> bool:
        return following in _TRANSITIONS[self]


_TRANSITIONS = {
    BrokerState.NOT_RUNNING: frozenset({BrokerState.STARTING, BrokerState.SHUTTING_DOWN}),
    BrokerState.STARTING: frozenset({BrokerState.RECOVERY, BrokerState.SHUTTING_DOWN}),
    BrokerState.RECOVERY: frozenset({BrokerState.RUNNING, BrokerState.SHUTTING_DOWN}),
    BrokerState.RUNNING: frozenset({BrokerState.PENDING_CONTROLLED_SHUTDOWN, BrokerState.SHUTTING_DOWN}),
    BrokerState.PENDING_CONTROLLED_SHUTDOWN: frozenset({BrokerState.SHUTTING_DOWN}),
    BrokerState.SHUTTING_DOWN: frozenset(),
}
