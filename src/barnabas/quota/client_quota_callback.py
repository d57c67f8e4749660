"""The plug-in that determines client quotas instead of the limits in the metadata (Q11).

``client.quota.callback.class`` names a Python class. It can derive quotas from anything: the group of the user, the
partitions that the broker leads, a price list. The broker still measures, throttles and reports metrics. The callback
decides which clients share a quota (those with the same tags) and how large it is::

    class ByTeam:
        def quota_metric_tags(self, quota_type, principal, client_id):
            return {"team": principal.name.partition("-")[0]}

        def quota_limit(self, quota_type, tags):
            return 10_000_000 if quota_type is ClientQuotaType.PRODUCE else None

        def update_quota(self, quota_type, entity, value): ...
        def remove_quota(self, quota_type, entity): ...
        def quota_reset_required(self, quota_type):
            return False

        def update_cluster_metadata(self, cluster):
            return False

        def close(self): ...

An optional method ``configure`` receives the broker's settings first. One object serves all quota types of a node, from
many threads at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from barnabas.common.dataclass import dataclass
from barnabas.common.topic_partition import TopicPartition
from barnabas.quota.quota_entity import QuotaEntity
from barnabas.quota.quota_type import ClientQuotaType
from barnabas.security.principal import KafkaPrincipal


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster as passed to a callback: its brokers, and the leader of each partition (None: no leader)."""

    cluster_id: str
    brokers: frozenset[int]
    leaders: Mapping[TopicPartition, int | None]


class ClientQuotaCallback(Protocol):
    """Determines the quotas of clients."""

    def quota_metric_tags(
        self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str
    ) -> Mapping[str, str]:
        """Returns the tags of a client's usage; clients with the same tags share a quota. Called for every request."""
        ...

    def quota_limit(self, quota_type: ClientQuotaType, tags: Mapping[str, str]) -> float | None:
        """Returns the limit for these tags; None if there is none, or if the tags are no longer in use."""
        ...

    def update_quota(self, quota_type: ClientQuotaType, entity: QuotaEntity, value: float) -> None:
        """Called when a limit was set with AlterClientQuotas."""
        ...

    def remove_quota(self, quota_type: ClientQuotaType, entity: QuotaEntity) -> None:
        """Called when a limit was removed."""
        ...

    def quota_reset_required(self, quota_type: ClientQuotaType) -> bool:
        """Returns whether limits may have changed since the last call, other than by the calls here.

        Called for every request, so it should only read a flag. If true, the broker looks up all limits again.
        """
        ...

    def update_cluster_metadata(self, cluster: Cluster) -> bool:
        """Called when the cluster has changed; returns whether limits have changed too."""
        ...

    def close(self) -> None: ...
