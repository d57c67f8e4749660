"""A node whose listeners are secured in every way, and clients of two projects on each of them (A01-A11)."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from barnabas import EmbeddedBroker, KafkaAdminClient, KafkaConsumer
from barnabas.clients.admin import (
    AlterConfigOp,
    ConfigResource,
    ScramCredentialUpsertion,
    ScramMechanism,
)
from barnabas.common.errors import (
    AuthenticationError,
    InvalidConfigurationError,
    InvalidRequestError,
    SaslAuthenticationError,
    TopicAuthorizationError,
)
from secured_node import (
    ADMIN,
    ALICE,
    JAAS,
    PROTOCOLS,
    WAIT_S,
    address,
    secured,
    secured_node,
    send,
    settings,
    store,
    with_certificate,
)
from tls_fixtures import LOCAL, PKI


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with secured_node(tmp_path_factory.mktemp("security")) as running:
        yield running


@pytest.mark.mechanism("A01", "A03", "A04", "A05", "A11")
@pytest.mark.parametrize("listener", PROTOCOLS)
def test_our_clients_write_and_read_as_the_user_that_they_are(
    node: EmbeddedBroker, tmp_path: Path, listener: str
) -> None:
    found = secured(node, tmp_path, listener, None if listener == "TLS" else ALICE)
    if listener == "TLS":
        found |= with_certificate(tmp_path)
    offset = send(found)
    with KafkaConsumer("letters", auto_offset_reset="earliest", **found) as consumer:
        assert any(record.offset == offset for record in _polled(consumer, offset))


def _polled(consumer: KafkaConsumer, offset: int) -> list[Any]:
    records: list[Any] = []
    while not any(record.offset == offset for record in records):
        records += [one for batch in consumer.poll(timeout_ms=WAIT_S * 1000).values() for one in batch]
    return records


@pytest.mark.mechanism("A01", "A03", "A11")
def test_without_a_certificate_a_tls_client_is_anonymous(node: EmbeddedBroker, tmp_path: Path) -> None:
    with pytest.raises(TopicAuthorizationError):
        send(secured(node, tmp_path, "TLS"))


@pytest.mark.mechanism("A05")
@pytest.mark.parametrize("user", [("alice", "wrong"), ("nobody", "alice-secret")])
def test_a_wrong_password_and_an_unknown_user_are_refused_alike(
    node: EmbeddedBroker, tmp_path: Path, user: tuple[str, str]
) -> None:
    with pytest.raises(SaslAuthenticationError, match="Authentication failed: Invalid username or password"):
        send(secured(node, tmp_path, "BOTH", user))


@pytest.mark.mechanism("A01")
def test_a_broker_of_another_authority_is_not_trusted(node: EmbeddedBroker, tmp_path: Path) -> None:
    found = secured(node, tmp_path, "TLS")
    other = tmp_path / "other.pem"
    other.write_text(PKI.other_authority.pem)
    with pytest.raises(AuthenticationError):
        send({**found, "ssl_truststore_location": str(other)})


@pytest.mark.mechanism("A06")
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_new_scram_user_gets_in_at_once_and_a_deleted_one_does_not(
    node: EmbeddedBroker, tmp_path: Path, mechanism: str
) -> None:
    with KafkaAdminClient(**secured(node, tmp_path, "PASSWORDS", ADMIN)) as admin:
        kind = ScramMechanism[mechanism.replace("-", "_")]
        admin.alter_user_scram_credentials([ScramCredentialUpsertion("alice", kind, b"scram-secret")])
        found = secured(node, tmp_path, "BOTH", ("alice", "scram-secret")) | {"sasl_mechanism": mechanism}
        send(found)
        admin.alter_user_scram_credentials([ScramCredentialUpsertion("alice", kind, b"another-secret")])
        with pytest.raises(SaslAuthenticationError):
            send(found)


@pytest.mark.mechanism("A08")
def test_a_delegation_token_authenticates_as_its_owner(node: EmbeddedBroker, tmp_path: Path) -> None:
    with KafkaAdminClient(**secured(node, tmp_path, "BOTH", ALICE)) as admin:
        token = admin.create_delegation_token()
        assert token.owner == "User:alice"
    found = secured(node, tmp_path, "BOTH") | {
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_jaas_config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{token.token_id}" password="{token.password}" tokenauth="true";',
    }
    send(found)
    with KafkaAdminClient(**secured(node, tmp_path, "BOTH", ALICE)) as admin:
        admin.expire_delegation_token(token.hmac)
    with pytest.raises(SaslAuthenticationError):
        send(found)


@pytest.mark.mechanism("A04", "A05")
def test_users_of_a_listener_change_while_it_runs(node: EmbeddedBroker, tmp_path: Path) -> None:
    setting = "listener.name.passwords.plain.sasl.jaas.config"
    newcomer = JAAS.replace(";", ' user_carol="carol-secret";')
    with KafkaAdminClient(**secured(node, tmp_path, "PASSWORDS", ADMIN)) as admin:
        broker = ConfigResource.broker(1)
        admin.incremental_alter_configs({broker: [AlterConfigOp(setting, newcomer)]})
        with KafkaAdminClient(**secured(node, tmp_path, "PASSWORDS", ("carol", "carol-secret"))) as carol:
            carol.describe_cluster()
        described = admin.describe_configs([broker])[broker][setting]
        assert described.value is None, "a secret is never shown"
        admin.incremental_alter_configs({broker: {setting: None}})
    with (
        pytest.raises(SaslAuthenticationError),
        KafkaAdminClient(**secured(node, tmp_path, "PASSWORDS", ("carol", "carol-secret"))) as carol,
    ):
        carol.describe_cluster()


@pytest.mark.mechanism("A02")
def test_a_key_store_is_replaced_while_the_listener_runs(node: EmbeddedBroker, tmp_path: Path) -> None:
    before = certificate_of(node, "TLS")
    setting = "listener.name.tls.ssl.keystore.location"
    renewed = PKI.authority.issue("CN=broker,O=Castle", LOCAL)
    with KafkaAdminClient(**secured(node, tmp_path, "PASSWORDS", ADMIN)) as admin:
        broker = ConfigResource.broker(1)
        admin.incremental_alter_configs({broker: {setting: str(store(tmp_path, renewed, "renewed"))}})
        assert certificate_of(node, "TLS") == renewed.der
        assert certificate_of(node, "BOTH") == before, "the other listeners keep theirs"
        other = store(tmp_path, PKI.authority.issue("CN=somebody-else", LOCAL), "other")
        with pytest.raises(InvalidRequestError, match="DistinguishedName does not match"):
            admin.incremental_alter_configs({broker: {setting: str(other)}})
        admin.incremental_alter_configs({broker: {setting: None}})
    assert certificate_of(node, "TLS") == before


def certificate_of(node: EmbeddedBroker, listener: str) -> bytes:
    host, _, port = address(node, listener).rpartition(":")
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, int(port))))


# -- another project's client


@pytest.mark.mechanism("A01", "A04", "A05")
@pytest.mark.parametrize("listener", PROTOCOLS)
def test_librdkafka_gets_in(node: EmbeddedBroker, tmp_path: Path, listener: str) -> None:
    authority, client = tmp_path / "authority.pem", store(tmp_path, PKI.client, "client")
    authority.write_text(PKI.authority.pem)
    found: dict[str, Any] = {
        "bootstrap.servers": address(node, listener),
        "security.protocol": PROTOCOLS[listener],
        "ssl.ca.location": str(authority),
    }
    if listener == "TLS":
        found |= {"ssl.certificate.location": str(client), "ssl.key.location": str(client)}
    else:
        found |= {"sasl.mechanisms": "PLAIN", "sasl.username": ALICE[0], "sasl.password": ALICE[1]}
    assert "letters" in AdminClient(found).list_topics(timeout=WAIT_S).topics
    delivered: list[Any] = []
    producer = confluent_kafka.Producer(found)
    producer.produce("letters", b"from C", on_delivery=lambda error, _message: delivered.append(error))
    assert producer.flush(WAIT_S) == 0
    assert delivered == [None]


def test_settings_that_cannot_work_are_refused_at_the_start(tmp_path: Path) -> None:
    good = settings(tmp_path)
    refused: list[tuple[dict[str, str], str]] = [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI has no keytab: set listener.name.passwords.gssapi.sasl.jaas"),
        ({"sasl.enabled.mechanisms": "DIGEST-MD5"}, "DIGEST-MD5 is not supported"),
        ({"listener.name.both.plain.sasl.jaas.config": "nonsense"}, "listener.name.both.plain.sasl.jaas.config"),
        ({"ssl.keystore.location": str(tmp_path / "missing.pem")}, "missing.pem"),
        (
            {"sasl.mechanism.controller.protocol": "SCRAM-SHA-256"},
            "listener.name.controller.scram-sha-256.sasl.jaas.config is missing",
        ),
    ]
    for changes, message in refused:
        with pytest.raises(InvalidConfigurationError, match=message), EmbeddedBroker(overrides=good | changes):
            pass
