"""The broker's settings about listeners, sockets and connections."""

from __future__ import annotations

from typing import Final

from barnabas.broker.config.terms import (
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MAX_INT,
    MEDIUM,
    STRING,
    at_least,
    distinct,
    one_of,
)
from barnabas.common.config_def import NO_DEFAULT, ConfigDef
from barnabas.server.data_plane import HandOff

NETWORK_CONFIG_DEF: Final = ConfigDef()
_define: Final = NETWORK_CONFIG_DEF.define

# fmt: off

# Where connections come in.
_define("listeners", LIST, "PLAINTEXT://:9092", distinct(empty=False, null=False), HIGH,
    "Where to listen, as NAME://host:port with commas between them. No host means all interfaces, port 0 any free"
    " port.")
_define("advertised.listeners", LIST, None, distinct(empty=False, null=True), HIGH,
    "The addresses that clients and other nodes are told, where they differ from listeners: behind NAT, in a "
    "container, or with a host name.")
_define("listener.security.protocol.map", STRING,
    "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL", None, LOW,
    "Which protocol each listener name stands for, as NAME:PROTOCOL pairs. Without it, controller listeners are "
    "PLAINTEXT.")
_define("controller.listener.names", LIST, NO_DEFAULT, distinct(empty=False, null=False), HIGH,
    "The listeners of the controller, or through which a broker that is none reaches it. They are not told to "
    "clients.")
_define("early.start.listeners", LIST, None, distinct(empty=True, null=True), HIGH,
    "Listeners that start before the authorizer is ready, because it needs them itself; if not set, those of the "
    "controller.")
_define("inter.broker.listener.name", STRING, None, None, MEDIUM,
    "The listener that brokers use among themselves. If not set, security.inter.broker.protocol decides.")
_define("security.inter.broker.protocol", STRING,
    "PLAINTEXT", one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), MEDIUM,
    "The protocol between brokers; its name is also the listener's. Only one of this and "
    "inter.broker.listener.name can be set.")

# Sockets.
_define("socket.send.buffer.bytes", INT, 102_400, None, HIGH,
    "The size of the send buffer of a connection; -1 leaves it to the system.")
_define("socket.receive.buffer.bytes", INT, 102_400, None, HIGH,
    "The size of the receive buffer of a connection; -1, or not to set it, leaves it to the system.")
_define("socket.request.max.bytes", INT, 104_857_600, at_least(1), HIGH,
    "The largest request that is read. A connection that announces a larger one is closed.")
_define("socket.listen.backlog.size", INT, 50, at_least(1), MEDIUM,
    "How many connections may wait to be accepted; the system has a limit of its own.")
_define("socket.connection.setup.timeout.ms", LONG, 10_000, None, MEDIUM,
    "How long to wait for a connection to another node at first; it grows with every failure in a row.")
_define("socket.connection.setup.timeout.max.ms", LONG, 30_000, None, MEDIUM, "What that time grows to.")

# Limits on connections.
_define("max.connections.per.ip", INT, MAX_INT, at_least(0), MEDIUM,
    "How many connections one address may have. 0 only together with overrides.")
_define("max.connections.per.ip.overrides", STRING, "", None, MEDIUM,
    "Other limits for some addresses or host names, as in host1:100,127.0.0.1:200.")
_define("max.connections", INT, MAX_INT, at_least(0), MEDIUM,
    "How many connections the broker takes, and each listener with the prefix listener.name.<name>. The one "
    "between brokers is never starved.")
_define("max.connection.creation.rate", INT, MAX_INT, at_least(0), MEDIUM,
    "How many new connections per second, of the broker or, with a prefix, of a listener.")
_define("connections.max.idle.ms", LONG, 600_000, None, MEDIUM,
    "A connection on which nothing happens for that long is closed; negative for never.")
_define("connection.failed.authentication.delay.ms", INT, 100, at_least(0), LOW,
    "How long the answer to a failed authentication is held back, to slow guessing down.")

# From the network to the handlers.
_define("num.network.threads", INT, HandOff.default().default_network_threads, at_least(1), HIGH,
    "Threads of each listener that read requests and write answers. With the interpreter's global lock one does "
    "as much as several.")
_define("queued.max.requests", INT, 500, at_least(1), HIGH,
    "How many requests may wait for a handler; then no more are read from the network.")
_define("queued.max.request.bytes", LONG, -1, None, MEDIUM,
    "How many bytes of requests may be in memory before no more are read; -1 for no limit.")

# fmt: on
