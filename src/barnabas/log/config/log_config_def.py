"""The settings of a topic: names, types, defaults and bounds of Kafka 4.4.

What they lead to is `barnabas.log.config.log_config`; what a broker's own settings make of the defaults is
`barnabas.log.config.server_log_config`.
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
    "The size at which a segment is rolled. Deletion and compaction work on whole segments, so larger segments mean "
    "fewer files and coarser control.",
)  # fmt: skip
_define(
    "segment.ms", Type.LONG, 7 * _DAY, Range.at_least(1), _MEDIUM,
    "The age at which a segment is rolled even if it is not full, so that its records can be deleted or compacted.",
)  # fmt: skip
_define(
    "segment.jitter.ms", Type.LONG, 0, Range.at_least(0), _MEDIUM,
    "The maximum random time by which a segment is rolled earlier, so that not all partitions roll at once.",
)  # fmt: skip
_define(
    "segment.index.bytes", Type.INT, 10 * _MIB, Range.at_least(4), _MEDIUM,
    "The size to which the file of a segment's offset index is preallocated. The unused part is released when the "
    "segment rolls.",
)  # fmt: skip
_define(
    "internal.segment.bytes", Type.INT, None, None, _MEDIUM,
    "Overrides segment.bytes without its lower bound. For tests.", internal=True,
)  # fmt: skip
_define(
    "index.interval.bytes", Type.INT, 4096, Range.at_least(0), _MEDIUM,
    "The number of bytes of records per index entry. A smaller value finds positions faster and makes larger indexes.",
)  # fmt: skip
_define(
    "preallocate", Type.BOOLEAN, False, None, _MEDIUM,
    "Whether the file of a new segment is allocated at its full size.",
)  # fmt: skip
_define(
    "file.delete.delay.ms", Type.LONG, _MINUTE, Range.at_least(0), _MEDIUM,
    "How long the files of a deleted segment stay on disk, renamed, for readers that still use them.",
)  # fmt: skip

# Flushing.
_define(
    "flush.messages", Type.LONG, LONGEST, Range.at_least(1), _MEDIUM,
    "The number of records after which the log is flushed to disk. Leave the default: replication provides "
    "durability, and the operating system flushes more efficiently in the background.",
)  # fmt: skip
_define(
    "flush.ms", Type.LONG, LONGEST, Range.at_least(0), _MEDIUM,
    "The time after which the log is flushed to disk. Leave the default, as for flush.messages.",
)  # fmt: skip

# Retention and compaction.
_define(
    "cleanup.policy", Type.LIST, CLEANUP_POLICY_DELETE, CLEANUP_POLICIES, _MEDIUM,
    "What happens to old segments. delete removes them by age and size; compact keeps the latest record of each key; "
    "both can be combined. An empty list keeps everything.",
)  # fmt: skip
_define(
    "retention.ms", Type.LONG, 7 * _DAY, Range.at_least(-1), _MEDIUM,
    "The minimum time that records are kept under the delete policy, which is the time that consumers have to read "
    "them; -1 for no limit.",
)  # fmt: skip
_define(
    "retention.bytes", Type.LONG, -1, None, _MEDIUM,
    "The maximum size of a partition under the delete policy before its oldest segments are deleted; -1 for no limit.",
)  # fmt: skip
_define(
    "delete.retention.ms", Type.LONG, _DAY, Range.at_least(0), _MEDIUM,
    "How long compaction keeps tombstones. A consumer that starts at the beginning must reach the end within this "
    "time to see every deletion.",
)  # fmt: skip
_define(
    "min.compaction.lag.ms", Type.LONG, 0, Range.at_least(0), _MEDIUM,
    "The minimum time that a record remains uncompacted.",
)  # fmt: skip
_define(
    "max.compaction.lag.ms", Type.LONG, LONGEST, Range.at_least(1), _MEDIUM,
    "The maximum time that a record remains uncompacted, whatever the dirty ratio is.",
)  # fmt: skip
_define(
    "min.cleanable.dirty.ratio", Type.DOUBLE, 0.5, Range.between(0, 1), _MEDIUM,
    "The fraction of a log that must be dirty before the cleaner compacts it. A higher value wastes more space on "
    "superseded records; a lower value costs more cleaning.",
)  # fmt: skip

# What is accepted from producers.
_define(
    "max.message.bytes", Type.INT, _MIB + 12, Range.at_least(0), _MEDIUM,
    "The maximum size of a record batch after compression. Consumers and followers can fetch a batch that is larger "
    "than their own limits.",
)  # fmt: skip
_define(
    "max.decompressed.message.bytes", Type.INT, MAX_ARRAY_LENGTH, Range.at_least(0), _MEDIUM,
    "The maximum size of a single record after decompression, wherever the broker has to decompress a batch. It "
    "protects against small requests that decompress to huge ones.",
)  # fmt: skip
_define(
    "message.timestamp.type", Type.STRING, "CreateTime", TIMESTAMP_TYPES, _MEDIUM,
    "Whether timestamps come from the producer (CreateTime) or from the broker (LogAppendTime).",
)  # fmt: skip
_define(
    "message.timestamp.before.max.ms", Type.LONG, LONGEST, Range.at_least(0), _MEDIUM,
    "How far a record's timestamp may be before the broker's clock. Older records are rejected. Not used with "
    "LogAppendTime.",
)  # fmt: skip
_define(
    "message.timestamp.after.max.ms", Type.LONG, _HOUR, Range.at_least(0), _MEDIUM,
    "How far a record's timestamp may be after the broker's clock. A timestamp in the future would prevent the "
    "deletion of its segment. Not used with LogAppendTime.",
)  # fmt: skip
_define(
    "compression.type", Type.STRING, "producer", COMPRESSION_TYPES, _MEDIUM,
    "The codec of stored batches: producer keeps the producer's codec, uncompressed stores them uncompressed, and the "
    "name of a codec recompresses them.",
)  # fmt: skip
_define(
    "compression.gzip.level", Type.INT, -1, GZIP_LEVEL, _MEDIUM,
    "The compression level if compression.type is gzip; -1 for the codec's default.",
)  # fmt: skip
_define(
    "compression.lz4.level", Type.INT, 9, LZ4_LEVEL, _MEDIUM,
    "The compression level if compression.type is lz4.",
)  # fmt: skip
_define(
    "compression.zstd.level", Type.INT, 3, ZSTD_LEVEL, _MEDIUM,
    "The compression level if compression.type is zstd. Negative levels are faster and compress less.",
)  # fmt: skip

# Replication.
_define(
    "min.insync.replicas", Type.INT, 1, Range.at_least(1), _MEDIUM,
    "The minimum number of replicas in the ISR, including the leader, for a write with acks=all to be accepted.",
)  # fmt: skip
_define(
    "unclean.leader.election.enable", Type.BOOLEAN, False, None, _MEDIUM,
    "Whether a replica outside the ISR may become leader when no other is available. The partition becomes available "
    "again, but records that this replica lacks are lost.",
)  # fmt: skip
_define(
    "leader.replication.throttled.replicas", Type.LIST, "", THROTTLED_REPLICAS, _MEDIUM,
    "The replicas whose replication is throttled on the leader, as partition:broker pairs; * for all.",
)  # fmt: skip
_define(
    "follower.replication.throttled.replicas", Type.LIST, "", THROTTLED_REPLICAS, _MEDIUM,
    "The replicas whose replication is throttled on the follower, as partition:broker pairs; * for all.",
)  # fmt: skip

# Remote (tiered) storage.
_define(
    "remote.storage.enable", Type.BOOLEAN, False, None, _MEDIUM,
    "Whether closed segments are copied to remote storage. It requires a broker with tiered storage, and a topic that "
    "is not compacted.",
)  # fmt: skip
_define(
    "local.retention.ms", Type.LONG, LOCAL_RETENTION_AS_TOTAL, Range.at_least(LOCAL_RETENTION_AS_TOTAL), _MEDIUM,
    "How long a segment stays on local disk after it was copied to remote storage. -2 uses retention.ms, which is "
    "also the maximum.",
)  # fmt: skip
_define(
    "local.retention.bytes", Type.LONG, LOCAL_RETENTION_AS_TOTAL, Range.at_least(LOCAL_RETENTION_AS_TOTAL), _MEDIUM,
    "How many bytes stay on local disk after they were copied to remote storage. -2 uses retention.bytes, which is "
    "also the maximum.",
)  # fmt: skip
_define(
    "remote.log.copy.disable", Type.BOOLEAN, False, None, _MEDIUM,
    "Whether copying to remote storage stops for this topic. Segments that were copied stay readable until they "
    "expire.",
)  # fmt: skip
_define(
    "remote.copy.lag.ms", Type.LONG, 0, Range.at_least(-1), _MEDIUM,
    "The age of a closed segment's newest record at which the segment may be copied. 0 copies immediately, -1 waits "
    "as long as local retention allows. A segment is copied if this check or that of remote.copy.lag.bytes passes.",
)  # fmt: skip
_define(
    "remote.copy.lag.bytes", Type.LONG, -1, Range.at_least(-1), _MEDIUM,
    "How many newer bytes must follow a segment before it may be copied. 0 copies immediately, -1 waits as long as "
    "local retention allows. A segment is copied if this check or that of remote.copy.lag.ms passes.",
)  # fmt: skip
_define(
    "remote.log.delete.on.disable", Type.BOOLEAN, False, None, _MEDIUM,
    "Whether remote data is deleted when remote storage is disabled for the topic. Without it, remote storage cannot "
    "be disabled.",
)  # fmt: skip

# Share groups.
_define(
    "errors.deadletterqueue.group.enable", Type.BOOLEAN, False, None, _MEDIUM,
    "Whether share groups may use this topic as a dead letter queue for undeliverable records.",
)  # fmt: skip
