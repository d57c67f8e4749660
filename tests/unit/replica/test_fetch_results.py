"""The loops over all partitions of a fetch: what is compiled of them says what the others say."""

from __future__ import annotations

import random
from typing import Any

import pytest

from barnabas.common.errors import Errors
from barnabas.log.fetch_data_info import FetchDataInfo
from barnabas.log.leader_epoch_cache import EpochEndOffset
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.network.send import FileRegion
from barnabas.replica import _fetch_results_pure as pure
from barnabas.replica import fetch_results
from barnabas.replica.fetch_session import TopicIdPartition
from barnabas.replica.results import FetchPartitionData, LogReadResult
from unit.metadata.samples import uid

compiled: Any = pytest.importorskip("barnabas.replica._fetch_results", reason="not built")

Results = list[tuple[TopicIdPartition, LogReadResult]]


def some_results(chance: random.Random, unusual: float) -> Results:
    results: Results = []
    for number in range(chance.randrange(12)):
        topic = chance.choice([None, "", "a", "a", "b"])
        size = chance.choice([0, 0, 100, 5_000])
        strange = chance.random() < unusual
        result = LogReadResult(
            chance.choice(list(Errors)[:5]) if strange else Errors.NONE,
            FetchDataInfo(
                LogOffsetMetadata(number), FileRegion(7, 1, size) if size else b"", False, chance.choice([None, []])
            ),
            chance.randrange(100),
            chance.randrange(100),
            chance.randrange(100),
            chance.randrange(100),
            EpochEndOffset(1, 2) if strange and chance.random() < 0.5 else None,
            chance.choice([-1, 3]) if strange else -1,
        )
        results.append((TopicIdPartition(uid(1), topic, number), result))
    return results


@pytest.mark.parametrize("seed", range(60))
def test_they_say_the_same(seed: int) -> None:
    chance = random.Random(seed)
    results = some_results(chance, chance.choice([0.0, 0.3]))
    assert compiled.look_over(results) == pure.look_over(results)
    answers = compiled.answers_of(results)
    assert answers == pure.answers_of(results)
    assert all(type(data) is FetchPartitionData for _, data in answers)

    def may_omit(partition: TopicIdPartition, high_watermark: int, log_start_offset: int) -> bool:
        return (partition.partition + high_watermark + log_start_offset) % 2 == 0

    news = compiled.news_of(answers, may_omit)
    assert news == pure.news_of(answers, may_omit)
    assert compiled.bytes_by_topic(news) == pure.bytes_by_topic(news)


def test_what_is_found_is_counted() -> None:
    region, nothing = (
        FetchDataInfo(LogOffsetMetadata(0), FileRegion(7, 0, 50)),
        FetchDataInfo(LogOffsetMetadata(0), b""),
    )
    results: Results = [
        (TopicIdPartition(uid(number), topic, number), LogReadResult(Errors.NONE, info, 1, 0, 1, 1))
        for number, (topic, info) in enumerate([("a", region), ("a", nothing), ("b", region), ("a", region)])
    ]
    assert fetch_results.look_over(results) == (150, False, [("a", 2), ("b", 1), ("a", 1)])
    answers = fetch_results.answers_of(results)
    assert fetch_results.news_of(answers, lambda *_: True) == [answers[0], answers[2], answers[3]]
    assert fetch_results.bytes_by_topic(answers) == {"a": 100, "b": 50}
    late = results[1][1]._replace(error=Errors.OFFSET_OUT_OF_RANGE)
    assert fetch_results.look_over([(results[1][0], late)]) == (0, True, [("a", 1)])
    assert fetch_results.look_over([]) == (0, False, [])


def test_anything_else_is_refused() -> None:
    for function in (compiled.look_over, compiled.answers_of, compiled.bytes_by_topic):
        with pytest.raises(TypeError):
            function([(1, 2)])
    with pytest.raises(TypeError):
        compiled.news_of([(1, 2)], None)
