"""Certificates for tests of TLS: an authority, servers and clients of all kinds, made once per process.

    PKI.server      RSA, for localhost, 127.0.0.1 and ::1
    PKI.server_ec   the same with an EC key
    PKI.client      CN=alice
    PKI.expired, PKI.not_yet_valid, PKI.wrong_host, PKI.stranger (of another authority)

A test that needs another certificate asks ``PKI.issue``.
"""

from __future__ import annotations

import datetime as dt
import functools
import ipaddress
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
LOCAL = ("localhost", "127.0.0.1", "::1")
DAY = dt.timedelta(days=1)


class Identity(NamedTuple):
    """A private key and its certificate, with the certificates of its issuers."""

    key: PrivateKey
    certificate: x509.Certificate
    issuers: tuple[x509.Certificate, ...] = ()

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def chain_pem(self) -> str:
        return "".join(
            one.public_bytes(serialization.Encoding.PEM).decode() for one in (self.certificate, *self.issuers)
        )

    def key_pem(self, password: str | None = None, *, old: bool = False) -> str:
        """PKCS #8; with ``old`` the format that names the algorithm in its header."""
        form = serialization.PrivateFormat.TraditionalOpenSSL if old else serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(serialization.Encoding.PEM, form, encryption(password)).decode()

    @property
    def pem(self) -> str:
        return self.key_pem() + self.chain_pem


def encryption(password: str | None) -> serialization.KeySerializationEncryption:
    if password is None:
        return serialization.NoEncryption()
    return serialization.BestAvailableEncryption(password.encode())


def new_key(kind: str = "ec") -> PrivateKey:
    return rsa.generate_private_key(65537, 2048) if kind == "rsa" else ec.generate_private_key(ec.SECP256R1())


def name(text: str) -> x509.Name:
    return x509.Name.from_rfc4514_string(text)


def alternative_names(hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return x509.SubjectAlternativeName(names)


class Authority:
    """A certificate authority."""

    def __init__(self, subject: str = "CN=Castle CA,O=Castle") -> None:
        self.key = new_key()
        self.subject = name(subject)
        now = dt.datetime.now(dt.UTC)
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(self.subject)
            .issuer_name(self.subject)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 10 * DAY)
            .not_valid_after(now + 10 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    def issue(
        self,
        subject: str | x509.Name,
        hosts: Sequence[str] = (),
        *,
        kind: str = "ec",
        starts: dt.timedelta = -DAY,
        ends: dt.timedelta = DAY,
        padding: int = 0,
    ) -> Identity:
        """``padding``: bytes of an extension that nobody knows."""
        key = new_key(kind)
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name(subject) if isinstance(subject, str) else subject)
            .issuer_name(self.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + starts)
            .not_valid_after(now + ends)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
        )
        if hosts:
            builder = builder.add_extension(alternative_names(hosts), critical=False)
        if padding:
            unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.99999.1"), bytes(padding))
            builder = builder.add_extension(unknown, critical=False)
        return Identity(key, builder.sign(self.key, hashes.SHA256()))


class Pki:
    """The identities that most tests use."""

    @functools.cached_property
    def authority(self) -> Authority:
        return Authority()

    @functools.cached_property
    def other_authority(self) -> Authority:
        return Authority("CN=Village CA,O=Village")

    @functools.cached_property
    def server(self) -> Identity:
        return self.authority.issue("CN=broker,O=Castle", LOCAL, kind="rsa")

    @functools.cached_property
    def server_ec(self) -> Identity:
        return self.authority.issue("CN=broker,O=Castle", LOCAL)

    @functools.cached_property
    def client(self) -> Identity:
        return self.authority.issue("CN=alice,OU=Messengers,O=Castle")

    @functools.cached_property
    def expired(self) -> Identity:
        return self.authority.issue("CN=expired", LOCAL, starts=-3 * DAY, ends=-DAY)

    @functools.cached_property
    def not_yet_valid(self) -> Identity:
        return self.authority.issue("CN=early", LOCAL, starts=DAY, ends=3 * DAY)

    @functools.cached_property
    def wrong_host(self) -> Identity:
        return self.authority.issue("CN=elsewhere", ["elsewhere.example"])

    @functools.cached_property
    def stranger(self) -> Identity:
        return self.other_authority.issue("CN=stranger", LOCAL)


PKI = Pki()


def context(
    directory: Path,
    *,
    server_side: bool,
    identity: Identity | None = None,
    trusted: Authority | None = None,
    required: bool = False,
    newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
) -> ssl.SSLContext:
    """A context of the standard library, without code of ours. A client that trusts no authority checks nothing."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
    made.maximum_version = newest
    made.options |= ssl.OP_NO_RENEGOTIATION
    if identity is not None:
        path = directory / f"{identity.certificate.serial_number:x}.pem"
        path.write_text(identity.pem)
        path.chmod(0o600)
        made.load_cert_chain(path)
    if trusted is not None:
        made.load_verify_locations(cadata=trusted.pem)
    elif not server_side:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    if required:
        made.verify_mode = ssl.CERT_REQUIRED
    return made
