"""What librdkafka's consumer is charged with, and what it is not: the time in which it does not ask."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks.peers import rdkafka_client

JOB = {"bootstrap": "", "topic": "t", "partitions": 1, "settings": {}, "records": 30}


class ScriptedConsumer:
    """Each call takes the time and brings the records that the script says."""

    def __init__(self, clock: list[float], script: list[tuple[float, int]]) -> None:
        self._clock = clock
        self._script = iter(script)

    def assign(self, _: object) -> None: ...

    def close(self) -> None: ...

    def consume(self, _count: int, _timeout: float) -> list[object]:
        seconds, records = next(self._script)
        self._clock[0] += seconds
        return [object()] * records


def consume(monkeypatch: pytest.MonkeyPatch, *scripts: list[tuple[float, int]], reads: int = 1) -> dict[str, Any]:
    clock = [100.0]
    consumers = iter(scripts)
    module = SimpleNamespace(
        Consumer=lambda _: ScriptedConsumer(clock, next(consumers)), TopicPartition=lambda *_: None
    )
    monkeypatch.setitem(sys.modules, "confluent_kafka", module)
    monkeypatch.setattr(rdkafka_client, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    return rdkafka_client.consume({**JOB, "reads": reads})


def test_the_first_records_start_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    found = consume(monkeypatch, [(3.0, 0), (1.0, 10), (1.0, 10), (1.0, 10)])
    assert found == {"rate": 30 / 6, "steady_rate": 20 / 2, "flowing_rate": 20 / 2}


def test_a_pause_is_in_one_rate_and_not_in_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    found = consume(monkeypatch, [(1.0, 10), (0.3, 0), (0.5, 0), (1.0, 20)])
    assert found["steady_rate"] == pytest.approx(20 / 1.8)
    assert found["flowing_rate"] == pytest.approx(20 / 1.0)


def test_a_broker_that_takes_its_time_is_no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    found = consume(monkeypatch, [(1.0, 10), (0.3, 0), (1.0, 10), (0.3, 0), (1.0, 10)])
    assert found["flowing_rate"] == found["steady_rate"] == pytest.approx(20 / 2.6)


def test_several_reads_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = [(1.0, 10), (1.0, 20)]
    slow = [(1.0, 10), (1.0, 0), (2.0, 20)]
    found = consume(monkeypatch, quick, slow, reads=2)
    assert found["rate"] == pytest.approx(60 / 6)
    assert found["steady_rate"] == pytest.approx(40 / 4)
    assert found["flowing_rate"] == pytest.approx(40 / 3)


def test_a_topic_with_too_little_in_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="10 of 30 records came"):
        consume(monkeypatch, [(1.0, 10), (31.0, 0)])
