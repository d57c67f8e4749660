"""The registry of sensors and metrics: get or make, remove, expire, report."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import pytest

from barnabas.common.clock import MockClock
from barnabas.metrics.config import MetricConfig
from barnabas.metrics.metric import KafkaMetric
from barnabas.metrics.names import MetricName
from barnabas.metrics.registry import Metrics
from barnabas.metrics.sensor import Sensor
from barnabas.metrics.stats import CumulativeSum, Rate, Value


class Recorder:
    """A reporter that writes down what it is told."""

    def __init__(self, failing: bool = False) -> None:
        self.told: list[str] = []
        self._failing = failing

    def init(self, metrics: Sequence[KafkaMetric]) -> None:
        self.told.append("init " + ",".join(metric.name.name for metric in metrics))

    def metric_change(self, metric: KafkaMetric) -> None:
        # Reading a value here is allowed: no sensor's lock is held.
        self._tell(f"+{metric.name.name}={metric.value()}")

    def metric_removal(self, metric: KafkaMetric) -> None:
        self._tell(f"-{metric.name.name}={metric.value()}")

    def close(self) -> None:
        self._tell("close")

    def _tell(self, what: str) -> None:
        self.told.append(what)
        if self._failing:
            raise RuntimeError("a reporter's own trouble")


@pytest.fixture
def clock() -> MockClock:
    return MockClock()


@pytest.fixture
def metrics(clock: MockClock) -> Metrics:
    return Metrics(clock=clock)


def names(metrics: Metrics) -> set[str]:
    return {name.name for name in metrics.metrics} - {"count"}


class TestSensors:
    def test_who_asks_first_makes_it(self, metrics: Metrics) -> None:
        assert metrics.get_sensor("a") is None
        sensor = metrics.sensor("a", inactive_sensor_expiration_seconds=1)
        assert metrics.sensor("a") is sensor
        assert metrics.get_sensor("a") is sensor
        assert metrics.sensors == {"a": sensor}

    def test_a_hundred_threads_get_the_same_one(self, metrics: Metrics) -> None:
        barrier = threading.Barrier(16)
        got: list[Sensor] = []

        def ask() -> None:
            barrier.wait()
            got.append(metrics.sensor("a"))

        threads = [threading.Thread(target=ask) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(got) == 16
        assert set(got) == {metrics.get_sensor("a")}

    def test_removing_takes_metrics_and_children_along(self, metrics: Metrics) -> None:
        parent = metrics.sensor("parent")
        child = metrics.sensor("child", parents=[parent])
        grandchild = metrics.sensor("grandchild", parents=[child])
        other = metrics.sensor("other")
        for sensor in (parent, child, grandchild, other):
            sensor.add(MetricName(sensor.name, "g"), Value())
        metrics.remove_sensor("parent")
        assert metrics.sensors == {"other": other}
        assert names(metrics) == {"other"}
        metrics.remove_sensor("parent")  # nothing to do

    def test_removing_a_child_leaves_its_parent(self, metrics: Metrics) -> None:
        parent = metrics.sensor("parent")
        metrics.sensor("child", parents=[parent])
        metrics.remove_sensor("child")
        again = metrics.sensor("child", parents=[parent])
        assert set(metrics.sensors) == {"parent", "child"}
        metrics.remove_sensor("parent")
        assert metrics.sensors == {}
        assert metrics.sensor("child") is not again

    def test_a_parent_forgets_a_child_that_was_removed(self, metrics: Metrics) -> None:
        parent = metrics.sensor("parent")
        metrics.sensor("child", parents=[parent])
        metrics.remove_sensor("child")
        orphan = metrics.sensor("child")
        metrics.remove_sensor("parent")
        assert metrics.sensors == {"child": orphan}


class TestExpiry:
    def test_idle_sensors_go_and_the_others_stay(self, metrics: Metrics, clock: MockClock) -> None:
        for name, seconds in [("idle", 60), ("busy", 60), ("patient", 3_600), ("eternal", None)]:
            sensor = metrics.sensor(name, inactive_sensor_expiration_seconds=seconds)
            sensor.add(MetricName(name, "g"), Value())
        clock.advance(60_000)
        metrics.sensor("busy").record()
        assert metrics.expire_inactive_sensors() == []
        clock.advance(1)
        assert metrics.expire_inactive_sensors() == ["idle"]
        assert set(metrics.sensors) == names(metrics) == {"busy", "patient", "eternal"}
        assert metrics.expire_inactive_sensors(clock.milliseconds() + 3_600_001) == ["busy", "patient"]

    def test_a_client_that_comes_back_starts_afresh(self, metrics: Metrics, clock: MockClock) -> None:
        for expected in (1.0, 1.0):
            sensor = metrics.sensor("client", inactive_sensor_expiration_seconds=60)
            sensor.add(MetricName("sum", "g"), CumulativeSum())
            sensor.record()
            metric = metrics.metric(MetricName("sum", "g"))
            assert metric is not None
            assert metric.value() == expected
            clock.advance(60_001)
            metrics.expire_inactive_sensors()


class TestMetrics:
    def test_the_registry_counts_itself(self, metrics: Metrics) -> None:
        count = metrics.metric(MetricName("count", "kafka-metrics-count"))
        assert count is not None
        assert count.value() == 1
        metrics.sensor("a").add(MetricName("rate", "g"), Rate())
        assert count.value() == 2

    def test_a_name_is_used_once(self, metrics: Metrics) -> None:
        name = MetricName("size", "g")
        first = metrics.add_metric(name, lambda _config, _now: 1)
        with pytest.raises(ValueError, match="already"):
            metrics.add_metric(name, lambda _config, _now: 2)
        assert first.value() == 1
        assert metrics.remove_metric(name) is first
        assert metrics.remove_metric(name) is None
        assert metrics.add_metric(name, lambda _config, _now: 3).value() == 3

    def test_a_gauge_gets_configuration_and_time(self, metrics: Metrics, clock: MockClock) -> None:
        metric = metrics.add_metric(MetricName("a", "g"), lambda config, now: (config.samples, now), MetricConfig(5))
        assert metric.value() == (5, clock.milliseconds())
        assert metric.value(17) == (5, 17)

    def test_tags_of_the_configuration_are_given_to_all_names(self, clock: MockClock) -> None:
        metrics = Metrics(MetricConfig(tags={"client-id": "c", "node": "1"}), clock=clock)
        name = metrics.metric_name("a", "g", {"node": "2"}, "text")
        assert name == MetricName("a", "g", {"client-id": "c", "node": "2"})
        assert name.description == "text"


class TestReporters:
    def test_a_reporter_hears_of_all_that_comes_and_goes(self, clock: MockClock) -> None:
        first = Recorder()
        with Metrics(reporters=[first], clock=clock) as metrics:
            sensor = metrics.sensor("a")
            sensor.add(MetricName("sum", "g"), CumulativeSum())
            sensor.record(3)
            late = Recorder()
            metrics.add_reporter(late)
            metrics.remove_sensor("a")
        assert first.told == ["init ", "+count=1.0", "+sum=0.0", "-sum=3.0", "close"]
        assert late.told == ["init count,sum", "-sum=3.0", "close"]

    def test_a_removed_reporter_is_closed_and_hears_no_more(self, metrics: Metrics) -> None:
        reporter = Recorder()
        metrics.add_reporter(reporter)
        metrics.remove_reporter(reporter)
        metrics.remove_reporter(reporter)
        metrics.add_metric(MetricName("a", "g"), Value())
        assert reporter.told == ["init count", "close"]
        assert metrics.reporters == []

    def test_a_failing_reporter_hurts_nobody_else(self, clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
        bad, good = Recorder(failing=True), Recorder()
        metrics = Metrics(reporters=[bad, good], clock=clock)
        metrics.add_metric(MetricName("a", "g"), Value())
        metrics.remove_metric(MetricName("a", "g"))
        with caplog.at_level(logging.ERROR):
            metrics.close()
        assert good.told == bad.told == ["init ", "+count=1.0", "+a=0.0", "-a=0.0", "close"]
        assert "a reporter's own trouble" in caplog.text
