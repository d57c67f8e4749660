"""Limits the size of the next micro-batch.

Spark has read limits for sources, but passes only one of them. A stream here can combine a maximum of records, a
maximum of bytes, a minimum, and a time after which the minimum does not apply; so this module applies them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from barnabas.common.topic_partition import TopicPartition
from barnabas.spark.offsets import Offsets


def limit_records(starts: Mapping[TopicPartition, int], ends: Offsets, max_records: int) -> Offsets:
    """Returns the end offsets of a micro-batch with `max_records`, divided in proportion to each partition's backlog.

    A share below one record is rounded up to one, so that large partitions do not starve small ones.

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
    """Returns the end offsets of a micro-batch of about `max_bytes` in the log: compressed, with batch headers.

    It is an estimate: the size of the next records stands for all records, and partitions without a sample count like
    the average of the others. One record of each partition is always allowed.
    """
    if not bytes_per_offset:
        return ends
    usual = mean_size(bytes_per_offset)
    total = sum(max(0, end - starts.get(one, end)) * bytes_per_offset.get(one, usual) for one, end in ends.items())
    return ends if total <= max_bytes else _scaled(starts, ends, max_bytes / total)


def available(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    return sum(max(0, end - starts.get(one, end)) for one, end in ends.items())


def mean_size(bytes_per_offset: Mapping[TopicPartition, float]) -> float:
    """Returns the mean bytes per offset; 0 if nothing is known."""
    return sum(bytes_per_offset.values()) / len(bytes_per_offset) if bytes_per_offset else 0.0


def _scaled(starts: Mapping[TopicPartition, int], ends: Offsets, factor: float) -> Offsets:
    limited: Offsets = {}
    for one, end in ends.items():
        start = starts.get(one, end)
        share = max(0, end - start) * factor
        limited[one] = end if end <= start else min(end, start + (math.ceil(share) if share < 1 else math.floor(share)))
    return limited
