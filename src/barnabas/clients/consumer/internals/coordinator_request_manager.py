"""Finds the group coordinator, and finds it again after it has moved."""

from __future__ import annotations

import logging
from random import Random
from typing import Final

from barnabas.clients.consumer.internals.request_managers import EMPTY, FOREVER, PollResult, UnsentRequest
from barnabas.clients.consumer.internals.request_state import RequestState
from barnabas.common.errors import Errors, GroupAuthorizationError
from barnabas.network.client.client_request import ClientResponse
from barnabas.network.client.node import Node
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Request
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.versions import VersionRange

log = logging.getLogger(__name__)

_GROUP: Final = 0
_FIRST_BATCHED: Final = 4
_MAX_INT32: Final = 2**31 - 1
_LONG_DISCONNECT_MS: Final = 60_000


class _FindCoordinator:
    """Builds FindCoordinator for one key: versions up to 3 have a single field, later ones a list."""

    api_key: ApiKey = ApiKey.FIND_COORDINATOR
    allowed_versions: VersionRange = ApiKey.FIND_COORDINATOR.stable_versions

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id

    def build(self, version: int) -> Request:
        if version < _FIRST_BATCHED:
            return FindCoordinatorRequest(key=self._group_id, key_type=_GROUP)
        return FindCoordinatorRequest(coordinator_keys=[self._group_id], key_type=_GROUP)


class CoordinatorRequestManager:
    """Looks up the group coordinator and caches it.

    A NOT_COORDINATOR error or a missing response marks it as unknown. Then it is looked up again, from any broker, with
    a backoff while that fails.

    The coordinator has its own connection, even if the same broker also leads partitions: a heartbeat must not wait
    behind a fetch that the broker holds. So it has a separate node id, counted down from the largest integer.
    """

    def __init__(self, group_id: str, retry_backoff_ms: int, retry_backoff_max_ms: int, random: Random) -> None:
        self._group_id = group_id
        self._state = RequestState(retry_backoff_ms, retry_backoff_max_ms, random)
        self.coordinator: Node | None = None
        self._unknown_since_ms: int | None = None
        self._fatal_error: Exception | None = None

    def poll(self, now: int) -> PollResult:
        if self.coordinator is not None or self._state.in_flight:
            return EMPTY
        if not self._state.can_send(now):
            return PollResult(self._state.remaining_backoff_ms(now))
        self._state.sent()
        return PollResult(FOREVER, (UnsentRequest(_FindCoordinator(self._group_id), None, self._on_response),))

    def maximum_time_to_wait(self, now: int) -> int:
        if self.coordinator is not None or self._state.in_flight:
            return FOREVER
        return self._state.remaining_backoff_ms(now)

    def poll_on_close(self, now: int) -> PollResult:
        """Makes one last attempt to find the coordinator, which is needed to leave the group."""
        return self.poll(now)

    def _on_response(self, response: ClientResponse) -> None:
        now = response.received_ms
        body = response.body
        if body is None:
            self._state.failed(now)
            fatal = response.authentication_error or response.version_mismatch
            if fatal is not None:
                self._fatal_error = fatal
            log.debug("FindCoordinator ended without a response: %s", response.reason)
            return
        assert isinstance(body, FindCoordinatorResponse)
        if body.coordinators:
            row = body.coordinators[0]
            code, message, node_id, host, port = (
                row.error_code,
                row.error_message,
                row.node_id,
                row.host,
                row.port,
            )
        else:
            code, message, node_id, host, port = (
                body.error_code,
                body.error_message,
                body.node_id,
                body.host,
                body.port,
            )
        error = Errors.for_code(code)
        if error is Errors.NONE:
            self.coordinator = Node(_MAX_INT32 - node_id, host, port)
            log.info("Discovered group coordinator %s", self.coordinator)
            self._unknown_since_ms = None
            self._fatal_error = None
            self._state.succeeded(now)
            return
        self._state.failed(now)
        if error is Errors.GROUP_AUTHORIZATION_FAILED:
            self._fatal_error = GroupAuthorizationError(f"Not authorized to access group: {self._group_id}")
        elif not error.retriable:
            self._fatal_error = error.to_exception(message)
        log.debug("FindCoordinator failed: %s", message or error.message)

    def take_fatal_error(self) -> Exception | None:
        """Returns a fatal lookup error, once. Lookups continue, because permission may be granted."""
        error, self._fatal_error = self._fatal_error, None
        return error

    @property
    def fatal_error(self) -> Exception | None:
        return self._fatal_error

    def mark_coordinator_unknown(self, cause: str, now: int) -> None:
        if self.coordinator is None:
            if self._unknown_since_ms is not None and now - self._unknown_since_ms > _LONG_DISCONNECT_MS:
                log.warning("No group coordinator for %d ms", now - self._unknown_since_ms)
                self._unknown_since_ms = now
            return
        log.info("Group coordinator %s is unavailable or invalid: %s. It is looked up again.", self.coordinator, cause)
        self.coordinator = None
        self._unknown_since_ms = now

    def handle_disconnect(self, response: ClientResponse) -> None:
        """Handles a request to the coordinator that ended without a response."""
        if response.disconnected:
            self.mark_coordinator_unknown(response.reason or "disconnected", response.received_ms)
