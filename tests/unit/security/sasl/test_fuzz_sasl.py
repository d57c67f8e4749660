"""Damaged exchanges: nothing raises, nothing leaks, and nobody gets in without the secret."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable

import pytest

from barnabas.common.clock import MockClock
from barnabas.network.reactor.channel import Authenticator
from barnabas.network.server.config import SocketServerConfig
from barnabas.network.server.endpoint import SecurityProtocol
from barnabas.network.transport import PlaintextTransportLayer, TransportLayer
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from barnabas.security.principal import KafkaPrincipal
from barnabas.security.sasl.channel_authenticator import SaslServerChannelAuthenticator
from barnabas.security.sasl.mechanism import SaslClient
from barnabas.security.sasl.oauth_token import OAuthBearerToken, TokenRejectedError
from barnabas.security.sasl.oauthbearer import OAuthBearerClient, OAuthBearerServer
from barnabas.security.sasl.plain import PlainClient
from barnabas.security.sasl.scram import HASHES, ScramClient
from barnabas.security.sasl.server_authenticator import SaslServerAuthenticator, SaslServerSettings, SaslState
from network_fixtures import SteppedProcessor, nothing_left_behind
from oracles.mutations import mutate
from unit.security.sasl.sasl_peers import (
    PASSWORDS,
    api_versions,
    decode,
    foreign_response,
    handshake,
    mechanisms,
    token,
    versions_request,
)

pytestmark = pytest.mark.mechanism("A04")

ALICE = KafkaPrincipal("User", "alice")
GOOD, BAD = "a-token-that-was-issued-by-nobody-else", "another-one-of-the-same-length-or-so.."
SESSION_MS = 60_000


class Issuer:
    def validate(self, value: str) -> OAuthBearerToken:
        if value != GOOD:
            raise TokenRejectedError("not known here")
        return OAuthBearerToken(value, "alice", 2**50)


SETTINGS = SaslServerSettings(
    {**mechanisms(), "OAUTHBEARER": lambda: OAuthBearerServer(Issuer())},
    api_versions,
    {"PLAIN": SESSION_MS},
    foreign_response=foreign_response,
)
CLIENTS: dict[str, Callable[[bool], SaslClient]] = {
    "PLAIN": lambda right: PlainClient("alice", PASSWORDS["alice"] if right else "a wrong one"),
    "OAUTHBEARER": lambda right: OAuthBearerClient(lambda: GOOD if right else BAD),
    **{
        name: lambda right, name=name: ScramClient(name, "alice", PASSWORDS["alice"] if right else "a wrong one")  # type: ignore[misc]
        for name in HASHES
    },
}


class Exchange:
    """A client that damages some of its frames, and an authenticator that must survive them."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._knows_secret = self._chance.random() < 0.5
        self._server = SaslServerAuthenticator(SETTINGS)
        self._failed = False

    def run(self) -> bool:
        """Returns whether the client was authenticated."""
        mechanism = self._chance.choice(list(CLIENTS))
        if self._chance.random() < 0.5:
            self._send(versions_request())
        self._send(handshake(mechanism))
        client = CLIENTS[mechanism](self._knows_secret)
        answer: bytes | None = client.initial_response()
        while answer is not None:
            response = self._send(token(answer))
            if response is None:
                break
            try:
                answer = client.evaluate(bytes(decode(SaslAuthenticateResponse, response, 2).auth_bytes))
            except Exception:  # noqa: BLE001 - the client may be as confused as it likes
                break
        return self._server.complete

    def _send(self, frame: bytes) -> bytes | None:
        """Sends a frame, perhaps damaged, twice or not at all; returns the last response."""
        chance = self._chance
        what = chance.random()
        frames = [frame]
        if what < 0.2:
            frames = [mutate(frame, chance)]
        elif what < 0.25:
            frames = [frame, frame]
        elif what < 0.28:
            frames = []
        response = None
        for one in frames:
            decision = self._server.receive(one)
            response = decision.response
            self._check(decision.failure is not None)
            if decision.failure is not None:
                return None
        return response

    def _check(self, failed: bool) -> None:
        server = self._server
        assert server.principal in ({None, ALICE} if self._knows_secret else {None})
        assert not server.complete or self._knows_secret
        if failed and not server.complete:
            assert server.state is SaslState.FAILED
            assert server.receive(handshake("PLAIN")).failure is not None


@pytest.mark.parametrize(("first", "cases"), [(0, 3_000), pytest.param(3_000, 100_000, marks=pytest.mark.nightly)])
def test_damaged_exchanges(first: int, cases: int, record_property: Callable[[str, object], None]) -> None:
    authenticated = sum(Exchange(seed).run() for seed in range(first, first + cases))
    assert cases * 0.1 < authenticated < cases * 0.5  # or the test would prove nothing
    record_property("fuzz_cases", cases)


@pytest.mark.parametrize("connections", [150, pytest.param(5_000, marks=pytest.mark.nightly)])
def test_damaged_connections_leave_nothing_behind(connections: int) -> None:
    chance = random.Random(connections)
    clock = MockClock()

    def factory(_channel_id: str, sock: socket.socket) -> tuple[TransportLayer, Authenticator]:
        return PlaintextTransportLayer(sock), SaslServerChannelAuthenticator(SaslServerAuthenticator(SETTINGS))

    with nothing_left_behind():
        stepped = SteppedProcessor(
            clock=clock,
            channel_factory=factory,
            config=SocketServerConfig(connection_failed_authentication_delay_ms=0),
            security_protocol=SecurityProtocol.SASL_PLAINTEXT,
        )
        try:
            for _ in range(connections):
                client = stepped.connect()
                frames = [versions_request(), handshake(chance.choice(list(CLIENTS))), token(chance.randbytes(40))]
                stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
                client.send(mutate(stream, chance))
                stepped.turn(5)
                client.close()
                stepped.turn_until(lambda: not stepped.selector.channels)
            assert stepped.quotas.total == 0
            assert stepped.selector.stats.successful_authentications == 0
            assert not stepped.selector._session_ends
            assert not stepped.selector._reauthenticating
        finally:
            stepped.close()
