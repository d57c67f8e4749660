"""GSSAPI with a real key distribution centre: our clients, the Java client and kafka-python at a broker of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks.waiting import until

from barnabas import EmbeddedBroker, KafkaAdminClient, KafkaConsumer, KafkaProducer
from barnabas.common.errors import InvalidConfigurationError, SaslAuthenticationError
from oracles.java import OracleUnavailableError
from oracles.java_client import JavaClient
from oracles.kafka_server import free_ports

pytestmark = pytest.mark.nightly
gssapi = pytest.importorskip("gssapi", reason="pip install 'barnabas[gssapi]'")

REALM: Final = "CASTLE.EXAMPLE"
SERVICE: Final = f"kafka/localhost@{REALM}"
MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule required"
WAIT_S: Final = 60


class Kdc:
    """A key distribution centre on this machine, with a keytab for each principal."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_ports(1)[0]
        self.conf = directory / "krb5.conf"
        self.conf.write_text(
            f"[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_kdc = false\ndns_lookup_realm = false\nrdns = false\n"
            "dns_canonicalize_hostname = false\nudp_preference_limit = 1\n"
            f"[realms]\n{REALM} = {{\nkdc = 127.0.0.1:{self.port}\n}}\n"
        )
        profile = directory / "kdc.conf"
        profile.write_text(
            f"[realms]\n{REALM} = {{\ndatabase_name = {directory}/principal\nkey_stash_file = {directory}/stash\n"
            f"acl_file = {directory}/acl\nkdc_listen = 127.0.0.1:{self.port}\n"
            f"kdc_tcp_listen = 127.0.0.1:{self.port}\n}}\n"
        )
        self.environment = {**os.environ, "KRB5_CONFIG": str(self.conf), "KRB5_KDC_PROFILE": str(profile)}
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, *command: str) -> None:
        subprocess.run([*command], env=self.environment, check=True, capture_output=True, timeout=WAIT_S)

    def keytab(self, principal: str) -> Path:
        """Adds a principal and returns its keytab."""
        path = self.directory / f"{principal.partition('@')[0].replace('/', '-')}.keytab"
        self.run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
        self.run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {path} {principal}")
        return path

    def start(self) -> None:
        self.run("kdb5_util", "create", "-s", "-P", "master", "-r", REALM)
        command = ["krb5kdc", "-n", "-r", REALM, "-P", str(self.directory / "pid")]
        self._process = subprocess.Popen(command, env=self.environment, stderr=subprocess.DEVNULL)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(WAIT_S)


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    missing = [name for name in ("krb5kdc", "kdb5_util", "kadmin.local") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)} on the PATH (Debian: krb5-kdc, krb5-admin-server)")
    made = Kdc(tmp_path_factory.mktemp("kdc"))
    patch = pytest.MonkeyPatch()
    patch.setenv("KRB5_CONFIG", str(made.conf))
    try:
        made.start()
        yield made
    finally:
        made.stop()
        patch.undo()


@pytest.fixture(scope="module")
def alice(kdc: Kdc) -> Path:
    return kdc.keytab(f"alice@{REALM}")


@pytest.fixture(scope="module")
def node(kdc: Kdc) -> Iterator[EmbeddedBroker]:
    keytab = kdc.keytab(SERVICE)
    overrides = {
        "listeners": "KERBEROS://127.0.0.1:0,PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "advertised.listeners": "KERBEROS://localhost:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "KERBEROS:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.kerberos.gssapi.sasl.jaas.config": f'{MODULE} useKeyTab=true storeKey=true keyTab="{keytab}" '
        f'principal="{SERVICE}";',
        "connection.failed.authentication.delay.ms": "1",
    }
    with EmbeddedBroker(overrides=overrides) as running:
        yield running


def settings(node: EmbeddedBroker, keytab: Path, principal: str = "alice") -> dict[str, Any]:
    return {
        "bootstrap.servers": node.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": f'{MODULE} useKeyTab=true keyTab="{keytab}" principal="{principal}@{REALM}";',
    }


def principals(node: EmbeddedBroker) -> set[str]:
    server = node.server.broker
    assert server is not None
    return {
        str(channel.context.principal)
        for processor in server.processors
        if processor.endpoint.listener_name == "KERBEROS"
        for channel in list(processor.selector.channels.values())
        if channel.context is not None
    }


def test_our_clients(node: EmbeddedBroker, alice: Path) -> None:
    found = settings(node, alice)
    with KafkaProducer(found) as producer:
        producer.send("letters", b"hello").result(WAIT_S)
        assert principals(node) == {"User:alice"}
    with KafkaConsumer({**found, "auto.offset.reset": "earliest"}, "letters") as consumer:
        (batch,) = consumer.poll(timeout_ms=WAIT_S * 1000).values()
        assert [record.value for record in batch][:1] == [b"hello"]


def test_a_ticket_cache(node: EmbeddedBroker, kdc: Kdc, alice: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    kdc.run("kinit", "-k", "-t", str(alice), "-c", str(cache), f"alice@{REALM}")
    found = {**settings(node, alice), "sasl.jaas.config": f'{MODULE} useTicketCache=true ticketCache="{cache}";'}
    with KafkaAdminClient(found) as admin:
        assert admin.describe_cluster().nodes


def test_keys_that_the_service_does_not_have(node: EmbeddedBroker, kdc: Kdc, alice: Path) -> None:
    """The ticket is for another key of the service than that in the broker's keytab."""
    kdc.run("kadmin.local", "-r", REALM, "-q", "addprinc -randkey other/localhost")
    found = {**settings(node, alice), "sasl.kerberos.service.name": "other"}
    with KafkaAdminClient(found) as admin, pytest.raises(SaslAuthenticationError):
        admin.describe_cluster()
    wrong = settings(node, alice, "nobody")
    with KafkaAdminClient(wrong) as admin, pytest.raises(SaslAuthenticationError):
        admin.describe_cluster()


def test_a_keytab_without_the_key_of_the_service(kdc: Kdc, alice: Path) -> None:
    overrides = {
        "listeners": "KERBEROS://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "KERBEROS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "KERBEROS",
        "sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.kerberos.gssapi.sasl.jaas.config": f'{MODULE} keyTab="{alice}" principal="{SERVICE}";',
    }
    assert kdc.port
    with pytest.raises(InvalidConfigurationError, match="cannot use the keys"), EmbeddedBroker(overrides=overrides):
        pass


@pytest.mark.java
def test_the_java_client(node: EmbeddedBroker, kdc: Kdc, alice: Path) -> None:
    try:
        client = JavaClient()
    except OracleUnavailableError as reason:
        pytest.skip(str(reason))
    found = {name: value for name, value in settings(node, alice).items() if name != "bootstrap.servers"}
    with client:
        client.ask("set_property", "", name="java.security.krb5.conf", value=str(kdc.conf))
        ((_, offset, _),) = client.produce(
            node.bootstrap_servers, "letters", [{"value": "from Java"}], found, name="kept"
        )
        until(lambda: principals(node) == {"User:alice"})
        (record,) = client.consume(node.bootstrap_servers, {"letters-0": offset}, 1, found)
        assert record["value"] == "from Java"


def test_kafka_python(
    node: EmbeddedBroker, kdc: Kdc, alice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import kafka

    cache = tmp_path / "cache"
    kdc.run("kinit", "-k", "-t", str(alice), "-c", str(cache), f"alice@{REALM}")
    monkeypatch.setenv("KRB5CCNAME", str(cache))
    admin = kafka.KafkaAdminClient(
        bootstrap_servers=node.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="GSSAPI",
        sasl_kerberos_service_name="kafka",
        sasl_kerberos_domain_name="localhost",
    )
    with closing(admin):
        assert admin.list_topics() is not None
        assert principals(node) == {"User:alice"}
