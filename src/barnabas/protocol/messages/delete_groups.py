"""DeleteGroups (API 42): deletes groups of any type, with their committed offsets.

Sent to the coordinator of each group. A group must be empty (NON_EMPTY_GROUP); GROUP_ID_NOT_FOUND if it does not exist.
For a share group, the delivery state in the share coordinators is deleted as well.

Versions: v1 client-side throttling (KIP-219); v2 flexible; v3 an error message per group, with GROUP_DELETION_FAILED.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class DeleteGroupsRequest(Request, api_key=ApiKey.DELETE_GROUPS):
    groups_names: list[str] = array("string", default_factory=list)


class DeletableGroupResult(Struct):
    group_id: str = string(default="")
    error_code: int = int16(default=0)
    error_message: str | None = string("3+", default=None, nullable="3+", ignorable=True)


class DeleteGroupsResponse(Response, api_key=ApiKey.DELETE_GROUPS):
    throttle_time_ms: int = int32(default=0)
    results: list[DeletableGroupResult] = array(DeletableGroupResult, default_factory=list)
