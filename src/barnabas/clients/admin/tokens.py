"""Delegation tokens: secrets with which the workers of a principal authenticate as that principal (KIP-48).

    token = admin.create_delegation_token(renewers=["User:scheduler"])
    worker_settings = {"sasl_username": token.token_id, "sasl_password": token.password}   # with tokenauth=true

The client must be authenticated, and not by a token; otherwise the broker refuses with
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED. A cluster without ``delegation.token.secret.key`` refuses with
DELEGATION_TOKEN_AUTH_DISABLED.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field

from barnabas.clients.admin.internals.node_choice import ANY
from barnabas.clients.admin.internals.operation import Operation
from barnabas.common.errors import raise_for_code
from barnabas.protocol.messages import create_delegation_token as create_api
from barnabas.protocol.messages import describe_delegation_token as describe_api
from barnabas.protocol.messages import expire_delegation_token as expire_api
from barnabas.protocol.messages import renew_delegation_token as renew_api
from barnabas.security.principal import KafkaPrincipal


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token with its secret. Principals have the form ``User:alice``; times are milliseconds since 1970."""

    token_id: str
    hmac: bytes = field(repr=False)
    """The secret, which also names the token in `renew_delegation_token` and `expire_delegation_token`."""
    owner: str
    requester: str
    """The principal that created the token. Brokers before Kafka 3.3 return an empty string."""
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int

    @property
    def password(self) -> str:
        """The SCRAM password of the user `token_id`."""
        return base64.b64encode(self.hmac).decode()


async def create_delegation_token(
    operation: Operation, *, owner: str | None = None, renewers: Iterable[str] = (), max_lifetime_ms: int = -1
) -> DelegationToken:
    """Creates a token for this client's principal, or for another owner, which needs CreateTokens on that user.

    ``max_lifetime_ms`` is limited by ``delegation.token.max.lifetime.ms``, which is also the default.
    """
    of = None if owner is None else KafkaPrincipal.parse(owner)
    renewing = [KafkaPrincipal.parse(renewer) for renewer in renewers]
    request = create_api.CreateDelegationTokenRequest(
        # Before v3 the fields do not exist: their defaults let the older version be used.
        owner_principal_type="" if of is None else of.type,
        owner_principal_name="" if of is None else of.name,
        renewers=[create_api.CreatableRenewers(principal_type=one.type, principal_name=one.name) for one in renewing],
        max_lifetime_ms=max_lifetime_ms,
    )

    def read(response: create_api.CreateDelegationTokenResponse) -> DelegationToken:
        raise_for_code(response.error_code)
        return DelegationToken(
            response.token_id,
            bytes(response.hmac),
            f"{response.principal_type}:{response.principal_name}",
            _requester(response.token_requester_principal_type, response.token_requester_principal_name),
            tuple(map(str, renewing)),
            response.issue_timestamp_ms,
            response.expiry_timestamp_ms,
            response.max_timestamp_ms,
        )

    return await operation.ask(ANY, request, read)


async def renew_delegation_token(operation: Operation, hmac: bytes, *, period_ms: int = -1) -> int:
    """Moves the expiry of a token to ``period_ms`` from now; returns it.

    The period is limited by ``delegation.token.expiry.time.ms``, which is also the default, and by the token's maximum
    lifetime. Only the owner and the renewers may renew a token.
    """
    request = renew_api.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)

    def read(response: renew_api.RenewDelegationTokenResponse) -> int:
        raise_for_code(response.error_code)
        return response.expiry_timestamp_ms

    return await operation.ask(ANY, request, read)


async def expire_delegation_token(operation: Operation, hmac: bytes, *, period_ms: int = -1) -> int:
    """Lets a token expire in ``period_ms``, or now if that is negative; returns when.

    Clients that are connected with the token stay connected until their session ends.
    """
    request = expire_api.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)

    def read(response: expire_api.ExpireDelegationTokenResponse) -> int:
        raise_for_code(response.error_code)
        return response.expiry_timestamp_ms

    return await operation.ask(ANY, request, read)


async def describe_delegation_tokens(
    operation: Operation, owners: Iterable[str] | None = None
) -> list[DelegationToken]:
    """Returns all tokens that this client may see, or those that belong to these principals."""
    wanted = None if owners is None else [KafkaPrincipal.parse(owner) for owner in owners]
    request = describe_api.DescribeDelegationTokenRequest(
        owners=None
        if wanted is None
        else [
            describe_api.DescribeDelegationTokenOwner(principal_type=one.type, principal_name=one.name)
            for one in wanted
        ]
    )

    def read(response: describe_api.DescribeDelegationTokenResponse) -> list[DelegationToken]:
        raise_for_code(response.error_code)
        return [
            DelegationToken(
                token.token_id,
                bytes(token.hmac),
                f"{token.principal_type}:{token.principal_name}",
                _requester(token.token_requester_principal_type, token.token_requester_principal_name),
                tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in token.renewers),
                token.issue_timestamp,
                token.expiry_timestamp,
                token.max_timestamp,
            )
            for token in response.tokens
        ]

    return await operation.ask(ANY, request, read)


def _requester(kind: str, name: str) -> str:
    return f"{kind}:{name}" if name else ""
