"""Our clients and commands against the secured listeners of Apache Kafka, with right and wrong settings."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from barnabas.cli.main import run
from barnabas.clients.admin import AsyncKafkaAdminClient, KafkaAdminClient
from barnabas.clients.common.blocking_client import BlockingClient
from barnabas.clients.common.client_security import ClientSecurity
from barnabas.clients.consumer import AsyncKafkaConsumer, KafkaConsumer
from barnabas.clients.producer import AsyncKafkaProducer, KafkaProducer
from barnabas.common.clock import SYSTEM_CLOCK
from barnabas.common.errors import (
    AuthenticationError,
    SaslAuthenticationError,
    SslAuthenticationError,
    UnsupportedSaslMechanismError,
)
from barnabas.spark.client_settings import ClientSettings
from barnabas.spark.cluster_client import ClusterClient
from clients.secured_kafka import SECRET, USER, SecuredKafka
from oracles.java import OracleUnavailableError
from oracles.kafka_server import ensure_available

pytestmark = [pytest.mark.java, pytest.mark.mechanism("A13")]

WAIT_MS = 60_000
WRONG = "wrong-secret-0815"
PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
Settings = dict[str, Any]
Way = Callable[[SecuredKafka], Settings]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    try:
        ensure_available()
    except OracleUnavailableError as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(f"Apache Kafka is not available: {reason}")
        pytest.skip(f"Apache Kafka is not available: {reason}")
    secured = SecuredKafka(tmp_path_factory.mktemp("apache"))
    secured.start()
    try:
        yield secured
    finally:
        secured.stop()


@pytest.fixture(autouse=True)
def no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG, "barnabas")
    yield
    assert SECRET not in caplog.text
    assert WRONG not in caplog.text


@pytest.fixture
def topic() -> str:
    return f"secured-{uuid4().hex[:8]}"


# -- every protocol and mechanism


def with_password(listener: str, mechanism: str) -> Way:
    return lambda kafka: kafka.settings(listener, sasl_mechanism=mechanism, sasl_username=USER, sasl_password=SECRET)


def with_jaas(kafka: SecuredKafka) -> Settings:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    jaas = f'{module} required username="{USER}" password="{SECRET}";'
    return kafka.settings("SASLTLS", sasl_mechanism="SCRAM-SHA-512", sasl_jaas_config=jaas)


def like_librdkafka(kafka: SecuredKafka) -> Settings:
    return {
        "bootstrap_servers": kafka.address("SASLTLS"),
        "security_protocol": "sasl_ssl",
        "sasl_mechanisms": "PLAIN",
        "sasl_username": USER,
        "sasl_password": SECRET,
        "ssl_ca_location": str(kafka.ca),
    }


def like_kafka_python(kafka: SecuredKafka) -> Settings:
    return {
        "bootstrap_servers": [kafka.address("SASLTLS")],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": USER,
        "sasl_plain_password": SECRET,
        "ssl_cafile": str(kafka.ca),
        "ssl_check_hostname": True,
    }


def certificate_in_a_store(kafka: SecuredKafka) -> Settings:
    return kafka.settings("MUTUAL", ssl_keystore_location=str(kafka.client), ssl_keystore_type="PEM")


def certificate_in_two_files(kafka: SecuredKafka) -> Settings:
    return kafka.settings("MUTUAL", ssl_certfile=str(kafka.client_certificate), ssl_keyfile=str(kafka.client_key))


def certificate_in_settings(kafka: SecuredKafka) -> Settings:
    return {
        "bootstrap_servers": kafka.address("MUTUAL"),
        "security_protocol": "SSL",
        "ssl_ca_pem": kafka.ca.read_text(),
        "ssl_certificate_pem": kafka.client_certificate.read_text(),
        "ssl_key_pem": kafka.client_key.read_text(),
    }


def with_token(listener: str) -> Way:
    def settings(kafka: SecuredKafka) -> Settings:
        make = kafka.signed_token if listener == "SASLTLS" else kafka.unsecured_token
        return kafka.settings(listener, sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=make)

    return settings


def with_async_token(kafka: SecuredKafka) -> Settings:
    async def token() -> str:
        await asyncio.sleep(0)
        return kafka.signed_token()

    return kafka.settings("SASLTLS", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=token)


def with_token_object(kafka: SecuredKafka) -> Settings:
    class Provider:
        """As kafka-python has it."""

        def token(self) -> str:
            return kafka.signed_token()

    return kafka.settings("SASLTLS", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=Provider())


WAYS: dict[str, Way] = {
    "SSL": lambda kafka: kafka.settings("TLS"),
    "SSL, client certificate in a store": certificate_in_a_store,
    "SSL, client certificate in two files": certificate_in_two_files,
    "SSL, client certificate in settings": certificate_in_settings,
    **{f"SASL_PLAINTEXT {name}": with_password("SASL", name) for name in PASSWORDS},
    **{f"SASL_SSL {name}": with_password("SASLTLS", name) for name in PASSWORDS},
    "SASL_PLAINTEXT OAUTHBEARER": with_token("SASL"),
    "SASL_SSL OAUTHBEARER": with_token("SASLTLS"),
    "SASL_SSL OAUTHBEARER, coroutine": with_async_token,
    "SASL_SSL OAUTHBEARER, object": with_token_object,
    "SASL_SSL sasl.jaas.config": with_jaas,
    "settings of librdkafka": like_librdkafka,
    "settings of kafka-python": like_kafka_python,
}


def consumed(consumer: KafkaConsumer) -> list[bytes | None]:
    """The values of the first records that come."""
    for _ in range(WAIT_MS // 500):
        records = consumer.poll(500)
        if records:
            return [record.value for record in records]
    raise AssertionError("no record")


@pytest.mark.parametrize("way", WAYS)
def test_records_go_there_and_back(kafka: SecuredKafka, way: str, topic: str) -> None:
    settings = WAYS[way](kafka)
    large = os.urandom(300_000)
    with KafkaAdminClient(**settings) as admin:
        assert admin.describe_cluster().controller is not None
    with KafkaProducer(**settings) as producer:
        assert producer.send(topic, large).result(60).offset == 0
        assert SECRET not in repr(producer.config)
    with KafkaConsumer(topic, **settings, group_id=topic, auto_offset_reset="earliest") as consumer:
        assert consumed(consumer) == [large]
        consumer.commit()


def test_transactions(kafka: SecuredKafka, topic: str) -> None:
    settings = like_librdkafka(kafka)
    with KafkaProducer(**settings, transactional_id=topic) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"tea")
    with KafkaConsumer(
        topic, **settings, group_id=topic, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        assert consumed(consumer) == [b"tea"]


def test_coroutines(kafka: SecuredKafka, topic: str) -> None:
    settings = like_kafka_python(kafka)

    async def there_and_back() -> bytes:
        async with AsyncKafkaAdminClient(**settings) as admin:
            await admin.describe_cluster()
        async with AsyncKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"tea")
        async with AsyncKafkaConsumer(topic, **settings, auto_offset_reset="earliest", group_id=topic) as consumer:
            async for record in consumer:
                return bytes(record.value)
        raise AssertionError("no record")

    assert asyncio.run(asyncio.wait_for(there_and_back(), 60)) == b"tea"


@pytest.mark.mechanism("A09")
def test_clients_authenticate_again(kafka: SecuredKafka, topic: str) -> None:
    """A consumer has requests in flight nearly always, so their responses come in the middle of it."""
    settings = with_password("PLAINONLY", "PLAIN")(kafka)
    with (
        KafkaProducer(**settings) as producer,
        KafkaConsumer(topic, **settings, group_id=topic, auto_offset_reset="earliest") as consumer,
    ):
        read: list[bytes | None] = []
        written: list[bytes] = []
        until = SYSTEM_CLOCK.hi_res_milliseconds() + WAIT_MS
        while min(again(producer), again(consumer)) < 2:
            assert SYSTEM_CLOCK.hi_res_milliseconds() < until
            written.append(b"%d" % len(written))
            producer.send(topic, written[-1]).result(60)
            read += [record.value for record in consumer.poll(200)]
        while len(read) < len(written):
            read += consumed(consumer)
        assert read == written
        assert (again(producer, "failed"), again(consumer, "failed")) == (0, 0)


def again(client: KafkaProducer | KafkaConsumer, outcome: str = "successful") -> float:
    """How often it has authenticated again."""
    group = "producer-metrics" if isinstance(client, KafkaProducer) else "consumer-metrics"
    return float(client.metric(f"{outcome}-reauthentication-total", group))


# -- what is refused


def refusals(settings: Settings) -> list[Exception]:
    """The errors of an admin client, a producer and a consumer."""
    found: list[Exception] = []
    with KafkaAdminClient(**settings) as admin, pytest.raises(AuthenticationError) as refused:
        admin.describe_cluster()
    found.append(refused.value)
    with KafkaProducer(**settings, max_block_ms=WAIT_MS) as producer, pytest.raises(AuthenticationError) as refused:
        producer.send("t", b"x").result(60)
    found.append(refused.value)
    with KafkaConsumer("t", **settings, group_id="g") as consumer, pytest.raises(AuthenticationError) as refused:
        consumed(consumer)
    found.append(refused.value)
    return found


@pytest.mark.parametrize("listener", ["SASL", "SASLTLS"])
@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        ("PLAIN", "Authentication failed: Invalid username or password"),
        (
            "SCRAM-SHA-256",
            "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256",
        ),
    ],
)
def test_a_wrong_password(kafka: SecuredKafka, listener: str, mechanism: str, message: str) -> None:
    wrong = kafka.settings(listener, sasl_mechanism=mechanism, sasl_username=USER, sasl_password=WRONG)
    for error in refusals(wrong):
        assert type(error) is SaslAuthenticationError
        assert message in str(error)
        assert WRONG not in str(error)


def test_a_mechanism_that_is_not_enabled(kafka: SecuredKafka) -> None:
    for error in refusals(with_password("PLAINONLY", "SCRAM-SHA-256")(kafka)):
        assert type(error) is UnsupportedSaslMechanismError
        assert "'SCRAM-SHA-256' not enabled in the server, enabled mechanisms are [PLAIN]" in str(error)


@pytest.mark.parametrize(
    ("listener", "further", "words"),
    [
        ("TLS", {"ssl_truststore_location": "other-ca.pem"}, ["certificate"]),
        ("ELSEWHERE", {}, ["localhost"]),
        ("EXPIRED", {}, ["expired"]),
        ("MUTUAL", {}, ["certificate", "ssl.keystore"]),
    ],
)
def test_certificates_that_are_refused(kafka: SecuredKafka, listener: str, further: Settings, words: list[str]) -> None:
    settings = kafka.settings(listener)
    settings |= {name: str(kafka.directory / value) for name, value in further.items()}
    for error in refusals(settings):
        assert type(error) is SslAuthenticationError
        assert all(word in str(error) for word in words), error


def test_a_host_name_may_be_left_unchecked(kafka: SecuredKafka) -> None:
    for name, value in (("ssl_endpoint_identification_algorithm", ""), ("ssl_check_hostname", False)):
        with KafkaAdminClient(**kafka.settings("ELSEWHERE", **{name: value})) as admin:
            assert admin.describe_cluster().nodes


def test_a_token_that_is_refused(kafka: SecuredKafka) -> None:
    for claims in ({"aud": "village"}, {"iss": "https://village.example"}):
        wrong = kafka.signed_token(**claims)
        settings = kafka.settings(
            "SASLTLS", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=lambda wrong=wrong: wrong
        )
        with KafkaAdminClient(**settings) as admin, pytest.raises(SaslAuthenticationError) as refused:
            admin.describe_cluster()
        assert json.loads(str(refused.value)[str(refused.value).index("{") :]) == {"status": "invalid_token"}
        assert wrong not in str(refused.value)


def test_a_client_that_waits_is_told_why(kafka: SecuredKafka) -> None:
    wrong = kafka.settings("SASLTLS", sasl_mechanism="PLAIN", sasl_username=USER, sasl_password=WRONG)
    security = ClientSecurity({name.replace("_", "."): value for name, value in wrong.items()})
    refused = pytest.raises(SaslAuthenticationError, match=r"localhost:\d+ failed: .* Invalid username or password")
    with BlockingClient(kafka.address("SASLTLS"), channel_factory=security.channel_factory()) as client, refused:
        client.nodes()


def test_the_client_of_spark(kafka: SecuredKafka) -> None:
    settings = {f"kafka.{name.replace('_', '.')}": value for name, value in with_jaas(kafka).items()}
    client = ClientSettings.of(settings)
    assert SECRET not in repr(client)
    with ClusterClient(client) as cluster:
        assert cluster.nodes()
    wrong = ClientSettings.of(
        settings | {"kafka.sasl.jaas.config": settings["kafka.sasl.jaas.config"].replace(SECRET, WRONG)}
    )
    with ClusterClient(wrong) as cluster, pytest.raises(SaslAuthenticationError, match="invalid credentials"):
        cluster.nodes()


# -- commands


@pytest.fixture
def config_file(kafka: SecuredKafka, tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    settings = with_jaas(kafka)
    path.write_text("".join(f"{name.replace('_', '.')}={value}\n" for name, value in settings.items()))
    path.chmod(0o600)
    return path


def test_commands(
    kafka: SecuredKafka, config_file: Path, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("tea\n")
    config = ("--command-config", str(config_file))
    assert run(["topics", "create", topic, *config]) == 0
    assert run(["produce", topic, "-f", str(lines), *config]) == 0
    assert run(["consume", topic, "-B", "-e", *config]) == 0
    assert run(["quotas", "list", *config]) == 0
    assert run(["doctor", *config]) == 0, capsys.readouterr().out
    out = capsys.readouterr().out
    assert "tea" in out
    assert "authenticated with SCRAM-SHA-512" in out
    assert "TLSv1.3, CN=broker,O=Castle" in out
    assert run(["topics", "list", *config, "-X", "sasl.mechanism=PLAIN"]) == 2
    assert "the login module of PLAIN is" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "list"),
        ("quotas", "list"),
        ("consume", "t"),
        ("perf", "produce", "--topic", "t", "--num-records", "1", "--record-size", "1"),
        ("perf", "consume", "--topic", "t", "--num-records", "1"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_a_command_that_is_refused(
    kafka: SecuredKafka, command: tuple[str, ...], config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config_file.write_text(config_file.read_text().replace(SECRET, WRONG))
    assert run([*command, "--command-config", str(config_file)]) == 1
    out, err = capsys.readouterr()
    assert "due to invalid credentials with SASL mechanism SCRAM-SHA-512" in err
    assert err.count("\n") == 1
    assert WRONG not in out + err
    assert run([*command, "-b", kafka.address("SASLTLS"), "-X", "security.protocol=SSL"]) == 1
    assert "certificate is not accepted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("listener", "settings", "step", "words"),
    [
        ("TLS", {"ssl.truststore.location": "other-ca.pem"}, "tls", ["CN=Castle CA,O=Castle, which is not in the"]),
        ("ELSEWHERE", {}, "tls", ["certificate is for elsewhere.example, not for localhost"]),
        ("EXPIRED", {}, "tls", ["certificate has expired on", "clock shows"]),
        ("MUTUAL", {}, "protocol", ["requires a certificate"]),
        ("PLAINTEXT", {"security.protocol": "SSL"}, "tls", ["the listener does not use TLS"]),
        ("TLS", {"security.protocol": "PLAINTEXT"}, "protocol", ["the listener uses TLS"]),
        ("SASL", {"security.protocol": "PLAINTEXT"}, "sasl", ["requires authentication by SASL: ", "SCRAM-SHA-512"]),
        ("SASLTLS", {"security.protocol": "SSL"}, "sasl", ["requires authentication by SASL: "]),
        (
            "PLAINONLY",
            {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": USER, "sasl.password": SECRET},
            "sasl",
            ["does not enable SCRAM-SHA-256; it enables PLAIN"],
        ),
        (
            "SASLTLS",
            {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": USER, "sasl.password": WRONG},
            "sasl",
            ["refuses the credentials"],
        ),
    ],
)
def test_the_doctor_says_what_is_wrong(
    kafka: SecuredKafka,
    listener: str,
    settings: Settings,
    step: str,
    words: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = {name.replace("_", "."): value for name, value in kafka.settings(listener).items()}
    given |= {"ssl.truststore.location": str(kafka.ca), "ssl.truststore.type": "PEM"} | settings
    if "other" in given["ssl.truststore.location"]:
        given["ssl.truststore.location"] = str(kafka.other_ca)
    options = [word for name, value in given.items() for word in ("-X", f"{name}={value}")]
    assert run(["doctor", "--json", "--timeout", "20", *options]) == 1
    out, err = capsys.readouterr()
    finding = {one["step"]: one for one in json.loads(out)}[f"{step} localhost:{kafka.ports[listener]}"]
    assert finding["status"] == "error"
    assert all(word in finding["what"] for word in words), finding
    assert finding["remedy"]
    assert SECRET not in out + err
    assert WRONG not in out + err
