"""Creates all quota managers of a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

from barnabas.common.clock import Clock
from barnabas.common.config_def import ConfigError
from barnabas.common.dataclass import dataclass
from barnabas.metrics.registry import Metrics
from barnabas.quota.client_bandwidth_quota_manager import ClientBandwidthQuotaManager
from barnabas.quota.client_quota_manager import ClientQuotaManager
from barnabas.quota.client_request_quota_manager import ClientRequestQuotaManager
from barnabas.quota.config import QuotaConfig
from barnabas.quota.controller_mutation_quota_manager import ControllerMutationQuotaManager
from barnabas.quota.quota_type import ClientQuotaType, QuotaType
from barnabas.quota.replication_quota_manager import ReplicationQuotaManager

if TYPE_CHECKING:
    from barnabas.quota.client_quota_callback import ClientQuotaCallback, Cluster

CALLBACK_CLASS: Final = "client.quota.callback.class"
_CALLBACK_METHODS: Final = (
    "quota_metric_tags",
    "quota_limit",
    "update_quota",
    "remove_quota",
    "quota_reset_required",
    "update_cluster_metadata",
    "close",
)


@dataclass(frozen=True, slots=True)
class QuotaManagers:
    """The seven managers. The broker and the controller of one node use the same sensors."""

    fetch: ClientBandwidthQuotaManager
    produce: ClientBandwidthQuotaManager
    request: ClientRequestQuotaManager
    controller_mutation: ControllerMutationQuotaManager
    leader: ReplicationQuotaManager
    follower: ReplicationQuotaManager
    alter_log_dirs: ReplicationQuotaManager
    callback: ClientQuotaCallback | None = None

    @classmethod
    def instantiate(
        cls,
        config: QuotaConfig,
        metrics: Metrics,
        clock: Clock,
        *,
        thread_name_prefix: str = "",
        callback: ClientQuotaCallback | None = None,
    ) -> Self:
        """Creates the managers. Their reapers start with the first throttled connection."""

        def bandwidth(quota_type: QuotaType) -> ClientBandwidthQuotaManager:
            return ClientBandwidthQuotaManager(
                config.client, metrics, quota_type, clock, thread_name_prefix=thread_name_prefix, callback=callback
            )

        return cls(
            fetch=bandwidth(QuotaType.FETCH),
            produce=bandwidth(QuotaType.PRODUCE),
            request=ClientRequestQuotaManager(
                config.client, metrics, clock, thread_name_prefix=thread_name_prefix, callback=callback
            ),
            controller_mutation=ControllerMutationQuotaManager(
                config.controller_mutation, metrics, clock, thread_name_prefix=thread_name_prefix, callback=callback
            ),
            leader=ReplicationQuotaManager(config.replication, metrics, QuotaType.LEADER_REPLICATION, clock),
            follower=ReplicationQuotaManager(config.replication, metrics, QuotaType.FOLLOWER_REPLICATION, clock),
            alter_log_dirs=ReplicationQuotaManager(
                config.alter_log_dirs, metrics, QuotaType.ALTER_LOG_DIRS_REPLICATION, clock
            ),
            callback=callback,
        )

    @property
    def clients(self) -> tuple[ClientQuotaManager, ...]:
        """The managers of client quotas."""
        return self.fetch, self.produce, self.request, self.controller_mutation

    def of(self, quota_type: ClientQuotaType) -> ClientQuotaManager:
        return _BY_TYPE[quota_type](self)

    def update_cluster_metadata(self, cluster: Cluster) -> None:
        """Passes the cluster to the callback, and looks up all limits again if the callback says so."""
        if self.callback is not None and self.callback.update_cluster_metadata(cluster):
            for manager in self.clients:
                manager.update_quota_metric_configs()

    def shutdown(self) -> None:
        """Stops the reapers. Throttled connections stay muted; they are closed soon."""
        for manager in self.clients:
            manager.initiate_shutdown()
        for manager in self.clients:
            manager.shutdown()
        if self.callback is not None:
            self.callback.close()


_BY_TYPE: Final[Mapping[ClientQuotaType, Callable[[QuotaManagers], ClientQuotaManager]]] = {
    ClientQuotaType.FETCH: lambda managers: managers.fetch,
    ClientQuotaType.PRODUCE: lambda managers: managers.produce,
    ClientQuotaType.REQUEST: lambda managers: managers.request,
    ClientQuotaType.CONTROLLER_MUTATION: lambda managers: managers.controller_mutation,
}


def make_callback(
    callback_class: Callable[[], Any] | None, properties: Mapping[str, str]
) -> ClientQuotaCallback | None:
    """Creates the class in ``client.quota.callback.class``; returns None if it is not set."""
    if callback_class is None:
        return None
    callback: ClientQuotaCallback = callback_class()
    missing = [method for method in _CALLBACK_METHODS if not hasattr(callback, method)]
    if missing:
        raise ConfigError.invalid(CALLBACK_CLASS, callback_class, f"the class lacks {', '.join(missing)}")
    configure: Callable[[Mapping[str, str]], object] | None = getattr(callback, "configure", None)
    if configure is not None:
        configure(properties)
    return callback
