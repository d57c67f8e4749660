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

# Listeners.
_define("listeners", LIST, "PLAINTEXT://:9092", distinct(empty=False, null=False), HIGH,
    "The addresses to listen on, as a comma-separated list of NAME://host:port. No host: all interfaces. Port 0: any "
    "free port.")
_define("advertised.listeners", LIST, None, distinct(empty=False, null=True), HIGH,
    "The addresses that clients and other nodes use to connect, where they differ from listeners: behind NAT, in a "
    "container, or with a host name.")
_define("listener.security.protocol.map", STRING,
    "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL", None, LOW,
    "The security protocol of each listener name, as NAME:PROTOCOL pairs. Not set: controller listeners use PLAINTEXT.")
_define("controller.listener.names", LIST, NO_DEFAULT, distinct(empty=False, null=False), HIGH,
    "The names of the controller's listeners. A node that is only a broker uses the first to connect to the "
    "controller. They are not advertised to clients.")
_define("early.start.listeners", LIST, None, distinct(empty=True, null=True), HIGH,
    "Listeners that start before the authorizer is ready, because the authorizer needs them. Not set: the "
    "controller's listeners.")
_define("inter.broker.listener.name", STRING, None, None, MEDIUM,
    "The listener for connections between brokers. Not set: security.inter.broker.protocol decides.")
_define("security.inter.broker.protocol", STRING,
    "PLAINTEXT", one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), MEDIUM,
    "The security protocol between brokers; the listener has the same name. Set either this or "
    "inter.broker.listener.name.")

# Sockets.
_define("socket.send.buffer.bytes", INT, 102_400, None, HIGH,
    "The size of the send buffer of a connection; -1 uses the operating system's default. Not set: 262144.")
_define("socket.receive.buffer.bytes", INT, 102_400, None, HIGH,
    "The size of the receive buffer of a connection. -1 or not set: the operating system's default.")
_define("socket.request.max.bytes", INT, 104_857_600, at_least(1), HIGH,
    "The maximum size of a request. A connection that announces a larger one is closed.")
_define("socket.listen.backlog.size", INT, 50, at_least(1), MEDIUM,
    "The maximum number of connections that wait to be accepted. The operating system has a limit of its own.")
_define("socket.connection.setup.timeout.ms", LONG, 10_000, None, MEDIUM,
    "How long to wait for a connection to another node. The time grows with each consecutive failure.")
_define("socket.connection.setup.timeout.max.ms", LONG, 30_000, None, MEDIUM,
    "The maximum that the connection setup timeout grows to.")

# Limits on connections.
_define("max.connections.per.ip", INT, MAX_INT, at_least(0), MEDIUM,
    "The maximum number of connections from one IP address. 0 is allowed only with max.connections.per.ip.overrides.")
_define("max.connections.per.ip.overrides", STRING, "", None, MEDIUM,
    "Limits for individual addresses or host names, for example host1:100,127.0.0.1:200.")
_define("max.connections", INT, MAX_INT, at_least(0), MEDIUM,
    "The maximum number of connections of the broker, or of one listener with the prefix listener.name.<name>. The "
    "inter-broker listener can always accept connections.")
_define("max.connection.creation.rate", INT, MAX_INT, at_least(0), MEDIUM,
    "The maximum number of new connections per second of the broker, or of one listener with its prefix.")
_define("connections.max.idle.ms", LONG, 600_000, None, MEDIUM,
    "A connection that is idle for this long is closed; a negative value disables it.")
_define("connection.failed.authentication.delay.ms", INT, 100, at_least(0), LOW,
    "How long the response to a failed authentication is delayed, to slow down password guessing.")

# Request queue.
_define("num.network.threads", INT, HandOff.default().default_network_threads, at_least(1), HIGH,
    "The number of threads per listener that read requests and write responses. Under the global interpreter lock one "
    "thread does as much as several.")
_define("queued.max.requests", INT, 500, at_least(1), HIGH,
    "The maximum number of requests that wait for a handler. When it is reached, network threads stop reading.")
_define("queued.max.request.bytes", LONG, -1, None, MEDIUM,
    "The maximum number of bytes of requests in memory. When it is reached, network threads stop reading; -1 for no "
    "limit.")

# fmt: on
