"""Membership in a classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from random import Random

from barnabas.clients.consumer.assignors import (
    Assignment,
    ConsumerPartitionAssignor,
    RebalanceProtocol,
    Subscription,
    rebalance_protocol_of,
)
from barnabas.clients.consumer.errors import CommitFailedError, IllegalStateError
from barnabas.clients.consumer.group_metadata import ConsumerGroupMetadata, GroupMembershipOperation
from barnabas.clients.consumer.internals import classic_requests
from barnabas.clients.consumer.internals.background_events import CallbackEvent, ErrorEvent
from barnabas.clients.consumer.internals.background_future import completed, new_future, then
from barnabas.clients.consumer.internals.classic_heartbeat import ClassicHeartbeat
from barnabas.clients.consumer.internals.classic_member_state import (
    NO_GENERATION,
    SOURCES,
    STEP_SOURCES,
    ClassicMemberState,
    Generation,
    RejoinStep,
)
from barnabas.clients.consumer.internals.consumer_protocol import (
    PROTOCOL_TYPE,
    deserialize_assignment,
    serialize_subscription,
)
from barnabas.clients.consumer.internals.group_events import RebalanceCallback
from barnabas.clients.consumer.internals.group_leader import WatchedTopics, divide, read_members, to_bytes
from barnabas.clients.consumer.internals.group_parts import GroupParts
from barnabas.clients.consumer.internals.membership_manager import NO_MEMBER, MemberIdentity
from barnabas.clients.consumer.internals.request_managers import EMPTY, FOREVER, PollResult, UnsentRequest
from barnabas.clients.consumer.internals.request_state import RequestState, Timer
from barnabas.common.errors import (
    BarnabasError,
    Errors,
    FencedInstanceIdError,
    GroupAuthorizationError,
    GroupMaxSizeReachedError,
    RebalanceInProgressError,
)
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.client_request import ClientResponse
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Request
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse

log = logging.getLogger(__name__)

_S = ClassicMemberState
_R = RejoinStep
_REBALANCING = frozenset({_S.PREPARING_REBALANCE, _S.COMPLETING_REBALANCE})
_MOVED = frozenset({Errors.COORDINATOR_NOT_AVAILABLE, Errors.NOT_COORDINATOR})
_AT_ONCE = frozenset(
    {Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION, Errors.REBALANCE_IN_PROGRESS, Errors.MEMBER_ID_REQUIRED}
)


class ClassicMembershipManager:
    """Joins a classic group: all members join, the leader assigns partitions, all members receive their assignment.

    A rebalance, as this member sees it (`RejoinStep`)::

        the application polls, and there is a reason to join
          auto-commit consumed offsets
          eager: call the listener: all is revoked            cooperative: keep all that is still subscribed
        JoinGroup      held by the coordinator until all members have joined; names the leader
          the leader assigns, once it has the metadata of all topics
        SyncGroup      held until the leader's arrives; returns this member's assignment
          cooperative: call the listener for revoked partitions; if there are any, join again: now others can have them
          call the listener for added partitions

    *Reasons*: the first join; the subscription has changed; a heartbeat failed with REBALANCE_IN_PROGRESS; this member
    leads, and the partitions of the topics have changed; it was removed. In the last case it has no valid generation,
    and its partitions are *lost*.

    Every request is bound to its generation: the response to a heartbeat of the previous generation says nothing about
    the current one.
    """

    def __init__(
        self, parts: GroupParts, assignors: Sequence[ConsumerPartitionAssignor], random: Random, now: int
    ) -> None:
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self.protocol = rebalance_protocol_of(assignors)
        self._config = config = parts.config
        self._subscriptions = parts.subscriptions
        self._metadata = parts.metadata
        self._coordinator = parts.coordinator
        self._commits = parts.commits
        self._listeners = parts.listeners
        self._events = parts.events
        self._metrics = parts.metrics
        self.state = _S.UNJOINED
        self.step = _R.IDLE
        self.generation: Generation = NO_GENERATION
        self._is_fenced = False
        self._rejoin_needed = True
        self._rejoin_reason = ""
        self._needs_prepare = True
        """Whether partitions must be given up before joining; done once, however often joining fails."""
        self._attempt = 0
        """The number of the current join attempt. Responses to earlier attempts are ignored."""
        self._join_state = RequestState(config.retry_backoff_ms, config.retry_backoff_max_ms, random)
        self._joined_subscription: frozenset[str] | None = None
        self._is_leader = False
        self._members: Mapping[str, Subscription] = {}
        self._skip_assignment = False
        self._metadata_version = 0
        self._watched: WatchedTopics | None = None
        self._poll_timer = Timer(config.max_poll_interval_ms, now)
        self._heartbeat = ClassicHeartbeat(config, self, parts.coordinator, parts.metrics, random, now)
        self._leave_reason: str | None = None
        self._leaving: Future[None] | None = None
        self._leave_deadline_ms: int | None = None
        self._group_metadata = ConsumerGroupMetadata(config.group_id, -1, "", config.group_instance_id)

    # -- queries of other parts

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        return self._group_metadata

    @property
    def is_leader(self) -> bool:
        return self._is_leader

    def identity_for_commit(self) -> MemberIdentity:
        if not self._subscriptions.subscription.is_auto_assigned():
            return NO_MEMBER
        if self.state is _S.STABLE:
            return self._identity()
        if self.state in _REBALANCING:
            raise RebalanceInProgressError(
                "Offsets cannot be committed while the group rebalances. Call poll() to complete the rebalance, then "
                "try again."
            )
        raise CommitFailedError(
            "Offsets cannot be committed since the consumer is not part of an active group for auto partition "
            "assignment; it is likely that it was kicked out of the group."
        )

    def identity_for_fetch(self) -> MemberIdentity:
        return NO_MEMBER

    def _identity(self) -> MemberIdentity:
        generation = self.generation
        return MemberIdentity(generation.generation_id, generation.member_id, self._config.group_instance_id)

    def on_commit_error(self, error: Errors, sent: MemberIdentity) -> Exception | None:
        unchanged = sent == self._identity()
        if error is Errors.REBALANCE_IN_PROGRESS:
            # The coordinator waits for this member. The commit was not stored, and there may be no other chance to
            # store it.
            self.request_rejoin("offset commit failed since group is already rebalancing")
            return RebalanceInProgressError(
                "Offsets were not committed because the group is rebalancing. Call poll() to complete the rebalance, "
                "then try again."
            )
        if error not in {Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION, Errors.FENCED_INSTANCE_ID}:
            return None
        if sent == NO_MEMBER:
            return CommitFailedError(f"OffsetCommit failed: {error.message}")
        if not unchanged:
            # The response belongs to a former generation. The fate of the partitions is not known yet.
            if self.state in _REBALANCING:
                return RebalanceInProgressError("The group has been rebalanced since the offsets were sent.")
            return CommitFailedError("The group has been rebalanced since the offsets were sent.")
        if error is Errors.FENCED_INSTANCE_ID:
            return FencedInstanceIdError()
        self.reset_generation(
            f"encountered {error.name} from OffsetCommit response",
            reset_member_id=error is not Errors.ILLEGAL_GENERATION,
        )
        return CommitFailedError(
            "Offsets were not committed because the group has already rebalanced and assigned the partitions to "
            "another member. The time between calls of poll() was probably longer than max.poll.interval.ms: raise "
            "that, or let poll() return fewer records (max.poll.records)."
        )

    # -- reasons to join

    def on_subscription_change(self) -> None:
        """Clears the fenced state. The next poll of the application detects the change."""
        self._is_fenced = False

    def request_rejoin(self, reason: str) -> None:
        log.info("Request joining group due to: %s", reason)
        self._rejoin_reason = reason
        self._rejoin_needed = True
        if self.step is _R.IDLE:
            self._wake_application()

    def reset_generation(self, reason: str, *, reset_member_id: bool) -> None:
        """Records that this member is out of the group. Its id may still be valid for joining again."""
        log.info("Resetting generation%s due to: %s", " and member id" if reset_member_id else "", reason)
        self._transition_to(_S.UNJOINED)
        self.generation = NO_GENERATION if reset_member_id else Generation(-1, self.generation.member_id, None)
        self._needs_prepare = True
        self.request_rejoin(reason)

    def report(self, error: Exception | None) -> None:
        """Reports an error to the application, which gets it from poll()."""
        if error is not None:
            self._events.put(ErrorEvent(error))

    def fail_fenced(self) -> None:
        """Fails for good: another process with the same ``group.instance.id`` has replaced this member.

        Joining again would fence that process in turn, without end. Only a new subscription ends this state."""
        log.error("The group instance id %s has been fenced by another instance", self._config.group_instance_id)
        self._is_fenced = True
        self._abandon_attempt()
        self.reset_generation("the group instance id was fenced", reset_member_id=True)
        self.report(FencedInstanceIdError())
        lost = self._listeners.invoke(RebalanceCallback.LOST, self._subscriptions.assignment.partitions)
        then(lost, lambda _error: self._drop(self._subscriptions.assignment.partitions()))

    def _wake_application(self) -> None:
        """Wakes an application that waits for records, because a rebalance begins when it polls again."""
        self._events.put(CallbackEvent(lambda: None))

    def _is_rejoin_needed(self) -> bool:
        if self._watched is not None and self._watched != self._watch():
            self._rejoin_reason = "cached metadata has changed"
            self._rejoin_needed = True
        elif self._joined_subscription not in {None, self._subscriptions.subscription.topics}:
            self._rejoin_reason = "subscription has changed"
            self._rejoin_needed = True
        return self._rejoin_needed

    def _watch(self) -> WatchedTopics:
        racks = self._config.client_rack is not None
        return WatchedTopics.of(self._metadata.snapshot, self._subscriptions.metadata_topics(), racks=racks)

    # -- the application polls

    def on_application_poll(self, now: int) -> None:
        if self._leaving is not None or not self._subscriptions.subscription.is_auto_assigned():
            return
        if self._poll_timer.is_expired(now) and self.state is not _S.UNJOINED:
            log.warning(
                "The time between calls of poll() was longer than max.poll.interval.ms by %d ms",
                self._poll_timer.expired_by_ms(now),
            )
        self._poll_timer.reset(now)
        if self._is_fenced or self.step is not _R.IDLE or not self._is_rejoin_needed():
            return
        if self._coordinator.coordinator is None and self._subscriptions.assignment:
            return  # no commit or join is possible; keep reading until there is a coordinator
        self._move_to(_R.PREPARING)
        if not self._needs_prepare:
            self._prepared()
            return
        self._attempt += 1
        attempt = self._attempt
        if self.protocol is RebalanceProtocol.EAGER and self._config.enable_auto_commit:
            # Records that arrive during the commit would be read again by the next owner.
            self._subscriptions.assignment.mark_pending_revocation(self._subscriptions.assignment.partitions())
        deadline_ms = now + self._config.max_poll_interval_ms
        then(
            self._commits.auto_commit_before_revocation(deadline_ms),
            lambda error: self._give_up_partitions(attempt, error),
        )

    def _give_up_partitions(self, attempt: int, error: BaseException | None) -> None:
        if attempt != self._attempt:
            return
        if error is not None:
            log.error("Offsets could not be committed before the rebalance, which goes on: %s", error)
        owned = self._subscriptions.assignment.partitions()
        if not self.generation.is_valid:
            kind, given_up = RebalanceCallback.LOST, owned
            if owned:
                log.info("Giving away all assigned partitions as lost: this member is no longer part of the group")
        elif self.protocol is RebalanceProtocol.EAGER:
            kind, given_up = RebalanceCallback.REVOKED, owned
        else:
            subscription = self._subscriptions.subscription.topics
            kind = RebalanceCallback.REVOKED
            given_up = {partition for partition in owned if partition.topic not in subscription}

        def done(failure: BaseException | None) -> None:
            if failure is not None:
                log.error("The listener failed on partitions %s: %s", kind.value, failure)
            self._drop(given_up)
            if attempt == self._attempt:
                self._prepared()

        then(self._listeners.invoke(kind, lambda: given_up), done)

    def _drop(self, partitions: set[TopicPartition]) -> None:
        """Unassigns partitions, whatever has happened while the listener ran."""
        if partitions and self._subscriptions.subscription.is_auto_assigned():
            kept = [one for one in self._subscriptions.assignment.in_fetch_order() if one not in partitions]
            self._subscriptions.assign_from_subscribed(kept)

    def _prepared(self) -> None:
        self._needs_prepare = False
        self._is_leader = False
        self._watched = None
        self._subscriptions.reset_group_subscription()
        if self._subscriptions.subscription.has_pattern():
            # Members that match a pattern against metadata of different age would join one after the other, and cause
            # one rebalance each.
            self._metadata_version = self._metadata.request_update()
        else:
            self._metadata_version = -1
        self._move_to(_R.READY_TO_JOIN)

    # -- requests to send

    def poll(self, now: int) -> PollResult:
        self._end_leave_if_late(now)
        node = self._coordinator.coordinator
        if node is None:
            self._on_no_coordinator()
            return PollResult(self._time_to_leave(now))
        if self._leave_reason is not None:
            return PollResult(FOREVER, self._leave_request())
        if self._leaving is not None or not self._subscriptions.subscription.is_auto_assigned():
            return PollResult(self._time_to_leave(now))
        if self._heartbeat.is_active and self._poll_timer.is_expired(now):
            log.warning(
                "consumer poll timeout has expired: the time between calls of poll() was longer than "
                "max.poll.interval.ms. Raise that, or let poll() return fewer records (max.poll.records)."
            )
            self._begin_leave("consumer poll timeout has expired.", now)
            return PollResult(FOREVER, self._leave_request())
        requests = list(self._heartbeat.poll(now))
        wait_ms = self._heartbeat.time_to_next(now)
        if self._heartbeat.is_active:
            wait_ms = min(wait_ms, self._poll_timer.remaining_ms(now))
        if self.step is _R.READY_TO_JOIN:
            if self._metadata.update_version <= self._metadata_version:
                return PollResult(wait_ms, requests)
            if not self._join_state.can_send(now):
                return PollResult(min(wait_ms, self._join_state.remaining_backoff_ms(now)), requests)
            requests.append(self._join_request())
        elif self.step is _R.READY_TO_SYNC:
            if self.state is not _S.COMPLETING_REBALANCE:
                self._join_again()  # removed meanwhile
                return PollResult(0, requests)
            if self._metadata.update_version > self._metadata_version:
                requests += self._sync_request(now)
        return PollResult(wait_ms, requests)

    def maximum_time_to_wait(self, now: int) -> int:
        if not self._subscriptions.subscription.is_auto_assigned():
            return FOREVER
        if self.step is _R.IDLE and self._rejoin_needed and not self._is_fenced:
            return 0 if self._coordinator.coordinator is not None else FOREVER
        return min(self._heartbeat.time_to_next(now), max(self._poll_timer.remaining_ms(now) // 2, 1))

    def poll_on_close(self, now: int) -> PollResult:  # noqa: ARG002 - it is always time
        if self._leave_reason is not None and self._coordinator.coordinator is not None:
            return PollResult(FOREVER, self._leave_request())
        return EMPTY

    def _on_no_coordinator(self) -> None:
        if self._leave_reason is not None:
            log.info("The group cannot be told that this member leaves: there is no coordinator")
            self._left()
        if self._subscriptions.subscription.is_auto_assigned():
            error = self._coordinator.take_fatal_error()
            if error is not None:
                self._events.put(ErrorEvent(error))

    def _send(
        self, body: Request, on_response: Callable[[ClientResponse, Generation], None], timeout_ms: int | None = None
    ) -> UnsentRequest:
        """Creates a request to the coordinator. Its response counts only during the same join attempt."""
        attempt, generation = self._attempt, self.generation

        def complete(response: ClientResponse) -> None:
            if attempt == self._attempt:
                on_response(response, generation)

        return UnsentRequest(
            body,
            self._coordinator.coordinator,
            complete,
            timeout_ms,
            allowed_versions=classic_requests.allowed_versions(body.api_key, self._config),
        )

    def _join_request(self) -> UnsentRequest:
        self._attempt += 1
        topics = self._subscriptions.subscription.topics
        self._joined_subscription = topics
        owned = tuple(self._subscriptions.assignment.in_fetch_order())
        generation_id = self.generation.generation_id
        protocols = []
        for assignor in self._assignors.values():
            subscription = Subscription(
                tuple(topics),
                assignor.subscription_user_data(topics),
                owned,
                generation_id if generation_id >= 0 else None,
                self._config.client_rack,
            )
            protocols.append((assignor.name, serialize_subscription(subscription)))
        self._transition_to(_S.PREPARING_REBALANCE)
        if not self._metrics.is_rebalancing:
            self._metrics.rebalance_started()
        self._move_to(_R.JOINING)
        self._join_state.sent()
        log.info("(Re-)joining group")
        request = classic_requests.join_request(self._config, self.generation, protocols, self._rejoin_reason)
        return self._send(request, self._on_join, classic_requests.join_timeout_ms(self._config))

    def _sync_request(self, now: int) -> list[UnsentRequest]:
        assignments: dict[str, bytes] = {}
        if self._is_leader:
            try:
                assignments = self._divide()
            except Exception as error:
                log.exception("The assignor failed")
                self._metrics.rebalance_failed()
                self._give_up_joining(error, now)
                return []
        self._move_to(_R.SYNCING)
        return [self._send(classic_requests.sync_request(self._config, self.generation, assignments), self._on_sync)]

    def _divide(self) -> dict[str, bytes]:
        if self._skip_assignment:
            # A static leader returned: the assignment is unchanged, and this member monitors the topics again.
            log.info("Skipped assignment for returning static leader at generation %d", self.generation.generation_id)
            self._watched = self._watch()
            return {}
        assignments = divide(self._assignor(), self.protocol, self._metadata.snapshot, self._members)
        subscribed = {topic for member in self._members.values() for topic in member.topics}
        assigned = {partition.topic for one in assignments.values() for partition in one.partitions}
        if not assigned <= subscribed and self._subscriptions.group_subscribe(subscribed | assigned):
            self._metadata.request_update_for_new_topics()
        self._watched = self._watch()
        return to_bytes(assignments)

    def _assignor(self) -> ConsumerPartitionAssignor:
        found = self._assignors.get(self.generation.protocol_name or "")
        if found is None:
            raise IllegalStateError(
                f"Coordinator selected invalid assignment protocol: {self.generation.protocol_name}"
            )
        return found

    # -- responses

    def _on_join(self, response: ClientResponse, sent: Generation) -> None:
        now = response.received_ms
        body = response.body
        if body is None:
            self._no_response(response)
            return
        assert isinstance(body, JoinGroupResponse)
        error = Errors.for_code(body.error_code)
        if error is Errors.NONE and body.protocol_type not in {None, PROTOCOL_TYPE}:
            error = Errors.INCONSISTENT_GROUP_PROTOCOL
        if error is not Errors.NONE:
            if error is Errors.MEMBER_ID_REQUIRED:
                self.generation = Generation(-1, body.member_id, None)
            elif error is Errors.UNKNOWN_MEMBER_ID and sent == self.generation:
                self.reset_generation("encountered UNKNOWN_MEMBER_ID from JoinGroup response", reset_member_id=True)
            self._failed_to_join(error, ApiKey.JOIN_GROUP, now)
            return
        if self.state is not _S.PREPARING_REBALANCE:
            # A heartbeat or commit response has meanwhile removed this member. Its partitions are lost, and the
            # application must learn that before the member rejoins.
            log.info("Joining the group again: this member was thrown out of it while it joined")
            self._metrics.rebalance_failed()
            self._join_state.failed(now)
            self._join_again()
            return
        self._metrics.joined(response.latency_ms)
        self._join_state.succeeded(now)
        self._transition_to(_S.COMPLETING_REBALANCE)
        self.generation = Generation(body.generation_id, body.member_id, body.protocol_name)
        self._heartbeat.reset(now)
        log.info("Successfully joined group with generation %s", self.generation)
        self._metadata_version = -1
        self._is_leader = body.leader == body.member_id
        if self._is_leader:
            try:
                self._members = read_members(body.members)
            except BarnabasError as failure:
                self._metrics.rebalance_failed()
                self._give_up_joining(failure, now)
                return
            self._skip_assignment = body.skip_assignment
            topics = {topic for member in self._members.values() for topic in member.topics}
            if self._subscriptions.group_subscribe(topics) or self._metadata.update_requested:
                self._metadata_version = self._metadata.request_update_for_new_topics()
        self._move_to(_R.READY_TO_SYNC)

    def _on_sync(self, response: ClientResponse, sent: Generation) -> None:
        now = response.received_ms
        body = response.body
        if body is None:
            self._no_response(response)
            return
        assert isinstance(body, SyncGroupResponse)
        error = Errors.for_code(body.error_code)
        if error is Errors.NONE:
            self._metrics.synced(response.latency_ms)
        if error is Errors.NONE and (
            body.protocol_type not in {None, PROTOCOL_TYPE}
            or body.protocol_name not in {None, self.generation.protocol_name}
        ):
            error = Errors.INCONSISTENT_GROUP_PROTOCOL
        if error is Errors.NONE and (sent != self.generation or self.state is not _S.COMPLETING_REBALANCE):
            log.info("The generation was reset to %s before the response to SyncGroup", self.generation)
            error = Errors.ILLEGAL_GENERATION
        elif error in {Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION} and sent == self.generation:
            self.reset_generation(
                f"encountered {error.name} from SyncGroup response",
                reset_member_id=error is Errors.UNKNOWN_MEMBER_ID,
            )
        if error is not Errors.NONE:
            self._failed_to_join(error, ApiKey.SYNC_GROUP, now)
            return
        self._transition_to(_S.STABLE)
        self._metrics.rebalance_ended()
        self._rejoin_needed = False
        self._rejoin_reason = ""
        log.info("Successfully synced group in generation %s", self.generation)
        self._move_to(_R.COMPLETING)
        try:
            assignor = self._assignor()
            assignment = deserialize_assignment(body.assignment)
        except BarnabasError as failure:
            self._give_up_joining(failure, now)
            return
        self._complete(assignor, assignment, now)

    def _no_response(self, response: ClientResponse) -> None:
        self._metrics.rebalance_failed()
        self._coordinator.handle_disconnect(response)
        fatal = response.authentication_error or response.version_mismatch
        if fatal is not None:
            self._give_up_joining(fatal, response.received_ms)
            return
        self._rejoin_reason = "rebalance failed due to a lost connection"
        self._join_state.failed(response.received_ms)
        self._join_again()

    def _failed_to_join(self, error: Errors, api: ApiKey, now: int) -> None:
        log.info("%s failed: %s", api.title, error.message)
        self._metrics.rebalance_failed()
        self._rejoin_needed = True
        if error is not Errors.MEMBER_ID_REQUIRED:
            self._rejoin_reason = f"rebalance failed due to {error.name}"
        if error in _MOVED:
            self._coordinator.mark_coordinator_unknown(f"{error.name} in response to {api.title}", now)
        if error in _AT_ONCE:
            self._join_state.succeeded(now)
        elif error.retriable:
            self._join_state.failed(now)
        elif error is Errors.FENCED_INSTANCE_ID:
            self.fail_fenced()
            return
        else:
            self._give_up_joining(self._fatal(error), now)
            return
        self._join_again()

    def _fatal(self, error: Errors) -> Exception:
        if error is Errors.GROUP_AUTHORIZATION_FAILED:
            return GroupAuthorizationError(f"Not authorized to access group: {self._config.group_id}")
        if error is Errors.GROUP_MAX_SIZE_REACHED:
            return GroupMaxSizeReachedError(
                f"Consumer group {self._config.group_id} already has the configured maximum number of members."
            )
        exception = error.to_exception()
        assert exception is not None
        return exception

    def _give_up_joining(self, error: Exception, now: int) -> None:
        """Reports the error to the application; its next poll makes another attempt."""
        log.error("Joining the group failed: %s", error)
        self._join_state.failed(now)
        self._rejoin_needed = True
        self._rejoin_reason = f"rebalance failed due to {type(error).__name__}"
        self._move_to(_R.IDLE)
        self._events.put(ErrorEvent(error))

    def _join_again(self) -> None:
        if self._needs_prepare and self._subscriptions.assignment:
            # Lost partitions must be reported first, when the application polls.
            self._move_to(_R.IDLE)
            self._wake_application()
        else:
            self._needs_prepare = False
            self._move_to(_R.READY_TO_JOIN)

    def _abandon_attempt(self) -> None:
        """Ends the current join attempt, whose responses are ignored from now on.

        Nothing else would note the response to a JoinGroup that is in flight: without the reset, the member could never
        join again."""
        self._attempt += 1
        self._join_state.reset()
        self._move_to(_R.IDLE)

    # -- assignment

    def _complete(self, assignor: ConsumerPartitionAssignor, assignment: Assignment, now: int) -> None:
        generation = self.generation
        self._group_metadata = ConsumerGroupMetadata(
            self._config.group_id, generation.generation_id, generation.member_id, self._config.group_instance_id
        )
        owned = self._subscriptions.assignment.partitions()
        assigned = set(assignment.partitions)
        if not self._subscriptions.subscription.covers(assigned):
            self._completed()
            self.request_rejoin("received assignment does not match the current subscription")
            return
        attempt = self._attempt
        revoked = owned - assigned if self.protocol is RebalanceProtocol.COOPERATIVE else set()

        def revocation_done(failure: BaseException | None) -> None:
            if failure is not None:
                log.error("The listener failed on partitions revoked: %s", failure)
            self._drop(revoked)
            if attempt != self._attempt:
                return
            self._assign(assignor, assignment, sorted(assigned), sorted(assigned - owned), now)
            if revoked:
                self._rejoin_needed = True
                self._rejoin_reason = "need to revoke partitions and re-join"

        log.info(
            "Updating assignment with assigned %s, owned %s, revoked %s",
            sorted(assigned),
            sorted(owned),
            sorted(revoked),
        )
        if revoked:
            self._subscriptions.assignment.mark_pending_revocation(revoked)
        then(self._listeners.invoke(RebalanceCallback.REVOKED, lambda: revoked), revocation_done)

    def _assign(
        self,
        assignor: ConsumerPartitionAssignor,
        assignment: Assignment,
        assigned: Sequence[TopicPartition],
        added: Sequence[TopicPartition],
        now: int,
    ) -> None:
        attempt = self._attempt
        if self._subscriptions.subscription.has_pattern():
            # The leader may know matching topics that this member does not know yet.
            topics = frozenset(partition.topic for partition in assigned)
            self._joined_subscription = (self._joined_subscription or frozenset()) | topics
            if self._subscriptions.subscribe_from_pattern(self._subscriptions.subscription.topics | topics):
                self._metadata.request_update_for_new_topics()
        try:
            assignor.on_assignment(assignment, self._group_metadata)
        except Exception as failure:
            log.exception("The assignor failed")
            self._events.put(ErrorEvent(failure))
        self._commits.reset_auto_commit_timer(now)
        self._subscriptions.assign_from_subscribed_awaiting_callback(assigned, added)

        def done(failure: BaseException | None) -> None:
            if attempt != self._attempt:
                return
            if failure is not None:
                log.error("The listener failed on partitions assigned: %s", failure)
            self._subscriptions.assignment.enable_partitions_awaiting_callback(added)
            self._completed()

        then(self._listeners.invoke(RebalanceCallback.ASSIGNED, lambda: added), done)

    def _completed(self) -> None:
        self._needs_prepare = True
        self._move_to(_R.IDLE)
        if self._rejoin_needed:
            self._wake_application()

    # -- leaving

    def leave_group(self, operation: GroupMembershipOperation, deadline_ms: int | None) -> Future[None]:
        if self._leaving is not None:
            return self._leaving
        if not self._subscriptions.subscription.is_auto_assigned():
            return completed(None)
        future: Future[None] = new_future()
        self._leaving = future
        self._leave_deadline_ms = deadline_ms
        self._abandon_attempt()
        lost = not self.generation.is_valid or self.state in _REBALANCING
        kind = RebalanceCallback.LOST if lost else RebalanceCallback.REVOKED
        self._subscriptions.assignment.mark_pending_revocation(self._subscriptions.assignment.partitions())

        def done(failure: BaseException | None) -> None:
            if self._leaving is not future:
                return
            if failure is not None:
                log.error("The listener failed on partitions %s: %s", kind.value, failure)
            if self._subscriptions.subscription.is_auto_assigned():
                self._subscriptions.unsubscribe()
            self._joined_subscription = None
            self._is_fenced = False
            static = self._config.group_instance_id is not None
            stays = operation is GroupMembershipOperation.REMAIN_IN_GROUP or (
                operation is GroupMembershipOperation.DEFAULT and static
            )
            if stays or self.state is _S.UNJOINED or not self.generation.member_id:
                self._forget_membership()
                self._left()
            else:
                self._leave_reason = "the consumer is leaving the group"

        then(self._listeners.invoke(kind, self._subscriptions.assignment.partitions), done)
        return future

    def _begin_leave(self, reason: str, now: int) -> None:
        """Leaves because the application does not poll. Its next poll reports the lost partitions."""
        if self._config.group_instance_id is None and self.generation.member_id:
            self._leave_reason = reason
        else:
            self._abandon_attempt()
            self.reset_generation("consumer pro-actively leaving the group", reset_member_id=True)
        self._poll_timer.reset(now)

    def _leave_request(self) -> list[UnsentRequest]:
        if self._leave_reason is None:
            return []
        builder = classic_requests.LeaveGroupBuilder(self._config, self.generation, self._leave_reason)
        log.info("Member %s leaves the group: %s", self.generation.member_id, self._leave_reason)
        self._leave_reason = None
        self._abandon_attempt()
        if self._leaving is None:
            self.reset_generation("consumer pro-actively leaving the group", reset_member_id=True)
        else:
            self._forget_membership()
        leaving = self._leaving

        def on_complete(response: ClientResponse) -> None:
            if response.body is None:
                log.info("LeaveGroup got no response: %s", response.reason)
            if leaving is not None and self._leaving is leaving:
                self._left()

        return [UnsentRequest(builder, self._coordinator.coordinator, on_complete)]

    def _forget_membership(self) -> None:
        self._transition_to(_S.UNJOINED)
        self.generation = NO_GENERATION
        self._needs_prepare = True
        self._rejoin_needed = True
        self._rejoin_reason = ""
        self._watched = None
        self._is_leader = False
        self._group_metadata = ConsumerGroupMetadata(self._config.group_id, -1, "", self._config.group_instance_id)

    def _left(self) -> None:
        self._leave_reason = None
        leaving, self._leaving = self._leaving, None
        if leaving is not None:
            leaving.set_result(None)

    def _time_to_leave(self, now: int) -> int:
        if self._leaving is None or self._leave_deadline_ms is None:
            return FOREVER
        return max(self._leave_deadline_ms - now, 0)

    def _end_leave_if_late(self, now: int) -> None:
        if self._leaving is not None and self._leave_deadline_ms is not None and now >= self._leave_deadline_ms:
            log.info("Leaving the group took too long; it goes on without the last word of the coordinator")
            if self._subscriptions.subscription.is_auto_assigned():
                self._subscriptions.unsubscribe()
            self._forget_membership()
            self._left()

    # -- the tables

    def _transition_to(self, state: ClassicMemberState) -> None:
        if state is not self.state and self.state not in SOURCES[state]:
            raise IllegalStateError(f"Invalid state transition from {self.state.name} to {state.name}")
        self.state = state

    def _move_to(self, step: RejoinStep) -> None:
        if self.step not in STEP_SOURCES[step]:
            raise IllegalStateError(f"Invalid step from {self.step.name} to {step.name}")
        self.step = step

    def __repr__(self) -> str:
        return f"ClassicMembershipManager({self.state.name}, {self.step.name}, {self.generation})"
