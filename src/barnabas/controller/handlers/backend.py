"""Shared functions of the controller's handlers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from barnabas.common.clock import Clock
from barnabas.common.log_safety import LimitedLogger
from barnabas.controller.quorum_controller import QuorumController
from barnabas.controller.request_context import ControllerRequestContext
from barnabas.protocol.message import Response
from barnabas.security.acl import AclOperation
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.error_responses import error_response
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.throttling import UNLIMITED, ControllerMutationQuota

log = LimitedLogger(logging.getLogger(__name__))

NANOSECONDS_PER_MS = 1_000_000

NewMutationQuota = Callable[[Request, int], ControllerMutationQuota]
"""Returns the mutation quota for a request.

The number is the first version of the API whose clients understand THROTTLING_QUOTA_EXCEEDED: older clients are never
refused, but throttled afterwards (KIP-599).
"""


def no_mutation_quota(_request: Request, _strict_since_version: int) -> ControllerMutationQuota:
    """Returns an unlimited quota."""
    return UNLIMITED


class Backend:
    """Calls the controller and sends its responses.

    A handler makes a context from the request, calls the controller, and passes the future on:

        self._backend.respond(request, self._controller.update_features(self._backend.context(request), body))

    The response is built and sent on the controller's event thread. Errors of the controller and of the handler go to
    the dispatcher's error handling.
    """

    def __init__(
        self,
        controller: QuorumController,
        helper: RequestHandlerHelper,
        auth: AuthHelper,
        clock: Clock,
        new_mutation_quota: NewMutationQuota = no_mutation_quota,
    ) -> None:
        self.controller = controller
        self.helper = helper
        self.auth = auth
        self.new_mutation_quota = new_mutation_quota
        self._now_ns = clock.nanoseconds

    def authorize_cluster(self, request: Request, operation: AclOperation) -> None:
        """Raises CLUSTER_AUTHORIZATION_FAILED if the client may not perform the operation on the cluster."""
        self.auth.authorize_cluster_operation(request.request_context, operation)

    def context(
        self, request: Request, timeout_ms: int | None = None, quota: ControllerMutationQuota = UNLIMITED
    ) -> ControllerRequestContext:
        """Returns the context of a request; without a timeout it has no deadline."""
        return ControllerRequestContext(
            principal=str(request.request_context.principal),
            deadline_ns=None if timeout_ms is None else self._now_ns() + timeout_ms * NANOSECONDS_PER_MS,
            request_version=request.api_version,
            client_id=request.client_id or "",
            partition_change_quota=quota.record,
        )

    def respond(self, request: Request, future: Future[Any]) -> None:
        """Sends the controller's response, under the client's request quota."""
        self._when_done(request, future, lambda response: self.send(request, response))

    def respond_exempt(self, request: Request, future: Future[Any]) -> None:
        """Sends the response to another node, exempt from throttling."""
        self._when_done(request, future, lambda response: self.helper.send_response_exempt_throttle(request, response))

    def respond_to_mutation(self, request: Request, quota: ControllerMutationQuota, future: Future[Any]) -> None:
        """Sends the response to a change charged to the mutation quota; a failed change is charged, too."""

        def send(create: Callable[[int], Response]) -> None:
            self.helper.send_response_maybe_throttle_with_controller_quota(quota, request, create)

        def refuse(error: BaseException) -> None:
            log.info("%r failed: %s", request, error)
            send(lambda throttle_ms: _some(error_response(request, throttle_ms, error)))

        self._when_done(
            request, future, lambda response: send(lambda throttle_ms: throttled(response, throttle_ms)), refuse
        )

    def send(self, request: Request, response: Response) -> None:
        self.helper.send_response_maybe_throttle(request, lambda throttle_ms: throttled(response, throttle_ms))

    def _when_done(
        self,
        request: Request,
        future: Future[Any],
        send: Callable[[Any], None],
        refuse: Callable[[BaseException], None] | None = None,
    ) -> None:
        def done(completed: Future[Any]) -> None:
            try:
                error = completed.exception()
                if error is None:
                    send(completed.result())
                elif refuse is None:
                    self.helper.handle_error(request, error)
                else:
                    refuse(error)
            except Exception as error:  # noqa: BLE001 - a future swallows the errors of its callbacks
                self.helper.handle_error(request, error)

        future.add_done_callback(done)


def throttled(response: Any, throttle_time_ms: int) -> Response:
    """Returns the response with the throttle time set."""
    response.throttle_time_ms = throttle_time_ms
    made: Response = response
    return made


def _some(response: Response | None) -> Response:
    """Returns the response, for the type checker: every mutation has one."""
    assert response is not None
    return response
