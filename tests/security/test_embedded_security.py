"""A secured broker in one line: `EmbeddedBroker(security=...)`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barnabas import EmbeddedBroker, KafkaConsumer, KafkaProducer
from barnabas.common.errors import AuthenticationError, InvalidConfigurationError, SaslAuthenticationError
from barnabas.security.tls.local_authority import LocalAuthority

WAIT_S = 60


@pytest.mark.mechanism("A01", "A06", "A13")
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_the_settings_of_the_broker_are_all_that_a_client_needs(protocol: str) -> None:
    with EmbeddedBroker(security=protocol) as broker:
        with KafkaProducer(broker.client_settings) as producer:
            producer.send("letters", b"hello").result(WAIT_S)
        with KafkaConsumer({**broker.client_settings, "auto.offset.reset": "earliest"}, "letters") as consumer:
            (batch,) = consumer.poll(timeout_ms=WAIT_S * 1000).values()
            assert [record.value for record in batch] == [b"hello"]


def test_the_fixture(barnabas_secured_broker: EmbeddedBroker) -> None:
    assert barnabas_secured_broker.client_settings["security.protocol"] == "SASL_SSL"
    with KafkaProducer(barnabas_secured_broker.client_settings) as producer:
        producer.send("letters", b"hello").result(WAIT_S)


def test_the_python_of_the_page_on_security(capfd: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(block, "docs/security.md", "exec"), {})
    assert "Traceback" not in capfd.readouterr().err


def test_the_users_are_those_that_were_given() -> None:
    with EmbeddedBroker(security="SASL_PLAINTEXT", users={"alice": "a-secret", "bob": "b-secret"}) as broker:
        for name, password, gets_in in [("bob", "b-secret", True), ("bob", "a-secret", False)]:
            settings = broker.client_settings
            settings["sasl.jaas.config"] = re.sub(
                "username=.*;", f'username="{name}" password="{password}";', settings["sasl.jaas.config"]
            )
            with KafkaProducer(settings) as producer:
                if gets_in:
                    producer.send("letters", b"hello").result(WAIT_S)
                else:
                    with pytest.raises(SaslAuthenticationError):
                        producer.send("letters", b"hello").result(WAIT_S)


def test_a_client_of_another_authority_does_not_trust_it() -> None:
    with EmbeddedBroker(security="SSL") as broker:
        settings = {**broker.client_settings, "ssl.truststore.certificates": LocalAuthority.create("another").pem}
        with KafkaProducer(settings) as producer, pytest.raises(AuthenticationError):
            producer.send("letters", b"hello").result(WAIT_S)


@pytest.mark.mechanism("A12")
def test_secrets_are_not_shown() -> None:
    broker = EmbeddedBroker(security="SASL_SSL", users={"alice": "a-secret"})
    assert "a-secret" not in repr(broker) + repr(vars(broker))
    assert "PRIVATE KEY" not in repr(broker) + repr(vars(broker))


def test_bad_arguments() -> None:
    with pytest.raises(InvalidConfigurationError, match="security must be one of PLAINTEXT, SSL"):
        EmbeddedBroker(security="TLS")
    with pytest.raises(InvalidConfigurationError, match="commas"):
        EmbeddedBroker(security="SASL_SSL", users={"alice": "a,b"})
