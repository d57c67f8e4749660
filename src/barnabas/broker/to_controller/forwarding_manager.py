"""Forwards client requests from the broker to the controller (KIP-590, R10)."""

from __future__ import annotations

import ipaddress
import logging
import struct
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import (
    AuthenticationError,
    Errors,
    KafkaTimeoutError,
    ProtocolError,
    UnknownServerError,
    UnsupportedVersionError,
)
from barnabas.common.log_safety import LimitedLogger
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry
from barnabas.network.client.client_request import ClientResponse
from barnabas.network.client.node_api_versions import NodeApiVersions
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import LENGTH_SIZE, encode_request
from barnabas.protocol.headers import ResponseHeader
from barnabas.protocol.message import Request as RequestMessage
from barnabas.protocol.message import Response
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.security.principal import serialize_principal
from barnabas.security.request_context import AuthorizableRequestContext
from barnabas.server.error_responses import error_response
from barnabas.server.request import Request

if TYPE_CHECKING:
    from barnabas.server.controller_channel import ControllerChannel

log = LimitedLogger(logging.getLogger(__name__))

ForwardingCallback = Callable[[Response | None], None]
"""Gets the controller's response, or an error response; None if the client's connection must be closed."""

_CORRELATION_ID = struct.Struct(">i")


def make_envelope(context: AuthorizableRequestContext, request_data: bytes) -> EnvelopeRequest:
    """Wraps a request, including its header, in an Envelope with the client's principal and address."""
    return EnvelopeRequest(
        request_data=request_data,
        request_principal=serialize_principal(context.principal),
        client_host_address=ipaddress.ip_address(context.client_address).packed,
    )


def open_envelope_response(data: bytes, api_key: ApiKey, version: int, correlation_id: int) -> Response:
    """Decodes the response in an Envelope response; :class:`ProtocolError` if it does not match the request."""
    if len(data) < _CORRELATION_ID.size:
        raise ProtocolError(f"a response of {len(data)} bytes in an Envelope")
    header, start = ResponseHeader.decode_from(data, api_key.response_header_version(version))
    if header.correlation_id != correlation_id:
        raise ProtocolError(f"a response to {header.correlation_id} in the Envelope for {correlation_id}")
    response, end = api_key.response.decode_from(data, version, start)
    if end != len(data):
        raise ProtocolError(f"{len(data) - end} bytes after the response in an Envelope")
    return response


class ForwardingManagerMetrics:
    """``kafka.server:type=ForwardingManager``: the number of requests in flight, and where their time goes."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._group = KafkaMetricsGroup(registry, "kafka.server", "ForwardingManager")
        self.queue_time_ms = self._group.new_histogram("QueueTimeMs")
        """From reading the client's request until sending it to the controller."""
        self.remote_time_ms = self._group.new_histogram("RemoteTimeMs")
        """From then until the response."""
        self._lock = threading.Lock()
        """Guards ``_queue_length``, which handler threads and the channel's thread change."""
        self._queue_length = 0
        self._group.new_gauge("QueueLength", lambda: self._queue_length)

    @property
    def queue_length(self) -> int:
        return self._queue_length

    def count(self, change: int) -> None:
        with self._lock:
            self._queue_length += change

    def close(self) -> None:
        for name in ("QueueTimeMs", "RemoteTimeMs", "QueueLength"):
            self._group.remove_metric(name)


class ForwardingManager:
    """Wraps client requests in Envelopes, and unwraps the responses.

    The Envelope contains the client's request, byte for byte, and the client's principal: the controller authorizes
    the client, not the broker. So the controller must support the client's version of the API. If it does not, although
    the version was advertised, the controller has changed: the client's connection is closed, and the client gets the
    new versions when it reconnects.

    Any other failure of the Envelope itself is caused by the cluster's configuration, which the client cannot fix: it
    gets UNKNOWN_SERVER_ERROR, and the reason is logged.

    A successful response is sent when the broker has applied its records: see
    `barnabas.broker.publishers.applied_metadata`. The callback runs on the thread of the channel or of the loader, and
    must not block.
    """

    def __init__(
        self,
        channel: ControllerChannel,
        registry: MetricsRegistry,
        clock: Clock = SYSTEM_CLOCK,
        *,
        when_applied: Callable[[Callable[[], object]], object] = lambda function: function(),
    ) -> None:
        self._channel = channel
        self.when_applied = when_applied
        self._now_ms = clock.hi_res_milliseconds
        self.metrics = ForwardingManagerMetrics(registry)

    def forward_request(
        self, request: Request, callback: ForwardingCallback, body: RequestMessage | None = None
    ) -> None:
        """Forwards a request; ``body`` replaces its own, for example when a part of it was handled here.

        The request is decoded before it is sent: a malformed request is the client's error and must not reach the
        controller, and the buffer is invalid after the handler returns.
        """
        original = request.body
        if body is not None or request.buffer is None:
            frame = encode_request(
                original if body is None else body, request.api_version, request.correlation_id, request.client_id
            )
            data = frame[LENGTH_SIZE:]
        else:
            data = bytes(request.buffer)
            request.keep_encoded(data)
        envelope = make_envelope(request.request_context, data)
        self.metrics.count(1)
        self._channel.send_request(envelope, _Forwarding(self, request, callback))

    @property
    def controller_api_versions(self) -> NodeApiVersions | None:
        """The controller's API versions, which limit forwarding; None before the first connection."""
        return self._channel.controller_api_versions

    def close(self) -> None:
        self.metrics.close()

    def timed_out(self) -> None:
        self.metrics.count(-1)
        self.metrics.queue_time_ms.update(self._channel.retry_timeout_ms)

    def handle_response(self, request: Request, response: ClientResponse) -> None:
        metrics = self.metrics
        metrics.count(-1)
        metrics.remote_time_ms.update(response.latency_ms)
        metrics.queue_time_ms.update(max(response.request.created_ms - request.start_time_ns // 1_000_000, 0))


class _Forwarding:
    """One request in flight."""

    __slots__ = ("_callback", "_manager", "_request")

    def __init__(self, manager: ForwardingManager, request: Request, callback: ForwardingCallback) -> None:
        self._manager = manager
        self._request = request
        self._callback = callback

    def on_complete(self, response: ClientResponse) -> None:
        request = self._request
        self._manager.handle_response(request, response)
        failure: UnsupportedVersionError | AuthenticationError | None = (
            response.version_mismatch or response.authentication_error
        )
        if failure is not None:
            log.error("%r cannot be forwarded: %s", request, failure)
            self._fail(UnknownServerError())
            return
        envelope = response.body
        assert isinstance(envelope, EnvelopeResponse)
        error = Errors.for_code(envelope.error_code)
        if error is Errors.UNSUPPORTED_VERSION:
            log.info("%r: the controller does not speak this version", request)
            self._callback(None)
        elif error is not Errors.NONE:
            log.error("%r could not be forwarded: the controller's response to the Envelope is %s", request, error.name)
            self._fail(UnknownServerError())
        else:
            self._deliver(envelope.response_data or b"")

    def _deliver(self, data: bytes) -> None:
        request = self._request
        try:
            response = open_envelope_response(data, request.api_key, request.api_version, request.correlation_id)
        except ProtocolError as problem:
            log.error("%r: the controller's response cannot be read: %s", request, problem)
            self._fail(UnknownServerError())
            return
        self._manager.when_applied(lambda: self._callback(response))

    def on_timeout(self) -> None:
        log.info("%r could not be forwarded in time", self._request)
        self._manager.timed_out()
        self._fail(KafkaTimeoutError("The controller could not be asked in time."))

    def _fail(self, error: Exception) -> None:
        self._callback(error_response(self._request, 0, error))
