"""Settings that change while the broker runs: which count, which are refused, and who is told."""

from __future__ import annotations

import pytest

from barnabas.broker.config.dynamic_broker_config import (
    DynamicBrokerConfig,
    FunctionReconfigurable,
    override_properties,
)
from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.common.config_def import ConfigError
from unit.broker.config.configs import laptop, node


class Recorder(FunctionReconfigurable):
    """Remembers what it was told, and refuses what it is told to refuse."""

    def __init__(self, *configs: str, refuses: str | None = None) -> None:
        super().__init__(configs, self._changed, self._check)
        self.name = configs[0]
        self.changes: list[tuple[object, object]] = []
        self.validated: list[object] = []
        self.refuses = refuses
        self.fails = False

    def _check(self, current: KafkaConfig, new: KafkaConfig) -> None:
        self.validated.append(new.value(self.name))
        if self.refuses is not None:
            raise ConfigError(self.refuses)

    def _changed(self, old: KafkaConfig, new: KafkaConfig) -> None:
        self.changes.append((old.value(self.name), new.value(self.name)))
        if self.fails:
            raise RuntimeError("no")


def test_what_counts() -> None:
    dynamic = DynamicBrokerConfig(node(num_io_threads="3"))
    assert dynamic.current.num_io_threads == 3
    dynamic.update_default_config({"num.io.threads": "4"})
    assert dynamic.current.num_io_threads == 4
    dynamic.update_broker_config({"num.io.threads": "5"})
    assert dynamic.current.num_io_threads == 5
    dynamic.update_default_config({"num.io.threads": "6"})
    assert dynamic.current.num_io_threads == 5, "what is for this broker counts more"
    dynamic.update_broker_config({})
    assert dynamic.current.num_io_threads == 6
    dynamic.update_default_config({})
    assert dynamic.current.num_io_threads == 3
    assert dynamic.static_broker_configs["num.io.threads"] == "3"
    assert dynamic.static_default_configs["num.io.threads"] == "8"
    assert dynamic.static_default_configs["log.cleaner.io.max.bytes.per.second"] == "1.7976931348623157E308"


def test_a_dynamic_value_hides_other_names_of_the_setting() -> None:
    dynamic = DynamicBrokerConfig(node(log_roll_hours="5", log_retention_minutes="7"))
    assert dynamic.current.topic_defaults["segment.ms"] == 5 * 3_600_000
    dynamic.update_default_config({"log.roll.ms": "99", "log.retention.ms": "-1"})
    assert dynamic.current.topic_defaults["segment.ms"] == 99
    assert dynamic.current.topic_defaults["retention.ms"] == -1
    assert dynamic.current.properties.keys().isdisjoint({"log.roll.hours", "log.retention.minutes"})
    # Names that are not dynamic today were once, and may be in a log.
    properties = {"log.roll.ms": "5", "log.roll.jitter.hours": "1"}
    override_properties(properties, {"log.roll.hours": "1"})
    assert properties == {"log.roll.hours": "1", "log.roll.jitter.hours": "1"}
    dynamic.update_default_config({})
    assert dynamic.current.topic_defaults["retention.ms"] == 7 * 60_000


def test_who_is_told() -> None:
    dynamic = DynamicBrokerConfig(node())
    threads, connections = Recorder("num.io.threads"), Recorder("max.connections")
    dynamic.add_reconfigurable(threads)
    dynamic.add_reconfigurable(connections)
    dynamic.update_broker_config({"num.io.threads": "9"})
    dynamic.update_broker_config({"num.io.threads": "9"})
    dynamic.update_default_config({"num.io.threads": "7"})
    assert threads.changes == [(8, 9)], "told once, and not of what another value hides"
    assert connections.changes == []
    dynamic.update_broker_config({"num.io.threads": "9", "listener.name.plaintext.max.connections": "3"})
    assert len(connections.changes) == 1, "a listener's setting counts as the setting"
    assert dynamic.current.listener_value("PLAINTEXT", "max.connections") == 3


def test_the_new_configuration_is_in_force_when_they_are_told() -> None:
    dynamic = DynamicBrokerConfig(node())
    seen: list[int] = []
    dynamic.add_reconfigurable(
        FunctionReconfigurable({"num.io.threads"}, lambda _old, _new: seen.append(dynamic.current.num_io_threads))
    )
    dynamic.update_broker_config({"num.io.threads": "9"})
    assert seen == [9]


def test_one_that_fails_does_not_keep_others_from_it(caplog: pytest.LogCaptureFixture) -> None:
    dynamic = DynamicBrokerConfig(node())
    first, second = Recorder("num.io.threads"), Recorder("num.io.threads")
    first.fails = True
    dynamic.add_reconfigurable(first)
    dynamic.add_reconfigurable(second)
    dynamic.update_broker_config({"num.io.threads": "9"})
    assert second.changes == [(8, 9)]
    assert "could not be reconfigured" in caplog.text


def test_nobody_can_wait_for_what_never_changes() -> None:
    with pytest.raises(ValueError, match=r"log\.dirs"):
        DynamicBrokerConfig(node()).add_reconfigurable(Recorder("log.dirs"))


@pytest.mark.parametrize(
    ("name", "value", "per_broker", "message"),
    [
        ("log.dirs", "/a", True, "Cannot update these configs dynamically: log.dirs"),
        ("log.retention.hours", "1", False, "Cannot update these configs dynamically"),
        ("ssl.keystore.location", "/a", True, "only be updated for a listener"),
        ("num.io.threads", "0", True, "at least 1"),
        ("num.io.threads", "many", False, "an integer"),
        ("listener.name.plaintext.max.connections", "x", True, "an integer"),
        ("listeners", "PLAINTEXT://:1", False, "single broker"),
        ("listener.name.plaintext.log.retention.ms", "1", False, "single broker"),
        ("sasl.kerberos.min.time.before.relogin", "soon", True, "an integer"),
        ("sasl.kerberos.min.time.before.relogin", "58000", False, "single broker"),
        ("metric.reporters", "a.B", False, "does not support metrics reporters yet"),
        ("max.connections.per.ip.overrides", "h:x", False, "whole number"),
        ("log.retention.ms", "0", False, r"log\.retention\.ms"),
        ("log.cleaner.dedupe.buffer.size", "5", False, "more than 1 MiB"),
        ("leader.replication.throttled.rate", "-1", True, "at least 0"),
    ],
)
def test_proposals_that_are_refused(name: str, value: str, per_broker: bool, message: str) -> None:
    dynamic = DynamicBrokerConfig(node())
    with pytest.raises(ConfigError, match=message):
        dynamic.validate({name: value}, per_broker=per_broker)
    assert dynamic.current_dynamic_broker_configs == {}


@pytest.mark.parametrize(
    ("name", "value", "per_broker"),
    [
        ("num.io.threads", "9", True),
        ("num.io.threads", "9", False),
        ("listener.name.plaintext.max.connections", "9", False),
        ("my.plugin.colour", "red", False),
        ("leader.replication.throttled.rate", "5", True),
        ("cordoned.log.dirs", "data", True),
        ("listener.name.plaintext.ssl.keystore.location", "/k", True),
        ("sasl.kerberos.min.time.before.relogin", "58000", True),
        ("metric.reporters", "", False),
    ],
)
def test_proposals_that_are_fine(name: str, value: str, per_broker: bool) -> None:
    DynamicBrokerConfig(node()).validate({name: value}, per_broker=per_broker)


def test_reconfigurables_have_a_say_in_proposals() -> None:
    dynamic = DynamicBrokerConfig(node())
    recorder = Recorder("num.io.threads", refuses="too many")
    dynamic.add_reconfigurable(recorder)
    with pytest.raises(ConfigError, match="too many"):
        dynamic.validate({"num.io.threads": "9"}, per_broker=True)
    assert (recorder.validated, recorder.changes) == ([9], [])
    dynamic.validate({}, per_broker=True)
    assert recorder.validated == [9], "it is only asked about what would change"


def test_a_proposal_for_all_is_seen_through_what_this_broker_has() -> None:
    dynamic = DynamicBrokerConfig(node())
    dynamic.update_broker_config({"num.io.threads": "9"})
    recorder = Recorder("num.io.threads")
    dynamic.add_reconfigurable(recorder)
    dynamic.validate({"num.io.threads": "20"}, per_broker=False)
    assert recorder.validated == []
    dynamic.validate({"num.io.threads": "20"}, per_broker=True)
    assert recorder.validated == [20]


def test_bad_settings_in_the_metadata_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    dynamic = DynamicBrokerConfig(node())
    dynamic.update_broker_config(
        {
            "num.io.threads": "9",
            "max.connections": "x",
            "log.dirs": "/elsewhere",
            "ssl.key.password": "secret",
        }
    )
    assert dynamic.current.num_io_threads == 9
    assert set(dynamic.current_dynamic_broker_configs) == {"num.io.threads"}
    assert len(caplog.records) == 3
    assert "secret" not in caplog.text
    dynamic.update_default_config({"listeners": "PLAINTEXT://:1", "num.io.threads": "7"})
    assert set(dynamic.current_dynamic_default_configs) == {"num.io.threads"}


def test_settings_that_do_not_fit_together_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    dynamic = DynamicBrokerConfig(node())
    recorder = Recorder("max.connections.per.ip", "num.io.threads")
    dynamic.add_reconfigurable(recorder)
    dynamic.update_broker_config({"max.connections.per.ip": "0"})
    assert "Keeping the current settings" in caplog.text
    assert dynamic.current.value("max.connections.per.ip") > 0
    assert dynamic.current_dynamic_broker_configs == {"max.connections.per.ip": "0"}, "that is what is in the log"
    dynamic.update_default_config({"max.connections.per.ip.overrides": "127.0.0.1:5"})
    assert dynamic.current.value("max.connections.per.ip") == 0, "now they do"
    assert recorder.changes == [(2**31 - 1, 0)]


def test_settings_of_absent_features_wait_for_them(caplog: pytest.LogCaptureFixture) -> None:
    """They are kept, as Kafka keeps them, and change nothing; who sets them is told so in the log."""
    dynamic = DynamicBrokerConfig(node())
    before = dynamic.current
    recorder = Recorder("num.io.threads")
    dynamic.add_reconfigurable(recorder)
    dynamic.update_broker_config({"sasl.kerberos.min.time.before.relogin": "58000", "metric.reporters": "a.B"})
    assert dynamic.current_dynamic_broker_configs == {"sasl.kerberos.min.time.before.relogin": "58000"}
    assert dynamic.current is before
    assert recorder.changes == []
    assert (
        "sasl.kerberos.min.time.before.relogin has no effect: this broker does not support renewal of Kerberos"
        in caplog.text
    )
    assert "Ignoring the dynamic setting metric.reporters" in caplog.text
    dynamic.update_broker_config({"num.io.threads": "9", "listener.name.plaintext.ssl.key.password": "secret"})
    assert recorder.changes == [(8, 9)]
    assert "secret" not in caplog.text


def test_settings_of_absent_features_in_the_file_are_no_change() -> None:
    config = KafkaConfig.from_properties({**laptop().properties, "ssl.provider": "SunJSSE"}, warn=False)
    dynamic = DynamicBrokerConfig(config)
    dynamic.update_default_config({})
    assert dynamic.current is config
