"""DescribeAcls (API 29): lists the access control entries that match a filter.

Any broker or controller responds from its own metadata. Filter fields work as in DeleteAcls: null or code 1 matches
anything, pattern type 2 finds everything that applies to the named resource. Entries come grouped by resource.
SECURITY_DISABLED means that the cluster runs no authorizer, which is different from having no entries.

Versions: v1 resource pattern types (KIP-290); v2 flexible; v3 the user resource (KIP-373).
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int8, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class DescribeAclsRequest(Request, api_key=ApiKey.DESCRIBE_ACLS):
    resource_type_filter: int = int8(default=0)
    resource_name_filter: str | None = string(default="", nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string(default="", nullable="0+")
    host_filter: str | None = string(default="", nullable="0+")
    operation: int = int8(default=0)
    permission_type: int = int8(default=0)


class AclDescription(Struct):
    principal: str = string(default="")
    host: str = string(default="")
    operation: int = int8(default=0)
    permission_type: int = int8(default=0)


class DescribeAclsResource(Struct):
    resource_type: int = int8(default=0)
    resource_name: str = string(default="")
    pattern_type: int = int8("1+", default=3)
    acls: list[AclDescription] = array(AclDescription, default_factory=list)


class DescribeAclsResponse(Response, api_key=ApiKey.DESCRIBE_ACLS):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default="", nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource, default_factory=list)
