"""CreateAcls (API 30): adds access control entries.

Forwarded to the controller. An entry reads "*principal*, from *host*, is *allowed or denied* an *operation* on a
*resource*". The principal is ``User:alice`` or ``User:*``; the host is an address or ``*``. Results carry no names:
they are in the order of the request. Adding an existing entry succeeds. SECURITY_DISABLED means that the cluster has no
authorizer.

The codes, here and in DescribeAcls and DeleteAcls:

- resource: 2 topic, 3 group, 4 cluster (its name is ``kafka-cluster``), 5 transactional id, 6 delegation token, 7
  user
- pattern: 3 literal, 4 prefixed; in filters also 1 any and 2 match, "every pattern that covers this name"
- operation: 2 all, 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe, 9 cluster action, 10 describe configs,
  11 alter configs, 12 idempotent write, 13 create tokens, 14 describe tokens
- permission: 2 deny, 3 allow
- 1 is "any" in each of them and belongs in filters only; 0 is unknown and refused

Versions: v1 resource pattern types (KIP-290); v2 flexible; v3 the user resource (KIP-373).
"""

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
