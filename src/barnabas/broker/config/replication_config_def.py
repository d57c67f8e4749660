"""The settings of replication and of the purgatories."""

from __future__ import annotations

from typing import Final

from barnabas.broker.config.terms import (
    BOOLEAN,
    HIGH,
    INT,
    LONG,
    MEDIUM,
    STRING,
    at_least,
)
from barnabas.common.config_def import ConfigDef

REPLICATION_CONFIG_DEF: Final = ConfigDef()
_define: Final = REPLICATION_CONFIG_DEF.define

# fmt: off

# Topics.
_define("default.replication.factor", INT, 1, None, MEDIUM,
    "The replication factor of a topic that is created without one.")

# ISR.
_define("replica.lag.time.max.ms", LONG, 30_000, None, HIGH,
    "How long a follower may lag behind the leader's log end before it is removed from the ISR.")
_define("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, None, HIGH,
    "How often high watermarks are written to the checkpoint file.")
_define("replica.selector.class", STRING, None, None, MEDIUM,
    "The class that selects the replica a consumer fetches from. Not set: always the leader.")

# Followers.
_define("num.replica.fetchers", INT, 1, at_least(1), HIGH, "The number of fetcher threads per source broker.")
_define("num.replica.alter.log.dirs.threads", INT, None, None, HIGH,
    "The number of threads that move replicas between log directories. Not set: one per log directory.")
_define("replica.fetch.max.bytes", INT, 1_048_576, at_least(0), MEDIUM,
    "How many bytes of a partition a follower fetches at once. The first batch is returned even if it is larger.")
_define("replica.fetch.response.max.bytes", INT, 10_485_760, at_least(0), MEDIUM,
    "The maximum size of the response to a follower's fetch.")
_define("replica.fetch.min.bytes", INT, 1, None, HIGH,
    "How many bytes a leader collects before it responds to a follower's fetch, for at most replica.fetch.wait.max.ms.")
_define("replica.fetch.wait.max.ms", INT, 500, None, HIGH,
    "How long a leader may wait for replica.fetch.min.bytes. It must be less than replica.lag.time.max.ms, or "
    "followers of idle topics leave the ISR.")
_define("replica.fetch.backoff.ms", INT, 1000, at_least(0), MEDIUM,
    "How long a follower does not fetch a partition after an error.")
_define("replica.socket.timeout.ms", INT, 30_000, None, HIGH, "How long a follower waits for a response.")
_define("replica.socket.receive.buffer.bytes", INT, 65_536, None, HIGH,
    "The size of the receive buffer of a follower's connections.")
_define("controller.socket.timeout.ms", INT, 30_000, None, MEDIUM, "How long to wait for a response of the controller.")

# Purgatories.
_define("fetch.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM,
    "The number of completed fetches after which they are purged from the purgatory.")
_define("producer.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM,
    "The number of completed produce requests after which they are purged from the purgatory.")
_define("follower.fetch.last.tiered.offset.enable", BOOLEAN, False, None, MEDIUM,
    "Whether an empty follower starts at the first offset that is not in remote storage, instead of copying the whole "
    "log.")

# fmt: on
