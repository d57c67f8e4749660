"""The settings of share groups and of the share coordinator, which keeps their state."""

from __future__ import annotations

from typing import Final

from barnabas.broker.config.terms import (
    HIGH,
    INT,
    LIST,
    LOW,
    MEDIUM,
    SHORT,
    STRING,
    at_least,
    between,
    distinct,
)
from barnabas.common.config_def import ConfigDef

SHARE_GROUP_CONFIG_DEF: Final = ConfigDef()
_define: Final = SHARE_GROUP_CONFIG_DEF.define

# fmt: off

# Share groups.
_define("group.share.assignors", LIST, "simple", distinct(empty=False, null=False), MEDIUM,
    "The server-side assignors of share groups.")
_define("group.share.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM,
    "How long a member may go without a heartbeat before it is removed.")
_define("group.share.min.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM,
    "The minimum share.session.timeout.ms of a group.")
_define("group.share.max.session.timeout.ms", INT, 60_000, at_least(1), MEDIUM,
    "The maximum share.session.timeout.ms of a group.")
_define("group.share.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM,
    "The interval at which members must send heartbeats.")
_define("group.share.min.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM,
    "The minimum share.heartbeat.interval.ms of a group.")
_define("group.share.max.heartbeat.interval.ms", INT, 15_000, at_least(1), MEDIUM,
    "The maximum share.heartbeat.interval.ms of a group.")
_define("group.share.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM,
    "The minimum time between two assignments of a group.")
_define("group.share.min.assignment.interval.ms", INT, 0, at_least(0), MEDIUM,
    "The minimum share.assignment.interval.ms of a group.")
_define("group.share.max.assignment.interval.ms", INT, 15_000, at_least(0), MEDIUM,
    "The maximum share.assignment.interval.ms of a group.")
_define("group.share.max.size", INT, 200, between(1, 1000), MEDIUM, "The maximum number of members of a share group.")
_define("group.share.max.share.sessions", INT, 2000, at_least(1), MEDIUM,
    "The maximum number of share sessions of the broker.")

# Record locks.
_define("group.share.delivery.count.limit", INT, 5, between(2, 10), MEDIUM,
    "How many times a record is delivered before it is archived.")
_define("group.share.min.delivery.count.limit", INT, 2, between(2, 5), MEDIUM,
    "The minimum share.delivery.count.limit of a group.")
_define("group.share.max.delivery.count.limit", INT, 10, between(5, 25), MEDIUM,
    "The maximum share.delivery.count.limit of a group.")
_define("group.share.record.lock.duration.ms", INT, 30_000, between(1000, 3_600_000), MEDIUM,
    "How long a consumer holds the acquisition lock of a record. After that the record can go to another consumer.")
_define("group.share.min.record.lock.duration.ms", INT, 15_000, between(1000, 30_000), MEDIUM,
    "The minimum share.record.lock.duration.ms of a group.")
_define("group.share.max.record.lock.duration.ms", INT, 60_000, between(30_000, 3_600_000), MEDIUM,
    "The maximum share.record.lock.duration.ms of a group.")
_define("group.share.partition.max.record.locks", INT, 2000, between(100, 10_000), MEDIUM,
    "The maximum number of records of a partition that consumers can hold locks on.")
_define("group.share.min.partition.max.record.locks", INT, 100, between(100, 2000), MEDIUM,
    "The minimum share.partition.max.record.locks of a group.")
_define("group.share.max.partition.max.record.locks", INT, 4000, between(2000, 10_000), MEDIUM,
    "The maximum share.partition.max.record.locks of a group.")
_define("group.share.persister.class.name", STRING, None, None, MEDIUM,
    "The class that stores the state of share partitions.", internal=True)
_define("group.share.initialize.retry.interval.ms", INT, 30_000, at_least(1), LOW,
    "How often a failed initialization of share partitions is retried.", internal=True)
_define("share.fetch.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM,
    "The number of completed share fetches after which they are purged from the purgatory.")

# The share coordinator.
_define("share.coordinator.threads", INT, 1, at_least(1), MEDIUM,
    "The number of threads that run the events of the share coordinator.")
_define("share.coordinator.append.linger.ms", INT, -1, at_least(-1), MEDIUM,
    "How long the coordinator collects records before it appends them; -1 adapts to the load.")
_define("share.coordinator.cached.buffer.max.bytes", INT, 1_048_588, at_least(524_288), MEDIUM,
    "The largest write buffer that the coordinator keeps for reuse.")
_define("share.coordinator.load.buffer.size", INT, 5_242_880, at_least(1), HIGH,
    "How many bytes of the state topic are read at once while a partition of it is loaded.")
_define("share.coordinator.write.timeout.ms", INT, 5000, at_least(1), HIGH,
    "How long a write may wait for its replicas.")
_define("share.coordinator.snapshot.update.records.per.snapshot", INT, 500, between(0, 500), MEDIUM,
    "The number of update records of a share partition between two snapshots of it.")
_define("share.coordinator.cold.partition.snapshot.interval.ms", INT, 300_000, at_least(1), LOW,
    "How often the coordinator writes snapshots of unused share partitions, so that older records can "
    "be deleted.", internal=True)
_define("share.coordinator.state.topic.num.partitions", INT, 50, at_least(1), HIGH,
    "The number of partitions of the state topic. Do not change it later.")
_define("share.coordinator.state.topic.replication.factor", SHORT, 3, at_least(1), HIGH,
    "The replication factor of the state topic.")
_define("share.coordinator.state.topic.min.isr", SHORT, 2, at_least(1), HIGH,
    "min.insync.replicas of the state topic.")
_define("share.coordinator.state.topic.segment.bytes", INT, 104_857_600, at_least(1), HIGH,
    "segment.bytes of the state topic.")
_define("share.coordinator.state.topic.compression.codec", INT, 0, None, HIGH,
    "The compression codec of the state topic, by its ID.")
_define("share.coordinator.state.topic.prune.interval.ms", INT, 300_000, at_least(1), LOW,
    "How often the coordinator deletes records of the state topic that are no longer needed.", internal=True)

# fmt: on
