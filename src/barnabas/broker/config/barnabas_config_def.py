"""Settings that Apache Kafka does not have. They all begin with ``barnabas.``"""

from __future__ import annotations

from typing import Final

from barnabas.broker.config.terms import MEDIUM, NON_EMPTY, STRING, one_of
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
        "barnabas.http.listener",
        STRING,
        None,
        NON_EMPTY,
        MEDIUM,
        "Where to serve /metrics and /health over HTTP, as host:port; nowhere if not set. Port 0 means any free one.",
    )
)
