"""Starts and stops the broker of a node.

:meth:`BrokerServer.startup` creates the parts of a broker in the order of their dependencies;
:meth:`BrokerServer.shutdown` stops them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.config.dynamic_broker_config import DynamicBrokerConfig
from barnabas.broker.config.dynamic_config_publisher import DynamicConfigPublisher
from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.config.listeners import resolved
from barnabas.broker.config.reconfigurables import (
    DynamicConnectionLimits,
    DynamicListeners,
    DynamicLogCleaner,
    DynamicLogConfig,
    DynamicNetworkThreads,
    DynamicProducerStates,
    DynamicThreadPool,
)
from barnabas.broker.handlers.broker_handlers import INLINE_APIS, LIGHT_BYTES, BrokerParts, make_handlers
from barnabas.broker.node.authorizers import AclPublisher, add_authorizer, make_authorizer
from barnabas.broker.node.background_loading import BackgroundLoading
from barnabas.broker.node.broker_listeners import BrokerListeners
from barnabas.broker.node.broker_state import BrokerState
from barnabas.broker.node.coordinators import GROUP, CoordinatorContext, Coordinators, coordinator_makers
from barnabas.broker.node.listener_security import UserCredentials, Users
from barnabas.broker.node.node_quotas import make_quota_managers
from barnabas.broker.node.node_telemetry import NodeTelemetry
from barnabas.broker.node.request_serving import RequestServing, startup_seconds
from barnabas.broker.node.shared_server import SharedServer
from barnabas.broker.node.stop_steps import run_steps, step
from barnabas.broker.publishers.applied_metadata import AppliedMetadata
from barnabas.broker.publishers.broker_metadata_publisher import BrokerMetadataPublisher
from barnabas.broker.publishers.client_quota_metadata_manager import DynamicClientQuotaPublisher
from barnabas.broker.publishers.internal_topics import default_topic_settings, internal_topic_settings
from barnabas.broker.publishers.lifecycle_publisher import LifecyclePublisher
from barnabas.broker.publishers.replication_throttles import ReplicationThrottles
from barnabas.broker.to_controller.alter_partition_manager import DefaultAlterPartitionManager
from barnabas.broker.to_controller.assignments_manager import AssignmentsManager, DirectoryReports
from barnabas.broker.to_controller.auto_topic_creation_manager import AutoTopicCreationManager
from barnabas.broker.to_controller.broker_lifecycle_manager import (
    BrokerLifecycleConfig,
    BrokerLifecycleManager,
    BrokerRegistrationInfo,
)
from barnabas.broker.to_controller.forwarding_manager import ForwardingManager
from barnabas.broker.to_controller.node_to_controller_channel import (
    ALTER_PARTITION,
    DIRECTORY_ASSIGNMENTS,
    FORWARDING,
    HEARTBEAT,
    NEVER,
    NodeToControllerChannelManager,
    NodeToControllerConfig,
)
from barnabas.common.log_safety import WINDOW_MS as LOG_WINDOW_MS
from barnabas.common.log_safety import report_suppressed
from barnabas.common.scheduler import KafkaScheduler
from barnabas.controller.quorum_features import default_supported_features
from barnabas.coordinator.transaction.producer_id_manager import ProducerIdManager
from barnabas.log.cleaner.log_cleaner import LogCleaner
from barnabas.log.dirs.log_dir_failure import LogDirFailureChannel
from barnabas.log.manager.log_manager import LogManager
from barnabas.log.manager.log_startup import RecoveryListener
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.configs import Settings
from barnabas.metadata.publisher import MetadataPublisher
from barnabas.metrics.yammer.registry import KafkaMetricsGroup
from barnabas.network.server.endpoint import Endpoint
from barnabas.network.server.processor import Processor
from barnabas.quota.quota_factory import QuotaManagers
from barnabas.replica.config import ReplicaManagerConfig
from barnabas.replica.fetch.fetch_session_cache import FetchSessionCache
from barnabas.replica.fetch.fetch_session_manager import FetchManager
from barnabas.replica.follower.replica_fetchers import NoReplicaFetchers
from barnabas.replica.replica_manager import ReplicaManager, ReplicaPlugins
from barnabas.security.auth_helper import AuthHelper
from barnabas.security.authorizer import Authorizer, AuthorizerServerInfo
from barnabas.security.tokens import DelegationTokenCache
from barnabas.server.dispatch import ApiDispatcher

if TYPE_CHECKING:
    from barnabas.coordinator.group.group_coordinator_service import GroupCoordinatorService

logger = logging.getLogger(__name__)

CONTROLLED_SHUTDOWN_TIMEOUT_S: Final = 300
SENSOR_EXPIRY_CHECK_MS: Final = 30_000


class BrokerServer:
    """Owns all parts of a node's broker role."""

    def __init__(self, config: KafkaConfig, shared: SharedServer, on_recovery: RecoveryListener | None = None) -> None:
        """Creates and locks the log directories, so that no other process can use them."""
        self._config = config
        self._shared = shared
        clock = shared.clock
        self.cache = MetadataCache(self._kraft_version)
        self.scheduler = KafkaScheduler(config.background_threads, clock=clock, exit_procedure=shared.exit_procedure)
        self._failure_channel = LogDirFailureChannel(clock)
        self.cleaner = LogCleaner(
            config.cleaner(),
            config.log_dirs,
            self._failure_channel,
            clock,
            metrics=shared.registry,
        )
        self._log_manager_config = config.log_manager(shared.cluster_id)
        self.log_manager = LogManager(
            config.log_dirs,
            self._log_manager_config,
            clock,
            self.scheduler,
            topic_overrides=self.cache.topic_config,
            failure_channel=self._failure_channel,
            cleaner=self.cleaner,
            on_recovery=on_recovery,
        )
        self.dynamic_config = DynamicBrokerConfig(config)
        self.tokens = DelegationTokenCache(
            config.delegation_token_secret_key, lambda: self.cache.image.delegation_tokens.tokens, clock
        )
        """The delegation tokens, for SASL listeners and DescribeDelegationToken."""
        self.quotas: QuotaManagers | None = None
        self.telemetry: NodeTelemetry | None = None
        self.lifecycle: BrokerLifecycleManager | None = None
        self.replica_manager: ReplicaManager | None = None
        self._listeners: BrokerListeners | None = None
        self.serving: RequestServing | None = None
        self._loading: BackgroundLoading | None = None
        self._authorizer: Authorizer | None = None
        self._channels: list[NodeToControllerChannelManager] = []
        self._alter_partition: DefaultAlterPartitionManager | None = None
        self._assignments: AssignmentsManager | None = None
        self._forwarding: ForwardingManager | None = None
        self._coordinators: Coordinators | None = None
        self._apis: ApiDispatcher | None = None
        self._publishers: list[MetadataPublisher] = []
        self._abandoned = False
        """Whether the node has failed and startup must stop waiting. Set by any thread."""

    def _kraft_version(self) -> int:
        return 0 if self._shared.raft is None else self._shared.raft.client.kraft_version

    # -- start

    def startup(self) -> None:
        """Starts the broker; returns when it serves clients."""
        config, shared = self._config, self._shared
        clock, registry, node_id = shared.clock, shared.registry, config.node_id
        logger.info("Starting broker %d", node_id)

        quotas = self.quotas = make_quota_managers(config, shared.metrics, clock, "broker")
        lifecycle = self.lifecycle = BrokerLifecycleManager(
            BrokerLifecycleConfig(
                node_id,
                config.rack,
                config.broker_heartbeat_interval_ms,
                config.initial_broker_registration_timeout_ms,
            ),
            self.log_manager.log_dirs.directory_ids.values(),
            clock=clock,
            on_directory_failure_unreported=lambda: shared.exit_procedure(1),
            exit_procedure=shared.exit_procedure,
        )
        if self._abandoned:
            lifecycle.begin_shutdown()
        forwarding_channel = self._channel(FORWARDING)
        forwarding_channel.start()
        applied = AppliedMetadata(shared.high_watermark, self.scheduler)
        forwarding = self._forwarding = ForwardingManager(
            forwarding_channel, registry, clock, when_applied=applied.when_applied
        )
        self._alter_partition = DefaultAlterPartitionManager(
            self._channel(ALTER_PARTITION, NEVER), self.scheduler, node_id, lambda: lifecycle.broker_epoch
        )
        self._alter_partition.start()
        self._assignments = AssignmentsManager(
            node_id,
            self._channel(DIRECTORY_ASSIGNMENTS),
            lambda: self.cache.image,
            lambda: lifecycle.broker_epoch,
            registry,
            clock=clock,
        )
        replicas = self.replica_manager = ReplicaManager(
            ReplicaManagerConfig.from_values(
                config.values, broker_id=node_id, metadata_log_dir=config.metadata_log_dir
            ),
            self.log_manager,
            self.cache,
            self._alter_partition,
            clock,
            self.scheduler,
            registry,
            ReplicaPlugins(
                DirectoryReports(self._assignments, lifecycle, config.value("log.dir.failure.timeout.ms")),
                NoReplicaFetchers(),
                broker_epoch=lambda: lifecycle.broker_epoch,
                alter_log_dirs_quota=quotas.alter_log_dirs,
            ),
            exit_procedure=shared.exit_procedure,
        )

        authorizer = self._authorizer = make_authorizer(config)
        serving = self.serving = RequestServing(
            config,
            clock,
            shared.request_times,
            registry,
            shared.metrics,
            shared.exit_procedure,
            role="broker",
            quotas=quotas,
            idle_time=shared.idle_time,
            short_apis=INLINE_APIS,
        )
        producer_ids = ProducerIdManager(
            node_id, lambda: lifecycle.broker_epoch, forwarding_channel, self.scheduler, clock
        )
        auth = AuthHelper(authorizer)
        coordinators = self._coordinators = Coordinators(
            coordinator_makers(
                CoordinatorContext(
                    config,
                    self.cache,
                    auth,
                    replicas,
                    producer_ids,
                    self._log_manager_config.producer_state,
                    self.scheduler,
                    shared,
                )
            )
        )
        topic_creation = AutoTopicCreationManager(
            forwarding_channel,
            default_topic_settings(config),
            internal_topic_settings(config),
            config.request_timeout_ms,
        )
        telemetry = self.telemetry = NodeTelemetry(
            config,
            self.cache,
            replicas,
            topic_creation,
            quotas,
            self.scheduler,
            shared,
        )
        parts = BrokerParts(
            config=config,
            cluster_id=shared.cluster_id,
            helper=serving.helper,
            auth=auth,
            cache=self.cache,
            replicas=replicas,
            fetch_manager=FetchManager(
                clock,
                FetchSessionCache(config.max_incremental_fetch_session_cache_slots, metrics=registry),
            ),
            forwarding=forwarding,
            topic_creation=topic_creation,
            producer_ids=producer_ids,
            coordinators=coordinators,
            dynamic_config=self.dynamic_config,
            leader_quota=quotas.leader,
            client_metrics=telemetry.client_metrics,
            tokens=self.tokens,
            clock=clock,
        )
        handlers, families, versions = make_handlers(parts)
        apis = self._apis = ApiDispatcher(
            handlers,
            serving.helper,
            on_demand=families,
            inline_apis=INLINE_APIS,
            light_bytes=LIGHT_BYTES,
            drain_actions=replicas.action_queue.try_complete_actions,
        )
        socket_server = serving.open(
            apis,
            versions,
            config.listeners,
            Users(UserCredentials(lambda: self.cache.image.scram), self.tokens),
            [telemetry.client_metrics.on_disconnect],
            shared.channel_factories,
        )
        advertised = resolved(config.advertised_listeners, socket_server.bound_port)
        listeners = self._listeners = BrokerListeners(serving, advertised, lifecycle.advertise)

        publisher = BrokerMetadataPublisher(
            node_id,
            self.cache,
            self.log_manager,
            replicas,
            coordinators.hooks,
            on_fault=shared.fault,
            on_fatal_fault=shared.fatal_fault,
        )
        self._add_reconfigurables(serving, listeners)
        telemetry.add_to(self.dynamic_config)
        publishers: list[MetadataPublisher] = [publisher]
        if self.tokens.is_enabled:
            from barnabas.broker.publishers.delegation_token_publisher import DelegationTokenPublisher  # few nodes

            publishers.insert(0, DelegationTokenPublisher(node_id, self.tokens))
        if authorizer is not None:
            from barnabas.security.standard_authorizer import StandardAuthorizer  # most nodes have no authorizer

            if isinstance(authorizer, StandardAuthorizer):
                publishers.append(AclPublisher(node_id, "broker", authorizer))
        announced = LifecyclePublisher(node_id, lifecycle)
        throttles = ReplicationThrottles(node_id, quotas, self.dynamic_config)

        def topic_changed(name: str, settings: Settings) -> None:
            self.log_manager.topic_config_changed(name)
            throttles.topic_changed(name, settings)

        publishers += [
            DynamicConfigPublisher(
                node_id,
                self.dynamic_config,
                on_fault=shared.fault,
                topic=topic_changed,
                client_metrics=telemetry.client_metrics_changed,
                after_broker=throttles.broker_changed,
            ),
            DynamicClientQuotaPublisher(
                node_id, "broker", shared.cluster_id, quotas, socket_server.quotas, on_fault=shared.fault
            ),
            announced,
            applied,
        ]
        lifecycle.start(
            lambda: shared.loader.last_applied.last_contained_offset,
            self._channel(HEARTBEAT, config.broker_session_timeout_ms // 2),
            BrokerRegistrationInfo(
                shared.cluster_id,
                advertised,
                default_supported_features(),
                _or(self.log_manager.broker_epoch_of_clean_shutdown(), -1),
            ),
        )
        deadline_s = startup_seconds(config)
        self._publishers = publishers
        shared.loader.install_publishers(publishers).result(deadline_s)
        lifecycle.initial_catch_up_future.result(deadline_s)
        publisher.first_publish_future.result(deadline_s)
        if config.cleaner().enable_cleaner:
            self.cleaner.startup(self.log_manager)

        futures: dict[str, Future[Any]] = {}
        if authorizer is not None:
            info = AuthorizerServerInfo(
                shared.cluster_id,
                node_id,
                self.advertised,
                next(one for one in self.advertised if one.listener_name == config.inter_broker_listener_name),
                config.early_start_listeners,
            )
            futures = dict(authorizer.start(info))
        lifecycle.set_ready_to_unfence().result(deadline_s)
        # Serve requests only now: an earlier Metadata response would show a cluster without brokers and leaders, and
        # some clients wait seconds before they retry. Until then, new connections wait in the backlog.
        announced.unfenced_future.result(deadline_s)
        serving.enable(futures).result(deadline_s)
        telemetry.start(self.dynamic_config.current)
        self.scheduler.schedule(
            "expire-sensors", shared.metrics.expire_inactive_sensors, SENSOR_EXPIRY_CHECK_MS, SENSOR_EXPIRY_CHECK_MS
        )
        self.scheduler.schedule("report-suppressed-log-lines", report_suppressed, LOG_WINDOW_MS, LOG_WINDOW_MS)
        self._add_gauges()
        logger.info("Broker %d is running", node_id)

    def load_in_background(self, others: Sequence[Callable[[], None]], on_loaded: Callable[[], None]) -> None:
        """Loads deferred parts, and runs `others`, in small steps so that the first requests are not delayed."""
        own = [] if self._apis is None else self._apis.loading()
        self._loading = BackgroundLoading(self.scheduler, [*own, *others, on_loaded])

    def report_quotas_of(self, controller: QuotaManagers | None) -> None:
        """Reports the controller's quota usage too: it creates partitions, so it measures the mutation quota."""
        if controller is not None and self.telemetry is not None:
            self.telemetry.quota_usage.add_managers(controller.clients)

    def _channel(self, purpose: str, retry_timeout_ms: int = 60_000) -> NodeToControllerChannelManager:
        channel = NodeToControllerChannelManager(
            NodeToControllerConfig.of(self._config, self._shared.controller_channels()),
            purpose,
            self._shared.controller_nodes,
            retry_timeout_ms,
            clock=self._shared.clock,
        )
        self._channels.append(channel)
        return channel

    def _add_reconfigurables(self, serving: RequestServing, listeners: BrokerListeners) -> None:
        """Registers the dynamically configurable parts. Must run before the first settings arrive, to miss none."""
        socket_server = serving.socket_server
        assert socket_server is not None
        add = self.dynamic_config.add_reconfigurable
        add(
            DynamicThreadPool(
                {
                    "num.io.threads": serving.resize_handlers,
                    "background.threads": self.scheduler.resize,
                    "num.recovery.threads.per.data.dir": self.log_manager.resize_recovery_threads,
                }
            )
        )
        add(DynamicNetworkThreads(socket_server.resize_thread_pool, lambda: socket_server.acceptors))
        add(DynamicConnectionLimits(socket_server.quotas))
        add(DynamicLogConfig(self.log_manager))
        add(DynamicLogCleaner(self.cleaner))
        add(DynamicProducerStates(self._log_manager_config.producer_state))
        add(DynamicListeners(listeners))
        add_authorizer(self._authorizer, self.dynamic_config)

    def _add_gauges(self) -> None:
        server = KafkaMetricsGroup(self._shared.registry, "kafka.server", "KafkaServer")
        server.new_gauge("BrokerState", lambda: self.state.value)
        server.new_gauge("ClusterId", lambda: self._shared.cluster_id)

    @property
    def advertised(self) -> tuple[Endpoint, ...]:
        """The advertised listeners, with their actual ports; none before the ports are open."""
        return () if self._listeners is None else self._listeners.advertised

    @property
    def group_coordinator(self) -> GroupCoordinatorService | None:
        """The coordinator of groups, if it has been made."""
        return None if self._coordinators is None else self._coordinators.existing(GROUP)

    @property
    def processors(self) -> list[Processor]:
        """The network threads."""
        server = None if self.serving is None else self.serving.socket_server
        return [] if server is None else server.processors

    @property
    def state(self) -> BrokerState:
        return BrokerState.NOT_RUNNING if self.lifecycle is None else self.lifecycle.state

    # -- stop

    def abandon_startup(self) -> None:
        """Ends a startup that waits for a failed controller. Has no effect on a broker that has started."""
        self._abandoned = True  # set first: startup() checks it after it creates the lifecycle manager
        if self.lifecycle is not None and not self.lifecycle.initial_catch_up_future.done():
            self.lifecycle.begin_shutdown()

    def shutdown(self) -> None:
        """Hands over leaderships, completes pending requests, closes all logs, and marks the shutdown as clean."""
        node_id, lifecycle, telemetry = self._config.node_id, self.lifecycle, self.telemetry
        logger.info("Stopping broker %d", node_id)
        loader, publishers, self._publishers = self._shared.loader, self._publishers, []

        def remove(publisher: MetadataPublisher) -> None:
            loader.remove_and_close_publisher(publisher).result()

        run_steps(
            [
                step(self._loading, lambda it: it.stop()),
                step(telemetry, lambda it: it.flush()),
                self._leave,
                step(self.serving, lambda it: it.stop()),
                *[partial(remove, one) for one in reversed(publishers)],
                # Members that wait for a rebalance must get a response while their connections are open.
                step(self._coordinators, lambda it: it.shutdown_responding()),
                step(self.serving, lambda it: it.close()),
                step(telemetry, lambda it: it.shutdown()),
                step(self._coordinators, lambda it: it.shutdown()),
                step(self.quotas, lambda it: it.shutdown()),
                step(self._authorizer, lambda it: it.close()),
                self.cleaner.shutdown,
                step(self._assignments, lambda it: it.close()),
                step(self._alter_partition, lambda it: it.shutdown()),
                step(self._forwarding, lambda it: it.close()),
                step(self.replica_manager, lambda it: it.shutdown()),
                self.log_manager.begin_shutdown,
                self.scheduler.shutdown,
                lambda: self.log_manager.shutdown(-1 if lifecycle is None else lifecycle.broker_epoch),
                step(lifecycle, lambda it: it.close()),
                *[channel.shutdown for channel in self._channels],
            ]
        )
        logger.info("Broker %d is stopped", node_id)

    def _leave(self) -> None:
        """Runs the controlled shutdown if it is enabled and the broker is RUNNING, then stops the lifecycle manager."""
        lifecycle = self.lifecycle
        if lifecycle is None:
            return
        if self._config.controlled_shutdown_enable and lifecycle.state is BrokerState.RUNNING:
            if self.replica_manager is not None:
                self.replica_manager.begin_controlled_shutdown()
            lifecycle.begin_controlled_shutdown()
            try:
                lifecycle.controlled_shutdown_future.result(CONTROLLED_SHUTDOWN_TIMEOUT_S)
            except FutureTimeoutError:
                logger.warning("The controller did not let the broker go in time; going all the same")
        lifecycle.begin_shutdown()


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
