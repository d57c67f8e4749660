"""Contexts from settings: versions, cipher suites, client certificates, host names; and their replacement."""

from __future__ import annotations

import logging
import re
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.config.dynamic_config_names import SECURITY_CONFIGS
from barnabas.broker.config.security_config_def import SECURITY_CONFIG_DEF
from barnabas.common.config_def import ConfigError, Password
from barnabas.security.tls.cipher_suites import TLS_1_3, openssl_name
from barnabas.security.tls.ssl_config import ClientAuth, SslSettings
from barnabas.security.tls.ssl_factory import Mode, SslFactory, shake_hands
from tls_fixtures import LOCAL, PKI, Authority, Identity
from unit.security.tls.java_tls import unavailable


def settings_of(identity: Identity | None, trusted: Authority | None = None, **given: Any) -> SslSettings:
    values: dict[str, Any] = {f"ssl.{name.replace('_', '.')}": value for name, value in given.items()}
    if identity is not None:
        values["ssl.keystore.type"] = "PEM"
        values["ssl.keystore.key"] = Password(identity.key_pem())
        values["ssl.keystore.certificate.chain"] = Password(identity.chain_pem)
    if trusted is not None:
        values["ssl.truststore.type"] = "PEM"
        values["ssl.truststore.certificates"] = Password(trusted.pem)
    return SslSettings.of(values)


def server(identity: Identity | None = PKI.server_ec, trusted: Authority | None = None, **given: Any) -> ssl.SSLContext:
    return SslFactory(settings_of(identity, trusted, **given), Mode.SERVER).context


def client(identity: Identity | None = None, trusted: Authority = PKI.authority, **given: Any) -> ssl.SSLContext:
    return SslFactory(settings_of(identity, trusted, **given), Mode.CLIENT).context


def fails(server_context: ssl.SSLContext, client_context: ssl.SSLContext, said: str, host: str = "localhost") -> None:
    with pytest.raises(ssl.SSLError, match=said):
        shake_hands(server_context, client_context, host)


# ---------------------------------------------------------------------------------------------------- settings


def test_the_defaults_are_kafkas() -> None:
    parsed = SECURITY_CONFIG_DEF.parse({})
    assert SslSettings.of(parsed) == SslSettings()
    assert set(SECURITY_CONFIG_DEF.keys) > SECURITY_CONFIGS


def test_a_listener_overrides_a_setting() -> None:
    parsed = SECURITY_CONFIG_DEF.parse({"ssl.client.auth": "requested", "ssl.keystore.password": "secret"})
    assert SslSettings.of(parsed).client_auth is ClientAuth.REQUESTED
    assert SslSettings.of(parsed).keystore_password == Password("secret")
    assert SslSettings.of(parsed, {"ssl.client.auth": "required"}).client_auth is ClientAuth.REQUIRED
    assert SslSettings.of({"ssl.enabled.protocols": "TLSv1.2, "}).enabled_protocols == ("TLSv1.2",)
    assert SslSettings.of({"ssl.allow.dn.changes": "TRUE"}).allow_dn_changes
    assert not SslSettings.of({"ssl.endpoint.identification.algorithm": None}).endpoint_identification_algorithm


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"client_auth": "maybe"}, "ssl.client.auth cannot be maybe: it must be none, requested or required"),
        ({"allow_dn_changes": "maybe"}, "ssl.allow.dn.changes cannot be maybe: it must be true or false"),
        ({"enabled_protocols": "TLSv1.1,TLSv1.3"}, "ssl.enabled.protocols cannot be TLSv1.1"),
        ({"enabled_protocols": "", "protocol": "SSLv3"}, "ssl.protocol cannot be SSLv3"),
        ({"cipher_suites": "TLS_RSA_WITH_NULL_SHA"}, "ssl.cipher.suites cannot be TLS_RSA_WITH_NULL_SHA"),
        ({"cipher_suites": "AES:@SECLEVEL=0"}, "ssl.cipher.suites cannot be AES:@SECLEVEL=0"),
        ({"cipher_suites": "TLS_AES_128_GCM_SHA256", "enabled_protocols": "TLSv1.2"}, "no suite fits the versions"),
        ({"endpoint_identification_algorithm": "ldaps"}, "must be https, or empty"),
    ],
)
def test_invalid_settings_are_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        client(**given)


def test_a_listener_needs_a_key() -> None:
    with pytest.raises(ConfigError, match=r"needs a private key: set ssl\.keystore\.location"):
        server(None)


# ---------------------------------------------------------------------------------------------------- contexts


@pytest.mark.mechanism("A01")
def test_versions() -> None:
    shake_hands(server(), client(), "localhost")
    shake_hands(server(enabled_protocols="TLSv1.2"), client(), "localhost")
    shake_hands(server(), client(enabled_protocols="TLSv1.2"), "localhost")
    fails(server(enabled_protocols="TLSv1.2"), client(enabled_protocols="TLSv1.3"), "(?i)protocol")
    assert server().minimum_version is ssl.TLSVersion.TLSv1_2
    assert server(enabled_protocols="", protocol="TLS").maximum_version is ssl.TLSVersion.TLSv1_3
    assert server(enabled_protocols="", protocol="TLSv1.2").maximum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.mechanism("A01")
def test_no_compression_no_renegotiation_and_no_weak_cipher() -> None:
    for context in (server(), client()):
        assert context.options & ssl.OP_NO_COMPRESSION
        assert context.options & ssl.OP_NO_RENEGOTIATION
        for suite in context.get_ciphers():
            assert suite["aead"], suite["name"]
            assert suite["strength_bits"] >= 128
            assert re.match(r"TLS_|ECDHE-|DHE-", suite["name"]), "forward secrecy"


def names(context: ssl.SSLContext) -> list[str]:
    return [suite["name"] for suite in context.get_ciphers() if suite["name"] not in TLS_1_3]


def test_cipher_suites(caplog: pytest.LogCaptureFixture) -> None:
    older = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    context = server(cipher_suites=older)
    assert names(context) == ["ECDHE-ECDSA-AES128-GCM-SHA256"]
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2, "none of TLS 1.3 is listed"
    context = server(cipher_suites=",".join(TLS_1_3))
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert not caplog.records
    server(cipher_suites=f"{older},TLS_AES_256_GCM_SHA384")
    if not hasattr(context, "set_ciphersuites"):
        assert "cannot choose among the cipher suites of TLS 1.3" in caplog.text
    fails(
        server(cipher_suites=older),
        client(cipher_suites="TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
        "(?i)cipher|handshake",
    )


def test_names_of_cipher_suites_are_openssls() -> None:
    program = shutil.which("openssl")
    if program is None:
        unavailable("no openssl on the PATH")
        return
    listed = subprocess.run(
        [program, "ciphers", "-stdname", "-s", "-tls1_2", "ALL:@SECLEVEL=0"], capture_output=True, text=True, check=True
    ).stdout
    compared = 0
    for line in listed.splitlines():
        iana, _, name, *_ = line.split()
        if re.match(r"TLS_(ECDHE_ECDSA|ECDHE_RSA|DHE_RSA|RSA)_WITH_(AES|CHACHA)", iana):
            assert openssl_name(iana) == name
            assert openssl_name(name) == name
            compared += 1
    assert compared > 20


@pytest.mark.mechanism("A01")
def test_client_certificates() -> None:
    required = server(trusted=PKI.authority, client_auth="required")
    shake_hands(required, client(PKI.client), "localhost")
    fails(required, client(), "PEER_DID_NOT_RETURN_A_CERTIFICATE")
    fails(required, client(PKI.stranger), "CERTIFICATE_VERIFY_FAILED")
    fails(required, client(PKI.expired), "expired")
    fails(required, client(PKI.not_yet_valid), "not yet valid")
    requested = server(trusted=PKI.authority, client_auth="requested")
    shake_hands(requested, client(PKI.client), "localhost")
    shake_hands(requested, client(), "localhost")
    fails(requested, client(PKI.stranger), "CERTIFICATE_VERIFY_FAILED")
    shake_hands(server(trusted=PKI.authority), client(PKI.stranger), "localhost")


@pytest.mark.mechanism("A01")
def test_host_names() -> None:
    for host in LOCAL:
        shake_hands(server(), client(), host)
    fails(server(), client(), "Hostname mismatch", "elsewhere.example")
    fails(server(), client(), "IP address mismatch", "127.0.0.2")
    shake_hands(server(), client(endpoint_identification_algorithm=""), "elsewhere.example")
    shake_hands(server(), client(endpoint_identification_algorithm="HTTPS"), "localhost")
    fails(server(PKI.stranger), client(endpoint_identification_algorithm=""), "CERTIFICATE_VERIFY_FAILED")


def test_every_certificate_in_a_trust_store_is_trusted() -> None:
    """As in Java; OpenSSL by itself wants the root."""
    leaf = SslSettings.of(
        {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": Password(PKI.server_ec.chain_pem)}
    )
    shake_hands(server(), SslFactory(leaf, Mode.CLIENT).context, "localhost")


def test_a_trust_store_of_garbage_is_refused() -> None:
    garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    settings = SslSettings.of({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": Password(garbage)})
    with pytest.raises(ConfigError, match="Invalid SSL trust store"):
        SslFactory(settings, Mode.CLIENT)


# ---------------------------------------------------------------------------------------------------- replacement


@pytest.mark.mechanism("A02")
def test_a_new_key_is_for_new_connections(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The same path, with another file behind it."""
    caplog.set_level(logging.INFO)
    path = tmp_path / "key.pem"
    path.write_text(PKI.server_ec.pem)
    path.chmod(0o600)
    settings = SslSettings.of({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)})
    factory = SslFactory(settings, Mode.SERVER)
    before = factory.context
    renewed = PKI.authority.issue("CN=Broker,O=castle", [*LOCAL, "castle.example"])
    path.write_text(renewed.pem)
    factory.validate(settings)
    assert factory.context is before
    factory.reconfigure(settings)
    assert factory.context is not before
    assert factory.certificate == renewed.der
    shake_hands(factory.context, client(), "castle.example")
    shake_hands(before, client(), "localhost")
    assert f"New TLS server context: key store {path}" in caplog.text


@pytest.mark.mechanism("A02")
def test_a_replacement_that_locks_clients_out_is_refused() -> None:
    factory = SslFactory(settings_of(PKI.server_ec), Mode.SERVER)
    before = factory.context
    other_name = PKI.authority.issue("CN=other,O=Castle", LOCAL)
    fewer = PKI.authority.issue("CN=broker,O=Castle", ["localhost"])
    for settings, said in (
        (
            settings_of(other_name),
            "DistinguishedName does not match: existing=CN=broker,O=Castle, new=CN=other,O=Castle",
        ),
        (settings_of(fewer), "lacks .*127.0.0.1"),
        (settings_of(None), "Cannot remove the SSL keystore|needs a private key"),
        (settings_of(PKI.server_ec, PKI.authority), "Cannot add SSL truststore"),
        (settings_of(PKI.server_ec, cipher_suites="x"), "ssl.cipher.suites"),
    ):
        with pytest.raises(ConfigError, match=said):
            factory.validate(settings)
        with pytest.raises(ConfigError, match=said):
            factory.reconfigure(settings)
        assert factory.context is before
    factory.reconfigure(settings_of(other_name, allow_dn_changes=True))
    factory.reconfigure(
        settings_of(fewer, allow_dn_changes=True, allow_san_changes=True),
    )
    assert factory.certificate == fewer.der


@pytest.mark.mechanism("A02")
def test_brokers_must_be_able_to_connect_to_each_other() -> None:
    given = {"client_auth": "required"}
    with pytest.raises(ConfigError, match="can't connect to a server SSLEngine"):
        SslFactory(settings_of(PKI.stranger, PKI.authority, **given), Mode.SERVER, verify_own_certificate=True)
    factory = SslFactory(settings_of(PKI.server_ec, PKI.authority, **given), Mode.SERVER, verify_own_certificate=True)
    before = factory.context
    # Another authority for both stores: it trusts itself, but old and new nodes do not trust each other.
    moved = PKI.other_authority.issue("CN=broker,O=Castle", LOCAL)
    with pytest.raises(ConfigError, match="can't connect to a server SSLEngine"):
        factory.reconfigure(settings_of(moved, PKI.other_authority, **given))
    assert factory.context is before
    factory.reconfigure(settings_of(PKI.authority.issue("CN=broker,O=Castle", LOCAL), PKI.authority, **given))


def test_a_client_may_not_gain_a_key_store() -> None:
    factory = SslFactory(settings_of(None, PKI.authority), Mode.CLIENT)
    assert factory.certificate is None
    with pytest.raises(ConfigError, match="Cannot add SSL keystore"):
        factory.reconfigure(settings_of(PKI.client, PKI.authority))
    assert repr(factory) == "SslFactory(client, key store none, trust store inline)"
