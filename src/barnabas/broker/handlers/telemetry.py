"""GetTelemetrySubscriptions (v0) and PushTelemetry (v0): the metrics of clients (KIP-714).

Both are open to every client without permissions, and every broker serves them. The `ClientMetricsManager` makes all
decisions. An unexpected error is INVALID_REQUEST, because a client then stops pushing instead of retrying.

They are advertised only if the metrics have a receiver. That is always the case here, because they go to a topic.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from barnabas.common.errors import Errors, ProtocolError
from barnabas.common.log_safety import LimitedLogger
from barnabas.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal
from barnabas.telemetry.client_metrics_manager import ClientMetricsManager
from barnabas.telemetry.telemetry_client import TelemetryClient

logger = LimitedLogger(logging.getLogger(__name__))

R = TypeVar("R", GetTelemetrySubscriptionsResponse, PushTelemetryResponse)


class TelemetryHandler:
    """Handles GetTelemetrySubscriptions and PushTelemetry requests."""

    def __init__(self, helper: RequestHandlerHelper, manager: ClientMetricsManager) -> None:
        self._helper = helper
        self._manager = manager

    def get_telemetry_subscriptions(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, GetTelemetrySubscriptionsRequest)
        self._respond(
            request,
            GetTelemetrySubscriptionsResponse,
            lambda: self._manager.process_get_telemetry_subscriptions(body, TelemetryClient.of(request)),
        )

    def push_telemetry(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, PushTelemetryRequest)
        self._respond(
            request,
            PushTelemetryResponse,
            lambda: self._manager.process_push_telemetry(body, TelemetryClient.of(request)),
        )

    def _respond(self, request: Request, kind: type[R], process: Callable[[], R]) -> None:
        try:
            response = process()
        except ProtocolError:
            raise
        except Exception:
            logger.exception("%r failed", request)
            response = kind(error_code=Errors.INVALID_REQUEST)
        if response.error_code:
            self._helper.channel.update_error_metrics(request, Errors.for_code(response.error_code))

        def create(throttle_ms: int) -> R:
            response.throttle_time_ms = throttle_ms
            return response

        self._helper.send_response_maybe_throttle(request, create)
