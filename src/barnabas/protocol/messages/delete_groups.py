"""DOC DeleteGroups."""

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
