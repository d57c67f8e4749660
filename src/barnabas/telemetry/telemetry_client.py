"""The attributes of a client that sends telemetry."""

from __future__ import annotations

from typing import Self

from barnabas.common.dataclass import dataclass
from barnabas.common.identifiers import Uuid, uuid_to_string
from barnabas.server.request import Request


@dataclass(frozen=True, slots=True)
class TelemetryClient:
    """One connection of a client."""

    connection_id: str
    client_id: str | None
    software_name: str
    software_version: str
    """Name and version as sent in ApiVersions (KIP-511)."""
    address: str
    port: int | None
    principal: str
    listener: str

    @classmethod
    def of(cls, request: Request) -> Self:
        connection = request.context
        return cls(
            connection.connection_id,
            request.client_id,
            connection.client_software_name,
            connection.client_software_version,
            connection.client_address,
            source_port(connection.connection_id),
            str(request.request_context.principal),
            connection.listener_name,
        )

    def attributes(self, client_instance_id: Uuid) -> dict[str, str | None]:
        """Returns the attributes that subscriptions can match, by name."""
        return {
            "client_instance_id": uuid_to_string(client_instance_id),
            "client_id": self.client_id,
            "client_software_name": self.software_name,
            "client_software_version": self.software_version,
            "client_source_address": self.address,
            "client_source_port": None if self.port is None else str(self.port),
        }


def source_port(connection_id: str) -> int | None:
    """Returns the client's port, which is part of the connection ID.

    >>> source_port("10.0.0.1:9092-10.0.0.7:51820-4"), source_port("::1:9092-::1:51820-4")
    (51820, 51820)
    """
    port = connection_id.rpartition("-")[0].rpartition(":")[2]
    return int(port) if port.isdecimal() else None
