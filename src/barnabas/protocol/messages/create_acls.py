"""DOC CreateAcls."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int8, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class AclCreation(Struct):
    resource_type: int = int8(default=0)
    resource_name: str = string(default="")
    resource_pattern_type: int = int8("1+", default=3)
    principal: str = string(default="")
    host: str = string(default="")
    operation: int = int8(default=0)
    permission_type: int = int8(default=0)


class CreateAclsRequest(Request, api_key=ApiKey.CREATE_ACLS):
    creations: list[AclCreation] = array(AclCreation, default_factory=list)


class AclCreationResult(Struct):
    error_code: int = int16(default=0)
    error_message: str | None = string(default="", nullable="0+")


class CreateAclsResponse(Response, api_key=ApiKey.CREATE_ACLS):
    throttle_time_ms: int = int32(default=0)
    results: list[AclCreationResult] = array(AclCreationResult, default_factory=list)
