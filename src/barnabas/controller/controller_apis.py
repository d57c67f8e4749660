"""The controller's dispatcher: what the listeners of a controller serve (R10).

A broker and a controller serve different things, on different listeners, even if they are one process. Clients talk to
brokers. What changes the cluster, a broker forwards, and it gets here in an Envelope; what nodes have to tell the
controller, and the tools that are pointed at it (``--bootstrap-controller``), come here directly.

    listener CONTROLLER --> SocketServer --> DataPlane --> ControllerApis --> QuorumController
                                                             |      ^
                                                             Envelope: the request inside, once more

What is not implemented is not in the table, and what is not in the table is not advertised. So far that is replication
of the metadata log between several controllers (Fetch, Vote and the like), and what belongs to authentication: SCRAM
credentials, delegation tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.dataclass import dataclass, field
from barnabas.controller.controller_api_versions import ControllerApiVersionManager
from barnabas.controller.handlers.acls import AclsHandler
from barnabas.controller.handlers.backend import Backend, NewMutationQuota, no_mutation_quota
from barnabas.controller.handlers.cluster import ControllerClusterHandler
from barnabas.controller.handlers.configs import AlterLoggers, ConfigsHandler
from barnabas.controller.handlers.describe_configs import DescribeConfigs, DescribeConfigsHandler
from barnabas.controller.handlers.envelope import EnvelopeHandler
from barnabas.controller.handlers.nodes import NodesHandler
from barnabas.controller.handlers.partitions import PartitionsHandler
from barnabas.controller.handlers.quorum import DescribeQuorum, QuorumHandler
from barnabas.controller.handlers.topics import TopicsHandler
from barnabas.controller.quorum_controller import QuorumController
from barnabas.controller.quorum_features import default_supported_features
from barnabas.metadata.cache import MetadataCache
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.versions import VersionRange
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.api_versions_handler import ApiVersionsHandler
from barnabas.server.dispatch import ApiDispatcher, Handler, handlers_of
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal

INLINE_APIS: Final = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.ENVELOPE,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    }
)
"""What a network thread may handle itself: it only puts something into the controller's queue."""


@dataclass(frozen=True, slots=True)
class ControllerApisConfig:
    """The settings that matter to the handlers, with Kafka's defaults."""

    delete_topic_enable: bool = True
    """``delete.topic.enable``"""
    broker_heartbeat_interval_ms: int = 2_000
    """``broker.heartbeat.interval.ms``"""
    unstable_api_versions_enable: bool = False
    """``unstable.api.versions.enable``"""
    supported_features: Mapping[str, VersionRange] = field(default_factory=default_supported_features)


@dataclass(frozen=True, slots=True)
class ControllerApisPlugins:
    """What others know or can do. What is not given is not served, or has no limit."""

    describe_quorum: DescribeQuorum | None = None
    """The Raft client's `describe_quorum`."""
    describe_configs: DescribeConfigs | None = None
    """The results of a DescribeConfigs request, authorized."""
    alter_loggers: AlterLoggers | None = None
    """The log levels of this node."""
    new_mutation_quota: NewMutationQuota = no_mutation_quota


class ControllerApis(ApiDispatcher):
    """A dispatcher that knows what it serves. Made by :func:`make_controller_apis`."""

    def __init__(
        self, handlers: Mapping[ApiKey, Handler], helper: RequestHandlerHelper, versions: ControllerApiVersionManager
    ) -> None:
        super().__init__(handlers, helper, inline_apis=INLINE_APIS)
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
    """Puts the handlers together.

    `cache` has the metadata as this controller has published it; `leader_id` is who leads the metadata log, None while
    nobody does.
    """
    config = ControllerApisConfig() if config is None else config
    plugins = ControllerApisPlugins() if plugins is None else plugins
    backend = Backend(controller, helper, auth, clock, plugins.new_mutation_quota)
    families: list[object] = [
        TopicsHandler(backend, delete_topic_enable=config.delete_topic_enable),
        PartitionsHandler(backend),
        NodesHandler(backend, broker_heartbeat_interval_ms=config.broker_heartbeat_interval_ms),
        ConfigsHandler(backend, alter_loggers=plugins.alter_loggers),
        ControllerClusterHandler(backend, controller.cluster_id, lambda: cache.image, leader_id),
        AclsHandler(backend),
    ]
    if plugins.describe_quorum is not None:
        families.append(QuorumHandler(backend, plugins.describe_quorum))
    if plugins.describe_configs is not None:
        families.append(DescribeConfigsHandler(backend, plugins.describe_configs))
    handlers = handlers_of(*families)
    versions = ControllerApiVersionManager(
        {*handlers, ApiKey.API_VERSIONS, ApiKey.ENVELOPE},
        config.supported_features,
        cache.features,
        unstable=config.unstable_api_versions_enable,
    )

    def dispatch(request: Request, local: RequestLocal) -> None:
        apis.handle(request, local)

    handlers |= handlers_of(
        ApiVersionsHandler(helper, versions, controller.cluster_id, controller.node_id),
        EnvelopeHandler(auth, frozenset(handlers), dispatch, clock),
    )
    apis = ControllerApis(handlers, helper, versions)
    return apis
