"""The producer.

from barnabas.clients.producer import KafkaProducer

with KafkaProducer(bootstrap_servers="localhost:9092") as producer:
    producer.send("greetings", b"hello")
"""

from __future__ import annotations

from barnabas.clients.producer.async_kafka_producer import AsyncKafkaProducer
from barnabas.clients.producer.kafka_producer import KafkaProducer
from barnabas.clients.producer.mock_producer import MockProducer
from barnabas.clients.producer.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from barnabas.clients.producer.prepared_txn_state import PreparedTxnState
from barnabas.clients.producer.producer_config import ProducerConfig
from barnabas.clients.producer.producer_record import ProducerRecord
from barnabas.clients.producer.record_metadata import RecordMetadata
from barnabas.clients.producer.table_metadata import PartitionOffsets, TableFuture, TableMetadata, TableSendError

__all__ = [
    "AsyncKafkaProducer",
    "ConsumerGroupMetadata",
    "KafkaProducer",
    "MockProducer",
    "OffsetAndMetadata",
    "PartitionOffsets",
    "PreparedTxnState",
    "ProducerConfig",
    "ProducerRecord",
    "RecordMetadata",
    "TableFuture",
    "TableMetadata",
    "TableSendError",
]
