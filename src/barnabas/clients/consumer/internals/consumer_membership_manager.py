"""A member of a consumer group in the newer protocol (KIP-848): what it has, what it is to have, and the way there."""

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
    """The coordinator divides, and tells each member what it is to have; the member works towards that by itself.

    **Reconciliation**, in this order: commit what was consumed, if that is automatic; tell the listener what is taken
    away; make the new assignment effective; tell the listener what is new; acknowledge. Nobody else gets a partition
    before it was acknowledged that it was given up, so members never have to wait for each other, only partitions do.
    It begins when the application polls: only then it is done with the records that it got before.

    The coordinator names topics by their ids. Ids that are not in the metadata yet are left for later; what can be
    reconciled is.

    **The epoch** comes from the coordinator and goes along with everything that the member sends. A member that is
    *fenced* has been given up by the coordinator: what it had is lost, and it joins again, under the same id, which it
    has made up itself (KIP-1082).
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
        """Of what is assigned: metadata may forget a topic before it is revoked."""
        self._reconciliation = 0
        """Counts reconciliations; 0 if none is under way, see `_is_current`."""
        self._reconciling = False
        self._to_be_told: set[TopicPartition] = set()
        """Partitions that are assigned, but whose listener failed when it was told; it is told again."""
        self._woken_for = -1
        self._subscription_updated = False
        self._is_poll_timer_expired = False
        self._stale_release: Future[None] | None = None
        self._leaving: Future[None] | None = None
        self._leave_operation = GroupMembershipOperation.DEFAULT
        self._group_metadata = ConsumerGroupMetadata(config.group_id, -1, "", config.group_instance_id)

    # -- what others ask

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
        """It may be waiting for records; a reconciliation begins when it polls again."""
        if self._woken_for != self.target.local_epoch:
            self._woken_for = self.target.local_epoch
            self._events.put(CallbackEvent(lambda: None))

    # -- answers of the coordinator

    def on_heartbeat_success(self, response: ConsumerGroupHeartbeatResponse) -> None:
        if self.state is _S.LEAVING or self.state in NOT_IN_GROUP:
            return
        if response.member_id:
            self.member_id = response.member_id
        if response.member_epoch <= 0:
            return  # a group whose pattern has not been matched yet is in epoch 0: not joined so far
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

    def on_leave_answered(self) -> None:
        """Whatever the answer is, or if there is none: leaving is tried once only."""
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

    # -- joining, and being thrown out

    def transition_to_joining(self) -> None:
        if self.state is _S.FATAL:
            log.warning("The group is not joined: there was a fatal error")
            return
        self._reconciliation += 1  # one that is under way is about a membership that is over
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
        self._to_be_told.clear()
        self._woken_for = -1

    # -- an application that does not poll

    def on_poll_timer_expired(self) -> None:
        """Leaves at once. What it had is lost: the listener is told when the application polls again."""
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
        """The deadline is looked after by who sends the heartbeats."""
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
                    # Nothing to say: the coordinator finds out when no more heartbeats come.
                    self._transition_to(_S.UNSUBSCRIBED)
            if self.state is not _S.LEAVING:
                self._complete_leave()

        then(self._listeners.invoke(kind, self._subscriptions.assignment.partitions), done)
        return future

    def _leave_from_outside(self) -> Future[None]:
        """The coordinator has nothing to hear; but a listener may still be on its way to hear of what was lost."""
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
        """It took too long."""
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
            # Listeners and commits are a matter for when the application polls. It may be waiting for records.
            self._wake_application()
            return
        assigned_by_id, assigned = self._resolve_target()
        resolved = LocalAssignment(self.target.local_epoch, assigned_by_id)
        if resolved == self.current:
            return  # the names of the rest are on their way
        if self.current is not NO_ASSIGNMENT and resolved.partitions == self.current.partitions:
            # What is new is not known by name yet. What there is, is as it should be, and that can be said.
            self.current = resolved
            self._transition_to(_S.ACKNOWLEDGING)
            return
        self._reconciliation += 1
        self._reconciling = True
        number = self._reconciliation
        added = (assigned - owned) | (self._to_be_told & assigned)
        revoked = owned - assigned
        log.info(
            "Reconciling assignment %d: assigned %s, owned %s, added %s, revoked %s",
            self.target.local_epoch,
            sorted(assigned),
            sorted(owned),
            sorted(added),
            sorted(revoked),
        )
        # Records of these that come in while the commit is under way would be read again by the next owner.
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
            self._to_be_told = set(added)
            self._subscriptions.assign_from_subscribed_awaiting_callback(sorted(assigned), sorted(added))
            then(self._listeners.invoke(RebalanceCallback.ASSIGNED, lambda: added), assignment_done)

        def assignment_done(error: BaseException | None) -> None:
            if not self._is_current(number):
                return
            self._reconciling = False
            if error is not None:
                log.error("The listener failed on partitions assigned: %s", error)
                return
            self._to_be_told.clear()
            self._subscriptions.assignment.enable_partitions_awaiting_callback(added)
            self.current = resolved
            self._topic_names = {topic_id: self._topic_names[topic_id] for topic_id in resolved.partitions}
            self._commits.reset_auto_commit_timer(now)
            self._transition_to(_S.ACKNOWLEDGING)

        deadline_ms = now + self._config.max_poll_interval_ms
        then(self._commits.auto_commit_before_revocation(deadline_ms), committed)

    def _is_current(self, number: int) -> bool:
        """Whether a reconciliation still makes sense: not if the member has left, was fenced, or joined again."""
        return self._reconciling and number == self._reconciliation and self.state is _S.RECONCILING

    def _drop(self, partitions: set[TopicPartition]) -> None:
        if partitions and self._subscriptions.subscription.is_auto_assigned():
            kept = [one for one in self._subscriptions.assignment.in_fetch_order() if one not in partitions]
            self._subscriptions.assign_from_subscribed(kept)

    def _resolve_target(self) -> tuple[Mapping[Uuid, frozenset[int]], set[TopicPartition]]:
        """The part of the target whose topics are known by name."""
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
