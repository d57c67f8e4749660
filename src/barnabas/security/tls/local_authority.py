"""A certificate authority for laptops and tests, for people who have none. Needs ``barnabas[security]``.

    authority = LocalAuthority.create()
    server = authority.issue("broker", hosts=["localhost", "127.0.0.1"])
    server.pem         # private key and certificate, a PEM key store
    authority.pem      # what clients trust

Keys are EC P-256, which every client of this decade has; making one takes less than a millisecond. A real installation
has its certificates from an authority that somebody looks after.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from barnabas.common.extras import extra

LIFETIME: Final = dt.timedelta(days=825)
"""As long as clients accept: some refuse certificates that are valid longer."""
_CLOCK_SKEW: Final = dt.timedelta(hours=1)


class IssuedCertificate(NamedTuple):
    """A private key and its certificate, in PEM format."""

    key: str
    certificate: str

    @property
    def pem(self) -> str:
        """Both in one text: the contents of a PEM key store."""
        return self.key + self.certificate

    def __repr__(self) -> str:
        """Leaves out the key."""
        return "IssuedCertificate()"


class LocalAuthority:
    """Signs certificates with a key of its own."""

    def __init__(self, key: Any, certificate: Any) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def create(cls, name: str = "Barnabas local authority") -> LocalAuthority:
        """Makes a new authority."""
        x509, ec, hashes, _ = _libraries()
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(x509, _name(x509, name), key.public_key())
            .issuer_name(_name(x509, name))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(x509, signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    @classmethod
    def load(cls, pem: bytes) -> LocalAuthority:
        """Reads the text that `private_pem` returned; ValueError if it is something else."""
        x509, _, _, serialization = _libraries()
        return cls(serialization.load_pem_private_key(pem, None), x509.load_pem_x509_certificate(pem))

    @property
    def pem(self) -> str:
        """The certificate: what clients and brokers trust."""
        _, _, _, serialization = _libraries()
        encoded: bytes = self._certificate.public_bytes(serialization.Encoding.PEM)
        return encoded.decode()

    @property
    def private_pem(self) -> str:
        """The key and the certificate. Whoever has this can issue certificates."""
        return _key_pem(self._key) + self.pem

    def issue(self, common_name: str, hosts: Sequence[str] = ()) -> IssuedCertificate:
        """Issues a certificate: for a server with its host names and addresses, for a client without."""
        x509, ec, hashes, serialization = _libraries()
        key = ec.generate_private_key(ec.SECP256R1())
        purpose = x509.oid.ExtendedKeyUsageOID
        builder = (
            _builder(x509, _name(x509, common_name), key.public_key())
            .issuer_name(self._certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(x509, signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose.SERVER_AUTH, purpose.CLIENT_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if hosts:
            names = [_alternative_name(x509, host) for host in hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return IssuedCertificate(_key_pem(key), certificate.public_bytes(serialization.Encoding.PEM).decode())


def _libraries() -> tuple[Any, Any, Any, Any]:
    with extra("security", "making certificates"):
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    return x509, ec, hashes, serialization


def _builder(x509: Any, subject: Any, public_key: Any) -> Any:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
    )


def _name(x509: Any, common_name: str) -> Any:
    return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, common_name)])


def _usage(x509: Any, *, signs_certificates: bool) -> Any:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_name(x509: Any, host: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: Any) -> str:
    _, _, _, serialization = _libraries()
    encoded: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return encoded.decode()
