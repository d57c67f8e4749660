"""The parts of a consumer that need a ``group.id``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from random import Random
from typing import Final

from barnabas.clients.common.offsets import OffsetAndMetadata
from barnabas.clients.consumer.assignors import assignors_of
from barnabas.clients.consumer.consumer_config import ConsumerConfig, GroupProtocol
from barnabas.clients.consumer.group_metadata import CloseOptions, ConsumerGroupMetadata, GroupMembershipOperation
from barnabas.clients.consumer.internals.background_events import BackgroundEventQueue, ErrorEvent
from barnabas.clients.consumer.internals.background_future import new_future, then
from barnabas.clients.consumer.internals.classic_membership_manager import ClassicMembershipManager
from barnabas.clients.consumer.internals.commit_request_manager import CommitRequestManager
from barnabas.clients.consumer.internals.consumer_heartbeat_request_manager import ConsumerHeartbeatRequestManager
from barnabas.clients.consumer.internals.consumer_membership_manager import ConsumerMembershipManager
from barnabas.clients.consumer.internals.consumer_metadata import ConsumerMetadata
from barnabas.clients.consumer.internals.coordinator_request_manager import CoordinatorRequestManager
from barnabas.clients.consumer.internals.group_config import GroupConfig
from barnabas.clients.consumer.internals.group_events import RebalanceListenerInvoker
from barnabas.clients.consumer.internals.group_metrics import GroupMetrics
from barnabas.clients.consumer.internals.group_parts import GroupParts
from barnabas.clients.consumer.internals.membership_manager import MembershipManager
from barnabas.clients.consumer.internals.request_managers import PollResult, RequestManager
from barnabas.clients.consumer.internals.subscription_state import SubscriptionState
from barnabas.common.clock import Clock
from barnabas.common.errors import UnsupportedVersionError
from barnabas.common.identifiers import Uuid, uuid_to_string
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.registry import Metrics

log = logging.getLogger(__name__)

_NO_REGEX: Final = (
    "A SubscriptionPattern is matched by the broker, which needs the consumer group protocol of KIP-848. Subscribe to "
    "a pattern of re.compile in its place."
)


class _Membership:
    """Delegates to the membership manager, which may be replaced, see `GroupManagers`."""

    def __init__(self, current: MembershipManager, match_pattern: Callable[[], None]) -> None:
        self.current = current
        self._match_pattern = match_pattern

    def poll(self, now: int) -> PollResult:
        self._match_pattern()  # the topics must be known before a request names them
        return self.current.poll(now)

    def maximum_time_to_wait(self, now: int) -> int:
        return self.current.maximum_time_to_wait(now)

    def poll_on_close(self, now: int) -> PollResult:
        return self.current.poll_on_close(now)


class GroupManagers:
    """Coordinator, commits and membership, behind one interface for the rest of the consumer.

    ``group.protocol=auto`` begins with the consumer protocol. If the first heartbeat shows that the broker, or this
    group, does not support it, the classic protocol replaces it before the member has joined.

    All methods but `group_metadata` are for the background thread. Futures are completed there.
    """

    def __init__(
        self,
        *,
        config: ConsumerConfig,
        subscriptions: SubscriptionState,
        metadata: ConsumerMetadata,
        background_events: BackgroundEventQueue,
        metrics: Metrics,
        clock: Clock,
        random: Random,
    ) -> None:
        self.config = GroupConfig.of(config)
        self._consumer_config = config
        self._assignors = assignors_of(config.partition_assignment_strategy)
        self._subscriptions = subscriptions
        self._metadata = metadata
        self._events = background_events
        self._clock = clock
        self._random = random
        self.metrics = GroupMetrics(metrics, subscriptions, clock)
        now = clock.hi_res_milliseconds()
        self.listeners = RebalanceListenerInvoker(subscriptions, background_events)
        self.coordinator = CoordinatorRequestManager(
            self.config.group_id, self.config.retry_backoff_ms, self.config.retry_backoff_max_ms, random
        )
        self.commits = CommitRequestManager(
            self.config, subscriptions, metadata, self.coordinator, background_events, self.metrics, random, now
        )
        self._parts = GroupParts(
            self.config,
            subscriptions,
            metadata,
            self.coordinator,
            self.commits,
            self.listeners,
            background_events,
            self.metrics,
        )
        self._matched_version = -1
        protocol = config.group_protocol
        if protocol is GroupProtocol.AUTO and config.wants_classic:
            protocol = GroupProtocol.CLASSIC
        first = self._new_classic() if protocol is GroupProtocol.CLASSIC else self._new_consumer(protocol)
        self._slot = _Membership(first, self._match_pattern)
        self.commits.membership = first
        self.managers: Sequence[RequestManager] = (self.coordinator, self.commits, self._slot)
        """In polling order."""

    @property
    def membership(self) -> MembershipManager:
        return self._slot.current

    def _new_classic(self) -> MembershipManager:
        self.metrics.use_classic_protocol()
        return ClassicMembershipManager(self._parts, self._assignors, self._random, self._clock.hi_res_milliseconds())

    def _new_consumer(self, protocol: GroupProtocol) -> MembershipManager:
        member = ConsumerMembershipManager(self._parts, uuid_to_string(Uuid(self._random.randbytes(16))))
        return ConsumerHeartbeatRequestManager(
            self._parts,
            member,
            self._random,
            self._clock.hi_res_milliseconds(),
            on_unsupported=self._fall_back_to_classic if protocol is GroupProtocol.AUTO else None,
        )

    def _fall_back_to_classic(self) -> None:
        if self._subscriptions.subscription.has_re2j_pattern():
            self._events.put(ErrorEvent(UnsupportedVersionError(_NO_REGEX)))
        if self.config.group_remote_assignor is not None:
            log.warning("group.remote.assignor is not used: the group has the classic protocol")
        log.info("Using the classic group protocol")
        classic = self._new_classic()
        self._slot.current = classic
        self.commits.membership = classic
        classic.on_subscription_change()
        classic.on_application_poll(self._clock.hi_res_milliseconds())

    # -- application calls

    def on_application_poll(self, now: int) -> None:
        """Handles a poll() of the application, which has processed the previous records.

        This commits if it is time, and begins rebalances, with the current positions: the application thread must not
        return records before this has run.
        """
        self._match_pattern()
        self.commits.on_application_poll(now)
        if self._subscriptions.subscription.has_re2j_pattern() and isinstance(
            self.membership, ClassicMembershipManager
        ):
            self._events.put(ErrorEvent(UnsupportedVersionError(_NO_REGEX)))
            return
        self.membership.on_application_poll(now)

    def _match_pattern(self) -> None:
        if not self._subscriptions.subscription.has_pattern():
            self._matched_version = -1
            return
        version = self._metadata.update_version
        if version != self._matched_version:
            self._matched_version = version
            if self._subscriptions.subscribe_from_pattern(self._metadata.matching_topics()):
                self._metadata.request_update_for_new_topics()

    def on_subscription_change(self) -> Future[None]:
        """Handles subscribe() with topics or a pattern. Completes at once: the group is joined in the background."""
        future: Future[None] = new_future()
        self._matched_version = -1
        if self._subscriptions.subscription.is_none():
            then(self.unsubscribe(None), lambda _error: future.set_result(None))
        else:
            self.membership.on_subscription_change()
            future.set_result(None)
        return future

    def unsubscribe(self, deadline_ms: int | None) -> Future[None]:
        """Calls the listener, gives up the subscription, and leaves the group.

        Completes when the coordinator has responded, or at the deadline."""
        return self.membership.leave_group(GroupMembershipOperation.DEFAULT, deadline_ms)

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, deadline_ms: int | None
    ) -> Future[Mapping[TopicPartition, OffsetAndMetadata]]:
        """Commits these offsets, or all consumed ones, with retries until the deadline, or once if there is none.

        The result is the committed offsets."""
        what = self._subscriptions.positions.all_consumed() if offsets is None else offsets
        return self.commits.commit_async(what) if deadline_ms is None else self.commits.commit_sync(what, deadline_ms)

    def fetch_committed(
        self, partitions: Collection[TopicPartition], deadline_ms: int
    ) -> Future[Mapping[TopicPartition, OffsetAndMetadata | None]]:
        return self.commits.fetch_offsets(partitions, deadline_ms)

    def leave_on_close(self, deadline_ms: int, operation: CloseOptions) -> Future[None]:
        """Commits consumed offsets if auto-commit is on, calls the listener, and leaves."""
        future: Future[None] = new_future()
        what = operation.group_membership_operation
        if not self.config.leave_group_on_close and what is GroupMembershipOperation.DEFAULT:
            what = GroupMembershipOperation.REMAIN_IN_GROUP

        def committed(error: BaseException | None) -> None:
            if error is not None:
                log.warning("Offsets could not be committed on close: %s", error)
            then(self.membership.leave_group(what, deadline_ms), lambda _error: future.set_result(None))

        if self._subscriptions.assignment:
            then(self.commits.auto_commit_before_revocation(deadline_ms), committed)
        else:
            committed(None)
        return future

    def listener_done(self, event_id: int, error: Exception | None) -> None:
        """Continues after the application thread has run the listener of a `RebalanceListenerEvent`."""
        self.listeners.done(event_id, error)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns the group metadata. Thread-safe."""
        return self.membership.group_metadata
