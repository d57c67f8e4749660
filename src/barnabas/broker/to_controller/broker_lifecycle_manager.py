"""Manages a broker's lifecycle with the controller: registration, heartbeats, controlled shutdown (KIP-631)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from random import Random
from typing import TYPE_CHECKING

from barnabas.broker.node.broker_state import BrokerState
from barnabas.broker.to_controller.controller_exchange import ControllerExchange
from barnabas.broker.to_controller.registered_listeners import registered_listeners
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.dataclass import dataclass, replace
from barnabas.common.errors import BarnabasError, Errors, KafkaTimeoutError
from barnabas.common.events.event_queue import KafkaEventQueue, QueuedCall
from barnabas.common.identifiers import Uuid, random_uuid, uuid_to_string
from barnabas.common.shutdownable_thread import ExitProcedure, exit_process
from barnabas.metadata.endpoint import feature_records
from barnabas.network.client.client_request import ClientResponse
from barnabas.network.client.exponential_backoff import ExponentialBackoff
from barnabas.network.server.endpoint import Endpoint
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
)
from barnabas.protocol.versions import VersionRange

if TYPE_CHECKING:
    from barnabas.server.controller_channel import ControllerChannel

log = logging.getLogger(__name__)

NOT_REGISTERED = -1
"""The broker epoch before the first registration."""
CATCH_UP_INTERVAL_MS = 100
"""The heartbeat interval until the broker has read its own registration. It is a fallback: usually `metadata_applied`
triggers the heartbeat. A much shorter interval would take time from opening logs."""
CONTROLLED_SHUTDOWN_INTERVAL_MS = 10
"""The delay after the first response that leaderships are being moved: moving a few takes almost no time."""
RESEND_BACKOFF_MS = 100

_LASTING_ERRORS = {
    Errors.CLUSTER_AUTHORIZATION_FAILED: (
        "its principal {principal} needs CLUSTER_ACTION on the cluster; set super.users={principal}, or add an ACL "
        "that allows it"
    ),
    Errors.INCONSISTENT_CLUSTER_ID: (
        "its log directories belong to another cluster; check log.dirs and the controllers it connects to"
    ),
    Errors.UNSUPPORTED_VERSION: (
        "it does not support a feature level of the cluster, such as metadata.version; the controller's log names the "
        "feature. Run a newer version of the broker"
    ),
    Errors.INVALID_REGISTRATION: (
        "what it says of its log directories or features is wrong; the controller's log says what. Two brokers may "
        "have the same directory.id in meta.properties"
    ),
}
"""Registration errors that a retry cannot fix, each with its remedy."""

_COMMUNICATION = "communication"
_REGISTRATION_TIMEOUT = "initialRegistrationTimeout"
_NS_PER_MS = 1_000_000


class BrokerRegistrationError(BarnabasError):
    """The controller refused to register the broker, and a retry would fail too; the message says what to do."""


@dataclass(frozen=True, slots=True)
class BrokerLifecycleConfig:
    """The identity of a broker, and the intervals and timeouts of its lifecycle."""

    node_id: int
    rack: str | None = None
    heartbeat_interval_ms: int = 2_000
    """``broker.heartbeat.interval.ms``"""
    initial_registration_timeout_ms: int = 60_000
    """``initial.broker.registration.timeout.ms``"""
    principal: str = "User:ANONYMOUS"
    """The broker's principal at the controller, for error messages. Controller listeners are PLAINTEXT."""


@dataclass(frozen=True, slots=True)
class BrokerRegistrationInfo:
    """Registration data that is known only when the broker registers."""

    cluster_id: str
    advertised_listeners: Sequence[Endpoint]
    """With the bound ports instead of port 0."""
    supported_features: Mapping[str, VersionRange]
    previous_broker_epoch: int = NOT_REGISTERED
    """From the clean shutdown marker: it proves that no data was lost since."""


class BrokerLifecycleManager:
    """Keeps the broker registered, sends its heartbeats, and owns its state.

    At most one request is in flight: first the registration, then one heartbeat after the other. A heartbeat carries
    the state that the broker wants; the response grants it or not. A startup without recovery, and a shutdown::

        broker                                                            controller
        STARTING      BrokerRegistration                     ->
                                                             <-           epoch 12
                      heartbeat: offset 10, want fence       ->
                                                             <-           fenced, not caught up
                      (metadata offset 12 is applied)
                      heartbeat: offset 12, want fence       ->
                                                             <-           fenced, caught up
        RECOVERY      (logs are loaded: set_ready_to_unfence)
                      heartbeat: offset 12                   ->
                                                             <-           unfenced
        RUNNING       heartbeat every two seconds            ->
                      (begin_controlled_shutdown)
        PENDING_...   heartbeat: want shutdown               ->           moves leaderships away
                                                             <-           not yet
                      heartbeat: want shutdown               ->
                                                             <-           go
        SHUTTING_DOWN

    When something changes that the controller or the broker is waiting for, the next heartbeat is sent at once, or
    right after the response to the one in flight. So a startup takes as long as its exchanges, not the sum of the
    heartbeat intervals.

    A heartbeat refused with STALE_BROKER_EPOCH means that the controller does not know this broker (any more):
    somebody has sent UnregisterBroker, or another process has registered with the same id. A running broker registers
    again; a broker in controlled shutdown stops at once. (In Kafka it sends heartbeats for ever.)

    All state belongs to the event queue's thread. Other threads append events, read ``state`` and ``broker_epoch``,
    which are single references, and wait for the futures. A test without :meth:`start`'s thread runs ``queue`` itself.
    """

    def __init__(
        self,
        config: BrokerLifecycleConfig,
        log_dirs: Collection[Uuid],
        *,
        clock: Clock = SYSTEM_CLOCK,
        on_directory_failure_unreported: Callable[[], object] = lambda: None,
        cordoned_log_dirs_supported: Callable[[], bool] = lambda: False,
        random: Random | None = None,
        exit_procedure: ExitProcedure = exit_process,
        new_uuid: Callable[[], Uuid] = random_uuid,
    ) -> None:
        """``on_directory_failure_unreported`` is called when a directory failure could not be reported to the
        controller in time: the controller still counts on its replicas, so the broker has to stop."""
        self._config = config
        self._log_dirs = sorted(log_dirs)
        self._clock = clock
        self._on_directory_failure_unreported = on_directory_failure_unreported
        self._cordoned_log_dirs_supported = cordoned_log_dirs_supported
        self._backoff = ExponentialBackoff(
            RESEND_BACKOFF_MS,
            2,
            config.heartbeat_interval_ms,
            0.02,
            Random() if random is None else random,  # noqa: S311 - spreads load, keeps no secret
        )
        self.queue = KafkaEventQueue(f"broker-{config.node_id}-lifecycle-manager-event-handler", clock, exit_procedure)
        self.incarnation_id = new_uuid()
        """Identifies this process: another process with the same broker id has another incarnation id."""
        self.initial_catch_up_future: Future[None] = Future()
        """Done when the broker has read its own registration; fails if it could not register in time."""
        self.initial_unfence_future: Future[None] = Future()
        """Done when the controller unfences the broker for the first time."""
        self.controlled_shutdown_future: Future[None] = Future()
        """Done when the broker may stop, with or without the controller's permission."""
        self._state = BrokerState.NOT_RUNNING
        self._broker_epoch = NOT_REGISTERED

        # Accessed by events only.
        self._info: BrokerRegistrationInfo | None = None
        self._channel: ControllerChannel | None = None
        self._metadata_offset: Callable[[], int] = lambda: -1
        self._published_offset = -1
        self._registered = False
        self._ever_registered = False
        self._ready_to_unfence = False
        self._offline_dirs: dict[Uuid, bool] = {}
        """Failed directories, and whether each was reported to the controller."""
        self._cordoned_dirs: frozenset[Uuid] | None = None
        """Directories that get no new replicas; None until the broker knows them."""
        self._shutdown_responses = 0
        self._in_flight = False
        self._hurry = False
        """Whether something has changed while a request was in flight."""
        self._failed_attempts = 0
        self._last_problem = "the controller has not responded"
        """Why the latest exchange failed."""

    # -- for any thread

    @property
    def state(self) -> BrokerState:
        return self._state

    @property
    def broker_epoch(self) -> int:
        """The epoch of the newest registration, -1 before the first."""
        return self._broker_epoch

    def start(
        self,
        metadata_offset: Callable[[], int],
        channel: ControllerChannel,
        info: BrokerRegistrationInfo,
        *,
        threaded: bool = True,
    ) -> None:
        """Begins to register. ``metadata_offset`` returns the applied metadata offset; the manager's thread calls it.

        The manager owns the channel from now on: it starts the channel and shuts it down.
        """
        self.queue.append(QueuedCall("start", lambda: self._start_up(metadata_offset, channel, info)))
        if threaded:
            self.queue.start()

    def metadata_applied(self, offset: int) -> None:
        """Records that metadata are applied up to an offset; a starting broker waits for that.

        Must be called after all publishers: see `barnabas.broker.publishers.lifecycle_publisher`.
        """
        if self._state is BrokerState.STARTING:
            self.queue.append(QueuedCall("metadata_applied", lambda: self._metadata_applied(offset)))

    def set_ready_to_unfence(self) -> Future[None]:
        """Marks the broker as ready to serve. Returns a future that completes when the controller unfences it."""
        self.queue.append(QueuedCall("set_ready_to_unfence", self._set_ready_to_unfence))
        return self.initial_unfence_future

    def propagate_directory_failure(self, directory: Uuid, timeout_ms: int) -> None:
        """Reports a failed log directory to the controller."""
        self.queue.append(QueuedCall("propagate_directory_failure", lambda: self._directory_failed(directory)))
        self.queue.schedule_deferred(
            f"offlineDirFailure-{uuid_to_string(directory)}",
            self._clock.nanoseconds() + timeout_ms * _NS_PER_MS,
            QueuedCall("directory failure timeout", lambda: self._check_reported(directory)),
        )

    def propagate_directory_cordoned(self, directories: Collection[Uuid]) -> None:
        """Reports to the controller which log directories get no new replicas (KIP-1066)."""
        cordoned = frozenset(directories)
        self.queue.append(QueuedCall("propagate_directory_cordoned", lambda: self._cordon(cordoned)))

    def resend_broker_registration(self) -> None:
        """Registers again, for example when a new metadata.version supports more than the last registration said."""
        self.queue.append(QueuedCall("resend_broker_registration", self._register_again))

    def advertise(self, listeners: Sequence[Endpoint]) -> None:
        """Registers again with other listeners. The broker keeps its epoch and stays unfenced."""
        self.queue.append(QueuedCall("advertise", lambda: self._advertise(listeners)))

    def begin_controlled_shutdown(self) -> None:
        """Asks the controller to move leaderships away if the broker is RUNNING; otherwise stops at once."""
        self.queue.append(QueuedCall("begin_controlled_shutdown", self._begin_controlled_shutdown))

    def begin_shutdown(self) -> None:
        """Stops the manager without asking the controller; does not wait."""
        self.queue.append(QueuedCall("shutdown", self._shut_down))
        self.queue.begin_shutdown("begin_shutdown")

    def close(self) -> None:
        """Stops the manager and waits for its thread."""
        self.begin_shutdown()
        self.queue.close()

    # -- start-up

    def _start_up(
        self, metadata_offset: Callable[[], int], channel: ControllerChannel, info: BrokerRegistrationInfo
    ) -> None:
        self._metadata_offset = metadata_offset
        self._channel = channel
        self._info = info
        channel.start()
        self._become(BrokerState.STARTING)
        self.queue.schedule_deferred(
            _REGISTRATION_TIMEOUT,
            self._clock.nanoseconds() + self._config.initial_registration_timeout_ms * _NS_PER_MS,
            QueuedCall("registration timeout", self._registration_timed_out),
        )
        log.info(
            "Incarnation %s of broker %d in cluster %s is starting",
            uuid_to_string(self.incarnation_id),
            self._config.node_id,
            info.cluster_id,
        )
        self._communicate()

    def _registration_timed_out(self) -> None:
        if self._ever_registered:
            return
        why = (
            f"Broker {self._config.node_id} could not register with the controller within "
            f"{self._config.initial_registration_timeout_ms} ms: {self._last_problem.rstrip('.')}."
        )
        log.error("%s It shuts down.", why)
        self._give_up(KafkaTimeoutError(why))

    def _give_up(self, error: BarnabasError) -> None:
        """Ends a startup that cannot succeed."""
        if not self.initial_catch_up_future.done():
            self.initial_catch_up_future.set_exception(error)
        self.begin_shutdown()

    # -- events

    def _metadata_applied(self, offset: int) -> None:
        self._published_offset = max(offset, self._published_offset)
        if self._state is BrokerState.STARTING and self._registered and offset >= self._broker_epoch:
            self._communicate_soon(0)

    def _set_ready_to_unfence(self) -> None:
        self._ready_to_unfence = True
        if self._registered:
            self._communicate_soon(0)

    def _directory_failed(self, directory: Uuid) -> None:
        self._offline_dirs[directory] = False
        if self._registered:
            self._communicate_soon(0)

    def _check_reported(self, directory: Uuid) -> None:
        if not self._offline_dirs.get(directory, False):
            log.error(
                "The controller could not be told that log directory %s has failed: the broker shuts down",
                uuid_to_string(directory),
            )
            self._on_directory_failure_unreported()

    def _cordon(self, directories: frozenset[Uuid]) -> None:
        self._cordoned_dirs = directories
        if self._registered:
            self._communicate_soon(0)

    def _register_again(self) -> None:
        self._registered = False
        self._communicate_soon(0)

    def _advertise(self, listeners: Sequence[Endpoint]) -> None:
        if self._info is not None:
            self._info = replace(self._info, advertised_listeners=tuple(listeners))
            self._register_again()

    def _begin_controlled_shutdown(self) -> None:
        if self._state is BrokerState.RUNNING and not self._registered:
            log.info("No controlled shutdown: the controller does not know broker %d", self._config.node_id)
            self.begin_shutdown()
        elif self._state is BrokerState.RUNNING:
            log.info("Beginning controlled shutdown")
            self._become(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
            self._communicate_soon(0)
        elif self._state is not BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            log.info("No controlled shutdown: the broker is in the state %s", self._state.name)
            self.begin_shutdown()

    def _shut_down(self) -> None:
        if self._state is BrokerState.SHUTTING_DOWN:
            return
        self._become(BrokerState.SHUTTING_DOWN)
        self.initial_catch_up_future.cancel()
        self.initial_unfence_future.cancel()
        self.controlled_shutdown_future.set_result(None)
        if self._channel is not None:
            self._channel.shutdown()
            self._channel = None

    def _become(self, following: BrokerState) -> None:
        if not self._state.can_become(following):
            raise RuntimeError(f"a broker cannot go from {self._state.name} to {following.name}")
        log.info("Broker %d goes from %s to %s", self._config.node_id, self._state.name, following.name)
        self._state = following

    # -- exchanges

    def _communicate_soon(self, delay_ms: int) -> None:
        """Schedules the next request after a delay, or at once if something has changed meanwhile."""
        if self._hurry:
            delay_ms, self._hurry = 0, False
        self.queue.schedule_deferred(
            _COMMUNICATION,
            self._clock.nanoseconds() + delay_ms * _NS_PER_MS,
            QueuedCall(_COMMUNICATION, self._communicate),
        )

    def _communicate_after_failure(self) -> None:
        delay_ms = self._backoff.backoff(self._failed_attempts)
        self._failed_attempts += 1
        self._hurry = False  # the backoff applies even if something has changed
        self._communicate_soon(delay_ms)

    def _communicate(self) -> None:
        if self._in_flight:
            self._hurry = True
        elif self._registered:
            self._send_heartbeat()
        else:
            self._send_registration()

    def _send_registration(self) -> None:
        info = self._info
        if info is None or self._channel is None:
            return
        request = BrokerRegistrationRequest(
            broker_id=self._config.node_id,
            cluster_id=info.cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=registered_listeners(info.advertised_listeners),
            features=feature_records(Feature, dict(sorted(info.supported_features.items()))),
            rack=self._config.rack,
            log_dirs=list(self._log_dirs),
            # Only the first registration follows a clean shutdown; later ones of this process do not.
            previous_broker_epoch=NOT_REGISTERED if self._ever_registered else info.previous_broker_epoch,
        )
        self._in_flight = True
        self._channel.send_request(
            request,
            ControllerExchange(
                self.queue, "registration", lambda response: self._registration_ended(response, info), first=True
            ),
        )

    def _registration_ended(self, response: ClientResponse | None, info: BrokerRegistrationInfo) -> None:
        body = self._successful_body("register", response)
        if body is None:
            return
        assert isinstance(body, BrokerRegistrationResponse)
        if body.error_code:
            self._registration_refused(Errors.for_code(body.error_code))
            return
        self._failed_attempts = 0
        self._broker_epoch = body.broker_epoch
        self._ever_registered = True
        self._registered = info is self._info  # otherwise the listeners have changed since the request was sent
        log.info("Broker %d is registered with the epoch %d", self._config.node_id, body.broker_epoch)
        self._hurry = False
        self._communicate_soon(0)

    def _registration_refused(self, error: Errors) -> None:
        node_id = self._config.node_id
        if self._state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            log.info("Broker %d is not registered (%s): stopping without the controller", node_id, error.name)
            self.begin_shutdown()
            return
        remedy = _LASTING_ERRORS.get(error)
        if remedy is None or self._ever_registered:
            self._last_problem = f"{error.name}: {error.message}"
            log.warning("Broker %d could not register: %s", node_id, self._last_problem)
            self._communicate_after_failure()
            return
        remedy = remedy.format(principal=self._config.principal)
        self._give_up(
            BrokerRegistrationError(f"the controller refused to register broker {node_id} with {error.name}: {remedy}")
        )

    def _send_heartbeat(self) -> None:
        if self._channel is None:
            return
        offline = list(self._offline_dirs)
        request = BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self._broker_epoch,
            current_metadata_offset=max(self._metadata_offset(), self._published_offset),
            want_fence=not self._ready_to_unfence,
            want_shut_down=self._state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=offline,
        )
        if self._cordoned_dirs is not None and self._cordoned_log_dirs_supported():
            request.cordoned_log_dirs = sorted(self._cordoned_dirs)
        self._in_flight = True
        self._channel.send_request(
            request,
            ControllerExchange(
                self.queue, "heartbeat", lambda response: self._heartbeat_ended(response, offline), first=True
            ),
        )

    def _heartbeat_ended(self, response: ClientResponse | None, told_offline: Sequence[Uuid]) -> None:
        body = self._successful_body("send a heartbeat", response)
        if body is None:
            return
        assert isinstance(body, BrokerHeartbeatResponse)
        if body.error_code:
            self._heartbeat_refused(Errors.for_code(body.error_code))
            return
        self._failed_attempts = 0
        self._offline_dirs.update(dict.fromkeys(told_offline, True))
        self._follow(body)

    def _heartbeat_refused(self, error: Errors) -> None:
        node_id = self._config.node_id
        if error is not Errors.STALE_BROKER_EPOCH:
            log.warning("The heartbeat of broker %d was refused: %s: %s", node_id, error.name, error.message)
            self._communicate_after_failure()
        elif self._state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            log.info("The controller does not know broker %d any more: stopping without it", node_id)
            self.begin_shutdown()
        else:
            log.warning(
                "The controller does not know broker %d with epoch %d any more: it was unregistered, or another "
                "process has registered with its node.id. Registering again",
                node_id,
                self._broker_epoch,
            )
            self._registered = False
            self._communicate_after_failure()

    def _follow(self, body: BrokerHeartbeatResponse) -> None:
        """Makes the state change that the controller's response allows, and schedules the next heartbeat."""
        if self._state is BrokerState.STARTING:
            if body.is_caught_up:
                self._become(BrokerState.RECOVERY)
                # A waiter may call set_ready_to_unfence() before the next line runs.
                self.initial_catch_up_future.set_result(None)
                if self._ready_to_unfence:
                    self._communicate_soon(0)
                    return
            self._communicate_soon(CATCH_UP_INTERVAL_MS)
        elif self._state is BrokerState.RECOVERY:
            if not body.is_fenced:
                self._become(BrokerState.RUNNING)
                self.initial_unfence_future.set_result(None)
            self._communicate_soon(self._config.heartbeat_interval_ms)
        elif self._state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            if body.should_shut_down:
                log.info("The controller lets broker %d go", self._config.node_id)
                self.begin_shutdown()
                return
            first = not self._shutdown_responses
            self._shutdown_responses += 1
            if first:
                log.info("Waiting for the controller to move leaderships away")
            self._communicate_soon(CONTROLLED_SHUTDOWN_INTERVAL_MS if first else self._config.heartbeat_interval_ms)
        elif self._state is BrokerState.RUNNING:
            if body.is_fenced and not body.is_caught_up:  # registered again, record not read yet
                self._communicate_soon(CATCH_UP_INTERVAL_MS)
                return
            if body.is_fenced:
                log.warning("Broker %d is fenced: the controller has not heard of it in time", self._config.node_id)
            self._communicate_soon(self._config.heartbeat_interval_ms)

    def _successful_body(self, what: str, response: ClientResponse | None) -> object:
        """Returns the response body; if there is none, schedules a retry and returns None."""
        self._in_flight = False
        if self._state is BrokerState.SHUTTING_DOWN:
            return None
        if response is None:
            problem = "no controller could be asked in time"
        elif response.authentication_error is not None or response.version_mismatch is not None:
            problem = str(response.authentication_error or response.version_mismatch)
        elif response.body is None:
            problem = "there was no response"
        else:
            return response.body
        self._last_problem = problem
        log.error("Broker %d could not %s: %s", self._config.node_id, what, problem)
        self._communicate_after_failure()
        return None
