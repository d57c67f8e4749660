"""Passes client quotas from the metadata log to the quota managers (Q10).

    AlterClientQuotas -> controller -> metadata log -> every node -> ClientQuotaMetadataManager
                                                                       |- quota managers, for users and client ids
                                                                       |- connection quotas, for addresses

A changed limit applies to its clients from their next request; the usage measured so far is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from barnabas.broker.config.dynamic_config_publisher import Fault
from barnabas.common.topic_partition import TopicPartition
from barnabas.metadata.client_quotas import CLIENT_ID, IP, USER, ClientQuotaEntity, ClientQuotasDelta
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.publisher import LoaderManifest, MetadataPublisher
from barnabas.network.server.connection_quotas import ConnectionQuotas
from barnabas.quota.quota_entity import DEFAULT, QuotaEntity
from barnabas.quota.quota_factory import QuotaManagers
from barnabas.quota.quota_type import ClientQuotaType

if TYPE_CHECKING:
    from barnabas.quota.client_quota_callback import Cluster

logger = logging.getLogger(__name__)

CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
_CLIENT_QUOTAS: Final = {kind.key: kind for kind in ClientQuotaType}


class ClientQuotaMetadataManager:
    """Applies changed quota limits."""

    def __init__(self, quotas: QuotaManagers, connection_quotas: ConnectionQuotas) -> None:
        self._quotas = quotas
        self._connection_quotas = connection_quotas

    def update(self, delta: ClientQuotasDelta) -> None:
        """Applies all changes; logs a change that cannot be applied and continues."""
        for entity, changes in delta.changes.items():
            parts = entity.to_dict()
            if IP in parts:
                self._update_ip(parts[IP], changes)
            elif USER in parts or CLIENT_ID in parts:
                self._update_client(entity, changes)
            else:
                logger.warning("Quotas of %s are left out: nobody knows what that is", parts)

    def _update_ip(self, ip: str | None, changes: Mapping[str, float | None]) -> None:
        for key, value in changes.items():
            if key != CONNECTION_CREATION_RATE:
                logger.warning("The quota %s of address %s is left out: addresses have none of that kind", key, ip)
                continue
            try:
                self._connection_quotas.update_ip_connection_rate(ip, None if value is None else int(value))
            except Exception:
                logger.exception("The connection rate of %s could not be changed", ip or "all addresses")

    def _update_client(self, entity: ClientQuotaEntity, changes: Mapping[str, float | None]) -> None:
        whom = quota_entity(entity.to_dict())
        for key, value in changes.items():
            kind = _CLIENT_QUOTAS.get(key)
            if kind is None:
                logger.warning("The quota %s of %s is left out: there is none of that kind", key, whom)
                continue
            try:
                self._quotas.of(kind).update_quota(whom, value)
            except Exception:
                logger.exception("The quota %s of %s could not be changed", key, whom)


def quota_entity(parts: Mapping[str, str | None]) -> QuotaEntity:
    """Converts a quota entity of the metadata, in which a null name means the default, to the managers' type."""
    names = {kind: DEFAULT if name is None else name for kind, name in parts.items()}
    return QuotaEntity(names.get(USER), names.get(CLIENT_ID))


class DynamicClientQuotaPublisher(MetadataPublisher):
    """Passes changed limits to the manager, and cluster changes to the quota callback, if there is one."""

    def __init__(
        self,
        node_id: int,
        node_type: str,
        cluster_id: str,
        quotas: QuotaManagers,
        connection_quotas: ConnectionQuotas,
        *,
        on_fault: Fault,
    ) -> None:
        self._node_id = node_id
        self._node_type = node_type
        self._cluster_id = cluster_id
        self._quotas = quotas
        self._manager = ClientQuotaMetadataManager(quotas, connection_quotas)
        self._on_fault = on_fault

    @property
    def name(self) -> str:
        return f"DynamicClientQuotaPublisher {self._node_type} id={self._node_id}"

    def on_metadata_update(self, delta: MetadataDelta, new_image: MetadataImage, manifest: LoaderManifest) -> None:  # noqa: ARG002
        try:
            if delta.client_quotas is not None:
                self._manager.update(delta.client_quotas)
            if self._quotas.callback is not None and (delta.topics is not None or delta.cluster is not None):
                self._quotas.update_cluster_metadata(_cluster(self._cluster_id, new_image))
        except Exception as error:  # noqa: BLE001 - a callback is a plug-in
            self._on_fault(f"applying client quotas up to offset {new_image.offset}", error)


def _cluster(cluster_id: str, image: MetadataImage) -> Cluster:
    from barnabas.quota.client_quota_callback import Cluster

    return Cluster(
        cluster_id,
        frozenset(number for number, broker in image.cluster.brokers.items() if not broker.fenced),
        {
            TopicPartition(topic.name, number): None if partition.leader < 0 else partition.leader
            for topic in image.topics.by_id.values()
            for number, partition in topic.partitions.items()
        },
    )
