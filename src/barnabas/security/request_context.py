"""The context of a request, known before its body is parsed: the input of an authorizer."""

from __future__ import annotations

from typing import Protocol

from barnabas.network.server.endpoint import SecurityProtocol
from barnabas.network.server.plane import ConnectionContext
from barnabas.protocol.api_keys import ApiKey
from barnabas.security.principal import ANONYMOUS, KafkaPrincipal


class AuthorizableRequestContext(Protocol):
    """The origin and the kind of a request."""

    @property
    def principal(self) -> KafkaPrincipal: ...

    @property
    def client_address(self) -> str: ...

    @property
    def listener_name(self) -> str: ...

    @property
    def security_protocol(self) -> SecurityProtocol: ...

    @property
    def api_key(self) -> ApiKey: ...

    @property
    def api_version(self) -> int: ...

    @property
    def client_id(self) -> str | None: ...

    @property
    def correlation_id(self) -> int: ...


class RequestContext:
    """The context of a request.

    For a forwarded request, principal and address are those of the original client, from the Envelope. Listener and
    protocol are those of the Envelope's connection.
    """

    __slots__ = (
        "api_key",
        "api_version",
        "client_address",
        "client_id",
        "correlation_id",
        "listener_name",
        "principal",
        "security_protocol",
    )

    def __init__(
        self,
        principal: KafkaPrincipal,
        client_address: str,
        listener_name: str,
        security_protocol: SecurityProtocol,
        api_key: ApiKey,
        api_version: int = 0,
        client_id: str | None = None,
        correlation_id: int = 0,
    ) -> None:
        self.principal = principal
        self.client_address = client_address
        self.listener_name = listener_name
        self.security_protocol = security_protocol
        self.api_key = api_key
        self.api_version = api_version
        self.client_id = client_id
        self.correlation_id = correlation_id

    @classmethod
    def of(
        cls,
        connection: ConnectionContext,
        api_key: ApiKey,
        api_version: int,
        client_id: str | None = None,
        correlation_id: int = 0,
    ) -> RequestContext:
        """Creates it from the data of the network layer; an unauthenticated connection is anonymous."""
        principal = connection.principal
        return cls(
            ANONYMOUS if principal is None else principal,
            connection.client_address,
            connection.listener_name,
            connection.security_protocol,
            api_key,
            api_version,
            client_id,
            correlation_id,
        )

    def __repr__(self) -> str:
        return (
            f"RequestContext({self.api_key.title} v{self.api_version} of {self.principal} at {self.client_address}, "
            f"client {self.client_id!r}, correlation id {self.correlation_id}, listener {self.listener_name})"
        )
