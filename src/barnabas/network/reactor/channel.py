"""A channel: one connection, its partly read request, its current send and its mute state.

A channel belongs to the thread of its selector; no other thread touches it.

**Receiving** is size-delimited, in two phases: four bytes of length, then that many bytes. The first phase reads ahead:
one ``recv`` takes whatever has arrived, and a request that is complete in it is handed out as a view, with no further
read and no copy. The bytes after it wait in ``ahead`` for the next call. A request that is *not* complete gets a buffer
of its own, and the rest is read straight into that. With a bounded memory pool there is no reading ahead: exactly the
length is read, then exactly the payload, and only after the pool has granted it.

A large request is not examined before a good part of it has arrived. Its buffer is new memory, which the system must
allocate and clear page by page; that costs as much as the copy into it. A client, which gets one large response after
another, therefore keeps its last few buffers (`spare_buffers`) and receives into one that no view refers to. A server
keeps none. But after a large request it expects another one, and reads ahead into a buffer with room for all of it, so
that the bytes that have arrived by then need not be moved.

**Sending** handles one :class:`NetworkSend` at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from barnabas._kernels import reactor
from barnabas._kernels.channel_mute import MUTED, NOT_MUTED
from barnabas._kernels.channel_state import ChannelState, InvalidReceiveError
from barnabas.common.errors import AuthenticationError
from barnabas.network.reactor.send import NetworkSend

KafkaChannel = reactor.KafkaChannel


def is_ready(channel: KafkaChannel) -> bool:
    """Whether the handshake and the authentication of a channel are complete."""
    return bool(channel.transport.is_ready and channel.authenticator.complete)


def channel_principal(channel: KafkaChannel) -> Any:
    """Returns the authenticated principal; None before authentication is complete, and without authentication."""
    return channel.authenticator.principal if channel.authenticator.complete else None


def prepare(channel: KafkaChannel) -> int:
    """Continues the handshake and the authentication; returns the readiness that they wait for, 0 for no change."""
    wanted = 0
    try:
        if not channel.transport.is_ready:
            wanted = channel.transport.handshake()
        if channel.transport.is_ready and not channel.authenticator.complete:
            channel.state = ChannelState.AUTHENTICATE
            wanted = channel.authenticator.authenticate(channel) or wanted
    except AuthenticationError:
        channel.state = ChannelState.AUTHENTICATION_FAILED
        raise
    if is_ready(channel):
        channel.state = ChannelState.READY
    return wanted


def mute(channel: KafkaChannel) -> None:
    if channel.mute_state is NOT_MUTED:
        channel.mute_state = MUTED


def maybe_unmute(channel: KafkaChannel) -> bool:
    """Unmutes the channel, unless a response or throttling is pending; returns whether it is read now."""
    if channel.mute_state is MUTED:
        channel.mute_state = NOT_MUTED
    return channel.mute_state is NOT_MUTED


def write(channel: KafkaChannel) -> NetworkSend | None:
    """Sends what the socket takes of the current send; returns the send once it is completely sent."""
    send = channel.send
    if send is None:
        return None
    send.write_to(channel.transport)
    if send.remaining:
        return None
    channel.send = None
    return send


class Authenticator(Protocol):
    """Authenticates the peer of a new connection."""

    @property
    def complete(self) -> bool: ...

    def authenticate(self, channel: KafkaChannel) -> int | None:
        """Continues as far as possible without waiting; :class:`AuthenticationError` ends the connection.

        Returns the readiness that it waits for, ``READ`` or ``WRITE``; 0 or None leaves the watched events unchanged.
        """
        ...

    @property
    def principal(self) -> Any: ...


class ServerSession(Authenticator, Protocol):
    """The authenticator of a broker whose clients can authenticate again (KIP-368)."""

    session_expires_ns: int | None
    """When requests are no longer served, on the monotonic clock; None if the session does not end."""
    peer_reauthenticates: bool
    """Whether the client learns when its session ends, and so can authenticate again in time."""

    def begin_reauthentication(self, handshake: memoryview) -> bool:
        """Takes the SaslHandshake of an authenticated client.

        False if the client may not authenticate again now; the request is then handled like any other. If true,
        ``complete`` is false from here on, and `authenticate` continues.
        """
        ...


class ClientSession(Authenticator, Protocol):
    """The authenticator of a client that can authenticate again (KIP-368)."""

    reauthenticate_at_ns: int | None
    """When to authenticate again, before the next request; None if the session does not end."""

    def begin_reauthentication(self, deliver: Callable[[tuple[KafkaChannel, memoryview]], None]) -> None:
        """Makes ``complete`` false; `authenticate` continues.

        ``deliver`` takes responses to requests that were sent before, which may still arrive.
        """
        ...


class ResponseBeforeCloseError(AuthenticationError):
    """A failed authentication whose response is sent after a delay, right before the connection is closed."""

    def __init__(self, message: str, response: bytes) -> None:
        super().__init__(message)
        self.response = response


class AnonymousAuthenticator:
    """Accepts every peer as anonymous, for listeners without authentication."""

    __slots__ = ()

    complete = True
    principal: Any = None

    def authenticate(self, channel: KafkaChannel) -> None: ...


ANONYMOUS = AnonymousAuthenticator()

__all__ = [
    "ANONYMOUS",
    "AnonymousAuthenticator",
    "Authenticator",
    "ChannelState",
    "ClientSession",
    "InvalidReceiveError",
    "KafkaChannel",
    "ResponseBeforeCloseError",
    "ServerSession",
    "channel_principal",
    "is_ready",
    "maybe_unmute",
    "mute",
    "prepare",
    "write",
]
