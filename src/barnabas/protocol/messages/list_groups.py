"""ListGroups (API 16): lists the groups that one broker coordinates.

Each broker knows its own groups only; an administrator asks all of them and merges the results. Filters are names,
ignoring case; empty means no filter. Types: Classic, Consumer, Share, Streams. A classic group that has committed
offsets but no members and no subscription has an empty protocol type.

Versions: v1 throttle time; v2 client-side throttling (KIP-219); v3 flexible; v4 states (KIP-518); v5 types (KIP-848).
"""

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
