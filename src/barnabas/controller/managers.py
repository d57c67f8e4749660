"""The managers of a controller and their wiring."""

from __future__ import annotations

from barnabas.common.clock import Clock
from barnabas.common.errors import BrokerIdNotRegisteredError, InvalidRequestError, UnknownTopicOrPartitionError
from barnabas.common.numerals import parse_integer
from barnabas.common.snapshot_registry import SnapshotRegistry
from barnabas.controller.acl_control_manager import AclControlManager
from barnabas.controller.broker_lifecycle import BrokerLifecycle
from barnabas.controller.client_quota_control_manager import ClientQuotaControlManager
from barnabas.controller.cluster_control_manager import ClusterControlManager
from barnabas.controller.config import ControllerConfig, ControllerPlugins
from barnabas.controller.configuration_control_manager import ConfigurationControlManager
from barnabas.controller.delegation_token_control_manager import DelegationTokenControlManager
from barnabas.controller.feature_control_manager import FeatureControlManager, KRaftVersionAccessor
from barnabas.controller.isr_changes import IsrChanges
from barnabas.controller.leader_elections import LeaderElections
from barnabas.controller.offset_control_manager import OffsetControlManager
from barnabas.controller.producer_id_control_manager import ProducerIdControlManager
from barnabas.controller.quorum_features import QuorumFeatures
from barnabas.controller.reassignments import Reassignments
from barnabas.controller.record_replay import RecordReplay, ignore
from barnabas.controller.replica_directories import ReplicaDirectories
from barnabas.controller.replication_control_manager import ReplicationControlManager
from barnabas.controller.scram_control_manager import ScramControlManager
from barnabas.controller.topic_creation import TopicCreation
from barnabas.controller.topic_deletion import TopicDeletion
from barnabas.metadata.configs import ConfigResource, ConfigResourceType
from barnabas.protocol.internal import metadata as records
from barnabas.raft.client import ApiMessageAndVersion


class ControllerManagers:
    """All state of a controller, and the operations on it; no thread, no queue, no log.

    ``replay(record, offset)`` changes the state; everything else only reads it and generates records. Tests of single
    managers use this class without a :class:`~barnabas.controller.quorum_controller.QuorumController`.
    """

    def __init__(
        self, config: ControllerConfig, plugins: ControllerPlugins, clock: Clock, kraft_version: KRaftVersionAccessor
    ) -> None:
        self.registry = registry = SnapshotRegistry()
        self.offsets = OffsetControlManager(registry, clock)
        quorum_features = QuorumFeatures(
            config.node_id, config.supported_features, config.quorum_node_ids or (config.node_id,)
        )
        self.features = FeatureControlManager(registry, quorum_features, self, kraft_version)
        self.cluster = ClusterControlManager(
            registry,
            self.features,
            clock,
            cluster_id=config.cluster_id,
            node_id=config.node_id,
            session_timeout_ms=config.session_timeout_ms,
            on_broker_shutdown=self._on_broker_shutdown,
        )
        self.broker_supported = self.cluster.broker_supported
        self.controller_supported = self.cluster.controller_supported
        self.configs = ConfigurationControlManager(
            registry,
            self.features,
            plugins.config_schema,
            plugins.config_validator,
            self._check_resource_exists,
            node_id=config.node_id,
            static_config=config.static_config,
            alter_config_policy=plugins.alter_config_policy,
        )
        self.replication = ReplicationControlManager(registry, self.features, self.cluster, self.configs)
        self.topic_creation = TopicCreation(
            self.replication,
            plugins.replica_placer,
            default_num_partitions=config.default_num_partitions,
            default_replication_factor=config.default_replication_factor,
            policy=plugins.create_topic_policy,
            new_uuid=plugins.new_uuid,
        )
        self.topic_deletion = TopicDeletion(self.replication)
        self.elections = LeaderElections(self.replication)
        self.isr_changes = IsrChanges(self.replication)
        self.reassignments = Reassignments(self.replication, self.topic_creation)
        self.replica_directories = ReplicaDirectories(self.replication, self.elections)
        self.broker_lifecycle = BrokerLifecycle(self.replication, self.elections)
        self.client_quotas = ClientQuotaControlManager(registry, plugins.is_resolvable)
        self.producer_ids = ProducerIdControlManager(registry, self.cluster)
        self.acls = AclControlManager(registry, plugins.new_uuid)
        self.scram = ScramControlManager(registry, self.features)
        self.delegation_tokens = DelegationTokenControlManager(registry, self.features, config.delegation_tokens, clock)
        self.replay = self._record_replay()

    def _record_replay(self) -> RecordReplay:
        cluster, replication, offsets = self.cluster, self.replication, self.offsets
        return RecordReplay(
            {
                records.UnregisterBrokerRecord: cluster.replay_unregister_broker,
                records.FenceBrokerRecord: cluster.replay_fence_broker,
                records.UnfenceBrokerRecord: cluster.replay_unfence_broker,
                records.BrokerRegistrationChangeRecord: cluster.replay_broker_registration_change,
                records.RegisterControllerRecord: cluster.replay_register_controller,
                records.TopicRecord: replication.replay_topic,
                records.PartitionRecord: replication.replay_partition,
                records.PartitionChangeRecord: replication.replay_partition_change,
                records.RemoveTopicRecord: replication.replay_remove_topic,
                records.ClearElrRecord: replication.replay_clear_elr,
                records.ConfigRecord: self.configs.replay,
                records.FeatureLevelRecord: self.features.replay,
                records.ClientQuotaRecord: self.client_quotas.replay,
                records.ProducerIdsRecord: self.producer_ids.replay,
                records.AccessControlEntryRecord: self.acls.replay,
                records.RemoveAccessControlEntryRecord: self.acls.replay_removal,
                records.UserScramCredentialRecord: self.scram.replay,
                records.RemoveUserScramCredentialRecord: self.scram.replay_removal,
                records.DelegationTokenRecord: self.delegation_tokens.replay,
                records.RemoveDelegationTokenRecord: self.delegation_tokens.replay_removal,
                records.NoOpRecord: ignore,
                records.ZkMigrationStateRecord: ignore,
            },
            {
                records.RegisterBrokerRecord: cluster.replay_register_broker,
                records.BeginTransactionRecord: offsets.replay_begin_transaction,
                records.EndTransactionRecord: offsets.replay_end_transaction,
                records.AbortTransactionRecord: offsets.replay_abort_transaction,
            },
        )

    def _on_broker_shutdown(self, broker_id: int, clean: bool) -> list[ApiMessageAndVersion]:
        return self.broker_lifecycle.broker_shut_down(broker_id, clean)

    def _check_resource_exists(self, resource: ConfigResource) -> None:
        """Raises if the resource does not exist. Groups and subscriptions exist as soon as they are configured."""
        if resource.type == ConfigResourceType.TOPIC:
            if resource.name not in self.replication.topic_ids:
                raise UnknownTopicOrPartitionError(f"Topic {resource.name!r} does not exist.")
        elif resource.type == ConfigResourceType.BROKER and resource.name:
            try:
                node_id = parse_integer(resource.name)
            except ValueError as error:
                raise InvalidRequestError(f"The name of a broker resource must be its ID: {error}.") from None
            if node_id not in self.cluster.brokers and not self.features.is_controller_id(node_id):
                raise BrokerIdNotRegisteredError(f"Node {node_id} is not registered.")
