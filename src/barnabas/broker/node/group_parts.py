"""Assembles the group coordinator of a broker."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from barnabas.broker.node.coordinators import CoordinatorContext
from barnabas.broker.node.transaction_parts import TransactionParts
from barnabas.coordinator.group.group_coordinator_builder import GroupPlugins, make_group_coordinator
from barnabas.coordinator.group.group_coordinator_config import GroupCoordinatorConfig
from barnabas.coordinator.group.group_coordinator_service import GroupCoordinatorService
from barnabas.coordinator.group.member_context import MemberContext
from barnabas.metadata.configs import ConfigResource, ConfigResourceType
from barnabas.metadata.feature_versions import GROUP_VERSION
from barnabas.security.acl import AclOperation, ResourceType
from barnabas.server.data_plane import HandOff


def make_group_parts(
    context: CoordinatorContext, settings: GroupCoordinatorConfig, transactions: TransactionParts
) -> GroupCoordinatorService:
    """Makes the group coordinator. The first metadata update starts it."""
    cache, auth = context.cache, context.auth

    def overrides(group_id: str) -> Mapping[str, str]:
        return cache.config(ConfigResource(ConfigResourceType.GROUP, group_id))

    def visible_topics(member: MemberContext, topics: Collection[str]) -> Collection[str]:
        if auth.authorizer is None or member.authorization is None:
            return topics
        return auth.filter_by_authorized(
            member.authorization,
            AclOperation.DESCRIBE,
            ResourceType.TOPIC,
            topics,
            lambda name: name,
            log_if_denied=False,
        )

    shared = context.shared
    service, writer = make_group_coordinator(
        settings,
        context.replicas,
        context.scheduler,
        shared.clock,
        shared.metrics,
        shared.registry,
        GroupPlugins(overrides, visible_topics, lambda: cache.image.features.finalized.get(GROUP_VERSION.name, 0) >= 1),
        inline=context.config.hand_off is HandOff.DIRECT,
        exit_procedure=shared.exit_procedure,
    )
    # Offsets can be committed in transactions, so each coordinator needs the other.
    writer.verifier = transactions.verifier.verify_offset_commit
    transactions.markers.groups = service
    return service
