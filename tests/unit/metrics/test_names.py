"""Names of metrics, in Kafka's form and in that of JMX."""

from __future__ import annotations

import pytest

from barnabas.metrics.config import MetricConfig, Quota, RecordingLevel
from barnabas.metrics.names import MBeanName, MetricName, jmx_sanitize
from barnabas.metrics.units import TimeUnit


class TestMetricName:
    def test_group_name_and_tags_are_the_identity(self) -> None:
        name = MetricName("byte-rate", "Produce", {"user": "ann", "client-id": "c"}, "bytes a second")
        assert name == MetricName("byte-rate", "Produce", {"client-id": "c", "user": "ann"})
        assert hash(name) == hash(MetricName("byte-rate", "Produce", {"client-id": "c", "user": "ann"}))
        assert name != MetricName("byte-rate", "Fetch", {"user": "ann", "client-id": "c"})
        assert name != MetricName("throttle-time", "Produce", {"user": "ann", "client-id": "c"})
        assert name != MetricName("byte-rate", "Produce", {"user": "ann"})
        assert name != "byte-rate"

    def test_tags_are_copied_and_cannot_be_changed(self) -> None:
        tags = {"user": "ann"}
        name = MetricName("a", "b", tags)
        tags["user"] = "bob"
        assert name.tags == {"user": "ann"}
        with pytest.raises(TypeError):
            name.tags["user"] = "bob"  # type: ignore[index]

    def test_mbean_name_leaves_out_empty_tags(self) -> None:
        name = MetricName("byte-rate", "Produce", {"user": "", "client-id": "billing"})
        assert name.mbean_name("kafka.server") == "kafka.server:type=Produce,client-id=billing"


class TestMBeanName:
    def test_text(self) -> None:
        name = MBeanName("kafka.network", "RequestMetrics", "RequestsPerSec", {"request": "Produce", "version": "13"})
        assert str(name) == "kafka.network:type=RequestMetrics,name=RequestsPerSec,request=Produce,version=13"

    def test_the_text_is_the_identity(self) -> None:
        assert MBeanName("d", "t", "n", {"topic": ""}) == MBeanName("d", "t", "n")
        assert hash(MBeanName("d", "t", "n", {"topic": ""})) == hash(MBeanName("d", "t", "n"))
        assert MBeanName("d", "t", "n", {"topic": "x"}) != MBeanName("d", "t", "n")
        assert str(MBeanName("d", "t", "")) == "d:type=t"

    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            ("plain-1.2_3%20 tab\t", "plain-1.2_3%20 tab\t"),
            ("a=b", '"a=b"'),
            ("a,b:c", '"a,b:c"'),
            ('say "hi"', r'"say \"hi\""'),
            ("*?\\", r'"\*\?\\"'),
            ("two\nlines", r'"two\nlines"'),
            ("Grüße", '"Grüße"'),
        ],
    )
    def test_values_that_jmx_would_misread_are_quoted(self, value: str, shown: str) -> None:
        assert jmx_sanitize(value) == shown


class TestConfig:
    def test_defaults_are_kafkas(self) -> None:
        config = MetricConfig()
        assert (config.samples, config.window_ms, config.quota) == (2, 30_000, None)
        assert config.event_window == 2**63 - 1
        assert config.record_level is RecordingLevel.INFO

    def test_impossible_windows_are_refused(self) -> None:
        with pytest.raises(ValueError, match="samples must be at least 1: 0"):
            MetricConfig(samples=0)
        with pytest.raises(ValueError, match="window_ms must be at least 1: 0"):
            MetricConfig(window_ms=0)

    def test_with_quota_keeps_the_rest(self) -> None:
        config = MetricConfig(samples=11, window_ms=1_000, quota=Quota(1.0))
        assert config.with_quota(Quota(2.0)) == MetricConfig(samples=11, window_ms=1_000, quota=Quota(2.0))

    def test_recording_levels(self) -> None:
        levels = list(RecordingLevel)
        recorded = {(of.name, at.name) for of in levels for at in levels if of.should_record(at)}
        assert recorded == {
            ("INFO", "INFO"),
            ("INFO", "DEBUG"),
            ("DEBUG", "DEBUG"),
            ("INFO", "TRACE"),
            ("DEBUG", "TRACE"),
            ("TRACE", "TRACE"),
        }

    @pytest.mark.mechanism("Q01")
    def test_the_bound_of_a_quota_is_acceptable(self) -> None:
        assert [Quota(5.0).acceptable(value) for value in (4.9, 5.0, 5.1)] == [True, True, False]
        assert [Quota(5.0, upper=False).acceptable(value) for value in (4.9, 5.0, 5.1)] == [False, True, True]

    def test_time_units(self) -> None:
        assert TimeUnit.NANOSECONDS.from_milliseconds(3) == 3_000_000.0
        assert TimeUnit.MICROSECONDS.from_milliseconds(3) == 3_000.0
        assert TimeUnit.MILLISECONDS.from_milliseconds(3) == 3.0
        assert TimeUnit.SECONDS.from_milliseconds(1_500) == 1.5
        assert TimeUnit.MINUTES.from_milliseconds(90_000) == 1.5
        assert TimeUnit.HOURS.from_milliseconds(5_400_000) == 1.5
        assert TimeUnit.DAYS.from_milliseconds(43_200_000) == 0.5
