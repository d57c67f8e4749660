"""A request that reached a scripted cluster, and what else becomes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from barnabas.protocol.headers import ParsedHeader
from barnabas.protocol.message import Request


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens to a request, besides being answered."""

    delay_ms: int = 0
    """The answer takes so long."""
    lose_request: bool = False
    """The connection breaks before the broker has seen it."""
    lose_answer: bool = False
    """The connection breaks after the broker has done it."""


class Handled(NamedTuple):
    """A request that has arrived."""

    node_id: int
    header: ParsedHeader
    body: Request
