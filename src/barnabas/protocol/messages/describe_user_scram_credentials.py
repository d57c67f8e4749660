"""DescribeUserScramCredentials (API 50): lists the users that have SCRAM credentials (KIP-554).

``users`` null or empty lists all. Mechanism (1 SCRAM-SHA-256, 2 SCRAM-SHA-512) and iterations are returned; salts and
keys are not. A user without credentials gets RESOURCE_NOT_FOUND, a user listed twice DUPLICATE_RESOURCE.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int8, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class UserName(Struct):
    name: str = string(default="")


class DescribeUserScramCredentialsRequest(Request, api_key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS):
    users: list[UserName] | None = array(UserName, default_factory=list, nullable="0+")


class CredentialInfo(Struct):
    mechanism: int = int8(default=0)
    iterations: int = int32(default=0)


class DescribeUserScramCredentialsResult(Struct):
    user: str = string(default="")
    error_code: int = int16(default=0)
    error_message: str | None = string(default="", nullable="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo, default_factory=list)


class DescribeUserScramCredentialsResponse(Response, api_key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default="", nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult, default_factory=list)
