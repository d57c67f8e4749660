"""Settings that restrict what ``/metrics`` shows."""

from __future__ import annotations

import pytest

from barnabas import EmbeddedBroker
from barnabas.clients.admin import KafkaAdminClient
from barnabas.clients.admin.topics import NewTopic
from barnabas.common.config_def import ConfigError
from barnabas.common.errors import InvalidConfigurationError
from barnabas.metrics.families import COUNTER, GAUGE, NO_LABELS, LabelSet, MetricFamily, MetricSelection, PatternFilter
from barnabas.metrics.prometheus import render, render_prometheus
from monitoring.scrape import Scrape

TWO_TOPICS = [NewTopic("orders", 1, 1), NewTopic("tmp.1", 1, 1)]


def scrape_of(**settings: str) -> Scrape:
    overrides = {"barnabas.http.listener": "127.0.0.1:0"}
    overrides |= {"barnabas.metrics." + name.replace("_", "."): value for name, value in settings.items()}
    with EmbeddedBroker(overrides=overrides) as broker:
        with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics(TWO_TOPICS)
        assert broker.server.http_address is not None
        return Scrape.of(broker.server.http_address)


def topics_in(scrape: Scrape, name: str) -> set[str]:
    return {sample.labels["topic"] for sample in scrape.samples.get(name, ())}


def test_partitions_of_some_topics_have_no_metrics_of_their_own() -> None:
    scrape = scrape_of(topics_exclude=r"tmp\..*")
    for name in ("kafka_log_log_size", "kafka_cluster_partition_underminisr", "kafka_topic_partitions"):
        assert topics_in(scrape, name) == {"orders"}
    assert scrape.samples["kafka_controller_kafkacontroller_globaltopiccount"][0].value == 2


def test_metrics_are_selected_by_name() -> None:
    scrape = scrape_of(include="kafka_log_.*, process_.*", exclude=".*_logstartoffset")
    assert {name.split("_")[0] for name in scrape.samples} == {"kafka", "process"}
    assert all(name.startswith(("kafka_log_", "process_")) for name in scrape.samples)
    assert topics_in(scrape, "kafka_log_log_logendoffset") == {"orders", "tmp.1"}
    assert "kafka_log_log_logstartoffset" not in scrape.samples


def test_a_pattern_that_is_none_stops_the_start() -> None:
    broker = EmbeddedBroker(overrides={"barnabas.metrics.topics.exclude": "a, (b"})
    with pytest.raises((ConfigError, InvalidConfigurationError), match=r"\(b.*not a regular expression"):
        broker.start()


class Fixed:
    """A source of two families."""

    def families(self, selection: MetricSelection) -> list[MetricFamily]:
        label = LabelSet({"topic": 'a"b'})
        return [
            MetricFamily.of("b", GAUGE, "Two.", [(label, 1.5)]),
            MetricFamily.of("a", COUNTER, "", [(NO_LABELS, 3)]),
        ]


def test_families_are_rendered_in_order_with_their_labels() -> None:
    text = '# HELP a \n# TYPE a counter\na 3\n# HELP b Two.\n# TYPE b gauge\nb{topic="a\\"b"} 1.5\n'
    assert render_prometheus(Fixed()) == text
    assert (
        render_prometheus(Fixed(), selection=MetricSelection(names=PatternFilter([".*"], ["b"])))
        == text[: text.index("# HELP b")]
    )
    assert render([]) == ""
