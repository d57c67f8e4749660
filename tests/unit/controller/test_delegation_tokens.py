"""Delegation tokens on the controller: created, renewed, expired, removed, and refused."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.config_def import Password
from barnabas.common.errors import Errors
from barnabas.controller.bootstrap import BootstrapMetadata
from barnabas.controller.delegation_token_control_manager import DelegationTokenConfig
from barnabas.metadata.metadata_version import MetadataVersion
from barnabas.network.server.endpoint import SecurityProtocol
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.internal.metadata import DelegationTokenRecord, RemoveDelegationTokenRecord
from barnabas.protocol.message import Request as RequestBody
from barnabas.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from barnabas.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.security.acl import AclOperation, ResourceType, acl
from barnabas.security.principal import KafkaPrincipal
from barnabas.security.tokens import token_hmac
from local_raft_client import MemoryLog
from unit.controller.apis_bench import ALICE, ApisBench, authorizer
from unit.controller.harness import Harness

pytestmark = pytest.mark.mechanism("A08")

VERSIONS = range(ApiKey.CREATE_DELEGATION_TOKEN.versions.lowest, ApiKey.CREATE_DELEGATION_TOKEN.versions.highest + 1)
KEY = Password("the secret of the cluster")
HOUR = 3_600_000
CONFIG = DelegationTokenConfig(KEY, max_lifetime_ms=7 * HOUR, expiry_time_ms=2 * HOUR, expiry_check_interval_ms=HOUR)
BOB = KafkaPrincipal("User", "bob")
EVE = KafkaPrincipal("User", "eve")
BROKER_RIGHT = acl("User:broker-1", AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")
RENEWERS = [CreatableRenewers(principal_type="User", principal_name="bob")]


class Tokens(ApisBench):
    """A controller whose clients are authenticated by their broker."""

    def __init__(self, config: DelegationTokenConfig = CONFIG, **settings: Any) -> None:
        super().__init__(delegation_tokens=config, **settings)

    def forwarded(self, body: RequestBody, version: int, client: KafkaPrincipal = ALICE) -> Any:
        envelope = self.forward(body, version, client)
        assert envelope.error_code == Errors.NONE
        assert envelope.response_data is not None
        start = 4 + body.api_key.response_header_version(version)
        return body.api_key.response.decode(envelope.response_data[start:], version)

    def create(self, version: int = 3, client: KafkaPrincipal = ALICE, **fields: Any) -> Any:
        return self.forwarded(CreateDelegationTokenRequest(**fields), version, client)

    def renew(self, hmac: bytes, period_ms: int = -1, client: KafkaPrincipal = ALICE) -> Any:
        return self.forwarded(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms), 2, client)

    def expire(self, hmac: bytes, period_ms: int, client: KafkaPrincipal = ALICE) -> Any:
        return self.forwarded(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms), 2, client)

    @property
    def now(self) -> int:
        return self.harness.clock.milliseconds()


def test_a_token_is_created_and_written_without_its_secret() -> None:
    bench = Tokens()
    created = bench.create(renewers=RENEWERS, max_lifetime_ms=-1)
    assert created.error_code == Errors.NONE
    assert (created.principal_type, created.principal_name) == ("User", "alice")
    assert (created.token_requester_principal_type, created.token_requester_principal_name) == ("User", "alice")
    assert created.issue_timestamp_ms == bench.now
    assert created.expiry_timestamp_ms == bench.now + 2 * HOUR
    assert created.max_timestamp_ms == bench.now + 7 * HOUR
    assert created.hmac == token_hmac(KEY, created.token_id)
    [record] = bench.harness.written()
    assert record == DelegationTokenRecord(
        owner="User:alice",
        requester="User:alice",
        renewers=["User:bob"],
        issue_timestamp=bench.now,
        max_timestamp=bench.now + 7 * HOUR,
        expiration_timestamp=bench.now + 2 * HOUR,
        token_id=created.token_id,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_creates(version: int) -> None:
    created = Tokens().create(version)
    assert created.error_code == Errors.NONE
    assert created.token_requester_principal_name == ("alice" if version >= 3 else "")


def test_a_shorter_lifetime_can_be_requested_but_no_longer_one() -> None:
    bench = Tokens()
    short = bench.create(max_lifetime_ms=HOUR)
    assert (short.expiry_timestamp_ms, short.max_timestamp_ms) == (bench.now + HOUR, bench.now + HOUR)
    long = bench.create(max_lifetime_ms=1 << 62)
    assert long.max_timestamp_ms == bench.now + 7 * HOUR


def test_a_lifetime_beyond_int64_ends_with_it() -> None:
    longest = (1 << 63) - 1
    bench = Tokens(DelegationTokenConfig(KEY, max_lifetime_ms=longest, expiry_time_ms=longest))
    created = bench.create()
    assert (created.expiry_timestamp_ms, created.max_timestamp_ms) == (longest, longest)


def test_a_token_for_another_owner_needs_a_right() -> None:
    bench = Tokens(authorizer=authorizer(BROKER_RIGHT))
    refused = bench.create(owner_principal_type="User", owner_principal_name="bob")
    assert refused.error_code == Errors.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (refused.principal_name, refused.token_requester_principal_name) == ("bob", "alice")
    assert (refused.issue_timestamp_ms, refused.token_id, refused.hmac) == (-1, "", b"")
    right = acl("User:alice", AclOperation.CREATE_TOKENS, ResourceType.USER, "User:bob")
    bench = Tokens(authorizer=authorizer(BROKER_RIGHT, right))
    created = bench.create(owner_principal_type="User", owner_principal_name="bob")
    assert created.error_code == Errors.NONE
    [token] = bench.harness.managers.delegation_tokens.tokens.values()
    assert (token.owner, token.requester) == ("User:bob", "User:alice")
    assert bench.renew(created.hmac).error_code == Errors.DELEGATION_TOKEN_OWNER_MISMATCH, "alice only requested it"
    assert bench.renew(created.hmac, client=BOB).error_code == Errors.NONE


def test_a_renewer_must_be_a_user() -> None:
    renewers = [CreatableRenewers(principal_type="Group", principal_name="admins")]
    assert Tokens().create(renewers=renewers).error_code == Errors.INVALID_PRINCIPAL_TYPE


def test_renewal_moves_the_expiry_up_to_the_maximum() -> None:
    bench = Tokens()
    created = bench.create(renewers=RENEWERS)
    bench.harness.clock.advance(HOUR)
    for period, expected in ((-1, 2 * HOUR), (0, 2 * HOUR), (HOUR, HOUR), (5 * HOUR, 2 * HOUR)):
        renewed = bench.renew(created.hmac, period, BOB)
        assert (renewed.error_code, renewed.expiry_timestamp_ms) == (Errors.NONE, bench.now + expected)
        [token] = bench.harness.managers.delegation_tokens.tokens.values()
        assert token.expiration_timestamp == bench.now + expected
        assert token.max_timestamp == created.max_timestamp_ms
    for _ in range(2):
        bench.harness.clock.advance(2 * HOUR - 60_000)
        assert bench.renew(created.hmac).error_code == Errors.NONE
    bench.harness.clock.advance(HOUR)
    assert bench.renew(created.hmac).expiry_timestamp_ms == created.max_timestamp_ms


def test_an_expired_token_cannot_be_renewed() -> None:
    bench = Tokens()
    created = bench.create()
    bench.harness.clock.advance(2 * HOUR)
    assert bench.renew(created.hmac).error_code == Errors.NONE
    bench.harness.clock.advance(2 * HOUR + 1)
    assert bench.renew(created.hmac).error_code in {Errors.DELEGATION_TOKEN_EXPIRED, Errors.DELEGATION_TOKEN_NOT_FOUND}


def test_who_may_renew_and_expire() -> None:
    bench = Tokens()
    created = bench.create(renewers=RENEWERS)
    assert bench.renew(created.hmac, client=EVE).error_code == Errors.DELEGATION_TOKEN_OWNER_MISMATCH
    assert bench.expire(created.hmac, -1, EVE).error_code == Errors.DELEGATION_TOKEN_OWNER_MISMATCH
    assert bench.renew(b"another hmac").error_code == Errors.DELEGATION_TOKEN_NOT_FOUND
    assert bench.expire(b"", -1).error_code == Errors.DELEGATION_TOKEN_NOT_FOUND
    assert bench.expire(created.hmac, -1, BOB).error_code == Errors.NONE


def test_a_negative_period_removes_the_token_now() -> None:
    bench = Tokens()
    created = bench.create()
    bench.harness.mark()
    expired = bench.expire(created.hmac, -1)
    assert (expired.error_code, expired.expiry_timestamp_ms) == (Errors.NONE, bench.now)
    assert bench.harness.written() == [RemoveDelegationTokenRecord(token_id=created.token_id)]
    assert bench.expire(created.hmac, -1).error_code == Errors.DELEGATION_TOKEN_NOT_FOUND


def test_an_expiry_can_be_set_but_not_beyond_the_maximum() -> None:
    bench = Tokens()
    created = bench.create()
    assert bench.expire(created.hmac, 60_000).expiry_timestamp_ms == bench.now + 60_000
    assert bench.expire(created.hmac, (1 << 63) - 1).expiry_timestamp_ms == created.max_timestamp_ms


def test_expired_tokens_are_removed_periodically() -> None:
    bench = Tokens()
    first = bench.create(max_lifetime_ms=HOUR // 2)
    second = bench.create()
    assert bench.expire(second.hmac, 3 * HOUR).error_code == Errors.NONE
    bench.harness.mark()
    bench.harness.advance(HOUR)
    assert RemoveDelegationTokenRecord(token_id=first.token_id) in bench.harness.written()
    assert set(bench.harness.managers.delegation_tokens.tokens) == {second.token_id}


def test_more_expired_tokens_than_fit_into_a_batch_are_removed() -> None:
    bench = Tokens(max_records_per_batch=11)
    for _ in range(12):
        bench.create(max_lifetime_ms=HOUR // 2)
    epoch = bench.harness.controller.claim_epoch
    bench.harness.advance(HOUR)
    assert bench.harness.managers.delegation_tokens.tokens == {}
    assert bench.harness.controller.claim_epoch == epoch, "the controller has not stepped down"


def test_an_expired_token_that_is_still_there_is_refused() -> None:
    bench = Tokens(DelegationTokenConfig(KEY, 7 * HOUR, 2 * HOUR, expiry_check_interval_ms=100 * HOUR))
    created = bench.create()
    bench.harness.clock.advance(2 * HOUR + 1)
    assert bench.renew(created.hmac).error_code == Errors.DELEGATION_TOKEN_EXPIRED
    assert bench.expire(created.hmac, 1).error_code == Errors.DELEGATION_TOKEN_EXPIRED
    assert bench.expire(created.hmac, -1).error_code == Errors.NONE, "it can still be removed"


def test_without_a_secret_key_there_are_no_tokens() -> None:
    bench = Tokens(DelegationTokenConfig())
    refused = bench.create()
    assert (refused.error_code, refused.principal_name) == (Errors.DELEGATION_TOKEN_AUTH_DISABLED, "alice")
    assert refused.token_id == ""
    assert bench.renew(b"x").error_code == Errors.DELEGATION_TOKEN_AUTH_DISABLED
    assert bench.expire(b"x", -1).error_code == Errors.DELEGATION_TOKEN_AUTH_DISABLED


def test_an_old_cluster_has_no_tokens() -> None:
    bench = Tokens(bootstrap=BootstrapMetadata.for_version(MetadataVersion.IBP_3_6_IV1, "a test"))
    assert bench.create().error_code == Errors.UNSUPPORTED_VERSION
    assert bench.renew(b"x").error_code == Errors.UNSUPPORTED_VERSION


def test_a_new_secret_key_makes_tokens_unknown_until_the_old_one_returns() -> None:
    """The key can be rotated; the log stays as it is."""
    log, clock = MemoryLog(), MockClock()
    bench = Tokens(log=log, clock=clock)
    created = bench.create()
    rotated = Tokens(DelegationTokenConfig(Password("another secret")), log=log, clock=clock, brokers=())
    assert set(rotated.harness.managers.delegation_tokens.tokens) == {created.token_id}
    assert rotated.renew(created.hmac).error_code == Errors.DELEGATION_TOKEN_NOT_FOUND
    assert rotated.renew(token_hmac(Password("another secret"), created.token_id)).error_code == Errors.NONE
    back = Tokens(log=log, clock=clock, brokers=())
    assert back.renew(created.hmac).error_code == Errors.NONE


def test_a_token_cannot_request_a_token() -> None:
    bench = Tokens()
    created = bench.create()
    holder = KafkaPrincipal("User", "alice", token_authenticated=True)
    for response in (
        bench.create(client=holder),
        bench.renew(created.hmac, client=holder),
        bench.expire(created.hmac, -1, client=holder),
    ):
        assert response.error_code == Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert response.expiry_timestamp_ms == -1


def test_a_direct_client_of_the_controller_must_be_authenticated() -> None:
    bench = Tokens()
    requests: list[tuple[RequestBody, int]] = [
        (CreateDelegationTokenRequest(), 3),
        (RenewDelegationTokenRequest(), 2),
        (ExpireDelegationTokenRequest(), 2),
    ]
    for body, version in requests:
        refused = bench.ask(body, version, ALICE)
        assert (refused.error_code, refused.expiry_timestamp_ms) == (Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, -1)
    request = bench.bench.request(CreateDelegationTokenRequest(), 3, principal=ALICE)
    request.context.security_protocol = SecurityProtocol.SASL_PLAINTEXT
    bench.apis.handle(request, bench.bench.local)
    bench.harness.step()
    assert bench.bench.answer(request).error_code == Errors.NONE


def test_the_secret_is_not_in_the_repr_of_the_settings() -> None:
    assert KEY.value not in repr(CONFIG)
    assert KEY.value not in repr(Harness(delegation_tokens=CONFIG).config)
