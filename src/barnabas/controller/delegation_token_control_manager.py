"""Delegation tokens: creates, renews, expires and removes them (A08, KIP-48)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from barnabas.common.clock import Clock
from barnabas.common.config_def import Password
from barnabas.common.dataclass import dataclass
from barnabas.common.errors import (
    ApiError,
    DelegationTokenDisabledError,
    DelegationTokenExpiredError,
    DelegationTokenNotFoundError,
    DelegationTokenOwnerMismatchError,
    Errors,
    InvalidPrincipalTypeError,
    UnsupportedVersionError,
)
from barnabas.common.identifiers import random_uuid, uuid_to_string
from barnabas.common.snapshot_registry import SnapshotRegistry, TimelineHashMap
from barnabas.controller.feature_control_manager import FeatureControlManager
from barnabas.controller.request_context import ControllerRequestContext
from barnabas.controller.result import ControllerResult
from barnabas.metadata.delegation_tokens import DelegationToken, token_of, token_record
from barnabas.protocol.internal.metadata import DelegationTokenRecord, RemoveDelegationTokenRecord
from barnabas.raft.client import ApiMessageAndVersion
from barnabas.security.principal import USER_TYPE, KafkaPrincipal
from barnabas.security.tokens import is_expired, is_owner_or_renewer, token_hmac

if TYPE_CHECKING:
    from barnabas.protocol.messages.create_delegation_token import (
        CreateDelegationTokenRequest,
        CreateDelegationTokenResponse,
    )
    from barnabas.protocol.messages.expire_delegation_token import (
        ExpireDelegationTokenRequest,
        ExpireDelegationTokenResponse,
    )
    from barnabas.protocol.messages.renew_delegation_token import (
        RenewDelegationTokenRequest,
        RenewDelegationTokenResponse,
    )

log = logging.getLogger(__name__)

LONG_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class DelegationTokenConfig:
    """Settings, with Kafka's defaults. Without a secret key there are no tokens."""

    secret_key: Password | None = None
    """``delegation.token.secret.key``"""
    max_lifetime_ms: int = 604_800_000
    """``delegation.token.max.lifetime.ms``"""
    expiry_time_ms: int = 86_400_000
    """``delegation.token.expiry.time.ms``"""
    expiry_check_interval_ms: int = 3_600_000
    """``delegation.token.expiry.check.interval.ms``"""


class DelegationTokenControlManager:
    """Holds the tokens by ID.

    A token has two deadlines. ``max_timestamp`` is final. ``expiration_timestamp`` is at most
    ``delegation.token.expiry.time.ms`` away, and its owner and renewers move it::

        issued      renewed                            max_timestamp
        |-----------|--------------------|             |
                    <-- expiry.time.ms --> expires     |
        <-------------- max.lifetime.ms -------------->

    A renewed token is written as a whole. Expired tokens are removed by a periodic task; until then, they cannot be
    renewed or used.
    """

    def __init__(
        self, registry: SnapshotRegistry, features: FeatureControlManager, config: DelegationTokenConfig, clock: Clock
    ) -> None:
        self._features = features
        self._config = config
        self._clock = clock
        self._tokens: TimelineHashMap[str, DelegationToken] = TimelineHashMap(registry)
        self._ids_by_hmac: TimelineHashMap[bytes, str] = TimelineHashMap(registry)
        """Clients name a token by its HMAC, from which its ID cannot be computed."""

    @property
    def tokens(self) -> Mapping[str, DelegationToken]:
        return self._tokens.present

    def create(
        self, context: ControllerRequestContext, request: CreateDelegationTokenRequest
    ) -> ControllerResult[CreateDelegationTokenResponse]:
        from barnabas.protocol.messages.create_delegation_token import CreateDelegationTokenResponse

        requester = KafkaPrincipal.parse(context.principal)
        owner = requester
        if request.owner_principal_name:
            owner = KafkaPrincipal(request.owner_principal_type or "", request.owner_principal_name)
        response = CreateDelegationTokenResponse(principal_type=owner.type, principal_name=owner.name)
        if context.request_version >= 3:
            response.token_requester_principal_type = requester.type
            response.token_requester_principal_name = requester.name
        try:
            secret_key = self._check_supported()
            if any(one.principal_type != USER_TYPE for one in request.renewers):
                raise InvalidPrincipalTypeError("The type of a renewer must be User.")
        except ApiError as error:
            # The response names owner and requester even on an error, as in Kafka.
            response.error_code = Errors.for_exception(error)
            return ControllerResult.atomic_of([], response)
        now = self._clock.milliseconds()
        lifetime = self._config.max_lifetime_ms
        if request.max_lifetime_ms > 0:
            lifetime = min(lifetime, request.max_lifetime_ms)
        max_timestamp = _later(now, lifetime)
        token = DelegationToken(
            token_id=uuid_to_string(random_uuid()),
            owner=str(owner),
            requester=context.principal,
            renewers=tuple(f"{one.principal_type}:{one.principal_name}" for one in request.renewers),
            issue_timestamp=now,
            max_timestamp=max_timestamp,
            expiration_timestamp=min(max_timestamp, _later(now, self._config.expiry_time_ms)),
        )
        response.issue_timestamp_ms = token.issue_timestamp
        response.expiry_timestamp_ms = token.expiration_timestamp
        response.max_timestamp_ms = token.max_timestamp
        response.token_id = token.token_id
        response.hmac = token_hmac(secret_key, token.token_id)
        return ControllerResult.atomic_of([ApiMessageAndVersion(token_record(token), 0)], response)

    def renew(
        self, context: ControllerRequestContext, request: RenewDelegationTokenRequest
    ) -> ControllerResult[RenewDelegationTokenResponse]:
        """Moves the expiry of a token; raises an error if the token has already expired."""
        from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenResponse

        token = self._token(request.hmac)
        self._check_live(token)
        self._check_renewer(token, context)
        period = self._config.expiry_time_ms
        if request.renew_period_ms > 0:
            period = min(period, request.renew_period_ms)
        renewed = self._expiring_in(token, period)
        response = RenewDelegationTokenResponse(expiry_timestamp_ms=renewed.expiration_timestamp)
        return ControllerResult.atomic_of([ApiMessageAndVersion(token_record(renewed), 0)], response)

    def expire(
        self, context: ControllerRequestContext, request: ExpireDelegationTokenRequest
    ) -> ControllerResult[ExpireDelegationTokenResponse]:
        """Removes the token if the period is negative; otherwise sets when it expires."""
        from barnabas.protocol.messages.expire_delegation_token import ExpireDelegationTokenResponse

        token = self._token(request.hmac)
        self._check_renewer(token, context)
        if request.expiry_time_period_ms < 0:
            response = ExpireDelegationTokenResponse(expiry_timestamp_ms=self._clock.milliseconds())
            return ControllerResult.atomic_of([_removal(token.token_id)], response)
        self._check_live(token)
        changed = self._expiring_in(token, request.expiry_time_period_ms)
        response = ExpireDelegationTokenResponse(expiry_timestamp_ms=changed.expiration_timestamp)
        return ControllerResult.atomic_of([ApiMessageAndVersion(token_record(changed), 0)], response)

    def _expiring_in(self, token: DelegationToken, period_ms: int) -> DelegationToken:
        expiry = _later(self._clock.milliseconds(), period_ms)
        return token._replace(expiration_timestamp=min(token.max_timestamp, expiry))

    def remove_expired(self) -> ControllerResult[bool]:
        """Removes the expired tokens; a periodic task."""
        now = self._clock.milliseconds()
        expired = [token for token in self._tokens.values() if is_expired(token, now)]
        for token in expired:
            log.info("Delegation token %s of %s has expired", token.token_id, token.owner)
        # Not atomic: there may be more than one batch can hold.
        return ControllerResult.of([_removal(token.token_id) for token in expired], False)

    def _check_supported(self) -> Password:
        if self._config.secret_key is None:
            raise DelegationTokenDisabledError("delegation.token.secret.key is not set on the controller.")
        if not self._features.metadata_version.supports_delegation_tokens:
            raise UnsupportedVersionError("The cluster's metadata.version does not support delegation tokens.")
        return self._config.secret_key

    def _token(self, hmac: bytes) -> DelegationToken:
        self._check_supported()
        token_id = self._ids_by_hmac.present.get(bytes(hmac))
        if token_id is None:
            raise DelegationTokenNotFoundError("There is no delegation token with this HMAC.")
        return self._tokens[token_id]

    def _check_live(self, token: DelegationToken) -> None:
        if is_expired(token, self._clock.milliseconds()):
            raise DelegationTokenExpiredError(f"Delegation token {token.token_id} has expired.")

    @staticmethod
    def _check_renewer(token: DelegationToken, context: ControllerRequestContext) -> None:
        if not is_owner_or_renewer(token, context.principal):
            raise DelegationTokenOwnerMismatchError(
                f"{context.principal} is neither the owner nor a renewer of delegation token {token.token_id}."
            )

    def replay(self, record: DelegationTokenRecord) -> None:
        self._tokens[record.token_id] = token_of(record)
        if self._config.secret_key is not None:
            self._ids_by_hmac[token_hmac(self._config.secret_key, record.token_id)] = record.token_id
        log.info("Delegation token %s of %s expires at %d", record.token_id, record.owner, record.expiration_timestamp)

    def replay_removal(self, record: RemoveDelegationTokenRecord) -> None:
        self._tokens.pop(record.token_id)
        if self._config.secret_key is not None:
            self._ids_by_hmac.pop(token_hmac(self._config.secret_key, record.token_id))
        log.info("Removed delegation token %s", record.token_id)


def _removal(token_id: str) -> ApiMessageAndVersion:
    return ApiMessageAndVersion(RemoveDelegationTokenRecord(token_id=token_id), 0)


def _later(now_ms: int, duration_ms: int) -> int:
    """Returns the sum, limited to an int64."""
    return min(now_ms + duration_ms, LONG_MAX)
