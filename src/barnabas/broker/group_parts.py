"""The group coordinator of a broker, put together with what it needs of the rest."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.transaction_parts import TransactionParts
from barnabas.common.clock import Clock
from barnabas.common.scheduler import Scheduler
from barnabas.common.shutdownable_thread import ExitProcedure
from barnabas.coordinator.group.group_coordinator_builder import make_group_coordinator
from barnabas.coordinator.group.group_coordinator_config import GroupCoordinatorConfig
from barnabas.coordinator.group.group_coordinator_service import GroupCoordinatorService
from barnabas.coordinator.group.member_context import MemberContext
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.configs import ConfigResource, ConfigResourceType
from barnabas.metadata.feature_versions import GROUP_VERSION
from barnabas.metrics.registry import Metrics
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.replica.replica_manager import ReplicaManager
from barnabas.security.acl import AclOperation, ResourceType
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.data_plane import HandOff


def make_group_parts(
    config: KafkaConfig,
    settings: GroupCoordinatorConfig,
    cache: MetadataCache,
    auth: AuthHelper,
    replicas: ReplicaManager,
    transactions: TransactionParts,
    scheduler: Scheduler,
    clock: Clock,
    metrics: Metrics,
    exit_procedure: ExitProcedure,
    registry: MetricsRegistry,
) -> GroupCoordinatorService:
    """Not started: that is done when the first metadata are there."""

    def overrides(group_id: str) -> Mapping[str, str]:
        return cache.config(ConfigResource(ConfigResourceType.GROUP, group_id))

    def visible_topics(context: MemberContext, topics: Collection[str]) -> Collection[str]:
        if auth.authorizer is None or context.authorization is None:
            return topics
        return auth.filter_by_authorized(
            context.authorization,
            AclOperation.DESCRIBE,
            ResourceType.TOPIC,
            topics,
            lambda name: name,
            log_if_denied=False,
        )

    service, writer = make_group_coordinator(
        settings,
        replicas,
        scheduler,
        clock,
        metrics,
        registry=registry,
        inline=config.hand_off is HandOff.DIRECT,
        overrides=overrides,
        topic_filter=visible_topics,
        is_consumer_protocol_enabled=lambda: cache.image.features.finalized.get(GROUP_VERSION.name, 0) >= 1,
        exit_procedure=exit_procedure,
    )
    # Offsets can be committed in transactions, so each of the two coordinators knows the other.
    writer.verifier = transactions.verifier.verify_offset_commit
    transactions.markers.groups = service
    return service
