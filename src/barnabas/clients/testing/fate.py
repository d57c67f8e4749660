"""A request that reached a scripted cluster, and its injected failures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from barnabas.protocol.headers import ParsedHeader
from barnabas.protocol.message import Request


@dataclass(frozen=True, slots=True)
class Fate:
    """Delays and failures of a request."""

    delay_ms: int = 0
    """The delay of the response."""
    lose_request: bool = False
    """The connection breaks before the broker has received the request."""
    lose_response: bool = False
    """The connection breaks after the broker has executed the request."""


class Handled(NamedTuple):
    """A request that has arrived."""

    node_id: int
    header: ParsedHeader
    body: Request
