"""CreateDelegationToken (v1-3), RenewDelegationToken, ExpireDelegationToken (v1-2), DescribeDelegationToken (v1-3).

The broker checks whether the connection may request tokens at all, because only the broker knows how the client is
authenticated. Then it forwards everything but DescribeDelegationToken to the controller. Tokens are described from the
metadata, with their HMAC: a client sees the tokens that it owns, requested or may renew, those on which it has
Describe, and those of users on which it has DescribeTokens.
"""

from __future__ import annotations

from barnabas.broker.handlers.forwarded import ForwardedHandler
from barnabas.common.errors import Errors
from barnabas.protocol.message import Response
from barnabas.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from barnabas.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from barnabas.security.auth_helper import AuthHelper
from barnabas.security.principal import USER_TYPE, KafkaPrincipal
from barnabas.security.token_responses import (
    REQUESTER_SINCE_VERSION,
    refused_creation,
    refused_expiry,
    refused_renewal,
)
from barnabas.security.tokens import (
    DelegationToken,
    DelegationTokenCache,
    allows_token_requests,
    describable_tokens,
    may_create_token,
    token_owner,
)
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal


class DelegationTokensHandler:
    """Forwards requests for delegation tokens, and describes tokens."""

    def __init__(
        self, helper: RequestHandlerHelper, auth: AuthHelper, forwarded: ForwardedHandler, tokens: DelegationTokenCache
    ) -> None:
        self._helper = helper
        self._auth = auth
        self._forwarded = forwarded
        self._tokens = tokens

    def create_delegation_token(self, request: Request, local: RequestLocal) -> None:
        body, context = request.body, request.request_context
        assert isinstance(body, CreateDelegationTokenRequest)
        owner = token_owner(context, body.owner_principal_type, body.owner_principal_name)
        if not allows_token_requests(context):
            error = Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        elif not may_create_token(self._auth, context, owner):
            error = Errors.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        elif any(renewer.principal_type != USER_TYPE for renewer in body.renewers):
            error = Errors.INVALID_PRINCIPAL_TYPE
        else:
            self._forwarded.forward(request, local)
            return
        self._send(request, refused_creation(context, owner, error))

    def renew_delegation_token(self, request: Request, local: RequestLocal) -> None:
        if allows_token_requests(request.request_context):
            self._forwarded.forward(request, local)
        else:
            self._send(request, refused_renewal())

    def expire_delegation_token(self, request: Request, local: RequestLocal) -> None:
        if allows_token_requests(request.request_context):
            self._forwarded.forward(request, local)
        else:
            self._send(request, refused_expiry())

    def describe_delegation_token(self, request: Request, _local: RequestLocal) -> None:
        body, context = request.body, request.request_context
        assert isinstance(body, DescribeDelegationTokenRequest)
        response = DescribeDelegationTokenResponse()
        if not allows_token_requests(context):
            response.error_code = Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        elif not self._tokens.is_enabled:
            response.error_code = Errors.DELEGATION_TOKEN_AUTH_DISABLED
        else:
            owners = None
            if body.owners is not None:
                owners = [KafkaPrincipal(owner.principal_type, owner.principal_name) for owner in body.owners]
            found = describable_tokens(self._auth, context, self._tokens.tokens(), owners)
            response.tokens = [self._described(token, request.api_version) for token in found]
        self._send(request, response)

    def _described(self, token: DelegationToken, version: int) -> DescribedDelegationToken:
        owner, requester = KafkaPrincipal.parse(token.owner), KafkaPrincipal.parse(token.requester)
        renewers = map(KafkaPrincipal.parse, token.renewers)
        described = DescribedDelegationToken(
            principal_type=owner.type,
            principal_name=owner.name,
            issue_timestamp=token.issue_timestamp,
            expiry_timestamp=token.expiration_timestamp,
            max_timestamp=token.max_timestamp,
            token_id=token.token_id,
            hmac=self._tokens.hmac(token),
            renewers=[
                DescribedDelegationTokenRenewer(principal_type=renewer.type, principal_name=renewer.name)
                for renewer in renewers
            ],
        )
        if version >= REQUESTER_SINCE_VERSION:
            described.token_requester_principal_type = requester.type
            described.token_requester_principal_name = requester.name
        return described

    def _send(self, request: Request, response: Response) -> None:
        def create(throttle_ms: int) -> Response:
            response.throttle_time_ms = throttle_ms  # type: ignore[attr-defined]
            return response

        self._helper.send_response_maybe_throttle(request, create)
