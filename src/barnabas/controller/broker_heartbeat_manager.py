"""Broker liveness: the active controller's soft state from heartbeats.

Heartbeats are *soft state*. A cluster of a hundred brokers sends fifty of them a second; in the metadata log they would
outnumber everything else. So only the active controller keeps them, in memory. A new controller assumes that every
unfenced broker has just sent a heartbeat. It can therefore take up to one session timeout longer to notice a broker
that died around the time of the change.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from barnabas.common.clock import Clock
from barnabas.common.snapshot_registry import LATEST_EPOCH
from barnabas.controller.replica_placer import UsableBroker
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest

log = logging.getLogger(__name__)


class BrokerIdAndEpoch(NamedTuple):
    """One incarnation of a broker: the epoch is that of its registration."""

    id: int
    epoch: int


class BrokerControlState(Enum):
    """The state of a broker, as the controller sees it.

    ==================== ====================================================== =====================
    from                 when                                                   to
    ==================== ====================================================== =====================
    FENCED               wants to serve, and has read its own registration      UNFENCED
    FENCED               wants to shut down                                     SHUTDOWN_NOW
    UNFENCED             wants to be fenced, or is silent for a session timeout FENCED
    UNFENCED             wants to shut down, leads partitions                   CONTROLLED_SHUTDOWN
    UNFENCED             wants to shut down, leads nothing                      SHUTDOWN_NOW
    CONTROLLED_SHUTDOWN  leads nothing, and all active brokers have read that   SHUTDOWN_NOW
    ==================== ====================================================== =====================
    """

    FENCED = (True, False, False)
    UNFENCED = (False, False, False)
    CONTROLLED_SHUTDOWN = (False, True, False)
    SHUTDOWN_NOW = (True, False, True)

    def __init__(self, fenced: bool, in_controlled_shutdown: bool, should_shut_down: bool) -> None:
        self.fenced = fenced
        self.in_controlled_shutdown = in_controlled_shutdown
        self.should_shut_down = should_shut_down


class BrokerHeartbeatTracker:
    """The time of each broker's last heartbeat.

    This is the only part of the controller that other threads write: the thread that reads a heartbeat from the network
    records the time here before it queues the request. So a controller that is behind with its queue does not consider
    brokers dead whose heartbeats are waiting in that queue.
    """

    __slots__ = ("_clock", "_contacts", "_lock", "_presumed", "session_timeout_ns")

    def __init__(self, clock: Clock, session_timeout_ns: int) -> None:
        self._clock = clock
        self.session_timeout_ns = session_timeout_ns
        self._lock = threading.Lock()
        """Guards the two fields below; no other code is called while it is held."""
        self._contacts: dict[BrokerIdAndEpoch, int] = {}
        self._presumed: set[BrokerIdAndEpoch] = set()

    def touch(self, broker: BrokerIdAndEpoch) -> None:
        """Records a heartbeat of the broker."""
        now_ns = self._clock.nanoseconds()
        with self._lock:
            self._contacts[broker] = now_ns
            self._presumed.discard(broker)

    def presume(self, broker: BrokerIdAndEpoch) -> None:
        """Assumes that the broker is alive: it has one session timeout to send a heartbeat."""
        now_ns = self._clock.nanoseconds()
        with self._lock:
            self._contacts[broker] = now_ns
            self._presumed.add(broker)

    def forget(self, broker: BrokerIdAndEpoch) -> None:
        with self._lock:
            self._contacts.pop(broker, None)
            self._presumed.discard(broker)

    def is_presumed(self, broker: BrokerIdAndEpoch) -> bool:
        with self._lock:
            return broker in self._presumed

    def has_valid_session(self, broker: BrokerIdAndEpoch) -> bool:
        now_ns = self._clock.nanoseconds()
        with self._lock:
            contact = self._contacts.get(broker)
        return contact is not None and not self._is_expired(contact, now_ns)

    def remove_one_expired(self) -> BrokerIdAndEpoch | None:
        """Removes and returns a broker without a heartbeat for longer than the session timeout."""
        now_ns = self._clock.nanoseconds()
        with self._lock:
            for broker, contact in self._contacts.items():
                if self._is_expired(contact, now_ns):
                    del self._contacts[broker]
                    self._presumed.discard(broker)
                    return broker
        return None

    def _is_expired(self, contact_ns: int, now_ns: int) -> bool:
        return contact_ns + self.session_timeout_ns < now_ns


class BrokerHeartbeatState:
    """The contents of a broker's last heartbeat."""

    __slots__ = ("controlled_shutdown_offset", "fenced", "id", "metadata_offset")

    def __init__(self, broker_id: int) -> None:
        self.id = broker_id
        self.fenced = True
        self.metadata_offset = -1
        """The offset up to which the broker has read the metadata log."""
        self.controlled_shutdown_offset = -1
        """The offset of the records that moved its leaderships away; -1 if it is not shutting down."""

    @property
    def shutting_down(self) -> bool:
        return self.controlled_shutdown_offset >= 0

    @property
    def active(self) -> bool:
        return not self.fenced and not self.shutting_down

    @property
    def control_state(self) -> BrokerControlState:
        if self.shutting_down:
            return BrokerControlState.CONTROLLED_SHUTDOWN
        return BrokerControlState.FENCED if self.fenced else BrokerControlState.UNFENCED

    def __repr__(self) -> str:
        return f"BrokerHeartbeatState({self.id}, {self.control_state.name}, metadata_offset={self.metadata_offset})"


class BrokerHeartbeatManager:
    """Holds the brokers' states and decides the next state of a broker that sends a heartbeat.

    It exists only on the active controller. Only the controller's thread uses it, except for the tracker.
    """

    def __init__(self, clock: Clock, session_timeout_ns: int) -> None:
        self.tracker = BrokerHeartbeatTracker(clock, session_timeout_ns)
        self._brokers: dict[int, BrokerHeartbeatState] = {}

    def state(self, broker_id: int) -> BrokerHeartbeatState:
        state = self._brokers.get(broker_id)
        if state is None:
            raise KeyError(f"broker {broker_id} is not registered")
        return state

    def has_valid_session(self, broker: BrokerIdAndEpoch) -> bool:
        return broker.id in self._brokers and self.tracker.has_valid_session(broker)

    def register(self, broker_id: int, fenced: bool) -> None:
        """Adds the broker if it is unknown, and sets its fencing state."""
        state = self._brokers.get(broker_id)
        if state is None:
            state = self._brokers[broker_id] = BrokerHeartbeatState(broker_id)
        self.touch(broker_id, fenced, state.metadata_offset)

    def remove(self, broker_id: int) -> None:
        self._brokers.pop(broker_id, None)

    def fence(self, broker_id: int) -> None:
        state = self._brokers.get(broker_id)
        if state is not None:
            self.touch(broker_id, True, state.metadata_offset)

    def touch(self, broker_id: int, fenced: bool, metadata_offset: int) -> None:
        state = self.state(broker_id)
        state.metadata_offset = metadata_offset
        state.fenced = fenced
        if fenced:
            # A fenced broker leads nothing, so its next heartbeat lets it stop at once.
            state.controlled_shutdown_offset = -1

    def maybe_update_controlled_shutdown_offset(self, broker_id: int, offset: int) -> None:
        state = self.state(broker_id)
        if state.fenced:
            raise RuntimeError(f"broker {broker_id} is fenced and cannot enter controlled shutdown")
        if state.controlled_shutdown_offset < 0:
            state.controlled_shutdown_offset = offset
            log.debug("Broker %d may shut down when all others have reached offset %d", broker_id, offset)

    def lowest_active_offset(self) -> int:
        """Returns the lowest metadata offset that any active broker has reached."""
        return min((state.metadata_offset for state in self._brokers.values() if state.active), default=LATEST_EPOCH)

    def usable_brokers(
        self, rack_of: Callable[[int], str | None], has_room: Callable[[int], bool]
    ) -> Iterable[UsableBroker]:
        """Yields the brokers that may get new replicas, by id: not shutting down, with a usable directory."""
        for broker_id in sorted(self._brokers):
            state = self._brokers[broker_id]
            if not state.shutting_down and has_room(broker_id):
                yield UsableBroker(broker_id, rack_of(broker_id), state.fenced)

    def next_state(
        self, request: BrokerHeartbeatRequest, registration_offset: int, has_leaderships: Callable[[], bool]
    ) -> tuple[BrokerControlState, BrokerControlState]:
        """Returns the broker's current and next state; see :class:`BrokerControlState`."""
        broker_id = request.broker_id
        state = self.state(broker_id)
        current = state.control_state
        following = current
        if current is BrokerControlState.FENCED:
            if request.want_shut_down:
                following = BrokerControlState.SHUTDOWN_NOW
            elif not request.want_fence and request.current_metadata_offset >= registration_offset:
                following = BrokerControlState.UNFENCED
        elif current is BrokerControlState.UNFENCED:
            if request.want_fence:
                following = BrokerControlState.SHUTDOWN_NOW if request.want_shut_down else BrokerControlState.FENCED
            elif request.want_shut_down:
                following = (
                    BrokerControlState.CONTROLLED_SHUTDOWN if has_leaderships() else BrokerControlState.SHUTDOWN_NOW
                )
        elif not has_leaderships() and state.controlled_shutdown_offset <= self.lowest_active_offset():
            following = BrokerControlState.SHUTDOWN_NOW
        if following is not current:
            log.info("Broker %d changes from %s to %s", broker_id, current.name, following.name)
        return current, following
