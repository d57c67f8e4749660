"""Explains connection failures in words that help.

The commonest mistakes in setting up a client are a wrong host name, a wrong port, and a listener that expects TLS. Each
has its own symptoms here and deserves its own message: most clients report the last two only as "disconnected".
"""

from __future__ import annotations

import errno
import struct

from barnabas.common.errors import AuthenticationError, Errors
from barnabas.network.client.host_resolver import UnknownHostError
from barnabas.network.client.node import Node
from barnabas.network.client.node_connection import ConnectionState
from barnabas.network.reactor.channel import ChannelState, InvalidReceiveError

FIRST_RESPONSE_LIMIT = 1 << 20
"""The largest response, in bytes, that a peer may send before it has shown that it speaks Kafka.

The list of all APIs takes about one kilobyte. Four letters of any other protocol, read as a length, exceed this limit,
so they are detected at once instead of waited for: "HTTP" means 1.2 gigabytes, a TLS alert 350 megabytes.
"""

_TLS_RECORDS = {0x14: "change", 0x15: "alert", 0x16: "handshake", 0x17: "data"}


def recognize(prefix: bytes) -> str | None:
    """Recognizes the peer's protocol from the four bytes in place of a length."""
    if prefix[0] in _TLS_RECORDS and prefix[1] == 3:
        return f"it responded with a TLS {_TLS_RECORDS[prefix[0]]} record; the listener expects TLS"
    if prefix == b"HTTP":
        return "it responded in HTTP; this is a web server, not a Kafka broker"
    if all(0x20 <= byte < 0x7F or byte in b"\r\n\t" for byte in prefix):
        return f"it responded with text that begins with {prefix.decode('ascii')!r}; this is not a Kafka broker"
    return None


def explain_connect_error(node: Node, error: Exception) -> str:
    """Explains why an attempt to connect failed."""
    where = f"{node.host}:{node.port}"
    if isinstance(error, UnknownHostError):
        return f"Cannot connect to {where}: {error}"
    if isinstance(error, ConnectionRefusedError):
        return f"Cannot connect to {where}: connection refused; nothing listens on that port"
    if isinstance(error, TimeoutError) or getattr(error, "errno", None) in {errno.EHOSTUNREACH, errno.ENETUNREACH}:
        return f"Cannot connect to {where}: the host cannot be reached ({error})"
    if isinstance(error, OverflowError):
        return f"Cannot connect to {where}: there is no such port"
    return f"Cannot connect to {where}: {error}"


def explain_setup_timeout(node: Node, limit_ms: int) -> str:
    """Explains a connect time-out, without even a refusal: a firewall, a wrong address, or a host that is down."""
    return f"Cannot connect to {node.host}:{node.port}: no connection within {limit_ms} ms; the host may be unreachable"


def explain_loss(
    node: Node, reached: ConnectionState, channel_state: ChannelState, error: Exception | None, max_size: int
) -> str:
    """Explains the loss of a connection that had reached ``reached``; ``error`` is the selector's error."""
    where = f"{node.host}:{node.port}"
    if isinstance(error, AuthenticationError):
        return f"Authentication with {where} failed: {error}"
    if channel_state is ChannelState.EXPIRED:
        return f"The connection to {where} was closed because nothing has used it for a while"
    if isinstance(error, InvalidReceiveError):
        return _explain_length(where, reached, error.size, max_size)
    if channel_state is ChannelState.NOT_CONNECTED:
        return explain_connect_error(node, ConnectionError("the connection was lost") if error is None else error)
    if channel_state is ChannelState.AUTHENTICATE:
        return (
            f"{where} closed the connection during authentication; the listener may expect another security protocol, "
            "or a firewall is in between"
        )
    if reached is not ConnectionState.READY:
        return (
            f"{where} closed the connection before it sent its API versions; the listener may expect TLS, or "
            "this is not a Kafka broker"
        )
    detail = "" if error is None or isinstance(error, EOFError) else f" ({error})"
    return f"{where} closed the connection{detail}"


def _explain_length(where: str, reached: ConnectionState, size: int, max_size: int) -> str:
    if reached is ConnectionState.READY:
        return f"{where} sent a response of {size} bytes; 0 to {max_size} are accepted"
    recognized = recognize(struct.pack(">i", size))
    if recognized is None:
        recognized = f"its response begins with bytes that stand for a length of {size}"
    return f"{where} does not speak Kafka's protocol: {recognized}"


def explain_broken_response(node: Node, reached: ConnectionState, error: Exception) -> str:
    """Explains a frame that is not the response to the next expected request."""
    doubt = "" if reached is ConnectionState.READY else "; it may not be a Kafka broker"
    return f"{node.host}:{node.port} sent an invalid response: {error}{doubt}"


def explain_refusal(node: Node, error: Errors) -> str:
    """Explains a Kafka node's refusal to list its API versions."""
    return f"{node.host}:{node.port} refused to send its API versions: {error.name} ({error.message})"


def explain_request_timeout(node: Node, reached: ConnectionState) -> str:
    """Explains a missing response on an established connection."""
    where = f"{node.host}:{node.port}"
    if reached is ConnectionState.READY:
        return f"{where} did not respond to a request in time"
    return (
        f"{where} accepts connections but did not send its API versions in time; the listener may expect TLS, "
        "or this is not a Kafka broker"
    )
