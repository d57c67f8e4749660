"""The listeners of a node, as it registers them."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.network.server.endpoint import Endpoint
from barnabas.protocol.messages.broker_registration import Listener


def registered_listeners(endpoints: Iterable[Endpoint]) -> list[Listener]:
    return [
        Listener(name=one.listener_name, host=one.host, port=one.port, security_protocol=one.security_protocol)
        for one in endpoints
    ]
