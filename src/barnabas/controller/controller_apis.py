"""The request dispatcher of a controller's listeners (R10).

A broker and a controller serve different APIs on different listeners, even in one process. Clients talk to brokers. A
broker forwards requests that change the cluster, in an Envelope. Requests of nodes to the controller, and of tools
pointed at it (``--bootstrap-controller``), arrive directly.

    listener CONTROLLER --> SocketServer --> DataPlane --> ControllerApis --> QuorumController
                                                             |      ^
                                                             Envelope: dispatches the inner request

An API that is not implemented is not in the table, and an API that is not in the table is not advertised. Missing so
far: replication of the metadata log between controllers (Fetch, Vote and similar APIs).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.dataclass import dataclass, field
from barnabas.controller.controller_api_versions import ControllerApiVersionManager
from barnabas.controller.handlers.backend import Backend, NewMutationQuota, no_mutation_quota
from barnabas.controller.handlers.nodes import NodesHandler
from barnabas.controller.quorum_controller import QuorumController
from barnabas.controller.quorum_features import default_supported_features
from barnabas.metadata.cache import MetadataCache
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.versions import VersionRange
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.api_versions_handler import ApiVersionsHandler
from barnabas.server.dispatch import ApiDispatcher, FamilyOnDemand, Handler, handlers_of
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal
from barnabas.server.sasl_handler import SaslHandler

if TYPE_CHECKING:
    from barnabas.controller.handlers.configs import AlterLoggers
    from barnabas.controller.handlers.describe_configs import DescribeConfigs
    from barnabas.controller.handlers.quorum import DescribeQuorum

INLINE_APIS: Final = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.ENVELOPE,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    }
)
"""APIs that run inline on a network thread: they only add an event to the controller's queue."""


@dataclass(frozen=True, slots=True)
class ControllerApisConfig:
    """The settings of the handlers, with Kafka's defaults."""

    delete_topic_enable: bool = True
    """``delete.topic.enable``"""
    broker_heartbeat_interval_ms: int = 2_000
    """``broker.heartbeat.interval.ms``"""
    unstable_api_versions_enable: bool = False
    """``unstable.api.versions.enable``"""
    supported_features: Mapping[str, VersionRange] = field(default_factory=default_supported_features)


@dataclass(frozen=True, slots=True)
class ControllerApisPlugins:
    """Dependencies of the handlers. Without a plugin its API is not served, or has no limit."""

    describe_quorum: DescribeQuorum | None = None
    """The Raft client's `describe_quorum`."""
    describe_configs: DescribeConfigs | None = None
    """Returns the authorized results of a DescribeConfigs request."""
    alter_loggers: AlterLoggers | None = None
    """Changes the log levels of this node."""
    new_mutation_quota: NewMutationQuota = no_mutation_quota


class ControllerApis(ApiDispatcher):
    """A dispatcher with the versions that it advertises; see :func:`make_controller_apis`."""

    def __init__(
        self,
        handlers: Mapping[ApiKey, Handler],
        on_demand: Sequence[FamilyOnDemand],
        helper: RequestHandlerHelper,
        versions: ControllerApiVersionManager,
    ) -> None:
        super().__init__(handlers, helper, on_demand=on_demand, inline_apis=INLINE_APIS)
        self.versions = versions
        """For the data plane of the controller's listeners."""


def make_controller_apis(
    controller: QuorumController,
    helper: RequestHandlerHelper,
    auth: AuthHelper,
    cache: MetadataCache,
    leader_id: Callable[[], int | None],
    config: ControllerApisConfig | None = None,
    plugins: ControllerApisPlugins | None = None,
    *,
    clock: Clock = SYSTEM_CLOCK,
) -> ControllerApis:
    """Builds the dispatcher with all handlers.

    `cache` holds the metadata that this controller has published; `leader_id` returns the leader of the metadata log,
    None if there is none.
    """
    config = ControllerApisConfig() if config is None else config
    plugins = ControllerApisPlugins() if plugins is None else plugins
    backend = Backend(controller, helper, auth, clock, plugins.new_mutation_quota)
    families = _families(backend, config, plugins, cache, leader_id)
    nodes = NodesHandler(backend, broker_heartbeat_interval_ms=config.broker_heartbeat_interval_ms)
    handlers = handlers_of(nodes, SaslHandler())
    served = frozenset(handlers).union(*[family.api_keys for family in families])
    versions = ControllerApiVersionManager(
        {*served, ApiKey.API_VERSIONS, ApiKey.ENVELOPE},
        config.supported_features,
        cache.features,
        unstable=config.unstable_api_versions_enable,
    )

    def dispatch(request: Request, local: RequestLocal) -> None:
        apis.handle(request, local)

    def envelope() -> object:
        from barnabas.controller.handlers.envelope import EnvelopeHandler

        return EnvelopeHandler(auth, served, dispatch)

    handlers |= handlers_of(ApiVersionsHandler(helper, versions, controller.cluster_id, controller.node_id))
    families.append(FamilyOnDemand([ApiKey.ENVELOPE], envelope))
    apis = ControllerApis(handlers, families, helper, versions)
    return apis


def _families(
    backend: Backend,
    config: ControllerApisConfig,
    plugins: ControllerApisPlugins,
    cache: MetadataCache,
    leader_id: Callable[[], int | None],
) -> list[FamilyOnDemand]:
    """Returns the handlers that load on first use: all but the APIs that a node needs to join the cluster."""

    def topics() -> object:
        from barnabas.controller.handlers.topics import TopicsHandler

        return TopicsHandler(backend, delete_topic_enable=config.delete_topic_enable)

    def partitions() -> object:
        from barnabas.controller.handlers.partitions import PartitionsHandler

        return PartitionsHandler(backend)

    def configs() -> object:
        from barnabas.controller.handlers.configs import ConfigsHandler

        return ConfigsHandler(backend, alter_loggers=plugins.alter_loggers)

    def cluster() -> object:
        from barnabas.controller.handlers.cluster import ControllerClusterHandler

        return ControllerClusterHandler(backend, backend.controller.cluster_id, lambda: cache.image, leader_id)

    def acls() -> object:
        from barnabas.controller.handlers.acls import AclsHandler

        return AclsHandler(backend)

    def credentials() -> object:
        from barnabas.controller.handlers.credentials import CredentialsHandler

        return CredentialsHandler(backend)

    def delegation_tokens() -> object:
        from barnabas.controller.handlers.delegation_tokens import DelegationTokensHandler

        return DelegationTokensHandler(backend)

    def quorum() -> object:
        from barnabas.controller.handlers.quorum import QuorumHandler

        assert plugins.describe_quorum is not None
        return QuorumHandler(backend, plugins.describe_quorum)

    def raft_voters() -> object:
        from barnabas.controller.handlers.raft_voters import RaftVotersHandler

        assert plugins.describe_quorum is not None
        return RaftVotersHandler(backend, backend.controller.cluster_id, plugins.describe_quorum)

    def describe_configs() -> object:
        from barnabas.controller.handlers.describe_configs import DescribeConfigsHandler

        assert plugins.describe_configs is not None
        return DescribeConfigsHandler(backend, plugins.describe_configs)

    families = [
        FamilyOnDemand([ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS], topics),
        FamilyOnDemand(
            [
                ApiKey.ALTER_PARTITION,
                ApiKey.ASSIGN_REPLICAS_TO_DIRS,
                ApiKey.ELECT_LEADERS,
                ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                ApiKey.LIST_PARTITION_REASSIGNMENTS,
            ],
            partitions,
        ),
        FamilyOnDemand([ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_CLIENT_QUOTAS], configs),
        FamilyOnDemand([ApiKey.DESCRIBE_CLUSTER, ApiKey.UPDATE_FEATURES], cluster),
        FamilyOnDemand([ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS], acls),
        FamilyOnDemand([ApiKey.ALTER_USER_SCRAM_CREDENTIALS], credentials),
        FamilyOnDemand(
            [ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN],
            delegation_tokens,
        ),
    ]
    if plugins.describe_quorum is not None:
        families.append(FamilyOnDemand([ApiKey.DESCRIBE_QUORUM], quorum))
        families.append(FamilyOnDemand([ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER], raft_voters))
    if plugins.describe_configs is not None:
        families.append(FamilyOnDemand([ApiKey.DESCRIBE_CONFIGS], describe_configs))
    return families
