"""Envelope (v0): a client's request, forwarded by a broker (R10).

There are two authorizations and two sets of errors. This handler checks whether the *broker* may forward (ClusterAction
on the cluster); a denial, or any other problem of the Envelope itself, becomes the Envelope's error code. The handler
of the inner request checks the *client's* rights, with the principal from the Envelope; its errors are in the inner
response.

The inner request goes through the same dispatcher as a direct one, and its handler sees no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from barnabas.common.errors import UnsupportedVersionError
from barnabas.protocol.api_keys import ApiKey
from barnabas.security.acl import AclOperation
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.envelope import open_envelope
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal


class EnvelopeHandler:
    """Unwraps Envelopes and dispatches their requests."""

    def __init__(
        self,
        auth: AuthHelper,
        served: Container[ApiKey],
        dispatch: Callable[[Request, RequestLocal], None],
    ) -> None:
        self._auth = auth
        self._served = served
        self._dispatch = dispatch

    def envelope(self, request: Request, local: RequestLocal) -> None:
        self._auth.authorize_cluster_operation(request.request_context, AclOperation.CLUSTER_ACTION)
        inner = open_envelope(request)
        if inner.api_key not in self._served:
            raise UnsupportedVersionError(f"{inner.api_key.title} is not served by this controller")
        self._dispatch(inner, local)
