"""Error responses of the APIs that read, write and locate records."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import (
    alter_replica_log_dirs,
    delete_records,
    describe_producers,
    describe_topic_partitions,
    fetch,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from barnabas.server.error_responses.failure import Failure, ResponseTo, failed_topics

UNKNOWN = -1
"""An unknown offset, epoch or timestamp."""

SESSION_ERRORS_FROM = 13
"""The first version of Fetch whose clients need only the top-level error."""


def _produce(body: produce.ProduceRequest, failure: Failure) -> produce.ProduceResponse | None:
    """Returns None for acks=0: the producer expects no response."""
    if body.acks == 0:
        return None
    return produce.ProduceResponse(
        throttle_time_ms=failure.throttle_time_ms,
        responses=[
            produce.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    produce.PartitionProduceResponse(
                        index=partition.index,
                        error_code=failure.error,
                        base_offset=UNKNOWN,
                        error_message=failure.message,
                    )
                    for partition in topic.partition_data
                ],
            )
            for topic in body.topic_data
        ],
    )


def _fetch(body: fetch.FetchRequest, failure: Failure) -> fetch.FetchResponse:
    """Sets both codes: older clients read the partitions' error, but an incremental request may have no partitions."""
    topics = body.topics if failure.version < SESSION_ERRORS_FROM else []
    return fetch.FetchResponse(
        throttle_time_ms=failure.throttle_time_ms,
        error_code=failure.error,
        session_id=body.session_id,
        responses=[
            fetch.FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    fetch.PartitionData(
                        partition_index=partition.partition,
                        error_code=failure.error,
                        high_watermark=UNKNOWN,
                        records=b"",
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in topics
        ],
    )


def _list_offsets(body: list_offsets.ListOffsetsRequest, failure: Failure) -> list_offsets.ListOffsetsResponse:
    return list_offsets.ListOffsetsResponse(
        throttle_time_ms=failure.throttle_time_ms,
        topics=failed_topics(
            body.topics,
            lambda topic, partitions: list_offsets.ListOffsetsTopicResponse(name=topic.name, partitions=partitions),
            lambda index: list_offsets.ListOffsetsPartitionResponse(partition_index=index, error_code=failure.error),
        ),
    )


def _metadata(body: metadata.MetadataRequest, failure: Failure) -> metadata.MetadataResponse:
    """Lists no topic if the request asked for all (null). A topic requested by id has an empty name."""
    return metadata.MetadataResponse(
        throttle_time_ms=failure.throttle_time_ms,
        error_code=failure.error,
        topics=[
            metadata.MetadataResponseTopic(error_code=failure.error, name=topic.name or "", topic_id=topic.topic_id)
            for topic in body.topics or ()
        ],
    )


def _offset_for_leader_epoch(
    body: offset_for_leader_epoch.OffsetForLeaderEpochRequest, failure: Failure
) -> offset_for_leader_epoch.OffsetForLeaderEpochResponse:
    return offset_for_leader_epoch.OffsetForLeaderEpochResponse(
        throttle_time_ms=failure.throttle_time_ms,
        topics=[
            offset_for_leader_epoch.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    offset_for_leader_epoch.EpochEndOffset(partition=partition.partition, error_code=failure.error)
                    for partition in topic.partitions
                ],
            )
            for topic in body.topics
        ],
    )


def _delete_records(
    body: delete_records.DeleteRecordsRequest, failure: Failure
) -> delete_records.DeleteRecordsResponse:
    return delete_records.DeleteRecordsResponse(
        throttle_time_ms=failure.throttle_time_ms,
        topics=failed_topics(
            body.topics,
            lambda topic, partitions: delete_records.DeleteRecordsTopicResult(name=topic.name, partitions=partitions),
            lambda index: delete_records.DeleteRecordsPartitionResult(
                partition_index=index, low_watermark=UNKNOWN, error_code=failure.error
            ),
        ),
    )


def _describe_producers(
    body: describe_producers.DescribeProducersRequest, failure: Failure
) -> describe_producers.DescribeProducersResponse:
    return describe_producers.DescribeProducersResponse(
        throttle_time_ms=failure.throttle_time_ms,
        topics=[
            describe_producers.TopicResponse(
                name=topic.name,
                partitions=[
                    describe_producers.PartitionResponse(partition_index=partition, error_code=failure.error)
                    for partition in topic.partition_indexes
                ],
            )
            for topic in body.topics
        ],
    )


def _describe_topic_partitions(
    body: describe_topic_partitions.DescribeTopicPartitionsRequest, failure: Failure
) -> describe_topic_partitions.DescribeTopicPartitionsResponse:
    return describe_topic_partitions.DescribeTopicPartitionsResponse(
        throttle_time_ms=failure.throttle_time_ms,
        topics=[
            describe_topic_partitions.DescribeTopicPartitionsResponseTopic(error_code=failure.error, name=topic.name)
            for topic in body.topics
        ],
    )


def _alter_replica_log_dirs(
    body: alter_replica_log_dirs.AlterReplicaLogDirsRequest, failure: Failure
) -> alter_replica_log_dirs.AlterReplicaLogDirsResponse:
    return alter_replica_log_dirs.AlterReplicaLogDirsResponse(
        throttle_time_ms=failure.throttle_time_ms,
        results=[
            alter_replica_log_dirs.AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    alter_replica_log_dirs.AlterReplicaLogDirPartitionResult(
                        partition_index=partition, error_code=failure.error
                    )
                    for partition in topic.partitions
                ],
            )
            for directory in body.dirs
            for topic in directory.topics
        ],
    )


RESPONSES: dict[ApiKey, ResponseTo] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: _metadata,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs,
}
