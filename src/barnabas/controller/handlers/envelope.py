"""Envelope (v0): what a broker forwards for a client of its own (R10).

Two questions of authorization, and two sets of errors. Whether this *broker* may forward (ClusterAction on the cluster)
is answered here, and with everything that is wrong with the Envelope itself it ends in the Envelope's error code. What
the *client* may do is for the handler of the request inside to decide, from the principal that the Envelope carries;
what comes of that travels inside the answer.

The request inside goes through the same dispatcher as one that was sent directly, and its handler sees no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from barnabas.common.clock import Clock
from barnabas.common.errors import UnsupportedVersionError
from barnabas.protocol.api_keys import ApiKey
from barnabas.security.acl import AclOperation
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.envelope import open_envelope
from barnabas.server.request import NOT_SET, Request
from barnabas.server.request_local import RequestLocal


class EnvelopeHandler:
    """Opens Envelopes."""

    def __init__(
        self,
        auth: AuthHelper,
        served: Container[ApiKey],
        dispatch: Callable[[Request, RequestLocal], None],
        clock: Clock,
    ) -> None:
        self._auth = auth
        self._served = served
        self._dispatch = dispatch
        self._now = clock.nanoseconds

    def envelope(self, request: Request, local: RequestLocal) -> None:
        self._auth.authorize_cluster_operation(request.request_context, AclOperation.CLUSTER_ACTION)
        inner = open_envelope(request)
        if inner.api_key not in self._served:
            raise UnsupportedVersionError(f"{inner.api_key.title} is not served by this controller")
        self._dispatch(inner, local)
        if inner.api_local_complete_time_ns == NOT_SET:  # not answered yet: from here on it is the controller's time
            inner.api_local_complete_time_ns = self._now()
