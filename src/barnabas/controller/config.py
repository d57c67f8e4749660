"""The settings and plugins of a controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.common.dataclass import dataclass, field
from barnabas.common.identifiers import Uuid, random_uuid
from barnabas.controller.bootstrap import BootstrapMetadata
from barnabas.controller.client_quota_control_manager import is_ip_address
from barnabas.controller.cluster_control_manager import DEFAULT_SESSION_TIMEOUT_MS
from barnabas.controller.config_schema import ELECTION_SCHEMA, KafkaConfigSchema
from barnabas.controller.config_validator import ConfigurationValidator, ControllerConfigurationValidator
from barnabas.controller.configuration_control_manager import AlterConfigPolicy
from barnabas.controller.delegation_token_control_manager import DelegationTokenConfig
from barnabas.controller.quorum_features import default_supported_features
from barnabas.controller.replica_placer import ReplicaPlacer, StripedReplicaPlacer
from barnabas.controller.result import MAX_RECORDS_PER_USER_OP
from barnabas.controller.snapshot_trigger import SnapshotHook
from barnabas.controller.topic_creation import CreateTopicPolicy
from barnabas.protocol.versions import VersionRange


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """Settings, with Kafka's defaults."""

    node_id: int
    cluster_id: str
    quorum_node_ids: tuple[int, ...] = ()
    """The voters; this node alone if left empty."""
    supported_features: Mapping[str, VersionRange] = field(default_factory=default_supported_features)
    bootstrap: BootstrapMetadata = field(default_factory=BootstrapMetadata.for_version)
    static_config: Mapping[str, object] = field(default_factory=dict, repr=False)
    """The static configuration of this node: the defaults of topics. It contains secrets."""
    default_num_partitions: int = 1
    """``num.partitions``"""
    default_replication_factor: int = 1
    """``default.replication.factor``"""
    session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS
    """``broker.session.timeout.ms``"""
    leader_imbalance_check_interval_ms: int = 300_000
    """``leader.imbalance.check.interval.seconds``; 0 if ``auto.leader.rebalance.enable`` is false."""
    unclean_leader_election_check_interval_ms: int = 300_000
    max_idle_interval_ms: int = 500
    """``metadata.max.idle.interval.ms``: how often to write a NoOpRecord; 0 for never."""
    max_records_per_batch: int = MAX_RECORDS_PER_USER_OP
    max_bytes_between_snapshots: int = 20 * 1024 * 1024
    """``metadata.log.max.record.bytes.between.snapshots``"""
    max_snapshot_interval_ms: int = 3_600_000
    """``metadata.log.max.snapshot.interval.ms``; 0 for never."""
    delegation_tokens: DelegationTokenConfig = field(default_factory=DelegationTokenConfig)


@dataclass(frozen=True, slots=True)
class ControllerPlugins:
    """The controller's dependencies on other parts."""

    config_schema: KafkaConfigSchema = ELECTION_SCHEMA
    config_validator: ConfigurationValidator = field(default_factory=ControllerConfigurationValidator)
    create_topic_policy: CreateTopicPolicy | None = None
    alter_config_policy: AlterConfigPolicy | None = None
    replica_placer: ReplicaPlacer = field(default_factory=StripedReplicaPlacer)
    new_uuid: Callable[[], Uuid] = random_uuid
    is_resolvable: Callable[[str], bool] = is_ip_address
    on_snapshot_due: SnapshotHook | None = None
