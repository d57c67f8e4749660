"""The principal of a forwarded request, as it travels inside an Envelope.

The broker that authenticated the client serializes who it is; the controller that executes the request believes it.
The bytes are an int16 version and then this message. A cluster with its own principal builder uses its own format
instead, hence the broker treats it as opaque.
"""

from __future__ import annotations

from barnabas.protocol.fields import boolean, string
from barnabas.protocol.message import Message


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    """``token_authenticated``: by a delegation token, with which one may not create further tokens."""

    type: str = string(default="")
    name: str = string(default="")
    token_authenticated: bool = boolean(default=False)
