"""The controller's dispatcher over a controller that a test steps by hand; no sockets, no threads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from barnabas.common.errors import ThrottlingQuotaExceededError
from barnabas.controller.controller_apis import (
    ControllerApis,
    ControllerApisConfig,
    ControllerApisPlugins,
    make_controller_apis,
)
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import EMPTY_IMAGE
from barnabas.metadata.provenance import MetadataProvenance
from barnabas.protocol.framing import encode_request
from barnabas.protocol.internal.metadata import BeginTransactionRecord, EndTransactionRecord
from barnabas.protocol.message import Request as RequestBody
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.security.acl import AclBinding
from barnabas.security.auth_helper import AuthHelper
from barnabas.security.authorizer import Authorizer
from barnabas.security.principal import KafkaPrincipal, serialize_principal
from barnabas.security.standard_authorizer import StandardAuthorizer
from barnabas.server.request import Request
from barnabas.server.throttling import NO_QUOTAS, QuotaManagers
from handler_fixtures import HandlerBench, decode_response
from unit.controller.harness import Harness

ALICE = KafkaPrincipal("User", "alice")
BROKER = KafkaPrincipal("User", "broker-1")
ADMIN = KafkaPrincipal("User", "admin")


def authorizer(*acls: AclBinding) -> StandardAuthorizer:
    """Decides by these ACLs; the administrator may do everything."""
    made = StandardAuthorizer(acls)
    made.configure({"super.users": str(ADMIN)})
    return made


def envelope_of(body: RequestBody, version: int, client: KafkaPrincipal = ALICE) -> EnvelopeRequest:
    """A request of a client as its broker forwards it."""
    return EnvelopeRequest(
        request_data=encode_request(body, version, 99, "client")[4:],
        request_principal=serialize_principal(client),
        client_host_address=bytes([192, 0, 2, 7]),
    )


class ApisBench:
    """A controller with one broker, and its dispatcher."""

    def __init__(
        self,
        *,
        authorizer: Authorizer | None = None,
        config: ControllerApisConfig | None = None,
        plugins: ControllerApisPlugins | None = None,
        quotas: QuotaManagers = NO_QUOTAS,
        brokers: Iterable[int] = (1,),
        **settings: Any,
    ) -> None:
        self.harness = Harness(**settings)
        self.harness.add_brokers(*brokers)
        self.bench = HandlerBench(quotas, self.harness.clock)
        self.cache = MetadataCache()
        self.apis: ControllerApis = make_controller_apis(
            self.harness.controller,
            self.bench.helper,
            AuthHelper(authorizer),
            self.cache,
            lambda: self.harness.raft.leader_and_epoch.leader_id,
            config,
            plugins,
            clock=self.harness.clock,
        )

    def publish(self) -> None:
        """Lets the cache have all that is in the log."""
        self.harness.step()
        self.harness._mark = 0
        delta = MetadataDelta(EMPTY_IMAGE)
        for record in self.harness.written():
            if not isinstance(record, BeginTransactionRecord | EndTransactionRecord):
                delta.replay(record)
        offset = self.harness.raft.log_end_offset - 1
        self.cache.set_image(delta.apply(MetadataProvenance(offset, 1, 0, True)))

    def send(self, body: RequestBody, version: int, principal: KafkaPrincipal | None = None) -> Request:
        """Has a request handled as far as that goes without the controller's thread."""
        request = self.bench.request(body, version, principal=principal)
        self.apis.handle(request, self.bench.local)
        request.release_buffer()
        return request

    def ask(self, body: RequestBody, version: int, principal: KafkaPrincipal | None = None) -> Any:
        request = self.send(body, version, principal)
        self.harness.step()
        return self.bench.answer(request)

    def forward(
        self, body: RequestBody, version: int, client: KafkaPrincipal = ALICE, broker: KafkaPrincipal = BROKER
    ) -> EnvelopeResponse:
        """The response to the same request in an Envelope."""
        request = self.bench.request(envelope_of(body, version, client), 0, principal=broker)
        before = self.bench.processor.responses.qsize()
        self.apis.handle(request, self.bench.local)
        request.release_buffer()
        self.harness.step()
        sent = list(self.bench.processor.responses.queue)[before:]
        assert len(sent) == 1
        return decode_response(sent[0], EnvelopeResponse, 0)


class CountedQuota:
    """A mutation quota of so many partitions; a strict one says no."""

    def __init__(self, permits: int, *, strict: bool, throttle_time_ms: int = 0) -> None:
        self.permits = float(permits)
        self.strict = strict
        self.throttle_time_ms = throttle_time_ms

    @property
    def is_exceeded(self) -> bool:
        return self.permits < 0

    def record(self, permits: float) -> None:
        if self.strict and permits > self.permits:
            raise ThrottlingQuotaExceededError("too many partitions", throttle_time_ms=1000)
        self.permits -= permits
