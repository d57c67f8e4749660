"""What went wrong with a connection, in words that help.

The commonest mistakes of somebody who sets up a client are a wrong host name, a wrong port, and a listener that
expects TLS. Each of them looks different from here, and each is worth a sentence of its own: "disconnected" is all
that most clients have to say about the last two.
"""

from __future__ import annotations

import errno
import struct

from barnabas.common.errors import AuthenticationError, Errors
from barnabas.network.channel import ChannelState, InvalidReceiveError
from barnabas.network.host_resolver import UnknownHostError
from barnabas.network.node import Node
from barnabas.network.node_connection import ConnectionState

FIRST_ANSWER_LIMIT = 1 << 20
"""The largest answer, in bytes, that a peer may give before it has shown that it speaks Kafka.

The list of all APIs takes about one kilobyte. Four letters of any other protocol, taken for a length, are beyond this,
so that they are found out at once and not waited for: "HTTP" stands for 1.2 gigabytes, a TLS alert for 350 megabytes.
"""

_TLS_RECORDS = {0x14: "change", 0x15: "alert", 0x16: "handshake", 0x17: "data"}


def recognize(prefix: bytes) -> str | None:
    """What four bytes, where a length should be, tell about the peer."""
    if prefix[0] in _TLS_RECORDS and prefix[1] == 3:
        return f"it answered with a TLS {_TLS_RECORDS[prefix[0]]} record; the listener expects TLS"
    if prefix == b"HTTP":
        return "it answered in HTTP; this is a web server, not a Kafka broker"
    if all(0x20 <= byte < 0x7F or byte in b"\r\n\t" for byte in prefix):
        return f"it answered with text that begins with {prefix.decode('ascii')!r}; this is not a Kafka broker"
    return None


def explain_connect_error(node: Node, error: Exception) -> str:
    """Why an attempt to connect failed."""
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
    """Nobody answered, not even to refuse: a firewall, a wrong address, or a host that is down."""
    return f"Cannot connect to {node.host}:{node.port}: no connection within {limit_ms} ms; the host may be unreachable"


def explain_loss(
    node: Node, reached: ConnectionState, channel_state: ChannelState, error: Exception | None, max_size: int
) -> str:
    """Why a connection was lost that had got as far as ``reached``; ``error`` is what the selector has met."""
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
            f"{where} closed the connection before it told which API versions it has; the listener may expect TLS, or "
            "this is not a Kafka broker"
        )
    detail = "" if error is None or isinstance(error, EOFError) else f" ({error})"
    return f"{where} closed the connection{detail}"


def _explain_length(where: str, reached: ConnectionState, size: int, max_size: int) -> str:
    if reached is ConnectionState.READY:
        return f"{where} sent a response of {size} bytes; 0 to {max_size} are accepted"
    recognized = recognize(struct.pack(">i", size))
    if recognized is None:
        recognized = f"its answer begins with bytes that stand for a length of {size}"
    return f"{where} does not speak Kafka's protocol: {recognized}"


def explain_broken_answer(node: Node, reached: ConnectionState, error: Exception) -> str:
    """A frame that is no answer to the request whose turn it is."""
    doubt = "" if reached is ConnectionState.READY else "; it may not be a Kafka broker"
    return f"{node.host}:{node.port} sent what is not a valid response: {error}{doubt}"


def explain_refusal(node: Node, error: Errors) -> str:
    """The node is a Kafka node and does not want to tell which versions it has."""
    return f"{node.host}:{node.port} did not tell which API versions it has: {error.name} ({error.message})"


def explain_request_timeout(node: Node, reached: ConnectionState) -> str:
    """The connection is there, and the answer is not."""
    where = f"{node.host}:{node.port}"
    if reached is ConnectionState.READY:
        return f"{where} did not answer a request in time"
    return (
        f"{where} accepts connections but did not tell in time which API versions it has; the listener may expect TLS, "
        "or this is not a Kafka broker"
    )
