"""A broker's response for the batch of one partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.clients.common.metadata import LeaderIdAndEpoch
from barnabas.clients.producer.internals.produce_request_result import INVALID_OFFSET, RecordErrors
from barnabas.common.errors import (
    ApiError,
    BarnabasError,
    ClusterAuthorizationError,
    Errors,
    InvalidRecordError,
    TopicAuthorizationError,
)
from barnabas.protocol.messages.produce import PartitionProduceResponse
from barnabas.records.batch import NO_TIMESTAMP


class PartitionResult(NamedTuple):
    """The response for one partition, or a substitute when there was none."""

    error: Errors
    base_offset: int = INVALID_OFFSET
    log_append_time: int = NO_TIMESTAMP
    log_start_offset: int = INVALID_OFFSET
    message: str | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()
    leader: LeaderIdAndEpoch | None = None


def partition_result(row: PartitionProduceResponse) -> PartitionResult:
    if row.error_code == 0:
        return PartitionResult(Errors.NONE, row.base_offset, row.log_append_time_ms, row.log_start_offset)
    error = Errors.for_code(row.error_code)
    leader = row.current_leader
    known = leader is not None and leader.leader_id != -1 and leader.leader_epoch != -1
    moved = error in {Errors.NOT_LEADER_OR_FOLLOWER, Errors.FENCED_LEADER_EPOCH}
    return PartitionResult(
        error,
        row.base_offset,
        row.log_append_time_ms,
        row.log_start_offset,
        row.error_message,
        [(record.batch_index, record.batch_index_error_message) for record in row.record_errors],
        LeaderIdAndEpoch(leader.leader_id, leader.leader_epoch) if leader is not None and known and moved else None,
    )


def exception_of(topic: str, result: PartitionResult) -> ApiError:
    if result.error is Errors.TOPIC_AUTHORIZATION_FAILED:
        return TopicAuthorizationError(f"Not authorized to access topics: [{topic}]", unauthorized_topics=[topic])
    if result.error is Errors.CLUSTER_AUTHORIZATION_FAILED:
        return ClusterAuthorizationError("The producer is not authorized to do idempotent sends")
    error = result.error.to_exception(result.message)
    assert error is not None
    return error


def record_errors(result: PartitionResult) -> RecordErrors:
    """Returns the error of each record, if the broker named the invalid ones (KIP-467).

    Those have its message; the others failed only because they were in the same batch."""
    bad: dict[int, Exception] = {}
    for index, message in result.record_errors:
        text = message or result.message or result.error.message
        alone = result.error.to_exception(text) if len(result.record_errors) == 1 else None
        bad[index] = alone or InvalidRecordError(text)

    def error_of(index: int) -> Exception:
        return bad.get(index) or BarnabasError(
            "Failed to append record because it was part of a batch which had one or more invalid records"
        )

    return error_of
