"""Heartbeats of a member of a classic group."""

from __future__ import annotations

import logging
from random import Random
from typing import TYPE_CHECKING

from barnabas.clients.consumer.internals import classic_requests
from barnabas.clients.consumer.internals.classic_member_state import ClassicMemberState, Generation
from barnabas.clients.consumer.internals.coordinator_request_manager import CoordinatorRequestManager
from barnabas.clients.consumer.internals.group_config import GroupConfig
from barnabas.clients.consumer.internals.group_metrics import GroupMetrics
from barnabas.clients.consumer.internals.request_managers import FOREVER, UnsentRequest
from barnabas.clients.consumer.internals.request_state import RequestState, Timer
from barnabas.common.errors import Errors, GroupAuthorizationError
from barnabas.network.client.client_request import ClientResponse
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.heartbeat import HeartbeatResponse

if TYPE_CHECKING:
    from barnabas.clients.consumer.internals.classic_membership_manager import ClassicMembershipManager

log = logging.getLogger(__name__)

_ACTIVE = frozenset({ClassicMemberState.COMPLETING_REBALANCE, ClassicMemberState.STABLE})
_OUT = frozenset({Errors.ILLEGAL_GENERATION, Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_INSTANCE_ID})


class ClassicHeartbeat:
    """Sends a heartbeat every ``heartbeat.interval.ms`` while in the group; the response's error code reports changes.

    Without a response for ``session.timeout.ms``, the coordinator has removed this member, or is down itself: it is
    looked up again.
    """

    def __init__(
        self,
        config: GroupConfig,
        member: ClassicMembershipManager,
        coordinator: CoordinatorRequestManager,
        metrics: GroupMetrics,
        random: Random,
        now: int,
    ) -> None:
        self._config = config
        self._member = member
        self._coordinator = coordinator
        self._metrics = metrics
        self._state = RequestState(config.retry_backoff_ms, config.retry_backoff_max_ms, random)
        self._timer = Timer(config.heartbeat_interval_ms, now)
        self._session = Timer(config.session_timeout_ms, now)
        self._sent_in: Generation | None = None
        """The generation of the request in flight."""

    @property
    def is_active(self) -> bool:
        return self._member.state in _ACTIVE

    def reset(self, now: int) -> None:
        """Restarts the timers: a join counts as a heartbeat."""
        self._timer.reset(now)
        self._session.reset(now)
        self._state.reset()
        self._sent_in = None

    def time_to_next(self, now: int) -> int:
        if not self.is_active:
            return FOREVER
        if self._state.in_flight:
            return self._session.remaining_ms(now)
        return max(self._timer.remaining_ms(now), self._state.remaining_backoff_ms(now))

    def poll(self, now: int) -> list[UnsentRequest]:
        if not self.is_active:
            return []
        if self._session.is_expired(now):
            self._session.reset(now)
            self._state.reset()
            self._coordinator.mark_coordinator_unknown("session timed out without receiving a heartbeat response", now)
            return []
        if not self._timer.is_expired(now) or not self._state.can_send(now):
            return []
        self._state.sent()
        self._timer.reset(now)
        self._metrics.heartbeat_sent(now)
        generation = self._member.generation
        self._sent_in = generation
        return [
            UnsentRequest(
                classic_requests.heartbeat_request(self._config, generation),
                self._coordinator.coordinator,
                lambda response: self._on_response(response, generation),
                allowed_versions=classic_requests.allowed_versions(ApiKey.HEARTBEAT, self._config),
            )
        ]

    def _on_response(self, response: ClientResponse, sent: Generation) -> None:
        body = response.body
        if body is not None:
            self._metrics.heartbeat_response(response.latency_ms)
        if self._sent_in is not sent:
            return  # belongs to a former membership
        self._sent_in = None
        now = response.received_ms
        if body is None:
            self._failed(now)
            self._coordinator.handle_disconnect(response)
            return
        assert isinstance(body, HeartbeatResponse)
        error = Errors.for_code(body.error_code)
        member = self._member
        if error is Errors.NONE:
            self._succeeded(now)
        elif error in {Errors.COORDINATOR_NOT_AVAILABLE, Errors.NOT_COORDINATOR}:
            self._failed(now)
            self._coordinator.mark_coordinator_unknown(f"{error.name} in response to Heartbeat", now)
        elif error is Errors.REBALANCE_IN_PROGRESS:
            self._succeeded(now)
            if member.state is ClassicMemberState.STABLE:
                member.request_rejoin("group is already rebalancing")
        elif error in _OUT:
            self._failed(now)
            if sent != member.generation:
                log.info("Heartbeat of %s, which is over, failed: %s", sent, error.message)
            elif error is Errors.FENCED_INSTANCE_ID:
                member.fail_fenced()
            else:
                member.reset_generation(
                    f"encountered {error.name} from Heartbeat response",
                    reset_member_id=error is not Errors.ILLEGAL_GENERATION,
                )
        elif error is Errors.GROUP_AUTHORIZATION_FAILED:
            self._failed(now)
            member.report(GroupAuthorizationError(f"Not authorized to access group: {self._config.group_id}"))
        elif error.retriable:
            self._failed(now)
        else:
            self._failed(now)
            member.report(error.to_exception())

    def _succeeded(self, now: int) -> None:
        self._state.succeeded(now)
        self._session.reset(now)

    def _failed(self, now: int) -> None:
        self._state.failed(now)
        self._timer.reset(now, 0)
