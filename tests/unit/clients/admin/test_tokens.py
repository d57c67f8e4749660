"""Delegation tokens through the admin client."""

from __future__ import annotations

from functools import partial

import pytest

from barnabas.clients.admin import DelegationToken, tokens
from barnabas.clients.testing import ScriptedCluster
from barnabas.common.errors import DelegationTokenOwnerMismatchError, Errors
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from barnabas.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from unit.clients.admin.scripted_admin import ScriptedAdmin

pytestmark = pytest.mark.mechanism("A08")


@pytest.fixture
def scripted() -> ScriptedAdmin:
    return ScriptedAdmin(ScriptedCluster({}, nodes=1), default_api_timeout_ms=10_000, request_timeout_ms=2_000)


def test_a_token_is_created(scripted: ScriptedAdmin) -> None:
    scripted.answer(
        ApiKey.CREATE_DELEGATION_TOKEN,
        CreateDelegationTokenResponse(
            principal_type="User",
            principal_name="bob",
            token_requester_principal_type="User",
            token_requester_principal_name="alice",
            issue_timestamp_ms=1,
            expiry_timestamp_ms=2,
            max_timestamp_ms=3,
            token_id="id",
            hmac=b"secret",
        ),
    )
    token = scripted.run(
        lambda op: tokens.create_delegation_token(op, owner="User:bob", renewers=["User:carol"], max_lifetime_ms=9)
    )
    assert token == DelegationToken("id", b"secret", "User:bob", "User:alice", ("User:carol",), 1, 2, 3)
    assert token.password == "c2VjcmV0"
    assert "secret" not in repr(token)
    [body] = scripted.cluster.requests(ApiKey.CREATE_DELEGATION_TOKEN)
    assert body == CreateDelegationTokenRequest(
        owner_principal_type="User",
        owner_principal_name="bob",
        renewers=[CreatableRenewers(principal_type="User", principal_name="carol")],
        max_lifetime_ms=9,
    )


def test_a_token_is_renewed_and_expired(scripted: ScriptedAdmin) -> None:
    scripted.answer(ApiKey.RENEW_DELEGATION_TOKEN, RenewDelegationTokenResponse(expiry_timestamp_ms=7))
    assert scripted.run(lambda op: tokens.renew_delegation_token(op, b"h", period_ms=5)) == 7
    assert scripted.cluster.requests(ApiKey.RENEW_DELEGATION_TOKEN) == [
        RenewDelegationTokenRequest(hmac=b"h", renew_period_ms=5)
    ]
    scripted.answer(ApiKey.EXPIRE_DELEGATION_TOKEN, ExpireDelegationTokenResponse(expiry_timestamp_ms=8))
    assert scripted.run(lambda op: tokens.expire_delegation_token(op, b"h")) == 8
    assert scripted.cluster.requests(ApiKey.EXPIRE_DELEGATION_TOKEN) == [
        ExpireDelegationTokenRequest(hmac=b"h", expiry_time_period_ms=-1)
    ]


def test_tokens_are_described(scripted: ScriptedAdmin) -> None:
    described = DescribedDelegationToken(
        principal_type="User",
        principal_name="bob",
        issue_timestamp=1,
        expiry_timestamp=2,
        max_timestamp=3,
        token_id="id",
        hmac=b"secret",
        renewers=[DescribedDelegationTokenRenewer(principal_type="User", principal_name="carol")],
    )
    for owners, expected in (
        (None, None),
        (["User:bob"], [DescribeDelegationTokenOwner(principal_type="User", principal_name="bob")]),
    ):
        scripted.answer(ApiKey.DESCRIBE_DELEGATION_TOKEN, DescribeDelegationTokenResponse(tokens=[described]))
        found = scripted.run(partial(tokens.describe_delegation_tokens, owners=owners))
        assert found == [DelegationToken("id", b"secret", "User:bob", "", ("User:carol",), 1, 2, 3)]
        assert scripted.cluster.requests(ApiKey.DESCRIBE_DELEGATION_TOKEN)[-1] == DescribeDelegationTokenRequest(
            owners=expected
        )


def test_a_refusal_is_an_exception(scripted: ScriptedAdmin) -> None:
    scripted.answer(
        ApiKey.RENEW_DELEGATION_TOKEN,
        RenewDelegationTokenResponse(error_code=Errors.DELEGATION_TOKEN_OWNER_MISMATCH),
    )
    with pytest.raises(DelegationTokenOwnerMismatchError):
        scripted.run(lambda op: tokens.renew_delegation_token(op, b"h"))


def test_a_principal_has_a_type(scripted: ScriptedAdmin) -> None:
    with pytest.raises(ValueError, match="User:alice"):
        scripted.run(lambda op: tokens.create_delegation_token(op, owner="bob"))
