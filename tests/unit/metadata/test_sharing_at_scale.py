"""What one change costs among 10,000 topics: time, and memory."""

from __future__ import annotations

import gc
import time
import tracemalloc

import pytest

from barnabas.common.identifiers import Uuid
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import MetadataImage
from barnabas.protocol.internal.metadata import ConfigRecord, PartitionChangeRecord
from unit.metadata.samples import delta_of, image_of, metadata_version, provenance, topic, uid

TOPICS, PARTITIONS = 10_000, 10


def topic_id(number: int) -> Uuid:
    return uid((number + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128))  # scattered, as random ids are


@pytest.fixture(scope="module")
def large() -> MetadataImage:
    return image_of(
        [metadata_version()]
        + [
            record
            for number in range(TOPICS)
            for record in topic(f"topic-{number}", topic_id(number), PARTITIONS, replicas=[1, 2, 3])
        ]
    )


def change(number: int) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=topic_id(number), partition_id=3, leader=2)


def test_one_partition_changes_in_well_under_a_millisecond(large: MetadataImage) -> None:
    """Measured: 14 microseconds, in CPU time of this thread, which a busy machine does not lengthen."""
    image, times = large, []
    for number in range(300):
        record = change(number)
        started = time.thread_time()
        delta = MetadataDelta(image)
        delta.replay(record)
        image = delta.apply(provenance(number))
        times.append(time.thread_time() - started)
    assert sorted(times)[len(times) // 2] < 0.0003
    assert image.topics.by_id[topic_id(299)].partitions[3].leader == 2
    assert large.topics.by_id[topic_id(299)].partitions[3].leader == 1


def test_the_next_image_takes_a_few_kilobytes(large: MetadataImage) -> None:
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        images = [delta_of([change(number)], large).apply(provenance(number)) for number in range(20)]
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / len(images) < 30_000  # measured: 10 kB, of 20 MB


def test_everything_else_is_shared(large: MetadataImage) -> None:
    image = delta_of([change(77)], large).apply(provenance(5))
    before, after = large.topics, image.topics
    assert before.by_id.shared_buckets(after.by_id) == before.by_id.bucket_count - 1
    assert before.by_name.shared_buckets(after.by_name) == before.by_name.bucket_count - 1
    different = [key for key in before.by_id if before.by_id[key] is not after.by_id[key]]
    assert different == [topic_id(77)]
    assert image.cluster is large.cluster
    assert image.configs is large.configs


def test_a_change_elsewhere_leaves_the_topics_alone(large: MetadataImage) -> None:
    record = ConfigRecord(resource_type=2, resource_name="topic-1", name="retention.ms", value="1")
    assert image_of([record], large).topics is large.topics
