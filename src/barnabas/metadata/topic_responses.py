"""Responses about topics: the Metadata and DescribeTopicPartitions APIs.

Everything here is a function of an image. A request handler takes the image once, and uses it for the whole response.

Every client sends Metadata first, then every few minutes, and again after each error; in a cluster with many topics the
responses are large. So the partitions of a response are cached with the topic's image: they are built once per
listener, and again only when the topic has changed, or a broker was added or removed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from barnabas.common.dataclass import dataclass
from barnabas.common.errors import Errors, InvalidRequestError
from barnabas.common.identifiers import ZERO_UUID
from barnabas.common.topic_names import is_internal_topic, is_valid_topic_name
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.reachability import Reachability
from barnabas.metadata.topics import TopicImage
from barnabas.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

# -- Metadata


@dataclass(frozen=True, slots=True)
class RequestedTopics:
    """The topics of a Metadata request."""

    names: Sequence[str]
    """Without duplicates. Requested by ID: those that exist; by name: all requested ones."""
    unknown_ids: Sequence[MetadataResponseTopic]
    """The responses for unknown IDs."""
    all_topics: bool
    """Whether the client requested all topics. Then it must not see topics that it may not describe."""
    by_id: bool


def requested_topics(image: MetadataImage, request: MetadataRequest, version: int) -> RequestedTopics:
    """Parses a request: all topics (null, or an empty list in v0), some by name, or by ID from v12 on."""
    topics = request.topics
    if topics is None or (not topics and version == 0):
        return RequestedTopics(image.topics.sorted_names, (), all_topics=True, by_id=False)
    if version < 12:
        for topic in topics:
            if topic.name is None:
                raise InvalidRequestError(f"a topic in a Metadata request v{version} must have a name")
            if topic.topic_id != ZERO_UUID:
                raise InvalidRequestError(f"topic IDs require Metadata v12 or later: v{version}")
    ids = dict.fromkeys(topic.topic_id for topic in topics if topic.topic_id != ZERO_UUID)
    if not ids:
        names = dict.fromkeys(topic.name for topic in topics if topic.name is not None)
        return RequestedTopics(list(names), (), all_topics=False, by_id=False)
    known = image.topics.by_id
    return RequestedTopics(
        [known[topic_id].name for topic_id in ids if topic_id in known],
        [
            MetadataResponseTopic(error_code=Errors.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
            for topic_id in ids
            if topic_id not in known
        ],
        all_topics=False,
        by_id=True,
    )


def topic_metadata(
    image: MetadataImage, names: Iterable[str], listener: str, version: int
) -> list[MetadataResponseTopic]:
    """Returns the responses of the topics that exist.

    The topics are new objects, which the caller may complete; their partitions are shared with other responses and must
    not be modified.
    """
    by_name = image.topics.by_name
    reachability = Reachability.of(image.cluster, listener)
    return [
        MetadataResponseTopic(
            name=name,
            topic_id=topic.id,
            is_internal=is_internal_topic(name),
            partitions=_partitions(topic, reachability, version),
        )
        for name in names
        if (topic := by_name.get(name)) is not None
    ]


def missing_topic(name: str) -> MetadataResponseTopic:
    """Returns the response for a name without a topic: the name may be valid or not."""
    return MetadataResponseTopic(error_code=_why_missing(name), name=name, is_internal=is_internal_topic(name))


def _why_missing(name: str) -> Errors:
    return Errors.UNKNOWN_TOPIC_OR_PARTITION if is_valid_topic_name(name) else Errors.INVALID_TOPIC_EXCEPTION


def _partitions(topic: TopicImage, reachability: Reachability, version: int) -> list[MetadataResponsePartition]:
    """Returns the partitions of a topic, from the cache if nothing has changed since.

    There are three formats: v0, v1 to v5, and the rest. They are cached together with the objects they were built from,
    which are replaced as soon as any broker changes.
    """
    kind = 0 if version == 0 else 1 if version < 6 else 2
    kept = topic.derived
    if kept is None:
        kept = topic.derived = {}
    key = (reachability.listener, kind)
    found = kept.get(key)
    if found is None or found[0] is not reachability:
        found = kept[key] = (reachability, _make_partitions(topic, reachability, kind))
    partitions: list[MetadataResponsePartition] = found[1]
    return partitions


def _make_partitions(topic: TopicImage, reachability: Reachability, kind: int) -> list[MetadataResponsePartition]:
    leaders, replicas_and_offline, lists = reachability.leaders, reachability.replicas, reachability.lists
    new = MetadataResponsePartition.__new__
    made = []
    for number, partition in topic.partitions.items():
        error, leader = leaders[partition.leader]
        replicas, offline = replicas_and_offline[partition.replicas, partition.directories]
        isr = lists[partition.isr]
        if kind < 2 and error:
            error = Errors.LEADER_NOT_AVAILABLE.value  # LISTENER_NOT_FOUND exists since v6
        if kind == 0:
            # Later versions list offline replicas; these leave them out, and return an error.
            replicas, isr = reachability.alive[partition.replicas], reachability.alive[partition.isr]
            if not error and (len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr)):
                error = Errors.REPLICA_NOT_AVAILABLE.value
        # Field by field: a call of the constructor takes five times as long, and there may be 100,000 partitions.
        response = new(MetadataResponsePartition)
        response.unknown_tagged_fields = None
        response.error_code = error
        response.partition_index = number
        response.leader_id = leader
        response.leader_epoch = partition.leader_epoch
        response.replica_nodes = replicas
        response.isr_nodes = isr
        response.offline_replicas = offline
        made.append(response)
    return made


# -- DescribeTopicPartitions


def described_topics(image: MetadataImage, request: DescribeTopicPartitionsRequest) -> Sequence[str]:
    """Returns the remaining topics, from the cursor on, in order."""
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        raise InvalidRequestError(f"the partition of the cursor must not be negative: {cursor.partition_index}")
    if request.topics:
        names: Sequence[str] = sorted({topic.name for topic in request.topics})
        if cursor is not None and cursor.topic_name not in names:
            raise InvalidRequestError(f"the topic of the cursor is not in the request: {cursor.topic_name!r}")
    else:
        names = image.topics.sorted_names
    return names if cursor is None else names[bisect_left(names, cursor.topic_name) :]


def describe_topic_partitions(
    image: MetadataImage,
    request: DescribeTopicPartitionsRequest,
    listener: str,
    max_partitions: int = 2000,
    is_authorized: Callable[[str], bool] = lambda _name: True,
) -> DescribeTopicPartitionsResponse:
    """Returns one page: up to ``max_partitions`` partitions, fewer if the client requests fewer, but at least one.

    A topic that does not fit is split; the next page continues with the rest. ``is_authorized`` is called in the order
    of the names, and only as far as the page goes; a denied topic is left out, or an error if requested by name.
    """
    remaining = max(min(max_partitions, request.response_partition_limit), 1)
    cursor = request.cursor
    response = DescribeTopicPartitionsResponse()
    denied: list[DescribeTopicPartitionsResponseTopic] = []
    reachability = Reachability.of(image.cluster, listener)
    for name in described_topics(image, request):
        if not is_authorized(name):
            if request.topics:
                denied.append(_described(name, Errors.TOPIC_AUTHORIZATION_FAILED, internal=False))
            continue
        if remaining == 0:
            # The next page finds out whether this topic exists.
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.by_name.get(name)
        if topic is None:
            if request.topics:
                response.topics.append(_described(name, _why_missing(name)))
            continue
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        numbers = [number for number in topic.partitions if number >= start]
        described = _described(name, Errors.NONE)
        described.topic_id = topic.id
        described.partitions = [_describe_partition(topic, number, reachability) for number in numbers[:remaining]]
        response.topics.append(described)
        if len(numbers) > remaining:
            response.next_cursor = Cursor(topic_name=name, partition_index=numbers[remaining])
            break
        remaining -= len(numbers)
    response.topics += denied
    return response


def _described(name: str, error: Errors, internal: bool | None = None) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error, name=name, is_internal=is_internal_topic(name) if internal is None else internal
    )


def _describe_partition(
    topic: TopicImage, number: int, reachability: Reachability
) -> DescribeTopicPartitionsResponsePartition:
    partition = topic.partitions[number]
    replicas, offline = reachability.replicas[partition.replicas, partition.directories]
    return DescribeTopicPartitionsResponsePartition(
        partition_index=number,
        leader_id=reachability.leaders[partition.leader][1],
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=reachability.lists[partition.isr],
        # Never null, although the schema allows it: Kafka's admin client fails on null.
        eligible_leader_replicas=reachability.lists[partition.elr],
        last_known_elr=reachability.lists[partition.last_known_elr],
        offline_replicas=offline,
    )
