"""Barnabas: a Kafka-compatible streaming platform in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.clients.admin import AsyncKafkaAdminClient, KafkaAdminClient
    from barnabas.clients.consumer import AsyncKafkaConsumer, KafkaConsumer
    from barnabas.clients.producer import (
        AsyncKafkaProducer,
        ConsumerGroupMetadata,
        KafkaProducer,
        MockProducer,
        OffsetAndMetadata,
        ProducerRecord,
        RecordMetadata,
    )
    from barnabas.common.topic_partition import TopicPartition
    from barnabas.embedded import EmbeddedBroker

__all__ = [
    "AsyncKafkaAdminClient",
    "AsyncKafkaConsumer",
    "AsyncKafkaProducer",
    "ConsumerGroupMetadata",
    "EmbeddedBroker",
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaProducer",
    "MockProducer",
    "OffsetAndMetadata",
    "ProducerRecord",
    "RecordMetadata",
    "TopicPartition",
    "__version__",
]
__version__ = "0.2.0"

_HOMES = {
    "AsyncKafkaAdminClient": "barnabas.clients.admin",
    "AsyncKafkaConsumer": "barnabas.clients.consumer",
    "AsyncKafkaProducer": "barnabas.clients.producer",
    "ConsumerGroupMetadata": "barnabas.clients.producer",
    "EmbeddedBroker": "barnabas.embedded",
    "KafkaAdminClient": "barnabas.clients.admin",
    "KafkaConsumer": "barnabas.clients.consumer",
    "KafkaProducer": "barnabas.clients.producer",
    "MockProducer": "barnabas.clients.producer",
    "OffsetAndMetadata": "barnabas.clients.producer",
    "ProducerRecord": "barnabas.clients.producer",
    "RecordMetadata": "barnabas.clients.producer",
    "TopicPartition": "barnabas.common.topic_partition",
}


def __getattr__(name: str) -> object:
    """Loads a part when it is first used: whoever only wants a client does not pay for a broker."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'barnabas' has no attribute {name!r}")
    from importlib import import_module  # a package that is only named needs nothing

    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
