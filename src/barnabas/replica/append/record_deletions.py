"""DeleteRecords: from the request to its response."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from barnabas.common.errors import (
    Errors,
    InvalidTopicError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    UnknownTopicOrPartitionError,
)
from barnabas.common.log_safety import LimitedLogger
from barnabas.common.topic_names import INTERNAL_TOPICS
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.replica.append.delayed_delete_records import DelayedDeleteRecords, DelayedDeleteRecordsMetrics
from barnabas.replica.delayed_operations import DelayedOperations
from barnabas.replica.partition.hosted_partitions import HostedPartitions
from barnabas.replica.results import DeleteRecordsCallback, DeleteRecordsResult

logger = LimitedLogger(logging.getLogger(__name__))

_EXPECTED: Final = (
    UnknownTopicOrPartitionError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    KafkaStorageError,
    InvalidTopicError,
)


class RecordDeletions:
    """Deletes records up to an offset, and responds when all replicas have deleted them."""

    def __init__(self, partitions: HostedPartitions, delayed: DelayedOperations, registry: MetricsRegistry) -> None:
        self._partitions = partitions
        self._delayed = delayed
        self._metrics = DelayedDeleteRecordsMetrics(registry)

    def delete_records(
        self,
        timeout_ms: int,
        offsets: Mapping[TopicPartition, int],
        callback: DeleteRecordsCallback,
        *,
        internal_topics_allowed: bool = False,
    ) -> None:
        """See `ReplicaManager.delete_records`."""
        results: dict[TopicPartition, DeleteRecordsResult] = {}
        pending: dict[TopicPartition, int] = {}
        for partition, offset in offsets.items():
            try:
                if partition.topic in INTERNAL_TOPICS and not internal_topics_allowed:
                    raise InvalidTopicError(
                        f"{partition.topic} is an internal topic, whose records clients cannot delete"
                    )
                deleted = self._partitions.get_partition_or_exception(partition).delete_records_on_leader(offset)
            except _EXPECTED as error:
                results[partition] = DeleteRecordsResult(Errors.for_exception(error))
            except Exception as error:
                logger.exception("Records of %s up to offset %d could not be deleted", partition, offset)
                results[partition] = DeleteRecordsResult(Errors.for_exception(error))
            else:
                results[partition] = DeleteRecordsResult(Errors.NONE, deleted.low_watermark)
                if deleted.low_watermark < deleted.requested_offset:
                    pending[partition] = deleted.requested_offset
        if not pending:
            callback(results)
            return
        keys = list(pending)
        operation = DelayedDeleteRecords(timeout_ms, pending, results, self._partitions, callback, self._metrics)
        self._delayed.delete_records.try_complete_else_watch(operation, keys)
