"""The metadata cache of a broker."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.metadata import cluster_responses, metadata_version, topic_responses
from barnabas.metadata.broker_registration import BrokerRegistration
from barnabas.metadata.cluster_responses import Choose
from barnabas.metadata.configs import ConfigResource, Settings
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.endpoint import NO_NODE, Node
from barnabas.metadata.feature_versions import KRAFT_VERSION
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.metadata.metadata_version import MetadataVersion
from barnabas.metadata.partition_registration import PartitionRegistration
from barnabas.metadata.publisher import LoaderManifest, MetadataPublisher
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic

if TYPE_CHECKING:
    from barnabas.protocol.messages.describe_client_quotas import (
        DescribeClientQuotasRequest,
        DescribeClientQuotasResponse,
    )
    from barnabas.protocol.messages.describe_user_scram_credentials import (
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
    )


class FinalizedFeatures(NamedTuple):
    """The finalized feature levels, as in ApiVersions."""

    metadata_version: MetadataVersion | None
    levels: Mapping[str, int]
    """The levels other than 0 by name, with ``metadata.version`` and ``kraft.version``."""
    epoch: int
    """The offset of the image. It only grows, so a client can recognize the older of two responses."""


class MetadataCache:
    """The broker's view of the cluster: one reference to an image, and queries on it.

    The loader's thread replaces the image with one assignment; all other threads only read. Every method takes the
    reference once, so it uses one image, even if the next one arrives meanwhile. A caller with several queries that
    must be consistent takes :attr:`image` once, and uses the functions of :mod:`~barnabas.metadata.topic_responses` and
    :mod:`~barnabas.metadata.cluster_responses`.

    The cache is never ahead of the log but may be behind it: a topic that it does not know may exist. That is why
    clients retry after UNKNOWN_TOPIC_OR_PARTITION.
    """

    def __init__(self, kraft_version: Callable[[], int] = lambda: 0, choose: Choose = random.choice) -> None:
        self.image = EMPTY_IMAGE
        """The current image. Any thread reads it; only `set_image` changes it."""
        self._kraft_version = kraft_version
        self._choose = choose

    def set_image(self, image: MetadataImage) -> None:
        self.image = image

    # -- topics

    @property
    def all_topics(self) -> tuple[str, ...]:
        """The names, sorted."""
        return self.image.topics.sorted_names

    def contains(self, topic: str, partition: int | None = None) -> bool:
        """Returns whether the topic exists, and the partition if given."""
        found = self.image.topics.by_name.get(topic)
        return found is not None and (partition is None or partition in found.partitions)

    def topic_id(self, name: str) -> Uuid:
        """Returns the ID of a topic; all zeros if it does not exist."""
        topic = self.image.topics.by_name.get(name)
        return ZERO_UUID if topic is None else topic.id

    def topic_name(self, topic_id: Uuid) -> str | None:
        topic = self.image.topics.by_id.get(topic_id)
        return None if topic is None else topic.name

    def num_partitions(self, topic: str) -> int | None:
        found = self.image.topics.by_name.get(topic)
        return None if found is None else len(found.partitions)

    def partition(self, topic: str, partition: int) -> PartitionRegistration | None:
        """Returns leader, epochs, replicas and ISR."""
        found = self.image.topics.by_name.get(topic)
        return None if found is None else found.partitions.get(partition)

    def partition_leader_endpoint(self, topic: str, partition: int, listener: str) -> Node | None:
        """Returns the leader of a partition; None if the partition or its leader is unknown.

        NO_NODE is a leader without an address on this listener.
        """
        image = self.image
        found = image.topics.by_name.get(topic)
        registration = None if found is None else found.partitions.get(partition)
        broker = None if registration is None else image.cluster.broker(registration.leader)
        return None if broker is None else broker.node(listener) or NO_NODE

    def partition_replica_endpoints(self, topic: str, partition: int, listener: str) -> dict[int, Node]:
        """Returns the replicas of a partition that are alive and have an address on this listener."""
        image = self.image
        found = image.topics.by_name.get(topic)
        registration = None if found is None else found.partitions.get(partition)
        if registration is None:
            return {}
        brokers = map(image.cluster.broker, registration.replicas)
        return {
            broker.id: node
            for broker in brokers
            if broker is not None and not broker.fenced and (node := broker.node(listener)) is not None
        }

    # -- brokers

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        return self.image.cluster.broker(broker_id)

    def has_alive_broker(self, broker_id: int) -> bool:
        broker = self.broker(broker_id)
        return broker is not None and not broker.fenced

    def alive_broker_epoch(self, broker_id: int) -> int | None:
        broker = self.broker(broker_id)
        return None if broker is None or broker.fenced else broker.epoch

    def alive_broker_node(self, broker_id: int, listener: str) -> Node | None:
        broker = self.broker(broker_id)
        return None if broker is None or broker.fenced else broker.node(listener)

    def alive_broker_nodes(self, listener: str) -> list[Node]:
        return cluster_responses.broker_nodes(self.image, listener)

    def alive_broker_ids(self) -> list[int]:
        return sorted(broker.id for broker in self.image.cluster.brokers.values() if not broker.fenced)

    def random_alive_broker_id(self) -> int | None:
        ids = self.alive_broker_ids()
        return self._choose(ids) if ids else None

    # -- configuration and features

    def config(self, resource: ConfigResource) -> Settings:
        """Returns the settings of this resource in the metadata, without defaults."""
        return self.image.configs.of(resource)

    def topic_config(self, topic: str) -> Settings:
        return self.config(ConfigResource.topic(topic))

    @property
    def metadata_version(self) -> MetadataVersion | None:
        return self.image.features.metadata_version

    def features(self) -> FinalizedFeatures:
        image = self.image
        version = image.features.metadata_version
        levels = dict(image.features.finalized)
        if version is not None:
            levels[metadata_version.FEATURE_NAME] = version.value
        kraft_version = self._kraft_version()
        if kraft_version > 0:
            levels[KRAFT_VERSION.name] = kraft_version
        return FinalizedFeatures(version, levels, image.offset)

    # -- responses

    def topic_metadata(self, names: Iterable[str], listener: str, version: int) -> list[MetadataResponseTopic]:
        return topic_responses.topic_metadata(self.image, names, listener, version)

    def metadata_response(
        self, request: MetadataRequest, version: int, listener: str, cluster_id: str
    ) -> MetadataResponse:
        return cluster_responses.metadata_response(self.image, request, version, listener, cluster_id, self._choose)

    def describe_topic_partitions(
        self,
        request: DescribeTopicPartitionsRequest,
        listener: str,
        max_partitions: int = 2000,
        is_authorized: Callable[[str], bool] = lambda _name: True,
    ) -> DescribeTopicPartitionsResponse:
        return topic_responses.describe_topic_partitions(self.image, request, listener, max_partitions, is_authorized)

    def describe_cluster(
        self, request: DescribeClusterRequest, version: int, listener: str, cluster_id: str
    ) -> DescribeClusterResponse:
        return cluster_responses.describe_cluster(self.image, request, version, listener, cluster_id, self._choose)

    def describe_client_quotas(self, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
        return self.image.client_quotas.describe(request)

    def describe_scram_credentials(
        self, request: DescribeUserScramCredentialsRequest
    ) -> DescribeUserScramCredentialsResponse:
        return self.image.scram.describe(request)


class MetadataCachePublisher(MetadataPublisher):
    """Updates a cache. It must be installed first, so that other publishers find the new image in the cache."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache

    @property
    def name(self) -> str:
        return "MetadataCachePublisher"

    def on_metadata_update(self, delta: MetadataDelta, new_image: MetadataImage, manifest: LoaderManifest) -> None:  # noqa: ARG002
        self._cache.set_image(new_image)
