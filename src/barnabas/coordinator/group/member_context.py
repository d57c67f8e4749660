"""Who a request of a group's member comes from."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.security.request_context import AuthorizableRequestContext


class MemberContext(NamedTuple):
    """What groups want to know of a client, beyond its request."""

    client_id: str
    client_host: str
    """Its address as Java shows one, with a slash in front."""
    api_version: int
    authorization: AuthorizableRequestContext | None = None
    """For what is looked up in the client's name: the topics that match its regular expression."""
