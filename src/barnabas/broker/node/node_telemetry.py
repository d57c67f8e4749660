"""Assembles a broker's telemetry about its clients and itself.

=========================== ==================================================================================
``__client_telemetry``      `ClientMetricsManager`: metrics that clients push
``__request_log``           `RequestLog`: a sample of all requests
``__quota_usage``           `QuotaUsageReporter`: the usage of each quota
=========================== ==================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from barnabas.broker.config.client_metrics_config import (
    CLIENT_METRICS_CONFIG_DEF,
    parse_matching_patterns,
    validate_client_metrics_config,
)
from barnabas.broker.config.dynamic_broker_config import DynamicBrokerConfig, FunctionReconfigurable
from barnabas.broker.config.dynamic_config_names import TELEMETRY_CONFIGS
from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.node.shared_server import SharedServer
from barnabas.broker.to_controller.auto_topic_creation_manager import AutoTopicCreationManager
from barnabas.common.scheduler import Scheduler
from barnabas.common.topic_names import CLIENT_TELEMETRY_TOPIC, QUOTA_USAGE_TOPIC, REQUEST_LOG_TOPIC
from barnabas.coordinator.runtime.timer_reaper import SystemTimerReaper
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.configs import Settings
from barnabas.quota.quota_factory import QuotaManagers
from barnabas.replica.replica_manager import ReplicaManager
from barnabas.server.timer import SystemTimer
from barnabas.telemetry.client_metrics_manager import REAPER_NAME, TIMER_NAME, ClientMetricsManager
from barnabas.telemetry.exporter import EXPORTERS, ClientTelemetryExporters, make_exporters
from barnabas.telemetry.quota_usage import INTERVAL, QuotaUsageEncoder, QuotaUsageReporter
from barnabas.telemetry.request_log import LINGER_MS as REQUEST_LOG_LINGER_MS
from barnabas.telemetry.request_log import SAMPLE_RATE, RequestLog, RequestLogEncoder
from barnabas.telemetry.subscription_info import SubscriptionInfo
from barnabas.telemetry.topic_exporter import TopicExporter
from barnabas.telemetry.topic_writer import LINGER_MS, TopicRecord, TopicWriter

T = TypeVar("T")


class NodeTelemetry:
    """Owns the three reporters, their topics and their threads."""

    def __init__(
        self,
        config: KafkaConfig,
        cache: MetadataCache,
        replicas: ReplicaManager,
        topic_creation: AutoTopicCreationManager,
        quotas: QuotaManagers,
        scheduler: Scheduler,
        shared: SharedServer,
    ) -> None:
        """Starts the reaper of inactive clients; raises `ConfigError` if an exporter cannot be made."""
        node_id = config.node_id
        clock, registry, metrics, exit_procedure = shared.clock, shared.registry, shared.metrics, shared.exit_procedure

        def writer(topic: str, encode: Callable[[T], TopicRecord], linger_ms: int = LINGER_MS) -> TopicWriter[T]:
            return TopicWriter(
                topic,
                encode,
                node_id,
                cache,
                replicas,
                lambda name: topic_creation.create_topics([name]),
                replicas.action_queue.try_complete_actions,
                scheduler,
                clock,
                registry,
                linger_ms=linger_ms,
            )

        plug_ins = make_exporters(config.value(EXPORTERS), config.properties)
        self.client_telemetry: TopicWriter[TopicRecord] = writer(CLIENT_TELEMETRY_TOPIC, lambda record: record)
        self._exporters = ClientTelemetryExporters([TopicExporter(self.client_telemetry, node_id), *plug_ins])
        timer = SystemTimer(TIMER_NAME, clock, exit_procedure=exit_procedure)
        self._reaper = SystemTimerReaper(REAPER_NAME, timer, exit_procedure)
        self.client_metrics = ClientMetricsManager(
            self._exporters, config.value("telemetry.max.bytes"), timer, clock, metrics
        )
        request_log_writer = writer(REQUEST_LOG_TOPIC, RequestLogEncoder(node_id, clock), REQUEST_LOG_LINGER_MS)
        self.request_log = RequestLog(shared.request_times, request_log_writer)
        quota_usage_writer = writer(QUOTA_USAGE_TOPIC, QuotaUsageEncoder(node_id))
        self.quota_usage = QuotaUsageReporter(quotas.clients, metrics, quota_usage_writer, scheduler, clock)
        self._writers: tuple[TopicWriter[Any], ...] = (self.client_telemetry, request_log_writer, quota_usage_writer)
        self._reaper.start()

    def start(self, config: KafkaConfig) -> None:
        """Starts the request log and the quota reports that the configuration enables."""
        self._configure(config)

    def add_to(self, dynamic_config: DynamicBrokerConfig) -> None:
        """Subscribes to changes of the dynamic configs."""
        dynamic_config.add_reconfigurable(
            FunctionReconfigurable(TELEMETRY_CONFIGS, lambda _old, new: self._configure(new))
        )

    def _configure(self, config: KafkaConfig) -> None:
        self.request_log.sample_rate = config.value(SAMPLE_RATE)
        if self.quota_usage.interval_ms != config.value(INTERVAL):
            self.quota_usage.interval_ms = config.value(INTERVAL)

    def client_metrics_changed(self, name: str, settings: Settings) -> None:
        """Applies the new settings of a subscription; empty settings delete it."""
        self.client_metrics.update_subscription(name, subscription_of(name, settings) if settings else None)

    def flush(self) -> None:
        """Writes buffered records. Call before the broker hands over its partitions."""
        for writer in self._writers:
            writer.flush()

    def shutdown(self) -> None:
        """Writes the remaining records. Call after the last request, and before the log is closed."""
        self.request_log.sample_rate = 0.0
        self.quota_usage.close()
        for writer in self._writers:
            writer.close()
        self._exporters.close()
        self.client_metrics.close()
        self._reaper.close()


def subscription_of(name: str, settings: Settings) -> SubscriptionInfo:
    """Makes a subscription from its settings; raises if they are invalid."""
    validate_client_metrics_config(name, settings)
    values = CLIENT_METRICS_CONFIG_DEF.parse(settings)
    return SubscriptionInfo(
        name,
        frozenset(values.get_list("metrics")),
        values.get_int("interval.ms"),
        parse_matching_patterns(values.get_list("match")),
    )
