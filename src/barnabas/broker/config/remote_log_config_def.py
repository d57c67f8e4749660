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

_define("remote.log.storage.system.enable", BOOLEAN, False, None, MEDIUM, "Whether this broker has remote storage.")
_define("remote.log.storage.manager.class.name", STRING, None, NON_EMPTY, MEDIUM,
    "The class that copies segments and reads them.")
_define("remote.log.storage.manager.class.path", STRING, None, None, MEDIUM, "Where that class is found.")
_define("remote.log.storage.manager.impl.prefix", STRING, "rsm.config.", NON_EMPTY, MEDIUM,
    "The prefix of the settings that are passed on to it.")
_define("remote.log.metadata.manager.class.name", STRING,
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager", NON_EMPTY, MEDIUM,
    "The class that knows which segments are where.")
_define("remote.log.metadata.manager.class.path", STRING, None, None, MEDIUM, "Where that class is found.")
_define("remote.log.metadata.manager.impl.prefix", STRING, "rlmm.config.", NON_EMPTY, MEDIUM,
    "The prefix of the settings that are passed on to it.")
_define("remote.log.metadata.manager.listener.name", STRING, None, NON_EMPTY, MEDIUM,
    "The listener that it uses to reach brokers.")
_define("remote.log.metadata.custom.metadata.max.bytes", INT, 128, at_least(0), LOW,
    "The most that a storage manager may add to the metadata of a segment.")
_define("remote.log.index.file.cache.total.size.bytes", LONG, 1_073_741_824, at_least(1), LOW,
    "How much disk is used for indexes that were read from remote storage.")
_define("remote.log.index.file.cache.ttl.ms", LONG, 900_000, at_least(-1), LOW,
    "How long such an index is kept after its last use.", internal=True)
_define("remote.log.manager.thread.pool.size", INT, 2, at_least(1), MEDIUM,
    "Threads of the remote log manager that no other setting is about.")
_define("remote.log.manager.copier.thread.pool.size", INT, 10, at_least(1), MEDIUM,
    "Threads that copy segments to remote storage.")
_define("remote.log.manager.expiration.thread.pool.size", INT, 10, at_least(1), MEDIUM,
    "Threads that delete what has expired there.")
_define("remote.log.manager.follower.thread.pool.size", INT, 2, at_least(1), MEDIUM,
    "Threads that follow what leaders have copied.")
_define("remote.log.manager.task.interval.ms", LONG, 30_000, at_least(1), LOW,
    "How often there is a look for segments to copy or delete.")
_define("remote.log.manager.task.retry.backoff.ms", LONG, 500, at_least(1), LOW,
    "How long to wait before a failed task is repeated.", internal=True)
_define("remote.log.manager.task.retry.backoff.max.ms", LONG, 30_000, at_least(1), LOW,
    "What that time grows to.", internal=True)
_define("remote.log.manager.task.retry.jitter", DOUBLE, 0.2, between(0, 0.5), LOW,
    "The share by which that time varies at random.", internal=True)
_define("remote.log.manager.copy.max.bytes.per.second", LONG, MAX_LONG, at_least(1), MEDIUM,
    "How many bytes per second are copied to remote storage.")
_define("remote.log.manager.copy.quota.window.num", INT, 11, at_least(1), MEDIUM,
    "How many windows that rate is taken over.")
_define("remote.log.manager.copy.quota.window.size.seconds", INT, 1, at_least(1), MEDIUM,
    "How long such a window is.")
_define("remote.log.manager.fetch.max.bytes.per.second", LONG, MAX_LONG, at_least(1), MEDIUM,
    "How many bytes per second are read from remote storage.")
_define("remote.log.manager.fetch.quota.window.num", INT, 11, at_least(1), MEDIUM,
    "How many windows that rate is taken over.")
_define("remote.log.manager.fetch.quota.window.size.seconds", INT, 1, at_least(1), MEDIUM,
    "How long such a window is.")
_define("remote.log.reader.threads", INT, 10, at_least(1), MEDIUM,
    "Threads that read from remote storage for consumers.")
_define("remote.log.reader.max.pending.tasks", INT, 100, at_least(1), MEDIUM, "How many such reads may wait.")
_define("remote.fetch.max.wait.ms", INT, 500, at_least(1), MEDIUM, "How long a fetch may wait for remote storage.")
_define("remote.list.offsets.request.timeout.ms", LONG, 30_000, at_least(1), MEDIUM,
    "How long a ListOffsets may wait for remote storage.")

# fmt: on
