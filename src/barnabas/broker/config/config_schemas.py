"""Builds the controller's validator of settings from a node's own configuration."""

from __future__ import annotations

from typing import Final

from barnabas.broker.config.broker_config_def import BROKER_CONFIG_DEF
from barnabas.broker.config.client_metrics_config import CLIENT_METRICS_CONFIG_DEF, validate_client_metrics_config
from barnabas.broker.config.group_config import GROUP_CONFIG_DEF, validate_group_config
from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.controller.config_schema import KafkaConfigSchema
from barnabas.controller.config_validator import ControllerConfigurationValidator
from barnabas.log.config.log_config import validate_topic_config
from barnabas.log.config.log_config_def import LOG_CONFIG_DEF
from barnabas.log.config.server_log_config import TOPIC_CONFIG_SYNONYMS
from barnabas.metadata.configs import ConfigResourceType

CONFIG_SCHEMA: Final = KafkaConfigSchema(
    {
        ConfigResourceType.TOPIC: LOG_CONFIG_DEF,
        ConfigResourceType.BROKER: BROKER_CONFIG_DEF,
        ConfigResourceType.CLIENT_METRICS: CLIENT_METRICS_CONFIG_DEF,
        ConfigResourceType.GROUP: GROUP_CONFIG_DEF,
    },
    TOPIC_CONFIG_SYNONYMS,
)


def configuration_validator(config: KafkaConfig) -> ControllerConfigurationValidator:
    """Returns the validator of topic, group and subscription settings, with this node's defaults and bounds."""
    return ControllerConfigurationValidator(
        topic=lambda settings, existing: validate_topic_config(
            settings, defaults=config.topic_defaults, existing=existing
        ),
        client_metrics=validate_client_metrics_config,
        group=lambda _name, settings: validate_group_config(settings, config.values),
    )
