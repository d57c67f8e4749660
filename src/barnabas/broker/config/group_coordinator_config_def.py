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
    "The rebalance protocols that the group coordinator serves.")
_define("group.coordinator.threads", INT, 4, at_least(1), HIGH,
    "The number of threads that run the events of the group coordinator.")
_define("group.coordinator.background.threads", INT, 2, at_least(1), HIGH,
    "The number of threads that compute assignments and do other work that must not delay events.")
_define("group.coordinator.append.linger.ms", INT, -1, at_least(-1), MEDIUM,
    "How long the coordinator collects records before it appends them; -1 adapts to the load.")
_define("group.coordinator.cached.buffer.max.bytes", INT, 1_048_588, at_least(524_288), MEDIUM,
    "The largest write buffer that the coordinator keeps for reuse.")

# Offsets.
_define("offset.metadata.max.bytes", INT, 4096, None, HIGH,
    "The maximum length of the metadata string of a committed offset.")
_define("offsets.commit.timeout.ms", INT, 5000, at_least(1), HIGH,
    "How long an offset commit may wait for its replicas.")
_define("offsets.load.buffer.size", INT, 5_242_880, at_least(1), HIGH,
    "How many bytes of the offsets topic are read at once while a partition of it is loaded.")
_define("offsets.retention.minutes", INT, 10_080, at_least(1), HIGH,
    "How long committed offsets are kept after their group has become empty.")
_define("offsets.retention.check.interval.ms", LONG, 600_000, at_least(1), HIGH,
    "How often the coordinator looks for expired offsets.")
_define("offsets.topic.num.partitions", INT, 50, at_least(1), HIGH,
    "The number of partitions of the offsets topic. Do not change it later: it maps groups to coordinators.")
_define("offsets.topic.replication.factor", SHORT, 3, at_least(1), HIGH,
    "The replication factor of the offsets topic. The topic is created once there are that many brokers.")
_define("offsets.topic.segment.bytes", INT, 104_857_600, at_least(1), HIGH,
    "segment.bytes of the offsets topic. Small segments are compacted and loaded faster.")
_define("offsets.topic.compression.codec", INT, 0, None, HIGH, "The compression codec of the offsets topic, by its ID.")

# Classic groups.
_define("group.min.session.timeout.ms", INT, 6000, None, MEDIUM,
    "The minimum session timeout that a member of a classic group may request.")
_define("group.max.session.timeout.ms", INT, 1_800_000, None, MEDIUM,
    "The maximum session timeout that a member of a classic group may request.")
_define("group.initial.rebalance.delay.ms", INT, 3000, None, MEDIUM,
    "How long an empty group waits for more members before its first rebalance.")
_define("group.max.size", INT, MAX_INT, at_least(1), MEDIUM, "The maximum number of members of a classic group.")

# Consumer groups (KIP-848).
_define("group.consumer.assignors", LIST, "uniform,range", distinct(empty=False, null=False), MEDIUM,
    "The server-side assignors: uniform, range, or class names. The first is the default.")
_define("group.consumer.migration.policy", STRING,
    "bidirectional", one_of_in_any_case("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"), MEDIUM,
    "Whether a group with members may change between the classic and the consumer protocol.")
_define("group.consumer.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM,
    "How long a member may go without a heartbeat before it is removed.")
_define("group.consumer.min.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM,
    "The minimum consumer.session.timeout.ms of a group.")
_define("group.consumer.max.session.timeout.ms", INT, 60_000, at_least(1), MEDIUM,
    "The maximum consumer.session.timeout.ms of a group.")
_define("group.consumer.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM,
    "The interval at which members must send heartbeats.")
_define("group.consumer.min.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM,
    "The minimum consumer.heartbeat.interval.ms of a group.")
_define("group.consumer.max.heartbeat.interval.ms", INT, 15_000, at_least(1), MEDIUM,
    "The maximum consumer.heartbeat.interval.ms of a group.")
_define("group.consumer.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM,
    "The minimum time between two assignments of a group. Changes in between are combined.")
_define("group.consumer.min.assignment.interval.ms", INT, 0, at_least(0), MEDIUM,
    "The minimum consumer.assignment.interval.ms of a group.")
_define("group.consumer.max.assignment.interval.ms", INT, 15_000, at_least(0), MEDIUM,
    "The maximum consumer.assignment.interval.ms of a group.")
_define("group.consumer.max.size", INT, MAX_INT, at_least(1), MEDIUM,
    "The maximum number of members of a consumer group.")
_define("group.consumer.regex.refresh.interval.ms", INT, 600_000, at_least(10_000), MEDIUM,
    "How often the coordinator resolves subscribed regular expressions again.", internal=True)

# Streams groups.
_define("group.streams.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM,
    "How long a member may go without a heartbeat before it is removed.")
_define("group.streams.min.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM,
    "The minimum streams.session.timeout.ms of a group.")
_define("group.streams.max.session.timeout.ms", INT, 60_000, at_least(1), MEDIUM,
    "The maximum streams.session.timeout.ms of a group.")
_define("group.streams.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM,
    "The interval at which members must send heartbeats.")
_define("group.streams.min.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM,
    "The minimum streams.heartbeat.interval.ms of a group.")
_define("group.streams.max.heartbeat.interval.ms", INT, 15_000, at_least(1), MEDIUM,
    "The maximum streams.heartbeat.interval.ms of a group.")
_define("group.streams.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM,
    "The minimum time between two assignments of a group.")
_define("group.streams.min.assignment.interval.ms", INT, 0, at_least(0), MEDIUM,
    "The minimum streams.assignment.interval.ms of a group.")
_define("group.streams.max.assignment.interval.ms", INT, 15_000, at_least(0), MEDIUM,
    "The maximum streams.assignment.interval.ms of a group.")
_define("group.streams.initial.rebalance.delay.ms", INT, 3000, at_least(0), MEDIUM,
    "How long an empty group waits for more members before its first assignment.")
_define("group.streams.num.standby.replicas", INT, 0, at_least(0), MEDIUM,
    "The number of standby replicas of a task's state.")
_define("group.streams.max.standby.replicas", INT, 2, at_least(0), MEDIUM,
    "The maximum streams.num.standby.replicas of a group.")
_define("group.streams.max.size", INT, MAX_INT, at_least(1), MEDIUM,
    "The maximum number of members of a streams group.")

# fmt: on
