"""The settings about replicas and the requests that wait for them."""

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
    "How many replicas a topic gets if whoever creates it does not say.")

# Replicas in sync.
_define("replica.lag.time.max.ms", LONG, 30_000, None, HIGH,
    "A follower that has not caught up for that long is not in sync any more.")
_define("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, None, HIGH,
    "How often high watermarks are written down.")
_define("replica.selector.class", STRING, None, None, MEDIUM,
    "Which replica a consumer is sent to; if not set, always the leader.")

# Followers.
_define("num.replica.fetchers", INT, 1, at_least(1), HIGH, "Threads that fetch from each other broker.")
_define("num.replica.alter.log.dirs.threads", INT, None, None, HIGH,
    "Threads that move replicas between log directories; one for each directory if not set.")
_define("replica.fetch.max.bytes", INT, 1_048_576, at_least(0), MEDIUM,
    "How many bytes of a partition a follower asks for; a first batch that is larger comes even so.")
_define("replica.fetch.response.max.bytes", INT, 10_485_760, at_least(0), MEDIUM,
    "How many bytes a follower asks for in one fetch.")
_define("replica.fetch.min.bytes", INT, 1, None, HIGH,
    "How many bytes a leader waits for, at most replica.fetch.wait.max.ms.")
_define("replica.fetch.wait.max.ms", INT, 500, None, HIGH,
    "How long a leader may wait for them. Less than replica.lag.time.max.ms, or quiet topics fall out of sync.")
_define("replica.fetch.backoff.ms", INT, 1000, at_least(0), MEDIUM,
    "How long a partition is left out after an error.")
_define("replica.socket.timeout.ms", INT, 30_000, None, HIGH, "How long a follower's request may take.")
_define("replica.socket.receive.buffer.bytes", INT, 65_536, None, HIGH,
    "The receive buffer of a follower's connections.")
_define("controller.socket.timeout.ms", INT, 30_000, None, MEDIUM, "How long a request to the controller may take.")

# Requests that wait.
_define("fetch.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM,
    "After how many finished fetches their purgatory is cleared of them.")
_define("producer.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM,
    "After how many finished produce requests their purgatory is cleared of them.")
_define("follower.fetch.last.tiered.offset.enable", BOOLEAN, False, None, MEDIUM,
    "Whether an empty follower starts at what is not in remote storage yet, and leaves out what is.")

# fmt: on
