"""The settings of a topic: names, types, defaults and bounds of Kafka 4.4.

What they lead to is `barnabas.log.log_config`; what a broker's own settings make of the defaults is
`barnabas.log.server_log_config`.
"""

from __future__ import annotations

import re
from typing import Final

from barnabas.common.config_def import (
    ConfigDef,
    ConfigError,
    Importance,
    LambdaValidator,
    Range,
    Type,
    ValidList,
    ValidString,
)

CLEANUP_POLICY_COMPACT: Final = "compact"
CLEANUP_POLICY_DELETE: Final = "delete"

LONGEST: Final = 2**63 - 1
"""Kafka's way to write "never" or "no limit" in a setting of 64 bits."""

MAX_ARRAY_LENGTH: Final = 2**31 - 9
"""The largest array that a Java virtual machine surely has room for: what a record may have by default."""

LOCAL_RETENTION_AS_TOTAL: Final = -2
"""``local.retention.*`` follows ``retention.*``."""

_MINUTE: Final = 60 * 1000
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_MIB: Final = 1024 * 1024

_REPLICA: Final = r"([0-9]+:[0-9]+)?"


def _check_throttled_replicas(name: str, value: object) -> None:
    assert isinstance(value, tuple)
    if value != ("*",) and not all(re.fullmatch(_REPLICA, item) for item in value):
        raise ConfigError.invalid(name, value, "it must be * or pairs like 0:101 (partition:broker), with commas")


THROTTLED_REPLICAS: Final = LambdaValidator(
    _check_throttled_replicas, "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
)


def _check_gzip_level(name: str, value: object) -> None:
    if value != -1:
        Range.between(1, 9).ensure_valid(name, value)


GZIP_LEVEL: Final = LambdaValidator(_check_gzip_level, "[1,...,9] or -1")
LZ4_LEVEL: Final = Range.between(1, 17)
ZSTD_LEVEL: Final = Range.between(-131072, 22)
COMPRESSION_TYPES: Final = ValidString.of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES: Final = ValidString.of("CreateTime", "LogAppendTime")
CLEANUP_POLICIES: Final = ValidList.of(CLEANUP_POLICY_COMPACT, CLEANUP_POLICY_DELETE)

_MEDIUM: Final = Importance.MEDIUM

LOG_CONFIG_DEF: Final = ConfigDef()
_define: Final = LOG_CONFIG_DEF.define

# Segments and their indexes.
_define(
    "segment.bytes", Type.INT, 1024 * _MIB, Range.at_least(_MIB), _MEDIUM,
    "The size at which a segment is closed and a new one begun. Deletion and compaction work on whole segments, so "
    "large ones mean fewer files and coarser control.",
)  # fmt: skip
_define(
    "segment.ms", Type.LONG, 7 * _DAY, Range.at_least(1), _MEDIUM,
    "The age at which a segment is closed even if it is not full, so that its records can be deleted or compacted.",
)  # fmt: skip
_define(
    "segment.jitter.ms", Type.LONG, 0, Range.at_least(0), _MEDIUM,
    "The most by which the age limit of a segment is shortened at random, so that not all partitions roll at once.",
)  # fmt: skip
_define(
    "segment.index.bytes", Type.INT, 10 * _MIB, Range.at_least(4), _MEDIUM,
    "The size of the file set aside for a segment's offset index; what is not used is given back when it rolls.",
)  # fmt: skip
_define(
    "internal.segment.bytes", Type.INT, None, None, _MEDIUM,
    "Overrides segment.bytes, with no lower bound: for tests.", internal=True,
)  # fmt: skip
_define(
    "index.interval.bytes", Type.INT, 4096, Range.at_least(0), _MEDIUM,
    "One index entry for about so many bytes of records. Smaller finds positions faster and makes larger indexes.",
)  # fmt: skip
_define(
    "preallocate", Type.BOOLEAN, False, None, _MEDIUM,
    "Whether a new segment's file gets its full size on disk at once.",
)  # fmt: skip
_define(
    "file.delete.delay.ms", Type.LONG, _MINUTE, Range.at_least(0), _MEDIUM,
    "How long a deleted segment stays on disk under another name, for readers that still have it open.",
)  # fmt: skip

# Flushing.
_define(
    "flush.messages", Type.LONG, LONGEST, Range.at_least(1), _MEDIUM,
    "After so many records the log is forced to disk. Best left alone: replication is what records survive by, and the "
    "operating system writes in the background more efficiently.",
)  # fmt: skip
_define(
    "flush.ms", Type.LONG, LONGEST, Range.at_least(0), _MEDIUM,
    "After so much time the log is forced to disk. The advice for flush.messages applies here too.",
)  # fmt: skip

# Retention and compaction.
_define(
    "cleanup.policy", Type.LIST, CLEANUP_POLICY_DELETE, CLEANUP_POLICIES, _MEDIUM,
    "What happens to old segments: delete drops them by age and size, compact keeps the latest record of each key, "
    "both together do both. An empty list keeps everything for ever.",
)  # fmt: skip
_define(
    "retention.ms", Type.LONG, 7 * _DAY, Range.at_least(-1), _MEDIUM,
    "How long records are kept at least under the delete policy, -1 for ever: the time that consumers have to read "
    "them.",
)  # fmt: skip
_define(
    "retention.bytes", Type.LONG, -1, None, _MEDIUM,
    "How large a partition may grow under the delete policy before its oldest segments go; -1 for no limit.",
)  # fmt: skip
_define(
    "delete.retention.ms", Type.LONG, _DAY, Range.at_least(0), _MEDIUM,
    "How long compaction keeps the marker of a deleted key. A consumer that starts at the beginning must get to the "
    "end within this time to be sure that it has seen every deletion.",
)  # fmt: skip
_define(
    "min.compaction.lag.ms", Type.LONG, 0, Range.at_least(0), _MEDIUM,
    "How long a record stays as it was written before compaction may remove it.",
)  # fmt: skip
_define(
    "max.compaction.lag.ms", Type.LONG, LONGEST, Range.at_least(1), _MEDIUM,
    "How long a record may wait for compaction at most, however little of the log is dirty.",
)  # fmt: skip
_define(
    "min.cleanable.dirty.ratio", Type.DOUBLE, 0.5, Range.between(0, 1), _MEDIUM,
    "The share of a log that must be uncompacted before the cleaner takes it up: the space that may be wasted on "
    "superseded records, against the work to remove them.",
)  # fmt: skip

# What is accepted from producers.
_define(
    "max.message.bytes", Type.INT, _MIB + 12, Range.at_least(0), _MEDIUM,
    "The largest record batch, after compression, that may be written. Consumers and followers fetch a batch that is "
    "larger than their own limits all the same.",
)  # fmt: skip
_define(
    "max.decompressed.message.bytes", Type.INT, MAX_ARRAY_LENGTH, Range.at_least(0), _MEDIUM,
    "The largest single record, after decompression, that is accepted wherever the broker has to unpack a compressed "
    "batch. A guard against small requests that unpack to something huge.",
)  # fmt: skip
_define(
    "message.timestamp.type", Type.STRING, "CreateTime", TIMESTAMP_TYPES, _MEDIUM,
    "Whose clock the timestamps come from: the producer's (CreateTime) or the broker's (LogAppendTime).",
)  # fmt: skip
_define(
    "message.timestamp.before.max.ms", Type.LONG, LONGEST, Range.at_least(0), _MEDIUM,
    "How far a record's timestamp may lie behind the broker's clock; older records are refused. Not used with "
    "LogAppendTime.",
)  # fmt: skip
_define(
    "message.timestamp.after.max.ms", Type.LONG, _HOUR, Range.at_least(0), _MEDIUM,
    "How far a record's timestamp may lie ahead of the broker's clock; one in the future would keep its segment from "
    "being deleted. Not used with LogAppendTime.",
)  # fmt: skip
_define(
    "compression.type", Type.STRING, "producer", COMPRESSION_TYPES, _MEDIUM,
    "How batches are stored: the way the producer compressed them (producer), or all with one codec, or uncompressed.",
)  # fmt: skip
_define(
    "compression.gzip.level", Type.INT, -1, GZIP_LEVEL, _MEDIUM,
    "The level if compression.type is gzip; -1 lets the codec choose.",
)  # fmt: skip
_define(
    "compression.lz4.level", Type.INT, 9, LZ4_LEVEL, _MEDIUM,
    "The level if compression.type is lz4.",
)  # fmt: skip
_define(
    "compression.zstd.level", Type.INT, 3, ZSTD_LEVEL, _MEDIUM,
    "The level if compression.type is zstd; below zero is faster and larger.",
)  # fmt: skip

# Replication.
_define(
    "min.insync.replicas", Type.INT, 1, Range.at_least(1), _MEDIUM,
    "How many replicas, the leader among them, must be in sync for a write with acks=all to be taken.",
)  # fmt: skip
_define(
    "unclean.leader.election.enable", Type.BOOLEAN, False, None, _MEDIUM,
    "Whether a replica that is not in sync may become leader when no other is left. It brings the partition back and "
    "loses the records which that replica lacks.",
)  # fmt: skip
_define(
    "leader.replication.throttled.replicas", Type.LIST, "", THROTTLED_REPLICAS, _MEDIUM,
    "The replicas whose reads by followers are throttled on the leader's side, as partition:broker pairs; * for all.",
)  # fmt: skip
_define(
    "follower.replication.throttled.replicas", Type.LIST, "", THROTTLED_REPLICAS, _MEDIUM,
    "The replicas that are throttled on the follower's side, as partition:broker pairs; * for all.",
)  # fmt: skip

# Remote (tiered) storage.
_define(
    "remote.storage.enable", Type.BOOLEAN, False, None, _MEDIUM,
    "Whether closed segments are copied to remote storage. Needs a broker that has it; not for compacted topics.",
)  # fmt: skip
_define(
    "local.retention.ms", Type.LONG, LOCAL_RETENTION_AS_TOTAL, Range.at_least(LOCAL_RETENTION_AS_TOTAL), _MEDIUM,
    "How long a segment stays on local disk once it is in remote storage. -2 means as long as retention.ms, which is "
    "also the most it can be.",
)  # fmt: skip
_define(
    "local.retention.bytes", Type.LONG, LOCAL_RETENTION_AS_TOTAL, Range.at_least(LOCAL_RETENTION_AS_TOTAL), _MEDIUM,
    "How many bytes stay on local disk once they are in remote storage. -2 means as many as retention.bytes, which is "
    "also the most it can be.",
)  # fmt: skip
_define(
    "remote.log.copy.disable", Type.BOOLEAN, False, None, _MEDIUM,
    "Whether a topic that has remote storage stops copying to it: what is there stays readable, and expires.",
)  # fmt: skip
_define(
    "remote.copy.lag.ms", Type.LONG, 0, Range.at_least(-1), _MEDIUM,
    "The age of a closed segment's newest record at which the segment may be copied. 0 copies at once, -1 waits as "
    "long as local retention allows. This check or the one of remote.copy.lag.bytes must be passed.",
)  # fmt: skip
_define(
    "remote.copy.lag.bytes", Type.LONG, -1, Range.at_least(-1), _MEDIUM,
    "How many newer bytes a segment must have after it before it may be copied. 0 copies at once, -1 waits as long as "
    "local retention allows. This check or the one of remote.copy.lag.ms must be passed.",
)  # fmt: skip
_define(
    "remote.log.delete.on.disable", Type.BOOLEAN, False, None, _MEDIUM,
    "Whether remote data is deleted when remote storage is switched off; without it that cannot be done.",
)  # fmt: skip

# Share groups.
_define(
    "errors.deadletterqueue.group.enable", Type.BOOLEAN, False, None, _MEDIUM,
    "Whether share groups may use this topic for the records that they could not deliver.",
)  # fmt: skip
