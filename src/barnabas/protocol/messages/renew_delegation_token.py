"""RenewDelegationToken (API 39): extends the expiry of a delegation token (KIP-48).

Forwarded to the controller; allowed to the token's owner and its renewers (DELEGATION_TOKEN_OWNER_MISMATCH). The new
expiry is ``renew_period_ms`` from now, at most ``delegation.token.expiry.time.ms`` (also the value for a period of 0 or
less), and never after the maximum lifetime. An expired token cannot be renewed (DELEGATION_TOKEN_EXPIRED).

Versions: v1 client-side throttling (KIP-219); v2 flexible.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import binary, int16, int32, int64
from barnabas.protocol.message import Request, Response


class RenewDelegationTokenRequest(Request, api_key=ApiKey.RENEW_DELEGATION_TOKEN):
    hmac: bytes = binary(default=b"")
    renew_period_ms: int = int64(default=0)


class RenewDelegationTokenResponse(Response, api_key=ApiKey.RENEW_DELEGATION_TOKEN):
    error_code: int = int16(default=0)
    expiry_timestamp_ms: int = int64(default=0)
    throttle_time_ms: int = int32(default=0)
