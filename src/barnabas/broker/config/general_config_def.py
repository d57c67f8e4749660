"""The settings of a node as a whole: who it is, its threads, its life, its metrics."""

from __future__ import annotations

from typing import Final

from barnabas.broker.config.terms import (
    BOOLEAN,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MAX_LONG,
    MEDIUM,
    NON_NULL,
    STRING,
    at_least,
    distinct,
    some_of,
)
from barnabas.common.config_def import NO_DEFAULT, ConfigDef

GENERAL_CONFIG_DEF: Final = ConfigDef()
_define: Final = GENERAL_CONFIG_DEF.define

# fmt: off

# Who it is.
_define("process.roles", LIST, NO_DEFAULT, some_of("broker", "controller", empty=False), HIGH,
    "What this node is: broker, controller, or both.")
_define("node.id", INT, NO_DEFAULT, at_least(0), HIGH, "The number of this node, unique in the cluster.")
_define("broker.id", INT, -1, None, HIGH, "The older name of node.id; if both are set they must agree.")
_define("broker.rack", STRING, None, None, MEDIUM,
    "Where this broker stands. Replicas are spread over racks, and consumers can read from their own.")

# Threads and requests.
_define("num.io.threads", INT, 8, at_least(1), HIGH, "Threads that handle requests, disk access included.")
_define("background.threads", INT, 10, at_least(1), HIGH, "Threads for what goes on in the background.")
_define("request.timeout.ms", INT, 30_000, None, HIGH,
    "How long a request that this node sends, or waits with, may take.")
_define("fetch.max.bytes", INT, 57_671_680, at_least(1024), MEDIUM,
    "The most bytes that one fetch returns, whatever the client asks for; a first batch that is larger goes out "
    "even so.")
_define("max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0), MEDIUM,
    "How many fetch sessions are kept, so that clients need not repeat what they fetch.")
_define("max.request.partition.size.limit", INT, 2000, at_least(1), MEDIUM,
    "The most partitions in one page of an answer, for requests that have pages.")
_define("delete.records.purgatory.purge.interval.requests", INT, 1, None, MEDIUM,
    "After how many finished requests the purgatory of DeleteRecords is cleared of them.")
_define("delete.topic.enable", BOOLEAN, True, None, HIGH, "Whether topics can be deleted.")

# Start and stop.
_define("initial.broker.registration.timeout.ms", INT, 60_000, None, MEDIUM,
    "If the controller has not taken the broker in within this time of its start, the broker stops.")
_define("broker.heartbeat.interval.ms", INT, 2000, None, MEDIUM,
    "How often a broker tells the controller that it lives.")
_define("broker.session.timeout.ms", INT, 9000, None, MEDIUM,
    "How long the controller believes in a broker that it does not hear of.")
_define("controlled.shutdown.enable", BOOLEAN, True, None, MEDIUM,
    "Whether a broker that stops first hands over the partitions it leads.")
_define("server.max.startup.time.ms", LONG, MAX_LONG, at_least(0), MEDIUM,
    "How long starting may take; then the process ends with an error.", internal=True)

# Metrics and telemetry.
_define("metric.reporters", LIST, "", distinct(empty=True, null=False), LOW, "Classes that are told of all metrics.")
_define("metrics.num.samples", INT, 2, at_least(1), LOW, "How many windows a rate or an average is taken over.")
_define("metrics.sample.window.ms", LONG, 30_000, at_least(1), LOW, "How long such a window is.")
_define("metrics.recording.level", STRING, "INFO", None, LOW, "Which metrics are recorded: INFO, DEBUG or TRACE.")
_define("kafka.metrics.reporters", LIST, "", distinct(empty=True, null=False), LOW,
    "Classes that report the metrics of the broker's own kind.")
_define("kafka.metrics.polling.interval.secs", INT, 10, at_least(1), LOW, "How often those report.")
_define("telemetry.max.bytes", INT, 1_048_576, at_least(1), LOW,
    "The largest telemetry message that is taken from a client.")

# What is plugged in.
_define("authorizer.class.name", STRING, "", NON_NULL, LOW,
    "The class that decides who may do what; empty for no checks at all.")
_define("config.providers", LIST, "", distinct(empty=True, null=False), LOW,
    "Names of providers that resolve variables inside of values.")

# For development.
_define("unstable.api.versions.enable", BOOLEAN, False, None, HIGH,
    "Whether versions of requests that are not final yet are offered.", internal=True)
_define("unstable.feature.versions.enable", BOOLEAN, False, None, HIGH,
    "Whether levels of features that are not final yet can be used.", internal=True)

# fmt: on
