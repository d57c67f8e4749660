"""Error responses of the APIs of the group and transaction coordinators."""

from __future__ import annotations

from typing import Any

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Request, Response
from barnabas.protocol.messages import (
    add_partitions_to_txn,
    delete_groups,
    describe_groups,
    describe_transactions,
    find_coordinator,
    init_producer_id,
    join_group,
    offset_commit,
    offset_fetch,
    txn_offset_commit,
    write_txn_markers,
)
from barnabas.server.error_responses.failure import Failure, ResponseTo, failed_topics

UNKNOWN = -1


def _find_coordinator(
    body: find_coordinator.FindCoordinatorRequest, failure: Failure
) -> find_coordinator.FindCoordinatorResponse:
    """From v4 on, each key has its own result. In both forms the address is that of no node."""
    response = find_coordinator.FindCoordinatorResponse(throttle_time_ms=failure.throttle_time_ms)
    if failure.version < 4:
        response.error_code = failure.error
        response.error_message = failure.usual_message
        response.node_id = response.port = UNKNOWN
    else:
        response.coordinators = [
            find_coordinator.Coordinator(
                key=key,
                node_id=UNKNOWN,
                port=UNKNOWN,
                error_code=failure.error,
                error_message=failure.usual_message,
            )
            for key in body.coordinator_keys
        ]
    return response


def _join_group(_: join_group.JoinGroupRequest, failure: Failure) -> join_group.JoinGroupResponse:
    return join_group.JoinGroupResponse(
        throttle_time_ms=failure.throttle_time_ms,
        error_code=failure.error,
        protocol_name=None if failure.version >= 7 else "",
    )


def _offset_commit(body: offset_commit.OffsetCommitRequest, failure: Failure) -> offset_commit.OffsetCommitResponse:
    return offset_commit.OffsetCommitResponse(
        throttle_time_ms=failure.throttle_time_ms,
        topics=failed_topics(
            body.topics,
            lambda topic, partitions: offset_commit.OffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=partitions
            ),
            lambda index: offset_commit.OffsetCommitResponsePartition(partition_index=index, error_code=failure.error),
        ),
    )


def _offset_fetch(body: offset_fetch.OffsetFetchRequest, failure: Failure) -> offset_fetch.OffsetFetchResponse:
    """Has three forms: a code per partition in v1, one code for the single group up to v7, one per group since v8."""
    response = offset_fetch.OffsetFetchResponse(throttle_time_ms=failure.throttle_time_ms)
    if failure.version >= 8:
        response.groups = [
            offset_fetch.OffsetFetchResponseGroup(group_id=group.group_id, error_code=failure.error)
            for group in body.groups
        ]
        return response
    response.error_code = failure.error
    if failure.version < 2:
        response.topics = [
            offset_fetch.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    offset_fetch.OffsetFetchResponsePartition(
                        partition_index=partition, committed_offset=UNKNOWN, error_code=failure.error
                    )
                    for partition in topic.partition_indexes
                ],
            )
            for topic in body.topics or ()
        ]
    return response


def _describe_groups(
    body: describe_groups.DescribeGroupsRequest, failure: Failure
) -> describe_groups.DescribeGroupsResponse:
    return describe_groups.DescribeGroupsResponse(
        throttle_time_ms=failure.throttle_time_ms,
        groups=[
            describe_groups.DescribedGroup(error_code=failure.error, group_id=group_id) for group_id in body.groups
        ],
    )


def _delete_groups(body: delete_groups.DeleteGroupsRequest, failure: Failure) -> delete_groups.DeleteGroupsResponse:
    return delete_groups.DeleteGroupsResponse(
        throttle_time_ms=failure.throttle_time_ms,
        results=[
            delete_groups.DeletableGroupResult(group_id=group_id, error_code=failure.error)
            for group_id in body.groups_names
        ],
    )


def _group_describe(body: Request, failure: Failure) -> Response:
    """Serves consumer, share and streams groups: their error responses have the same form."""
    asked: Any = body
    response: Any = body.api_key.response()
    response.throttle_time_ms = failure.throttle_time_ms
    described = next(field.element for field in response.fields if field.name == "groups")
    response.groups = [described(group_id=group_id, error_code=failure.error) for group_id in asked.group_ids]
    made: Response = response
    return made


def _init_producer_id(
    _: init_producer_id.InitProducerIdRequest, failure: Failure
) -> init_producer_id.InitProducerIdResponse:
    return init_producer_id.InitProducerIdResponse(
        throttle_time_ms=failure.throttle_time_ms,
        error_code=failure.error,
        producer_id=UNKNOWN,
        producer_epoch=UNKNOWN,
    )


def _add_partitions_to_txn(
    body: add_partitions_to_txn.AddPartitionsToTxnRequest, failure: Failure
) -> add_partitions_to_txn.AddPartitionsToTxnResponse:
    """From v4 on, the response has a top-level error code."""
    response = add_partitions_to_txn.AddPartitionsToTxnResponse(throttle_time_ms=failure.throttle_time_ms)
    if failure.version >= 4:
        response.error_code = failure.error
    else:
        response.results_by_topic_v3_and_below = [
            add_partitions_to_txn.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    add_partitions_to_txn.AddPartitionsToTxnPartitionResult(
                        partition_index=partition, partition_error_code=failure.error
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in body.v3_and_below_topics
        ]
    return response


def _txn_offset_commit(
    body: txn_offset_commit.TxnOffsetCommitRequest, failure: Failure
) -> txn_offset_commit.TxnOffsetCommitResponse:
    return txn_offset_commit.TxnOffsetCommitResponse(
        throttle_time_ms=failure.throttle_time_ms,
        topics=failed_topics(
            body.topics,
            lambda topic, partitions: txn_offset_commit.TxnOffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=partitions
            ),
            lambda index: txn_offset_commit.TxnOffsetCommitResponsePartition(
                partition_index=index, error_code=failure.error
            ),
        ),
    )


def _write_txn_markers(
    body: write_txn_markers.WriteTxnMarkersRequest, failure: Failure
) -> write_txn_markers.WriteTxnMarkersResponse:
    return write_txn_markers.WriteTxnMarkersResponse(
        markers=[
            write_txn_markers.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    write_txn_markers.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            write_txn_markers.WritableTxnMarkerPartitionResult(
                                partition_index=partition, error_code=failure.error
                            )
                            for partition in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in body.markers
        ],
    )


def _describe_transactions(
    body: describe_transactions.DescribeTransactionsRequest, failure: Failure
) -> describe_transactions.DescribeTransactionsResponse:
    return describe_transactions.DescribeTransactionsResponse(
        throttle_time_ms=failure.throttle_time_ms,
        transaction_states=[
            describe_transactions.TransactionState(error_code=failure.error, transactional_id=transactional_id)
            for transactional_id in body.transactional_ids
        ],
    )


RESPONSES: dict[ApiKey, ResponseTo] = {
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _group_describe,
    ApiKey.SHARE_GROUP_DESCRIBE: _group_describe,
    ApiKey.STREAMS_GROUP_DESCRIBE: _group_describe,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
}
