"""Delegation tokens on a broker: what is refused here, what is forwarded, and what is described."""

from __future__ import annotations

from typing import Any, cast

import pytest

from barnabas.broker.handlers.delegation_tokens import DelegationTokensHandler
from barnabas.common.clock import MockClock
from barnabas.common.config_def import Password
from barnabas.common.errors import Errors
from barnabas.metadata.delegation_tokens import DelegationToken
from barnabas.network.server.endpoint import SecurityProtocol
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Request as RequestBody
from barnabas.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from barnabas.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from barnabas.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.security.acl import AclOperation, ResourceType
from barnabas.security.auth_helper import AuthHelper
from barnabas.security.principal import KafkaPrincipal
from barnabas.security.standard_authorizer import StandardAuthorizer
from barnabas.security.tokens import DelegationTokenCache, token_hmac
from handler_fixtures import HandlerBench
from unit.broker.handlers.data_bench import ALICE, acls

pytestmark = pytest.mark.mechanism("A08")

VERSIONS = range(
    ApiKey.DESCRIBE_DELEGATION_TOKEN.versions.lowest, ApiKey.DESCRIBE_DELEGATION_TOKEN.versions.highest + 1
)
KEY = Password("a key")
OWN = DelegationToken("own", str(ALICE), str(ALICE), ("User:bob", "User:carol"), 1, 3, 2)
FOREIGN = DelegationToken("foreign", "User:bob", "User:carol", (), 1, 3, 2)
HOLDER = KafkaPrincipal(ALICE.type, ALICE.name, token_authenticated=True)
FORWARDED: list[tuple[RequestBody, int]] = [
    (CreateDelegationTokenRequest(), 3),
    (RenewDelegationTokenRequest(), 2),
    (ExpireDelegationTokenRequest(), 2),
]


class Forwarding:
    def __init__(self) -> None:
        self.requests: list[Any] = []

    def forward(self, request: Any, _local: Any) -> None:
        self.requests.append(request)


class Bench:
    def __init__(self, auth: AuthHelper | None = None, key: Password | None = KEY) -> None:
        self.bench = HandlerBench()
        self.forwarding = Forwarding()
        tokens = DelegationTokenCache(key, lambda: {"own": OWN, "foreign": FOREIGN}, MockClock(0))
        self.handler = DelegationTokensHandler(
            self.bench.helper,
            auth or AuthHelper(StandardAuthorizer([])),
            cast("Any", self.forwarding),
            tokens,
        )

    def ask(
        self,
        body: RequestBody,
        version: int,
        principal: KafkaPrincipal = ALICE,
        protocol: SecurityProtocol = SecurityProtocol.SASL_PLAINTEXT,
    ) -> Any:
        """Returns the response, None if the request was forwarded."""
        request = self.bench.request(body, version, principal=principal)
        request.context.security_protocol = protocol
        self.bench.handle(self.handler, request)
        return None if request in self.forwarding.requests else self.bench.answer(request)


@pytest.mark.parametrize(("body", "version"), FORWARDED)
def test_an_authenticated_client_is_forwarded(body: RequestBody, version: int) -> None:
    assert Bench().ask(body, version) is None


@pytest.mark.parametrize(("body", "version"), FORWARDED)
@pytest.mark.parametrize(
    ("principal", "protocol"), [(ALICE, SecurityProtocol.PLAINTEXT), (HOLDER, SecurityProtocol.SASL_SSL)]
)
def test_others_are_refused_here(
    body: RequestBody, version: int, principal: KafkaPrincipal, protocol: SecurityProtocol
) -> None:
    bench = Bench()
    refused = bench.ask(body, version, principal, protocol)
    assert (refused.error_code, refused.expiry_timestamp_ms) == (Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, -1)
    assert not bench.forwarding.requests


def test_a_token_for_somebody_else() -> None:
    body = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="bob")
    refused = Bench().ask(body, 3)
    assert refused.error_code == Errors.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (refused.principal_name, refused.token_requester_principal_name) == ("bob", ALICE.name)
    allowed = acls((AclOperation.CREATE_TOKENS, ResourceType.USER, "User:bob"))
    assert Bench(allowed).ask(body, 3) is None


def test_a_renewer_of_an_unknown_type_is_refused_here() -> None:
    body = CreateDelegationTokenRequest(renewers=[CreatableRenewers(principal_type="Role", principal_name="x")])
    assert Bench().ask(body, 3).error_code == Errors.INVALID_PRINCIPAL_TYPE


@pytest.mark.parametrize("version", VERSIONS)
def test_own_tokens_are_described_with_their_secret(version: int) -> None:
    response = Bench().ask(DescribeDelegationTokenRequest(owners=None), version)
    assert response.error_code == Errors.NONE
    [token] = response.tokens
    assert (token.token_id, token.hmac) == ("own", token_hmac(KEY, "own"))
    assert (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp) == (1, 2, 3)
    assert [renewer.principal_name for renewer in token.renewers] == ["bob", "carol"]
    assert token.token_requester_principal_name == (ALICE.name if version >= 3 else "")


def test_tokens_of_others_need_a_right_and_owners_select() -> None:
    bench = Bench(acls((AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, "foreign")))
    everything = bench.ask(DescribeDelegationTokenRequest(owners=None), 3)
    assert [token.token_id for token in everything.tokens] == ["own", "foreign"]
    owner = DescribeDelegationTokenOwner(principal_type="User", principal_name="carol")
    of_carol = bench.ask(DescribeDelegationTokenRequest(owners=[owner]), 3)
    assert [token.token_id for token in of_carol.tokens] == ["own", "foreign"], "a renewer, and a requester"
    assert bench.ask(DescribeDelegationTokenRequest(owners=[]), 3).tokens == []


def test_describing_is_refused_like_the_rest() -> None:
    body = DescribeDelegationTokenRequest(owners=None)
    refused = Bench().ask(body, 3, protocol=SecurityProtocol.PLAINTEXT)
    assert (refused.error_code, refused.tokens) == (Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, [])
    assert Bench().ask(body, 3, HOLDER).error_code == Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert Bench(key=None).ask(body, 3).error_code == Errors.DELEGATION_TOKEN_AUTH_DISABLED
