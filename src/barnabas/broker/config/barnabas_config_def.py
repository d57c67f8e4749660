"""Settings that Apache Kafka does not have. They all begin with ``barnabas.``"""

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
    STRING,
    at_least,
    between,
    distinct,
    one_of,
)
from barnabas.common.config_def import ConfigDef

HAND_OFF_AUTO: Final = "auto"

BARNABAS_CONFIG_DEF: Final = (
    ConfigDef()
    .define(
        "barnabas.request.handoff",
        STRING,
        HAND_OFF_AUTO,
        one_of(HAND_OFF_AUTO, "queue", "direct"),
        MEDIUM,
        "How a request gets from a network thread to a handler. queue: through the request queue, as in Apache Kafka. "
        "direct: short requests are handled by the network thread. auto: whichever is faster on this interpreter.",
    )
    .define(
        "barnabas.local.socket.enable",
        BOOLEAN,
        True,
        None,
        MEDIUM,
        "Whether clients of Barnabas that are on this machine may go on over a Unix domain socket, which costs less "
        "than TCP. For plaintext listeners, on Linux.",
    )
    .define(
        "barnabas.http.listener",
        STRING,
        None,
        NON_EMPTY,
        MEDIUM,
        "Where to serve /metrics and /health over HTTP, as host:port; nowhere if not set. Port 0 means any free one.",
    )
    .define(
        "barnabas.http.hosts",
        LIST,
        "",
        distinct(empty=True, null=False),
        MEDIUM,
        "Further names that HTTP clients may use in the Host header, or * for any. Addresses, localhost, this "
        "machine's name and the hosts of its listeners are always allowed; other names are refused with 421, because "
        "a web page could have its own name resolve to this machine (DNS rebinding).",
    )
    .define(
        "barnabas.telemetry.exporters",
        LIST,
        "",
        distinct(empty=True, null=False),
        MEDIUM,
        "Classes that are given the metrics of clients, besides the topic __client_telemetry that all metrics go to.",
    )
    .define(
        "barnabas.telemetry.topics.num.partitions",
        INT,
        1,
        at_least(1),
        MEDIUM,
        "The number of partitions of __client_telemetry, __request_log and __quota_usage when they are created. Each "
        "broker writes to those that it leads, so there should be at least one for each.",
    )
    .define(
        "barnabas.telemetry.topics.retention.ms",
        LONG,
        7 * 24 * 60 * 60 * 1000,
        at_least(-1),
        MEDIUM,
        "How long these topics keep their records, when they are created; -1 for ever.",
    )
    .define(
        "barnabas.telemetry.topics.retention.bytes",
        LONG,
        1024 * 1024 * 1024,
        at_least(-1),
        MEDIUM,
        "How much each partition of these topics keeps, when they are created; -1 without a limit.",
    )
    .define(
        "barnabas.request.log.sample.rate",
        DOUBLE,
        0.0,
        between(0, 1),
        MEDIUM,
        "Which part of all requests is written to __request_log, one by one: 0.01 for every hundredth, 0 for none.",
    )
    .define(
        "barnabas.quota.usage.interval.ms",
        INT,
        10_000,
        at_least(0),
        MEDIUM,
        "How often it is written to __quota_usage who has used how much of which quota; 0 for never. Nothing is "
        "written while there are no quotas.",
    )
)
