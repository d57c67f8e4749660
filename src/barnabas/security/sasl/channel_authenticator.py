"""Moves frames between a channel and its SASL authenticator, on the thread of the selector.

The authenticators decide; this module reads, writes and waits. While a peer is not authenticated, frames are limited to
``sasl.server.max.receive.size`` on the broker, and one call handles only a few of them, so that a peer that sends
without a pause does not occupy the thread. A frame that the socket does not take at once is finished when it is
writable, and the channel is not complete before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas.common.errors import SaslAuthenticationError
from barnabas.network.reactor.channel import InvalidReceiveError, KafkaChannel, ResponseBeforeCloseError
from barnabas.network.reactor.poller import READ, WRITE
from barnabas.network.reactor.send import NetworkSend
from barnabas.security.principal import KafkaPrincipal
from barnabas.security.sasl.client_authenticator import SaslClientAuthenticator
from barnabas.security.sasl.mechanism import SaslExchangeError
from barnabas.security.sasl.server_authenticator import SaslServerAuthenticator

FRAMES_AT_ONCE: Final = 8
"""An authentication has at most five."""


class _Output:
    """The frame that is being sent."""

    __slots__ = ("_send",)

    def __init__(self) -> None:
        self._send: NetworkSend | None = None

    def add(self, frame: bytes) -> None:
        if frame:
            self._send = NetworkSend([frame])

    @property
    def pending(self) -> bool:
        return self._send is not None

    def flush(self, channel: KafkaChannel) -> bool:
        """Sends what the socket takes; returns whether nothing is left."""
        if self._send is not None:
            self._send.write_to(channel.transport)
            if not self._send.remaining:
                self._send = None
        return self._send is None


class SaslServerChannelAuthenticator:
    """The broker's end: a `barnabas.network.reactor.channel.ServerSession`."""

    __slots__ = ("_authenticator", "_handshake", "_max_receive_size", "_output")

    def __init__(self, authenticator: SaslServerAuthenticator) -> None:
        self._authenticator = authenticator
        self._output = _Output()
        self._max_receive_size: int | None = None
        """The channel's own limit, while the limit of the authentication is in force."""
        self._handshake: bytes | None = None
        """The request that has begun a re-authentication and is not handled yet."""

    @property
    def complete(self) -> bool:
        return self._authenticator.complete and not self._output.pending

    @property
    def principal(self) -> KafkaPrincipal | None:
        return self._authenticator.principal

    @property
    def session_expires_ns(self) -> int | None:
        return self._authenticator.session_expires_ns

    @property
    def peer_reauthenticates(self) -> bool:
        return self._authenticator.client_reauthenticates

    def begin_reauthentication(self, handshake: memoryview) -> bool:
        if not self._authenticator.may_reauthenticate():
            return False
        self._authenticator.begin_reauthentication()
        self._handshake = bytes(handshake)
        return True

    def authenticate(self, channel: KafkaChannel) -> int:
        authenticator = self._authenticator
        if self._max_receive_size is None:
            self._max_receive_size = channel.max_receive_size
            channel.max_receive_size = min(channel.max_receive_size, authenticator.max_receive_size)
        for _ in range(FRAMES_AT_ONCE):
            if not self._output.flush(channel):
                return WRITE
            if authenticator.complete:
                channel.max_receive_size = self._max_receive_size
                self._max_receive_size = None
                channel.client_information = authenticator.client_software
                break
            if not self._receive(channel):
                break
        return READ if self._output.flush(channel) else WRITE

    def _receive(self, channel: KafkaChannel) -> bool:
        """Handles the next frame; false if it has not arrived."""
        if self._handshake is not None:
            frame, self._handshake = self._handshake, None
            decision = self._authenticator.receive(frame)
        else:
            try:
                received = channel.read()
            except InvalidReceiveError as error:
                raise SaslAuthenticationError(
                    f"Failing SASL authentication due to invalid receive size ({error})"
                ) from error
            if received is None:
                return False
            try:
                decision = self._authenticator.receive(received)
            finally:
                channel.release(received)
        failure = decision.failure
        if failure is not None:
            reason = failure.__cause__
            # For the log. The message of any other cause might contain a secret.
            why = f"{failure}: {reason}" if isinstance(reason, SaslExchangeError) else str(failure)
            raise ResponseBeforeCloseError(why, decision.response)
        self._output.add(decision.response)
        return True

    def __repr__(self) -> str:
        return f"SaslServerChannelAuthenticator({self._authenticator!r})"


class SaslClientChannelAuthenticator:
    """The client's end: a `barnabas.network.reactor.channel.ClientSession`."""

    __slots__ = ("_authenticator", "_deliver", "_output", "_started")

    principal = None

    def __init__(self, authenticator: SaslClientAuthenticator) -> None:
        self._authenticator = authenticator
        self._output = _Output()
        self._started = False
        self._deliver: Callable[[tuple[KafkaChannel, memoryview]], None] | None = None

    @property
    def complete(self) -> bool:
        return self._authenticator.complete

    @property
    def reauthenticate_at_ns(self) -> int | None:
        return self._authenticator.reauthenticate_at_ns

    def begin_reauthentication(self, deliver: Callable[[tuple[KafkaChannel, memoryview]], None]) -> None:
        self._deliver = deliver
        self._output.add(self._authenticator.reauthenticate())

    def authenticate(self, channel: KafkaChannel) -> int:
        authenticator = self._authenticator
        if not self._started:
            self._started = True
            self._output.add(authenticator.start())
        for _ in range(FRAMES_AT_ONCE):
            if not self._output.flush(channel):
                return WRITE
            if authenticator.complete:
                break
            received = channel.read()
            if received is None:
                break
            try:
                self._output.add(authenticator.receive(received))
            finally:
                channel.release(received)
            if self._deliver is not None:
                for frame in authenticator.unrelated:
                    self._deliver((channel, memoryview(frame)))
                authenticator.unrelated.clear()
        return READ if self._output.flush(channel) else WRITE

    def __repr__(self) -> str:
        return f"SaslClientChannelAuthenticator({self._authenticator!r})"
