"""Delegation tokens: HMAC, SCRAM credentials, and who may request and describe them."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.config_def import Password
from barnabas.common.errors import InvalidRequestError
from barnabas.metadata.delegation_tokens import DelegationToken
from barnabas.network.server.endpoint import SecurityProtocol
from barnabas.protocol.api_keys import ApiKey
from barnabas.security.acl import AclOperation, ResourceType, acl
from barnabas.security.auth_helper import AuthHelper
from barnabas.security.principal import ANONYMOUS, KafkaPrincipal
from barnabas.security.request_context import RequestContext
from barnabas.security.sasl import scram
from barnabas.security.standard_authorizer import StandardAuthorizer
from barnabas.security.tokens import (
    DelegationTokenCache,
    allows_token_requests,
    describable_tokens,
    may_create_token,
    token_hmac,
    token_owner,
)

pytestmark = pytest.mark.mechanism("A08")

KEY = Password("correct horse")
ALICE = KafkaPrincipal("User", "alice")
TOKEN = DelegationToken("id-1", "User:alice", "User:service", ("User:renewer",), 0, 2_000, 1_000)


def context(
    principal: KafkaPrincipal = ALICE, protocol: SecurityProtocol = SecurityProtocol.SASL_PLAINTEXT
) -> RequestContext:
    return RequestContext(principal, "127.0.0.1", "SASL", protocol, ApiKey.DESCRIBE_DELEGATION_TOKEN, 3)


def cache(*tokens: DelegationToken, key: Password | None = KEY, now_ms: int = 0) -> DelegationTokenCache:
    clock = MockClock(now_ms)
    present = {token.token_id: token for token in tokens}
    made = DelegationTokenCache(key, lambda: present, clock)
    made.update(present)
    return made


def test_the_hmac_is_hmac_sha_512_of_the_token_id() -> None:
    expected = hmac.new(b"correct horse", b"id-1", hashlib.sha512).digest()
    assert token_hmac(KEY, "id-1") == expected
    assert len(expected) == 64
    assert token_hmac(Password("another key"), "id-1") != expected


@pytest.mark.parametrize(("mechanism", "algorithm"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")])
def test_the_holder_of_the_hmac_passes_scram(mechanism: str, algorithm: str) -> None:
    tokens = cache(TOKEN)
    found = tokens.credential(mechanism, "id-1")
    assert found is not None
    credential = found.credential
    assert credential is not None
    password = base64.b64encode(token_hmac(KEY, "id-1"))
    salted = hashlib.pbkdf2_hmac(algorithm, password, credential.salt, credential.iterations)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    assert hashlib.new(algorithm, client_key).digest() == credential.stored_key
    assert hmac.digest(salted, b"Server Key", algorithm) == credential.server_key
    assert credential.iterations == 4096
    again = tokens.credential(mechanism, "id-1")
    assert again is not None
    assert again.credential is credential, "derived once"
    assert (found.owner, found.expiry_ms) == (ALICE.name, 1_000)


def test_the_credentials_of_two_mechanisms_differ() -> None:
    tokens = cache(TOKEN)
    first, second = tokens.credential("SCRAM-SHA-256", "id-1"), tokens.credential("SCRAM-SHA-512", "id-1")
    assert first is not None
    assert second is not None
    assert first.credential.salt != second.credential.salt


def test_a_token_that_has_expired_or_is_unknown_has_no_credential() -> None:
    assert cache(TOKEN, now_ms=1_000).credential("SCRAM-SHA-256", "id-1") is not None
    late = cache(TOKEN, now_ms=1_001)
    assert late.credential("SCRAM-SHA-256", "id-1") is None
    assert cache(TOKEN).credential("SCRAM-SHA-256", "id-2") is None
    assert cache(TOKEN, key=None).credential("SCRAM-SHA-256", "id-1") is None


def test_a_removed_token_has_no_credential_although_it_was_used() -> None:
    present = {"id-1": TOKEN}
    tokens = DelegationTokenCache(KEY, lambda: present, MockClock(0))
    tokens.update(present)
    assert tokens.credential("SCRAM-SHA-256", "id-1") is not None
    tokens.update({"id-1": None})
    assert tokens.credential("SCRAM-SHA-256", "id-1") is None, "also before the metadata cache knows"
    tokens.update(present)
    present.clear()
    assert tokens.credential("SCRAM-SHA-256", "id-1") is None


def test_authenticating_with_a_token_derives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network thread asks for the credential; deriving one takes milliseconds."""
    tokens = cache(TOKEN)
    monkeypatch.setattr(scram, "salted_password", lambda *_: pytest.fail("derived on a network thread"))
    assert tokens.credential("SCRAM-SHA-256", "id-1") is not None
    assert tokens.credential("SCRAM-SHA-512", "id-1") is not None
    tokens.update({"id-1": TOKEN})  # renewed


def test_secrets_are_not_in_the_repr() -> None:
    credential = cache(TOKEN).credential("SCRAM-SHA-256", "id-1")
    assert "ScramCredential(iterations=4096)" in repr(credential)


@pytest.mark.parametrize(
    ("principal", "protocol", "allowed"),
    [
        (ALICE, SecurityProtocol.SASL_PLAINTEXT, True),
        (ALICE, SecurityProtocol.SASL_SSL, True),
        (ALICE, SecurityProtocol.SSL, True),
        (ANONYMOUS, SecurityProtocol.SSL, False),
        (ANONYMOUS, SecurityProtocol.PLAINTEXT, False),
        (ALICE, SecurityProtocol.PLAINTEXT, False),
        (KafkaPrincipal("User", "alice", True), SecurityProtocol.SASL_SSL, False),
    ],
)
def test_which_connections_may_request_tokens(
    principal: KafkaPrincipal, protocol: SecurityProtocol, allowed: bool
) -> None:
    assert allows_token_requests(context(principal, protocol)) is allowed


def test_a_forwarded_request_is_judged_by_its_principal_only() -> None:
    assert allows_token_requests(context(ALICE, SecurityProtocol.PLAINTEXT), is_forwarded=True)
    token_holder = KafkaPrincipal("User", "alice", True)
    assert not allows_token_requests(context(token_holder, SecurityProtocol.SASL_SSL), is_forwarded=True)


def test_who_owns_a_new_token() -> None:
    assert token_owner(context(), None, None) == ALICE
    assert token_owner(context(), "User", "") == ALICE
    assert token_owner(context(), "User", "bob") == KafkaPrincipal("User", "bob")
    with pytest.raises(InvalidRequestError, match="no principal type"):
        token_owner(context(), None, "bob")


def test_tokens_for_others_need_create_tokens_on_the_user() -> None:
    bob = KafkaPrincipal("User", "bob")
    nobody = AuthHelper(StandardAuthorizer([]))
    assert may_create_token(nobody, context(), ALICE)
    assert not may_create_token(nobody, context(), bob)
    allowed = AuthHelper(
        StandardAuthorizer([acl("User:alice", AclOperation.CREATE_TOKENS, ResourceType.USER, "User:bob")])
    )
    assert may_create_token(allowed, context(), bob)
    assert not may_create_token(allowed, context(), KafkaPrincipal("User", "carol"))


@pytest.mark.parametrize(
    ("principal", "right", "visible"),
    [
        ("alice", None, True),
        ("service", None, True),
        ("renewer", None, True),
        ("eve", None, False),
        ("eve", (AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, "id-1"), True),
        ("eve", (AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, "id-2"), False),
        ("eve", (AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "User:alice"), True),
        ("eve", (AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "User:service"), False),
        ("eve", (AclOperation.CREATE_TOKENS, ResourceType.USER, "User:alice"), False),
    ],
)
def test_who_sees_a_token(principal: str, right: tuple[AclOperation, ResourceType, str] | None, visible: bool) -> None:
    who = KafkaPrincipal("User", principal)
    auth = AuthHelper(StandardAuthorizer([acl(str(who), *right)] if right else []))
    found = describable_tokens(auth, context(who), [TOKEN], None)
    assert bool(found) is visible


def test_only_tokens_of_the_named_owners() -> None:
    auth = AuthHelper(StandardAuthorizer([]))
    for owner, found in (("alice", 1), ("renewer", 1), ("service", 1), ("bob", 0)):
        assert len(describable_tokens(auth, context(), [TOKEN], [KafkaPrincipal("User", owner)])) == found
    assert describable_tokens(auth, context(), [TOKEN], []) == []
