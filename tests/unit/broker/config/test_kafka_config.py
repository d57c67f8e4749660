"""`server.properties` as a whole: what it becomes, and what is wrong with it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.config.kafka_config import KafkaConfig, zero_configuration
from barnabas.broker.config.kafka_config_rules import ProcessRole
from barnabas.common.config_def import ConfigError
from barnabas.common.properties import parse_properties
from barnabas.controller.bootstrap import BootstrapMetadata
from barnabas.coordinator.group.group_coordinator_builder import make_assignors
from barnabas.raft.config import HostAndPort, VoterAddress
from barnabas.server.data_plane import HandOff
from unit.broker.config.configs import BROKER, CONTROLLER, NODE, laptop, node

KAFKA_SERVER_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/var/lib/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
"""What comes with Apache Kafka."""


def with_(properties: dict[str, str], changes: dict[str, str | None]) -> dict[str, str]:
    merged: dict[str, str | None] = {**properties, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def test_the_file_that_comes_with_kafka(caplog: pytest.LogCaptureFixture) -> None:
    config = KafkaConfig.from_properties(parse_properties(KAFKA_SERVER_PROPERTIES))
    assert caplog.text == ""
    assert config.node_id == 1
    assert config.process_roles == {ProcessRole.BROKER, ProcessRole.CONTROLLER}
    assert [str(e) for e in config.listeners] == ["PLAINTEXT://:9092"]
    assert [str(e) for e in config.advertised_listeners] == ["PLAINTEXT://localhost:9092"]
    assert [str(e) for e in config.controller_listeners] == ["CONTROLLER://:9093"]
    assert [str(e) for e in config.advertised_controller_listeners] == ["CONTROLLER://localhost:9093"]
    assert config.quorum_voters == ()
    assert config.raft().bootstrap_servers == (HostAndPort("localhost", 9093),)
    assert config.log_dirs == (Path("/var/lib/kraft-combined-logs"),)
    assert config.metadata_log_dir == Path("/var/lib/kraft-combined-logs")
    assert config.num_network_threads == 3
    assert config.value("log.retention.hours") == 168


@pytest.mark.parametrize(("direction", "otherwise"), [("send", 262_144), ("receive", -1)])
def test_socket_buffers_are_larger_than_in_kafka_unless_a_size_is_set(direction: str, otherwise: int) -> None:
    """With Kafka's default, a fetch of 256 KiB takes 1.5 times the broker's CPU."""

    def asked_for(config: KafkaConfig) -> int:
        size: int = getattr(config.socket_server(), f"socket_{direction}_buffer_bytes")
        return size

    key = f"socket.{direction}.buffer.bytes"
    unset = KafkaConfig.from_properties(NODE)
    assert (unset.value(key), asked_for(unset)) == (102_400, otherwise)
    assert asked_for(KafkaConfig.from_properties(with_(NODE, {key: "102400"}))) == 102_400


def test_the_local_socket_is_for_clients_and_has_a_large_buffer_unless_told_otherwise() -> None:
    config = KafkaConfig.from_properties(NODE)
    server = config.socket_server()
    assert (server.local_socket_enable, server.local_socket_send_buffer_bytes) == (True, 4 * 1024 * 1024)
    assert not config.socket_server(for_clients=False).local_socket_enable
    off = with_(NODE, {"barnabas.local.socket.enable": "false"})
    assert not KafkaConfig.from_properties(off).socket_server().local_socket_enable
    small = with_(NODE, {"socket.send.buffer.bytes": "102400"})
    assert KafkaConfig.from_properties(small).socket_server().local_socket_send_buffer_bytes == 102_400


def test_zero_configuration() -> None:
    config = KafkaConfig.for_zero_configuration(Path("/data"), port=0)
    assert config.is_broker
    assert config.is_controller
    assert [str(e) for e in config.advertised_listeners] == ["PLAINTEXT://127.0.0.1:0"]
    assert [str(e) for e in config.controller_listeners] == ["CONTROLLER://127.0.0.1:0"]
    assert config.quorum_voters == (VoterAddress(1, "127.0.0.1", 0),)
    assert config.auto_create_topics_enable
    for name in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        assert config.value(f"{name}.replication.factor") == 1
    assert config.http_listener is None


def test_zero_configuration_with_settings() -> None:
    config = KafkaConfig.for_zero_configuration(
        Path("/data"), node_id=7, num_partitions=3, overrides={"log.retention.ms": 5, "log.preallocate": True}
    )
    assert (config.node_id, config.num_partitions) == (7, 3)
    assert [voter.id for voter in config.quorum_voters] == [7]
    assert config.topic_defaults["retention.ms"] == 5
    assert config.topic_defaults["preallocate"] is True


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_zero_configuration_on_all_interfaces(host: str) -> None:
    assert zero_configuration(Path("/data"), host)["listeners"].startswith("PLAINTEXT://:9092,")
    assert zero_configuration(Path("/data"), "::1")["listeners"].startswith("PLAINTEXT://[::1]:9092,")


@pytest.mark.parametrize("properties", [NODE, BROKER, CONTROLLER])
def test_roles(properties: dict[str, str]) -> None:
    config = KafkaConfig.from_properties(properties)
    assert ",".join(sorted(config.process_roles)) == properties["process.roles"]
    assert config.is_controller == bool(config.controller_listeners)
    assert config.is_broker == bool(config.listeners)


@pytest.mark.parametrize(
    ("properties", "changes", "message"),
    [
        (NODE, {"process.roles": None}, r"process\.roles is missing.*broker,controller"),
        (NODE, {"node.id": None}, r"node\.id is missing"),
        (NODE, {"controller.listener.names": None}, r"controller\.listener\.names is missing"),
        (NODE, {"process.roles": "broker,follower"}, r"follower is not one of broker, controller"),
        (NODE, {"process.roles": ""}, "at least one"),
        (NODE, {"broker.id": "5"}, r"node\.id \(1\) and broker\.id \(5\)"),
        (NODE, {"node.id": "-1"}, "at least 0"),
        (NODE, {"log.dirs": None}, "log directories are missing"),
        (NODE, {"log.roll.ms": "0"}, r"log\.roll\.ms"),
        (NODE, {"log.roll.jitter.ms": "-1"}, r"log\.roll\.jitter\.ms"),
        (NODE, {"log.retention.ms": "0"}, r"log\.retention\.ms"),
        (NODE, {"log.cleaner.dedupe.buffer.size": "1048576"}, "more than 1 MiB"),
        (NODE, {"cordoned.log.dirs": "*,data"}, "already means all"),
        (NODE, {"cordoned.log.dirs": "elsewhere"}, r"not in log\.dirs: elsewhere"),
        (NODE, {"replica.fetch.wait.max.ms": "30001"}, r"replica\.socket\.timeout\.ms \(30000\) must be at least"),
        (NODE, {"replica.lag.time.max.ms": "499"}, r"at most replica\.lag\.time\.max\.ms"),
        (NODE, {"controller.quorum.voters": None}, "The controllers' addresses are missing"),
        (NODE, {"controller.quorum.voters": "2@h:1"}, "node.id 1 must be in"),
        (NODE, {"controller.quorum.voters": "1@h"}, "host:port"),
        (NODE, {"listeners": "PLAINTEXT://:9092"}, r"none of listeners is in controller\.listener\.names"),
        (
            NODE,
            {"controller.listener.names": "CONTROLLER,OTHER", "listener.security.protocol.map": None},
            "add OTHER",
        ),
        (NODE, {"listeners": "CONTROLLER://:9093"}, "No listener is left for clients"),
        (NODE, {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "for listening only"),
        (NODE, {"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093"}, "for listening only"),
        (NODE, {"listeners": "PLAINTEXT://:9092,CONTROLLER://0.0.0.0:9093"}, "for listening only"),
        (
            NODE,
            {
                "advertised.listeners": "OTHER://h:1",
                "listener.security.protocol.map": "OTHER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            },
            "Set inter.broker.listener.name to one of OTHER",
        ),
        (
            NODE,
            {
                "advertised.listeners": "PLAINTEXT://h:2,OTHER://h:1",
                "listener.security.protocol.map": "OTHER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            },
            "OTHER cannot be advertised, because it is not in listeners",
        ),
        (NODE, {"queued.max.request.bytes": "5"}, r"queued\.max\.request\.bytes \(5\) must be at least"),
        (NODE, {"max.connections.per.ip": "0"}, "no client can connect"),
        (NODE, {"max.connections.per.ip.overrides": "h:many"}, "'many' is not a whole number"),
        (NODE, {"max.connections.per.ip.overrides": "h h:3"}, "neither an address nor a host name"),
        (NODE, {"max.connections.per.ip.overrides": "h:-3"}, "must not be negative"),
        (NODE, {"connections.max.idle.ms": "100"}, "closed before the response is sent"),
        (NODE, {"listener.name.plaintext.max.connections": "x"}, r"It is set as listener\.name\.plaintext"),
        (NODE, {"barnabas.request.handoff": "fast"}, "auto, queue, direct"),
        (NODE, {"barnabas.http.listener": "8080"}, r"barnabas\.http\.listener"),
        (BROKER, {"controller.quorum.voters": "2@h:1"}, "must not be in"),
        (BROKER, {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}, "remove CONTROLLER from listeners"),
        (
            BROKER,
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
            "Add CONTROLLER:PLAINTEXT",
        ),
        (BROKER, {"controller.quorum.auto.join.enable": "true"}, "requires the controller role"),
        (CONTROLLER, {"listeners": "CONTROLLER://:9093,PLAINTEXT://:9092"}, "remove PLAINTEXT"),
        (
            CONTROLLER,
            {"inter.broker.listener.name": "CONTROLLER"},
            "is for brokers",
        ),
    ],
)
def test_rules(properties: dict[str, str], changes: dict[str, str | None], message: str) -> None:
    KafkaConfig.from_properties(properties)
    with pytest.raises(ConfigError, match=message):
        KafkaConfig.from_properties(with_(properties, changes))


@pytest.mark.mechanism("A02")
def test_a_listener_has_settings_of_its_own_and_so_has_a_mechanism_of_it() -> None:
    settings = {
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093,INTERNAL://:9094",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,INTERNAL:SASL_SSL",
        "ssl.keystore.location": "/all",
        "listener.name.internal.ssl.keystore.location": "/internal",
        "connections.max.reauth.ms": "1000",
        "listener.name.internal.plain.connections.max.reauth.ms": "2000",
        "listener.name.internal.plain.sasl.jaas.config": "secret",
        "listener.name.internal.oauthbearer.sasl.server.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
    }
    config = KafkaConfig.from_properties({**NODE, **settings})
    assert config.with_prefix("INTERNAL", "ssl.")["ssl.keystore.location"] == "/internal"
    assert config.with_prefix("PLAINTEXT", "ssl.")["ssl.keystore.location"] == "/all"
    assert config.mechanism_value("INTERNAL", "PLAIN", "connections.max.reauth.ms") == 2000
    assert config.mechanism_value("INTERNAL", "SCRAM-SHA-256", "connections.max.reauth.ms") == 1000
    assert config.mechanism_value("INTERNAL", "PLAIN", "sasl.jaas.config").value == "secret"
    assert config.mechanism_value("INTERNAL", "OAUTHBEARER", "sasl.server.callback.handler.class") is None
    assert "secret" not in repr(config.listener_values)


def test_every_sasl_setting_can_be_given_for_one_mechanism() -> None:
    issuer = "sasl.oauthbearer.expected.issuer"
    properties = {**NODE, f"listener.name.internal.oauthbearer.{issuer}": "https://issuer.example"}
    config = KafkaConfig.from_properties(properties)
    assert config.mechanism_value("INTERNAL", "OAUTHBEARER", issuer) == "https://issuer.example"
    assert config.mechanism_value("EXTERNAL", "OAUTHBEARER", issuer) is None


def test_features_that_are_not_there() -> None:
    with pytest.raises(ConfigError, match="remote storage is not supported yet"):
        node(remote_log_storage_system_enable="true")


def test_assignors_that_there_are_not_are_refused_at_once() -> None:
    names = ("uniform", "org.apache.kafka.coordinator.group.assignor.RangeAssignor")
    node(group_consumer_assignors=",".join(names))
    assert [assignor.name for assignor in make_assignors(names)] == ["uniform", "range"]
    with pytest.raises(ConfigError, match=r"com\.example\.Mine: unknown assignor"):
        node(group_consumer_assignors="range, com.example.Mine")


def test_settings_of_absent_features_are_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    properties = {
        **NODE,
        "ssl.provider": "SunJSSE",
        "listener.name.internal.ssl.secure.random.implementation": "secret",
        "sasl.login.class": "org.example.Login",
        "metric.reporters": "org.example.Reporter",
        "remote.log.reader.threads": "3",
        "principal.builder.class": "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    }
    config = KafkaConfig.from_properties(properties)
    warned = [record.getMessage().split()[0] for record in caplog.records]
    assert warned == [
        "ssl.provider",
        "listener.name.internal.ssl.secure.random.implementation",
        "sasl.login.class",
        "metric.reporters",
        "remote.log.reader.threads",
    ]
    assert "secret" not in caplog.text
    assert config.value("ssl.provider") is None
    assert config.value("remote.log.reader.threads") == 10
    assert config.value("sasl.login.class") is None


def test_unknown_settings_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    properties = {
        **NODE,
        "zookeeper.connect": "z:2181",
        "my.colour": "red",
        "super.users": "User:a",
        "listener.name.plaintext.num.network.threads": "2",
    }
    config = KafkaConfig.from_properties(properties)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().endswith(": my.colour, zookeeper.connect")
    assert config.properties["super.users"] == "User:a"
    caplog.clear()
    KafkaConfig.from_properties(properties, warn=False)
    assert not caplog.records


def test_warnings_for_settings_in_the_wrong_place(caplog: pytest.LogCaptureFixture) -> None:
    KafkaConfig.from_properties({**BROKER, "num.partitions": "3", "controller.listener.names": "CONTROLLER,C2"})
    assert [record.getMessage().split()[0] for record in caplog.records] == ["Using", "num.partitions"]
    caplog.clear()
    node(broker_heartbeat_interval_ms="5000")
    assert "a single lost heartbeat" in caplog.text


def test_node_id_and_its_older_name() -> None:
    assert node(node_id=None, broker_id="1").node_id == 1
    assert node().value("broker.id") == 1


def test_the_file_may_have_values_that_are_no_texts() -> None:
    config = node(num_io_threads=3, log_dirs=("a", "b"), auto_create_topics_enable=False, log_cleaner_backoff_ms=1)
    assert config.num_io_threads == 3
    assert config.log_dirs == (Path("a"), Path("b"))
    assert not config.auto_create_topics_enable
    assert config.properties["log.dirs"] == "a,b"


def test_hand_off_and_network_threads() -> None:
    assert node().hand_off is HandOff.default()
    assert node().num_network_threads == HandOff.default().default_network_threads
    assert node(barnabas_request_handoff="queue").num_network_threads == 3
    assert node(barnabas_request_handoff="direct").num_network_threads == 1
    config = node(barnabas_request_handoff="direct", num_network_threads="5")
    assert (config.hand_off, config.num_network_threads) == (HandOff.DIRECT, 5)


def test_socket_server() -> None:
    config = node(
        socket_request_max_bytes="1000",
        queued_max_request_bytes="2000",
        max_connections="10",
        max_connections_per_ip="3",
        max_connections_per_ip_overrides="127.0.0.1:5,::1:6",
        max_connection_creation_rate="7",
        quota_window_num="4",
        connections_max_idle_ms="-1",
        **{"listener.name.plaintext.max.connections": "8", "listener.name.PLAINTEXT.num.network.threads": "2"},
    ).socket_server()
    assert config.socket_request_max_bytes == 1000
    assert config.queued_max_request_bytes == 2000
    assert config.connections_max_idle_ms == -1
    assert config.processors_of("PLAINTEXT") == 2
    limits = config.limits
    assert (limits.max_connections, limits.max_connections_per_ip, limits.max_connection_creation_rate) == (10, 3, 7)
    assert limits.max_connections_per_ip_overrides == {"127.0.0.1": 5, "::1": 6}
    assert limits.listener_max_connections == {"PLAINTEXT": 8}
    assert limits.quota_samples == 4
    assert limits.inter_broker_listener == "PLAINTEXT"


def test_log_manager() -> None:
    config = node(
        log_retention_hours="2",
        message_max_bytes="77",
        producer_id_expiration_ms="5",
        transaction_partition_verification_enable="false",
        replica_high_watermark_checkpoint_interval_ms="6",
        producer_id_expiration_check_interval_ms="7",
        transaction_max_timeout_ms="8",
        cordoned_log_dirs="data",
    ).log_manager("cluster")
    assert config.cluster_id == "cluster"
    assert config.node_id == 1
    assert config.topic_defaults["retention.ms"] == 2 * 60 * 60 * 1000
    assert config.topic_defaults["max.message.bytes"] == 77
    assert config.producer_state.producer_id_expiration_ms == 5
    assert not config.producer_state.transaction_verification_enabled
    assert config.high_watermark_checkpoint_ms == 6
    assert config.producer_id_expiration_check_ms == 7
    assert config.max_transaction_timeout_ms == 8
    assert config.cordoned_log_dirs == ("data",)


def test_controller() -> None:
    bootstrap = BootstrapMetadata.for_version()
    config = node(
        num_partitions="3",
        default_replication_factor="2",
        broker_session_timeout_ms="20000",
        leader_imbalance_check_interval_seconds="5",
        metadata_max_idle_interval_ms="0",
        metadata_log_max_snapshot_interval_ms="9",
        min_insync_replicas="2",
    )
    made = config.controller("cluster", bootstrap)
    assert made.bootstrap is bootstrap
    assert (made.node_id, made.cluster_id, made.quorum_node_ids) == (1, "cluster", (1,))
    assert (made.default_num_partitions, made.default_replication_factor) == (3, 2)
    assert made.session_timeout_ms == 20_000
    assert made.leader_imbalance_check_interval_ms == 5000
    assert made.max_idle_interval_ms == 0
    assert made.max_snapshot_interval_ms == 9
    assert made.static_config["min.insync.replicas"] == "2"
    off = node(auto_leader_rebalance_enable="false").controller("cluster", bootstrap)
    assert off.leader_imbalance_check_interval_ms == 0


def test_raft_cleaner_and_replica_manager() -> None:
    config = node(
        controller_quorum_append_linger_ms="3",
        log_cleaner_threads="2",
        replica_lag_time_max_ms="40000",
        metadata_log_dir="meta",
    )
    assert config.raft().append_linger_ms == 3
    assert config.raft().voters == (VoterAddress(1, "127.0.0.1", 9093),)
    assert config.cleaner().num_threads == 2
    assert config.replica_manager().replica_lag_time_max_ms == 40_000
    assert config.replica_manager().broker_id == 1
    assert config.metadata_log_dir == Path("meta")


ATTRIBUTES = {
    "num_io_threads": ("num.io.threads", 3),
    "background_threads": ("background.threads", 4),
    "queued_max_requests": ("queued.max.requests", 5),
    "request_timeout_ms": ("request.timeout.ms", 6),
    "fetch_max_bytes": ("fetch.max.bytes", 7000),
    "max_incremental_fetch_session_cache_slots": ("max.incremental.fetch.session.cache.slots", 8),
    "max_request_partition_size_limit": ("max.request.partition.size.limit", 9),
    "unstable_api_versions_enable": ("unstable.api.versions.enable", True),
    "delete_topic_enable": ("delete.topic.enable", False),
    "default_replication_factor": ("default.replication.factor", 11),
    "broker_heartbeat_interval_ms": ("broker.heartbeat.interval.ms", 12),
    "initial_broker_registration_timeout_ms": ("initial.broker.registration.timeout.ms", 13),
    "server_max_startup_time_ms": ("server.max.startup.time.ms", 14),
    "controlled_shutdown_enable": ("controlled.shutdown.enable", False),
    "rack": ("broker.rack", "r1"),
    "http_listener": ("barnabas.http.listener", "127.0.0.1:0"),
    "authorizer_class_name": ("authorizer.class.name", "my.Authorizer"),
}


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_attributes(attribute: str) -> None:
    name, value = ATTRIBUTES[attribute]
    wanted: Any = HostAndPort("127.0.0.1", 0) if attribute == "http_listener" else value
    assert getattr(node(**{name: value}), attribute) == wanted


def test_kafkas_authorizer_stands_for_ours() -> None:
    config = node(authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer")
    assert config.authorizer_class_name == "barnabas.security.standard_authorizer.StandardAuthorizer"
    assert node().authorizer_class_name is None


def test_it_is_frozen_and_shows_no_secrets() -> None:
    config = node(**{"my.password": "secret"})
    with pytest.raises(AttributeError):
        config.hand_off = HandOff.QUEUE  # type: ignore[misc]
    assert "my.password=[hidden]" in repr(config)
    assert "node.id=1" in repr(config)
    with pytest.raises(KeyError):
        config.value("my.password")


def test_listener_values() -> None:
    config = laptop(**{"listener.name.plaintext.max.connections": "8", "max.connections": "9"})
    assert config.listener_value("PLAINTEXT", "max.connections") == 8
    assert config.listener_value("CONTROLLER", "max.connections") == 9


def test_unknown_settings_are_named_with_the_closest_one(caplog: pytest.LogCaptureFixture) -> None:
    KafkaConfig.from_properties({**NODE, "log.retention.hour": "1", "my.plugin.colour": "red"})
    assert "log.retention.hour (did you mean log.retention.hours?), my.plugin.colour" in caplog.text
