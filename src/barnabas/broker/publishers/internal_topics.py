"""Settings of internal topics, and of topics that are created automatically for clients."""

from __future__ import annotations

from typing import Final

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.to_controller.auto_topic_creation_manager import TopicSettings
from barnabas.common.topic_names import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TELEMETRY_TOPICS,
    TRANSACTION_STATE_TOPIC,
)

TELEMETRY_SEGMENT_BYTES: Final = 64 * 1024 * 1024
"""Small, because retention deletes whole segments, and these topics should stay near their limits."""
RECORD_ROOM: Final = 64 * 1024
"""Room for the batch header and the record headers besides the value."""


def default_topic_settings(config: KafkaConfig) -> TopicSettings:
    """Returns the settings of a topic that is created automatically for a client."""
    return TopicSettings(config.num_partitions, config.default_replication_factor)


def internal_topic_settings(config: KafkaConfig) -> dict[str, TopicSettings]:
    """Returns the settings of the topics that brokers write themselves, by name.

    Coordinator topics are compacted, because they are read back completely at startup. Telemetry topics, which others
    read, are deleted by retention time.
    """
    value = config.value
    return {
        **dict.fromkeys(TELEMETRY_TOPICS, _telemetry_settings(config)),
        GROUP_METADATA_TOPIC: TopicSettings(
            value("offsets.topic.num.partitions"),
            value("offsets.topic.replication.factor"),
            {
                "cleanup.policy": "compact",
                "segment.bytes": str(value("offsets.topic.segment.bytes")),
                "compression.type": "producer",
            },
        ),
        TRANSACTION_STATE_TOPIC: TopicSettings(
            value("transaction.state.log.num.partitions"),
            value("transaction.state.log.replication.factor"),
            {
                "cleanup.policy": "compact",
                "segment.bytes": str(value("transaction.state.log.segment.bytes")),
                "compression.type": "uncompressed",
                "min.insync.replicas": str(value("transaction.state.log.min.isr")),
                "unclean.leader.election.enable": "false",
            },
        ),
        SHARE_GROUP_STATE_TOPIC: TopicSettings(
            value("share.coordinator.state.topic.num.partitions"),
            value("share.coordinator.state.topic.replication.factor"),
            {
                "cleanup.policy": "delete",
                "retention.ms": "-1",
                "segment.bytes": str(value("share.coordinator.state.topic.segment.bytes")),
                "compression.type": "none",
                "min.insync.replicas": str(value("share.coordinator.state.topic.min.isr")),
            },
        ),
    }


def _telemetry_settings(config: KafkaConfig) -> TopicSettings:
    value = config.value
    return TopicSettings(
        value("barnabas.telemetry.topics.num.partitions"),
        config.default_replication_factor,
        {
            "cleanup.policy": "delete",
            "retention.ms": str(value("barnabas.telemetry.topics.retention.ms")),
            "retention.bytes": str(value("barnabas.telemetry.topics.retention.bytes")),
            "segment.bytes": str(TELEMETRY_SEGMENT_BYTES),
            "compression.type": "producer",
            # The largest client push, decompressed, with its headers.
            "max.message.bytes": str(max(value("message.max.bytes"), value("telemetry.max.bytes") + RECORD_ROOM)),
        },
    )
