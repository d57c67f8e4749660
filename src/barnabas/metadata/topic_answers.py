"""Answers about topics: the Metadata and DescribeTopicPartitions APIs.

Everything here is a function of an image. A request handler takes the image once, and asks all its questions of that.

Metadata is the request that every client sends first, then every few minutes, and again after each error; in a cluster
of many topics the answers are large. So the partitions of an answer are kept with the topic's image: they are made once
for each listener, and again only when the topic has changed, or a broker has come or gone.
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
    """The topics that a Metadata request is about."""

    names: Sequence[str]
    """Each once. If they were asked for by id, those that exist; by name, whatever was asked for."""
    unknown_ids: Sequence[MetadataResponseTopic]
    """The answers for ids that no topic has."""
    all_topics: bool
    """Whether the client asked for all topics. It then must not learn of those that it may not see."""
    by_id: bool


def requested_topics(image: MetadataImage, request: MetadataRequest, version: int) -> RequestedTopics:
    """Reads what a request asks for: all topics (null, or an empty list in v0), some by name, or by id from v12 on."""
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
    """The answers for those of the topics that exist.

    The topics are new objects, to be filled up by the caller; their partitions are shared with other answers and must
    not be changed.
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
    """The answer for a name that no topic has: it might be created, or could not even be."""
    return MetadataResponseTopic(error_code=_why_missing(name), name=name, is_internal=is_internal_topic(name))


def _why_missing(name: str) -> Errors:
    return Errors.UNKNOWN_TOPIC_OR_PARTITION if is_valid_topic_name(name) else Errors.INVALID_TOPIC_EXCEPTION


def _partitions(topic: TopicImage, reachability: Reachability, version: int) -> list[MetadataResponsePartition]:
    """The partitions of a topic, as they were made the last time if nothing has changed since.

    There are three kinds of answers: v0, v1 to v5, and the rest. They are kept together with what they were made from,
    which is another object as soon as any broker changes.
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
            error = Errors.LEADER_NOT_AVAILABLE.value  # LISTENER_NOT_FOUND came with v6
        if kind == 0:
            # Later clients are told of replicas that are down, these get them taken out, and an error for it.
            replicas, isr = reachability.alive[partition.replicas], reachability.alive[partition.isr]
            if not error and (len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr)):
                error = Errors.REPLICA_NOT_AVAILABLE.value
        # Field by field: a call of the constructor takes five times as long, and there may be 100,000 partitions.
        answer = new(MetadataResponsePartition)
        answer.unknown_tagged_fields = None
        answer.error_code = error
        answer.partition_index = number
        answer.leader_id = leader
        answer.leader_epoch = partition.leader_epoch
        answer.replica_nodes = replicas
        answer.isr_nodes = isr
        answer.offline_replicas = offline
        made.append(answer)
    return made


# -- DescribeTopicPartitions


def described_topics(image: MetadataImage, request: DescribeTopicPartitionsRequest) -> Sequence[str]:
    """The topics that are left to describe, from the cursor on, in order."""
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
    """One page: up to ``max_partitions`` partitions, fewer if the client wants fewer, but at least one.

    A topic that does not fit is cut; the next page goes on with the rest. ``is_authorized`` is asked in the order of
    the names, and only as far as the page goes; what it denies is left out, or an error if it was asked for by name.
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
            # Whether this topic exists is for the next page to find out.
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
        # Never null, although the schema would allow it: Kafka's admin client fails on null.
        eligible_leader_replicas=reachability.lists[partition.elr],
        last_known_elr=reachability.lists[partition.last_known_elr],
        offline_replicas=offline,
    )
