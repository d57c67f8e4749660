"""CreateDelegationToken (API 38): issues a token that authenticates on behalf of a principal (KIP-48).

Forwarded to the controller. The holder authenticates by SCRAM with ``token_id`` as the name and ``hmac`` as the
password. The hmac is therefore a secret; only this response and DescribeDelegationToken contain it. Two deadlines:
RenewDelegationToken can extend ``expiry_timestamp_ms``, but not ``max_timestamp_ms``. ``max_lifetime_ms`` -1 requests
the cluster's maximum.

DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: the connection is not authenticated, or was authenticated by a token.
DELEGATION_TOKEN_AUTH_DISABLED: the cluster has no secret key configured to sign tokens with.

Versions: v1 client-side throttling (KIP-219); v2 flexible; v3 a token for another owner, null for the requester, and
the requester in the response (KIP-373).
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, binary, int16, int32, int64, string
from barnabas.protocol.message import Request, Response, Struct


class CreatableRenewers(Struct):
    principal_type: str = string(default="")
    principal_name: str = string(default="")


class CreateDelegationTokenRequest(Request, api_key=ApiKey.CREATE_DELEGATION_TOKEN):
    owner_principal_type: str | None = string("3+", default="", nullable="3+")
    owner_principal_name: str | None = string("3+", default="", nullable="3+")
    renewers: list[CreatableRenewers] = array(CreatableRenewers, default_factory=list)
    max_lifetime_ms: int = int64(default=0)


class CreateDelegationTokenResponse(Response, api_key=ApiKey.CREATE_DELEGATION_TOKEN):
    error_code: int = int16(default=0)
    principal_type: str = string(default="")
    principal_name: str = string(default="")
    token_requester_principal_type: str = string("3+", default="")
    token_requester_principal_name: str = string("3+", default="")
    issue_timestamp_ms: int = int64(default=0)
    expiry_timestamp_ms: int = int64(default=0)
    max_timestamp_ms: int = int64(default=0)
    token_id: str = string(default="")
    hmac: bytes = binary(default=b"")
    throttle_time_ms: int = int32(default=0)
