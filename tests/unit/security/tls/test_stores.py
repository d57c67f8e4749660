"""Key and trust stores: PEM in all forms, PKCS12 and JKS of Java's keytool, and what is wrong with a store."""

from __future__ import annotations

import builtins
import contextlib
import logging
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, pkcs12
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.common.config_def import ConfigError, Password
from barnabas.security.tls import stores
from barnabas.security.tls.jks import JksError, read_jks
from barnabas.security.tls.ssl_config import SslSettings
from barnabas.security.tls.ssl_factory import Mode, SslFactory, shake_hands
from barnabas.security.tls.stores import KeyStore, load_key_store, load_trust_store, private_file
from tls_fixtures import PKI, Authority, Identity, encryption
from unit.security.tls.java_tls import keytool

pytestmark = pytest.mark.mechanism("A02")

SECRET = "amalia-1922"
KEY_SECRET = "sordini-1922"
Write = Callable[[str, str | bytes], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, contents: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(contents.encode() if isinstance(contents, str) else contents)
        path.chmod(0o600)
        return str(path)

    return written


def settings_of(**given: Any) -> SslSettings:
    return SslSettings.of({f"ssl.{name.replace('_', '.')}": value for name, value in given.items()})


def works(store: KeyStore | None, *trusted: bytes) -> None:
    """A server with this key store can be connected to by a client that trusts the authority."""
    assert store is not None
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    store.load_into(server)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=b"".join(trusted or (PKI.authority.der,)))
    shake_hands(server, client, "localhost")


# ---------------------------------------------------------------------------------------------------- PEM


@pytest.mark.parametrize("identity", ["server", "server_ec"])
@pytest.mark.parametrize("old", [False, True], ids=["pkcs8", "traditional"])
@pytest.mark.parametrize("password", [None, KEY_SECRET], ids=["clear", "encrypted"])
def test_pem_files(write: Write, identity: str, old: bool, password: str | None) -> None:
    found: Identity = getattr(PKI, identity)
    location = write("key.pem", "Bag Attributes: käfka\n" + found.key_pem(password, old=old) + found.chain_pem)
    given = {"key_password": Password(password)} if password else {}
    works(load_key_store(settings_of(keystore_type="PEM", keystore_location=location, **given)))


@pytest.mark.parametrize("one_line", [False, True], ids=["lines", "one line"])
def test_inline_pem(one_line: bool) -> None:
    key, chain, trusted = PKI.server_ec.key_pem(), PKI.server_ec.chain_pem, PKI.authority.pem
    if one_line:  # as in a properties file
        key, chain, trusted = (text.replace("\n", " ") for text in (key, chain, trusted))
    given = settings_of(
        keystore_type="PEM",
        keystore_key=key,
        keystore_certificate_chain=chain,
        truststore_type="PEM",
        truststore_certificates=trusted,
    )
    works(load_key_store(given))
    assert load_trust_store(given) == (PKI.authority.der,)


def test_a_trust_store_may_have_many_certificates(write: Write) -> None:
    location = write("trust.pem", PKI.authority.pem + "comment\n" + PKI.other_authority.pem)
    given = settings_of(truststore_type="PEM", truststore_location=location)
    assert load_trust_store(given) == (PKI.authority.der, PKI.other_authority.der)


def test_a_wrong_or_missing_key_password_is_named_and_not_shown(write: Write) -> None:
    location = write("key.pem", PKI.server_ec.key_pem(KEY_SECRET) + PKI.server_ec.chain_pem)
    with pytest.raises(ConfigError, match=r"is encrypted; set ssl.key.password"):
        load_key_store(settings_of(keystore_type="PEM", keystore_location=location))
    store = load_key_store(settings_of(keystore_type="PEM", keystore_location=location, key_password=SECRET))
    with pytest.raises(ConfigError, match=r"cannot be decrypted with ssl.key.password") as raised:
        works(store)
    assert SECRET not in str(raised.value)
    assert SECRET not in repr(store)


def test_a_key_of_another_certificate_is_refused(write: Write) -> None:
    location = write("key.pem", PKI.client.key_pem() + PKI.server_ec.chain_pem)
    store = load_key_store(settings_of(keystore_type="PEM", keystore_location=location))
    with pytest.raises(ConfigError, match="does not belong to the first certificate"):
        works(store)


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        ("", "No matching PRIVATE KEY entries"),
        (PKI.server_ec.chain_pem, "No matching PRIVATE KEY entries"),
        (PKI.server_ec.key_pem(), "No matching CERTIFICATE entries"),
        (PKI.server_ec.key_pem() + PKI.client.pem, "Expected one private key in the PEM of .*, but found 2"),
        (PKI.server_ec.pem.replace("M", "?"), "is not valid base64"),
        (PKI.server_ec.pem.replace("M", "\xe9"), "is not valid base64"),
        ("-----BEGIN PRIVATE KEY----------END PRIVATE KEY-----", "is not valid base64"),
        ("\xff\xfe\x00", "No matching PRIVATE KEY entries"),
    ],
    ids=["empty", "no key", "no certificate", "two keys", "base64", "not ASCII", "no body", "binary"],
)
def test_a_pem_file_that_is_none(write: Write, contents: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_key_store(settings_of(keystore_type="PEM", keystore_location=write("key.pem", contents)))


@given(st.text(st.sampled_from("-BEGIN CERTIFICATE PRIVATE KEYEND\nAQ=:"), max_size=200))
def test_pem_of_any_shape_is_read_or_refused(text: str) -> None:
    given = settings_of(keystore_type="PEM", keystore_key=text, keystore_certificate_chain=text)
    with pytest.raises(ConfigError):
        works(load_key_store(given))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"keystore_key": "x"}, "only for PEM, but key store type is JKS"),
        ({"keystore_type": "PEM", "keystore_key": "x"}, "certificate chain is not specified"),
        ({"keystore_certificate_chain": "x"}, "private key is not specified"),
        (
            {"keystore_type": "PEM", "keystore_key": "x", "keystore_certificate_chain": "x", "keystore_location": "/x"},
            "Both SSL key store location and separate private key",
        ),
        (
            {
                "keystore_type": "PEM",
                "keystore_key": "x",
                "keystore_certificate_chain": "x",
                "keystore_password": SECRET,
            },
            "only key password may be specified",
        ),
        ({"keystore_type": "PEM", "keystore_location": "/x", "keystore_password": SECRET}, "only key password"),
        ({"keystore_password": SECRET}, "key store is not specified, but key store password"),
        ({"keystore_location": "/x"}, "key store password is not specified"),
        (
            {"keystore_location": "/none", "keystore_password": SECRET},
            "Cannot read ssl.keystore.location=/none: No such",
        ),
        ({"keystore_type": "PEM", "keystore_location": "/none"}, "Cannot read ssl.keystore.location=/none: No such"),
        ({"truststore_certificates": "x"}, "only for PEM, but trust store type is JKS"),
        (
            {"truststore_type": "PEM", "truststore_certificates": "x", "truststore_location": "/x"},
            "Both SSL trust store location and separate trust certificates",
        ),
        (
            {"truststore_type": "PEM", "truststore_certificates": "x", "truststore_password": SECRET},
            "trust store password cannot be specified",
        ),
        ({"truststore_type": "PEM", "truststore_location": "/x", "truststore_password": SECRET}, "cannot be specified"),
        ({"truststore_password": SECRET}, "trust store is not specified, but trust store password"),
        ({"truststore_location": "/none"}, "Cannot read ssl.truststore.location=/none: No such"),
    ],
)
def test_settings_that_contradict_each_other(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:  # noqa: PT012
        load_key_store(settings_of(**given))
        load_trust_store(settings_of(**given))
    assert SECRET not in str(raised.value)


def test_no_stores_at_all() -> None:
    assert load_key_store(SslSettings()) is None
    assert load_trust_store(SslSettings()) is None


def test_a_store_that_is_too_large(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "MAX_STORE_BYTES", 100)
    with pytest.raises(ConfigError, match="more than 100 bytes"):
        load_trust_store(settings_of(truststore_location=write("big", bytes(101))))


# ---------------------------------------------------------------------------------------------------- keytool


def key_store(directory: Path, kind: str, key: str = "RSA", *, own_password: bool = False) -> str:
    """A self-signed key by keytool."""
    location = directory / f"{kind}-{key}.keystore"
    keytool(
        *("-genkeypair", "-alias", "broker", "-keyalg", key, "-dname", "CN=broker, O=Castle"),
        *("-ext", "san=dns:localhost", "-validity", "3", "-storetype", kind, "-keystore", location),
        *("-storepass", SECRET, "-keypass", KEY_SECRET if own_password else SECRET),
    )
    location.chmod(0o600)
    return str(location)


@pytest.mark.java
@pytest.mark.parametrize("key", ["RSA", "EC"])
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
@pytest.mark.parametrize("called", ["JKS", "PKCS12"])
def test_key_stores_of_java_under_either_name(tmp_path: Path, kind: str, key: str, called: str) -> None:
    location = key_store(tmp_path, kind, key)
    store = load_key_store(settings_of(keystore_type=called, keystore_location=location, keystore_password=SECRET))
    assert store is not None
    works(store, store.chain[0])
    with pytest.raises(ConfigError, match="password is wrong") as raised:
        load_key_store(settings_of(keystore_type=called, keystore_location=location, keystore_password=KEY_SECRET))
    assert location in str(raised.value)
    assert KEY_SECRET not in str(raised.value)


@pytest.mark.java
def test_a_key_with_a_password_of_its_own(tmp_path: Path) -> None:
    location = key_store(tmp_path, "JKS", own_password=True)
    given = {"keystore_location": location, "keystore_password": SECRET}
    store = load_key_store(settings_of(**given, key_password=KEY_SECRET))
    assert store is not None
    works(store, store.chain[0])
    with pytest.raises(ConfigError, match=r"the password of the private key 'broker' is wrong; see ssl.key.password"):
        load_key_store(settings_of(**given))


@pytest.mark.java
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_trust_stores_of_java(tmp_path: Path, kind: str) -> None:
    location = tmp_path / "trust"
    for alias, authority in (("one", PKI.authority), ("two", PKI.other_authority)):
        pem = tmp_path / f"{alias}.pem"
        pem.write_text(authority.pem)
        keytool(
            *("-importcert", "-noprompt", "-alias", alias, "-file", pem),
            *("-keystore", location, "-storetype", kind, "-storepass", SECRET),
        )
    given = settings_of(truststore_location=str(location), truststore_password=SECRET)
    assert set(load_trust_store(given) or ()) == {PKI.authority.der, PKI.other_authority.der}
    if kind == "JKS":  # without a password there is no check, as in Java
        without = settings_of(truststore_location=str(location))
        assert set(load_trust_store(without) or ()) == {PKI.authority.der, PKI.other_authority.der}
    with pytest.raises(ConfigError, match="password is wrong"):
        load_trust_store(settings_of(truststore_location=str(location), truststore_password=KEY_SECRET))


@pytest.mark.java
def test_a_jceks_store_is_refused_with_advice(tmp_path: Path) -> None:
    location = key_store(tmp_path, "JCEKS")
    with pytest.raises(ConfigError, match="JCEKS key store is not supported; convert it with keytool"):
        load_key_store(settings_of(keystore_location=location, keystore_password=SECRET))


@pytest.mark.java
def test_a_damaged_jks_is_refused(tmp_path: Path) -> None:
    data = Path(key_store(tmp_path, "JKS", "EC")).read_bytes()

    @settings(max_examples=300)
    @given(at=st.integers(0, len(data) - 1), value=st.integers(0, 255), cut=st.integers(0, len(data)))
    def damage(at: int, value: int, cut: int) -> None:
        changed = bytearray(data)
        changed[at] = value
        if changed != data:
            with pytest.raises(JksError):
                read_jks(bytes(changed), SECRET)
            with contextlib.suppress(JksError):  # without the password nothing is checked but the structure
                read_jks(bytes(changed), None)
        if cut < len(data):
            with pytest.raises(JksError):
                read_jks(data[:cut], SECRET)

    damage()


@given(st.binary(max_size=300))
def test_random_bytes_are_read_or_refused(data: bytes) -> None:
    for head in (b"", b"\xfe\xed\xfe\xed", b"\xfe\xed\xfe\xed\x00\x00\x00\x02\x00\x00\x00\x01"):
        with contextlib.suppress(JksError):
            read_jks(head + data, None)


# ---------------------------------------------------------------------------------------------------- PKCS12


def test_a_chain_in_pkcs12_is_put_in_order(write: Write) -> None:
    middle = Authority("CN=Middle CA")
    leaf = middle.issue("CN=broker", ["localhost"])
    issuers = [PKI.authority.certificate, middle.certificate]
    data = pkcs12.serialize_key_and_certificates(b"broker", leaf.key, leaf.certificate, issuers, encryption(SECRET))
    given = settings_of(keystore_location=write("key.p12", data), keystore_password=SECRET)
    store = load_key_store(given)
    assert store is not None
    assert store.chain[:2] == (leaf.der, middle.der)


def test_a_pkcs12_without_a_key_is_no_key_store(write: Write) -> None:
    certificates = [pkcs12.PKCS12Certificate(PKI.authority.certificate, b"ca")]
    data = pkcs12.serialize_java_truststore(certificates, encryption(SECRET))
    location = write("trust.p12", data)
    with pytest.raises(ConfigError, match="it has no private key"):
        load_key_store(settings_of(keystore_location=location, keystore_password=SECRET))
    given = settings_of(truststore_location=location, truststore_password=SECRET)
    assert load_trust_store(given) == (PKI.authority.der,)
    with pytest.raises(ConfigError, match="it needs a password"):
        load_trust_store(settings_of(truststore_location=location))


def test_without_cryptography_pem_works_and_pkcs12_says_what_to_install(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pkcs12.serialize_key_and_certificates(
        b"broker", PKI.server_ec.key, PKI.server_ec.certificate, None, encryption(SECRET)
    )
    location = write("key.p12", data)
    ordinary = builtins.__import__

    def missing(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name.startswith("cryptography"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return ordinary(name, *arguments, **keywords)

    pem = write("key.pem", PKI.server_ec.pem)
    trusted = (PKI.authority.der,)
    monkeypatch.setattr(builtins, "__import__", missing)
    works(load_key_store(settings_of(keystore_type="PEM", keystore_location=pem)), *trusted)
    with pytest.raises(ImportError, match=r"pip install 'barnabas\[security\]'"):
        load_key_store(settings_of(keystore_location=location, keystore_password=SECRET))


# ---------------------------------------------------------------------------------------------------- secrecy


@pytest.mark.mechanism("A12")
def test_a_key_that_others_may_read_is_warned_about(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    location = write("key.pem", PKI.server_ec.pem)
    given = settings_of(keystore_type="PEM", keystore_location=location)
    with caplog.at_level(logging.WARNING):
        load_key_store(given)
        assert not caplog.records
        Path(location).chmod(0o640)
        load_key_store(given)
    assert f"Others may read or change the key store {location} (mode 640)" in caplog.text


@pytest.mark.mechanism("A12")
@pytest.mark.parametrize("in_memory", [True, False], ids=["memory", "file"])
def test_a_private_file_is_private_and_gone_afterwards(in_memory: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if in_memory and not hasattr(os, "memfd_create"):
        pytest.skip("no files in memory on this system")
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    with private_file(b"secret") as path:
        assert Path(path).read_bytes() == b"secret"
        if not in_memory:
            assert Path(path).stat().st_mode & 0o077 == 0
            assert Path(path).parent.stat().st_mode & 0o077 == 0
    assert not Path(path).exists()


@pytest.mark.mechanism("A12")
def test_no_secret_is_shown(write: Write) -> None:
    location = write("key.pem", PKI.server_ec.key_pem(KEY_SECRET) + PKI.server_ec.chain_pem)
    given = settings_of(
        keystore_type="PEM",
        keystore_location=location,
        key_password=KEY_SECRET,
        truststore_type="PEM",
        truststore_certificates=PKI.authority.pem,
    )
    factory = SslFactory(given, Mode.SERVER)
    shown = f"{given!r} {factory!r} {load_key_store(given)!r}"
    assert KEY_SECRET not in shown
    assert PKI.server_ec.key_pem()[40:80] not in shown
    assert PKI.authority.certificate.public_bytes(Encoding.PEM).decode()[40:80] not in shown
