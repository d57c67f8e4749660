"""The cluster: its brokers, its controller quorum, its features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from barnabas.clients.admin.internals.admin_api_driver import error_of
from barnabas.clients.admin.internals.node_choice import ANY, CONTROLLER, Broker
from barnabas.clients.admin.internals.operation import Operation
from barnabas.clients.admin.results import Results
from barnabas.clients.admin.topics import operations_of
from barnabas.common.errors import ApiError, UnknownServerError, raise_for_code
from barnabas.common.identifiers import uuid_to_string
from barnabas.common.topic_names import CLUSTER_METADATA_TOPIC
from barnabas.network.client.node import Node
from barnabas.protocol.messages import describe_quorum as quorum_api
from barnabas.protocol.messages import update_features as features_api
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas.protocol.versions import VersionRange
from barnabas.security.acl import AclOperation

_BROKERS: Final = 1
_WITH_FENCED: Final = VersionRange(2, 2)


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The brokers of a cluster."""

    cluster_id: str
    controller: Node | None
    """A broker that forwards to the controller; controllers themselves do not serve clients."""
    nodes: tuple[Node, ...]
    fenced: frozenset[int] = frozenset()
    """The ids of registered brokers that are fenced; only on request."""
    authorized_operations: frozenset[AclOperation] | None = None


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """The position of a voter or observer in the metadata log."""

    replica_id: int
    directory_id: str
    log_end_offset: int
    last_fetch_timestamp: int | None
    last_caught_up_timestamp: int | None


@dataclass(frozen=True, slots=True)
class QuorumInfo:
    """The Raft quorum that keeps the metadata log."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    nodes: Mapping[int, tuple[str, ...]]
    """The endpoints of the voters, as listener://host:port."""


class UpgradeType(IntEnum):
    """Whether a feature may also be downgraded."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """A version level that a feature is to have."""

    max_version_level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


@dataclass(frozen=True, slots=True)
class FeatureMetadata:
    """The finalized features of the cluster, and those that a broker supports."""

    finalized: Mapping[str, int]
    finalized_epoch: int | None
    supported: Mapping[str, VersionRange]


async def describe_cluster(
    operation: Operation, *, include_authorized_operations: bool = False, include_fenced_brokers: bool = False
) -> ClusterDescription:
    """Returns the brokers of the cluster."""
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=include_authorized_operations,
        endpoint_type=_BROKERS,
        include_fenced_brokers=include_fenced_brokers,
    )

    def read(response: DescribeClusterResponse) -> ClusterDescription:
        raise_for_code(response.error_code, response.error_message)
        nodes = {row.broker_id: Node(row.broker_id, row.host, row.port, row.rack) for row in response.brokers}
        return ClusterDescription(
            response.cluster_id,
            nodes.get(response.controller_id),
            tuple(nodes[node_id] for node_id in sorted(nodes)),
            frozenset(row.broker_id for row in response.brokers if row.is_fenced),
            operations_of(response.cluster_authorized_operations),
        )

    return await operation.ask(ANY, request, read, _WITH_FENCED if include_fenced_brokers else None)


async def describe_metadata_quorum(operation: Operation) -> QuorumInfo:
    """Returns the leader of the controllers, and the progress of the others."""
    request = quorum_api.DescribeQuorumRequest(
        topics=[
            quorum_api.RequestTopicData(
                topic_name=CLUSTER_METADATA_TOPIC, partitions=[quorum_api.RequestPartitionData(partition_index=0)]
            )
        ]
    )

    def read(response: quorum_api.DescribeQuorumResponse) -> QuorumInfo:
        raise_for_code(response.error_code, response.error_message)
        rows = [row for topic in response.topics for row in topic.partitions]
        if len(rows) != 1:
            raise UnknownServerError(
                f"The DescribeQuorum response has {len(rows)} partitions; the metadata log has one."
            )
        row = rows[0]
        raise_for_code(row.error_code, row.error_message)
        return QuorumInfo(
            row.leader_id,
            row.leader_epoch,
            row.high_watermark,
            tuple(map(_replica, row.current_voters)),
            tuple(map(_replica, row.observers)),
            {
                node.node_id: tuple(f"{one.name}://{one.host}:{one.port}" for one in node.listeners)
                for node in response.nodes
            },
        )

    return await operation.ask(ANY, request, read)


def _replica(row: quorum_api.ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        row.replica_id,
        uuid_to_string(row.replica_directory_id),
        row.log_end_offset,
        None if row.last_fetch_timestamp < 0 else row.last_fetch_timestamp,
        None if row.last_caught_up_timestamp < 0 else row.last_caught_up_timestamp,
    )


async def describe_features(operation: Operation, *, broker_id: int | None = None) -> FeatureMetadata:
    """Returns the features of the cluster; the supported ones are those of one broker."""

    def read(response: ApiVersionsResponse) -> FeatureMetadata:
        raise_for_code(response.error_code)
        return FeatureMetadata(
            {row.name: row.max_version_level for row in response.finalized_features},
            None if response.finalized_features_epoch < 0 else response.finalized_features_epoch,
            {row.name: VersionRange(row.min_version, row.max_version) for row in response.supported_features},
        )

    request = ApiVersionsRequest(client_software_name="barnabas", client_software_version="admin")
    return await operation.ask(ANY if broker_id is None else Broker(broker_id), request, read)


async def update_features(
    operation: Operation,
    updates: Mapping[str, FeatureUpdate | int],
    *,
    validate_only: bool = False,
    partial: bool = False,
) -> Results[str, None]:
    """Upgrades or downgrades features. A number is a level to upgrade to; 0 removes a feature."""
    if not updates:
        raise ValueError("Feature updates can not be null or empty.")
    wanted = {name: FeatureUpdate(value) if isinstance(value, int) else value for name, value in updates.items()}

    def request() -> features_api.UpdateFeaturesRequest:
        return features_api.UpdateFeaturesRequest(
            timeout_ms=operation.remaining_ms,
            feature_updates=[
                features_api.FeatureUpdateKey(
                    feature=name, max_version_level=one.max_version_level, upgrade_type=one.upgrade_type
                )
                for name, one in wanted.items()
            ],
            validate_only=validate_only,
        )

    def read(response: features_api.UpdateFeaturesResponse) -> Results[str, None]:
        raise_for_code(response.error_code, response.error_message)
        # Since version 2 an update is all or nothing, and the response has no rows.
        failed: dict[str, ApiError] = {}
        for row in response.results:
            error = error_of(row.error_code, row.error_message)
            if error is not None:
                failed[row.feature] = error
        return Results({name: None for name in wanted if name not in failed}, failed)

    return (await operation.ask(CONTROLLER, request, read)).checked(partial)


async def unregister_broker(operation: Operation, broker_id: int) -> None:
    """Removes the registration of a broker that does not come back."""

    def read(response: UnregisterBrokerResponse) -> None:
        raise_for_code(response.error_code, response.error_message)

    await operation.ask(CONTROLLER, UnregisterBrokerRequest(broker_id=broker_id), read)
