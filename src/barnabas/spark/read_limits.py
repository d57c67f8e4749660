"""How much of what is there goes into the next micro-batch.

Spark has limits of its own for sources, but hands over just one of them. A stream here can have a maximum of records, a
maximum of bytes, a minimum, and a time after which the minimum does not count, all at once; so they are worked out
here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from barnabas.common.topic_partition import TopicPartition
from barnabas.spark.offsets import Offsets

SAMPLE_BYTES = 64 * 1024
"""How much of a partition is read to see how large its records are."""


def limit_records(starts: Mapping[TopicPartition, int], ends: Offsets, max_records: int) -> Offsets:
    """The ends of a micro-batch with so many records, shared out in proportion to what each partition has.

    A share of less than one record is one record, so that small partitions are not starved by large ones.

    >>> limit_records(
    ...     {TopicPartition("t", 0): 0, TopicPartition("t", 1): 0},
    ...     {TopicPartition("t", 0): 999, TopicPartition("t", 1): 1},
    ...     10,
    ... )
    {TopicPartition(topic='t', partition=0): 9, TopicPartition(topic='t', partition=1): 1}
    """
    total = available(starts, ends)
    return ends if total <= max_records else _scaled(starts, ends, max_records / total)


def limit_bytes(
    starts: Mapping[TopicPartition, int],
    ends: Offsets,
    max_bytes: int,
    bytes_per_offset: Mapping[TopicPartition, float],
) -> Offsets:
    """The ends of a micro-batch of about so many bytes, as they are in the log: compressed, with the batches' headers.

    It is an estimate: what the next records take is taken for what all records take, and partitions nothing was read
    of count like the average of the others. One record of each partition is always allowed.
    """
    if not bytes_per_offset:
        return ends
    usual = sum(bytes_per_offset.values()) / len(bytes_per_offset)
    total = sum(max(0, end - starts.get(one, end)) * bytes_per_offset.get(one, usual) for one, end in ends.items())
    return ends if total <= max_bytes else _scaled(starts, ends, max_bytes / total)


def available(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    return sum(max(0, end - starts.get(one, end)) for one, end in ends.items())


def _scaled(starts: Mapping[TopicPartition, int], ends: Offsets, factor: float) -> Offsets:
    limited: Offsets = {}
    for one, end in ends.items():
        start = starts.get(one, end)
        share = max(0, end - start) * factor
        limited[one] = end if end <= start else min(end, start + (math.ceil(share) if share < 1 else math.floor(share)))
    return limited
