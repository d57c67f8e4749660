"""The admin client: topics, settings, groups, quotas, transactions and other cluster administration."""

from __future__ import annotations

from barnabas.clients.admin.admin_config import AdminClientConfig
from barnabas.clients.admin.async_kafka_admin_client import AsyncKafkaAdminClient
from barnabas.clients.admin.cluster import (
    ClusterDescription,
    FeatureMetadata,
    FeatureUpdate,
    QuorumInfo,
    QuorumReplica,
    UpgradeType,
)
from barnabas.clients.admin.configs import (
    AlterConfigOp,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    OpType,
)
from barnabas.clients.admin.group_offsets import PartitionLag
from barnabas.clients.admin.groups import (
    GroupDescription,
    GroupListing,
    GroupState,
    GroupType,
    MemberDescription,
    MemberToRemove,
)
from barnabas.clients.admin.internals.admin_client_runnable import AdminClientClosedError
from barnabas.clients.admin.kafka_admin_client import KafkaAdminClient
from barnabas.clients.admin.log_dirs import LogDirDescription, ReplicaInfo, TopicPartitionReplica
from barnabas.clients.admin.offsets import IsolationLevel, OffsetAndTimestamp, OffsetSpec
from barnabas.clients.admin.partitions import ElectionType, PartitionReassignment
from barnabas.clients.admin.quotas import ANY_NAME, ClientQuotaEntity
from barnabas.clients.admin.results import Results
from barnabas.clients.admin.scram import (
    ScramCredentialDeletion,
    ScramCredentialInfo,
    ScramCredentialUpsertion,
    ScramMechanism,
)
from barnabas.clients.admin.tokens import DelegationToken
from barnabas.clients.admin.topics import (
    CreatedTopic,
    NewPartitions,
    NewTopic,
    TopicDescription,
    TopicListing,
    TopicPartitionInfo,
)
from barnabas.clients.admin.transactions import (
    AbortTransactionSpec,
    ProducerIdAndEpoch,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from barnabas.clients.common.offsets import OffsetAndMetadata
from barnabas.common.topic_partition import TopicPartition

__all__ = [
    "ANY_NAME",
    "AbortTransactionSpec",
    "AdminClientClosedError",
    "AdminClientConfig",
    "AlterConfigOp",
    "AsyncKafkaAdminClient",
    "ClientQuotaEntity",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "CreatedTopic",
    "DelegationToken",
    "ElectionType",
    "FeatureMetadata",
    "FeatureUpdate",
    "GroupDescription",
    "GroupListing",
    "GroupState",
    "GroupType",
    "IsolationLevel",
    "KafkaAdminClient",
    "LogDirDescription",
    "MemberDescription",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetSpec",
    "OpType",
    "PartitionLag",
    "PartitionReassignment",
    "ProducerIdAndEpoch",
    "ProducerState",
    "QuorumInfo",
    "QuorumReplica",
    "ReplicaInfo",
    "Results",
    "ScramCredentialDeletion",
    "ScramCredentialInfo",
    "ScramCredentialUpsertion",
    "ScramMechanism",
    "TopicDescription",
    "TopicListing",
    "TopicPartition",
    "TopicPartitionInfo",
    "TopicPartitionReplica",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
    "UpgradeType",
]
