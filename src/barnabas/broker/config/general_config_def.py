"""The settings of a node as a whole: identity, threads, lifecycle, metrics."""

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

# Identity.
_define("process.roles", LIST, NO_DEFAULT, some_of("broker", "controller", empty=False), HIGH,
    "The roles of this node: broker, controller, or both.")
_define("node.id", INT, NO_DEFAULT, at_least(0), HIGH, "The ID of this node, unique in the cluster.")
_define("broker.id", INT, -1, None, HIGH, "The older name of node.id. If both are set they must be equal.")
_define("broker.rack", STRING, None, None, MEDIUM,
    "The rack of this broker. Replicas are spread over racks, and consumers can fetch from a replica in their own "
    "rack.")

# Threads and requests.
_define("num.io.threads", INT, 8, at_least(1), HIGH, "The number of threads that handle requests, including disk I/O.")
_define("background.threads", INT, 10, at_least(1), HIGH, "The number of threads for background tasks.")
_define("request.timeout.ms", INT, 30_000, None, HIGH,
    "How long this node waits for the response to a request that it sends, and how long it may delay a response of "
    "its own.")
_define("fetch.max.bytes", INT, 57_671_680, at_least(1024), MEDIUM,
    "The maximum number of bytes that one fetch returns, even if the client asks for more. The first batch is "
    "returned even if it is larger.")
_define("max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0), MEDIUM,
    "The maximum number of incremental fetch sessions. With a session, a client sends only the partitions that "
    "changed.")
_define("max.request.partition.size.limit", INT, 2000, at_least(1), MEDIUM,
    "The maximum number of partitions in one page of a response, for APIs with pagination.")
_define("delete.records.purgatory.purge.interval.requests", INT, 1, None, MEDIUM,
    "The number of completed requests after which they are purged from the DeleteRecords purgatory.")
_define("delete.topic.enable", BOOLEAN, True, None, HIGH, "Whether topics can be deleted.")

# Start and stop.
_define("initial.broker.registration.timeout.ms", INT, 60_000, None, MEDIUM,
    "How long the broker tries to register with the controller at startup before it stops.")
_define("broker.heartbeat.interval.ms", INT, 2000, None, MEDIUM,
    "How often the broker sends a heartbeat to the controller.")
_define("broker.session.timeout.ms", INT, 9000, None, MEDIUM,
    "How long a broker may go without a heartbeat before the controller fences it.")
_define("controlled.shutdown.enable", BOOLEAN, True, None, MEDIUM,
    "Whether a broker moves leadership of its partitions to other brokers before it stops.")
_define("server.max.startup.time.ms", LONG, MAX_LONG, at_least(0), MEDIUM,
    "How long startup may take. After that the process exits with an error.", internal=True)

# Metrics and telemetry.
_define("metric.reporters", LIST, "", distinct(empty=True, null=False), LOW,
    "Classes that are notified of all metrics.")
_define("metrics.num.samples", INT, 2, at_least(1), LOW,
    "The number of sample windows that a rate or an average covers.")
_define("metrics.sample.window.ms", LONG, 30_000, at_least(1), LOW, "The length of a sample window.")
_define("metrics.recording.level", STRING, "INFO", None, LOW, "The recording level of metrics: INFO, DEBUG or TRACE.")
_define("kafka.metrics.reporters", LIST, "", distinct(empty=True, null=False), LOW,
    "Classes that report the broker's Yammer metrics.")
_define("kafka.metrics.polling.interval.secs", INT, 10, at_least(1), LOW,
    "How often the classes in kafka.metrics.reporters report.")
_define("telemetry.max.bytes", INT, 1_048_576, at_least(1), LOW,
    "The maximum size of a telemetry message that the broker accepts from a client.")

# Plug-ins.
_define("authorizer.class.name", STRING, "", NON_NULL, LOW,
    "The class that authorizes operations. Empty: no authorization.")
_define("config.providers", LIST, "", distinct(empty=True, null=False), LOW,
    "Names of the config providers that resolve variables in values.")

# For development.
_define("unstable.api.versions.enable", BOOLEAN, False, None, HIGH,
    "Whether the node offers versions of APIs that are not final yet.", internal=True)
_define("unstable.feature.versions.enable", BOOLEAN, False, None, HIGH,
    "Whether the node accepts feature levels that are not final yet.", internal=True)

# fmt: on
