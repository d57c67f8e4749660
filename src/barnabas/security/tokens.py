"""Delegation tokens: their HMAC, who may request and describe them, and their SCRAM credentials (A08, KIP-48).

A principal that is authenticated in another way creates a token and gives it to its workers. A worker authenticates
with SCRAM and the extension ``tokenauth=true``, and acts as the owner of the token::

    user name   the token ID, a random UUID that is not secret
    password    Base64(HMAC), where HMAC = HmacSHA512(delegation.token.secret.key, token ID)

Every node computes the HMAC from the ID, so the metadata log contains no secret. All nodes need the same secret key. A
new key gives all existing tokens another HMAC: their holders cannot authenticate, renew or expire them any more. To
rotate the key, therefore, expire the tokens, restart the nodes with the new key, and create new tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.common.clock import Clock
from barnabas.common.config_def import Password
from barnabas.common.errors import InvalidRequestError
from barnabas.network.server.endpoint import SecurityProtocol
from barnabas.security.acl import AclOperation, ResourceType
from barnabas.security.auth_helper import AuthHelper
from barnabas.security.principal import ANONYMOUS, KafkaPrincipal
from barnabas.security.request_context import AuthorizableRequestContext

if TYPE_CHECKING:  # most nodes have no tokens
    from barnabas.security.sasl.scram import ScramCredential, TokenCredential

NO_TIMESTAMP: Final = -1
"""A timestamp in the response to a refused request."""


class DelegationToken(Protocol):
    """A token as the metadata describe it; principals have the form ``type:name``."""

    @property
    def token_id(self) -> str: ...

    @property
    def owner(self) -> str: ...

    @property
    def requester(self) -> str: ...

    @property
    def renewers(self) -> Sequence[str]: ...

    @property
    def issue_timestamp(self) -> int: ...

    @property
    def max_timestamp(self) -> int: ...

    @property
    def expiration_timestamp(self) -> int: ...


def token_hmac(secret_key: Password, token_id: str) -> bytes:
    """Returns the 64 bytes that authenticate the holder of a token, and that renew and expire it."""
    import hmac  # most nodes have no tokens

    return hmac.digest(secret_key.value.encode(), token_id.encode(), "sha512")


def is_expired(token: DelegationToken, now_ms: int) -> bool:
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


def is_owner_or_renewer(token: DelegationToken, principal: str) -> bool:
    """Returns whether the principal may renew and expire the token. The requester may not, unless it is the owner."""
    return principal == token.owner or principal in token.renewers


def concerns(token: DelegationToken, principal: str) -> bool:
    """Returns whether the principal is the owner, the requester or a renewer of the token."""
    return principal == token.requester or is_owner_or_renewer(token, principal)


def allows_token_requests(context: AuthorizableRequestContext, *, is_forwarded: bool = False) -> bool:
    """Returns whether the connection is authenticated, and not by a token.

    A forwarded request arrives on the connection of a broker, which has checked its own connection to the client.
    """
    if context.principal.token_authenticated:
        return False
    if is_forwarded:
        return True
    protocol = context.security_protocol
    if protocol is SecurityProtocol.PLAINTEXT:
        return False
    # Without a certificate, a TLS client is anonymous.
    return protocol is not SecurityProtocol.SSL or context.principal != ANONYMOUS


def token_owner(context: AuthorizableRequestContext, kind: str | None, name: str | None) -> KafkaPrincipal:
    """Returns the owner that a CreateDelegationToken request names; without a name, the requester."""
    if not name:
        return context.principal
    if kind is None:
        raise InvalidRequestError(f"The owner {name!r} of a delegation token has no principal type.")
    return KafkaPrincipal(kind, name)


def may_create_token(auth: AuthHelper, context: AuthorizableRequestContext, owner: KafkaPrincipal) -> bool:
    """Returns whether the client may create a token for this owner: for itself always."""
    return owner == context.principal or auth.authorize(
        context, AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)
    )


def describable_tokens(
    auth: AuthHelper,
    context: AuthorizableRequestContext,
    tokens: Iterable[DelegationToken],
    owners: Sequence[KafkaPrincipal] | None,
) -> list[DelegationToken]:
    """Returns the tokens of these owners (None: of all) that the client may describe.

    Those are the tokens that it owns, requested or may renew, the tokens on which it has Describe, and the tokens of
    users on which it has DescribeTokens. A renewer counts as an owner here, as in Kafka.
    """
    principal = str(context.principal)
    wanted = None if owners is None else [str(owner) for owner in owners]

    def is_visible(token: DelegationToken) -> bool:
        if wanted is not None and not any(concerns(token, owner) for owner in wanted):
            return False
        return (
            concerns(token, principal)
            or auth.authorize(context, AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
            or auth.authorize(context, AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
        )

    return [token for token in tokens if is_visible(token)]


class DelegationTokenCache:
    """The tokens with which clients can authenticate now. Any thread may call its methods.

    ``tokens`` returns the tokens by ID in the newest metadata. Deriving the credentials of a token takes milliseconds,
    which a network thread does not have. So, as in Kafka, `update` derives them on the thread that loads the metadata,
    before a client can use the token.

    A token that has expired has no credential, even before the controller removes it.
    """

    def __init__(
        self, secret_key: Password | None, tokens: Callable[[], Mapping[str, DelegationToken]], clock: Clock
    ) -> None:
        self._secret_key = secret_key
        self._tokens = tokens
        self._clock = clock
        self._credentials: dict[str, Mapping[str, ScramCredential]] = {}
        """The credential of each SCRAM mechanism, by token ID."""

    @property
    def is_enabled(self) -> bool:
        """Whether the node has a secret key."""
        return self._secret_key is not None

    def tokens(self) -> Iterable[DelegationToken]:
        """Returns all tokens of the cluster, expired ones too."""
        return self._tokens().values()

    def hmac(self, token: DelegationToken) -> bytes:
        """Returns the secret of a token, for its DescribeDelegationToken response."""
        assert self._secret_key is not None, "tokens are disabled"
        return token_hmac(self._secret_key, token.token_id)

    def update(self, changes: Mapping[str, DelegationToken | None]) -> None:
        """Derives the credentials of new tokens, and forgets those of removed ones, whose token is None.

        A renewed token keeps its credentials: they depend on its ID and the secret key only.
        """
        for token_id, token in changes.items():
            if token is None:
                self._credentials.pop(token_id, None)
            elif token_id not in self._credentials and self._secret_key is not None:
                self._credentials[token_id] = _derive_credentials(self._secret_key, token_id)

    def credential(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """Returns the data to verify the holder of a token; None if there is no such token, or it has expired."""
        from barnabas.security.sasl.scram import TokenCredential

        token = self._live(token_id)
        credentials = self._credentials.get(token_id)
        if token is None or credentials is None:
            return None
        owner = KafkaPrincipal.parse(token.owner).name
        expiry_ms = min(token.expiration_timestamp, token.max_timestamp)
        return TokenCredential(owner, expiry_ms, credentials[mechanism])

    def _live(self, token_id: str) -> DelegationToken | None:
        token = None if self._secret_key is None else self._tokens().get(token_id)
        return None if token is None or is_expired(token, self._clock.milliseconds()) else token


def _derive_credentials(secret_key: Password, token_id: str) -> Mapping[str, ScramCredential]:
    """Derives the credential of each SCRAM mechanism, with the HMAC of the token as the password."""
    import base64

    from barnabas.security.sasl.scram import HASHES, ScramCredential

    password = base64.b64encode(token_hmac(secret_key, token_id)).decode()
    return {mechanism: ScramCredential.of_password(mechanism, password) for mechanism in HASHES}
