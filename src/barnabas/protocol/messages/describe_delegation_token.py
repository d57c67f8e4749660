"""DescribeDelegationToken (API 41): lists delegation tokens (KIP-48).

``owners`` null lists every token the caller may see (its own, those it may renew, those it has permission for); an
empty list finds nothing. The hmac, the secret itself, is part of the response.

Versions: v1 client-side throttling (KIP-219); v2 flexible; v3 the requester of the token, which may not be its owner
(KIP-373).
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, binary, int16, int32, int64, string
from barnabas.protocol.message import Request, Response, Struct


class DescribeDelegationTokenOwner(Struct):
    principal_type: str = string(default="")
    principal_name: str = string(default="")


class DescribeDelegationTokenRequest(Request, api_key=ApiKey.DESCRIBE_DELEGATION_TOKEN):
    owners: list[DescribeDelegationTokenOwner] | None = array(
        DescribeDelegationTokenOwner, default_factory=list, nullable="0+"
    )


class DescribedDelegationTokenRenewer(Struct):
    principal_type: str = string(default="")
    principal_name: str = string(default="")


class DescribedDelegationToken(Struct):
    principal_type: str = string(default="")
    principal_name: str = string(default="")
    token_requester_principal_type: str = string("3+", default="")
    token_requester_principal_name: str = string("3+", default="")
    issue_timestamp: int = int64(default=0)
    expiry_timestamp: int = int64(default=0)
    max_timestamp: int = int64(default=0)
    token_id: str = string(default="")
    hmac: bytes = binary(default=b"")
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer, default_factory=list)


class DescribeDelegationTokenResponse(Response, api_key=ApiKey.DESCRIBE_DELEGATION_TOKEN):
    error_code: int = int16(default=0)
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken, default_factory=list)
    throttle_time_ms: int = int32(default=0)
