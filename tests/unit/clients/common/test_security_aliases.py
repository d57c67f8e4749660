"""Names of other Python clients for Kafka's security settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.clients.admin.admin_config import AdminClientConfig
from barnabas.clients.common.client_config import client_properties, refuse_unknown
from barnabas.clients.common.security_aliases import ALIASES, NAMES, with_kafka_names
from barnabas.clients.consumer.consumer_config import ConsumerConfig
from barnabas.clients.producer.producer_config import CONFIG, ProducerConfig
from barnabas.common.config_def import ConfigError, Password

pytestmark = pytest.mark.mechanism("A13")

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def plain(properties: dict[str, object]) -> dict[str, object]:
    return {name: value.value if isinstance(value, Password) else value for name, value in properties.items()}


def test_each_alias_stands_for_settings_of_kafka() -> None:
    for name, alias in ALIASES.items():
        assert name not in CONFIG.keys
        assert alias.kafka in CONFIG.keys or alias.kafka in NAMES, name
        assert alias.type_setting is None or alias.type_setting in CONFIG.keys


def test_settings_without_aliases_stay_as_they_are() -> None:
    properties = {"security.protocol": "SSL", "ssl.keystore.location": "a.jks", "linger.ms": 5}
    assert with_kafka_names(properties) == properties


@pytest.mark.parametrize(
    ("user", "password"), [("sasl_username", "sasl_password"), ("sasl_plain_username", "sasl_plain_password")]
)
@pytest.mark.parametrize("config", [ProducerConfig, ConsumerConfig, AdminClientConfig])
def test_credentials_become_a_jaas_configuration(config: Any, user: str, password: str) -> None:
    made = config.of(
        bootstrap_servers="a:1",
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        **{user: "alice", password: 'tricky "\\;'},
    )
    jaas = made.values.get_password("sasl.jaas.config").value
    assert jaas == rf'{SCRAM} required username="alice" password="tricky \"\\;";'
    assert "tricky" not in repr(made), "no secret in what is shown"


def test_trusted_certificates_of_a_file_are_a_pem_store() -> None:
    for name in ("ssl_cafile", "ssl_ca_location"):
        assert client_properties(None, {name: "ca.pem"}) == {
            "ssl.truststore.location": "ca.pem",
            "ssl.truststore.type": "PEM",
        }


def test_certificate_and_key_of_two_files(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("CERT")
    (tmp_path / "key.pem").write_text("KEY")
    for certificate, key in (("ssl.certfile", "ssl.keyfile"), ("ssl.certificate.location", "ssl.key.location")):
        found = with_kafka_names({certificate: str(tmp_path / "cert.pem"), key: str(tmp_path / "key.pem")})
        assert plain(found) == {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": "CERT",
            "ssl.keystore.key": "KEY",
        }
        assert "KEY" not in repr(found)


def test_certificate_and_key_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / "both.pem"
    path.write_text("both")
    assert with_kafka_names({"ssl.certfile": str(path)}) == {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(path),
    }


def test_host_names_can_be_left_unchecked() -> None:
    name = "ssl.endpoint.identification.algorithm"
    assert client_properties(None, {"ssl_check_hostname": False}) == {name: ""}
    assert client_properties(None, {"ssl_check_hostname": True}) == {name: "https"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"ssl.cafile": "a", "ssl.truststore.location": "b"},
            "ssl.cafile cannot be given together with ssl.truststore",
        ),
        ({"ssl.cafile": "a", "ssl.ca.location": "b"}, "ssl.ca.location cannot be given together with ssl.cafile"),
        ({"ssl.cafile": "a", "ssl.truststore.type": "JKS"}, "cannot be given together with ssl.truststore.type"),
        ({"sasl.mechanisms": "PLAIN", "sasl.mechanism": "PLAIN"}, "both set sasl.mechanism"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "hidden", "sasl.jaas.config": "hidden"},
            "sasl.username cannot be given together with sasl.jaas.config",
        ),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "a"}, "sasl.username needs sasl.password as well"),
        ({"sasl.mechanism": "PLAIN", "sasl.password": "hidden"}, "sasl.password needs sasl.username as well"),
        ({"sasl.username": "a", "sasl.password": "hidden"}, "need sasl.mechanism to be one of PLAIN, SCRAM-SHA-256"),
        (
            {"sasl.mechanism": "OAUTHBEARER", "sasl.username": "a", "sasl.password": "hidden"},
            "SCRAM-SHA-512, not OAUTHBEARER",
        ),
        ({"ssl.keyfile": "/nowhere/key.pem"}, "ssl.keyfile: cannot read /nowhere/key.pem: No such file"),
        ({"ssl.check.hostname": "maybe"}, "it must be true or false"),
    ],
)
def test_contradictions(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        with_kafka_names(settings)
    assert message in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_a_key_file_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "key.der"
    path.write_bytes(b"\x30\x82\xff")
    with pytest.raises(ConfigError, match="is not a PEM file: byte 1 is not ASCII"):
        with_kafka_names({"ssl.keyfile": str(path)})
    path.write_bytes(b"-" * ((1 << 20) + 1))
    with pytest.raises(ConfigError, match="too large"):
        with_kafka_names({"ssl.keyfile": str(path)})


def test_java_classes_of_kafka_may_stay_in_a_file() -> None:
    name = "sasl.login.callback.handler.class"
    java = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    assert with_kafka_names({name: java, "linger.ms": 5}) == {"linger.ms": 5}
    assert with_kafka_names({name: "my.Handler"}) == {name: "my.Handler"}


def test_keywords_with_other_names_are_known() -> None:
    refuse_unknown(["ssl_cafile", "sasl_plain_username", "sasl_oauth_token_provider", "linger_ms"], CONFIG)
    with pytest.raises(TypeError, match="there is no setting ssl_cfile"):
        refuse_unknown(["ssl_cfile"], CONFIG)


@given(st.dictionaries(st.sampled_from(sorted(NAMES)), st.sampled_from(["PLAIN", "true", "x"])))
def test_any_combination_is_translated_or_refused(settings: dict[str, object]) -> None:
    try:
        found = with_kafka_names(settings)
    except ConfigError:
        return
    assert not found.keys() & ALIASES.keys()
