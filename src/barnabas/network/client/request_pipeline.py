"""The request pipeline of a network client: turns requests into bytes, and selector events into responses."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.common.errors import AuthenticationError, Errors, ProtocolError, UnsupportedVersionError
from barnabas.metrics.sensor import Sensor
from barnabas.network.client.client_config import NetworkClientConfig
from barnabas.network.client.client_connections import ClientConnections
from barnabas.network.client.client_request import (
    ClientRequest,
    ClientResponse,
    RequestBuilder,
    RequestCompletionHandler,
)
from barnabas.network.client.client_throttle import should_client_throttle
from barnabas.network.client.connection_failure import (
    explain_broken_response,
    explain_loss,
    explain_refusal,
    explain_request_timeout,
    explain_setup_timeout,
)
from barnabas.network.client.inflight import InFlightRequest, InFlightRequests
from barnabas.network.client.metadata_updater import MetadataUpdater
from barnabas.network.client.node import Node
from barnabas.network.client.node_api_versions import NodeApiVersions
from barnabas.network.client.node_connection import READY, ConnectionState
from barnabas.network.client.version_negotiation import version_to_try_next
from barnabas.network.reactor.channel import ChannelState, KafkaChannel
from barnabas.network.reactor.send import NetworkSend
from barnabas.network.transport.local.offer import say_references, says_references
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import request_parts
from barnabas.protocol.message import Request, Response
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.versions import VersionRange

if TYPE_CHECKING:
    from barnabas.network.client.selector_metrics import SelectorMetrics
    from barnabas.network.reactor.selectable import Selectable

log = logging.getLogger(__name__)

_FIRST_RESERVED_CORRELATION_ID = 2**31 - 8
"""The correlation ids from here on are reserved for SASL handshake requests on the same connection."""
_LOWEST_CORRELATION_ID = -(2**31)


class RequestPipeline:
    """Sends requests, and turns the events of a poll into responses.

    ``ended`` holds the responses of requests that ended between two polls: one without a common version, one that
    expects no response and was sent at once, those of a connection that was closed on request. The next poll returns
    them first.
    """

    def __init__(
        self,
        selector: Selectable,
        connections: ClientConnections,
        metadata_updater: MetadataUpdater,
        config: NetworkClientConfig,
        throttle_time_sensor: Sensor | None,
        metrics: SelectorMetrics | None = None,
    ) -> None:
        self._selector = selector
        self._connections = connections
        self._states = connections.states
        self._negotiation = connections.negotiation
        self._updater = metadata_updater
        self._config = config
        self._throttle_time_sensor = throttle_time_sensor
        self._metrics = metrics
        self.in_flight = InFlightRequests(config.max_in_flight_requests_per_connection)
        # Bound here: used several times per request.
        self._has_room = self.in_flight.can_send_more
        self._node_states = connections.states.by_node
        self._is_channel_ready = selector.is_channel_ready
        self.ended: list[ClientResponse] = []
        self._correlation_id = 0

    # -- sending

    def new_request(
        self,
        node_id: str,
        body: Request | RequestBuilder,
        now: int,
        expect_response: bool = True,
        request_timeout_ms: int | None = None,
        callback: RequestCompletionHandler | None = None,
        allowed_versions: VersionRange | None = None,
    ) -> ClientRequest:
        correlation_id = self._correlation_id
        following = correlation_id + 1
        self._correlation_id = _LOWEST_CORRELATION_ID if following == _FIRST_RESERVED_CORRELATION_ID else following
        return ClientRequest(
            node_id,
            body,
            correlation_id,
            self._config.client_id,
            now,
            self._config.request_timeout_ms if request_timeout_ms is None else request_timeout_ms,
            expect_response,
            callback,
            allowed_versions,
        )

    def can_send(self, node_id: str, now: int) -> bool:
        """Whether the node is connected, not throttled, its last request sent, and another one may be in flight."""
        node = self._node_states.get(node_id)
        return (
            node is not None
            and node.state is READY
            and node.throttle_until_ms <= now
            and self._has_room(node_id)
            and self._is_channel_ready(node_id)
        )

    def send(self, request: ClientRequest, now: int, *, internal: bool = False) -> None:
        """Sends a request in the newest version that both sides have; without one, the request ends at once.

        An ``internal`` request is the client's own and does not appear among the responses.
        """
        node_id = request.destination
        version = request.allowed_versions.highest
        try:
            spoken = self._connections.api_versions.get(node_id)
            if spoken is not None:
                version = spoken.latest_usable_version(request.api_key, request.allowed_versions)
            body = request.body
            if not isinstance(body, Request):
                body = body.build(version)
            parts = request_parts(body, version, request.correlation_id, request.client_id)
        except UnsupportedVersionError as error:
            log.debug("%r cannot be sent: %s", request, error)
            if not internal:
                self.ended.append(ClientResponse(request, version, now, version_mismatch=error))
            elif request.api_key is ApiKey.METADATA:
                self._updater.handle_failed_request(now, error)
            return
        send = NetworkSend(parts, request)
        self.in_flight.add(InFlightRequest(request, version, send, now, internal))
        if self._metrics is not None:
            self._metrics.sent(node_id, send.size)
        sent = self._selector.send(self._connections.channels[node_id], send)
        if sent and not request.expect_response:
            self.ended.append(self.in_flight.complete_last_sent(node_id).completed(None, now))

    # -- events of a poll

    def handle_events(self, now: int) -> list[ClientResponse]:
        """Handles all selector events and time-outs; returns the requests that have ended, in order."""
        responses = self.ended
        self.ended = []
        selector = self._selector
        # Most polls bring only responses or completed sends.
        if selector.completed_sends:
            self._handle_completed_sends(responses, now)
        if selector.completed_receives:
            self._handle_completed_receives(responses, now)
        if selector.disconnected:
            self._handle_disconnections(responses, now)
        if selector.connected or self._negotiation.pending:
            self._handle_connections(now)
        if self._states.has_connecting:
            self._handle_timed_out_connections(responses, now)
        if now > self.in_flight.earliest_deadline_ms:
            self._handle_timed_out_requests(responses, now)
        if self._updater.can_rebootstrap and self._updater.needs_rebootstrap(now):
            self._rebootstrap(responses, now)
        return responses

    def _handle_completed_sends(self, responses: list[ClientResponse], now: int) -> None:
        """Ends requests that expect no response once their last byte is sent."""
        for channel, send in self._selector.completed_sends:
            if not send.request.expect_response and self._connections.is_current(channel):
                responses.append(self.in_flight.complete_last_sent(channel.id).completed(None, now))

    def _handle_completed_receives(self, responses: list[ClientResponse], now: int) -> None:
        channels = self._connections.channels
        for channel, payload in self._selector.completed_receives:
            node_id = channel.id
            if channels.get(node_id) is not channel:
                continue
            if self._metrics is not None:
                self._metrics.received(node_id, len(payload))
            try:
                request, body = self._match(node_id, payload)
            except (ProtocolError, UnsupportedVersionError) as error:
                # The next response can be located but not matched to a request: this connection is useless.
                self._lose(
                    responses, channel, explain_broken_response(channel.context, self._reached(node_id), error), now
                )
                continue
            self.in_flight.complete_next(node_id)
            self._maybe_throttle(request, body, now)
            if not request.internal:
                responses.append(ClientResponse(request.request, request.api_version, now, body))
            elif isinstance(body, ApiVersionsResponse):
                self._handle_api_versions(responses, channel, request.api_version, body, now)
            else:
                self._updater.handle_completed_metadata_response(request.request, now, body)

    def _match(self, node_id: str, payload: memoryview) -> tuple[InFlightRequest, Response]:
        """Decodes a payload as the response to the next expected request."""
        request = self.in_flight.next_expected(node_id)
        if request is None:
            raise ProtocolError(f"{len(payload)} bytes without a request in flight")
        if request.send.remaining or not request.request.expect_response:
            raise ProtocolError(f"{len(payload)} bytes before the request was sent, or although it has no response")
        return request, request.decode(payload)

    def _maybe_throttle(self, request: InFlightRequest, body: Response, now: int) -> None:
        """KIP-219: the node will not read during the throttle time, so nothing is sent to it."""
        throttle_ms: int = getattr(body, "throttle_time_ms", 0)
        if self._throttle_time_sensor is not None:
            self._throttle_time_sensor.record_soon(throttle_ms)
        if throttle_ms > 0 and should_client_throttle(body.api_key, request.api_version):
            node_id = request.request.destination
            self.in_flight.increment_throttle_time(node_id, throttle_ms)
            self._states.throttle(node_id, now + throttle_ms)
            log.debug("Node %s throttles this client for %d ms", node_id, throttle_ms)

    def _handle_disconnections(self, responses: list[ClientResponse], now: int) -> None:
        for channel, state in self._selector.disconnected:
            if self._connections.is_current(channel):
                reason = explain_loss(
                    channel.context, self._reached(channel.id), state, channel.error, channel.max_receive_size
                )
                refused = channel.error if isinstance(channel.error, AuthenticationError) else None
                idle = state is ChannelState.EXPIRED
                self._lose(responses, channel, reason, now, authentication_error=refused, harmless=idle)

    def _handle_connections(self, now: int) -> None:
        """Requests the API versions of nodes that have completed connecting, TLS and SASL."""
        for channel in self._selector.connected:
            if self._connections.is_current(channel):  # false if connected and lost in one poll
                self._connections.established(channel)
        for node_id, version in list(self._negotiation.pending.items()):
            if self._selector.is_channel_ready(node_id) and self.in_flight.can_send_more(node_id):
                # Not earlier: until here the set-up time-out covers the connection.
                self._states.checking_api_versions(node_id)
                self._negotiation.forget(node_id)
                node: Node = self._connections.channels[node_id].context
                body = self._negotiation.request(node.id, self._updater.cluster_id)
                if self._connections.is_moving(node_id):
                    say_references(body)
                request = self.new_request(node_id, body, now, allowed_versions=VersionRange(version, version))
                self.send(request, now, internal=True)

    def _handle_api_versions(
        self, responses: list[ClientResponse], channel: KafkaChannel, asked: int, body: ApiVersionsResponse, now: int
    ) -> None:
        if body.error_code == Errors.NONE:
            if self._connections.move_to_local_socket(channel, body):
                log.debug("Node %s has a local socket; the connection moves to it", channel.id)
                self._negotiation.retry(channel.id, asked)
                return
            if says_references(body):
                self._connections.refer(channel)
            self._connections.versions_known(channel, NodeApiVersions.of_response(body))
            return
        following = version_to_try_next(asked, body)
        if following is not None:
            log.debug("Node %s has no ApiVersions v%d; trying v%d", channel.id, asked, following)
            self._negotiation.retry(channel.id, following)
            return
        error = Errors.for_code(body.error_code)
        if error is Errors.REBOOTSTRAP_REQUIRED and self._updater.can_rebootstrap:
            log.info("Node %s belongs to another cluster by now", channel.id)
            self._rebootstrap(responses, now)
        else:
            self._lose(responses, channel, explain_refusal(channel.context, error), now)

    def _handle_timed_out_connections(self, responses: list[ClientResponse], now: int) -> None:
        for node_id in self._states.nodes_with_connection_setup_timeout(now):
            channel = self._connections.channels[node_id]
            limit_ms = self._states.connection_setup_timeout_ms(node_id)
            self._lose(responses, channel, explain_setup_timeout(channel.context, limit_ms), now, timed_out=True)

    def _handle_timed_out_requests(self, responses: list[ClientResponse], now: int) -> None:
        """Closes connections with a late response: responses come in order, so a missing one blocks the others."""
        for node_id in self.in_flight.nodes_with_timed_out_requests(now):
            channel = self._connections.channels[node_id]
            reason = explain_request_timeout(channel.context, self._reached(node_id))
            self._lose(responses, channel, reason, now, timed_out=True)

    def _rebootstrap(self, responses: list[ClientResponse], now: int) -> None:
        """Closes all connections and starts again with the bootstrap servers (KIP-899, KIP-1102)."""
        log.info("Starting again from the bootstrap servers")
        for channel in list(self._connections.channels.values()):
            self._lose(responses, channel, "this client starts again from the bootstrap servers", now, harmless=True)
        self._updater.rebootstrap(now)

    # -- the end of a connection

    def _reached(self, node_id: str) -> ConnectionState:
        state = self._states.state(node_id)
        assert state is not None
        return state

    def _lose(
        self,
        responses: list[ClientResponse],
        channel: KafkaChannel,
        reason: str,
        now: int,
        *,
        timed_out: bool = False,
        authentication_error: AuthenticationError | None = None,
        harmless: bool = False,
    ) -> None:
        """Ends all requests of a connection that is lost, or that is closed here because it is useless."""
        node_id = channel.id
        reached = self._reached(node_id)
        if self._connections.is_moving(node_id):
            reason = f"{reason}; that was its local socket, and the next connection stays with TCP"
            harmless = True
            self._connections.stay_with_tcp(node_id)
        self._connections.close(node_id)
        if authentication_error is not None:
            log.error("Node %s: %s", node_id, reason)
            self._states.authentication_failed(node_id, now, authentication_error, reason)
        else:
            harmless = harmless or (reached is READY and not timed_out)
            log.log(logging.INFO if harmless else logging.WARNING, "Node %s: %s", node_id, reason)
            self._states.disconnected(node_id, now, reason)
        self._cancel(
            node_id, now, responses, timed_out=timed_out, authentication_error=authentication_error, reason=reason
        )
        self._updater.handle_server_disconnect(now, node_id, authentication_error)

    def disconnect(self, node_id: str, now: int) -> None:
        """Closes a connection at the owner's request; its requests end with the next poll."""
        reason = "this client closed the connection"
        self._connections.close(node_id)
        self._states.disconnected(node_id, now, reason)
        self._cancel(node_id, now, self.ended, reason=reason)

    def forget(self, node_id: str, now: int) -> None:
        """Closes a connection and forgets the node; its requests end without a response."""
        self._connections.close(node_id)
        self._states.remove(node_id)
        self._cancel(node_id, now, None)

    def _cancel(
        self,
        node_id: str,
        now: int,
        responses: list[ClientResponse] | None,
        *,
        timed_out: bool = False,
        authentication_error: AuthenticationError | None = None,
        reason: str | None = None,
    ) -> None:
        for request in self.in_flight.clear_all(node_id):
            log.debug("%r is cancelled: %s", request, reason)
            if not request.internal:
                if responses is not None:
                    responses.append(
                        request.disconnected(
                            now, timed_out=timed_out, authentication_error=authentication_error, reason=reason
                        )
                    )
            elif request.request.api_key is ApiKey.METADATA:
                self._updater.handle_failed_request(now, None)
