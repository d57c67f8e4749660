"""Heartbeats of a member in the consumer protocol (KIP-848)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from random import Random
from typing import Final

from barnabas.clients.consumer.group_metadata import ConsumerGroupMetadata, GroupMembershipOperation
from barnabas.clients.consumer.internals.background_events import ErrorEvent
from barnabas.clients.consumer.internals.consumer_member_state import LocalAssignment, MemberState
from barnabas.clients.consumer.internals.consumer_membership_manager import ConsumerMembershipManager
from barnabas.clients.consumer.internals.group_config import GroupConfig
from barnabas.clients.consumer.internals.group_parts import GroupParts
from barnabas.clients.consumer.internals.membership_manager import MemberIdentity
from barnabas.clients.consumer.internals.request_managers import EMPTY, FOREVER, PollResult, UnsentRequest
from barnabas.clients.consumer.internals.request_state import RequestState, Timer
from barnabas.clients.consumer.internals.subscription_state import SubscriptionState
from barnabas.common.errors import Errors, GroupAuthorizationError, UnsupportedVersionError
from barnabas.network.client.client_request import ClientResponse
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.protocol.versions import VersionRange

log = logging.getLogger(__name__)

_FIRST_WITH_REGEX: Final = 1
_MOVED: Final = frozenset({Errors.COORDINATOR_NOT_AVAILABLE, Errors.NOT_COORDINATOR})
_THROWN_OUT: Final = frozenset({Errors.FENCED_MEMBER_EPOCH, Errors.UNKNOWN_MEMBER_ID})
_NOT_FOR_US: Final = frozenset(
    {Errors.UNSUPPORTED_VERSION, Errors.GROUP_ID_NOT_FOUND, Errors.INCONSISTENT_GROUP_PROTOCOL}
)
"""Errors of a coordinator that does not support this protocol, or not for this group."""
_NO_PROTOCOL: Final = (
    "The cluster does not support the consumer group protocol of KIP-848. Set group.protocol=classic until it does."
)


class HeartbeatState:
    """Builds requests that hold only changed fields: the coordinator remembers the rest.

    A joining member sends all fields. After an error it is unknown what has arrived, so all fields are sent again.
    """

    def __init__(
        self, config: GroupConfig, subscriptions: SubscriptionState, member: ConsumerMembershipManager
    ) -> None:
        self._config = config
        self._subscriptions = subscriptions
        self._member = member
        self._rebalance_timeout_ms = -1
        self._topics: frozenset[str] | None = None
        self._regex: str | None = None
        self._server_assignor: str | None = None
        self._assignment: LocalAssignment | None = None

    def reset(self) -> None:
        self._rebalance_timeout_ms = -1
        self._topics = None
        self._regex = None
        self._server_assignor = None
        self._assignment = None

    def build(self) -> ConsumerGroupHeartbeatRequest:
        member, config = self._member, self._config
        request = ConsumerGroupHeartbeatRequest(
            group_id=config.group_id,
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            instance_id=config.group_instance_id,
        )
        if member.member_epoch < 0:
            return request
        everything = member.state is MemberState.JOINING
        if everything:
            request.rack_id = config.client_rack
        if everything or self._rebalance_timeout_ms != config.max_poll_interval_ms:
            request.rebalance_timeout_ms = self._rebalance_timeout_ms = config.max_poll_interval_ms
        topics = self._subscriptions.subscription.topics
        if everything or topics != self._topics:
            request.subscribed_topic_names = sorted(topics)
            self._topics = topics
        pattern = self._subscriptions.subscription.re2j_pattern
        regex = None if pattern is None else pattern.pattern
        if (everything and regex is not None) or regex != self._regex:
            request.subscribed_topic_regex = regex or ""  # an empty regex removes the former one
            self._regex = regex
        assignor = config.group_remote_assignor
        if assignor is not None and (everything or assignor != self._server_assignor):
            request.server_assignor = self._server_assignor = assignor
        if everything or member.current != self._assignment:
            request.topic_partitions = [
                TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
                for topic_id, numbers in member.current.partitions.items()
            ]
            self._assignment = member.current
        return request


class ConsumerHeartbeatRequestManager:
    """Sends heartbeats: at the coordinator's interval, and at once when there is something to report.

    Also enforces ``max.poll.interval.ms``: if the application has not polled for that long, the member leaves, because
    a member that does not read should not keep partitions.
    """

    def __init__(
        self,
        parts: GroupParts,
        member: ConsumerMembershipManager,
        random: Random,
        now: int,
        *,
        on_unsupported: Callable[[], None] | None = None,
    ) -> None:
        self._config = config = parts.config
        self.member = member
        self._coordinator = parts.coordinator
        self._events = parts.events
        self._metrics = parts.metrics
        self._heartbeat = HeartbeatState(config, parts.subscriptions, member)
        self._state = RequestState(config.retry_backoff_ms, config.retry_backoff_max_ms, random)
        self._timer = Timer(0, now)
        self._poll_timer = Timer(config.max_poll_interval_ms, now)
        self._on_unsupported = on_unsupported
        """Called instead of raising an error if the first heartbeat shows that this group cannot use this protocol."""
        self._leave_deadline_ms: int | None = None
        self._request = 0
        """The number of the latest request: the member may have started over since an earlier one."""

    # -- the application

    def on_application_poll(self, now: int) -> None:
        if self._poll_timer.is_expired(now):
            if not self.member.should_skip_heartbeat or self.member.state is MemberState.STALE:
                log.warning(
                    "The time between calls of poll() was longer than max.poll.interval.ms by %d ms",
                    self._poll_timer.expired_by_ms(now),
                )
            self.member.maybe_rejoin_stale_member()
        self._poll_timer.reset(now)
        self.member.on_application_poll(now)

    def on_subscription_change(self) -> None:
        self.member.on_subscription_change()

    def leave_group(self, operation: GroupMembershipOperation, deadline_ms: int | None) -> Future[None]:
        self._leave_deadline_ms = deadline_ms
        return self.member.leave_group(operation, deadline_ms)

    def identity_for_commit(self) -> MemberIdentity:
        return self.member.identity_for_commit()

    def identity_for_fetch(self) -> MemberIdentity:
        return self.member.identity_for_fetch()

    def on_commit_error(self, error: Errors, sent: MemberIdentity) -> Exception | None:
        return self.member.on_commit_error(error, sent)

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        return self.member.group_metadata

    # -- requests to send

    def poll(self, now: int) -> PollResult:
        member = self.member
        if self._leave_deadline_ms is not None and now >= self._leave_deadline_ms:
            self._leave_deadline_ms = None
            member.abandon_leave()
        wait_ms = FOREVER if self._leave_deadline_ms is None else self._leave_deadline_ms - now
        if self._coordinator.coordinator is None or member.should_skip_heartbeat:
            member.on_heartbeat_request_skipped()
            if not member.should_skip_heartbeat:
                self._report_hopeless()
            return PollResult(wait_ms)
        member.maybe_reconcile(now, application_polls=False)
        if self._poll_timer.is_expired(now) and not member.is_leaving:
            log.warning(
                "consumer poll timeout has expired: the time between calls of poll() was longer than "
                "max.poll.interval.ms. Raise that, or let poll() return fewer records (max.poll.records)."
            )
            member.on_poll_timer_expired()
            request = self._request_now(now)
            self._state.reset()
            self._heartbeat.reset()
            return PollResult(wait_ms, (request,))
        at_once = member.state is MemberState.LEAVING or (member.should_heartbeat_now and self._state.can_send(now))
        if not at_once and not (self._timer.is_expired(now) and self._state.can_send(now)):
            return PollResult(min(wait_ms, self._time_to_next(now)))
        request = self._request_now(now)
        return PollResult(min(wait_ms, self._time_to_next(now)), (request,))

    def maximum_time_to_wait(self, now: int) -> int:
        if self.member.should_skip_heartbeat:
            return FOREVER
        if self._poll_timer.is_expired(now):
            return 0
        wait_ms = max(self._poll_timer.remaining_ms(now) // 2, 1)
        if self.member.state is MemberState.RECONCILING:
            wait_ms = min(wait_ms, self._config.retry_backoff_ms)
        return wait_ms

    def poll_on_close(self, now: int) -> PollResult:
        if self.member.state is MemberState.LEAVING and self._coordinator.coordinator is not None:
            return PollResult(FOREVER, (self._request_now(now),))
        return EMPTY

    def _time_to_next(self, now: int) -> int:
        if self._state.in_flight:
            return max(self._poll_timer.remaining_ms(now), 1)
        next_ms = self._state.remaining_backoff_ms(now)
        if not self.member.should_heartbeat_now:
            next_ms = max(next_ms, self._timer.remaining_ms(now))
        return min(next_ms, self._poll_timer.remaining_ms(now))

    def _report_hopeless(self) -> None:
        error = self._coordinator.take_fatal_error()
        if error is not None:
            self._events.put(ErrorEvent(error))

    def _request_now(self, now: int) -> UnsentRequest:
        is_leave = self.member.state is MemberState.LEAVING
        request = self._heartbeat.build()
        self._state.sent()
        self._timer.reset(now)
        self._metrics.heartbeat_sent(now)
        self._request += 1
        number = self._request
        self.member.on_heartbeat_request_generated()
        versions = ApiKey.CONSUMER_GROUP_HEARTBEAT.stable_versions
        if request.subscribed_topic_regex is not None:
            versions = VersionRange(_FIRST_WITH_REGEX, versions.highest)
        on_complete = self._on_leave if is_leave else (lambda response: self._on_response(number, response))
        return UnsentRequest(request, self._coordinator.coordinator, on_complete, allowed_versions=versions)

    # -- responses

    def _on_leave(self, response: ClientResponse) -> None:
        self._state.reset()
        self._heartbeat.reset()
        body = response.body
        if body is not None:
            self._metrics.heartbeat_response(response.latency_ms)
        if isinstance(body, ConsumerGroupHeartbeatResponse) and body.error_code:
            log.info("The response to leaving the group was %s", Errors.for_code(body.error_code).name)
        elif body is None:
            log.info("Leaving the group got no response: %s", response.reason)
        self._leave_deadline_ms = None
        self.member.on_leave_response()

    def _on_response(self, number: int, response: ClientResponse) -> None:
        body = response.body
        if body is not None:
            self._metrics.heartbeat_response(response.latency_ms)
        if number != self._request:
            return
        now = response.received_ms
        if body is None:
            self._no_response(response)
            return
        assert isinstance(body, ConsumerGroupHeartbeatResponse)
        error = Errors.for_code(body.error_code)
        if error is Errors.NONE:
            self._on_unsupported = None
            if self._timer.interval_ms != body.heartbeat_interval_ms:
                self._timer.interval_ms = body.heartbeat_interval_ms
                self._timer.reset(now)
            self._state.succeeded(now)
            self.member.on_heartbeat_success(body)
            if self.member.state is MemberState.JOINING:
                self._state.failed(now)  # not an error, but back off before the next request
            return
        self._heartbeat.reset()
        self._state.failed(now)
        self._timer.reset(now, 0)
        self._rebalance_failed()
        self._on_error(error, body.error_message, now)

    def _no_response(self, response: ClientResponse) -> None:
        now = response.received_ms
        self._heartbeat.reset()
        self._state.failed(now)
        self._timer.reset(now, 0)
        if response.version_mismatch is not None:
            self._rebalance_failed()
            self._unsupported(Errors.UNSUPPORTED_VERSION, None)
        elif response.authentication_error is not None:
            self._rebalance_failed()
            self._fail(response.authentication_error)
        else:
            self._coordinator.handle_disconnect(response)

    def _rebalance_failed(self) -> None:
        """Records the failure of a rebalance in progress: a rejected member cannot complete it."""
        if self._metrics.is_rebalancing:
            self._metrics.rebalance_failed()

    def _on_error(self, error: Errors, message: str | None, now: int) -> None:
        log.info("ConsumerGroupHeartbeat of %r failed with %s: %s", self.member, error.name, message)
        if error in _MOVED:
            # The next heartbeat is sent as soon as the new coordinator is known.
            self._coordinator.mark_coordinator_unknown(f"{error.name} in response to ConsumerGroupHeartbeat", now)
            self._state.reset()
        elif error is Errors.COORDINATOR_LOAD_IN_PROGRESS:
            pass  # retried after a backoff
        elif error in _THROWN_OUT or (error is Errors.GROUP_ID_NOT_FOUND and self.member.member_epoch > 0):
            # A group that is gone, or was converted to a classic one because its last member of this protocol left,
            # does not know this member either; joining again restores it.
            self.member.transition_to_fenced()
            self._state.reset()
        elif error is Errors.GROUP_AUTHORIZATION_FAILED:
            self._fail(GroupAuthorizationError(f"Not authorized to access group: {self._config.group_id}"))
        elif error is Errors.TOPIC_AUTHORIZATION_FAILED:
            # If the permission is granted, this member continues.
            self._tell(error.to_exception(message))
        elif error in _NOT_FOR_US:
            self._unsupported(error, message)
        else:
            self._fail(error.to_exception(message))

    def _unsupported(self, error: Errors, message: str | None) -> None:
        if self._on_unsupported is not None:
            on_unsupported, self._on_unsupported = self._on_unsupported, None
            log.info("The group cannot have the consumer protocol: %s", message or error.message)
            on_unsupported()
        elif error is Errors.UNSUPPORTED_VERSION:
            self._fail(UnsupportedVersionError(message or _NO_PROTOCOL))
        else:
            self._fail(error.to_exception(message))

    def _tell(self, error: Exception | None) -> None:
        if error is not None:
            self._events.put(ErrorEvent(error))

    def _fail(self, error: Exception | None) -> None:
        self._tell(error)
        self.member.transition_to_fatal()

    def __repr__(self) -> str:
        return f"ConsumerHeartbeatRequestManager({self.member!r})"
