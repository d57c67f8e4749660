"""``barnabas doctor`` says in one sentence what is wrong with a certificate, a host name or a clock."""

from __future__ import annotations

import base64
import datetime as dt
import json
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.cli.doctor_checks import Security, check_protocol, examine
from barnabas.cli.doctor_probe import enabled_mechanisms
from barnabas.cli.doctor_security import check_no_sasl, check_tls, token_problem
from barnabas.cli.finding import Finding
from barnabas.clients.common.client_sasl import ClientMechanism
from barnabas.common.config_def import ConfigError
from barnabas.common.errors import Errors
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeResponse
from barnabas.security.sasl.oauthbearer import OAuthBearerClient
from tls_fixtures import PKI, Authority, Identity, context
from unit.cli.test_doctor import listener

pytestmark = pytest.mark.mechanism("A13")

TIMEOUT_S = 60.0


@contextmanager
def tls_listener(directory: Path, identity: Identity, *, required: bool = False) -> Iterator[int]:
    """A listener with this certificate, at a port. With ``required``, clients need one as well."""
    server = context(
        directory, server_side=True, identity=identity, trusted=PKI.authority if required else None, required=required
    )

    def serve(connection: socket.socket) -> None:
        connection.settimeout(TIMEOUT_S)
        with server.wrap_socket(connection, server_side=True) as secure:
            secure.recv(1)

    with listener(serve) as address:
        yield int(address.rpartition(":")[2])


def examined(directory: Path, identity: Identity, trusted: Authority = PKI.authority) -> Finding:
    client = context(directory, server_side=False, trusted=trusted)
    with tls_listener(directory, identity) as port:
        return check_tls("127.0.0.1", port, TIMEOUT_S, client)


def today() -> str:
    return f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"


def test_a_good_certificate(tmp_path: Path) -> None:
    finding = examined(tmp_path, PKI.server)
    assert finding.status == "ok"
    assert finding.what.startswith("TLSv1.3, CN=broker,O=Castle, valid until 20")


def test_an_expired_certificate(tmp_path: Path) -> None:
    finding = examined(tmp_path, PKI.expired)
    ended = f"{PKI.expired.certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    assert finding.what.startswith(
        f"the broker's certificate has expired on {ended}; this machine's clock shows {today()}"
    )
    assert "renew" in finding.remedy


def test_a_certificate_of_tomorrow(tmp_path: Path) -> None:
    finding = examined(tmp_path, PKI.not_yet_valid)
    assert finding.what.startswith("the broker's certificate is not valid before 20")
    assert "correct the clock" in finding.remedy


def test_a_certificate_of_another_host(tmp_path: Path) -> None:
    finding = examined(tmp_path, PKI.wrong_host)
    assert finding.what == "the broker's certificate is for elsewhere.example, not for 127.0.0.1"
    assert "subject alternative names" in finding.remedy


def test_an_unknown_authority(tmp_path: Path) -> None:
    finding = examined(tmp_path, PKI.server, PKI.other_authority)
    assert finding.what == (
        "the broker's certificate was issued by CN=Castle CA,O=Castle, which is not in the trust store"
    )
    assert "ssl.truststore.location" in finding.remedy


def test_a_listener_that_wants_a_certificate(tmp_path: Path) -> None:
    client = context(tmp_path, server_side=False, trusted=PKI.authority)
    with tls_listener(tmp_path, PKI.server, required=True) as port:
        assert check_tls("127.0.0.1", port, TIMEOUT_S, client).status == "ok", "TLS 1.3 does not tell yet"
        finding = check_protocol("127.0.0.1", port, TIMEOUT_S, client)
    assert "requires a certificate; set ssl.keystore.location" in finding.what


def test_a_listener_that_hangs_up(tmp_path: Path) -> None:
    client = context(tmp_path, server_side=False, trusted=PKI.authority)
    with listener(lambda _connection: None) as address:
        finding = check_tls("127.0.0.1", int(address.rpartition(":")[2]), TIMEOUT_S, client)
    assert finding.status == "error"
    assert "the TLS handshake fails" in finding.what or "TLS fails" in finding.what


def test_a_listener_with_sasl() -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(1_000)
        response = SaslHandshakeResponse(error_code=Errors.UNSUPPORTED_SASL_MECHANISM, mechanisms=["PLAIN"])
        payload = (1).to_bytes(4) + response.encode(1)
        connection.sendall(len(payload).to_bytes(4) + payload)

    with listener(serve) as address:
        port = int(address.rpartition(":")[2])
        assert enabled_mechanisms("127.0.0.1", port, TIMEOUT_S) == ["PLAIN"]
        finding = check_no_sasl("127.0.0.1", port, TIMEOUT_S, None)
    assert finding is not None
    assert finding.what == "the listener requires authentication by SASL: PLAIN"
    assert "security.protocol=SASL_PLAINTEXT" in finding.remedy


def test_settings_that_are_wrong() -> None:
    (finding,) = examine(["127.0.0.1:1"], 1, {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"})
    assert (finding.step, finding.status) == ("settings", "error")
    assert "sasl.jaas.config is missing" in finding.what
    with pytest.raises(ConfigError):
        Security.of({"security.protocol": "TLS"})


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"iat": -600, "exp": -60}, "the token has expired on 20"),
        ({"iat": 600, "exp": 1200}, "the token is not valid before 20"),
        ({"iat": -600, "nbf": 600, "exp": 1200}, "the token is not valid before 20"),
        ({"iat": -60, "exp": 600}, None),
        ({}, None),
    ],
)
def test_the_times_of_a_token(claims: dict[str, int], expected: str | None) -> None:
    now = time.time()
    parts = ({"alg": "none"}, {"sub": "a", **{name: now + seconds for name, seconds in claims.items()}})
    token = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts) + "."
    mechanism = ClientMechanism("OAUTHBEARER", lambda _host: OAuthBearerClient(lambda: token), lambda: None)
    found = token_problem(mechanism)
    assert found is None if expected is None else found is not None and found.startswith(expected)
    opaque = ClientMechanism("OAUTHBEARER", lambda _host: OAuthBearerClient(lambda: "opaque"), lambda: None)
    assert token_problem(opaque) is None


def test_a_login_that_fails() -> None:
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauth.token.provider": lambda: "no token at all",
    }
    (finding,) = examine(["127.0.0.1:1"], 1, settings)
    assert (finding.step, finding.status) == ("token", "error")
    assert "not usable" in finding.what


def test_a_certificate_without_the_package_that_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    identity, authority = PKI.expired, PKI.authority
    client = context(tmp_path, server_side=False, trusted=authority)
    with tls_listener(tmp_path, identity) as port:
        monkeypatch.setitem(sys.modules, "cryptography", None)
        finding = check_tls("127.0.0.1", port, TIMEOUT_S, client)
    assert finding.what.startswith("the broker's certificate has expired; this machine's clock shows")


def test_an_old_version_of_tls(tmp_path: Path) -> None:
    client = context(tmp_path, server_side=False, trusted=PKI.authority, newest=ssl.TLSVersion.TLSv1_2)
    with tls_listener(tmp_path, PKI.server) as port:
        assert check_tls("127.0.0.1", port, TIMEOUT_S, client).what.startswith("TLSv1.2, ")
