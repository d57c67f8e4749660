"""API keys: the table of every request Kafka knows.

One row per API: its number, its name, the supported versions, which of them are flexible, which listeners serve it, and
a few traits the broker acts on. The messages themselves are in :mod:`barnabas.protocol.messages`, one module per API,
and are imported on first use.

The versions are those of Kafka 4.4. KIP-896 removed the versions from before Kafka 2.1. Keys 4 to 7 belonged to the
ZooKeeper-era controller and no longer exist.
"""

from __future__ import annotations

from enum import Flag, IntEnum
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Self

from barnabas.protocol.versions import NONE, VersionRange

if TYPE_CHECKING:
    from barnabas.protocol.message import Request, Response


class Scope(Flag):
    """Which kind of listener serves an API."""

    BROKER = 1
    CONTROLLER = 2
    BOTH = 3


class Trait(Flag):
    """Properties of an API that the server acts on."""

    NONE = 0
    CLUSTER_ACTION = 1
    """Sent between the nodes of a cluster: needs the ClusterAction permission and is not throttled."""
    FORWARDABLE = 2
    """A broker forwards the request to the active controller in an Envelope."""
    LATE_BUFFER = 4
    """The decoded request holds views into the request buffer, so the buffer must not be released early."""
    UNSTABLE = 8
    """The newest version is unstable: served only when ``unstable.api.versions.enable`` is set."""


class ApiKey(IntEnum):
    """An API, as the number that opens every request header.

    >>> ApiKey.FETCH.versions
    VersionRange(lowest=4, highest=18)
    >>> ApiKey.FETCH.request_header_version(12)
    2
    """

    title: str
    """The name in Kafka's documentation: ``ListOffsets``."""
    versions: VersionRange
    """All versions that can be encoded and decoded, including an unstable one."""
    flexible: VersionRange
    """The versions with compact lengths and tagged fields; they also have the newer headers."""
    scope: Scope
    traits: Trait

    def __new__(
        cls, number: int, title: str, versions: str, flexible: str, scope: Scope, traits: Trait = Trait.NONE
    ) -> Self:
        member = int.__new__(cls, number)
        member._value_ = number
        member.title = title
        member.versions = VersionRange.parse(versions)
        member.flexible = VersionRange.parse(flexible)
        member.scope = scope
        member.traits = traits
        return member

    PRODUCE = 0, "Produce", "3-13", "9+", Scope.BROKER, Trait.LATE_BUFFER
    FETCH = 1, "Fetch", "4-18", "12+", Scope.BOTH
    LIST_OFFSETS = 2, "ListOffsets", "1-11", "6+", Scope.BROKER
    METADATA = 3, "Metadata", "0-13", "9+", Scope.BROKER
    OFFSET_COMMIT = 8, "OffsetCommit", "2-10", "8+", Scope.BROKER
    OFFSET_FETCH = 9, "OffsetFetch", "1-10", "6+", Scope.BROKER
    FIND_COORDINATOR = 10, "FindCoordinator", "0-6", "3+", Scope.BROKER
    JOIN_GROUP = 11, "JoinGroup", "0-9", "6+", Scope.BROKER, Trait.LATE_BUFFER
    HEARTBEAT = 12, "Heartbeat", "0-4", "4+", Scope.BROKER
    LEAVE_GROUP = 13, "LeaveGroup", "0-5", "4+", Scope.BROKER
    SYNC_GROUP = 14, "SyncGroup", "0-5", "4+", Scope.BROKER, Trait.LATE_BUFFER
    DESCRIBE_GROUPS = 15, "DescribeGroups", "0-6", "5+", Scope.BROKER
    LIST_GROUPS = 16, "ListGroups", "0-5", "3+", Scope.BROKER
    SASL_HANDSHAKE = 17, "SaslHandshake", "0-1", "none", Scope.BOTH
    API_VERSIONS = 18, "ApiVersions", "0-5", "3+", Scope.BOTH
    CREATE_TOPICS = 19, "CreateTopics", "2-7", "5+", Scope.BOTH, Trait.FORWARDABLE | Trait.LATE_BUFFER
    DELETE_TOPICS = 20, "DeleteTopics", "1-6", "4+", Scope.BOTH, Trait.FORWARDABLE | Trait.LATE_BUFFER
    DELETE_RECORDS = 21, "DeleteRecords", "0-2", "2+", Scope.BROKER
    INIT_PRODUCER_ID = 22, "InitProducerId", "0-6", "2+", Scope.BROKER, Trait.UNSTABLE
    OFFSET_FOR_LEADER_EPOCH = 23, "OffsetForLeaderEpoch", "2-4", "4+", Scope.BROKER
    ADD_PARTITIONS_TO_TXN = 24, "AddPartitionsToTxn", "0-5", "3+", Scope.BROKER
    ADD_OFFSETS_TO_TXN = 25, "AddOffsetsToTxn", "0-4", "3+", Scope.BROKER
    END_TXN = 26, "EndTxn", "0-5", "3+", Scope.BROKER
    WRITE_TXN_MARKERS = 27, "WriteTxnMarkers", "1-2", "1+", Scope.BROKER, Trait.CLUSTER_ACTION
    TXN_OFFSET_COMMIT = 28, "TxnOffsetCommit", "0-6", "3+", Scope.BROKER
    DESCRIBE_ACLS = 29, "DescribeAcls", "1-3", "2+", Scope.BOTH
    CREATE_ACLS = 30, "CreateAcls", "1-3", "2+", Scope.BOTH, Trait.FORWARDABLE | Trait.LATE_BUFFER
    DELETE_ACLS = 31, "DeleteAcls", "1-3", "2+", Scope.BOTH, Trait.FORWARDABLE | Trait.LATE_BUFFER
    DESCRIBE_CONFIGS = 32, "DescribeConfigs", "1-4", "4+", Scope.BOTH
    ALTER_CONFIGS = 33, "AlterConfigs", "0-2", "2+", Scope.BOTH, Trait.FORWARDABLE | Trait.LATE_BUFFER
    ALTER_REPLICA_LOG_DIRS = 34, "AlterReplicaLogDirs", "1-2", "2+", Scope.BROKER
    DESCRIBE_LOG_DIRS = 35, "DescribeLogDirs", "1-5", "2+", Scope.BROKER
    SASL_AUTHENTICATE = 36, "SaslAuthenticate", "0-2", "2+", Scope.BOTH, Trait.LATE_BUFFER
    CREATE_PARTITIONS = 37, "CreatePartitions", "0-3", "2+", Scope.BOTH, Trait.FORWARDABLE | Trait.LATE_BUFFER
    CREATE_DELEGATION_TOKEN = (
        38,
        "CreateDelegationToken",
        "1-3",
        "2+",
        Scope.BOTH,
        Trait.FORWARDABLE | Trait.LATE_BUFFER,
    )
    RENEW_DELEGATION_TOKEN = 39, "RenewDelegationToken", "1-2", "2+", Scope.BOTH, Trait.FORWARDABLE | Trait.LATE_BUFFER
    EXPIRE_DELEGATION_TOKEN = (
        40,
        "ExpireDelegationToken",
        "1-2",
        "2+",
        Scope.BOTH,
        Trait.FORWARDABLE | Trait.LATE_BUFFER,
    )
    DESCRIBE_DELEGATION_TOKEN = 41, "DescribeDelegationToken", "1-3", "2+", Scope.BOTH
    DELETE_GROUPS = 42, "DeleteGroups", "0-3", "2+", Scope.BROKER
    ELECT_LEADERS = 43, "ElectLeaders", "0-2", "2+", Scope.BOTH, Trait.FORWARDABLE | Trait.LATE_BUFFER
    INCREMENTAL_ALTER_CONFIGS = (
        44,
        "IncrementalAlterConfigs",
        "0-1",
        "1+",
        Scope.BOTH,
        Trait.FORWARDABLE | Trait.LATE_BUFFER,
    )
    ALTER_PARTITION_REASSIGNMENTS = (
        45,
        "AlterPartitionReassignments",
        "0-1",
        "0+",
        Scope.BOTH,
        Trait.FORWARDABLE | Trait.LATE_BUFFER,
    )
    LIST_PARTITION_REASSIGNMENTS = (
        46,
        "ListPartitionReassignments",
        "0",
        "0+",
        Scope.BOTH,
        Trait.FORWARDABLE | Trait.LATE_BUFFER,
    )
    OFFSET_DELETE = 47, "OffsetDelete", "0", "none", Scope.BROKER
    DESCRIBE_CLIENT_QUOTAS = 48, "DescribeClientQuotas", "0-1", "1+", Scope.BROKER
    ALTER_CLIENT_QUOTAS = 49, "AlterClientQuotas", "0-1", "1+", Scope.BOTH, Trait.FORWARDABLE | Trait.LATE_BUFFER
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50, "DescribeUserScramCredentials", "0", "0+", Scope.BOTH
    ALTER_USER_SCRAM_CREDENTIALS = (
        51,
        "AlterUserScramCredentials",
        "0",
        "0+",
        Scope.BOTH,
        Trait.FORWARDABLE | Trait.LATE_BUFFER,
    )
    VOTE = 52, "Vote", "0-2", "0+", Scope.CONTROLLER, Trait.CLUSTER_ACTION
    BEGIN_QUORUM_EPOCH = 53, "BeginQuorumEpoch", "0-1", "1+", Scope.CONTROLLER, Trait.CLUSTER_ACTION
    END_QUORUM_EPOCH = 54, "EndQuorumEpoch", "0-1", "1+", Scope.CONTROLLER, Trait.CLUSTER_ACTION
    DESCRIBE_QUORUM = (
        55,
        "DescribeQuorum",
        "0-2",
        "0+",
        Scope.BOTH,
        Trait.CLUSTER_ACTION | Trait.FORWARDABLE | Trait.LATE_BUFFER,
    )
    ALTER_PARTITION = 56, "AlterPartition", "2-3", "0+", Scope.CONTROLLER, Trait.CLUSTER_ACTION
    UPDATE_FEATURES = (
        57,
        "UpdateFeatures",
        "0-2",
        "0+",
        Scope.BOTH,
        Trait.CLUSTER_ACTION | Trait.FORWARDABLE | Trait.LATE_BUFFER,
    )
    ENVELOPE = 58, "Envelope", "0", "0+", Scope.CONTROLLER, Trait.CLUSTER_ACTION | Trait.LATE_BUFFER
    FETCH_SNAPSHOT = 59, "FetchSnapshot", "0-1", "0+", Scope.CONTROLLER
    DESCRIBE_CLUSTER = 60, "DescribeCluster", "0-2", "0+", Scope.BOTH
    DESCRIBE_PRODUCERS = 61, "DescribeProducers", "0", "0+", Scope.BROKER
    BROKER_REGISTRATION = 62, "BrokerRegistration", "0-4", "0+", Scope.CONTROLLER, Trait.CLUSTER_ACTION
    BROKER_HEARTBEAT = 63, "BrokerHeartbeat", "0-2", "0+", Scope.CONTROLLER, Trait.CLUSTER_ACTION
    UNREGISTER_BROKER = 64, "UnregisterBroker", "0", "0+", Scope.BOTH, Trait.FORWARDABLE | Trait.LATE_BUFFER
    DESCRIBE_TRANSACTIONS = 65, "DescribeTransactions", "0", "0+", Scope.BROKER
    LIST_TRANSACTIONS = 66, "ListTransactions", "0-2", "0+", Scope.BROKER
    ALLOCATE_PRODUCER_IDS = (
        67,
        "AllocateProducerIds",
        "0",
        "0+",
        Scope.CONTROLLER,
        Trait.CLUSTER_ACTION | Trait.FORWARDABLE | Trait.LATE_BUFFER,
    )
    CONSUMER_GROUP_HEARTBEAT = 68, "ConsumerGroupHeartbeat", "0-1", "0+", Scope.BROKER
    CONSUMER_GROUP_DESCRIBE = 69, "ConsumerGroupDescribe", "0-1", "0+", Scope.BROKER
    CONTROLLER_REGISTRATION = 70, "ControllerRegistration", "0", "0+", Scope.CONTROLLER
    GET_TELEMETRY_SUBSCRIPTIONS = 71, "GetTelemetrySubscriptions", "0", "0+", Scope.BROKER
    PUSH_TELEMETRY = 72, "PushTelemetry", "0", "0+", Scope.BROKER, Trait.LATE_BUFFER
    ASSIGN_REPLICAS_TO_DIRS = 73, "AssignReplicasToDirs", "0", "0+", Scope.CONTROLLER
    LIST_CONFIG_RESOURCES = 74, "ListConfigResources", "0-1", "0+", Scope.BROKER
    DESCRIBE_TOPIC_PARTITIONS = 75, "DescribeTopicPartitions", "0", "0+", Scope.BROKER
    SHARE_GROUP_HEARTBEAT = 76, "ShareGroupHeartbeat", "1", "0+", Scope.BROKER
    SHARE_GROUP_DESCRIBE = 77, "ShareGroupDescribe", "1", "0+", Scope.BROKER
    SHARE_FETCH = 78, "ShareFetch", "1-2", "0+", Scope.BROKER
    SHARE_ACKNOWLEDGE = 79, "ShareAcknowledge", "1-2", "0+", Scope.BROKER
    ADD_RAFT_VOTER = 80, "AddRaftVoter", "0-1", "0+", Scope.BOTH, Trait.FORWARDABLE | Trait.LATE_BUFFER
    REMOVE_RAFT_VOTER = 81, "RemoveRaftVoter", "0", "0+", Scope.BOTH, Trait.FORWARDABLE | Trait.LATE_BUFFER
    UPDATE_RAFT_VOTER = 82, "UpdateRaftVoter", "0", "0+", Scope.CONTROLLER
    INITIALIZE_SHARE_GROUP_STATE = 83, "InitializeShareGroupState", "0", "0+", Scope.BROKER, Trait.CLUSTER_ACTION
    READ_SHARE_GROUP_STATE = 84, "ReadShareGroupState", "0", "0+", Scope.BROKER, Trait.CLUSTER_ACTION
    WRITE_SHARE_GROUP_STATE = 85, "WriteShareGroupState", "0-1", "0+", Scope.BROKER, Trait.CLUSTER_ACTION
    DELETE_SHARE_GROUP_STATE = 86, "DeleteShareGroupState", "0", "0+", Scope.BROKER, Trait.CLUSTER_ACTION
    READ_SHARE_GROUP_STATE_SUMMARY = 87, "ReadShareGroupStateSummary", "0-1", "0+", Scope.BROKER, Trait.CLUSTER_ACTION
    STREAMS_GROUP_HEARTBEAT = 88, "StreamsGroupHeartbeat", "0-1", "0+", Scope.BROKER
    STREAMS_GROUP_DESCRIBE = 89, "StreamsGroupDescribe", "0-1", "0+", Scope.BROKER
    DESCRIBE_SHARE_GROUP_OFFSETS = 90, "DescribeShareGroupOffsets", "0-1", "0+", Scope.BROKER
    ALTER_SHARE_GROUP_OFFSETS = 91, "AlterShareGroupOffsets", "0", "0+", Scope.BROKER
    DELETE_SHARE_GROUP_OFFSETS = 92, "DeleteShareGroupOffsets", "0", "0+", Scope.BROKER
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93, "StreamsGroupTopologyDescriptionUpdate", "0", "0+", Scope.BROKER
    UNREGISTER_CONTROLLER = 94, "UnregisterController", "0", "0+", Scope.BOTH, Trait.FORWARDABLE | Trait.LATE_BUFFER

    @property
    def stable_versions(self) -> VersionRange:
        """The versions served when unstable versions are not enabled."""
        if Trait.UNSTABLE in self.traits:
            return VersionRange(self.versions.lowest, self.versions.highest - 1)
        return self.versions

    def advertised_versions(self, *, unstable: bool = False) -> VersionRange:
        """Returns the versions that an ApiVersions response lists.

        Produce is announced from version 0 although 0 to 2 are refused: librdkafka before 2.8 takes the lowest Produce
        version for the broker's message format and would stop compressing (KAFKA-18659).
        """
        spoken = self.versions if unstable else self.stable_versions
        return VersionRange(0, spoken.highest) if self is ApiKey.PRODUCE else spoken

    def request_header_version(self, version: int) -> int:
        """Returns the version of the request header: 2 has tagged fields, 1 has none.

        Version 0, which had no client id, was removed together with ControlledShutdown.
        """
        compact = self.flexible
        return 2 if compact.lowest <= version <= compact.highest else 1

    @property
    def flexible_response_headers(self) -> VersionRange:
        """The versions whose response header has version 1, which has tagged fields.

        An ApiVersions response always has header version 0: the client reads it before it knows the versions of the
        broker, and must find the error code of a broker that is older than itself.
        """
        return NONE if self is _API_VERSIONS else self.flexible

    def response_header_version(self, version: int) -> int:
        """Returns the version of the response header: 1 has tagged fields, 0 has none."""
        return 1 if version in self.flexible_response_headers else 0

    @property
    def module(self) -> str:
        """The module that declares the messages: ``barnabas.protocol.messages.list_offsets``."""
        return f"barnabas.protocol.messages.{self.name.lower()}"

    @cached_property
    def request(self) -> type[Request]:
        found: type[Request] = getattr(import_module(self.module), f"{self.title}Request")
        return found

    @cached_property
    def response(self) -> type[Response]:
        found: type[Response] = getattr(import_module(self.module), f"{self.title}Response")
        return found


_API_VERSIONS = ApiKey.API_VERSIONS
