"""The registration of a controller."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.common.dataclass import dataclass, field
from barnabas.common.identifiers import Uuid
from barnabas.metadata.endpoint import (
    Endpoint,
    Node,
    endpoint_records,
    endpoints_by_name,
    feature_records,
    features_by_name,
)
from barnabas.protocol.internal.metadata import ControllerEndpoint, ControllerFeature, RegisterControllerRecord
from barnabas.protocol.versions import VersionRange


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """The addresses and supported feature levels of a controller (KIP-919).

    The voters are not part of it: Raft manages them.
    """

    id: int
    incarnation_id: Uuid
    listeners: Mapping[str, Endpoint]
    supported_features: Mapping[str, VersionRange] = field(default_factory=dict)
    zk_migration_ready: bool = False

    @classmethod
    def from_record(cls, record: RegisterControllerRecord) -> ControllerRegistration:
        return cls(
            id=record.controller_id,
            incarnation_id=record.incarnation_id,
            listeners=endpoints_by_name(record.end_points),
            supported_features=features_by_name(record.features),
            zk_migration_ready=record.zk_migration_ready,
        )

    def to_record(self) -> RegisterControllerRecord:
        return RegisterControllerRecord(
            controller_id=self.id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=self.zk_migration_ready,
            end_points=endpoint_records(ControllerEndpoint, self.listeners.values()),
            features=feature_records(ControllerFeature, self.supported_features),
        )

    def node(self, listener_name: str) -> Node | None:
        endpoint = self.listeners.get(listener_name)
        return None if endpoint is None else Node(self.id, endpoint.host, endpoint.port)
