"""Applies replication throttle configs to the quota managers (Q09).

The rates are dynamic-only broker configs: an operator sets them before a reassignment, and removes them afterwards. A
topic config lists the throttled replicas.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.config.dynamic_broker_config import DynamicBrokerConfig
from barnabas.broker.config.dynamic_config_names import THROTTLE_CONFIG_DEF
from barnabas.log.config.log_config_def import LOG_CONFIG_DEF
from barnabas.metadata.configs import Settings
from barnabas.quota.quota_factory import QuotaManagers
from barnabas.quota.replication_quota_manager import ReplicationQuotaManager, throttled_partitions

LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"


class ReplicationThrottles:
    """Passes changed configs to the replication quota managers."""

    def __init__(self, broker_id: int, quotas: QuotaManagers, config: DynamicBrokerConfig) -> None:
        self._broker_id = broker_id
        self._config = config
        self._rates = {
            "leader.replication.throttled.rate": quotas.leader,
            "follower.replication.throttled.rate": quotas.follower,
            "replica.alter.log.dirs.io.max.bytes.per.second": quotas.alter_log_dirs,
        }
        self._replicas = {LEADER_REPLICAS: quotas.leader, FOLLOWER_REPLICAS: quotas.follower}

    def broker_changed(self) -> None:
        """Applies changed dynamic broker configs. Those of this broker override the cluster-wide defaults."""
        settings = {**self._config.current_dynamic_default_configs, **self._config.current_dynamic_broker_configs}
        for name, manager in self._rates.items():
            default = THROTTLE_CONFIG_DEF.keys[name].default
            value = THROTTLE_CONFIG_DEF.parse_value(name, settings[name]) if name in settings else default
            manager.update_quota(float(value))

    def topic_changed(self, topic: str, settings: Settings) -> None:
        """Applies the complete new settings of a topic."""
        for name, manager in self._replicas.items():
            self._mark(manager, topic, LOG_CONFIG_DEF.parse_value(name, settings.get(name, "")))

    def _mark(self, manager: ReplicationQuotaManager, topic: str, replicas: tuple[str, ...]) -> None:
        if replicas:
            manager.mark_throttled(topic, throttled_partitions(replicas, self._broker_id))
        else:
            manager.remove_throttle(topic)
