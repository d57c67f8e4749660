"""Produce quotas of a running broker, for clients that open a connection for each request."""

from __future__ import annotations

import time

from benchmarks.waiting import until
from benchmarks.wire_client import WireClient

from barnabas import EmbeddedBroker
from barnabas.common.errors import Errors
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
    RequestEntryData,
)

LIMIT = 20_000
SIZE = 60_000
THROTTLED_S = 2.0
"""(60,000 - 20,000) / 20,000 x 1 s, with two windows of a second."""
LIMIT_S = 60
CLIENT_ID = "wire"


def test_a_new_connection_waits_for_its_entity() -> None:
    with EmbeddedBroker(overrides={"quota.window.num": 2}) as broker:
        with WireClient(broker.bootstrap_servers) as client:
            client.create_topic("orders", 1)
            entity = [EntityData(entity_type="client-id", entity_name=CLIENT_ID)]
            limits = [OpData(key="producer_byte_rate", value=float(LIMIT))]
            entries = [RequestEntryData(entity=entity, ops=limits)]
            client.ask(AlterClientQuotasRequest(entries=entries), 1, AlterClientQuotasResponse)
            assert broker.server.broker is not None
            quotas = broker.server.broker.quotas
            assert quotas is not None
            until(lambda: quotas.produce.is_enabled, "the quota", LIMIT_S)
        with WireClient(broker.bootstrap_servers) as first:
            started = time.monotonic()
            assert first.produce("orders", 0, bytes(SIZE)) == (Errors.NONE, 0)
        with WireClient(broker.bootstrap_servers) as second:
            # It asks other things at once, and its first records go in when the throttle time of the entity is over.
            assert second.fetch("orders", 0)[0] is Errors.NONE
            assert second.produce("orders", 0, b"x") == (Errors.NONE, 1)
            ended = time.monotonic()
            assert ended - started > THROTTLED_S
        with WireClient(broker.bootstrap_servers) as third:
            assert len(third.fetch("orders", 0)[1]) == 2
