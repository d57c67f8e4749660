"""Starts and stops the controller of a node."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.config.config_helper import ConfigHelper
from barnabas.broker.config.config_schemas import CONFIG_SCHEMA, configuration_validator
from barnabas.broker.config.dynamic_broker_config import DynamicBrokerConfig
from barnabas.broker.config.dynamic_config_publisher import DynamicConfigPublisher
from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.config.listeners import resolved
from barnabas.broker.config.reconfigurables import DynamicListenerSecurity
from barnabas.broker.config.runtime_loggers import RuntimeLoggerManager
from barnabas.broker.node.authorizers import AclPublisher, add_authorizer, make_authorizer
from barnabas.broker.node.listener_security import UserCredentials, Users
from barnabas.broker.node.node_quotas import make_quota_managers
from barnabas.broker.node.request_serving import RequestServing, startup_seconds
from barnabas.broker.node.shared_server import SharedServer
from barnabas.broker.node.stop_steps import run_steps, step
from barnabas.broker.publishers.client_quota_metadata_manager import DynamicClientQuotaPublisher
from barnabas.broker.to_controller.controller_registration_manager import ControllerRegistrationManager
from barnabas.broker.to_controller.node_to_controller_channel import (
    REGISTRATION,
    NodeToControllerChannelManager,
    NodeToControllerConfig,
)
from barnabas.common.errors import CorruptRecordError
from barnabas.controller.bootstrap import BootstrapMetadata
from barnabas.controller.config import ControllerPlugins
from barnabas.controller.controller_apis import (
    ControllerApis,
    ControllerApisConfig,
    ControllerApisPlugins,
    make_controller_apis,
)
from barnabas.controller.quorum_controller import QuorumController
from barnabas.controller.quorum_features import default_supported_features
from barnabas.metadata.cache import MetadataCache, MetadataCachePublisher
from barnabas.metadata.publisher import MetadataPublisher
from barnabas.network.server.processor import Processor
from barnabas.quota.quota_factory import QuotaManagers
from barnabas.raft.bootstrap_file import BOOTSTRAP_FILE, read_bootstrap_file
from barnabas.security.auth_helper import AuthHelper
from barnabas.security.authorizer import AuthorizerServerInfo

if TYPE_CHECKING:
    from barnabas.protocol.messages.describe_configs import DescribeConfigsResult
    from barnabas.server.request import Request

logger = logging.getLogger(__name__)


class ControllerServer:
    """Owns all parts of a node's controller role: the state machine, its dispatcher, and its listeners."""

    def __init__(self, config: KafkaConfig, shared: SharedServer) -> None:
        self._config = config
        self._shared = shared
        self._serving: RequestServing | None = None
        self.quotas: QuotaManagers | None = None
        self._publishers: list[MetadataPublisher] = []
        self.controller: QuorumController | None = None
        self._apis: ControllerApis | None = None
        self.cache = MetadataCache()

    def startup(self) -> None:
        """Starts the controller; returns when it serves requests. The quorum elects the active controller."""
        config, shared = self._config, self._shared
        clock = shared.clock
        logger.info("Starting controller %d", config.node_id)
        authorizer = make_authorizer(config)
        auth = AuthHelper(authorizer)
        quotas = self.quotas = make_quota_managers(config, shared.metrics, clock, "controller")
        serving = self._serving = RequestServing(
            config,
            clock,
            shared.request_times,
            shared.registry,
            shared.metrics,
            shared.exit_procedure,
            role="controller",
            quotas=quotas,
            idle_time=shared.idle_time,
        )

        raft = shared.open()
        controller = self.controller = QuorumController(
            config.controller(shared.cluster_id, self._bootstrap()),
            raft.client,
            ControllerPlugins(config_schema=CONFIG_SCHEMA, config_validator=configuration_validator(config)),
            clock=clock,
            metrics=shared.registry,
            exit_procedure=shared.exit_procedure,
        )
        dynamic = DynamicBrokerConfig(config)
        describer = ConfigHelper(config.node_id, self.cache, dynamic)

        def describe_configs(request: Request) -> list[DescribeConfigsResult]:
            from barnabas.broker.handlers.configs import describe_authorized  # deferred to the first request

            return describe_authorized(request, auth, describer)

        apis = self._apis = make_controller_apis(
            controller,
            serving.helper,
            auth,
            self.cache,
            lambda: raft.client.leader_and_epoch.leader_id,
            ControllerApisConfig(
                delete_topic_enable=config.delete_topic_enable,
                broker_heartbeat_interval_ms=config.broker_heartbeat_interval_ms,
                unstable_api_versions_enable=config.unstable_api_versions_enable,
            ),
            ControllerApisPlugins(
                describe_quorum=raft.client.describe_quorum,
                describe_configs=describe_configs,
                alter_loggers=RuntimeLoggerManager(config.node_id).apply_changes,
                new_mutation_quota=quotas.controller_mutation.new_quota_for,
            ),
            clock=clock,
        )
        # A listener on port 0 gets its port here. The port must be known before this node joins the quorum.
        socket_server = serving.open(
            apis,
            apis.versions,
            config.controller_listeners,
            Users(UserCredentials(lambda: self.cache.image.scram), delegation_tokens=None),
            channel_factories=shared.channel_factories,
        )
        if serving.security is not None:
            dynamic.add_reconfigurable(DynamicListenerSecurity(serving.security))
        add_authorizer(authorizer, dynamic)
        endpoints = resolved(config.advertised_controller_listeners, socket_server.bound_port)
        publishers: list[MetadataPublisher] = [MetadataCachePublisher(self.cache)]
        acls: AclPublisher | None = None
        if authorizer is not None:
            from barnabas.controller.controller_acl_mutator import ControllerAclMutator  # most nodes have no authorizer
            from barnabas.security.standard_authorizer import StandardAuthorizer

            if isinstance(authorizer, StandardAuthorizer):
                authorizer.set_acl_mutator(ControllerAclMutator(controller))
                acls = AclPublisher(config.node_id, "controller", authorizer)
                publishers.append(acls)
        publishers.append(
            DynamicConfigPublisher(config.node_id, dynamic, on_fault=shared.fault, node_type="controller")
        )
        publishers.append(
            DynamicClientQuotaPublisher(
                config.node_id, "controller", shared.cluster_id, quotas, socket_server.quotas, on_fault=shared.fault
            )
        )
        registration = ControllerRegistrationManager(
            config.node_id, endpoints, default_supported_features(), self._channel(), clock=clock
        )
        publishers.append(registration)
        controller.start()
        shared.start(endpoints)
        registration.start()
        shared.loader.install_publishers(publishers)
        self._publishers = publishers
        futures = {}
        if authorizer is not None:
            info = AuthorizerServerInfo(
                shared.cluster_id,
                config.node_id,
                endpoints,
                early_start_listeners=config.early_start_listeners or {one.listener_name for one in endpoints},
            )
            futures = dict(authorizer.start(info))
        serving.enable(futures).result(startup_seconds(config))
        if acls is not None:
            # The listener opens before the ACLs are loaded: super-user nodes must connect to elect a leader, and there
            # are no ACLs without a leader. The broker of this node may not be a super user, and would be refused.
            acls.loaded.result(startup_seconds(config))

    def _channel(self) -> NodeToControllerChannelManager:
        return NodeToControllerChannelManager(
            NodeToControllerConfig.of(self._config, self._shared.controller_channels(), node_kind="controller"),
            REGISTRATION,
            self._shared.controller_nodes,
            clock=self._shared.clock,
        )

    def loading(self) -> list[Callable[[], None]]:
        """Returns steps that load the parts not needed at startup."""
        return [] if self._apis is None else self._apis.loading()

    @property
    def processors(self) -> list[Processor]:
        """The network threads."""
        server = None if self._serving is None else self._serving.socket_server
        return [] if server is None else server.processors

    @property
    def is_active(self) -> bool:
        return self.controller is not None and self.controller.is_active

    def _bootstrap(self) -> BootstrapMetadata:
        path = self._config.metadata_log_dir / BOOTSTRAP_FILE
        if not path.exists():
            return BootstrapMetadata.for_version()
        try:
            return BootstrapMetadata(tuple(read_bootstrap_file(path)), str(path))
        except ValueError as error:
            raise CorruptRecordError(str(error)) from None

    def begin_shutdown(self) -> None:
        """Stops accepting requests."""
        if self._serving is not None:
            self._serving.stop()

    def shutdown(self) -> None:
        """Stops the parts that exist: startup may have failed half way."""
        logger.info("Stopping controller %d", self._config.node_id)
        loader, publishers, self._publishers = self._shared.loader, self._publishers, []

        def remove(publisher: MetadataPublisher) -> None:
            loader.remove_and_close_publisher(publisher).result()

        run_steps(
            [
                self.begin_shutdown,
                *[partial(remove, one) for one in publishers],
                step(self.controller, lambda it: it.close()),
                step(self._serving, lambda it: it.close()),
                step(self.quotas, lambda it: it.shutdown()),
            ]
        )
