"""The settings of the group coordinator, for classic, consumer, share and streams groups."""

from __future__ import annotations

from typing import Final

from barnabas.broker.config.terms import (
    HIGH,
    INT,
    LIST,
    LONG,
    MAX_INT,
    MEDIUM,
    SHORT,
    STRING,
    at_least,
    distinct,
    one_of_in_any_case,
    some_of,
)
from barnabas.common.config_def import ConfigDef

GROUP_COORDINATOR_CONFIG_DEF: Final = ConfigDef()
_define: Final = GROUP_COORDINATOR_CONFIG_DEF.define

# fmt: off

# The coordinator.
_define("group.coordinator.rebalance.protocols", LIST,
    "classic,consumer,streams", some_of("consumer", "classic", "share", "streams", empty=False), MEDIUM,
    "The kinds of groups that are served.")
_define("group.coordinator.threads", INT, 4, at_least(1), HIGH, "Threads that run the groups' events.")
_define("group.coordinator.background.threads", INT, 2, at_least(1), HIGH,
    "Threads for assignments and other work that must not hold up events.")
_define("group.coordinator.append.linger.ms", INT, -1, at_least(-1), MEDIUM,
    "How long records of groups are collected before they are written; -1 adapts to the load.")
_define("group.coordinator.cached.buffer.max.bytes", INT, 1_048_588, at_least(524_288), MEDIUM,
    "The largest buffer that is kept for the next write.")

# Offsets.
_define("offset.metadata.max.bytes", INT, 4096, None, HIGH, "The longest text that can go with a committed offset.")
_define("offsets.commit.timeout.ms", INT, 5000, at_least(1), HIGH, "How long a commit may wait for its replicas.")
_define("offsets.load.buffer.size", INT, 5_242_880, at_least(1), HIGH,
    "How many bytes of the offsets topic are read at once when a group is loaded.")
_define("offsets.retention.minutes", INT, 10_080, at_least(1), HIGH,
    "How long offsets are kept after their group has become empty.")
_define("offsets.retention.check.interval.ms", LONG, 600_000, at_least(1), HIGH,
    "How often to look for offsets that have expired.")
_define("offsets.topic.num.partitions", INT, 50, at_least(1), HIGH,
    "Partitions of the offsets topic. Not to be changed later: it decides where a group is.")
_define("offsets.topic.replication.factor", SHORT, 3, at_least(1), HIGH,
    "Replicas of the offsets topic. It is not made before there are as many brokers.")
_define("offsets.topic.segment.bytes", INT, 104_857_600, at_least(1), HIGH,
    "Segments of the offsets topic; small ones are compacted and loaded faster.")
_define("offsets.topic.compression.codec", INT, 0, None, HIGH, "The codec of the offsets topic, by its number.")

# Classic groups.
_define("group.min.session.timeout.ms", INT, 6000, None, MEDIUM,
    "The shortest session timeout that a member may ask for.")
_define("group.max.session.timeout.ms", INT, 1_800_000, None, MEDIUM, "The longest one.")
_define("group.initial.rebalance.delay.ms", INT, 3000, None, MEDIUM,
    "How long an empty group waits for more members before its first rebalance.")
_define("group.max.size", INT, MAX_INT, at_least(1), MEDIUM, "How many members a group can have.")

# Consumer groups (KIP-848).
_define("group.consumer.assignors", LIST, "uniform,range", distinct(empty=False, null=False), MEDIUM,
    "The assignors of the broker, the default first: uniform, range, or the name of a class.")
_define("group.consumer.migration.policy", STRING,
    "bidirectional", one_of_in_any_case("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"), MEDIUM,
    "Whether a group may change between classic and consumer protocol while it has members.")
_define("group.consumer.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM,
    "How long a member that is not heard of is believed in.")
_define("group.consumer.min.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM,
    "The shortest such time that a group can be configured with.")
_define("group.consumer.max.session.timeout.ms", INT, 60_000, at_least(1), MEDIUM, "The longest one.")
_define("group.consumer.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM,
    "How often members are told to send heartbeats.")
_define("group.consumer.min.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM,
    "The shortest such time that a group can be configured with.")
_define("group.consumer.max.heartbeat.interval.ms", INT, 15_000, at_least(1), MEDIUM, "The longest one.")
_define("group.consumer.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM,
    "The least time between two assignments of a group; changes in between are collected.")
_define("group.consumer.min.assignment.interval.ms", INT, 0, at_least(0), MEDIUM,
    "The shortest such time that a group can be configured with.")
_define("group.consumer.max.assignment.interval.ms", INT, 15_000, at_least(0), MEDIUM, "The longest one.")
_define("group.consumer.max.size", INT, MAX_INT, at_least(1), MEDIUM, "How many members a consumer group can have.")
_define("group.consumer.regex.refresh.interval.ms", INT, 600_000, at_least(10_000), MEDIUM,
    "How often the topics that match a regular expression are looked for again.", internal=True)

# Streams groups.
_define("group.streams.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM,
    "How long a member that is not heard of is believed in.")
_define("group.streams.min.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM,
    "The shortest such time that a group can be configured with.")
_define("group.streams.max.session.timeout.ms", INT, 60_000, at_least(1), MEDIUM, "The longest one.")
_define("group.streams.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM,
    "How often members are told to send heartbeats.")
_define("group.streams.min.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM,
    "The shortest such time that a group can be configured with.")
_define("group.streams.max.heartbeat.interval.ms", INT, 15_000, at_least(1), MEDIUM, "The longest one.")
_define("group.streams.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM,
    "The least time between two assignments of a group.")
_define("group.streams.min.assignment.interval.ms", INT, 0, at_least(0), MEDIUM,
    "The shortest such time that a group can be configured with.")
_define("group.streams.max.assignment.interval.ms", INT, 15_000, at_least(0), MEDIUM, "The longest one.")
_define("group.streams.initial.rebalance.delay.ms", INT, 3000, at_least(0), MEDIUM,
    "How long an empty group waits for more members before its first assignment.")
_define("group.streams.num.standby.replicas", INT, 0, at_least(0), MEDIUM,
    "How many standby copies of a task's state there are.")
_define("group.streams.max.standby.replicas", INT, 2, at_least(0), MEDIUM, "How many a group can be configured with.")
_define("group.streams.max.size", INT, MAX_INT, at_least(1), MEDIUM, "How many members a streams group can have.")

# fmt: on
