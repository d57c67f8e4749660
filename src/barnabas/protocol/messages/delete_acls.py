"""DeleteAcls (API 31): removes every access control entry that matches one of the filters.

Forwarded to the controller. A null name, principal or host in a filter matches all; so does code 1 (any) for the codes,
which are listed in :mod:`~barnabas.protocol.messages.create_acls`. Pattern type 2 (match) finds every entry that
applies to the named resource: the literal entry, the wildcard and all matching prefixes. The response has one result
per filter, in order, with the deleted entries.

Versions: v1 resource pattern types (KIP-290); v2 flexible; v3 the user resource (KIP-373).
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int8, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class DeleteAclsFilter(Struct):
    resource_type_filter: int = int8(default=0)
    resource_name_filter: str | None = string(default="", nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string(default="", nullable="0+")
    host_filter: str | None = string(default="", nullable="0+")
    operation: int = int8(default=0)
    permission_type: int = int8(default=0)


class DeleteAclsRequest(Request, api_key=ApiKey.DELETE_ACLS):
    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter, default_factory=list)


class DeleteAclsMatchingAcl(Struct):
    error_code: int = int16(default=0)
    error_message: str | None = string(default="", nullable="0+")
    resource_type: int = int8(default=0)
    resource_name: str = string(default="")
    pattern_type: int = int8("1+", default=3)
    principal: str = string(default="")
    host: str = string(default="")
    operation: int = int8(default=0)
    permission_type: int = int8(default=0)


class DeleteAclsFilterResult(Struct):
    error_code: int = int16(default=0)
    error_message: str | None = string(default="", nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl, default_factory=list)


class DeleteAclsResponse(Response, api_key=ApiKey.DELETE_ACLS):
    throttle_time_ms: int = int32(default=0)
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult, default_factory=list)
