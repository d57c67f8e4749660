"""What a producer has sent, as its metrics tell it."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.clients.producer.internals.producer_batch import ProducerBatch
from barnabas.clients.producer.internals.producer_metrics import SenderMetrics
from barnabas.common.clock import MockClock
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.registry import Metrics


def batch(topic: str, records: int, size: int, waited_ms: int, largest: int, ratio: float) -> ProducerBatch:
    """As much of one as the metrics look at."""
    made = SimpleNamespace(
        topic_partition=TopicPartition(topic, 0),
        builder=SimpleNamespace(record_count=records, max_record_size=largest),
        estimated_size_in_bytes=size,
        created_ms=1_000,
        drained_ms=1_000 + waited_ms,
        compression_ratio=ratio,
    )
    return cast("ProducerBatch", made)


class OneByOne:
    """Records everything at once, value by value: what the notes have to come to."""

    def __init__(self, metrics: Metrics, *, compresses: bool) -> None:
        self._made = SenderMetrics(metrics, compresses=compresses)

    def send(self, batches: dict[int, list[ProducerBatch]], now_ms: int) -> None:
        made = self._made
        for of_node in batches.values():
            for sent in of_node:
                topic = made._topic(sent.topic_partition.topic)
                made.batch_size.record_unchecked(sent.estimated_size_in_bytes, now_ms)
                made.queue_time.record_unchecked(sent.drained_ms - sent.created_ms, now_ms)
                made.record_size.record_unchecked(sent.builder.max_record_size, now_ms)
                made.compression_rate.record_unchecked(sent.compression_ratio, now_ms)
                topic.records.record_unchecked(sent.builder.record_count, now_ms)
                topic.bytes.record_unchecked(sent.estimated_size_in_bytes, now_ms)
                topic.compression_rate.record_unchecked(sent.compression_ratio, now_ms)
            if of_node:
                made.records_per_request.record_unchecked(sum(sent.builder.record_count for sent in of_node), now_ms)

    def answer(self, node: str, latency_ms: int, now_ms: int) -> None:
        made = self._made
        made.request_time.record_unchecked(latency_ms, now_ms)
        (made._latencies.get(node) or made._register_node(node)).record_unchecked(latency_ms, now_ms)


def values(metrics: Metrics) -> dict[Any, Any]:
    return {
        (name.name, name.group, tuple(sorted(name.tags.items()))): metric.value()
        for name, metric in metrics.metrics.items()
        if not name.name.endswith("-rate")  # those depend on when in a tenth of a second a value came
    }


@pytest.mark.parametrize("compresses", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_notes_come_to_what_one_value_after_the_other_would(seed: int, compresses: bool) -> None:
    random = Random(seed)
    clock = MockClock()
    noted_metrics, plain_metrics = Metrics(clock=clock), Metrics(clock=clock)
    noted = SenderMetrics(noted_metrics, compresses=compresses)
    plain = OneByOne(plain_metrics, compresses=compresses)
    for _ in range(random.randrange(1, 60)):
        now = clock.milliseconds()
        if random.random() < 0.6:
            batches = {
                node: [
                    batch(
                        random.choice(["t", "u"]),
                        random.randrange(1, 9),
                        random.randrange(100, 2_000),
                        random.randrange(50),
                        random.randrange(10, 90),
                        random.random() if compresses else 1.0,
                    )
                    for _ in range(random.randrange(4))
                ]
                for node in range(random.randrange(1, 3))
            }
            noted.update_produce_request_metrics(batches, clock.hi_res_milliseconds())
            plain.send(batches, now)
        else:
            node, latency_ms = random.choice("12"), random.randrange(300)
            noted.record_latency(node, latency_ms, clock.hi_res_milliseconds())
            plain.answer(node, latency_ms, now)
        if random.random() < 0.2:
            assert values(noted_metrics) == pytest.approx(values(plain_metrics), nan_ok=True)
        clock.advance(random.choice([0, 1, 40, 150]))
    assert values(noted_metrics) == pytest.approx(values(plain_metrics), nan_ok=True)


def test_each_metric_alone_sees_what_was_noted() -> None:
    clock = MockClock()
    names = {}
    for looked_at in range(60):
        metrics = Metrics(clock=clock)
        noted = SenderMetrics(metrics)
        noted.update_produce_request_metrics({1: [batch("t", 3, 500, 7, 90, 1.0)]}, clock.hi_res_milliseconds())
        noted.record_latency("1", 11, clock.hi_res_milliseconds())
        told = list(metrics.metrics.values())
        if looked_at >= len(told):
            break
        metric = told[looked_at]
        names[metric.name.name, metric.name.group] = metric.value()
    assert names["record-send-total", "producer-topic-metrics"] == 3
    assert names["byte-total", "producer-topic-metrics"] == 500
    assert names["compression-rate", "producer-topic-metrics"] == 1
    assert names["batch-size-avg", "producer-metrics"] == names["batch-size-max", "producer-metrics"] == 500
    assert names["record-queue-time-max", "producer-metrics"] == 7
    assert names["record-size-avg", "producer-metrics"] == 90
    assert names["records-per-request-avg", "producer-metrics"] == names["record-send-total", "producer-metrics"] == 3
    assert names["request-latency-avg", "producer-metrics"] == names["request-latency-max", "producer-metrics"] == 11
    assert names["request-latency-avg", "producer-node-metrics"] == 11


def test_a_window_that_has_ended_gets_nothing_of_what_comes_after_it() -> None:
    """Notes of another time are not recorded with the first ones."""
    clock = MockClock()
    metrics = Metrics(clock=clock)
    noted = SenderMetrics(metrics)
    noted.record_latency("1", 1_000, clock.hi_res_milliseconds())
    clock.advance(3_600_000)
    noted.record_latency("1", 1, clock.hi_res_milliseconds())
    (latest,) = [
        m for n, m in metrics.metrics.items() if (n.name, n.group) == ("request-latency-max", "producer-metrics")
    ]
    assert latest.value() == 1
