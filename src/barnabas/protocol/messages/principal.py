"""DOC principal."""

from __future__ import annotations

from barnabas.protocol.fields import boolean, string
from barnabas.protocol.message import Message


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    type: str = string(default="")
    name: str = string(default="")
    token_authenticated: bool = boolean(default=False)
