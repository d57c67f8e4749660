"""A running broker scanned with the ``openssl`` command: versions, cipher suites, renegotiation, compression, sessions.

Each cipher suite that OpenSSL knows is offered alone, at security level 0, so that only the broker can refuse it. Two
listeners, one with an RSA key and one with an EC key, make sure that no suite is refused for the kind of key.
``pytest -s`` shows the table.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from barnabas import EmbeddedBroker, KafkaAdminClient
from barnabas.clients.admin import ConfigResource
from secured_node import ADMIN, WAIT_S, address, secured, secured_node, settings, store
from tls_fixtures import LOCAL, PKI

SUITES: Final = "ALL:eNULL:@SECLEVEL=0"
TLS_1_3: Final = {"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"}
TLS_1_2: Final = {
    f"ECDHE-{key}-{cipher}"
    for key in ("RSA", "ECDSA")
    for cipher in ("AES256-GCM-SHA384", "CHACHA20-POLY1305", "AES128-GCM-SHA256")
}
API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class Scan(NamedTuple):
    """What ``openssl s_client`` says about one connection."""

    connected: bool
    text: str

    @property
    def outcome(self) -> str:
        if self.connected:
            return "accepted"
        found = re.search(r"SSL routines:\w+:([^:]+):", self.text)
        return self.text.strip() if found is None else f"refused: {found[1]}"


@pytest.fixture(scope="module")
def openssl() -> str:
    found = shutil.which("openssl")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no openssl on the PATH")
        pytest.skip("no openssl on the PATH")
    return found


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    directory = tmp_path_factory.mktemp("scan")
    given = settings(directory)
    changes = {name: f"{given[name]},EC://127.0.0.1:0" for name in ("listeners", "advertised.listeners")}
    changes["listener.security.protocol.map"] = f"{given['listener.security.protocol.map']},EC:SSL"
    changes["listener.name.ec.ssl.keystore.location"] = str(store(directory, PKI.server_ec, "ec"))
    with secured_node(directory, changes) as running:
        yield running


def scan(openssl: str, node: EmbeddedBroker, listener: str, *options: str, text: bytes = b"") -> Scan:
    command = [openssl, "s_client", "-connect", address(node, listener), *options]
    ended = subprocess.run(command, input=text, capture_output=True, timeout=WAIT_S, check=False)
    return Scan(ended.returncode == 0, (ended.stdout + ended.stderr).decode(errors="replace"))


@pytest.mark.mechanism("A01")
def test_only_tls_1_2_and_1_3(openssl: str, node: EmbeddedBroker) -> None:
    found = {
        version: scan(openssl, node, "TLS", version, "-cipher", SUITES)
        for version in ("-tls1", "-tls1_1", "-tls1_2", "-tls1_3")
    }
    for version, one in found.items():
        print(f"{version[1:]:40} {one.outcome}")
    assert {version for version, one in found.items() if one.connected} == {"-tls1_2", "-tls1_3"}
    for old in ("-tls1", "-tls1_1"):
        assert found[old].outcome.endswith("alert protocol version"), "the broker refuses, not the client"


def offered_alone(openssl: str, node: EmbeddedBroker, suite: str) -> Scan:
    listener = "EC" if "ECDSA" in suite else "TLS"
    if suite.startswith("TLS_"):
        return scan(openssl, node, listener, "-tls1_3", "-ciphersuites", suite)
    shared_key = ("-psk", "00") if "PSK" in suite else ()  # otherwise the client does not offer it
    return scan(openssl, node, listener, "-tls1_2", "-cipher", f"{suite}:@SECLEVEL=0", *shared_key)


@pytest.mark.mechanism("A01")
def test_only_suites_with_forward_secrecy_and_authenticated_encryption(openssl: str, node: EmbeddedBroker) -> None:
    listed = subprocess.run([openssl, "ciphers", SUITES], capture_output=True, text=True, check=True)
    suites = sorted({*listed.stdout.strip().split(":"), "TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"})
    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(suites, pool.map(partial(offered_alone, openssl, node), suites), strict=True))
    for suite, one in found.items():
        print(f"{suite:40} {one.outcome}")
    assert {suite for suite, one in found.items() if one.connected} == TLS_1_2 | TLS_1_3
    refused = [suite for suite, one in found.items() if one.outcome.endswith("alert handshake failure")]
    # The others are of SRP, which the client does not offer without a user of its own.
    assert {suite for suite in found if suite not in refused} - TLS_1_2 - TLS_1_3 == {
        suite for suite in suites if suite.startswith("SRP-")
    }
    assert any("NULL" in suite for suite in refused)
    assert any("ADH" in suite for suite in refused)


@pytest.mark.mechanism("A01")
def test_no_renegotiation_and_no_compression(openssl: str, node: EmbeddedBroker) -> None:
    found = scan(openssl, node, "TLS", "-tls1_2", "-comp", text=b"R\n")  # an R renegotiates
    assert "RENEGOTIATING" in found.text
    assert found.outcome == "refused: no renegotiation"
    assert "Secure Renegotiation IS supported" in found.text, "the extension that protects the first handshake"
    assert "Compression: NONE" in found.text


def resume(node: EmbeddedBroker, version: ssl.TLSVersion, session: ssl.SSLSession | None) -> tuple[bool, object]:
    """Connects with a session; returns whether the broker accepted it, and the session of this connection."""
    context = _contexts[version]
    host, _, port = address(node, "TLS").rpartition(":")
    with (
        socket.create_connection((host, int(port)), WAIT_S) as plain,
        context.wrap_socket(plain, server_hostname=host, session=session) as wrapped,
    ):
        wrapped.sendall(API_VERSIONS)
        assert wrapped.recv(4)  # with TLS 1.3 the ticket is in front of it
        return bool(wrapped.session_reused), wrapped.session


def _context(version: ssl.TLSVersion) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.load_verify_locations(cadata=PKI.authority.pem)
    made.minimum_version = made.maximum_version = version
    return made


_contexts: Final = {version: _context(version) for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)}


@pytest.mark.mechanism("A01", "A02")
@pytest.mark.parametrize("version", list(_contexts))
def test_a_session_does_not_outlive_the_key_store(
    node: EmbeddedBroker, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    _, session = resume(node, version, None)
    assert isinstance(session, ssl.SSLSession)
    assert resume(node, version, session)[0], "a session is resumed while nothing has changed"
    renewed = store(tmp_path, PKI.authority.issue("CN=broker,O=Castle", LOCAL, kind="rsa"), "renewed")
    setting, broker = "listener.name.tls.ssl.keystore.location", ConfigResource.broker(1)
    with KafkaAdminClient(**secured(node, tmp_path, "PASSWORDS", ADMIN)) as admin:
        admin.incremental_alter_configs({broker: {setting: str(renewed)}})
        try:
            assert not resume(node, version, session)[0]
        finally:
            admin.incremental_alter_configs({broker: {setting: None}})
