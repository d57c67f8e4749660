"""Sending answers: throttling on the way out, and the end of every error (R11, R12).

A quota has two effects at once. The answer tells the client how long it should wait, and the broker stops reading its
connection for that long, for clients that do not listen. The answer itself is never held back.

=================================================== =========================================================
``send_response_maybe_throttle``                    the request quota, for clients
``send_error_response_maybe_throttle``              the same for an error that ends the request
``send_response_exempt_throttle``                   counted as exempt: what nodes of a cluster say to each other
``send_forwarded_response``                         the larger of what the controller says and what is due here
``send_response_maybe_throttle_with_controller_quota`` the larger of the request quota and the mutation quota
=================================================== =========================================================

A request that came in an Envelope has been, or will be, throttled by the broker that its client is connected to: to
mute the broker's connection to the controller would hold up all other clients of that broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from barnabas.common.clock import Clock
from barnabas.common.errors import (
    ApiError,
    ClusterAuthorizationError,
    Errors,
    ProtocolError,
    RetriableError,
    UnknownServerError,
)
from barnabas.common.log_safety import LimitedLogger
from barnabas.protocol.api_keys import Trait
from barnabas.protocol.message import EncodeError, Response
from barnabas.server.error_responses import error_response
from barnabas.server.request import Request
from barnabas.server.request_channel import RequestChannel
from barnabas.server.throttling import (
    NO_QUOTAS,
    ChannelThrottle,
    ControllerMutationQuota,
    QuotaManagers,
    Throttler,
)

logger = LimitedLogger(logging.getLogger(__name__))

CreateResponse = Callable[[int], Response]
"""Makes the answer, given the throttle time to put into it."""


class RequestHandlerHelper:
    """What all handlers of a dispatcher send their answers through."""

    def __init__(self, channel: RequestChannel, clock: Clock, quotas: QuotaManagers = NO_QUOTAS) -> None:
        self.channel = channel
        self.quotas = quotas
        self._now_ms = clock.milliseconds
        self.send = channel.send_response
        """Answers without asking any quota."""

    def throttle(self, throttler: Throttler, request: Request, throttle_time_ms: int) -> None:
        """Mutes the client for that long; the answer may be sent before or after."""
        callback = ChannelThrottle(request, self.channel.start_throttling, self.channel.end_throttling)
        throttler.throttle(request, callback, throttle_time_ms)

    def send_response_maybe_throttle(self, request: Request, create: CreateResponse) -> None:
        throttle_time_ms = self._request_throttle_ms(request)
        self.send(request, create(throttle_time_ms))

    def send_error_response_maybe_throttle(self, request: Request, error: BaseException) -> None:
        # Who is refused as a node of the cluster is throttled even so: it is no node of the cluster.
        throttle_time_ms = self._request_throttle_ms(request, even_if=isinstance(error, ClusterAuthorizationError))
        self._send_error(request, error, throttle_time_ms)

    def send_response_exempt_throttle(self, request: Request, response: Response) -> None:
        self.quotas.request.maybe_record_exempt(request)
        self.send(request, response)

    def send_error_response_exempt_throttle(self, request: Request, error: BaseException) -> None:
        self.quotas.request.maybe_record_exempt(request)
        self._send_error(request, error, 0)

    def send_no_op_response_exempt_throttle(self, request: Request) -> None:
        self.quotas.request.maybe_record_exempt(request)
        self.channel.send_no_op_response(request)

    def send_forwarded_response(self, request: Request, response: Any) -> None:
        """Passes on the controller's answer. The client waits for whoever wants it to wait longer."""
        throttle_time_ms = self.quotas.request.maybe_record_and_get_throttle_time_ms(request, self._now_ms())
        said = getattr(response, "throttle_time_ms", 0)
        total = max(said, throttle_time_ms)
        request.api_throttle_time_ms = total
        if total > 0:
            if total != said:
                response.throttle_time_ms = total
            self.throttle(self.quotas.request, request, total)
        self.send(request, response)

    def send_response_maybe_throttle_with_controller_quota(
        self, mutation_quota: ControllerMutationQuota, request: Request, create: CreateResponse
    ) -> None:
        mutation_ms = mutation_quota.throttle_time_ms
        request_ms = self.quotas.request.maybe_record_and_get_throttle_time_ms(request, self._now_ms())
        throttle_time_ms = max(mutation_ms, request_ms)
        request.api_throttle_time_ms = throttle_time_ms
        # A forwarded request is told, too, how long to wait; its own broker mutes it.
        if throttle_time_ms > 0 and not request.is_forwarded:
            larger: Throttler = self.quotas.controller_mutation if mutation_ms > request_ms else self.quotas.request
            self.throttle(larger, request, throttle_time_ms)
        self.send(request, create(throttle_time_ms))

    def handle_error(self, request: Request, error: BaseException) -> None:
        """The funnel: what a handler could not deal with becomes an answer, or the end of the connection."""
        if request.terminal:
            logger.error("%r failed after it was answered", request, exc_info=error)
            return
        if isinstance(error, EncodeError):
            error = UnknownServerError(f"The response cannot be encoded: {error}")
        elif isinstance(error, ProtocolError):
            # The body cannot be decoded, so the broker cannot tell what a response would be about. The peer caused it:
            # one line without a stack trace, or anybody could fill the log.
            logger.warning("Closing connection %s after a bad request: %s", request.connection_id, error)
            self.channel.close_connection(request, {Errors.INVALID_REQUEST: 1})
            return
        # "Not yet" is no bug either, even where the protocol has no code for it: an authorizer still loads its rules.
        expected = isinstance(error, RetriableError) or (
            isinstance(error, ApiError) and Errors.for_exception(error) is not Errors.UNKNOWN_SERVER_ERROR
        )
        if expected:
            logger.info("%r failed: %s", request, error)
        else:
            logger.error("Unexpected error while handling %r", request, exc_info=error)
        is_cluster_action = Trait.CLUSTER_ACTION in request.api_key.traits
        if is_cluster_action and not isinstance(error, ClusterAuthorizationError):
            self.send_error_response_exempt_throttle(request, error)
        else:
            self.send_error_response_maybe_throttle(request, error)

    def _request_throttle_ms(self, request: Request, even_if: bool = False) -> int:
        throttle_time_ms = self.quotas.request.maybe_record_and_get_throttle_time_ms(request, self._now_ms())
        request.api_throttle_time_ms = throttle_time_ms
        if throttle_time_ms > 0 and (even_if or not request.is_forwarded):
            self.throttle(self.quotas.request, request, throttle_time_ms)
        return throttle_time_ms

    def _send_error(self, request: Request, error: BaseException, throttle_time_ms: int) -> None:
        response = error_response(request, throttle_time_ms, error)
        if response is None:
            # No answer is expected; to close the connection is the one way to tell the client.
            self.channel.close_connection(request, {Errors.for_exception(error): 1})
        else:
            self.channel.update_error_metrics(request, Errors.for_exception(error))
            self.send(request, response)
