"""The consumer.

from barnabas.clients.consumer import KafkaConsumer

with KafkaConsumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
    for record in consumer:
        ...
"""

from __future__ import annotations

from barnabas.clients.common.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from barnabas.clients.consumer.async_kafka_consumer import AsyncKafkaConsumer
from barnabas.clients.consumer.consumer_config import ConsumerConfig, IsolationLevel
from barnabas.clients.consumer.consumer_record import ConsumerRecord
from barnabas.clients.consumer.consumer_records import ConsumerRecords
from barnabas.clients.consumer.group_metadata import CloseOptions, GroupMembershipOperation
from barnabas.clients.consumer.interceptors import ConsumerInterceptor
from barnabas.clients.consumer.kafka_consumer import KafkaConsumer
from barnabas.clients.consumer.mock_consumer import MockConsumer
from barnabas.clients.consumer.rebalance_listener import ConsumerRebalanceListener
from barnabas.clients.consumer.subscription_pattern import SubscriptionPattern
from barnabas.common.topic_partition import TopicPartition

__all__ = [
    "AsyncKafkaConsumer",
    "CloseOptions",
    "ConsumerConfig",
    "ConsumerGroupMetadata",
    "ConsumerInterceptor",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerRecords",
    "GroupMembershipOperation",
    "IsolationLevel",
    "KafkaConsumer",
    "MockConsumer",
    "OffsetAndMetadata",
    "SubscriptionPattern",
    "TopicPartition",
]
