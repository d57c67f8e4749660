"""How the topics of the system itself, and those that clients ask for, are made."""

from __future__ import annotations

from pathlib import Path

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.publishers.internal_topics import default_topic_settings, internal_topic_settings


def test_settings_come_from_the_configuration() -> None:
    config = KafkaConfig.for_zero_configuration(
        Path("data"),
        overrides={
            "num.partitions": 3,
            "offsets.topic.num.partitions": 7,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.segment.bytes": 2_000_000,
        },
    )
    default = default_topic_settings(config)
    assert (default.num_partitions, default.replication_factor) == (3, 1)
    settings = internal_topic_settings(config)
    assert set(settings) >= {"__consumer_offsets", "__transaction_state", "__share_group_state"}
    offsets = settings["__consumer_offsets"]
    assert (offsets.num_partitions, offsets.replication_factor) == (7, 1)
    assert offsets.configs == {
        "cleanup.policy": "compact",
        "segment.bytes": "104857600",
        "compression.type": "producer",
    }
    transactions = settings["__transaction_state"].configs
    assert transactions["segment.bytes"] == "2000000"
    assert transactions["min.insync.replicas"] == "1"
    assert transactions["unclean.leader.election.enable"] == "false"
    assert settings["__share_group_state"].configs["cleanup.policy"] == "delete"
