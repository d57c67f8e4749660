"""A consumer's subscription: topics, a pattern, or partitions that the application chose itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from barnabas.clients.common.errors import IllegalStateError
from barnabas.clients.consumer.subscription_pattern import SubscriptionPattern
from barnabas.common.topic_partition import TopicPartition

if TYPE_CHECKING:
    from barnabas.clients.consumer.rebalance_listener import ConsumerRebalanceListener

_EXCLUSIVE: Final = "Subscription to topics, partitions and pattern are mutually exclusive"


class SubscriptionType(Enum):
    NONE = auto()
    AUTO_TOPICS = auto()
    """A list of topics. The group assigns their partitions."""
    AUTO_PATTERN = auto()
    """A pattern that this consumer matches against the topics it knows."""
    AUTO_PATTERN_RE2J = auto()
    """A pattern that the group coordinator matches."""
    USER_ASSIGNED = auto()
    """Partitions that the application chose itself."""


_AUTO: Final = frozenset(
    {SubscriptionType.AUTO_TOPICS, SubscriptionType.AUTO_PATTERN, SubscriptionType.AUTO_PATTERN_RE2J}
)


class Subscription:
    """The type of a subscription, and its topics or pattern.

    The first call decides the type. Another type is refused until `clear`.

    The lock of `SubscriptionState` guards changes. Every attribute holds an immutable value, so that reading one needs
    no lock.
    """

    __slots__ = ("group_topics", "listener", "pattern", "re2j_pattern", "topics", "type")

    type: SubscriptionType
    topics: frozenset[str]
    """The subscribed topics, or those that match the pattern at the moment. Empty if partitions were assigned."""
    group_topics: frozenset[str]
    """The topics of all members of a classic group. Its leader needs their metadata."""
    pattern: re.Pattern[str] | None
    re2j_pattern: SubscriptionPattern | None
    listener: ConsumerRebalanceListener | None

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.type = SubscriptionType.NONE
        self.topics = self.group_topics = frozenset()
        self.pattern = self.re2j_pattern = self.listener = None

    def set_type(self, kind: SubscriptionType) -> None:
        if self.type is SubscriptionType.NONE:
            self.type = kind
        elif self.type is not kind:
            raise IllegalStateError(_EXCLUSIVE)

    def subscribe(self, topics: Iterable[str], listener: ConsumerRebalanceListener | None) -> bool:
        """Subscribes to topics. Returns whether they differ from those before."""
        self.set_type(SubscriptionType.AUTO_TOPICS)
        self.listener = listener
        return self._replace_topics(topics)

    def subscribe_pattern(
        self, pattern: re.Pattern[str] | SubscriptionPattern, listener: ConsumerRebalanceListener | None
    ) -> None:
        if isinstance(pattern, SubscriptionPattern):
            self.set_type(SubscriptionType.AUTO_PATTERN_RE2J)
            self.re2j_pattern = pattern
        else:
            self.set_type(SubscriptionType.AUTO_PATTERN)
            self.pattern = pattern
        self.listener = listener

    def subscribe_from_pattern(self, topics: Iterable[str]) -> bool:
        """Takes the topics that match the pattern now. Returns whether they differ from those before."""
        if self.type is not SubscriptionType.AUTO_PATTERN:
            raise IllegalStateError(f"Attempt to subscribe from pattern while subscription type set to {self.type}")
        return self._replace_topics(topics)

    def group_subscribe(self, topics: Iterable[str]) -> bool:
        """Takes the topics of all members. Returns whether this consumer is not subscribed to all of them."""
        if self.type not in _AUTO:
            raise IllegalStateError(_EXCLUSIVE)
        self.group_topics = frozenset(topics)
        return not self.group_topics <= self.topics

    def _replace_topics(self, topics: Iterable[str]) -> bool:
        before, self.topics = self.topics, frozenset(topics)
        return self.topics != before

    # -- queries

    def is_none(self) -> bool:
        return self.type is SubscriptionType.NONE

    def is_auto_assigned(self) -> bool:
        """Whether the group assigns the partitions."""
        return self.type in _AUTO

    def has_pattern(self) -> bool:
        return self.type is SubscriptionType.AUTO_PATTERN

    def has_re2j_pattern(self) -> bool:
        return self.type is SubscriptionType.AUTO_PATTERN_RE2J

    def matches_pattern(self, topic: str) -> bool:
        pattern = self.pattern
        return pattern is not None and pattern.fullmatch(topic) is not None

    def covers(self, partitions: Iterable[TopicPartition]) -> bool:
        """Returns whether all partitions belong to topics that are (still) subscribed to."""
        if self.type is SubscriptionType.AUTO_PATTERN:
            return all(self.matches_pattern(partition.topic) for partition in partitions)
        if self.type is SubscriptionType.AUTO_PATTERN_RE2J:
            return True  # the coordinator matched them
        return all(partition.topic in self.topics for partition in partitions)

    def __repr__(self) -> str:
        return f"Subscription({self.type.name}, {sorted(self.topics)})"
