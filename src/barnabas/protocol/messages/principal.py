"""The principal of a forwarded request, as serialized in an Envelope.

The broker that authenticated the client serializes its principal; the controller that executes the request trusts it.
The bytes are an int16 version and this message. A cluster with a custom principal builder uses its own format instead,
so the broker treats the bytes as opaque.
"""

from __future__ import annotations

from barnabas.protocol.fields import boolean, string
from barnabas.protocol.message import Message


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    """``token_authenticated``: authenticated by a delegation token, which may not create further tokens."""

    type: str = string(default="")
    name: str = string(default="")
    token_authenticated: bool = boolean(default=False)
