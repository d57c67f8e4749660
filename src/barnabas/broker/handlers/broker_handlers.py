"""The broker's dispatcher table: every API that a broker serves, and its handler.

An API that is not in this table is not advertised, so clients never send it. Handlers are made on demand (see
:class:`barnabas.server.dispatch.FamilyOnDemand`), so each maker imports its handler. A maker with its APIs is the only
registration: the handler of an API is the method with the API's name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from barnabas.broker.config.barnabas_config_def import ADVERTISE_ALWAYS, ADVERTISE_NEVER
from barnabas.broker.config.dynamic_broker_config import DynamicBrokerConfig
from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.handlers.broker_api_versions import TELEMETRY_APIS, BrokerApiVersionManager
from barnabas.broker.handlers.forwarded import ForwardedHandler
from barnabas.broker.node.coordinators import GROUP, TRANSACTION, Coordinators
from barnabas.broker.to_controller.auto_topic_creation_manager import AutoTopicCreationManager
from barnabas.broker.to_controller.forwarding_manager import ForwardingManager
from barnabas.common.clock import Clock
from barnabas.common.dataclass import dataclass
from barnabas.controller.quorum_features import default_supported_features
from barnabas.coordinator.transaction.producer_id_manager import ProducerIdManager
from barnabas.metadata.cache import MetadataCache
from barnabas.protocol.api_keys import ApiKey
from barnabas.replica.fetch.fetch_session_manager import FetchManager
from barnabas.replica.follower.replica_quota import ReplicaQuota
from barnabas.replica.replica_manager import ReplicaManager
from barnabas.security.auth_helper import AuthHelper
from barnabas.security.tokens import DelegationTokenCache
from barnabas.server.api_versions_handler import ApiVersionsHandler
from barnabas.server.dispatch import FamilyOnDemand, Handler, handlers_of
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.sasl_handler import SaslHandler
from barnabas.telemetry.client_metrics_manager import ClientMetricsManager

_Maker = TypeVar("_Maker", bound="Callable[[BrokerParts], object]")

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
"""APIs whose handlers are short, never block, and so run inline on the network thread. A Produce request writes to the
page cache; if that may take long, another thread handles it: see `barnabas.log.dirs.log_dir_pace`."""

LIGHT_BYTES: Final = {
    ApiKey.PRODUCE: 4 << 20,
    ApiKey.FETCH: 8 << 10,
    ApiKey.FIND_COORDINATOR: 1 << 10,
    ApiKey.DESCRIBE_CONFIGS: 256,
    ApiKey.JOIN_GROUP: 256 << 10,
    ApiKey.SYNC_GROUP: 256 << 10,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 64 << 10,
    ApiKey.PUSH_TELEMETRY: 64 << 10,
}
"""Sizes up to which requests are light. The limit is above the default where the bytes are mostly data, and below it
where each entry is expensive. Larger requests go to the bulk lane."""


@dataclass(frozen=True, slots=True)
class BrokerParts:
    """The parts of a broker that its handlers use."""

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
    coordinators: Coordinators
    dynamic_config: DynamicBrokerConfig
    leader_quota: ReplicaQuota
    client_metrics: ClientMetricsManager
    tokens: DelegationTokenCache
    clock: Clock


def make_handlers(
    parts: BrokerParts,
) -> tuple[dict[ApiKey, Handler], list[FamilyOnDemand], BrokerApiVersionManager]:
    """Returns the existing handlers, the families that are made on demand, and the API versions to advertise.

    The families are in the order in which clients need them.
    """
    handlers = handlers_of(ForwardedHandler(parts.helper, parts.forwarding), SaslHandler())
    families = [FamilyOnDemand(api_keys, partial(make, parts)) for make, api_keys in FAMILIES]
    served = {*handlers, ApiKey.API_VERSIONS}.union(*[family.api_keys for family in families])
    advertise = parts.config.value("barnabas.telemetry.advertise")
    versions = BrokerApiVersionManager(
        served - TELEMETRY_APIS if advertise == ADVERTISE_NEVER else served,
        default_supported_features(),
        parts.cache.features,
        lambda: parts.forwarding.controller_api_versions,
        lambda: advertise == ADVERTISE_ALWAYS or parts.client_metrics.has_subscriptions,
        unstable=parts.config.unstable_api_versions_enable,
    )
    handlers |= handlers_of(ApiVersionsHandler(parts.helper, versions, parts.cluster_id, parts.config.node_id))
    return handlers, families, versions


FAMILIES: Final[list[tuple[Callable[[BrokerParts], object], tuple[ApiKey, ...]]]] = []
"""The handler makers and the APIs of each, in the order in which clients need them."""


def _family(*api_keys: ApiKey) -> Callable[[_Maker], _Maker]:
    """Registers the maker of a handler family and the APIs that it serves."""

    def register(make: _Maker) -> _Maker:
        FAMILIES.append((make, api_keys))
        return make

    return register


@_family(ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def _metadata(parts: BrokerParts) -> object:
    from barnabas.broker.handlers.metadata import MetadataHandler

    return MetadataHandler(
        parts.helper,
        parts.auth,
        parts.cache,
        parts.cluster_id,
        parts.topic_creation if parts.config.auto_create_topics_enable else None,
        parts.config.max_request_partition_size_limit,
    )


@_family(ApiKey.PRODUCE)
def _produce(parts: BrokerParts) -> object:
    from barnabas.broker.handlers.produce import ProduceHandler

    return ProduceHandler(
        parts.helper,
        parts.auth,
        parts.cache,
        parts.replicas,
        parts.clock,
        lambda: parts.coordinators.get(TRANSACTION).appends,
    )


@_family(ApiKey.FETCH)
def _fetch(parts: BrokerParts) -> object:
    from barnabas.broker.handlers.fetch import FetchHandler

    return FetchHandler(
        parts.helper,
        parts.auth,
        parts.cache,
        parts.replicas,
        parts.fetch_manager,
        parts.replicas.stats,
        parts.clock,
        fetch_max_bytes=parts.config.fetch_max_bytes,
        leader_quota=parts.leader_quota,
    )


@_family(ApiKey.LIST_OFFSETS)
def _list_offsets(parts: BrokerParts) -> object:
    from barnabas.broker.handlers.list_offsets import ListOffsetsHandler

    return ListOffsetsHandler(parts.helper, parts.auth, parts.replicas)


@_family(ApiKey.FIND_COORDINATOR)
def _find_coordinator(parts: BrokerParts) -> object:
    from barnabas.broker.handlers.find_coordinator import FindCoordinatorHandler

    return FindCoordinatorHandler(
        parts.helper,
        parts.auth,
        parts.cache,
        parts.topic_creation,
        parts.coordinators.services(),
        broker_id=parts.config.node_id,
    )


@_family(ApiKey.INIT_PRODUCER_ID)
def _producer_ids(parts: BrokerParts) -> object:
    from barnabas.broker.handlers.producer_ids import ProducerIdsHandler

    return ProducerIdsHandler(
        parts.helper,
        parts.auth,
        parts.producer_ids,
        parts.config.request_timeout_ms,
        parts.coordinators.get(TRANSACTION).coordinator,
    )


@_family(
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.LIST_GROUPS,
    ApiKey.DELETE_GROUPS,
)
def _groups(parts: BrokerParts) -> object:
    from barnabas.broker.handlers.groups import GroupsHandler

    return GroupsHandler(parts.helper, parts.auth, parts.coordinators.get(GROUP))


@_family(ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_DELETE)
def _offsets(parts: BrokerParts) -> object:
    from barnabas.broker.handlers.offsets import OffsetsHandler

    return OffsetsHandler(parts.helper, parts.auth, parts.cache, parts.coordinators.get(GROUP))


@_family(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)
def _telemetry(parts: BrokerParts) -> object:
    from barnabas.broker.handlers.telemetry import TelemetryHandler

    return TelemetryHandler(parts.helper, parts.client_metrics)


@_family(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
)
def _transactions(parts: BrokerParts) -> object:
    from barnabas.broker.handlers.transactions import TransactionsHandler

    groups, transactions = parts.coordinators.get(GROUP), parts.coordinators.get(TRANSACTION)
    return TransactionsHandler(
        parts.helper, parts.auth, parts.cache, transactions.coordinator, transactions.markers, groups.partition_for
    )


@_family(ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
def _cluster(parts: BrokerParts) -> object:
    from barnabas.broker.handlers.cluster import ClusterHandler

    return ClusterHandler(parts.helper, parts.auth, parts.cache, parts.cluster_id)


@_family(ApiKey.DESCRIBE_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.LIST_CONFIG_RESOURCES)
def _configs(parts: BrokerParts) -> object:
    from barnabas.broker.config.config_admin_manager import ConfigAdminManager
    from barnabas.broker.config.config_helper import ConfigHelper
    from barnabas.broker.handlers.configs import ConfigsHandler

    node_id, cache, forwarding = parts.config.node_id, parts.cache, parts.forwarding
    return ConfigsHandler(
        parts.helper,
        parts.auth,
        cache,
        ConfigHelper(node_id, cache, parts.dynamic_config),
        ConfigAdminManager(node_id, cache, parts.dynamic_config),
        lambda request, body, callback: forwarding.forward_request(request, callback, body),
    )


@_family(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def _offset_for_leader_epoch(parts: BrokerParts) -> object:
    from barnabas.broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler

    return OffsetForLeaderEpochHandler(parts.helper, parts.auth, parts.replicas)


@_family(ApiKey.DELETE_RECORDS)
def _delete_records(parts: BrokerParts) -> object:
    from barnabas.broker.handlers.delete_records import DeleteRecordsHandler

    return DeleteRecordsHandler(parts.helper, parts.auth, parts.cache, parts.replicas)


@_family(ApiKey.DESCRIBE_PRODUCERS)
def _describe_producers(parts: BrokerParts) -> object:
    from barnabas.broker.handlers.describe_producers import DescribeProducersHandler

    return DescribeProducersHandler(parts.helper, parts.auth, parts.cache, parts.replicas)


@_family(ApiKey.DESCRIBE_LOG_DIRS, ApiKey.ALTER_REPLICA_LOG_DIRS)
def _log_dirs(parts: BrokerParts) -> object:
    from barnabas.broker.handlers.log_dirs import LogDirsHandler

    return LogDirsHandler(parts.helper, parts.auth, parts.replicas)


@_family(ApiKey.DESCRIBE_ACLS)
def _acls(parts: BrokerParts) -> object:
    from barnabas.broker.handlers.acls import AclsHandler

    return AclsHandler(parts.helper, parts.auth)


@_family(
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
)
def _delegation_tokens(parts: BrokerParts) -> object:
    from barnabas.broker.handlers.delegation_tokens import DelegationTokensHandler

    return DelegationTokensHandler(
        parts.helper, parts.auth, ForwardedHandler(parts.helper, parts.forwarding), parts.tokens
    )
