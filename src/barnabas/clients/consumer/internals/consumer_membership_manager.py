"""Group membership in the consumer protocol (KIP-848): current assignment, target assignment, reconciliation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Final

from barnabas.clients.consumer.errors import CommitFailedError, IllegalStateError
from barnabas.clients.consumer.group_metadata import ConsumerGroupMetadata, GroupMembershipOperation
from barnabas.clients.consumer.internals.background_events import CallbackEvent
from barnabas.clients.consumer.internals.background_future import new_future, then
from barnabas.clients.consumer.internals.consumer_member_state import (
    NO_ASSIGNMENT,
    NOT_IN_GROUP,
    SOURCES,
    LocalAssignment,
    MemberState,
)
from barnabas.clients.consumer.internals.group_events import RebalanceCallback
from barnabas.clients.consumer.internals.group_parts import GroupParts
from barnabas.clients.consumer.internals.membership_manager import NO_MEMBER, MemberIdentity
from barnabas.common.errors import Errors, FencedInstanceIdError
from barnabas.common.identifiers import Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

log = logging.getLogger(__name__)

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2

_S = MemberState


class ConsumerMembershipManager:
    """Reconciles the member's assignment with the target that the coordinator computes.

    **Reconciliation**, in this order: auto-commit consumed offsets; call the listener for revoked partitions; apply the
    new assignment; call the listener for added partitions; acknowledge. A partition goes to another member only after
    its revocation is acknowledged, so members never wait for each other, only partitions do. Reconciliation begins when
    the application polls, because only then has it processed the previous records.

    The coordinator names topics by their ids. Ids that are not in the metadata yet are reconciled later.

    **The epoch** comes from the coordinator and is part of every request of the member. A *fenced* member was removed
    by the coordinator: its partitions are lost, and it joins again under the same id, which it has generated itself
    (KIP-1082).
    """

    def __init__(self, parts: GroupParts, member_id: str) -> None:
        self._config = config = parts.config
        self._subscriptions = parts.subscriptions
        self._metadata = parts.metadata
        self._commits = parts.commits
        self._listeners = parts.listeners
        self._events = parts.events
        self._metrics = parts.metrics
        self.member_id = member_id
        self.member_epoch = JOIN_EPOCH
        self.state = _S.UNSUBSCRIBED
        self.current: LocalAssignment = NO_ASSIGNMENT
        self.target: LocalAssignment = NO_ASSIGNMENT
        self._topic_names: dict[Uuid, str] = {}
        """The names of assigned topics: metadata may forget a topic before it is revoked."""
        self._reconciliation = 0
        """The number of the current reconciliation; 0 if there is none, see `_is_current`."""
        self._reconciling = False
        self._awaiting_listener: set[TopicPartition] = set()
        """Assigned partitions whose listener failed; it is called again."""
        self._woken_for = -1
        self._subscription_updated = False
        self._is_poll_timer_expired = False
        self._stale_release: Future[None] | None = None
        self._leaving: Future[None] | None = None
        self._leave_operation = GroupMembershipOperation.DEFAULT
        self._group_metadata = ConsumerGroupMetadata(config.group_id, -1, "", config.group_instance_id)

    # -- queries of other parts

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        return self._group_metadata

    def identity_for_commit(self) -> MemberIdentity:
        return self._identity()

    def identity_for_fetch(self) -> MemberIdentity:
        return self._identity()

    def _identity(self) -> MemberIdentity:
        if self.member_epoch <= 0 or self.state in NOT_IN_GROUP:
            return NO_MEMBER
        return MemberIdentity(self.member_epoch, self.member_id, self._config.group_instance_id)

    def on_commit_error(self, error: Errors, sent: MemberIdentity) -> Exception | None:  # noqa: ARG002 - alike for all
        if error is Errors.FENCED_INSTANCE_ID:
            return FencedInstanceIdError(
                f"OffsetCommit failed: group instance id {self._config.group_instance_id} was fenced"
            )
        if error in {Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION, Errors.FENCED_MEMBER_EPOCH}:
            return CommitFailedError(f"OffsetCommit failed: {error.message}")
        return None

    @property
    def is_leaving(self) -> bool:
        return self.state in {_S.PREPARE_LEAVING, _S.LEAVING}

    @property
    def should_skip_heartbeat(self) -> bool:
        return self.state in NOT_IN_GROUP

    @property
    def should_heartbeat_now(self) -> bool:
        return self.state in {_S.ACKNOWLEDGING, _S.LEAVING, _S.JOINING}

    # -- the application

    def on_subscription_change(self) -> None:
        self._subscription_updated = True

    def on_application_poll(self, now: int) -> None:
        if self._subscription_updated and self._subscriptions.subscription.is_auto_assigned():
            self._subscription_updated = False
            if self.state is _S.UNSUBSCRIBED:
                self.transition_to_joining()
        if self.state is _S.RECONCILING:
            self.maybe_reconcile(now, application_polls=True)

    def _wake_application(self) -> None:
        """Wakes an application that waits for records, because a reconciliation begins when it polls again."""
        if self._woken_for != self.target.local_epoch:
            self._woken_for = self.target.local_epoch
            self._events.put(CallbackEvent(lambda: None))

    # -- coordinator responses

    def on_heartbeat_success(self, response: ConsumerGroupHeartbeatResponse) -> None:
        if self.state is _S.LEAVING or self.state in NOT_IN_GROUP:
            return
        if response.member_id:
            self.member_id = response.member_id
        if response.member_epoch <= 0:
            return  # epoch 0 means not joined: the group's pattern is not matched yet
        self._update_epoch(response.member_epoch)
        if response.assignment is None:
            return
        if self.state not in SOURCES[_S.RECONCILING]:
            log.debug("A new assignment is ignored in state %s", self.state.name)
            return
        assignment = {row.topic_id: frozenset(row.partitions) for row in response.assignment.topic_partitions}
        self.target = self.target.updated_with(assignment)
        if self.current != self.target:
            self._transition_to(_S.RECONCILING)
            if self._subscriptions.assignment:
                self._wake_application()
        elif self.state in {_S.RECONCILING, _S.JOINING}:
            self._transition_to(_S.STABLE)

    def on_leave_response(self) -> None:
        """Completes leaving after any response or none: it is tried only once."""
        if self.state is _S.UNSUBSCRIBED:
            self._complete_leave()

    def on_heartbeat_request_generated(self) -> None:
        if self.state is _S.ACKNOWLEDGING:
            self._transition_to(_S.STABLE if self.current == self.target else _S.RECONCILING)
        elif self.state is _S.LEAVING:
            if self._is_poll_timer_expired:
                self._transition_to_stale()
            else:
                self._transition_to(_S.UNSUBSCRIBED)

    def on_heartbeat_request_skipped(self) -> None:
        if self.state is _S.LEAVING:
            log.warning("The coordinator cannot be told that member %s leaves", self.member_id)
            self._transition_to(_S.UNSUBSCRIBED)
            self._complete_leave()

    # -- joining and fencing

    def transition_to_joining(self) -> None:
        if self.state is _S.FATAL:
            log.warning("The group is not joined: there was a fatal error")
            return
        self._reconciliation += 1  # invalidates the reconciliation of the former membership
        self._reconciling = False
        self._update_epoch(JOIN_EPOCH)
        self._transition_to(_S.JOINING)
        self.target = NO_ASSIGNMENT
        self._topic_names.clear()

    def transition_to_fenced(self) -> None:
        if self.state is _S.PREPARE_LEAVING:
            log.info("Member %s was fenced while it was about to leave, so it has left", self.member_id)
            self._transition_to_leaving()
            self._transition_to(_S.UNSUBSCRIBED)
            return
        if self.state is _S.LEAVING:
            self._transition_to(_S.UNSUBSCRIBED)
            self._complete_leave()
            return
        if self.state in NOT_IN_GROUP:
            return
        self._transition_to(_S.FENCED)
        self._update_epoch(JOIN_EPOCH)

        def rejoin() -> None:
            if self.state is _S.FENCED:
                self.transition_to_joining()

        self._release_as_lost(rejoin)

    def transition_to_fatal(self) -> None:
        before = self.state
        self._transition_to(_S.FATAL)
        log.error("Member %s with epoch %d is in a fatal state", self.member_id, self.member_epoch)
        self.member_epoch = JOIN_EPOCH
        self._publish()
        if before is _S.UNSUBSCRIBED or before in {_S.LEAVING, _S.PREPARE_LEAVING}:
            self._complete_leave()
        else:
            self._release_as_lost(lambda: None)

    def _release_as_lost(self, and_then: Callable[[], None]) -> Future[None]:
        self._reconciliation += 1
        self._reconciling = False
        lost = self._subscriptions.assignment.partitions()
        if lost:
            self._subscriptions.assignment.mark_pending_revocation(lost)

        def done(error: BaseException | None) -> None:
            if error is not None:
                log.error("The listener failed on partitions lost: %s", error)
            self._clear_assignment()
            and_then()

        told = self._listeners.invoke(RebalanceCallback.LOST, self._subscriptions.assignment.partitions)
        then(told, done)
        return told

    def _clear_assignment(self) -> None:
        if self._subscriptions.subscription.is_auto_assigned():
            self._subscriptions.assign_from_subscribed(())
        self.current = self.target = NO_ASSIGNMENT
        self._topic_names.clear()
        self._awaiting_listener.clear()
        self._woken_for = -1

    # -- poll timeout

    def on_poll_timer_expired(self) -> None:
        """Leaves at once. The partitions are lost; the listener is called when the application polls again."""
        self._is_poll_timer_expired = True
        self._transition_to(_S.PREPARE_LEAVING)
        self._transition_to_leaving()

    def maybe_rejoin_stale_member(self) -> None:
        self._is_poll_timer_expired = False
        if self.state is not _S.STALE or self._stale_release is None:
            return

        def rejoin(_error: BaseException | None) -> None:
            if self.state is _S.STALE and not self._is_poll_timer_expired:
                self.transition_to_joining()

        then(self._stale_release, rejoin)

    def _transition_to_stale(self) -> None:
        self._transition_to(_S.STALE)
        released: Future[None] = new_future()
        self._stale_release = released
        self._release_as_lost(lambda: released.set_result(None))

    # -- leaving

    def leave_group(self, operation: GroupMembershipOperation, deadline_ms: int | None) -> Future[None]:  # noqa: ARG002
        """Leaves the group. The heartbeat manager enforces the deadline."""
        if self._leaving is not None:
            return self._leaving
        self._subscription_updated = False
        if self.state in NOT_IN_GROUP:
            return self._leave_from_outside()
        self._leave_operation = operation
        future: Future[None] = new_future()
        self._leaving = future
        self._transition_to(_S.PREPARE_LEAVING)
        self._reconciliation += 1
        self._reconciling = False
        kind = RebalanceCallback.REVOKED if self.member_epoch > 0 else RebalanceCallback.LOST
        self._subscriptions.assignment.mark_pending_revocation(self._subscriptions.assignment.partitions())

        def done(error: BaseException | None) -> None:
            if error is not None:
                log.error("The listener failed on partitions %s: %s", kind.value, error)
            self._clear_assignment()
            self._unsubscribe()
            if self.state is _S.PREPARE_LEAVING:
                self._transition_to_leaving()
                if operation is GroupMembershipOperation.REMAIN_IN_GROUP and self._config.group_instance_id is None:
                    # Send nothing: the coordinator removes the member when heartbeats stop.
                    self._transition_to(_S.UNSUBSCRIBED)
            if self.state is not _S.LEAVING:
                self._complete_leave()

        then(self._listeners.invoke(kind, self._subscriptions.assignment.partitions), done)
        return future

    def _leave_from_outside(self) -> Future[None]:
        """Completes leaving for a member that is not in the group, once the listener has heard of lost partitions."""
        if self.state is not _S.FATAL:
            self._transition_to(_S.UNSUBSCRIBED)
        future: Future[None] = new_future()

        def done(_error: BaseException | None) -> None:
            self._clear_assignment()
            self._unsubscribe()
            future.set_result(None)

        then(self._listeners.invoke(RebalanceCallback.LOST, self._subscriptions.assignment.partitions), done)
        return future

    def _unsubscribe(self) -> None:
        if self._subscriptions.subscription.is_auto_assigned():
            self._subscriptions.unsubscribe()

    def _transition_to_leaving(self) -> None:
        static = self._config.group_instance_id is not None
        stays = static and self._leave_operation is not GroupMembershipOperation.LEAVE_GROUP
        self._transition_to(_S.LEAVING)
        self._update_epoch(STATIC_LEAVE_EPOCH if stays else LEAVE_EPOCH)
        self.current = NO_ASSIGNMENT

    def abandon_leave(self) -> None:
        """Gives up leaving after the deadline."""
        if self._leaving is None:
            return
        self._clear_assignment()
        self._unsubscribe()
        if self.state is _S.PREPARE_LEAVING:
            self._transition_to_leaving()
        if self.state is _S.LEAVING:
            self._transition_to(_S.UNSUBSCRIBED)
        self._complete_leave()

    def _complete_leave(self) -> bool:
        leaving, self._leaving = self._leaving, None
        if leaving is None:
            return False
        self._leave_operation = GroupMembershipOperation.DEFAULT
        leaving.set_result(None)
        return True

    # -- reconciliation

    def maybe_reconcile(self, now: int, *, application_polls: bool) -> None:
        if self.state is not _S.RECONCILING or self.current == self.target or self._reconciling:
            return
        owned = self._subscriptions.assignment.partitions()
        if owned and not application_polls:
            # Listeners and commits run when the application polls. It may be waiting for records.
            self._wake_application()
            return
        assigned_by_id, assigned = self._resolve_target()
        resolved = LocalAssignment(self.target.local_epoch, assigned_by_id)
        if resolved == self.current:
            return  # the names of the other topics are being fetched
        if self.current is not NO_ASSIGNMENT and resolved.partitions == self.current.partitions:
            # The new topics have no known names yet. The current assignment is correct and can be acknowledged.
            self.current = resolved
            self._transition_to(_S.ACKNOWLEDGING)
            return
        self._reconciliation += 1
        self._reconciling = True
        number = self._reconciliation
        added = (assigned - owned) | (self._awaiting_listener & assigned)
        revoked = owned - assigned
        log.info(
            "Reconciling assignment %d: assigned %s, owned %s, added %s, revoked %s",
            self.target.local_epoch,
            sorted(assigned),
            sorted(owned),
            sorted(added),
            sorted(revoked),
        )
        # Records of these that arrive during the commit would be read again by the next owner.
        self._subscriptions.assignment.mark_pending_revocation(revoked)

        def committed(error: BaseException | None) -> None:
            if error is not None:
                log.error("Offsets could not be committed before the reconciliation, which goes on: %s", error)
            if not self._is_current(number):
                return
            then(self._listeners.invoke(RebalanceCallback.REVOKED, lambda: revoked), revocation_done)

        def revocation_done(error: BaseException | None) -> None:
            self._drop(revoked)
            if not self._is_current(number):
                return
            if error is not None:
                log.error("The listener failed on partitions revoked: %s", error)
                self._reconciling = False
                return
            self._awaiting_listener = set(added)
            self._subscriptions.assign_from_subscribed_awaiting_callback(sorted(assigned), sorted(added))
            then(self._listeners.invoke(RebalanceCallback.ASSIGNED, lambda: added), assignment_done)

        def assignment_done(error: BaseException | None) -> None:
            if not self._is_current(number):
                return
            self._reconciling = False
            if error is not None:
                log.error("The listener failed on partitions assigned: %s", error)
                return
            self._awaiting_listener.clear()
            self._subscriptions.assignment.enable_partitions_awaiting_callback(added)
            self.current = resolved
            self._topic_names = {topic_id: self._topic_names[topic_id] for topic_id in resolved.partitions}
            self._commits.reset_auto_commit_timer(now)
            self._transition_to(_S.ACKNOWLEDGING)

        deadline_ms = now + self._config.max_poll_interval_ms
        then(self._commits.auto_commit_before_revocation(deadline_ms), committed)

    def _is_current(self, number: int) -> bool:
        """Whether a reconciliation is still valid: not if the member has left, was fenced, or rejoined."""
        return self._reconciling and number == self._reconciliation and self.state is _S.RECONCILING

    def _drop(self, partitions: set[TopicPartition]) -> None:
        if partitions and self._subscriptions.subscription.is_auto_assigned():
            kept = [one for one in self._subscriptions.assignment.in_fetch_order() if one not in partitions]
            self._subscriptions.assign_from_subscribed(kept)

    def _resolve_target(self) -> tuple[Mapping[Uuid, frozenset[int]], set[TopicPartition]]:
        """Returns the part of the target whose topic names are known."""
        snapshot = self._metadata.snapshot
        by_id: dict[Uuid, frozenset[int]] = {}
        partitions: set[TopicPartition] = set()
        for topic_id, numbers in self.target.partitions.items():
            name = snapshot.topic_name(topic_id) or self._topic_names.get(topic_id)
            if name is None:
                self._metadata.request_update()
                continue
            self._topic_names[topic_id] = name
            by_id[topic_id] = numbers
            partitions.update(TopicPartition(name, number) for number in numbers)
        return by_id, partitions

    # -- the table

    def _update_epoch(self, epoch: int) -> None:
        if epoch != self.member_epoch:
            self.member_epoch = epoch
            self._publish()

    def _publish(self) -> None:
        joined = self.member_epoch > 0
        self._group_metadata = ConsumerGroupMetadata(
            self._config.group_id,
            self.member_epoch if joined else -1,
            self.member_id if joined else "",
            self._config.group_instance_id,
        )

    def _transition_to(self, state: MemberState) -> None:
        if state is not self.state and self.state not in SOURCES[state]:
            raise IllegalStateError(f"Invalid state transition from {self.state.name} to {state.name}")
        if self.state is _S.RECONCILING and state in {_S.STABLE, _S.ACKNOWLEDGING}:
            self._metrics.rebalance_ended()
        elif self.state is not _S.RECONCILING and state is _S.RECONCILING:
            self._metrics.rebalance_started()
        log.info(
            "Member %s with epoch %d: from %s to %s", self.member_id, self.member_epoch, self.state.name, state.name
        )
        self.state = state

    def __repr__(self) -> str:
        return f"ConsumerMembershipManager({self.member_id}, epoch {self.member_epoch}, {self.state.name})"
