"""The broker's dispatcher table: every API that a broker serves, and who handles it.

What is not in here is not advertised, so a client never tries it.
"""

from __future__ import annotations

from barnabas.broker.auto_topic_creation_manager import AutoTopicCreationManager
from barnabas.broker.broker_api_versions import BrokerApiVersionManager
from barnabas.broker.config.config_admin_manager import ConfigAdminManager
from barnabas.broker.config.config_helper import ConfigHelper
from barnabas.broker.config.dynamic_broker_config import DynamicBrokerConfig
from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.forwarding_manager import ForwardingManager
from barnabas.broker.handlers.acls import AclsHandler
from barnabas.broker.handlers.cluster import ClusterHandler
from barnabas.broker.handlers.configs import ConfigsHandler
from barnabas.broker.handlers.delete_records import DeleteRecordsHandler
from barnabas.broker.handlers.describe_producers import DescribeProducersHandler
from barnabas.broker.handlers.fetch import FetchHandler
from barnabas.broker.handlers.find_coordinator import GROUP, TRANSACTION, CoordinatorType, FindCoordinatorHandler
from barnabas.broker.handlers.forwarded import ForwardedHandler
from barnabas.broker.handlers.groups import GroupsHandler
from barnabas.broker.handlers.list_offsets import ListOffsetsHandler
from barnabas.broker.handlers.log_dirs import LogDirsHandler
from barnabas.broker.handlers.metadata import MetadataHandler
from barnabas.broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from barnabas.broker.handlers.offsets import OffsetsHandler
from barnabas.broker.handlers.produce import ProduceHandler
from barnabas.broker.handlers.producer_ids import ProducerIdsHandler
from barnabas.broker.handlers.telemetry import TelemetryHandler
from barnabas.broker.handlers.transactions import TransactionsHandler
from barnabas.broker.transaction_parts import TransactionParts
from barnabas.common.clock import Clock
from barnabas.common.dataclass import dataclass
from barnabas.common.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from barnabas.controller.quorum_features import default_supported_features
from barnabas.coordinator.group.group_coordinator_service import GroupCoordinatorService
from barnabas.coordinator.transaction.producer_id_manager import ProducerIdManager
from barnabas.metadata.cache import MetadataCache
from barnabas.protocol.api_keys import ApiKey
from barnabas.replica.fetch_session_manager import FetchManager
from barnabas.replica.replica_manager import ReplicaManager
from barnabas.replica.replica_quota import ReplicaQuota
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.api_versions_handler import ApiVersionsHandler
from barnabas.server.dispatch import Handler, handlers_of
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.telemetry.client_metrics_manager import ClientMetricsManager

INLINE_APIS = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.FIND_COORDINATOR,
        ApiKey.HEARTBEAT,
        ApiKey.OFFSET_COMMIT,
    }
)
"""What is short and waits for nothing, so that a network thread may do it itself. A produce writes to a page cache."""


@dataclass(frozen=True, slots=True)
class BrokerParts:
    """What the handlers of a broker work with."""

    config: KafkaConfig
    cluster_id: str
    helper: RequestHandlerHelper
    auth: AuthHelper
    cache: MetadataCache
    replicas: ReplicaManager
    fetch_manager: FetchManager
    forwarding: ForwardingManager
    topic_creation: AutoTopicCreationManager
    producer_ids: ProducerIdManager
    transactions: TransactionParts
    groups: GroupCoordinatorService
    dynamic_config: DynamicBrokerConfig
    leader_quota: ReplicaQuota
    client_metrics: ClientMetricsManager
    clock: Clock


def make_handlers(parts: BrokerParts) -> tuple[dict[ApiKey, Handler], BrokerApiVersionManager]:
    """The table, and what it makes the broker advertise."""
    config, helper, auth, cache, replicas = parts.config, parts.helper, parts.auth, parts.cache, parts.replicas
    node_id = config.node_id
    forwarding, transactions, groups = parts.forwarding, parts.transactions, parts.groups
    handlers = handlers_of(
        ProduceHandler(helper, auth, cache, replicas, parts.clock, transactions.appends),
        FetchHandler(
            helper,
            auth,
            cache,
            replicas,
            parts.fetch_manager,
            replicas.stats,
            parts.clock,
            fetch_max_bytes=config.fetch_max_bytes,
            leader_quota=parts.leader_quota,
        ),
        ListOffsetsHandler(helper, auth, replicas),
        OffsetForLeaderEpochHandler(helper, auth, replicas),
        DeleteRecordsHandler(helper, auth, cache, replicas),
        DescribeProducersHandler(helper, auth, cache, replicas),
        LogDirsHandler(helper, auth, replicas),
        MetadataHandler(
            helper,
            auth,
            cache,
            parts.cluster_id,
            parts.topic_creation if config.auto_create_topics_enable else None,
            config.max_request_partition_size_limit,
        ),
        ClusterHandler(helper, auth, cache, parts.cluster_id),
        AclsHandler(helper, auth),
        ConfigsHandler(
            helper,
            auth,
            cache,
            ConfigHelper(node_id, cache, parts.dynamic_config),
            ConfigAdminManager(node_id, cache, parts.dynamic_config),
            lambda request, body, callback: forwarding.forward_request(request, callback, body),
        ),
        ProducerIdsHandler(helper, auth, parts.producer_ids, config.request_timeout_ms, transactions.coordinator),
        TransactionsHandler(
            helper,
            auth,
            cache,
            transactions.coordinator,
            transactions.markers,
            groups.partition_for,
        ),
        FindCoordinatorHandler(
            helper,
            auth,
            cache,
            parts.topic_creation,
            {
                GROUP: CoordinatorType(GROUP_METADATA_TOPIC, groups.partition_for),
                TRANSACTION: CoordinatorType(TRANSACTION_STATE_TOPIC, transactions.coordinator.partition_for),
            },
        ),
        GroupsHandler(helper, auth, groups),
        OffsetsHandler(helper, auth, cache, groups),
        TelemetryHandler(helper, parts.client_metrics),
        ForwardedHandler(helper, forwarding),
    )
    versions = BrokerApiVersionManager(
        {*handlers, ApiKey.API_VERSIONS},
        default_supported_features(),
        cache.features,
        lambda: forwarding.controller_api_versions,
        unstable=config.unstable_api_versions_enable,
    )
    handlers |= handlers_of(ApiVersionsHandler(helper, versions, parts.cluster_id, node_id))
    return handlers, versions
