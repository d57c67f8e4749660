"""Settings that Apache Kafka does not have. Their names begin with ``barnabas.``"""

from __future__ import annotations

from typing import Final

from barnabas.broker.config.terms import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    MEDIUM,
    NON_EMPTY,
    PASSWORD,
    PATTERNS,
    STRING,
    at_least,
    between,
    distinct,
    one_of,
)
from barnabas.common.config_def import ConfigDef

HAND_OFF_AUTO: Final = "auto"
ADVERTISE_AUTO: Final = "auto"
ADVERTISE_ALWAYS: Final = "always"
ADVERTISE_NEVER: Final = "never"

BARNABAS_CONFIG_DEF: Final = (
    ConfigDef()
    .define(
        "barnabas.request.handoff",
        STRING,
        HAND_OFF_AUTO,
        one_of(HAND_OFF_AUTO, "queue", "direct"),
        MEDIUM,
        "How a request gets from a network thread to its handler. queue: through the request queue, as in Apache "
        "Kafka. direct: the network thread runs inline handlers itself. auto: whichever is faster on this "
        "interpreter.",
    )
    .define(
        "barnabas.local.socket.enable",
        BOOLEAN,
        True,
        None,
        MEDIUM,
        "Whether Barnabas clients on this machine may switch from TCP to a Unix domain socket, which costs less CPU. "
        "Applies to PLAINTEXT listeners on Linux.",
    )
    .define(
        "barnabas.http.listener",
        STRING,
        None,
        NON_EMPTY,
        MEDIUM,
        "The address of the HTTP server for /metrics and /health, as host:port. Not set: no HTTP server. Port 0: any "
        "free port.",
    )
    .define(
        "barnabas.http.hosts",
        LIST,
        "",
        distinct(empty=True, null=False),
        MEDIUM,
        "Additional names that HTTP clients may use in the Host header, or * for any name. IP addresses, localhost, "
        "the name of this machine and the hosts of its listeners are always allowed. Requests with another name are "
        "refused with status 421, because a web page could resolve its own name to this machine (DNS rebinding).",
    )
    .define(
        "barnabas.metrics.include",
        LIST,
        ".*",
        PATTERNS,
        MEDIUM,
        "Regular expressions for the names of the metrics that /metrics shows and that are exported. One of them must "
        "match the whole name, as Prometheus shows it.",
    )
    .define(
        "barnabas.metrics.exclude",
        LIST,
        "",
        PATTERNS,
        MEDIUM,
        "Regular expressions for the names of metrics that are left out, even if barnabas.metrics.include matches.",
    )
    .define(
        "barnabas.metrics.topics.include",
        LIST,
        ".*",
        PATTERNS,
        MEDIUM,
        "Regular expressions for the topics whose partitions have metrics of their own: sizes, offsets, replicas and "
        "the lag of groups. Metrics of a topic as a whole, such as its bytes in, are always there.",
    )
    .define(
        "barnabas.metrics.topics.exclude",
        LIST,
        "",
        PATTERNS,
        MEDIUM,
        "Regular expressions for topics whose partitions have no metrics, even if barnabas.metrics.topics.include "
        "matches.",
    )
    .define(
        "barnabas.metrics.groups.include",
        LIST,
        ".*",
        PATTERNS,
        MEDIUM,
        "Regular expressions for the groups whose members, offsets and lag are shown.",
    )
    .define(
        "barnabas.metrics.groups.exclude",
        LIST,
        "",
        PATTERNS,
        MEDIUM,
        "Regular expressions for groups that are left out, even if barnabas.metrics.groups.include matches.",
    )
    .define(
        "barnabas.otlp.endpoint",
        STRING,
        None,
        NON_EMPTY,
        MEDIUM,
        "The address of an OpenTelemetry collector that receives the metrics of this broker and traces of sampled "
        "requests, by OTLP over HTTP: http://127.0.0.1:4318. /v1/metrics and /v1/traces are appended. Not set: nothing "
        "is exported.",
    )
    .define(
        "barnabas.otlp.headers",
        PASSWORD,
        None,
        None,
        MEDIUM,
        "Additional headers of OTLP requests, such as a token for authentication: name=value, separated by commas.",
    )
    .define(
        "barnabas.otlp.metrics.interval.ms",
        INT,
        60_000,
        at_least(0),
        MEDIUM,
        "How often metrics are exported by OTLP; 0 for never. barnabas.metrics.* select what is exported.",
    )
    .define(
        "barnabas.otlp.traces.enable",
        BOOLEAN,
        True,
        None,
        MEDIUM,
        "Whether the requests that barnabas.request.log.sample.rate selects are also exported by OTLP, as traces.",
    )
    .define(
        "barnabas.telemetry.exporters",
        LIST,
        "",
        distinct(empty=True, null=False),
        MEDIUM,
        "Classes that receive the metrics of clients, in addition to the topic __client_telemetry, which always does.",
    )
    .define(
        "barnabas.telemetry.advertise",
        STRING,
        ADVERTISE_AUTO,
        one_of(ADVERTISE_AUTO, ADVERTISE_ALWAYS, ADVERTISE_NEVER),
        MEDIUM,
        "Whether ApiVersions lists GetTelemetrySubscriptions and PushTelemetry, the requests with which clients push "
        "their metrics. auto: to clients that connect while a client-metrics subscription exists. always: to all "
        "clients. never: to none, and the broker refuses these requests.",
    )
    .define(
        "barnabas.telemetry.topics.num.partitions",
        INT,
        1,
        at_least(1),
        MEDIUM,
        "The number of partitions that __client_telemetry, __request_log and __quota_usage are created with. A broker "
        "writes to the partitions that it leads, so use at least one partition per broker.",
    )
    .define(
        "barnabas.telemetry.topics.retention.ms",
        LONG,
        7 * 24 * 60 * 60 * 1000,
        at_least(-1),
        MEDIUM,
        "retention.ms that __client_telemetry, __request_log and __quota_usage are created with; -1 for no limit.",
    )
    .define(
        "barnabas.telemetry.topics.retention.bytes",
        LONG,
        1024 * 1024 * 1024,
        at_least(-1),
        MEDIUM,
        "retention.bytes that __client_telemetry, __request_log and __quota_usage are created with; -1 for no limit.",
    )
    .define(
        "barnabas.request.log.sample.rate",
        DOUBLE,
        0.0,
        between(0, 1),
        MEDIUM,
        "The fraction of requests that the broker writes to __request_log, one record each: 0.01 for one in a "
        "hundred, 0 for none.",
    )
    .define(
        "barnabas.quota.usage.interval.ms",
        INT,
        10_000,
        at_least(0),
        MEDIUM,
        "How often the broker writes to __quota_usage how much of each quota its clients have used; 0 disables it. "
        "Nothing is written while no quota exists.",
    )
)
