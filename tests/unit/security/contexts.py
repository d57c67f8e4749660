"""Contexts of requests that never came."""

from __future__ import annotations

from barnabas.network.server.endpoint import SecurityProtocol
from barnabas.protocol.api_keys import ApiKey
from barnabas.security.principal import KafkaPrincipal
from barnabas.security.request_context import RequestContext


def context_of(
    principal: str = "User:alice", host: str = "192.0.2.7", api_key: ApiKey = ApiKey.FETCH
) -> RequestContext:
    return RequestContext(
        KafkaPrincipal.parse(principal), host, "PLAINTEXT", SecurityProtocol.PLAINTEXT, api_key, 13, "client-1", 42
    )
