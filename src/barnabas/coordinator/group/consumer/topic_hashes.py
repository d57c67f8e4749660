"""Hashes of topics, to detect changes."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from barnabas.metadata.cluster import ClusterImage
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.topics import TopicImage

_KEY: Final = "group-coordinator-topic-hash"
_INT = struct.Struct(">i")


def _hash(parts: Iterable[bytes]) -> int:
    from hashlib import blake2b

    digest = blake2b(digest_size=8)
    for part in parts:
        digest.update(_INT.pack(len(part)))
        digest.update(part)
    return int.from_bytes(digest.digest(), "big", signed=True)


def topic_hash(topic: TopicImage, cluster: ClusterImage) -> int:
    """Hashes the ID, the name, the partitions and their racks.

    Kafka hashes the same with XXH3. A group that moves between the two brokers gets one new assignment, which changes
    nothing.
    """
    cached = None if topic.derived is None else topic.derived.get(_KEY)
    if cached is not None and cached[0] is cluster:
        found: int = cached[1]
        return found
    parts = [topic.id, topic.name.encode(), _INT.pack(len(topic.partitions))]
    for number, partition in topic.partitions.items():
        racks = sorted(
            {
                broker.rack
                for broker in (cluster.brokers.get(replica) for replica in partition.replicas)
                if broker is not None and broker.rack is not None
            }
        )
        parts.append(_INT.pack(number) + "\0".join(racks).encode())
    made = _hash(parts)
    if topic.derived is None:
        topic.derived = {}
    topic.derived[_KEY] = (cluster, made)
    return made


def group_hash(topic_names: Iterable[str], image: MetadataImage) -> int:
    """Hashes all existing topics of a group; 0 if there are none."""
    hashes = []
    for name in sorted(topic_names):
        topic = image.topics.topic(name)
        if topic is not None:
            hashes.append(topic_hash(topic, image.cluster))
    return _hash(one.to_bytes(8, "big", signed=True) for one in hashes) if hashes else 0
