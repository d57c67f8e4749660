"""The records of ``__cluster_metadata``: everything a KRaft cluster knows about itself.

The active controller appends them, the other controllers and all brokers replay them in order; the result is the
metadata image. The log has one partition and no keys, so it is not compacted: instead each node now and then writes a
*snapshot*, a file of the same records that describes the image at one offset, and drops the log before it.
:mod:`~barnabas.protocol.internal.framing` explains how a record encodes its type and version. A log or snapshot begins
with the FeatureLevelRecord of ``metadata.version``, which determines which of the versions below may follow.

Four conventions apply to these records:

- **Whole or change.** Some records contain an object as a whole and replace the previous one (RegisterBrokerRecord,
  PartitionRecord, ConfigRecord for one key). Others contain only the changed fields. The default means "unchanged":
  null for lists; -1, -2 or 0 for numbers, depending on which values are legal (PartitionChangeRecord,
  BrokerRegistrationChangeRecord). These are tagged fields, so an unchanged field takes no bytes.
- **Removal** is a record of its own (RemoveTopicRecord), or a flag or null value (ClientQuotaRecord, ConfigRecord).
  Removing a topic removes its partitions.
- **Topics by id.** A TopicRecord binds id and name once. Later records about partitions use the id, so a record for a
  deleted topic cannot affect a new topic of the same name.
- **Atomicity.** The records of one batch apply together. Changes that do not fit in one batch are enclosed by
  BeginTransactionRecord and EndTransactionRecord.

Type numbers that are missing belonged to records that no longer exist.
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.fields import array, binary, boolean, float64, int8, int16, int32, int64, string, uint16, uuid
from barnabas.protocol.internal.framing import MetadataRecord
from barnabas.protocol.message import Struct


class BrokerEndpoint(Struct):
    name: str = string(default="")
    host: str = string(default="")
    port: int = uint16(default=0)
    security_protocol: int = int16(default=0)


class BrokerFeature(Struct):
    name: str = string(default="")
    min_supported_version: int = int16(default=0)
    max_supported_version: int = int16(default=0)


class RegisterBrokerRecord(MetadataRecord, record_type=0, versions="0-4", flexible="0+"):
    """A broker has registered: replaces any earlier registration of this id. Its own offset is the broker epoch.

    Versions: v1 controlled shutdown; v2 ZooKeeper migration; v3 log directories; v4 cordoned log directories, null
    until the broker reports them.
    """

    broker_id: int = int32(default=0)
    is_migrating_zk_broker: bool = boolean("2+", default=False)
    incarnation_id: Uuid = uuid(default=ZERO_UUID)
    broker_epoch: int = int64(default=0)
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint, default_factory=list)
    features: list[BrokerFeature] = array(BrokerFeature, default_factory=list)
    rack: str | None = string(default="", nullable="0+")
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean("1+", default=False)
    log_dirs: list[Uuid] = array("uuid", "3+", default_factory=list, tag=0)
    cordoned_log_dirs: list[Uuid] | None = array("uuid", "4+", default=None, nullable="4+", tag=1)


class UnregisterBrokerRecord(MetadataRecord, record_type=1, versions="0", flexible="0+"):
    """Removes a registration. The epoch must be the epoch of that registration."""

    broker_id: int = int32(default=0)
    broker_epoch: int = int64(default=0)


class TopicRecord(MetadataRecord, record_type=2, versions="0", flexible="0+"):
    """A topic exists; its partitions follow in records of their own."""

    name: str = string(default="")
    topic_id: Uuid = uuid(default=ZERO_UUID)


class PartitionRecord(MetadataRecord, record_type=3, versions="0-2", flexible="0+"):
    """A partition as a whole: in the log where the partition is created, in a snapshot for every partition.

    Replicas are in order of preference, ``directories`` in the same order as the replicas. ``leader`` -1: no leader.
    The leader epoch rises with each election, the partition epoch with each change of any kind.

    Versions: v1 directories (KIP-858); v2 eligible leader replicas (KIP-966).
    """

    partition_id: int = int32(default=-1)
    topic_id: Uuid = uuid(default=ZERO_UUID)
    replicas: list[int] = array("int32", default_factory=list)
    isr: list[int] = array("int32", default_factory=list)
    removing_replicas: list[int] = array("int32", default_factory=list)
    adding_replicas: list[int] = array("int32", default_factory=list)
    leader: int = int32(default=-1)
    leader_recovery_state: int = int8(default=0, tag=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[Uuid] = array("uuid", "1+", default_factory=list)
    eligible_leader_replicas: list[int] | None = array("int32", "2+", default=None, nullable="2+", tag=1)
    last_known_elr: list[int] | None = array("int32", "2+", default=None, nullable="2+", tag=2)


class ConfigRecord(MetadataRecord, record_type=4, versions="0", flexible="0+"):
    """One key of one resource: types as in DescribeConfigs. A null value resets the key to its default."""

    resource_type: int = int8(default=0)
    resource_name: str = string(default="")
    name: str = string(default="")
    value: str | None = string(default="", nullable="0+")


class PartitionChangeRecord(MetadataRecord, record_type=5, versions="0-2", flexible="0+"):
    """The changes of a partition: null lists and a ``leader_recovery_state`` of -1 mean "unchanged".

    ``leader`` -2 means "unchanged", -1 no leader. Any other value than -2, even the same leader, raises the leader
    epoch. The partition epoch rises with every such record.

    Versions: v1 directories (KIP-858); v2 eligible leader replicas (KIP-966).
    """

    partition_id: int = int32(default=-1)
    topic_id: Uuid = uuid(default=ZERO_UUID)
    isr: list[int] | None = array("int32", default=None, nullable="0+", tag=0)
    leader: int = int32(default=-2, tag=1)
    replicas: list[int] | None = array("int32", default=None, nullable="0+", tag=2)
    removing_replicas: list[int] | None = array("int32", default=None, nullable="0+", tag=3)
    adding_replicas: list[int] | None = array("int32", default=None, nullable="0+", tag=4)
    leader_recovery_state: int = int8(default=-1, tag=5)
    directories: list[Uuid] | None = array("uuid", "1+", default=None, nullable="1+", tag=8)
    eligible_leader_replicas: list[int] | None = array("int32", "2+", default=None, nullable="2+", tag=6)
    last_known_elr: list[int] | None = array("int32", "2+", default=None, nullable="2+", tag=7)


class FenceBrokerRecord(MetadataRecord, record_type=7, versions="0", flexible="0+"):
    """A broker is fenced. Newer clusters write BrokerRegistrationChangeRecord instead."""

    id: int = int32(default=0)
    epoch: int = int64(default=0)


class UnfenceBrokerRecord(MetadataRecord, record_type=8, versions="0", flexible="0+"):
    """A broker may serve. Newer clusters write BrokerRegistrationChangeRecord instead."""

    id: int = int32(default=0)
    epoch: int = int64(default=0)


class RemoveTopicRecord(MetadataRecord, record_type=9, versions="0", flexible="0+"):
    """Removes a topic and all its partitions."""

    topic_id: Uuid = uuid(default=ZERO_UUID)


class DelegationTokenRecord(MetadataRecord, record_type=10, versions="0", flexible="0+"):
    """A delegation token as a whole; a renewal writes it again.

    The secret is not stored: it is computed from id and key.
    """

    owner: str = string(default="")
    requester: str = string(default="")
    renewers: list[str] = array("string", default_factory=list)
    issue_timestamp: int = int64(default=0)
    max_timestamp: int = int64(default=0)
    expiration_timestamp: int = int64(default=0)
    token_id: str = string(default="")


class UserScramCredentialRecord(MetadataRecord, record_type=11, versions="0", flexible="0+"):
    """The server-side credential of a user for one mechanism; the password cannot be derived from it."""

    name: str = string(default="")
    mechanism: int = int8(default=0)
    salt: bytes = binary(default=b"")
    stored_key: bytes = binary(default=b"")
    server_key: bytes = binary(default=b"")
    iterations: int = int32(default=0)


class FeatureLevelRecord(MetadataRecord, record_type=12, versions="0", flexible="0+"):
    """Sets the level of a feature; 0 disables the feature.

    The record itself can never get a version 1, because old code has to read it.
    """

    name: str = string(default="")
    feature_level: int = int16(default=0)


class EntityData(Struct):
    entity_type: str = string(default="")
    entity_name: str | None = string(default="", nullable="0+")


class ClientQuotaRecord(MetadataRecord, record_type=14, versions="0", flexible="0+"):
    """Sets or removes one key of one quota entity; a null name is the default entity."""

    entity: list[EntityData] = array(EntityData, default_factory=list)
    key: str = string(default="")
    value: float = float64(default=0.0)
    remove: bool = boolean(default=False)


class ProducerIdsRecord(MetadataRecord, record_type=15, versions="0", flexible="0+"):
    """Producer ids below ``next_producer_id`` are allocated; the broker is the one that received the last block."""

    broker_id: int = int32(default=0)
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64(default=0)


class BrokerRegistrationChangeRecord(MetadataRecord, record_type=17, versions="0-3", flexible="0+"):
    """The changes of a registration.

    ``fenced``: 1 fenced, -1 unfenced, 0 unchanged. ``in_controlled_shutdown``: 1 in controlled shutdown, 0 unchanged.

    Versions: v1 controlled shutdown; v2 log directories, empty for unchanged; v3 cordoned log directories, null for
    unchanged.
    """

    broker_id: int = int32(default=0)
    broker_epoch: int = int64(default=0)
    fenced: int = int8(default=0, tag=0)
    in_controlled_shutdown: int = int8("1+", default=0, tag=1)
    log_dirs: list[Uuid] = array("uuid", "2+", default_factory=list, tag=2)
    cordoned_log_dirs: list[Uuid] | None = array("uuid", "3+", default=None, nullable="3+", tag=3)


class AccessControlEntryRecord(MetadataRecord, record_type=18, versions="0", flexible="0+"):
    """One access control entry, under an id of its own; codes as in CreateAcls."""

    id: Uuid = uuid(default=ZERO_UUID)
    resource_type: int = int8(default=0)
    resource_name: str = string(default="")
    pattern_type: int = int8(default=0)
    principal: str = string(default="")
    host: str = string(default="")
    operation: int = int8(default=0)
    permission_type: int = int8(default=0)


class RemoveAccessControlEntryRecord(MetadataRecord, record_type=19, versions="0", flexible="0+"):
    """Removes the entry with this id."""

    id: Uuid = uuid(default=ZERO_UUID)


class NoOpRecord(MetadataRecord, record_type=20, versions="0", flexible="0+"):
    """Changes nothing. The controller writes one periodically: the high watermark moves, and lag can be measured."""


class ZkMigrationStateRecord(MetadataRecord, record_type=21, versions="0", flexible="0+"):
    """Left over from the migration off ZooKeeper, found in old logs: 0 none, 1 migration, 2 before, 3 after."""

    zk_migration_state: int = int8(default=0)


class RemoveUserScramCredentialRecord(MetadataRecord, record_type=22, versions="0", flexible="0+"):
    """Removes the credential of this user for this mechanism."""

    name: str = string(default="")
    mechanism: int = int8(default=0)


class BeginTransactionRecord(MetadataRecord, record_type=23, versions="0", flexible="0+"):
    """The records that follow take effect together, at EndTransactionRecord (KIP-868). The name is informational."""

    name: str | None = string(default=None, nullable="0+", tag=0)


class EndTransactionRecord(MetadataRecord, record_type=24, versions="0", flexible="0+"):
    """Applies all records since BeginTransactionRecord."""


class AbortTransactionRecord(MetadataRecord, record_type=25, versions="0", flexible="0+"):
    """Discards all records since BeginTransactionRecord. A new controller ends an unfinished one with it."""

    reason: str | None = string(default=None, nullable="0+", tag=0)


class RemoveDelegationTokenRecord(MetadataRecord, record_type=26, versions="0", flexible="0+"):
    """Removes the token with this id."""

    token_id: str = string(default="")


class ControllerEndpoint(Struct):
    name: str = string(default="")
    host: str = string(default="")
    port: int = uint16(default=0)
    security_protocol: int = int16(default=0)


class ControllerFeature(Struct):
    name: str = string(default="")
    min_supported_version: int = int16(default=0)
    max_supported_version: int = int16(default=0)


class RegisterControllerRecord(MetadataRecord, record_type=27, versions="0", flexible="0+"):
    """A controller has registered: replaces any earlier registration of this id."""

    controller_id: int = int32(default=0)
    incarnation_id: Uuid = uuid(default=ZERO_UUID)
    zk_migration_ready: bool = boolean(default=False)
    end_points: list[ControllerEndpoint] = array(ControllerEndpoint, default_factory=list)
    features: list[ControllerFeature] = array(ControllerFeature, default_factory=list)


class ClearElrRecord(MetadataRecord, record_type=28, versions="0", flexible="0+"):
    """Clears the eligible leader replicas of a topic, or of all topics if the name is empty.

    Written after a change of ``min.insync.replicas``.
    """

    topic_name: str = string(default="")
