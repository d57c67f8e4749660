"""The plug-in that decides about client quotas in place of the limits in the metadata (Q11).

``client.quota.callback.class`` names a class of Python. It can give quotas by anything that it knows: a group that the
user belongs to, the partitions that the broker leads, a price list. The broker still measures, throttles and shows the
metrics; the callback says who shares a quota (by giving the same tags) and how large it is::

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

A method ``configure``, if there is one, is given the broker's settings first. One object serves all kinds of quota of a
node, from many threads at once.
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
    """What a callback is told about the cluster: its brokers, and who leads which partition (None: nobody)."""

    cluster_id: str
    brokers: frozenset[int]
    leaders: Mapping[TopicPartition, int | None]


class ClientQuotaCallback(Protocol):
    """Decides about the quotas of clients."""

    def quota_metric_tags(
        self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str
    ) -> Mapping[str, str]:
        """Tags for a client's usage; clients with the same tags share one quota. Asked for every request."""
        ...

    def quota_limit(self, quota_type: ClientQuotaType, tags: Mapping[str, str]) -> float | None:
        """The limit for these tags; None if there is none, or if they are not in use any more."""
        ...

    def update_quota(self, quota_type: ClientQuotaType, entity: QuotaEntity, value: float) -> None:
        """Somebody has set a limit with the usual tools."""
        ...

    def remove_quota(self, quota_type: ClientQuotaType, entity: QuotaEntity) -> None:
        """Somebody has taken one away."""
        ...

    def quota_reset_required(self, quota_type: ClientQuotaType) -> bool:
        """Whether limits may have changed since this was last asked, other than by the calls here.

        Asked for every request, so it should be a look at a flag. True has all limits looked up anew.
        """
        ...

    def update_cluster_metadata(self, cluster: Cluster) -> bool:
        """The cluster has changed; returns whether limits have, too."""
        ...

    def close(self) -> None: ...
