"""AlterUserScramCredentials (v0): SCRAM credentials of users.

Needs Alter on the cluster. Each user succeeds or fails by itself. The credentials are in the metadata log, from which
brokers authenticate SCRAM clients. They are stored and described even if no listener uses SCRAM.
"""

from __future__ import annotations

from barnabas.controller.handlers.backend import Backend
from barnabas.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from barnabas.security.acl import AclOperation
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal


class CredentialsHandler:
    """Alters the SCRAM credentials of users."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def alter_user_scram_credentials(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, AlterUserScramCredentialsRequest)
        self._backend.authorize_cluster(request, AclOperation.ALTER)
        context = self._backend.context(request)
        self._backend.respond(request, self._backend.controller.alter_user_scram_credentials(context, body))
