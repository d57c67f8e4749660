"""Registers a controller's endpoints and supported features with the cluster (KIP-919)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING

from barnabas.broker.to_controller.controller_exchange import ControllerExchange
from barnabas.broker.to_controller.registered_listeners import registered_listeners
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import Errors
from barnabas.common.events.event_queue import KafkaEventQueue, QueuedCall
from barnabas.common.identifiers import Uuid, random_uuid
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.endpoint import feature_records
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.publisher import LoaderManifest, MetadataPublisher
from barnabas.network.client.client_request import ClientResponse
from barnabas.network.client.exponential_backoff import ExponentialBackoff
from barnabas.network.server.endpoint import Endpoint
from barnabas.protocol.messages.broker_registration import Feature
from barnabas.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from barnabas.protocol.versions import VersionRange

if TYPE_CHECKING:
    from barnabas.server.controller_channel import ControllerChannel

log = logging.getLogger(__name__)

RETRY_MS = 100
MAX_RETRY_MS = 120_000

_SEND = "send_registration"
_NS_PER_MS = 1_000_000


class ControllerRegistrationManager(MetadataPublisher):
    """Registers this controller with the active one, which may be itself, and keeps it registered.

    A registration does not affect voting, which is up to the quorum. Tools find controllers by their registrations
    (``--bootstrap-controller``), and the active controller raises no feature above the level that all registered
    controllers support.

    The metadata log decides, not the response. The registration is complete when its record, with this incarnation id,
    is read back. If the record disappears, or has another incarnation id, the controller registers again. Nothing is
    sent while the cluster's metadata.version does not support such records.
    """

    def __init__(
        self,
        node_id: int,
        endpoints: Sequence[Endpoint],
        supported_features: Mapping[str, VersionRange],
        channel: ControllerChannel,
        *,
        incarnation_id: Uuid | None = None,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
        threaded: bool = True,
    ) -> None:
        """Without ``threaded`` a test runs ``queue`` itself."""
        self.incarnation_id = random_uuid() if incarnation_id is None else incarnation_id
        self.registered = False
        """Whether the log has the registration. Accessed by the queue's thread only, as are the fields below."""
        self._node_id = node_id
        self._endpoints = tuple(endpoints)
        self._features = dict(supported_features)
        self._channel = channel
        self._clock = clock
        self._threaded = threaded
        self._backoff = ExponentialBackoff(
            RETRY_MS,
            2,
            MAX_RETRY_MS,
            0.02,
            Random() if random is None else random,  # noqa: S311 - spreads load, keeps no secret
        )
        self.queue = KafkaEventQueue(f"controller-{node_id}-registration-manager-event-handler", clock)
        self._supported = False
        self._in_flight = False
        self._failures = 0

    @property
    def name(self) -> str:
        return "ControllerRegistrationManager"

    def start(self) -> None:
        """Starts the manager. Call before installing it as a publisher: the first metadata make it register."""
        self._channel.start()
        if self._threaded:
            self.queue.start()

    def on_metadata_update(self, delta: MetadataDelta, new_image: MetadataImage, _manifest: LoaderManifest) -> None:
        cluster = delta.cluster
        if delta.features is not None or (cluster is not None and self._node_id in cluster.changed_controllers):
            self.queue.append(QueuedCall("controller registration", lambda: self._look(new_image)))

    def close(self) -> None:
        self.queue.begin_shutdown("close")
        self._channel.shutdown()
        self.queue.close()

    def _look(self, image: MetadataImage) -> None:
        version = image.features.metadata_version
        self._supported = version is not None and version.supports_controller_registration
        found = image.cluster.controllers.get(self._node_id)
        registered = found is not None and found.incarnation_id == self.incarnation_id
        if registered and not self.registered:
            log.info("Controller %d is registered", self._node_id)
        elif self.registered and not registered:
            log.warning("The registration of controller %d is gone; registering again", self._node_id)
        self.registered = registered
        self._maybe_send()

    def _maybe_send(self) -> None:
        if self.registered or not self._supported or self._in_flight:
            return
        self._in_flight = True
        request = ControllerRegistrationRequest(
            controller_id=self._node_id,
            incarnation_id=self.incarnation_id,
            listeners=registered_listeners(self._endpoints),
            features=feature_records(Feature, dict(sorted(self._features.items()))),
        )
        self._channel.send_request(
            request, ControllerExchange(self.queue, "controller registration", self._handle_response)
        )

    def _handle_response(self, response: ClientResponse | None) -> None:
        self._in_flight = False
        failure = _failure(response)
        if failure is None:
            self._failures = 0  # done when the record appears in the log
            return
        delay_ms = self._backoff.backoff(self._failures)
        self._failures += 1
        log.error("Controller %d could not register: %s. Trying again.", self._node_id, failure)
        time_ns = self._clock.nanoseconds() + round(delay_ms * _NS_PER_MS)
        self.queue.schedule_deferred(_SEND, time_ns, QueuedCall("controller registration", self._maybe_send))


def _failure(response: ClientResponse | None) -> str | None:
    if response is None:
        return "no controller could be asked in time"
    error = response.authentication_error or response.version_mismatch
    if error is not None:
        return str(error)
    body = response.body
    assert isinstance(body, ControllerRegistrationResponse)
    if not body.error_code:
        return None
    return body.error_message or Errors.for_code(body.error_code).message
