"""CreateDelegationToken (v1-3), RenewDelegationToken and ExpireDelegationToken (v1-2) (A08).

A client creates tokens for itself; for another owner it needs CreateTokens on that user. Owner and renewers of a token
may renew and expire it; no ACL is needed. A client that is not authenticated, or that is authenticated by a token, is
refused with DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
"""

from __future__ import annotations

from barnabas.common.errors import Errors
from barnabas.controller.handlers.backend import Backend
from barnabas.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from barnabas.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.security.token_responses import refused_creation, refused_expiry, refused_renewal
from barnabas.security.tokens import allows_token_requests, may_create_token, token_owner
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal


class DelegationTokensHandler:
    """Creates, renews and expires delegation tokens."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def create_delegation_token(self, request: Request, _local: RequestLocal) -> None:
        body, backend, context = request.body, self._backend, request.request_context
        assert isinstance(body, CreateDelegationTokenRequest)
        owner = token_owner(context, body.owner_principal_type, body.owner_principal_name)
        if not _is_allowed(request):
            error = Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        elif not may_create_token(backend.auth, context, owner):
            error = Errors.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        else:
            backend.respond(request, backend.controller.create_delegation_token(backend.context(request), body))
            return
        backend.send(request, refused_creation(context, owner, error))

    def renew_delegation_token(self, request: Request, _local: RequestLocal) -> None:
        body, backend = request.body, self._backend
        assert isinstance(body, RenewDelegationTokenRequest)
        if _is_allowed(request):
            backend.respond(request, backend.controller.renew_delegation_token(backend.context(request), body))
        else:
            backend.send(request, refused_renewal())

    def expire_delegation_token(self, request: Request, _local: RequestLocal) -> None:
        body, backend = request.body, self._backend
        assert isinstance(body, ExpireDelegationTokenRequest)
        if _is_allowed(request):
            backend.respond(request, backend.controller.expire_delegation_token(backend.context(request), body))
        else:
            backend.send(request, refused_expiry())


def _is_allowed(request: Request) -> bool:
    return allows_token_requests(request.request_context, is_forwarded=request.is_forwarded)
