"""CreatePartitions (API 37): adds partitions to topics.

Forwarded to the controller. ``count`` is the total wanted, not the number to add, and can only grow. ``assignments``
places the *new* partitions only, in order; null leaves it to the controller. Afterwards keys hash to other partitions;
existing records do not move. ``validate_only`` checks without applying.

Versions: v1 client-side throttling (KIP-219); v2 flexible; v3 THROTTLING_QUOTA_EXCEEDED when the controller mutation
quota is used up (KIP-599).
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = array("int32", default_factory=list)


class CreatePartitionsTopic(Struct):
    name: str = string(default="")
    count: int = int32(default=0)
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, default_factory=list, nullable="0+"
    )


class CreatePartitionsRequest(Request, api_key=ApiKey.CREATE_PARTITIONS):
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic, default_factory=list)
    timeout_ms: int = int32(default=0)
    validate_only: bool = boolean(default=False)


class CreatePartitionsTopicResult(Struct):
    name: str = string(default="")
    error_code: int = int16(default=0)
    error_message: str | None = string(default=None, nullable="0+")


class CreatePartitionsResponse(Response, api_key=ApiKey.CREATE_PARTITIONS):
    throttle_time_ms: int = int32(default=0)
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult, default_factory=list)
