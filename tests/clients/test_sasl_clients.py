"""Other people's clients authenticate to our broker: every mechanism, right and wrong, and again before a session ends.

The listener's channel factory is replaced here; its settings are another matter.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError as AiokafkaError
from kafka.errors import KafkaError as KafkaPythonError
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokenProvider

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.node.kafka_raft_server import KafkaRaftServer
from barnabas.broker.node.storage_formatter import format_storage
from barnabas.network.reactor.channel import Authenticator
from barnabas.network.reactor.channel_factory import ChannelFactory
from barnabas.network.server.processor import Processor
from barnabas.network.transport import PlaintextTransportLayer, TransportLayer
from barnabas.protocol.api_keys import Scope
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.security.sasl.channel_authenticator import SaslServerChannelAuthenticator
from barnabas.security.sasl.jaas import OAUTHBEARER_LOGIN_MODULE, PLAIN_LOGIN_MODULE, SCRAM_LOGIN_MODULE
from barnabas.security.sasl.mechanism_table import CLIENT_MECHANISMS, ServerCallbacks, server_mechanism
from barnabas.security.sasl.plain import PlainCredentials
from barnabas.security.sasl.scram import HASHES, ScramCredential
from barnabas.security.sasl.server_authenticator import SaslServerAuthenticator, SaslServerSettings
from barnabas.security.sasl.token_provider import UnsecuredTokenProvider
from barnabas.security.sasl.token_validator import UnsecuredTokenValidator
from barnabas.server.api_version_manager import ApiVersionManager
from barnabas.server.sasl_handler import refuse_during_authentication
from oracles.java import OracleUnavailableError
from oracles.java_client import JavaClient

NAME, PASSWORD = "al,i=ce", "wonder land"
PLAIN_NAME = "alice"
"""For kafka-python, which does not escape names."""
SESSION_MS = 8_000
"""Of PLAIN only: a session that a test can outlive. A client authenticates again after 85 to 95 % of it, and has to be
done before its end."""
WAIT_S = 120


class Users:
    def __init__(self) -> None:
        self._credentials = {name: ScramCredential.of_password(name, PASSWORD) for name in HASHES}

    def credential(self, mechanism: str, username: str) -> ScramCredential | None:
        return self._credentials[mechanism] if username in {NAME, PLAIN_NAME} else None


def api_versions(_version: int) -> ApiVersionsResponse:
    ranges = ApiVersionManager(Scope.BROKER).advertised()
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=versions.lowest, max_version=versions.highest)
            for key, versions in ranges.items()
        ]
    )


class Broker:
    """A node whose listener demands SASL."""

    def __init__(self) -> None:
        self.address = ""
        self.processors: list[Processor] = []
        self._authenticators: list[SaslServerAuthenticator] = []

    def factory(self, settings: SaslServerSettings) -> ChannelFactory:
        def build(_channel_id: str, sock: socket.socket) -> tuple[TransportLayer, Authenticator]:
            self._authenticators.append(SaslServerAuthenticator(settings))
            return PlaintextTransportLayer(sock), SaslServerChannelAuthenticator(self._authenticators[-1])

        return build

    @contextlib.contextmanager
    def new_principals(self) -> Iterator[set[str]]:
        """The principals of the connections that are made inside."""
        found: set[str] = set()
        before = len(self._authenticators)
        yield found
        found |= {str(one.principal) for one in self._authenticators[before:] if one.principal is not None}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    callbacks = ServerCallbacks(
        plain=PlainCredentials(dict.fromkeys((NAME, PLAIN_NAME), PASSWORD)),
        scram=Users(),
        oauth=UnsecuredTokenValidator(clock_skew_ms=5_000),
    )
    settings = SaslServerSettings(
        {name: server_mechanism(name, callbacks) for name in CLIENT_MECHANISMS},
        api_versions,
        {"PLAIN": SESSION_MS},
        foreign_response=refuse_during_authentication,
    )
    made = Broker()
    config = KafkaConfig.from_properties(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
            "log.dirs": str(tmp_path_factory.mktemp("broker") / "data"),
        }
    )
    format_storage(config)
    patch = pytest.MonkeyPatch()
    construct = Processor.__init__

    def with_sessions(self: Processor, *arguments: Any, **options: Any) -> None:
        construct(self, *arguments, **options)
        if self.endpoint.listener_name == "PLAINTEXT":
            self._has_sessions = True
            made.processors.append(self)

    patch.setattr(Processor, "__init__", with_sessions)
    server = KafkaRaftServer(config, channel_factories={"PLAINTEXT": made.factory(settings)})
    server.startup()
    try:
        made.address = server.bootstrap_servers
        yield made
    finally:
        server.shutdown()
        patch.undo()


def token() -> str:
    return UnsecuredTokenProvider({"unsecuredLoginStringClaim_sub": NAME})()


# -- the clients: each lists topics, and raises if it is not let in


def with_confluent_kafka(address: str, mechanism: str, password: str) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
    }
    errors: list[Any] = []
    settings["error_cb"] = errors.append
    if mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = lambda _config: (token() if password == PASSWORD else "not.a.token", time.time() + 600)
    else:
        settings |= {"sasl.username": NAME, "sasl.password": password}
    producer = confluent_kafka.Producer(settings)
    deadline = time.monotonic() + WAIT_S
    while not any(error.code() == confluent_kafka.KafkaError._AUTHENTICATION for error in errors):
        producer.poll(0.1)
        with contextlib.suppress(confluent_kafka.KafkaException):
            producer.list_topics(timeout=1)
            return
        assert time.monotonic() < deadline, errors
    raise ConnectionRefusedError(errors)


class _KafkaPythonToken(KafkaPythonTokenProvider):  # type: ignore[misc]
    def __init__(self, right: bool) -> None:
        super().__init__()
        self._right = right

    def token(self) -> str:
        return token() if self._right else "not.a.token"


def with_kafka_python(address: str, mechanism: str, password: str) -> None:
    settings: dict[str, Any] = {"sasl_mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = _KafkaPythonToken(password == PASSWORD)
    else:
        settings |= {"sasl_plain_username": PLAIN_NAME, "sasl_plain_password": password}
    if password != PASSWORD:
        settings["bootstrap_timeout_ms"] = 3_000  # it tries again until then
    try:
        admin = kafka.KafkaAdminClient(bootstrap_servers=address, security_protocol="SASL_PLAINTEXT", **settings)
    except KafkaPythonError as error:
        raise ConnectionRefusedError(error) from error
    with contextlib.closing(admin):
        admin.list_topics()


class _AiokafkaToken(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, right: bool) -> None:
        self._right = right

    async def token(self) -> str:
        return token() if self._right else "not.a.token"


def with_aiokafka(address: str, mechanism: str, password: str) -> None:
    settings: dict[str, Any] = {"sasl_mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = _AiokafkaToken(password == PASSWORD)
    else:
        settings |= {"sasl_plain_username": NAME, "sasl_plain_password": password}

    async def connect() -> None:
        client = aiokafka.AIOKafkaConsumer(bootstrap_servers=address, security_protocol="SASL_PLAINTEXT", **settings)
        try:
            await client.start()
            await client.topics()
        except AiokafkaError as error:
            raise ConnectionRefusedError(error) from error
        finally:
            await client.stop()

    asyncio.run(connect())


def java_settings(mechanism: str, password: str) -> dict[str, str]:
    if mechanism == "OAUTHBEARER":
        name = NAME if password == PASSWORD else ""
        jaas = f'{OAUTHBEARER_LOGIN_MODULE} required unsecuredLoginStringClaim_sub="{name}";'
    else:
        module = PLAIN_LOGIN_MODULE if mechanism == "PLAIN" else SCRAM_LOGIN_MODULE
        jaas = f'{module} required username="{NAME}" password="{password}";'
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas,
        "max.block.ms": "30000",
    }


CLIENTS: dict[str, Callable[[str, str, str], None]] = {
    "confluent-kafka": with_confluent_kafka,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
}


@pytest.mark.mechanism("A05", "A06", "A07")
@pytest.mark.parametrize("mechanism", list(CLIENT_MECHANISMS))
@pytest.mark.parametrize("client", list(CLIENTS))
class TestPython:
    def test_it_gets_in(self, broker: Broker, client: str, mechanism: str) -> None:
        with broker.new_principals() as found:
            CLIENTS[client](broker.address, mechanism, PASSWORD)
        with_plain_name = client == "kafka-python" and mechanism != "OAUTHBEARER"
        assert found == {f"User:{PLAIN_NAME if with_plain_name else NAME}"}

    def test_it_is_refused(self, broker: Broker, client: str, mechanism: str) -> None:
        if (client, mechanism) == ("aiokafka", "OAUTHBEARER"):
            pytest.skip("aiokafka takes the refusal of a token for success, and waits for metadata in vain")
        with broker.new_principals() as found, pytest.raises(ConnectionRefusedError):
            CLIENTS[client](broker.address, mechanism, "wrong")
        assert found == set()


@pytest.fixture(scope="module")
def java() -> Iterator[JavaClient]:
    try:
        client = JavaClient()
    except OracleUnavailableError as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(str(reason))
        pytest.skip(str(reason))
    with client:
        yield client


@pytest.mark.java
@pytest.mark.mechanism("A05", "A06", "A07")
class TestJava:
    @pytest.mark.parametrize("mechanism", list(CLIENT_MECHANISMS))
    def test_it_gets_in(self, broker: Broker, java: JavaClient, mechanism: str) -> None:
        topic = f"java-{mechanism}"
        with broker.new_principals() as found:
            ((_, offset, _),) = java.produce(
                broker.address, topic, [{"value": "1"}], java_settings(mechanism, PASSWORD)
            )
        assert (offset, found) == (0, {f"User:{NAME}"})

    @pytest.mark.parametrize("mechanism", ["PLAIN", *HASHES])
    def test_it_is_refused(self, broker: Broker, java: JavaClient, mechanism: str) -> None:
        with broker.new_principals() as found:
            (outcome,) = java.produce(broker.address, "refused", [{"value": "1"}], java_settings(mechanism, "wrong"))
        assert (outcome, found) == ({"error": "SaslAuthenticationException"}, set())

    @pytest.mark.mechanism("A09")
    def test_it_authenticates_again(self, broker: Broker, java: JavaClient) -> None:
        """A producer that outlives its session several times loses neither its connection nor a record."""
        stats = [processor.selector.stats for processor in broker.processors]
        killed = sum(processor.expired_connections_killed for processor in broker.processors)
        deadline = time.monotonic() + WAIT_S
        sent = 0
        while sum(one.successful_reauthentications for one in stats) < 2:
            java.produce(broker.address, "again", [{"value": "1"}], java_settings("PLAIN", PASSWORD), name="again")
            sent += 1
            assert time.monotonic() < deadline
        assert sum(processor.expired_connections_killed for processor in broker.processors) == killed
        assert sum(one.failed_reauthentications for one in stats) == 0
