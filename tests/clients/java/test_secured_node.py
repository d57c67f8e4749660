"""The Java client and Kafka's tools against a secured node of ours: TLS, SASL over TLS, and the authorizer."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from barnabas import EmbeddedBroker
from oracles.java import OracleError
from oracles.java_client import JavaClient
from oracles.kafka_tools import KafkaTools, ToolFailedError
from secured_node import ADMIN, ALICE, address, secured_node, settings, store
from tls_fixtures import PKI

pytestmark = pytest.mark.java

MODULES: Final = "org.apache.kafka.common.security"
PLAIN: Final = f"{MODULES}.plain.PlainLoginModule required"
SCRAM: Final = f"{MODULES}.scram.ScramLoginModule required"
OAUTH: Final = f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;"
ISSUER, AUDIENCE, KEY_ID = "https://issuer.example", "castle", "castle-key"
SCRAM_USER: Final = ("bob", "bob-secret")
Settings = dict[str, str]


class SecuredNode:
    """The node, and the settings of Java clients for its listeners."""

    def __init__(self, directory: Path, node: EmbeddedBroker, signing_key: rsa.RSAPrivateKey) -> None:
        self.directory = directory
        self.node = node
        self._signing_key = signing_key

    def address(self, listener: str) -> str:
        return address(self.node, listener)

    def settings(self, protocol: str, further: Mapping[str, str] | None = None) -> Settings:
        found = {"security.protocol": protocol}
        if protocol.endswith("SSL"):
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.directory / "authority.pem")}
        return {**found, **(further or {})}

    def with_password(self, mechanism: str, name: str, password: str, options: str = "") -> Settings:
        """Returns the settings of a client over SASL_SSL."""
        module = PLAIN if mechanism == "PLAIN" else SCRAM
        jaas = f'{module} username="{name}" password="{password}"{options};'
        return self.settings("SASL_SSL", {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas})

    def with_jwt(self, client: JavaClient, name: str, **claims: object) -> Settings:
        """Returns the settings of a client that reads its JWT from a file."""
        now = int(time.time())
        usual = {"sub": ALICE[0], "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 600, "scope": "kafka"}
        path = self.directory / name
        path.write_text(jwt.encode(usual | claims, self._signing_key, "RS256", headers={"kid": KEY_ID}))
        client.ask("set_property", "", name="org.apache.kafka.sasl.oauthbearer.allowed.urls", value=path.as_uri())
        return self.settings(
            "SASL_SSL",
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": OAUTH,
                "sasl.oauthbearer.token.endpoint.url": path.as_uri(),
                "sasl.login.callback.handler.class": f"{MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler",
                # The default validator needs jose4j, which the client's jars do not have.
                "sasl.oauthbearer.jwt.validator.class": f"{MODULES}.oauthbearer.ClientJwtValidator",
            },
        )

    def command(self, name: str, password: str) -> tuple[str, str, str, str]:
        """Returns the arguments of a tool that connects over SASL_SSL as this user."""
        path = self.directory / f"{name}.properties"
        found = self.with_password("PLAIN", name, password)
        path.write_text("".join(f"{key}={value}\n" for key, value in found.items()))
        return "--bootstrap-server", self.address("BOTH"), "--command-config", str(path)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    directory = tmp_path_factory.mktemp("secured")
    key = rsa.generate_private_key(65537, 2048)
    jwks = directory / "jwks.json"
    public = json.loads(RSAAlgorithm.to_jwk(key.public_key())) | {"kid": KEY_ID, "alg": "RS256", "use": "sig"}
    jwks.write_text(json.dumps({"keys": [public]}))
    given = settings(directory)
    changes = {name: f"{given[name]},ELSEWHERE://127.0.0.1:0" for name in ("listeners", "advertised.listeners")}
    changes["listener.security.protocol.map"] = f"{given['listener.security.protocol.map']},ELSEWHERE:SSL"
    changes["listener.name.elsewhere.ssl.keystore.location"] = str(store(directory, PKI.wrong_host, "elsewhere"))
    prefix = "listener.name.both.oauthbearer.sasl"
    changes |= {
        f"{prefix}.jaas.config": OAUTH,
        f"{prefix}.oauthbearer.jwks.endpoint.url": jwks.as_uri(),
        f"{prefix}.oauthbearer.expected.audience": AUDIENCE,
        f"{prefix}.oauthbearer.expected.issuer": ISSUER,
        "connection.failed.authentication.delay.ms": "1",
    }
    with secured_node(directory, changes) as running:
        yield SecuredNode(directory, running, key)


def refused(client: JavaClient, node: SecuredNode, listener: str, found: Settings) -> str:
    """Returns the name of the exception with which the producer and the consumer fail."""
    (outcome,) = client.produce(node.address(listener), "letters", [{"value": "1"}], found)
    assert set(outcome) == {"error"}, outcome
    with pytest.raises(OracleError, match=outcome["error"]):
        client.consume(node.address(listener), {"letters-0": "beginning"}, 1, found)
    return str(outcome["error"])


def writes_and_reads(client: JavaClient, node: SecuredNode, listener: str, found: Settings) -> None:
    ((_, offset, _),) = client.produce(node.address(listener), "letters", [{"value": listener}], found)
    (record,) = client.consume(node.address(listener), {"letters-0": offset}, 1, found)
    assert record["value"] == listener


@pytest.mark.mechanism("A01", "A03")
class TestTls:
    def test_a_certificate_is_a_principal(self, client: JavaClient, node: SecuredNode) -> None:
        identity = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store(node.directory, PKI.client, "alice")),
        }
        for version in ("TLSv1.2", "TLSv1.3"):
            found = node.settings("SSL", {**identity, "ssl.enabled.protocols": version})
            writes_and_reads(client, node, "TLS", found)

    def test_without_a_certificate_a_client_is_anonymous(self, client: JavaClient, node: SecuredNode) -> None:
        assert refused(client, node, "TLS", node.settings("SSL")) == "TopicAuthorizationException"

    def test_a_broker_of_another_authority_is_not_trusted(self, client: JavaClient, node: SecuredNode) -> None:
        other = node.directory / "other.pem"
        other.write_text(PKI.other_authority.pem)
        found = node.settings("SSL", {"ssl.truststore.location": str(other)})
        assert refused(client, node, "TLS", found) == "SslAuthenticationException"

    def test_a_certificate_for_another_host_is_refused(self, client: JavaClient, node: SecuredNode) -> None:
        found = node.settings("SSL")
        assert refused(client, node, "ELSEWHERE", found) == "SslAuthenticationException"
        unchecked = {**found, "ssl.endpoint.identification.algorithm": ""}
        assert refused(client, node, "ELSEWHERE", unchecked) == "TopicAuthorizationException", "the handshake succeeds"


@pytest.mark.mechanism("A04", "A05", "A06", "A11")
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_passwords_over_tls(client: JavaClient, tools: KafkaTools, node: SecuredNode, mechanism: str) -> None:
    if mechanism != "PLAIN":
        add_scram_user(tools, node, mechanism, ALICE)
    writes_and_reads(client, node, "BOTH", node.with_password(mechanism, *ALICE))
    for name, password in ((ALICE[0], "wrong"), ("nobody", ALICE[1])):
        outcome = refused(client, node, "BOTH", node.with_password(mechanism, name, password))
        assert outcome == "SaslAuthenticationException"


@pytest.mark.mechanism("A07")
def test_signed_tokens_over_tls(client: JavaClient, node: SecuredNode) -> None:
    writes_and_reads(client, node, "BOTH", node.with_jwt(client, "right.jwt"))
    for name, claims in {"audience.jwt": {"aud": "village"}, "issuer.jwt": {"iss": "https://village.example"}}.items():
        assert refused(client, node, "BOTH", node.with_jwt(client, name, **claims)) == "SaslAuthenticationException"


def add_scram_user(tools: KafkaTools, node: SecuredNode, mechanism: str, user: tuple[str, str]) -> None:
    arguments = ("--entity-type", "users", "--entity-name", user[0], "--alter")
    tools.run("kafka-configs", *node.command(*ADMIN), *arguments, "--add-config", f"{mechanism}=[password={user[1]}]")


@pytest.mark.mechanism("A06")
def test_kafka_configs_for_scram_users(client: JavaClient, tools: KafkaTools, node: SecuredNode) -> None:
    """A user that the tool adds gets in at once, and one that it deletes does not."""
    admin, bob = node.command(*ADMIN), node.with_password("SCRAM-SHA-512", *SCRAM_USER)
    one_user = ("--entity-type", "users", "--entity-name", SCRAM_USER[0])
    assert refused(client, node, "BOTH", bob) == "SaslAuthenticationException"
    add_scram_user(tools, node, "SCRAM-SHA-512", SCRAM_USER)
    assert "SCRAM-SHA-512=iterations=4096" in tools.run("kafka-configs", *admin, *one_user, "--describe")
    assert refused(client, node, "BOTH", bob) == "TopicAuthorizationException", "known, but without rights"
    with pytest.raises(ToolFailedError, match="ClusterAuthorizationException"):
        tools.run("kafka-configs", *node.command(*ALICE), *one_user, "--alter", "--delete-config", "SCRAM-SHA-512")
    tools.run("kafka-configs", *admin, *one_user, "--alter", "--delete-config", "SCRAM-SHA-512")
    assert "SCRAM" not in tools.run("kafka-configs", *admin, *one_user, "--describe")
    assert refused(client, node, "BOTH", bob) == "SaslAuthenticationException"


@pytest.mark.mechanism("A11")
def test_kafka_acls(client: JavaClient, tools: KafkaTools, node: SecuredNode) -> None:
    """A right that the tool adds or removes counts for the next request."""
    admin, topic = node.command(*ADMIN), ("--topic", "parcels")
    alice = node.with_password("PLAIN", *ALICE)
    tools.run("kafka-topics", *admin, "--create", *topic)
    parcels = [{"value": "1"}]
    assert client.produce(node.address("BOTH"), "parcels", parcels, alice) == [{"error": "TopicAuthorizationException"}]
    tools.run("kafka-acls", *admin, "--add", "--allow-principal", "User:alice", "--producer", *topic)
    listed = tools.run("kafka-acls", *admin, "--list", *topic)
    assert "principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW" in listed
    assert client.produce(node.address("BOTH"), "parcels", parcels, alice)[0][1] == 0
    with pytest.raises(OracleError, match="TopicAuthorizationException"):
        client.consume(node.address("BOTH"), {"parcels-0": 0}, 1, alice)
    with pytest.raises(ToolFailedError, match="ClusterAuthorizationException"):
        tools.run("kafka-acls", *node.command(*ALICE), "--add", "--allow-principal", "User:alice", *topic)
    tools.run("kafka-acls", *admin, "--remove", "--force", *topic)
    assert "principal" not in tools.run("kafka-acls", *admin, "--list", *topic)
    assert client.produce(node.address("BOTH"), "parcels", parcels, alice) == [{"error": "TopicAuthorizationException"}]


@pytest.mark.mechanism("A08")
def test_kafka_delegation_tokens(client: JavaClient, tools: KafkaTools, node: SecuredNode) -> None:
    """A token of the tool authenticates a client as its owner until it expires."""
    alice = node.command(*ALICE)
    wanted = ("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:admin")
    created = token_row(tools.run("kafka-delegation-tokens", *alice, *wanted))
    assert (created["OWNER"], created["RENEWERS"]) == ("User:alice", "[User:admin]")
    described = tools.run("kafka-delegation-tokens", *alice, "--describe", "--owner-principal", "User:alice")
    assert token_row(described) == created
    found = node.with_password("SCRAM-SHA-256", created["TOKENID"], created["HMAC"], " tokenauth=true")
    writes_and_reads(client, node, "BOTH", found)
    hmac = ("--hmac", created["HMAC"])
    for user, argument in ((ALICE, "-1"), (ADMIN, "3600000")):
        tools.run("kafka-delegation-tokens", *node.command(*user), "--renew", "--renew-time-period", argument, *hmac)
    tools.run("kafka-delegation-tokens", *alice, "--expire", "--expiry-time-period", "-1", *hmac)
    assert created["TOKENID"] not in tools.run("kafka-delegation-tokens", *alice, "--describe")
    assert refused(client, node, "BOTH", found) == "SaslAuthenticationException"
    with pytest.raises(ToolFailedError, match="DelegationTokenNotFoundException"):
        tools.run("kafka-delegation-tokens", *alice, "--renew", "--renew-time-period", "-1", *hmac)


def token_row(printed: str) -> dict[str, str]:
    """Returns the columns of the one token in the output of the tool."""
    _, table = re.split("^(?=TOKENID)", printed, flags=re.MULTILINE)
    names, row = (line.split() for line in table.splitlines() if line)
    found = dict(zip(names, row, strict=True))
    assert len(base64.b64decode(found["HMAC"])) == 64
    return found
