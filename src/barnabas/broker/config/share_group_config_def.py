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
    "The assignors of share groups.")
_define("group.share.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM,
    "How long a member that is not heard of is believed in.")
_define("group.share.min.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM,
    "The shortest such time that a group can be configured with.")
_define("group.share.max.session.timeout.ms", INT, 60_000, at_least(1), MEDIUM, "The longest one.")
_define("group.share.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM,
    "How often members are told to send heartbeats.")
_define("group.share.min.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM,
    "The shortest such time that a group can be configured with.")
_define("group.share.max.heartbeat.interval.ms", INT, 15_000, at_least(1), MEDIUM, "The longest one.")
_define("group.share.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM,
    "The least time between two assignments of a group.")
_define("group.share.min.assignment.interval.ms", INT, 0, at_least(0), MEDIUM,
    "The shortest such time that a group can be configured with.")
_define("group.share.max.assignment.interval.ms", INT, 15_000, at_least(0), MEDIUM, "The longest one.")
_define("group.share.max.size", INT, 200, between(1, 1000), MEDIUM, "How many members a share group can have.")
_define("group.share.max.share.sessions", INT, 2000, at_least(1), MEDIUM, "How many share sessions the broker keeps.")

# Records on their way.
_define("group.share.delivery.count.limit", INT, 5, between(2, 10), MEDIUM,
    "How often a record is delivered before it is given up.")
_define("group.share.min.delivery.count.limit", INT, 2, between(2, 5), MEDIUM,
    "The smallest such number that a group can be configured with.")
_define("group.share.max.delivery.count.limit", INT, 10, between(5, 25), MEDIUM, "The largest one.")
_define("group.share.record.lock.duration.ms", INT, 30_000, between(1000, 3_600_000), MEDIUM,
    "How long a record belongs to the consumer that has it before another gets it.")
_define("group.share.min.record.lock.duration.ms", INT, 15_000, between(1000, 30_000), MEDIUM,
    "The shortest such time that a group can be configured with.")
_define("group.share.max.record.lock.duration.ms", INT, 60_000, between(30_000, 3_600_000), MEDIUM,
    "The longest one.")
_define("group.share.partition.max.record.locks", INT, 2000, between(100, 10_000), MEDIUM,
    "How many records of a partition can be with consumers at once.")
_define("group.share.min.partition.max.record.locks", INT, 100, between(100, 2000), MEDIUM,
    "The smallest such number that a group can be configured with.")
_define("group.share.max.partition.max.record.locks", INT, 4000, between(2000, 10_000), MEDIUM, "The largest one.")
_define("group.share.persister.class.name", STRING, None, None, MEDIUM,
    "The class that keeps the state of share partitions.", internal=True)
_define("group.share.initialize.retry.interval.ms", INT, 30_000, at_least(1), LOW,
    "How often to try again to initialize share partitions.", internal=True)
_define("share.fetch.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM,
    "After how many finished share fetches their purgatory is cleared of them.")

# The share coordinator.
_define("share.coordinator.threads", INT, 1, at_least(1), MEDIUM, "Threads that run the share coordinator's events.")
_define("share.coordinator.append.linger.ms", INT, -1, at_least(-1), MEDIUM,
    "How long its records are collected before they are written; -1 adapts to the load.")
_define("share.coordinator.cached.buffer.max.bytes", INT, 1_048_588, at_least(524_288), MEDIUM,
    "The largest buffer that is kept for the next write.")
_define("share.coordinator.load.buffer.size", INT, 5_242_880, at_least(1), HIGH,
    "How many bytes of its topic are read at once when state is loaded.")
_define("share.coordinator.write.timeout.ms", INT, 5000, at_least(1), HIGH,
    "How long a write may wait for its replicas.")
_define("share.coordinator.snapshot.update.records.per.snapshot", INT, 500, between(0, 500), MEDIUM,
    "How many updates of a share partition are written between two snapshots of it.")
_define("share.coordinator.cold.partition.snapshot.interval.ms", INT, 300_000, at_least(1), LOW,
    "How often share partitions that nobody uses are written again, so that older records can go.", internal=True)
_define("share.coordinator.state.topic.num.partitions", INT, 50, at_least(1), HIGH,
    "Partitions of the state topic. Not to be changed later.")
_define("share.coordinator.state.topic.replication.factor", SHORT, 3, at_least(1), HIGH,
    "Replicas of the state topic.")
_define("share.coordinator.state.topic.min.isr", SHORT, 2, at_least(1), HIGH,
    "min.insync.replicas of the state topic.")
_define("share.coordinator.state.topic.segment.bytes", INT, 104_857_600, at_least(1), HIGH,
    "Segments of the state topic.")
_define("share.coordinator.state.topic.compression.codec", INT, 0, None, HIGH,
    "The codec of the state topic, by its number.")
_define("share.coordinator.state.topic.prune.interval.ms", INT, 300_000, at_least(1), LOW,
    "How often the state topic is cut off where nobody needs it any more.", internal=True)

# fmt: on
