"""All metrics of a node, for /metrics and other exports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.node.process_metrics import ProcessMetrics
from barnabas.broker.node.scraped_metrics import ClusterMetrics, LogDirMetrics, NetworkMetrics
from barnabas.metrics.families import MetricFamily, MetricSelection, PatternFilter
from barnabas.metrics.prometheus import Source, collect

if TYPE_CHECKING:
    from barnabas.broker.config.kafka_config import KafkaConfig
    from barnabas.broker.node.broker_server import BrokerServer
    from barnabas.broker.node.controller_server import ControllerServer
    from barnabas.broker.node.shared_server import SharedServer


class ExportedMetrics:
    """Collects the metrics of a node that the configuration selects.

    Nothing is computed before `collect`, and no request pays for it. Rates of network threads refer to the time since
    the last call, so each export has an object of its own.
    """

    def __init__(
        self,
        config: KafkaConfig,
        shared: SharedServer,
        broker: BrokerServer | None,
        controller: ControllerServer | None,
    ) -> None:
        self._selection = selection_of(config)
        roles = [role for role in (broker, controller) if role is not None]
        self._sources: list[Source] = [
            shared.registry,
            shared.metrics,
            NetworkMetrics(lambda: [one for role in roles for one in role.processors], shared.clock),
            ProcessMetrics(),
        ]
        if broker is not None:
            from barnabas.broker.node.partition_metrics import PartitionMetrics

            assert broker.replica_manager is not None
            self._sources += [
                LogDirMetrics(broker.log_manager),
                PartitionMetrics(
                    config.node_id, broker.log_manager, broker.replica_manager, lambda: broker.group_coordinator
                ),
            ]
        if controller is not None:
            self._sources.append(ClusterMetrics(lambda: roles[0].cache.image))

    def collect(self) -> list[MetricFamily]:
        """Returns the selected families with their current values."""
        return collect(self._sources, self._selection)


def selection_of(config: KafkaConfig) -> MetricSelection:
    """Returns the selection that the settings ``barnabas.metrics.*`` describe."""

    def filter_of(prefix: str) -> PatternFilter:
        values = config.values
        return PatternFilter(values.get_list(f"{prefix}.include"), values.get_list(f"{prefix}.exclude"))

    return MetricSelection(
        filter_of("barnabas.metrics"), filter_of("barnabas.metrics.topics"), filter_of("barnabas.metrics.groups")
    )
