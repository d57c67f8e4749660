"""The settings of remote (tiered) storage."""

from __future__ import annotations

from typing import Final

from barnabas.broker.config.terms import (
    BOOLEAN,
    DOUBLE,
    INT,
    LONG,
    LOW,
    MAX_LONG,
    MEDIUM,
    NON_EMPTY,
    STRING,
    at_least,
    between,
)
from barnabas.common.config_def import ConfigDef

REMOTE_LOG_CONFIG_DEF: Final = ConfigDef()
_define: Final = REMOTE_LOG_CONFIG_DEF.define

# fmt: off

_define("remote.log.storage.system.enable", BOOLEAN, False, None, MEDIUM,
    "Whether tiered storage is enabled on this broker.")
_define("remote.log.storage.manager.class.name", STRING, None, NON_EMPTY, MEDIUM,
    "The class that copies segments to remote storage and reads them.")
_define("remote.log.storage.manager.class.path", STRING, None, None, MEDIUM,
    "The class path of the remote storage manager.")
_define("remote.log.storage.manager.impl.prefix", STRING, "rsm.config.", NON_EMPTY, MEDIUM,
    "The prefix of the settings that are passed to the remote storage manager.")
_define("remote.log.metadata.manager.class.name", STRING,
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager", NON_EMPTY, MEDIUM,
    "The class that stores the metadata of remote segments.")
_define("remote.log.metadata.manager.class.path", STRING, None, None, MEDIUM,
    "The class path of the remote log metadata manager.")
_define("remote.log.metadata.manager.impl.prefix", STRING, "rlmm.config.", NON_EMPTY, MEDIUM,
    "The prefix of the settings that are passed to the remote log metadata manager.")
_define("remote.log.metadata.manager.listener.name", STRING, None, NON_EMPTY, MEDIUM,
    "The listener through which the remote log metadata manager connects to brokers.")
_define("remote.log.metadata.custom.metadata.max.bytes", INT, 128, at_least(0), LOW,
    "The maximum size of the custom metadata that a remote storage manager may add to a segment's metadata.")
_define("remote.log.index.file.cache.total.size.bytes", LONG, 1_073_741_824, at_least(1), LOW,
    "The maximum disk space for the cache of indexes from remote storage.")
_define("remote.log.index.file.cache.ttl.ms", LONG, 900_000, at_least(-1), LOW,
    "How long an index stays in that cache after its last use.", internal=True)
_define("remote.log.manager.thread.pool.size", INT, 2, at_least(1), MEDIUM,
    "The number of threads for remote log tasks that have no thread pool of their own.")
_define("remote.log.manager.copier.thread.pool.size", INT, 10, at_least(1), MEDIUM,
    "The number of threads that copy segments to remote storage.")
_define("remote.log.manager.expiration.thread.pool.size", INT, 10, at_least(1), MEDIUM,
    "The number of threads that delete expired segments from remote storage.")
_define("remote.log.manager.follower.thread.pool.size", INT, 2, at_least(1), MEDIUM,
    "The number of threads that track, for follower partitions, what the leader has copied.")
_define("remote.log.manager.task.interval.ms", LONG, 30_000, at_least(1), LOW,
    "How often the remote log manager looks for segments to copy or delete.")
_define("remote.log.manager.task.retry.backoff.ms", LONG, 500, at_least(1), LOW,
    "How long to wait before a failed task is retried.", internal=True)
_define("remote.log.manager.task.retry.backoff.max.ms", LONG, 30_000, at_least(1), LOW,
    "The maximum that the retry backoff grows to.", internal=True)
_define("remote.log.manager.task.retry.jitter", DOUBLE, 0.2, between(0, 0.5), LOW,
    "The fraction by which the retry backoff varies at random.", internal=True)
_define("remote.log.manager.copy.max.bytes.per.second", LONG, MAX_LONG, at_least(1), MEDIUM,
    "The maximum number of bytes per second that are copied to remote storage.")
_define("remote.log.manager.copy.quota.window.num", INT, 11, at_least(1), MEDIUM,
    "The number of sample windows for the copy quota.")
_define("remote.log.manager.copy.quota.window.size.seconds", INT, 1, at_least(1), MEDIUM,
    "The length of a sample window for the copy quota.")
_define("remote.log.manager.fetch.max.bytes.per.second", LONG, MAX_LONG, at_least(1), MEDIUM,
    "The maximum number of bytes per second that are read from remote storage.")
_define("remote.log.manager.fetch.quota.window.num", INT, 11, at_least(1), MEDIUM,
    "The number of sample windows for the fetch quota.")
_define("remote.log.manager.fetch.quota.window.size.seconds", INT, 1, at_least(1), MEDIUM,
    "The length of a sample window for the fetch quota.")
_define("remote.log.reader.threads", INT, 10, at_least(1), MEDIUM,
    "The number of threads that read from remote storage for consumers.")
_define("remote.log.reader.max.pending.tasks", INT, 100, at_least(1), MEDIUM,
    "The maximum number of reads from remote storage that may wait for a thread.")
_define("remote.fetch.max.wait.ms", INT, 500, at_least(1), MEDIUM, "How long a fetch may wait for remote storage.")
_define("remote.list.offsets.request.timeout.ms", LONG, 30_000, at_least(1), MEDIUM,
    "How long a ListOffsets request may wait for remote storage.")

# fmt: on
