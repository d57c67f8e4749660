"""Reads key stores and trust stores: PEM (files or inline), PKCS12 and JKS.

The format of a file that is not PEM is recognized by its first bytes, as in Java: a store of type JKS may be PKCS12 and
the other way round. PEM and JKS need no other library; PKCS12 needs ``cryptography``.

Private keys do not touch the disk: OpenSSL takes a key only from a file, and gets one that exists in memory alone.
Errors name the file and the setting, never a password or a key.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from barnabas.common.config_def import ConfigError, Password
from barnabas.common.dataclass import dataclass, field
from barnabas.common.extras import extra
from barnabas.security.secret_file import check_access
from barnabas.security.tls.jks import JCEKS_MAGIC, MAGIC, JksError, read_jks
from barnabas.security.tls.ssl_config import SslSettings

log = logging.getLogger(__name__)

PEM: Final = "PEM"
MAX_STORE_BYTES: Final = 16 << 20

_PEM_ENTRY: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]{1,40})-----(.*?)-----END \1-----", re.DOTALL)
_PEM_HEADER: Final = re.compile(r"\s*((?:Proc-Type|DEK-Info):[^\r\n]*)[\r\n]+")


@dataclass(frozen=True, slots=True)
class KeyStore:
    """A private key in PEM, with the password that decrypts it, and its certificates in DER, its own first."""

    key: str = field(repr=False)
    password: Password | None
    chain: tuple[bytes, ...] = field(repr=False)

    def load_into(self, context: ssl.SSLContext) -> None:
        """Gives key and certificates to a context. Raises `ConfigError` if they do not fit together."""
        pem = self.key + "".join(map(ssl.DER_cert_to_PEM_cert, self.chain))
        try:
            with private_file(pem.encode()) as path:
                # Never without a password: OpenSSL would ask for it at the terminal.
                context.load_cert_chain(path, password="" if self.password is None else self.password.value)
        except ssl.SSLError as error:
            reason = _reason(error, encrypted=self.password is not None)
            raise ConfigError(f"Invalid SSL key store: {reason}", name="ssl.keystore.location") from None


def _reason(error: ssl.SSLError, *, encrypted: bool) -> str:
    reason: str | None = error.reason  # the type stubs do not know that it can be missing
    match reason:
        case "KEY_VALUES_MISMATCH":
            return "the private key does not belong to the first certificate of the chain"
        case "BAD_DECRYPT" | "BAD_PASSWORD_READ" | "PKCS12_CIPHERFINAL_ERROR":
            return "the private key cannot be decrypted with ssl.key.password"
        case "EE_KEY_TOO_SMALL" | "CA_KEY_TOO_SMALL" | "CA_MD_TOO_WEAK":
            return f"a key or signature of the certificate chain is too weak ({error.reason})"
        case None if encrypted:  # OpenSSL does not tell the two apart
            return "the private key cannot be decrypted with ssl.key.password, or is damaged"
        case None:
            return "the private key or a certificate cannot be parsed"
        case _:
            return f"the private key or a certificate cannot be used ({reason})"


@contextlib.contextmanager
def private_file(contents: bytes) -> Iterator[str]:
    """Yields the path of a file with these contents, which nobody else can read and which is gone afterwards.

    On Linux it is a file in memory, addressed by this process's own descriptor; elsewhere a temporary file.
    """
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        fd = os.memfd_create("barnabas-private-key", os.MFD_CLOEXEC)
        try:
            with os.fdopen(os.dup(fd), "wb") as file:
                file.write(contents)
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
        return
    with tempfile.TemporaryDirectory(prefix="barnabas-") as directory:  # 0700
        path = Path(directory, "key.pem")
        path.touch(0o600)
        path.write_bytes(contents)
        yield str(path)


def load_key_store(settings: SslSettings) -> KeyStore | None:
    """Returns the private key and its certificates; None if there are none, as for most clients."""
    location, password = settings.keystore_location, settings.keystore_password
    is_pem = settings.keystore_type.upper() == PEM
    if settings.keystore_key is not None:
        if not is_pem:
            raise _invalid(
                "ssl.keystore.key",
                f"SSL private key can be specified only for PEM, but key store type is {settings.keystore_type}.",
            )
        if settings.keystore_certificate_chain is None:
            raise _invalid(
                "ssl.keystore.certificate.chain",
                "SSL private key is specified, but certificate chain is not specified.",
            )
        if location is not None:
            raise _invalid(
                "ssl.keystore.location", "Both SSL key store location and separate private key are specified."
            )
        if password is not None:
            raise _invalid(
                "ssl.keystore.password",
                "SSL key store password cannot be specified with PEM format, only key password may be specified.",
            )
        return KeyStore(
            _pem_key(settings.keystore_key.value, settings.key_password, "ssl.keystore.key"),
            settings.key_password,
            _pem_certificates(settings.keystore_certificate_chain.value, "ssl.keystore.certificate.chain"),
        )
    if settings.keystore_certificate_chain is not None:
        raise _invalid("ssl.keystore.key", "SSL certificate chain is specified, but private key is not specified.")
    if location is None:
        if password is not None:
            raise _invalid(
                "ssl.keystore.location", "SSL key store is not specified, but key store password is specified."
            )
        return None
    if is_pem:
        if password is not None:
            raise _invalid(
                "ssl.keystore.password",
                "SSL key store password cannot be specified with PEM format, only key password may be specified.",
            )
        text = _read_text(location, "ssl.keystore.location")
        _warn_if_others_read(location)
        return KeyStore(
            _pem_key(text, settings.key_password, location), settings.key_password, _pem_certificates(text, location)
        )
    if password is None:
        raise _invalid("ssl.keystore.password", "SSL key store is specified, but key store password is not specified.")
    data = _read(location, "ssl.keystore.location")
    _warn_if_others_read(location)
    with _explained("ssl.keystore.location", location, settings.keystore_type):
        return _binary_key_store(data, password, settings.key_password or password)


def load_trust_store(settings: SslSettings) -> tuple[bytes, ...] | None:
    """Returns the trusted certificates in DER; None for the system's."""
    location, password = settings.truststore_location, settings.truststore_password
    is_pem = settings.truststore_type.upper() == PEM
    if settings.truststore_certificates is not None:
        if not is_pem:
            raise _invalid(
                "ssl.truststore.certificates",
                f"SSL trust store certs can be specified only for PEM, but trust store type is "
                f"{settings.truststore_type}.",
            )
        if location is not None:
            raise _invalid(
                "ssl.truststore.location",
                "Both SSL trust store location and separate trust certificates are specified.",
            )
        if password is not None:
            raise _invalid("ssl.truststore.password", "SSL trust store password cannot be specified for PEM format.")
        return _pem_certificates(settings.truststore_certificates.value, "ssl.truststore.certificates")
    if location is None:
        if password is not None:
            raise _invalid(
                "ssl.truststore.location", "SSL trust store is not specified, but trust store password is specified."
            )
        return None
    if is_pem:
        if password is not None:
            raise _invalid("ssl.truststore.password", "SSL trust store password cannot be specified for PEM format.")
        return _pem_certificates(_read_text(location, "ssl.truststore.location"), location)
    data = _read(location, "ssl.truststore.location")
    with _explained("ssl.truststore.location", location, settings.truststore_type):
        return _binary_trust_store(data, password)


def _invalid(name: str, message: str) -> ConfigError:
    return ConfigError(message, name=name)


# -- files


def _read(location: str, name: str) -> bytes:
    try:
        with Path(location).open("rb") as file:
            data = file.read(MAX_STORE_BYTES + 1)
    except OSError as error:
        raise _invalid(name, f"Cannot read {name}={location}: {error.strerror}") from None
    if len(data) > MAX_STORE_BYTES:
        raise _invalid(name, f"{name}={location} has more than {MAX_STORE_BYTES} bytes")
    return data


def _read_text(location: str, name: str) -> str:
    # Comments may be in any encoding; what counts is ASCII.
    return _read(location, name).decode("latin-1")


def _warn_if_others_read(location: str) -> None:
    """Warns only, as Apache Kafka accepts such a key store."""
    with contextlib.suppress(OSError):
        check_access(location, "key store", Path(location).stat(), refuse=False)


@contextlib.contextmanager
def _explained(name: str, location: str, kind: str) -> Iterator[None]:
    """Turns the errors of a store's format into one that names the file."""
    try:
        yield
    except ConfigError:
        raise
    except ValueError as error:
        raise _invalid(name, f"Failed to load SSL key store {location} of type {kind}: {error}") from None


# -- PEM


def _pem_entries(text: str, kind: str, where: str) -> list[tuple[str, str]]:
    """Returns the entries whose type ends with ``kind``, as type and body.

    A value in a properties file often has spaces in place of line ends.
    """
    found = [(label, body) for label, body in _PEM_ENTRY.findall(text) if label.endswith(kind)]
    if not found:
        raise _invalid(where, f"No matching {kind} entries in PEM of {where}")
    return found


def _decoded(body: str, kind: str, where: str) -> bytes:
    try:
        found = base64.b64decode("".join(body.split()), validate=True)
    except ValueError:  # binascii.Error, or characters that are not ASCII
        found = b""
    if not found:
        raise _invalid(where, f"A {kind} entry in the PEM of {where} is not valid base64")
    return found


def _pem_certificates(text: str, where: str) -> tuple[bytes, ...]:
    return tuple(_decoded(body, "CERTIFICATE", where) for _, body in _pem_entries(text, "CERTIFICATE", where))


def _pem_key(text: str, password: Password | None, where: str) -> str:
    """Returns the only private key, in lines as OpenSSL wants it."""
    entries = _pem_entries(text, "PRIVATE KEY", where)
    if len(entries) != 1:
        raise _invalid(where, f"Expected one private key in the PEM of {where}, but found {len(entries)}")
    label, body = entries[0]
    headers: list[str] = []
    while header := _PEM_HEADER.match(body):
        headers.append(header[1])
        body = body[header.end() :]
    if password is None and (label.startswith("ENCRYPTED") or headers):
        raise _invalid("ssl.key.password", f"The private key in {where} is encrypted; set ssl.key.password")
    return pem(label, _decoded(body, "PRIVATE KEY", where), headers)


def pem(label: str, der: bytes, headers: list[str] | None = None) -> str:
    """Formats one PEM entry."""
    encoded = base64.b64encode(der).decode()
    lines = [encoded[at : at + 64] for at in range(0, len(encoded), 64)]
    above = [*headers, ""] if headers else []
    return "\n".join([f"-----BEGIN {label}-----", *above, *lines, f"-----END {label}-----", ""])


# -- JKS and PKCS12


def _binary_key_store(data: bytes, password: Password, key_password: Password) -> KeyStore:
    if data[:4] in {MAGIC, JCEKS_MAGIC}:
        store = read_jks(data, password.value)
        if not store.keys:
            raise JksError("it has no private key")
        entry = store.keys[0]
        if len(store.keys) > 1:
            log.info("Using the private key %s, the first of %d in the key store", entry.alias, len(store.keys))
        if not entry.chain:
            raise JksError(f"the private key {entry.alias!r} has no certificate")
        return KeyStore(pem("PRIVATE KEY", entry.private_key(key_password.value)), None, entry.chain)
    with extra("security", "A PKCS12 key store"):
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    try:
        loaded = pkcs12.load_pkcs12(data, password.value.encode())
    except ValueError:
        raise ValueError("the password is wrong, or the file is neither PKCS12 nor JKS") from None
    if loaded.key is None or loaded.cert is None:
        raise ValueError("it has no private key with a certificate")
    key = loaded.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    certificates = [loaded.cert.certificate]
    others = [one.certificate for one in loaded.additional_certs]
    # The chain, in order: each certificate is followed by that of its issuer.
    while issuer := next((one for one in others if one.subject == certificates[-1].issuer), None):
        certificates.append(issuer)
        others.remove(issuer)
    return KeyStore(key, None, tuple(one.public_bytes(Encoding.DER) for one in certificates))


def _binary_trust_store(data: bytes, password: Password | None) -> tuple[bytes, ...]:
    if data[:4] in {MAGIC, JCEKS_MAGIC}:
        store = read_jks(data, None if password is None else password.value)
        found = [*store.certificates, *(entry.chain[0] for entry in store.keys if entry.chain)]
    else:
        with extra("security", "A PKCS12 trust store"):
            from cryptography.hazmat.primitives.serialization import Encoding, pkcs12

        try:
            loaded = pkcs12.load_pkcs12(data, None if password is None else password.value.encode())
        except ValueError:
            hint = "it needs a password" if password is None else "the password is wrong"
            raise ValueError(f"{hint}, or the file is neither PKCS12 nor JKS") from None
        own = [] if loaded.cert is None else [loaded.cert]
        found = [one.certificate.public_bytes(Encoding.DER) for one in [*own, *loaded.additional_certs]]
    if not found:
        raise ValueError("it has no certificates")
    return tuple(found)
