"""The subscription of a consumer, its assigned partitions, and the position in each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from barnabas.clients.common.errors import IllegalStateError
from barnabas.clients.consumer.auto_offset_reset import AutoOffsetResetStrategy
from barnabas.clients.consumer.internals.assignment import Assignment
from barnabas.clients.consumer.internals.consumer_lag import ConsumerLag
from barnabas.clients.consumer.internals.offset_reset import OffsetReset
from barnabas.clients.consumer.internals.offset_validation import OffsetValidation
from barnabas.clients.consumer.internals.positions import Positions
from barnabas.clients.consumer.internals.subscription import Subscription, SubscriptionType
from barnabas.clients.consumer.subscription_pattern import SubscriptionPattern
from barnabas.common.topic_partition import TopicPartition

if TYPE_CHECKING:
    from barnabas.clients.consumer.rebalance_listener import ConsumerRebalanceListener


class SubscriptionState:
    """The state that both threads of a consumer share.

    The application thread subscribes, seeks, pauses, and advances positions as it takes records. The background thread
    applies the assignment of the group, and resets and validates positions. One lock, that of `Assignment`, guards all
    of it.

    ================ =================== ==========================================================================
    attribute        class               owns
    ================ =================== ==========================================================================
    ``subscription`` `Subscription`      the type of the subscription, its topics or pattern, the listener
    ``assignment``   `Assignment`        the assigned partitions in fetch order; which of them are paused or revoked
    ``positions``    `Positions`         fetch positions, consumed positions, preferred read replicas
    ``resets``       `OffsetReset`       the reset strategy, and the partitions that await a reset
    ``validation``   `OffsetValidation`  the positions that await validation by a new leader
    ``lag``          `ConsumerLag`       the watermarks, lag and lead
    ================ =================== ==========================================================================

    Operations on both the subscription *and* the assignment are here.
    """

    def __init__(self, default_reset_strategy: AutoOffsetResetStrategy) -> None:
        self.subscription = Subscription()
        self.assignment = Assignment()
        self.positions = Positions(self.assignment)
        self.resets = OffsetReset(self.assignment, default_reset_strategy)
        self.validation = OffsetValidation(self.assignment, self.resets)
        self.lag = ConsumerLag(self.assignment)
        self.lock = self.assignment.lock

    # -- subscribing

    def subscribe(self, topics: Iterable[str], listener: ConsumerRebalanceListener | None = None) -> bool:
        """Subscribes to topics. Returns whether they differ from those before."""
        with self.lock:
            return self.subscription.subscribe(topics, listener)

    def subscribe_pattern(
        self,
        pattern: re.Pattern[str] | SubscriptionPattern,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        with self.lock:
            self.subscription.subscribe_pattern(pattern, listener)

    def subscribe_from_pattern(self, topics: Iterable[str]) -> bool:
        """Takes the topics that match the pattern now. Returns whether they differ from those before."""
        with self.lock:
            return self.subscription.subscribe_from_pattern(topics)

    def group_subscribe(self, topics: Iterable[str]) -> bool:
        """Takes the topics of all members. Returns whether this consumer is not subscribed to all of them."""
        with self.lock:
            return self.subscription.group_subscribe(topics)

    def reset_group_subscription(self) -> None:
        with self.lock:
            self.subscription.group_topics = frozenset()

    def unsubscribe(self) -> None:
        with self.lock:
            self.assignment.replace(())
            self.subscription.clear()

    # -- assigning

    def assign_from_user(self, partitions: Iterable[TopicPartition]) -> bool:
        """Assigns the partitions that the application chose. Returns whether their topics differ from those before."""
        with self.lock:
            self.subscription.set_type(SubscriptionType.USER_ASSIGNED)
            before = self.assignment.partitions()
            wanted = list(dict.fromkeys(partitions))
            if set(wanted) == before:
                return False
            self.assignment.replace(wanted)
            return {partition.topic for partition in wanted} != {partition.topic for partition in before}

    def assign_from_subscribed(self, partitions: Iterable[TopicPartition]) -> None:
        """Assigns the partitions that the group decided on."""
        with self.lock:
            if not self.subscription.is_auto_assigned():
                raise IllegalStateError("Attempt to dynamically assign partitions while manual assignment in use")
            self.assignment.replace(partitions)

    def assign_from_subscribed_awaiting_callback(
        self, full: Iterable[TopicPartition], added: Iterable[TopicPartition]
    ) -> None:
        """Does the same, and suspends the added partitions until the listener has run."""
        with self.lock:
            self.assign_from_subscribed(full)
            self.assignment.await_callback(added)

    # -- metadata

    def metadata_topics(self) -> frozenset[str]:
        """Returns the topics whose metadata this consumer needs."""
        with self.lock:
            subscription, assigned = self.subscription, self.assignment.states
            return subscription.topics | subscription.group_topics | {partition.topic for partition in assigned}

    def needs_metadata(self, topic: str) -> bool:
        with self.lock:
            subscription = self.subscription
            return (
                topic in subscription.topics
                or topic in subscription.group_topics
                or any(partition.topic == topic for partition in self.assignment.states)
            )

    def __repr__(self) -> str:
        return f"SubscriptionState({self.subscription}, {self.assignment})"
