"""Assignment of a consumer that subscribes without a group."""

from __future__ import annotations

from barnabas.clients.common.metadata_snapshot import MetadataSnapshot
from barnabas.clients.consumer.internals.consumer_metadata import ConsumerMetadata
from barnabas.clients.consumer.internals.request_managers import EMPTY, PatientRequestManager, PollResult
from barnabas.clients.consumer.internals.subscription import SubscriptionType
from barnabas.clients.consumer.internals.subscription_state import SubscriptionState
from barnabas.common.topic_partition import TopicPartition


class AllPartitionsManager(PatientRequestManager):
    """Assigns all partitions of the subscribed topics to a consumer without ``group.id``.

    Without a group nobody shares the partitions, so the consumer takes all of them. Metadata is the only input: each
    update may bring a topic that did not exist, or more partitions.
    """

    def __init__(self, subscriptions: SubscriptionState, metadata: ConsumerMetadata) -> None:
        self._subscriptions = subscriptions
        self._metadata = metadata
        self._seen: tuple[int, frozenset[str]] | None = None
        """The metadata version and the subscription of the last assignment."""

    def poll(self, now: int) -> PollResult:  # noqa: ARG002 - nothing here depends on the time
        subscriptions = self._subscriptions
        if subscriptions.subscription.type is not SubscriptionType.AUTO_TOPICS:
            self._seen = None
            return EMPTY
        version, snapshot = self._metadata.update_version, self._metadata.snapshot
        # The application may unsubscribe at any time: the lock keeps the subscription as it is until it is assigned.
        with subscriptions.lock:
            topics = subscriptions.subscription.topics
            if (version, topics) != self._seen and subscriptions.subscription.type is SubscriptionType.AUTO_TOPICS:
                self._seen = (version, topics)
                self._assign(topics, snapshot)
        return EMPTY

    def poll_on_close(self, now: int) -> PollResult:  # noqa: ARG002 - there is nobody to tell
        return EMPTY

    def _assign(self, topics: frozenset[str], snapshot: MetadataSnapshot) -> None:
        before = self._subscriptions.assignment.in_fetch_order()
        wanted = [partition for partition in before if partition.topic in topics]
        known = set(wanted)  # kept while metadata lacks them: a topic with a brief error keeps its position
        for topic in sorted(topics):
            for info in snapshot.partitions_for(topic):
                partition = TopicPartition(topic, info.partition)
                if partition not in known:
                    wanted.append(partition)
        if wanted != before:
            self._subscriptions.assign_from_subscribed(wanted)
