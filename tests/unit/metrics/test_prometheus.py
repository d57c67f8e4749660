"""The page for Prometheus: the names of dashboards, and a format without faults."""

from __future__ import annotations

import errno
import logging
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.clock import MockClock
from barnabas.metrics.config import MetricConfig
from barnabas.metrics.families import COUNTER, NO_LABELS, MetricFamily, MetricSelection
from barnabas.metrics.names import MetricName
from barnabas.metrics.prometheus import CONTENT_TYPE, render_prometheus
from barnabas.metrics.registry import Metrics
from barnabas.metrics.stats import CumulativeSum, Rate, Value
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
SUFFIXES = {"summary": ("", "_sum", "_count"), "gauge": ("",), "counter": ("",), "untyped": ("", "_sum", "_count")}


@dataclass
class Family:
    type: str
    help: str
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = field(default_factory=dict)


def parse(text: str) -> dict[str, Family]:
    """Reads text format 0.0.4 and fails at anything that the format does not allow."""
    families: dict[str, Family] = {}
    seen: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    current = ""
    assert text == "" or text.endswith("\n")
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP "):
            _, _, current, help_text = line.split(" ", 3)
            assert NAME.fullmatch(current)
            assert current not in families, f"{current} is in two places"
            assert re.fullmatch(r"(?:[^\\]|\\[\\n])*", help_text)
            families[current] = Family("", re.sub(r"\\[\\n]", lambda match: ESCAPES[match[0]], help_text))
            continue
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current
            assert not families[current].type
            assert kind in SUFFIXES
            families[current].type = kind
            continue
        head, _, number = line.rpartition(" ")
        name_match = NAME.match(head)
        assert name_match, line
        labels: dict[str, str] = {}
        rest = head[name_match.end() :]
        if rest:
            assert rest[0] == "{", line
            assert rest[-1] == "}", line
            position = 1
            while position < len(rest) - 1:
                label = LABEL.match(rest, position)
                assert label, line
                assert label[1] not in labels, line
                labels[label[1]] = re.sub(r'\\["\\n]', lambda match: ESCAPES[match[0]], label[2])
                position = label.end()
                assert rest[position] in ",}", line
                position += rest[position] == ","
        family = families[current]
        assert name_match[0] in {current + suffix for suffix in SUFFIXES[family.type]}, line
        key = (name_match[0], frozenset(labels.items()))
        assert key not in seen, f"{line} is there twice"
        seen.add(key)
        assert number in {"NaN", "+Inf", "-Inf"} or re.fullmatch(r"-?\d+(\.\d+)?(e[+-]?\d+)?", number), line
        family.samples[key] = float(number)
    return families


def sample(text: str, name: str, **labels: str) -> float:
    key = (name, frozenset(labels.items()))
    return next(family.samples[key] for family in parse(text).values() if key in family.samples)


@pytest.fixture
def clock() -> MockClock:
    return MockClock()


@pytest.fixture
def registry(clock: MockClock) -> MetricsRegistry:
    return MetricsRegistry(clock)


class TestNames:
    def test_histograms_are_summaries(self, registry: MetricsRegistry) -> None:
        group = KafkaMetricsGroup(registry, "kafka.network", "RequestMetrics")
        for request, factor in [("Produce", 1), ("FetchConsumer", 2)]:
            histogram = group.new_histogram("TotalTimeMs", tags={"request": request})
            histogram.update_many(value * factor for value in range(1, 101))
        text = render_prometheus(registry)
        family = parse(text)["kafka_network_requestmetrics_totaltimems"]
        assert family.type == "summary"
        assert family.help == "kafka.network:type=RequestMetrics,name=TotalTimeMs"
        assert len(family.samples) == 2 * 8
        quantiles = {"0.50": 50.0, "0.75": 75.0, "0.95": 95.0, "0.98": 98.0, "0.99": 99.0, "0.999": 100.0}
        for quantile, value in quantiles.items():
            name = "kafka_network_requestmetrics_totaltimems"
            assert sample(text, name, request="Produce", quantile=quantile) == value
            assert sample(text, name, request="FetchConsumer", quantile=quantile) == 2 * value
        assert sample(text, "kafka_network_requestmetrics_totaltimems_count", request="Produce") == 100
        assert sample(text, "kafka_network_requestmetrics_totaltimems_sum", request="Produce") == 5_050

    def test_per_second_meters_are_counters(self, registry: MetricsRegistry) -> None:
        group = KafkaMetricsGroup(registry, "kafka.server", "BrokerTopicMetrics")
        group.new_meter("BytesInPerSec", "bytes").mark(10)
        group.new_meter("BytesInPerSec", "bytes", tags={"topic": "t"}).mark(3)
        group.new_meter("Odd", "events").mark(2)
        text = render_prometheus(registry)
        assert parse(text)["kafka_server_brokertopicmetrics_bytesin_total"].type == "counter"
        assert sample(text, "kafka_server_brokertopicmetrics_bytesin_total") == 10
        assert sample(text, "kafka_server_brokertopicmetrics_bytesin_total", topic="t") == 3
        assert sample(text, "kafka_server_brokertopicmetrics_odd_count") == 2

    def test_percentages_are_gauges_of_the_last_minute(self, registry: MetricsRegistry, clock: MockClock) -> None:
        pool = KafkaMetricsGroup(registry, "kafka.server", "KafkaRequestHandlerPool")
        idle = pool.new_idle_meter("RequestHandlerAvgIdlePercent")
        KafkaMetricsGroup(registry, "kafka.network", "SocketServer").new_gauge(
            "NetworkProcessorAvgIdlePercent", lambda: 0.25
        )
        KafkaMetricsGroup(registry, "kafka.network", "Acceptor").new_idle_meter(
            "AcceptorBlockedPercent", "blocked time", {"listener": "PLAINTEXT"}
        )
        clock.advance(3_600_000)  # an hour in which nothing was idle, then five seconds of half
        assert idle.one_minute_rate == 0
        idle.waited(2_500_000_000)
        clock.advance(5_000)
        text = render_prometheus(registry)
        name = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"
        assert parse(text)[name].type == "gauge"
        assert sample(text, name) == pytest.approx(0.5 * (1 - math.exp(-5 / 60)))
        assert sample(text, "kafka_network_socketserver_networkprocessoravgidle_percent") == 0.25
        assert sample(text, "kafka_network_acceptor_acceptorblocked_percent", listener="PLAINTEXT") == 0

    def test_gauges_and_timers(self, registry: MetricsRegistry) -> None:
        group = KafkaMetricsGroup(registry, "kafka.log", "LogFlushStats")
        group.new_gauge("Size", lambda: 5)
        group.new_gauge("Dirty", lambda: True)
        group.new_timer("LogFlushRateAndTimeMs").update(3_000_000)
        text = render_prometheus(registry)
        assert sample(text, "kafka_log_logflushstats_size") == 5
        assert sample(text, "kafka_log_logflushstats_dirty") == 1
        assert sample(text, "kafka_log_logflushstats_logflushrateandtimems", quantile="0.99") == 3
        assert sample(text, "kafka_log_logflushstats_logflushrateandtimems_count") == 1

    def test_sensors(self, clock: MockClock) -> None:
        metrics = Metrics(MetricConfig(samples=11, window_ms=1_000), clock=clock)
        sensor = metrics.sensor("produce")
        for tags in [{"user": "ann", "client-id": "c"}, {"user": "", "client-id": "c"}, {"user": "ann"}]:
            sensor.add(MetricName("byte-rate", "Produce", tags, "bytes a second"), Rate())
        tags = {"listener": "PLAINTEXT", "networkProcessor": "0"}
        sensor.add(MetricName("connection-count", "socket-server-metrics", tags), CumulativeSum())
        sensor.record(100)
        text = render_prometheus(metrics)
        name = "kafka_server_quota_byte_rate"
        assert parse(text)[name].help == "bytes a second"
        assert sample(text, name, resource="Produce", user="ann", clientId="c") == 10
        assert sample(text, name, resource="Produce", clientId="c") == 10
        assert sample(text, name, resource="Produce", user="ann") == 10
        name = "kafka_server_socket_server_metrics_connection_count"
        assert sample(text, name, listener="PLAINTEXT", networkProcessor="0") == 100

    def test_several_registries_make_one_page(self, registry: MetricsRegistry, clock: MockClock) -> None:
        KafkaMetricsGroup(registry, "kafka.server", "A").new_gauge("B", lambda: 1)
        page = parse(render_prometheus(registry, Metrics(clock=clock)))
        assert set(page) == {"kafka_server_a_b", "kafka_server_kafka_metrics_count_count"}
        assert parse(render_prometheus()) == {}
        assert "version=0.0.4" in CONTENT_TYPE


class TestFormat:
    def test_values_that_are_not_finite(self, registry: MetricsRegistry) -> None:
        group = KafkaMetricsGroup(registry, "kafka.server", "T")
        for name, value in [
            ("Nan", math.nan),
            ("Up", math.inf),
            ("Down", -math.inf),
            ("Tiny", 1e-30),
            ("Huge", 10**25),
        ]:
            group.new_gauge(name, lambda value=value: value)  # type: ignore[misc]
        text = render_prometheus(registry)
        assert "kafka_server_t_nan NaN\n" in text
        assert "kafka_server_t_up +Inf\n" in text
        assert "kafka_server_t_down -Inf\n" in text
        assert sample(text, "kafka_server_t_tiny") == 1e-30
        assert sample(text, "kafka_server_t_huge") == 1e25

    def test_what_is_not_a_number_or_fails_is_left_out(
        self, registry: MetricsRegistry, caplog: pytest.LogCaptureFixture
    ) -> None:
        def broken() -> int:
            raise RuntimeError("the log directory is gone")

        group = KafkaMetricsGroup(registry, "kafka.server", "app-info")
        group.new_gauge("version", lambda: "4.4.0")
        group.new_gauge("nothing", lambda: None)
        group.new_gauge("broken", broken)
        group.new_gauge("start-time-ms", lambda: 17)
        with caplog.at_level(logging.WARNING):
            page = parse(render_prometheus(registry))
        assert set(page) == {"kafka_server_app_info_start_time_ms"}
        assert "kafka.server:type=app-info,name=broken" in caplog.text
        assert "the log directory is gone" in caplog.text

    def test_a_source_that_fails_does_not_spoil_the_page(
        self, registry: MetricsRegistry, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Without file descriptors, for example, the process cannot count its open files."""

        class Process:
            def families(self, _selection: MetricSelection) -> Iterator[MetricFamily]:
                yield MetricFamily.of("process_cpu_seconds_total", COUNTER, "", [(NO_LABELS, 5)])
                raise OSError(errno.EMFILE, "Too many open files")

        KafkaMetricsGroup(registry, "kafka.server", "T").new_gauge("up", lambda: 1)
        with caplog.at_level(logging.WARNING):
            page = parse(render_prometheus(Process(), registry))
        assert set(page) == {"process_cpu_seconds_total", "kafka_server_t_up"}
        assert "Too many open files" in caplog.text

    def test_names_that_fall_together_do_not_spoil_the_page(self, registry: MetricsRegistry) -> None:
        group = KafkaMetricsGroup(registry, "kafka.server", "T")
        group.new_gauge("queue-size", lambda: 1)
        group.new_gauge("queue.size", lambda: 2)
        group.new_gauge("Time_count", lambda: 3)
        group.new_histogram("Time")
        group.new_histogram("mixed", tags={"a": "1"})
        group.new_gauge("Mixed", lambda: 4)
        text = render_prometheus(registry)
        page = parse(text)
        assert sample(text, "kafka_server_t_queue_size") == 1
        assert sample(text, "kafka_server_t_time_count") == 3
        assert page["kafka_server_t_mixed"].type == "untyped"

    def test_label_names_are_made_legal(self, clock: MockClock) -> None:
        metrics = Metrics(clock=clock)
        metrics.add_metric(MetricName("m", "g", {"broker-id": "1", "2nd": "x", "": "y", "none": ""}), Value())
        assert sample(render_prometheus(metrics), "kafka_server_g_m", broker_id="1", _2nd="x") == 0

    @given(value=st.text(min_size=1), text=st.text())
    def test_any_text_survives(self, value: str, text: str) -> None:
        metrics = Metrics(clock=MockClock())
        metrics.add_metric(MetricName("m", "g", {"client-id": value, "node": "1"}, text), Value())
        page = parse(render_prometheus(metrics))
        assert page["kafka_server_g_m"].help == (text or "m of kafka.server:type=g")
        assert sample(render_prometheus(metrics), "kafka_server_g_m", client_id=value, node="1") == 0
