"""Settings, and the classes that they name."""

from __future__ import annotations

import pytest

from barnabas.broker.config.general_config_def import GENERAL_CONFIG_DEF
from barnabas.broker.config.replication_config_def import REPLICATION_CONFIG_DEF
from barnabas.common.config_def import ConfigDef, ConfigError
from barnabas.common.topic_partition import TopicPartition
from barnabas.metadata.endpoint import Node
from barnabas.replica.config import ReplicaManagerConfig
from barnabas.replica.fetch.replica_selector import (
    LeaderSelector,
    RackAwareReplicaSelector,
    ReplicaView,
    make_replica_selector,
)
from barnabas.replica.results import ClientMetadata

CONFIG_DEF = ConfigDef(REPLICATION_CONFIG_DEF)
for _name in ("fetch.max.bytes", "delete.records.purgatory.purge.interval.requests"):
    _key = GENERAL_CONFIG_DEF.keys[_name]
    CONFIG_DEF.define(_key.name, _key.type, _key.default, _key.validator)


def test_the_defaults_are_those_of_the_definition() -> None:
    assert ReplicaManagerConfig.from_values(CONFIG_DEF.parse({}), broker_id=4) == ReplicaManagerConfig(broker_id=4)


def test_settings_get_where_they_belong() -> None:
    settings = {
        "replica.lag.time.max.ms": 11,
        "fetch.max.bytes": 2048,
        "replica.fetch.max.bytes": 13,
        "replica.fetch.backoff.ms": 14,
        "num.replica.alter.log.dirs.threads": 15,
        "replica.selector.class": "x.Y",
        "producer.purgatory.purge.interval.requests": 17,
        "fetch.purgatory.purge.interval.requests": 18,
        "delete.records.purgatory.purge.interval.requests": 19,
    }
    values = CONFIG_DEF.parse({name: str(value) for name, value in settings.items()})
    config = ReplicaManagerConfig.from_values(values, broker_id=1)
    assert config == ReplicaManagerConfig(
        broker_id=1,
        replica_lag_time_max_ms=11,
        fetch_max_bytes=2048,
        replica_fetch_max_bytes=13,
        replica_fetch_backoff_ms=14,
        num_replica_alter_log_dirs_threads=15,
        replica_selector_class="x.Y",
        producer_purgatory_purge_interval_requests=17,
        fetch_purgatory_purge_interval_requests=18,
        delete_records_purgatory_purge_interval_requests=19,
    )


def test_selectors_by_name() -> None:
    assert make_replica_selector(None) is None
    kafka = make_replica_selector("org.apache.kafka.common.replica.RackAwareReplicaSelector")
    assert isinstance(kafka, RackAwareReplicaSelector)
    own = make_replica_selector("barnabas.replica.fetch.replica_selector.LeaderSelector")
    assert isinstance(own, LeaderSelector)
    with pytest.raises(ConfigError):
        make_replica_selector("no.such.Selector")
    with pytest.raises(ConfigError):
        make_replica_selector("collections.OrderedDict")


def view(number: int, rack: str | None, end: int = 10, behind_ms: int = 0) -> ReplicaView:
    return ReplicaView(Node(number, "host", 9092, rack, False), end, behind_ms)


def test_the_nearest_that_is_least_behind() -> None:
    leader = view(1, "a")
    others = (leader, view(2, "b", 7), view(3, "b", 9, 50), view(4, "b", 9, 20), view(5, None, 10))
    client = ClientMetadata("b", "client", "host", "User:x", "PLAINTEXT")
    partition = TopicPartition("t", 0)
    selector = RackAwareReplicaSelector()
    assert selector.select(partition, client, leader, others) is others[3]
    assert selector.select(partition, client._replace(rack_id="a"), leader, others) is leader
    assert selector.select(partition, client._replace(rack_id="z"), leader, others) is leader
    assert selector.select(partition, client._replace(rack_id=""), leader, others) is leader
    assert LeaderSelector().select(partition, client, leader, others) is leader
