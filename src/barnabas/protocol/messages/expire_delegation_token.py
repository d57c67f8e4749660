"""ExpireDelegationToken (API 40): ends a delegation token early, or sets its expiry (KIP-48).

Forwarded to the controller; allowed to the token's owner and its renewers. A negative period removes the token now.
Otherwise it expires that many milliseconds from now, but never after its maximum lifetime. Connections authenticated
with the token stay open until they have to authenticate again.

Versions: v1 client-side throttling (KIP-219); v2 flexible.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import binary, int16, int32, int64
from barnabas.protocol.message import Request, Response


class ExpireDelegationTokenRequest(Request, api_key=ApiKey.EXPIRE_DELEGATION_TOKEN):
    hmac: bytes = binary(default=b"")
    expiry_time_period_ms: int = int64(default=0)


class ExpireDelegationTokenResponse(Response, api_key=ApiKey.EXPIRE_DELEGATION_TOKEN):
    error_code: int = int16(default=0)
    expiry_timestamp_ms: int = int64(default=0)
    throttle_time_ms: int = int32(default=0)
