"""Builds the parts of a consumer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from barnabas.clients.common.bootstrap import bootstrap_nodes
from barnabas.clients.common.client_config import client_properties, refuse_unknown
from barnabas.clients.common.client_metrics import make_metrics
from barnabas.clients.common.network_client import (
    NetworkEnvironment,
    NetworkInstruments,
    NetworkSettings,
    make_network_client,
)
from barnabas.clients.common.plug_ins import close_all, configured, load_class
from barnabas.clients.common.telemetry.client_telemetry_reporter import ClientTelemetryReporter
from barnabas.clients.consumer.consumer_config import CONFIG, ConsumerConfig, IsolationLevel
from barnabas.clients.consumer.deserialization import Deserializer, as_deserializer
from barnabas.clients.consumer.interceptors import ConsumerInterceptor, ConsumerInterceptors
from barnabas.clients.consumer.internals.all_partitions import AllPartitionsManager
from barnabas.clients.consumer.internals.async_consumer_metrics import AsyncConsumerMetrics
from barnabas.clients.consumer.internals.background_events import BackgroundEventQueue
from barnabas.clients.consumer.internals.completed_fetch import FetchReading
from barnabas.clients.consumer.internals.consumer_metadata import ConsumerMetadata
from barnabas.clients.consumer.internals.consumer_metrics import FetchMetrics, KafkaConsumerMetrics
from barnabas.clients.consumer.internals.consumer_network_thread import ConsumerNetworkThread
from barnabas.clients.consumer.internals.fetch_buffer import FetchBuffer
from barnabas.clients.consumer.internals.fetch_collector import FetchCollector
from barnabas.clients.consumer.internals.fetch_files import FetchFiles
from barnabas.clients.consumer.internals.fetch_request_manager import FetchRequestManager
from barnabas.clients.consumer.internals.group_managers import GroupManagers
from barnabas.clients.consumer.internals.network_client_delegate import NetworkClientDelegate
from barnabas.clients.consumer.internals.offsets_request_manager import OffsetsRequestManager, OffsetsSettings
from barnabas.clients.consumer.internals.request_managers import RequestManager
from barnabas.clients.consumer.internals.subscription_state import SubscriptionState
from barnabas.clients.consumer.internals.topic_metadata_request_manager import TopicMetadataRequestManager
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.network.client.host_resolver import HostResolver, resolve_all_ips
from barnabas.network.client.network_client import NetworkClient
from barnabas.network.client.node_api_versions import ApiVersions
from barnabas.network.reactor.selectable import Selectable


class ConsumerParts:
    """The parts of a consumer, created in dependency order and not started."""

    def __init__(
        self,
        config: Mapping[str, object] | None,
        settings: Mapping[str, object],
        *,
        key_deserializer: object = None,
        value_deserializer: object = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        clock: Clock = SYSTEM_CLOCK,
        resolver: HostResolver = resolve_all_ips,
        selector: Selectable | None = None,
        random: Random | None = None,
    ) -> None:
        refuse_unknown(settings, CONFIG)
        properties = client_properties(config, settings)
        given_key = key_deserializer or properties.pop("key.deserializer", None)
        given_value = value_deserializer or properties.pop("value.deserializer", None)
        self._sizes_receive_buffers = "receive.buffer.bytes" in properties
        self.config = ConsumerConfig.from_properties(properties)
        self.clock = clock
        self.random = Random() if random is None else random  # noqa: S311 - spreads load, keeps no secret
        cfg, values = self.config, self.config.values
        originals = {**values.originals, "client.id": cfg.client_id}
        self.key_deserializer: Deserializer | None = as_deserializer(
            load_class("key.deserializer", given_key), originals, is_key=True
        )
        self.value_deserializer: Deserializer | None = as_deserializer(
            load_class("value.deserializer", given_value), originals, is_key=False
        )
        given = [configured("interceptor.classes", name, originals) for name in values.get_list("interceptor.classes")]
        self.interceptors = ConsumerInterceptors([*given, *interceptors])

        self.metrics = make_metrics(values, cfg.client_id, clock)
        self.consumer_metrics = KafkaConsumerMetrics(self.metrics, clock)
        self.fetch_metrics = FetchMetrics(self.metrics)

        self.background_events = BackgroundEventQueue(clock)
        self.subscriptions = SubscriptionState(cfg.auto_offset_reset)
        self.metadata = ConsumerMetadata(
            cfg.retry_backoff_ms,
            cfg.retry_backoff_max_ms,
            cfg.metadata_max_age_ms,
            subscriptions=self.subscriptions,
            allow_auto_topic_creation=cfg.allow_auto_create_topics,
            include_internal_topics=not cfg.exclude_internal_topics,
            random=self.random,
        )
        resolve = resolver if not values.get_int("bootstrap.resolve.timeout.ms") else None
        self.metadata.bootstrap(bootstrap_nodes(cfg.bootstrap_servers, resolve))
        self.api_versions = ApiVersions()
        self.telemetry: ClientTelemetryReporter | None = None
        if values.get_bool("enable.metrics.push"):
            labels = {
                "group_id": cfg.group_id or "",
                "group_instance_id": cfg.group_instance_id or "",
                "client_rack": cfg.client_rack,
            }
            self.telemetry = ClientTelemetryReporter("consumer", self.metrics, labels, clock, self.random)
        self.delegate = NetworkClientDelegate(
            self._network_client(selector, resolver),
            self.metadata,
            self.background_events,
            request_timeout_ms=cfg.request_timeout_ms,
            retry_backoff_ms=cfg.retry_backoff_ms,
            clock=clock,
        )

        self.buffer = FetchBuffer(clock)
        self.collector = FetchCollector(
            self.buffer,
            self.subscriptions,
            self.metadata,
            self.fetch_metrics,
            isolation_level=cfg.isolation_level,
            preferred_read_replica_ms=cfg.metadata_max_age_ms,
            client_id=cfg.client_id,
            clock=clock,
        )
        self.group: GroupManagers | None = None
        if cfg.group_id is not None:
            self.group = GroupManagers(
                config=cfg,
                subscriptions=self.subscriptions,
                metadata=self.metadata,
                background_events=self.background_events,
                metrics=self.metrics,
                clock=clock,
                random=self.random,
            )
        self.fetches = self._fetch_manager()
        self.offsets = OffsetsRequestManager(
            self.subscriptions,
            self.metadata,
            self.background_events,
            self.api_versions,
            OffsetsSettings(
                isolation_level=cfg.isolation_level,
                retry_backoff_ms=cfg.retry_backoff_ms,
                request_timeout_ms=cfg.request_timeout_ms,
                default_api_timeout_ms=cfg.default_api_timeout_ms,
            ),
            fetch_committed=None if self.group is None else self.group.fetch_committed,
            clock=clock,
        )
        self.topics = TopicMetadataRequestManager(
            allow_auto_topic_creation=cfg.allow_auto_create_topics, retry_backoff_ms=cfg.retry_backoff_ms
        )
        assigning: Sequence[RequestManager] = (
            [AllPartitionsManager(self.subscriptions, self.metadata)] if self.group is None else self.group.managers
        )
        self.network_thread = ConsumerNetworkThread(
            [*assigning, self.offsets, self.topics, self.fetches],
            self.delegate,
            self.background_events,
            clock=clock,
            name=cfg.client_id,
        )
        self.async_metrics = AsyncConsumerMetrics(
            self.metrics, self.network_thread.events, self.background_events, self.delegate
        )
        self.network_thread.on_turn = self.async_metrics.turned
        self.background_events.on_put = self.buffer.notify
        self.buffer.on_dropped = self.fetch_metrics.record_dropped
        self.subscriptions.assignment.on_change = self.buffer.notify
        self.network_thread.on_end = self.buffer.notify

    def _fetch_manager(self) -> FetchRequestManager:
        cfg = self.config
        key, value = self.key_deserializer, self.value_deserializer
        return FetchRequestManager(
            cfg,
            self.subscriptions,
            self.metadata,
            self.buffer,
            self.fetch_metrics,
            FetchReading(
                cfg.isolation_level,
                cfg.check_crcs,
                None if key is None else key.deserialize,
                None if value is None else value.deserialize,
            ),
            is_unavailable=self.delegate.is_unavailable,
            files=FetchFiles(
                self.delegate.client.file_reading, is_committed=cfg.isolation_level is IsolationLevel.READ_COMMITTED
            ),
        )

    def _network_client(self, selector: Selectable | None, resolver: HostResolver) -> NetworkClient:
        settings = NetworkSettings(
            client_id=self.config.client_id,
            # Effectively unlimited: each manager limits itself.
            max_in_flight=100,
            request_timeout_ms=self.config.request_timeout_ms,
            # Kafka's default of 64 KiB is a floor here, because systems begin with no less. Setting it would fix the
            # buffer at that size, so that a response of megabytes comes in a hundred pieces, each with a wait at both
            # ends; otherwise it grows with the traffic. An explicit size is set.
            receive_buffer_bytes=(
                self.config.values.get_int("receive.buffer.bytes") if self._sizes_receive_buffers else -1
            ),
        )
        return make_network_client(
            self.config.values,
            self.metadata,
            settings,
            NetworkEnvironment(self.clock, self.random, resolver, selector),
            NetworkInstruments(self.metrics, "consumer", self.telemetry, self.fetch_metrics.throttle_time),
            self.api_versions,
        )

    def close_plug_ins(self) -> None:
        self.interceptors.close()
        self.metrics.close()
        close_all(self.key_deserializer, self.value_deserializer)
