"""The broker's metrics by name."""

from __future__ import annotations

import pytest

from barnabas.common.clock import MockClock
from barnabas.metrics.names import MBeanName
from barnabas.metrics.units import TimeUnit
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry


@pytest.fixture
def group() -> KafkaMetricsGroup:
    return KafkaMetricsGroup(MetricsRegistry(MockClock()), "kafka.server", "BrokerTopicMetrics")


class TestGroup:
    def test_metrics_are_found_under_their_jmx_names(self, group: KafkaMetricsGroup) -> None:
        made = {
            "Size": group.new_gauge("Size", lambda: 1),
            "BytesInPerSec": group.new_meter("BytesInPerSec", "bytes", TimeUnit.SECONDS),
            "IdlePercent": group.new_idle_meter("IdlePercent"),
            "Bytes": group.new_histogram("Bytes"),
            "FlushTimeMs": group.new_timer("FlushTimeMs"),
        }
        by_text = {str(name): metric for name, metric in group.registry.metrics.items()}
        assert by_text == {f"kafka.server:type=BrokerTopicMetrics,name={name}": metric for name, metric in made.items()}

    def test_who_asks_again_gets_the_same(self, group: KafkaMetricsGroup) -> None:
        meter = group.new_meter("BytesInPerSec", "bytes", tags={"topic": "t"})
        assert group.new_meter("BytesInPerSec", "bytes", tags={"topic": "t"}) is meter
        assert group.new_meter("BytesInPerSec", "bytes") is not meter
        gauge = group.new_gauge("Size", lambda: 1)
        assert group.new_gauge("Size", lambda: 2) is gauge
        assert gauge.value() == 1

    def test_a_name_has_one_kind(self, group: KafkaMetricsGroup) -> None:
        group.new_meter("BytesInPerSec", "bytes")
        with pytest.raises(ValueError, match="cannot be a Histogram: it is a Meter"):
            group.new_histogram("BytesInPerSec")

    def test_removed_ones_are_made_anew(self, group: KafkaMetricsGroup) -> None:
        meter = group.new_meter("BytesInPerSec", "bytes", tags={"topic": "t"})
        group.remove_metric("BytesInPerSec", {"topic": "t"})
        group.remove_metric("BytesInPerSec", {"topic": "t"})
        assert group.registry.metrics == {}
        assert group.new_meter("BytesInPerSec", "bytes", tags={"topic": "t"}) is not meter

    def test_a_set_is_registered_one_by_one_and_whole(self, group: KafkaMetricsGroup) -> None:
        names = ("LocalTimeMs", "TotalTimeMs")
        times = group.new_histogram_set(names, tags={"request": "Produce"}, divisor=1e6)
        times.update((1_500_000, 2_000_000), 0)
        for name, histogram in zip(names, times, strict=True):
            assert group.registry.get(group.metric_name(name, {"request": "Produce"})) is histogram
        with pytest.raises(ValueError, match="TotalTimeMs,request=Produce is already registered"):
            group.new_histogram_set(("Other", "TotalTimeMs"), tags={"request": "Produce"})
        assert (
            group.registry.get(MBeanName("kafka.server", "BrokerTopicMetrics", "Other", {"request": "Produce"})) is None
        )
