"""Error responses of the share group APIs: offsets and the share coordinator's state."""

from __future__ import annotations

from typing import Any

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Request, Response, Struct
from barnabas.protocol.messages import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
)
from barnabas.server.error_responses.failure import Failure, ResponseTo

_STATE_WITHOUT_MESSAGE = frozenset({ApiKey.INITIALIZE_SHARE_GROUP_STATE, ApiKey.DELETE_SHARE_GROUP_STATE})


def _describe_offsets(
    body: describe_share_group_offsets.DescribeShareGroupOffsetsRequest, failure: Failure
) -> describe_share_group_offsets.DescribeShareGroupOffsetsResponse:
    return describe_share_group_offsets.DescribeShareGroupOffsetsResponse(
        throttle_time_ms=failure.throttle_time_ms,
        groups=[
            describe_share_group_offsets.DescribeShareGroupOffsetsResponseGroup(
                group_id=group.group_id, error_code=failure.error, error_message=failure.full_message
            )
            for group in body.groups
        ],
    )


def _alter_offsets(
    _: alter_share_group_offsets.AlterShareGroupOffsetsRequest, failure: Failure
) -> alter_share_group_offsets.AlterShareGroupOffsetsResponse:
    return alter_share_group_offsets.AlterShareGroupOffsetsResponse(
        throttle_time_ms=failure.throttle_time_ms,
        error_code=failure.error,
        error_message=failure.usual_message,
    )


def _delete_offsets(
    _: delete_share_group_offsets.DeleteShareGroupOffsetsRequest, failure: Failure
) -> delete_share_group_offsets.DeleteShareGroupOffsetsResponse:
    return delete_share_group_offsets.DeleteShareGroupOffsetsResponse(
        throttle_time_ms=failure.throttle_time_ms,
        error_code=failure.error,
        error_message=failure.usual_message,
    )


def _element(struct: type[Struct], name: str) -> Any:
    return next(field.element for field in struct.fields if field.name == name)


def _state(body: Request, failure: Failure) -> Response:
    """Serves the five state APIs, which share one form: topic ids, and partitions with a code and maybe a message."""
    asked: Any = body
    topic_result = _element(body.api_key.response, "results")
    partition_result = _element(topic_result, "partitions")
    message = None if body.api_key in _STATE_WITHOUT_MESSAGE else failure.usual_message
    response: Any = body.api_key.response()
    response.results = [
        topic_result(
            topic_id=topic.topic_id,
            partitions=[
                partition_result(partition=partition.partition, error_code=failure.error, error_message=message)
                for partition in topic.partitions
            ],
        )
        for topic in asked.topics
    ]
    made: Response = response
    return made


RESPONSES: dict[ApiKey, ResponseTo] = {
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _describe_offsets,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _alter_offsets,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _delete_offsets,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _state,
    ApiKey.READ_SHARE_GROUP_STATE: _state,
    ApiKey.WRITE_SHARE_GROUP_STATE: _state,
    ApiKey.DELETE_SHARE_GROUP_STATE: _state,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _state,
}
