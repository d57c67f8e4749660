"""The sender of a request to a group."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.security.request_context import AuthorizableRequestContext


class MemberContext(NamedTuple):
    """The client of a request, as needed by groups."""

    client_id: str
    client_host: str
    """Its address in Java's format, with a leading slash."""
    api_version: int
    authorization: AuthorizableRequestContext | None = None
    """For lookups with the client's permissions: the topics that match its regular expression."""
