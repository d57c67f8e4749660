"""The responses to refused requests for delegation tokens, for brokers and controllers.

Their timestamps are -1. The response to a refused creation names the owner and the requester all the same.
"""

from __future__ import annotations

from barnabas.common.errors import Errors
from barnabas.protocol.messages.create_delegation_token import CreateDelegationTokenResponse
from barnabas.protocol.messages.expire_delegation_token import ExpireDelegationTokenResponse
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenResponse
from barnabas.security.principal import KafkaPrincipal
from barnabas.security.request_context import AuthorizableRequestContext
from barnabas.security.tokens import NO_TIMESTAMP

REQUESTER_SINCE_VERSION = 3


def refused_creation(
    context: AuthorizableRequestContext, owner: KafkaPrincipal, error: Errors
) -> CreateDelegationTokenResponse:
    response = CreateDelegationTokenResponse(
        error_code=error,
        principal_type=owner.type,
        principal_name=owner.name,
        issue_timestamp_ms=NO_TIMESTAMP,
        expiry_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
    )
    if context.api_version >= REQUESTER_SINCE_VERSION:
        response.token_requester_principal_type = context.principal.type
        response.token_requester_principal_name = context.principal.name
    return response


def refused_renewal() -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(
        error_code=Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=NO_TIMESTAMP
    )


def refused_expiry() -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(
        error_code=Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=NO_TIMESTAMP
    )
