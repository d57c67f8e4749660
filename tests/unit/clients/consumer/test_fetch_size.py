"""How much of a partition is asked for: more of it while tables are read quickly."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.clients.consumer import KafkaConsumer
from barnabas.clients.consumer.internals.fetch_size import QUICK_MS, RESPONSE_BYTES, SLOW_MS, FetchSize
from barnabas.clients.consumer.testing import ConsumerCluster
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.api_keys import ApiKey

MIB = 1024 * 1024


def grown(size: FetchSize, partitions: int, answers: int = 10) -> int:
    for number in range(answers):
        size.responded(size.ask(partitions), number * QUICK_MS)
    return size.ask(partitions)


@pytest.mark.parametrize(("partitions", "expected"), [(1, 8), (2, 4), (3, 4), (6, 2), (7, 1), (1000, 1)])
def test_grows_to_what_fits_into_a_response(partitions: int, expected: int) -> None:
    assert grown(FetchSize(MIB, 50 * MIB), partitions) == expected * MIB
    assert expected == 1 or expected * partitions * MIB <= RESPONSE_BYTES


def test_no_response_exceeds_the_setting_for_it() -> None:
    assert grown(FetchSize(MIB, 5 * MIB), 1) == 4 * MIB
    assert grown(FetchSize(MIB, 1000), 1) == MIB


def test_becomes_smaller_when_partitions_come_along() -> None:
    size = FetchSize(MIB, 50 * MIB)
    assert grown(size, 1) == 8 * MIB
    assert size.ask(6) == 2 * MIB
    assert size.ask(50) == MIB


def test_becomes_smaller_when_responses_are_slow() -> None:
    size = FetchSize(MIB, 50 * MIB)
    assert grown(size, 1, answers=4) == 8 * MIB
    now = 3 * QUICK_MS
    steps = [(QUICK_MS + 1, 8), (SLOW_MS - 1, 8), (SLOW_MS, 4), (SLOW_MS, 2), (SLOW_MS, 1), (SLOW_MS, 1)]
    for passed_ms, expected in steps:
        now += passed_ms
        size.responded(size.ask(1), now)
        assert size.ask(1) == expected * MIB


def test_responses_that_are_not_full_say_nothing() -> None:
    size = FetchSize(MIB, 50 * MIB)
    for number in range(10):
        size.responded(size.ask(1) // 2, number)
    assert size.ask(1) == MIB
    assert grown(size, 1, answers=2) == 4 * MIB
    size.responded(100, 10_000)
    assert size.ask(1) == 4 * MIB


def asked_for(read: str, **settings: Any) -> list[int]:
    cluster = ConsumerCluster({"t": 1})
    for _ in range(12):
        cluster.append("t", 0, [bytes(700_000)])
    consumer: KafkaConsumer = cluster.consumer(auto_offset_reset="earliest", **settings)
    consumer.assign([TopicPartition("t", 0)])
    found = 0
    while found < 12:
        found += len(cluster.run(consumer, lambda: getattr(consumer, read)(1000)))
    return [
        row.partition_max_bytes
        for request in cluster.requests(ApiKey.FETCH)
        for topic in request.topics
        for row in topic.partitions
    ]


def test_tables_are_fetched_in_larger_and_larger_responses() -> None:
    asked = asked_for("poll_table")
    assert asked[0] == MIB
    assert sorted(asked) == asked
    assert asked[-1] > MIB


def test_records_are_fetched_as_the_setting_says() -> None:
    assert set(asked_for("poll")) == {MIB}


def test_a_setting_that_was_given_is_kept_to() -> None:
    assert set(asked_for("poll_table", max_partition_fetch_bytes=MIB)) == {MIB}
