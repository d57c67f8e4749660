"""The parts of a broker that change with its settings, each with the real thing behind it where that is cheap."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.broker.config.dynamic_broker_config import DynamicBrokerConfig
from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.config.reconfigurables import (
    DynamicConnectionLimits,
    DynamicListeners,
    DynamicLogCleaner,
    DynamicLogConfig,
    DynamicNetworkThreads,
    DynamicProducerStates,
    DynamicThreadPool,
)
from barnabas.common.clock import MockClock
from barnabas.common.config_def import ConfigError
from barnabas.log.cleaner.cleaner_config import CleanerConfig
from barnabas.log.producers.producer_states import ProducerStateManagerConfig
from barnabas.metrics.registry import Metrics
from barnabas.network.server.connection_quotas import ConnectionQuotas
from barnabas.network.server.endpoint import Endpoint
from unit.broker.config.configs import node


def test_thread_pools(caplog: pytest.LogCaptureFixture) -> None:
    sizes: list[int] = []
    dynamic = DynamicBrokerConfig(node(num_io_threads="4"))
    dynamic.add_reconfigurable(DynamicThreadPool({"num.io.threads": sizes.append}))
    for size in ("2", "8"):
        dynamic.validate({"num.io.threads": size}, per_broker=True)
    for size in ("1", "9"):
        with pytest.raises(ConfigError, match=rf"num.io.threads={size} is rejected: .* current value of 4"):
            dynamic.validate({"num.io.threads": size}, per_broker=True)
    dynamic.update_broker_config({"num.io.threads": "6"})
    dynamic.update_broker_config({"num.io.threads": "100"})
    assert sizes == [6], "a step that is too large is not taken, however it got into the metadata"
    caplog.clear()
    dynamic.update_broker_config({"num.io.threads": "6", "background.threads": "11"})
    assert sizes == [6]
    assert "background.threads will be 11 after the next restart" in caplog.text


def test_network_threads() -> None:
    resized: list[tuple[str, int]] = []
    dynamic = DynamicBrokerConfig(node(num_network_threads="2"))
    dynamic.add_reconfigurable(
        DynamicNetworkThreads(lambda listener, count: resized.append((listener, count)), lambda: ["A", "B"])
    )
    dynamic.update_default_config({"num.network.threads": "3", "listener.name.a.num.network.threads": "4"})
    assert resized == [("A", 4), ("B", 3)]
    dynamic.update_default_config({"num.network.threads": "3"})
    assert resized[2:] == [("A", 3)]
    for count in (1, 7):
        with pytest.raises(ConfigError, match=rf"num\.network\.threads={count} is rejected"):
            dynamic.validate({"listener.name.b.num.network.threads": str(count)}, per_broker=False)


def test_connection_limits() -> None:
    config = node()
    clock = MockClock()
    quotas = ConnectionQuotas(config.socket_server().limits, clock, Metrics(clock=clock))
    quotas.add_listener("PLAINTEXT")
    quotas.add_listener("CONTROLLER")
    dynamic = DynamicBrokerConfig(config)
    dynamic.add_reconfigurable(DynamicConnectionLimits(quotas))
    quotas.inc("PLAINTEXT", "10.0.0.1")
    dynamic.update_default_config({"max.connections.per.ip": "1", "max.connections.per.ip.overrides": "10.0.0.2:2"})
    with pytest.raises(Exception, match=r"10\.0\.0\.1"):
        quotas.inc("PLAINTEXT", "10.0.0.1")
    quotas.inc("PLAINTEXT", "10.0.0.2")
    quotas.inc("PLAINTEXT", "10.0.0.2")
    assert not quotas.max_connections_exceeded("CONTROLLER")
    dynamic.update_default_config({"max.connections": "2"})
    assert quotas.max_connections_exceeded("CONTROLLER"), "three connections, and two may be"
    dynamic.update_default_config({"listener.name.controller.max.connections": "0"})
    assert not quotas.max_connections_exceeded("CONTROLLER")
    dynamic.update_default_config({})
    for _ in range(5):
        quotas.inc("PLAINTEXT", "10.0.0.1")


def test_connection_limits_of_a_listener_that_is_not_open() -> None:
    """They are given before it is added, and withdrawn after it was removed."""
    config = node(listener_security_protocol_map=PROTOCOLS)
    clock = MockClock()
    quotas = ConnectionQuotas(config.socket_server().limits, clock, Metrics(clock=clock))
    dynamic = DynamicBrokerConfig(config)
    dynamic.add_reconfigurable(DynamicConnectionLimits(quotas))
    quotas.add_listener("LATE")
    late, limit = {"listeners": f"{LISTENERS},LATE://:9094"}, {"listener.name.late.max.connections": "1"}
    quotas.inc("LATE", "10.0.0.1")
    has_room = []
    for settings in (limit, late | limit, limit, {}, late):
        dynamic.update_broker_config(settings)
        with quotas._counts_lock:
            has_room.append(quotas._slot_available("LATE"))
    assert has_room == [False, False, False, True, True]


class Logs:
    def __init__(self) -> None:
        self.defaults: list[dict[str, object]] = []

    def topic_defaults_changed(self, topic_defaults: object) -> None:
        assert hasattr(topic_defaults, "items")
        self.defaults.append(dict(topic_defaults.items()))

    def topic_config_changed(self, topic: str) -> None: ...


def test_topic_defaults() -> None:
    logs = Logs()
    dynamic = DynamicBrokerConfig(node())
    dynamic.add_reconfigurable(DynamicLogConfig(logs))
    dynamic.update_default_config({"message.max.bytes": "99", "log.retention.ms": "5"})
    (defaults,) = logs.defaults
    assert (defaults["max.message.bytes"], defaults["retention.ms"]) == (99, 5)
    dynamic.update_default_config({})
    assert logs.defaults[1]["max.message.bytes"] == 1048588
    with pytest.raises(Exception, match="compaction"):
        dynamic.validate(
            {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "5"}, per_broker=False
        )


class Cleaner:
    def __init__(self) -> None:
        self.configs: list[CleanerConfig] = []

    def validate_reconfiguration(self, new: CleanerConfig) -> None:
        if new.num_threads > 2:
            raise ConfigError("too many")

    def reconfigure(self, new: CleanerConfig) -> None:
        self.configs.append(new)


def test_cleaner() -> None:
    cleaner = Cleaner()
    dynamic = DynamicBrokerConfig(node())
    dynamic.add_reconfigurable(DynamicLogCleaner(cleaner))  # type: ignore[arg-type]
    dynamic.update_default_config({"log.cleaner.threads": "2"})
    assert [config.num_threads for config in cleaner.configs] == [2]
    with pytest.raises(ConfigError, match="too many"):
        dynamic.validate({"log.cleaner.threads": "3"}, per_broker=False)


def test_producer_states() -> None:
    shared = ProducerStateManagerConfig()
    dynamic = DynamicBrokerConfig(node())
    dynamic.add_reconfigurable(DynamicProducerStates(shared))
    dynamic.update_default_config(
        {"producer.id.expiration.ms": "5", "transaction.partition.verification.enable": "false"}
    )
    assert (shared.producer_id_expiration_ms, shared.transaction_verification_enabled) == (5, False)


class Host:
    """Records what becomes of listeners."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []

    def validate(self, _new: KafkaConfig) -> None: ...

    def validate_new(self, _new: KafkaConfig, endpoints: Sequence[Endpoint]) -> None:
        if any(endpoint.port == 1 for endpoint in endpoints):
            raise ConfigError("the port is in use")

    def reconfigure(self, _new: KafkaConfig) -> None:
        self.calls.append(("security", None))

    def open_listeners(self, _new: KafkaConfig, endpoints: Sequence[Endpoint]) -> None:
        self.calls.append(("open", [endpoint.listener_name for endpoint in endpoints]))
        if any(endpoint.port == 2 for endpoint in endpoints):
            raise OSError("cannot open it after all")

    def advertise(self, new: KafkaConfig) -> None:
        self.calls.append(("advertise", [endpoint.listener_name for endpoint in new.advertised_listeners]))

    def close_listeners(self, names: Sequence[str]) -> None:
        self.calls.append(("close", list(names)))


LISTENERS = "PLAINTEXT://:9092,CONTROLLER://127.0.0.1:9093"
PROTOCOLS = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LATE:PLAINTEXT"


def test_listeners_are_advertised_after_they_are_opened_and_before_they_are_closed() -> None:
    host = Host()
    dynamic = DynamicBrokerConfig(node(listener_security_protocol_map=PROTOCOLS))
    dynamic.add_reconfigurable(DynamicListeners(host))
    dynamic.update_broker_config({"listeners": f"{LISTENERS},LATE://:9094"})
    dynamic.update_broker_config({})
    names = ["PLAINTEXT", "LATE"]
    assert host.calls == [
        ("security", None), ("open", ["LATE"]), ("advertise", names), ("close", []),
        ("security", None), ("open", []), ("advertise", names[:1]), ("close", ["LATE"]),
    ]  # fmt: skip


def test_a_listener_that_cannot_be_opened_does_not_keep_another_from_being_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = Host()
    dynamic = DynamicBrokerConfig(node(listener_security_protocol_map=PROTOCOLS, listeners=f"{LISTENERS},LATE://:9094"))
    dynamic.add_reconfigurable(DynamicListeners(host))
    other = {"listeners": f"{LISTENERS},OTHER://:2", "listener.security.protocol.map": f"{PROTOCOLS},OTHER:PLAINTEXT"}
    dynamic.update_broker_config(other)
    assert host.calls[-1] == ("close", ["LATE"])
    assert "could not be reconfigured" in caplog.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"listeners": "PLAINTEXT://:9999,CONTROLLER://127.0.0.1:9093"}, "cannot become PLAINTEXT://:9999"),
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://127.0.0.1:9999"}, "controller's listeners cannot be changed"),
        ({"listeners": f"{LISTENERS},LATE://:1"}, "the port is in use"),
        ({"listener.name.plaintext.socket.send.buffer.bytes": "1"}, "cannot be changed for the existing listener"),
    ],
)
def test_changes_of_listeners_that_are_refused(changes: dict[str, str], message: str) -> None:
    dynamic = DynamicBrokerConfig(node(listener_security_protocol_map=PROTOCOLS))
    dynamic.add_reconfigurable(DynamicListeners(Host()))
    with pytest.raises(ConfigError, match=message):
        dynamic.validate(changes, per_broker=True)
    dynamic.validate({"listeners": f"{LISTENERS},LATE://:9094"}, per_broker=True)
