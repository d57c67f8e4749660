"""Which brokers are alive: what the active controller knows from heartbeats and writes nowhere.

Heartbeats are *soft state*. A cluster of a hundred brokers has fifty of them a second; in the metadata log they would
outnumber everything else. So they are kept in memory on the active controller only, and a new controller starts out
believing that every broker that is not fenced has just been heard of. It can therefore take up to one session timeout
longer to notice a broker that died around the time of the change.
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
    """A broker in one life of its: the epoch is that of its registration."""

    id: int
    epoch: int


class BrokerControlState(Enum):
    """Where a broker is in its life, as the controller sees it.

    ==================== ====================================================== =====================
    from                 when                                                   to
    ==================== ====================================================== =====================
    FENCED               wants to serve, and has read its own registration      UNFENCED
    FENCED               wants to shut down                                     SHUTDOWN_NOW
    UNFENCED             wants to be fenced, or is silent for a session timeout FENCED
    UNFENCED             wants to shut down, leads partitions                   CONTROLLED_SHUTDOWN
    UNFENCED             wants to shut down, leads nothing                      SHUTDOWN_NOW
    CONTROLLED_SHUTDOWN  leads nothing, and all active brokers know of it       SHUTDOWN_NOW
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
    """When each broker was last heard of.

    The one part of the controller that threads of others write to: the thread that reads a heartbeat off the network
    notes the time here before it puts the request in the controller's queue. A controller that is behind with its work
    then does not take the brokers for dead whose heartbeats wait in its own queue.
    """

    __slots__ = ("_clock", "_contacts", "_lock", "_presumed", "session_timeout_ns")

    def __init__(self, clock: Clock, session_timeout_ns: int) -> None:
        self._clock = clock
        self.session_timeout_ns = session_timeout_ns
        self._lock = threading.Lock()
        """Guards the two fields below; nothing is called while it is held."""
        self._contacts: dict[BrokerIdAndEpoch, int] = {}
        self._presumed: set[BrokerIdAndEpoch] = set()

    def touch(self, broker: BrokerIdAndEpoch) -> None:
        """The broker has been heard of."""
        now_ns = self._clock.nanoseconds()
        with self._lock:
            self._contacts[broker] = now_ns
            self._presumed.discard(broker)

    def presume(self, broker: BrokerIdAndEpoch) -> None:
        """The broker has not been heard of, but may be alive: it gets one session timeout to prove it."""
        now_ns = self._clock.nanoseconds()
        with self._lock:
            self._contacts[broker] = now_ns
            self._presumed.add(broker)

    def forget(self, broker: BrokerIdAndEpoch) -> None:
        with self._lock:
            self._contacts.pop(broker, None)
            self._presumed.discard(broker)

    def contact_time_ns(self, broker: BrokerIdAndEpoch) -> int | None:
        with self._lock:
            return self._contacts.get(broker)

    def is_presumed(self, broker: BrokerIdAndEpoch) -> bool:
        with self._lock:
            return broker in self._presumed

    def has_valid_session(self, broker: BrokerIdAndEpoch) -> bool:
        now_ns = self._clock.nanoseconds()
        with self._lock:
            contact = self._contacts.get(broker)
        return contact is not None and not self._is_expired(contact, now_ns)

    def remove_one_expired(self) -> BrokerIdAndEpoch | None:
        """Forgets, and returns, a broker that has been silent for longer than the session timeout."""
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
    """What the last heartbeat of a broker said."""

    __slots__ = ("controlled_shutdown_offset", "fenced", "id", "metadata_offset")

    def __init__(self, broker_id: int) -> None:
        self.id = broker_id
        self.fenced = True
        self.metadata_offset = -1
        """How far the broker has read the metadata log."""
        self.controlled_shutdown_offset = -1
        """Where the records are that took its leaderships away; -1 if it is not shutting down."""

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
    """The brokers' states and the decision what becomes of one that sends a heartbeat.

    Exists on the active controller only, and belongs to its thread, all but the tracker.
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
        """Makes sure that the broker is known, with the right fencing state."""
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
            # A fenced broker has nothing left to hand over: its next heartbeat lets it stop at once.
            state.controlled_shutdown_offset = -1

    def maybe_update_controlled_shutdown_offset(self, broker_id: int, offset: int) -> None:
        state = self.state(broker_id)
        if state.fenced:
            raise RuntimeError(f"broker {broker_id} is fenced and cannot enter controlled shutdown")
        if state.controlled_shutdown_offset < 0:
            state.controlled_shutdown_offset = offset
            log.debug("Broker %d may shut down when all others have reached offset %d", broker_id, offset)

    def lowest_active_offset(self) -> int:
        """How far every active broker has read, at least."""
        return min((state.metadata_offset for state in self._brokers.values() if state.active), default=LATEST_EPOCH)

    def usable_brokers(
        self, rack_of: Callable[[int], str | None], has_room: Callable[[int], bool]
    ) -> Iterable[UsableBroker]:
        """The brokers that may be given new replicas, by id: not on their way out, and with a directory to put them."""
        for broker_id in sorted(self._brokers):
            state = self._brokers[broker_id]
            if not state.shutting_down and has_room(broker_id):
                yield UsableBroker(broker_id, rack_of(broker_id), state.fenced)

    def next_state(
        self, request: BrokerHeartbeatRequest, registration_offset: int, has_leaderships: Callable[[], bool]
    ) -> tuple[BrokerControlState, BrokerControlState]:
        """The state that the broker is in, and the one it goes to; see :class:`BrokerControlState`."""
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
