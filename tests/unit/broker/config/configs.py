"""Configurations for tests."""

from __future__ import annotations

from pathlib import Path

from barnabas.broker.config.kafka_config import KafkaConfig, zero_configuration

NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "log.dirs": "data",
}
"""A node that is both broker and controller, with nothing left to its defaults that a file usually says."""

BROKER = {
    **NODE,
    "process.roles": "broker",
    "node.id": "2",
    "listeners": "PLAINTEXT://:9092",
}
"""A node that is just a broker."""

CONTROLLER = {**NODE, "process.roles": "controller", "listeners": "CONTROLLER://127.0.0.1:9093"}
"""A node that is just a controller."""


def node(**settings: object) -> KafkaConfig:
    """`NODE` with other settings, with underscores for dots; None takes one away."""
    properties: dict[str, object] = dict(NODE)
    for name, value in settings.items():
        key = name.replace("_", ".")
        if value is None:
            properties.pop(key, None)
        else:
            properties[key] = value
    return KafkaConfig.from_properties(properties)


def laptop(**settings: object) -> KafkaConfig:
    """The configuration that nobody has configured."""
    return KafkaConfig.from_properties(
        zero_configuration(Path("data"), overrides={name.replace("_", "."): value for name, value in settings.items()})
    )
