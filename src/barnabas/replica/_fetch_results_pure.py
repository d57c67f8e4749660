"""What is done with the result of every partition of every fetch: the twin of the compiled `_fetch_results`.

A fetch of a thousand partitions goes through these loops with each answer, and while it waits: how much there is to be
read, whether anything cannot wait, which partitions have something to be told, how many bytes go out of which topic.
They look at plain tuples, and decide nothing that is not said here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.replica.fetch_session import TopicIdPartition
from barnabas.replica.results import NO_REPLICA, FetchPartitionData, LogReadResult


def look_over(
    results: Sequence[tuple[TopicIdPartition, LogReadResult]],
) -> tuple[int, bool, list[tuple[str | None, int]]]:
    """How many bytes were found; whether there is anything that the reader has to hear at once; and how many partitions
    are those of which topic, where partitions of a topic that are in a row count together."""
    readable = 0
    urgent = False
    topics: list[tuple[str | None, int]] = []
    counted: str | None = None
    count = 0
    for (_, topic, _), result in results:
        if topic != counted:
            if count:
                topics.append((counted, count))
            counted, count = topic, 0
        count += 1
        error, info, _, _, _, _, diverging_epoch, preferred_read_replica = result
        if error or diverging_epoch is not None or preferred_read_replica != NO_REPLICA:
            urgent = True
        readable += len(info[1])
    if count:
        topics.append((counted, count))
    return readable, urgent, topics


def answers_of(
    results: Sequence[tuple[TopicIdPartition, LogReadResult]],
) -> list[tuple[TopicIdPartition, FetchPartitionData]]:
    """What a consumer is told of each."""
    return [(partition, result.to_fetch_partition_data(False)) for partition, result in results]


def news_of(
    results: Sequence[tuple[TopicIdPartition, FetchPartitionData]],
    may_omit: Callable[[TopicIdPartition, int, int], bool],
) -> list[tuple[TopicIdPartition, FetchPartitionData]]:
    """Those that have something in them, or of which the reader knows less than it should."""
    news: list[tuple[TopicIdPartition, FetchPartitionData]] = []
    for result in results:
        partition, data = result
        error, high_watermark, log_start_offset, records, diverging_epoch, _, _, preferred_replica, _ = data
        if (
            records
            or error
            or diverging_epoch is not None
            or preferred_replica != NO_REPLICA
            or not may_omit(partition, high_watermark, log_start_offset)
        ):
            news.append(result)
    return news


def bytes_by_topic(news: Sequence[tuple[TopicIdPartition, FetchPartitionData]]) -> dict[str, int]:
    """How many bytes of records go out of each topic that has any."""
    sizes: dict[str, int] = {}
    for (_, topic, _), data in news:
        if data[3]:
            name = topic or ""
            sizes[name] = sizes.get(name, 0) + len(data[3])
    return sizes
