"""Channel factories: TLS listeners and clients as broker and clients build them, with openssl on the other side."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.broker_process import free_port
from cryptography.hazmat.primitives.serialization import pkcs12

from barnabas.common.config_def import Password
from barnabas.network.reactor.channel import ANONYMOUS as NO_AUTHENTICATION
from barnabas.network.reactor.channel import channel_principal
from barnabas.network.reactor.channel_factory import ChannelFactory
from barnabas.network.reactor.selector import Selector
from barnabas.network.reactor.send import NetworkSend
from barnabas.network.transport.handshakes import HandshakePool
from barnabas.security.channel_factories import (
    sasl_plaintext_channel_factory,
    tls_client_channel_factory,
    tls_server_channel_factory,
)
from barnabas.security.principal import ANONYMOUS, KafkaPrincipal
from barnabas.security.tls.principal import CertificatePrincipalBuilder
from barnabas.security.tls.ssl_config import SslSettings
from barnabas.security.tls.ssl_factory import Mode, SslFactory
from network_fixtures import nothing_left_behind, tcp_pair
from oracles.line_program import LineProgram
from tls_fixtures import LOCAL, PKI, Identity, encryption
from unit.network.reactor.selector_bench import framed
from unit.network.reactor.tls_echo import WAIT_S, EchoServer, ask
from unit.security.tls.java_tls import java, unavailable

__all__ = ["java"]

pytestmark = pytest.mark.mechanism("A01")


def settings_of(identity: Identity | None, **given: Any) -> SslSettings:
    values: dict[str, Any] = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": Password(PKI.authority.pem),
        **{f"ssl.{name.replace('_', '.')}": value for name, value in given.items()},
    }
    if identity is not None:
        values["ssl.keystore.type"] = "PEM"
        values["ssl.keystore.key"] = Password(identity.key_pem())
        values["ssl.keystore.certificate.chain"] = Password(identity.chain_pem)
    return SslSettings.of(values)


def server_side(**given: Any) -> SslFactory:
    return SslFactory(settings_of(PKI.server, **given), Mode.SERVER)


def client_side(identity: Identity | None = None, **given: Any) -> SslFactory:
    return SslFactory(settings_of(identity, **given), Mode.CLIENT)


@contextlib.contextmanager
def serving(factory: SslFactory, **given: Any) -> Iterator[EchoServer]:
    with nothing_left_behind():
        pool = HandshakePool(1)
        server = EchoServer(tls_server_channel_factory(factory, handshakes=pool, **given))
        try:
            yield server
        finally:
            server.close()
            pool.close()


def connect(port: int, factory: ChannelFactory) -> Selector:
    selector = Selector(channel_factory=factory)
    selector.connect("0", ("127.0.0.1", port), family=socket.AF_INET, send_buffer=-1, receive_buffer=-1)
    while not selector.is_channel_ready("0"):
        selector.poll(1000)
        if selector.disconnected:
            ((channel, _),) = selector.disconnected
            selector.close_all()
            assert channel.error is not None
            raise channel.error
    return selector


def exchange(selector: Selector, payload: bytes) -> None:
    channel = selector.channels["0"]
    selector.send(channel, NetworkSend([framed(payload)]))
    while not selector.completed_receives:
        selector.poll(1000)
        assert not selector.disconnected
    assert [bytes(received) for _, received in selector.completed_receives] == [payload]


@pytest.mark.mechanism("A03")
@pytest.mark.parametrize(
    ("identity", "rules", "principal"),
    [
        (None, "DEFAULT", ANONYMOUS),
        (PKI.client, "DEFAULT", KafkaPrincipal("User", "CN=alice,OU=Messengers,O=Castle")),
        (PKI.client, "RULE:^CN=(.*?),.*$/$1/U", KafkaPrincipal("User", "ALICE")),
    ],
    ids=["anonymous", "default", "mapped"],
)
def test_a_client_has_its_principal(identity: Identity | None, rules: str, principal: KafkaPrincipal) -> None:
    with serving(server_side(client_auth="requested"), principal_builder=CertificatePrincipalBuilder(rules)) as server:
        client = connect(server.port, tls_client_channel_factory(client_side(identity), lambda _: "localhost"))
        exchange(client, b"question")
        ((_, channel),) = server.selector.channels.items()
        assert channel_principal(channel) == principal
        client.close_all()


@pytest.mark.parametrize("host", ["localhost", "localhost.", "127.0.0.1", "[::1]", "::1%lo"])
def test_host_names_of_nodes_are_those_of_certificates(host: str) -> None:
    with serving(server_side()) as server:
        client = connect(server.port, tls_client_channel_factory(client_side(), lambda _: host))
        exchange(client, b"question")
        client.close_all()
        with pytest.raises(Exception, match="not valid for 'elsewhere'"):
            connect(server.port, tls_client_channel_factory(client_side(), lambda _: "elsewhere"))


@pytest.mark.parametrize("host", ["", ".castle.example", "a" * 300 + ".example", "."])
def test_a_host_name_that_no_certificate_has_is_an_error_of_the_connection(host: str) -> None:
    factory = tls_client_channel_factory(client_side(), lambda _: host)
    with tcp_pair() as (_, sock), pytest.raises(OSError, match="is not a valid host name of a certificate"):
        factory("0", sock)


def test_a_host_name_may_come_with_the_connection() -> None:
    factory: Any = tls_client_channel_factory(client_side())
    with tcp_pair() as (_, sock):
        transport, _ = factory("0", sock, "localhost")
        assert transport._engine.server_hostname == "localhost"
        with pytest.raises(OSError, match="is not a valid host name"):
            factory("0", sock)


@pytest.mark.mechanism("A02")
def test_a_new_certificate_is_for_new_connections() -> None:
    factory = server_side()
    with serving(factory) as server:
        hosts = tls_client_channel_factory(client_side(), lambda _: "localhost")
        old = connect(server.port, hosts)
        renewed = PKI.authority.issue("CN=broker,O=Castle", LOCAL)
        factory.reconfigure(settings_of(renewed))
        new = connect(server.port, hosts)
        assert old.channels["0"].transport.peer_certificate == PKI.server.der
        assert new.channels["0"].transport.peer_certificate == renewed.der
        exchange(old, b"old")
        exchange(new, b"new")
        old.close_all()
        new.close_all()


def test_sasl_gets_the_transport() -> None:
    made: list[Any] = []

    def authenticator(channel_id: str, transport: Any) -> Any:
        made.append((channel_id, transport))
        return NO_AUTHENTICATION

    with tcp_pair() as (one, other):
        for factory, sock in (
            (tls_server_channel_factory(server_side(), authenticator=authenticator), one),
            (tls_client_channel_factory(client_side(), lambda _: "localhost", authenticator=authenticator), other),
        ):
            transport, chosen = factory("id", sock)
            assert made[-1] == ("id", transport)
            assert chosen is NO_AUTHENTICATION
        transport, _ = sasl_plaintext_channel_factory(authenticator)("id", one)
        assert made[-1] == ("id", transport)
        assert transport.is_ready


# ---------------------------------------------------------------------------------------------------- Java


def java_stores(directory: Path, identity: Identity) -> dict[str, str]:
    keys, trusted = directory / "keys.p12", directory / "trusted.p12"
    keys.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"client", identity.key, identity.certificate, [PKI.authority.certificate], encryption("amalia")
        )
    )
    trusted.write_bytes(
        pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(PKI.authority.certificate, b"ca")], encryption("amalia")
        )
    )
    return {"keystore": str(keys), "truststore": str(trusted), "password": "amalia"}


@pytest.mark.java
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_java_as_client(java: LineProgram, tmp_path: Path, version: str) -> None:
    stores = java_stores(tmp_path, PKI.client)
    with serving(server_side(client_auth="required")) as server:
        for size in (0, 1000, 2_000_000):
            answer = java.ask({"op": "ask", "port": server.port, "version": version, "size": size, **stores})
            assert answer.get("result", "").startswith(f"{version} TLS_"), answer
        stores = java_stores(tmp_path, PKI.expired)
        answer = java.ask({"op": "ask", "port": server.port, "version": version, "size": 1, **stores})
        assert "error" in answer


# ---------------------------------------------------------------------------------------------------- openssl


def openssl() -> str:
    program = shutil.which("openssl")
    if program is None:
        unavailable("no openssl on the PATH")
        raise AssertionError
    return program


def s_client(port: int, *arguments: str, data: bytes = b"") -> tuple[int, str]:
    done = subprocess.run(
        [openssl(), "s_client", "-connect", f"127.0.0.1:{port}", *arguments],
        input=data,
        capture_output=True,
        check=False,
        timeout=WAIT_S,
    )
    return done.returncode, (done.stdout + done.stderr).decode(errors="replace")


def test_only_strong_versions_and_ciphers_are_accepted() -> None:
    """As a scanner asks: each version, each weak cipher, compression, renegotiation."""
    with serving(server_side()) as server:
        for version in ("-tls1_2", "-tls1_3"):
            status, said = s_client(server.port, version)
            assert status == 0, said
            assert "Compression: NONE" in said or version == "-tls1_3"
        for version in ("-tls1", "-tls1_1"):
            status, said = s_client(server.port, version, "-cipher", "ALL:@SECLEVEL=0")
            assert status != 0, said
            assert "Cipher is (NONE)" in said or "no cipher" in said.lower(), said
        accepted = set()
        listed = subprocess.run(
            [openssl(), "ciphers", "-s", "-tls1_2", "ALL:COMPLEMENTOFALL:@SECLEVEL=0"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        suites = [name for name in listed.strip().split(":") if "PSK" not in name and "SRP" not in name]
        for suite in suites:
            status, said = s_client(server.port, "-tls1_2", "-cipher", f"{suite}:@SECLEVEL=0")
            if status == 0 and "Cipher is (NONE)" not in said:
                accepted.add(suite)
        assert accepted
        assert all(re.fullmatch(r"ECDHE-RSA-(AES\d+-GCM|CHACHA20).*", suite) for suite in accepted), accepted


def test_openssl_as_client_and_server(tmp_path: Path) -> None:
    identity, authority = tmp_path / "client.pem", tmp_path / "ca.pem"
    identity.write_text(PKI.client.pem)
    authority.write_text(PKI.authority.pem)
    with serving(server_side(client_auth="required")) as server:
        status, said = s_client(
            server.port,
            *("-cert", str(identity), "-key", str(identity), "-CAfile", str(authority)),
            *("-verify_return_error", "-verify_hostname", "localhost", "-quiet", "-no_ign_eof"),
        )
        assert status == 0, said
    identity.write_text(PKI.server.pem)
    port = free_port()
    program = subprocess.Popen(
        [openssl(), "s_server", "-accept", f"127.0.0.1:{port}", "-cert", str(identity), "-key", str(identity), "-rev"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        assert program.stdout is not None
        while b"ACCEPT" not in program.stdout.readline():
            assert program.poll() is None, "s_server has ended"
        client = connect(port, tls_client_channel_factory(client_side(), lambda _: "localhost"))
        transport = client.channels["0"].transport
        transport.send(b"barnabas\n")
        answer = b""
        while len(answer) < 9:
            with contextlib.suppress(BlockingIOError):
                answer += transport.recv(100)
        assert answer == b"sabanrab\n"
        client.close_all()
    finally:
        program.kill()
        program.communicate()


def test_a_thousand_connects_at_once_are_all_served() -> None:
    """In two processes' worth of threads; it is about being served, not about how fast."""
    count = int(os.environ.get("BARNABAS_CONNECTS", "200"))
    context = client_side().context
    with serving(server_side()) as server:
        sockets = [server.connect() for _ in range(count)]
        failures: list[BaseException] = []
        turns = iter(sockets)
        lock = threading.Lock()

        def shake() -> None:
            while True:
                with lock:
                    sock = next(turns, None)
                if sock is None:
                    return
                try:
                    with context.wrap_socket(sock, server_hostname="localhost") as client:
                        ask(client, b"question")
                except (OSError, ssl.SSLError, AssertionError) as error:
                    failures.append(error)

        threads = [threading.Thread(target=shake) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert server.echoed == count
