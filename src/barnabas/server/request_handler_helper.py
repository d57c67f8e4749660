"""Sends responses, applies throttling and turns errors into responses (R11, R12).

Throttling has two effects. The response contains the throttle time, and the broker mutes the connection for that time,
in case the client ignores it. The response itself is never delayed.

=================================================== =========================================================
``send_response_maybe_throttle``                    the request quota, for clients
``send_error_response_maybe_throttle``              the same for an error that ends the request
``send_response_exempt_throttle``                   counted as exempt: requests between nodes of the cluster
``send_forwarded_response``                         the larger of the controller's throttle time and this broker's
``send_response_maybe_throttle_with_controller_quota`` the larger of the request quota and the mutation quota
=================================================== =========================================================

A request from an Envelope is throttled by the broker that its client is connected to: muting the broker's connection to
the controller would delay all other clients of that broker.
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
from barnabas.common.shutdownable_thread import ExitProcedure, FatalExitError, exit_process
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
"""Creates the response with the given throttle time."""


class RequestHandlerHelper:
    """Sends the responses of all handlers of a dispatcher."""

    def __init__(
        self,
        channel: RequestChannel,
        clock: Clock,
        quotas: QuotaManagers = NO_QUOTAS,
        exit_procedure: ExitProcedure = exit_process,
    ) -> None:
        self.channel = channel
        self.quotas = quotas
        self.now_ns = clock.nanoseconds
        self._now_ms = clock.milliseconds
        self._exit = exit_procedure
        self.send = channel.send_response
        """Sends a response without checking any quota."""

    def throttle(self, throttler: Throttler, request: Request, throttle_time_ms: int) -> None:
        """Mutes the client for the throttle time; the response may be sent before or after."""
        callback = ChannelThrottle(request, self.channel.start_throttling, self.channel.end_throttling)
        throttler.throttle(request, callback, throttle_time_ms)

    def send_response_maybe_throttle(self, request: Request, create: CreateResponse) -> None:
        throttle_time_ms = self._request_throttle_ms(request)
        self.send(request, create(throttle_time_ms))

    def send_error_response_maybe_throttle(self, request: Request, error: BaseException) -> None:
        # A client that is denied ClusterAction is not a node of the cluster, so it is throttled.
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
        """Passes on the controller's response, with the larger of the two throttle times."""
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
        # The response to a forwarded request has the throttle time, too; its own broker mutes the client.
        if throttle_time_ms > 0 and not request.is_forwarded:
            larger: Throttler = self.quotas.controller_mutation if mutation_ms > request_ms else self.quotas.request
            self.throttle(larger, request, throttle_time_ms)
        self.send(request, create(throttle_time_ms))

    def handle_error(self, request: Request, error: BaseException) -> None:
        """Sends an error response, or closes the connection, for an error that a handler did not handle."""
        try:
            if isinstance(error, FatalExitError):
                self.close_after(request, error)
            elif request.terminal:
                logger.error("%r failed after its response", request, exc_info=error)
            elif isinstance(error, ProtocolError) and not isinstance(error, EncodeError):
                # The body cannot be decoded, so an error response cannot be built. The client caused it: log one line
                # without a stack trace, or any client could fill the log.
                logger.warning("Closing connection %s after a bad request: %s", request.connection_id, error)
                self.channel.close_connection(request, {Errors.INVALID_REQUEST: 1})
            else:
                self._respond_with_error(request, error)
        except Exception as failure:  # noqa: BLE001 - the last resort
            self.close_after(request, failure)

    def close_after(self, request: Request, error: BaseException) -> None:
        """Closes the connection of a request that failed without a response. A fatal error ends the process.

        A disconnected client reconnects at once, while a client without a response waits for its timeout.
        """
        if isinstance(error, FatalExitError):
            logger.critical("Fatal error while handling %r: %s", request, error)
            self._exit(error.status)
            return
        logger.error("Handling %r failed", request, exc_info=error)
        self.channel.close_without_response(request)

    def _respond_with_error(self, request: Request, error: BaseException) -> None:
        if isinstance(error, EncodeError):
            error = UnknownServerError(f"The response cannot be encoded: {error}")
        # A retriable error is not a bug, even without a protocol code: an authorizer may still be loading its rules.
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
            # The client expects no response; closing the connection is the only way to report the error.
            self.channel.close_connection(request, {Errors.for_exception(error): 1})
        else:
            self.channel.update_error_metrics(request, Errors.for_exception(error))
            self.send(request, response)
