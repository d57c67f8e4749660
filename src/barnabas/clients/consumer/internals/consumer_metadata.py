"""Metadata of the topics that a consumer reads."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from barnabas.clients.common.metadata import Metadata, MetadataRequestAndVersion
from barnabas.clients.consumer.internals.fetch_position import NO_LEADER_OR_EPOCH, LeaderAndEpoch
from barnabas.clients.consumer.internals.subscription_state import SubscriptionState
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic


class ConsumerMetadata(Metadata):
    """Keeps metadata of subscribed or assigned topics; of all topics while there is a pattern to match.

    Some calls need other topics (``offsets_for_times`` of any partition): those are *transient*, kept while the call
    lasts.
    """

    def __init__(
        self,
        refresh_backoff_ms: int,
        refresh_backoff_max_ms: int,
        metadata_expire_ms: int,
        *,
        subscriptions: SubscriptionState,
        allow_auto_topic_creation: bool,
        include_internal_topics: bool,
        random: Random | None = None,
    ) -> None:
        super().__init__(refresh_backoff_ms, refresh_backoff_max_ms, metadata_expire_ms, random=random)
        self._subscriptions = subscriptions
        self._allow_auto_topic_creation = allow_auto_topic_creation
        self._include_internal_topics = include_internal_topics
        self._transient_topics: dict[str, int] = {}

    # -- topics to request

    def new_metadata_request(self, now: int) -> MetadataRequestAndVersion:  # noqa: ARG002 - all topics, each time
        with self.lock:
            subscriptions = self._subscriptions
            # Topics that a broker-side pattern matched are known by id only, until metadata has their names; like
            # Kafka's consumer, request all topics.
            if subscriptions.subscription.has_pattern() or subscriptions.subscription.has_re2j_pattern():
                request = MetadataRequest(topics=None, allow_auto_topic_creation=self._allow_auto_topic_creation)
            else:
                request = MetadataRequest(
                    topics=[MetadataRequestTopic(name=topic) for topic in sorted(self.topic_names())],
                    allow_auto_topic_creation=self._allow_auto_topic_creation,
                )
            return MetadataRequestAndVersion(request, self._request_version, False)

    def topic_names(self) -> Iterable[str]:
        return self._subscriptions.metadata_topics() | self._transient_topics.keys()

    def retain_topic(self, topic: str, is_internal: bool, now: int) -> bool:  # noqa: ARG002 - no topic expires
        with self.lock:
            if topic in self._transient_topics or self._subscriptions.needs_metadata(topic):
                return True
            if is_internal and not self._include_internal_topics:
                return False
            return (
                self._subscriptions.subscription.matches_pattern(topic)
                or self._subscriptions.subscription.has_re2j_pattern()
            )

    def add_transient_topics(self, topics: Iterable[str]) -> None:
        """Adds topics for the duration of a call; counted, as two calls may need the same one."""
        with self.lock:
            snapshot = self.snapshot
            missing = False
            for topic in topics:
                self._transient_topics[topic] = self._transient_topics.get(topic, 0) + 1
                missing |= topic not in snapshot.topics
            if missing:
                self.request_update_for_new_topics()

    def remove_transient_topics(self, topics: Iterable[str]) -> None:
        with self.lock:
            for topic in topics:
                count = self._transient_topics.get(topic, 0)
                if count > 1:
                    self._transient_topics[topic] = count - 1
                else:
                    self._transient_topics.pop(topic, None)

    # -- state

    def current_leader(self, partition: TopicPartition) -> LeaderAndEpoch:
        info = self.snapshot.partition(partition)
        if info is None:
            return NO_LEADER_OR_EPOCH
        return LeaderAndEpoch(info.leader, info.leader_epoch)

    def matching_topics(self) -> frozenset[str]:
        """Returns the known topics that the pattern matches."""
        return frozenset(
            topic.name
            for topic in self.snapshot.topics.values()
            if (self._include_internal_topics or not topic.is_internal)
            and self._subscriptions.subscription.matches_pattern(topic.name)
        )
