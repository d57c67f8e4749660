"""SaslHandshake (API 17): picks the SASL mechanism of a connection.

Sent before SaslAuthenticate on listeners that use SASL. UNSUPPORTED_SASL_MECHANISM comes with the list of enabled
mechanisms.

Versions: v0 is followed by bare SASL tokens, each with a four-byte length and no Kafka header, so that the broker can
report a failure only by closing the connection; v1 by SaslAuthenticate requests (KIP-152). A v2 is unlikely: clients up
to 2.4 do not negotiate this API correctly (KAFKA-9577), which is also why it is not flexible.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, string
from barnabas.protocol.message import Request, Response


class SaslHandshakeRequest(Request, api_key=ApiKey.SASL_HANDSHAKE):
    mechanism: str = string(default="")


class SaslHandshakeResponse(Response, api_key=ApiKey.SASL_HANDSHAKE):
    error_code: int = int16(default=0)
    mechanisms: list[str] = array("string", default_factory=list)
