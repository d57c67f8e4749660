"""DOC ListGroups."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class ListGroupsRequest(Request, api_key=ApiKey.LIST_GROUPS):
    states_filter: list[str] = array("string", "4+", default_factory=list)
    types_filter: list[str] = array("string", "5+", default_factory=list)


class ListedGroup(Struct):
    group_id: str = string(default="")
    protocol_type: str = string(default="")
    group_state: str = string("4+", default="", ignorable=True)
    group_type: str = string("5+", default="", ignorable=True)


class ListGroupsResponse(Response, api_key=ApiKey.LIST_GROUPS):
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16(default=0)
    groups: list[ListedGroup] = array(ListedGroup, default_factory=list)
