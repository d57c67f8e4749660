"""Builds the TLS contexts of a listener or a client, and replaces them while it is running.

A context is built from the settings alone, checked, and only then becomes the one that new connections get: the swap
is one assignment, so all threads see either the old context or the new one. Open connections keep theirs. A
replacement that would lock clients out is refused:

* another distinguished name, or fewer subject alternative names, of the own certificate, unless
  ``ssl.allow.dn.changes`` or ``ssl.allow.san.changes`` permit it;
* a key store or trust store where there was none, or none where there was a key store;
* for a listener that brokers use among themselves: a certificate that its own trust store does not trust. That is tried
  with a handshake in memory, between the old and the new context, in both directions.
"""

from __future__ import annotations

import logging
import ssl
import threading
from contextlib import suppress
from enum import Enum
from typing import Final, NamedTuple

from barnabas.common.config_def import ConfigError
from barnabas.network.transport.tls_errors import explain_tls_error
from barnabas.security.tls import cipher_suites
from barnabas.security.tls.certificate import Certificate, DerError, read_certificate
from barnabas.security.tls.ssl_config import PROTOCOLS, ClientAuth, SslSettings
from barnabas.security.tls.stores import KeyStore, load_key_store, load_trust_store

log = logging.getLogger(__name__)

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}
_MAX_FLIGHTS: Final = 20


class Mode(Enum):
    """Which end of a connection a context is for."""

    CLIENT = "client"
    SERVER = "server"


class _Built(NamedTuple):
    """A context with what it was built from."""

    settings: SslSettings
    context: ssl.SSLContext
    keys: KeyStore | None
    trusted: tuple[bytes, ...] | None


class SslFactory:
    """Has the current context of a listener or a client.

    ``verify_own_certificate`` requires that both ends of a connection can use these settings, as brokers do.
    """

    def __init__(self, settings: SslSettings, mode: Mode, *, verify_own_certificate: bool = False) -> None:
        self._mode = mode
        self._verify = verify_own_certificate
        self._lock = threading.Lock()
        """Held while a replacement is built, so that the later of two wins. No other lock is taken inside."""
        self._built = _build(settings, mode)
        if verify_own_certificate:
            _verify_pair(self._built, self._built)

    @property
    def context(self) -> ssl.SSLContext:
        """The context for a new connection."""
        return self._built.context

    @property
    def settings(self) -> SslSettings:
        return self._built.settings

    @property
    def certificate(self) -> bytes | None:
        """The own certificate in DER."""
        keys = self._built.keys
        return None if keys is None else keys.chain[0]

    def validate(self, settings: SslSettings) -> None:
        """Raises `ConfigError` if `reconfigure` would."""
        self._replacement(settings)

    def reconfigure(self, settings: SslSettings) -> None:
        """Replaces the context, reading all files again. Raises `ConfigError`, and changes nothing, if that fails."""
        with self._lock:
            self._built = self._replacement(settings)
        log.info("New TLS %s context: key store %s, trust store %s", self._mode.value, *_locations(settings))

    def _replacement(self, settings: SslSettings) -> _Built:
        old = self._built
        new = _build(settings, self._mode)
        if old.keys is None and new.keys is not None:
            raise ConfigError("Cannot add SSL keystore to an existing listener for which no keystore was configured.")
        if old.keys is not None and new.keys is None:
            raise ConfigError(
                "Cannot remove the SSL keystore from an existing listener for which a keystore was configured."
            )
        if old.trusted is None and new.trusted is not None:
            raise ConfigError(
                "Cannot add SSL truststore to an existing listener for which no truststore was configured."
            )
        if old.keys is not None and new.keys is not None:
            _ensure_compatible(_own(old.keys), _own(new.keys), settings)
        if self._verify:
            _verify_pair(old, new)
            _verify_pair(new, old)
        return new

    def __repr__(self) -> str:
        keys, trusted = _locations(self.settings)
        return f"SslFactory({self._mode.value}, key store {keys}, trust store {trusted})"


def _locations(settings: SslSettings) -> tuple[str, str]:
    """Where the stores are, in words without secrets."""
    keys = settings.keystore_location or ("inline" if settings.keystore_key is not None else "none")
    trusted = settings.truststore_location or (
        "inline" if settings.truststore_certificates is not None else "of the system"
    )
    return keys, trusted


# -- building


def _build(settings: SslSettings, mode: Mode) -> _Built:
    keys, trusted = load_key_store(settings), load_trust_store(settings)
    return _Built(settings, _context(settings, mode, keys, trusted), keys, trusted)


def _context(
    settings: SslSettings, mode: Mode, keys: KeyStore | None, trusted: tuple[bytes, ...] | None
) -> ssl.SSLContext:
    server = mode is Mode.SERVER
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    _set_protocols(context, settings)
    # Java trusts every certificate in a trust store, also one that is not self-signed.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if server:
        if keys is None:
            raise ConfigError(
                "A TLS listener needs a private key: set ssl.keystore.location, or ssl.keystore.key and "
                "ssl.keystore.certificate.chain with ssl.keystore.type=PEM.",
                name="ssl.keystore.location",
            )
        context.verify_mode = _VERIFY[settings.client_auth]
        context.num_tickets = 1
    else:
        context.check_hostname = _checks_host_name(settings.endpoint_identification_algorithm)
        context.verify_mode = ssl.CERT_REQUIRED
    if keys is not None:
        keys.load_into(context)
    if context.verify_mode is not ssl.CERT_NONE:
        _trust(context, trusted, server=server)
    return context


def _trust(context: ssl.SSLContext, trusted: tuple[bytes, ...] | None, *, server: bool) -> None:
    if trusted is None:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH if server else ssl.Purpose.SERVER_AUTH)
        return
    try:
        context.load_verify_locations(cadata=b"".join(trusted))
    except ssl.SSLError as error:
        raise ConfigError(
            f"Invalid SSL trust store: a certificate cannot be parsed ({error.reason})", name="ssl.truststore.location"
        ) from None


def _checks_host_name(algorithm: str) -> bool:
    if algorithm and algorithm.lower() != "https":
        raise ConfigError.invalid(
            "ssl.endpoint.identification.algorithm", algorithm, "it must be https, or empty to accept any host name"
        )
    return bool(algorithm)


def _set_protocols(context: ssl.SSLContext, settings: SslSettings) -> None:
    """Sets versions and cipher suites.

    The interpreter cannot choose among the suites of TLS 1.3. A list without any of them turns TLS 1.3 off, and a list
    with only those turns TLS 1.2 off.
    """
    name = "ssl.enabled.protocols" if settings.enabled_protocols else "ssl.protocol"
    enabled = set(settings.enabled_protocols or ([*PROTOCOLS] if settings.protocol == "TLS" else [settings.protocol]))
    if unknown := sorted(enabled - set(PROTOCOLS)):
        raise ConfigError.invalid(name, ",".join(unknown), f"supported versions are {' and '.join(PROTOCOLS)}")
    suites = settings.cipher_suites
    if suites:
        newer = [suite for suite in suites if suite in cipher_suites.TLS_1_3]
        older = [cipher_suites.openssl_name(suite) for suite in suites if suite not in cipher_suites.TLS_1_3]
        enabled -= set() if newer else {"TLSv1.3"}
        enabled -= set() if older else {"TLSv1.2"}
        if not enabled:
            raise ConfigError.invalid(
                "ssl.cipher.suites", suites, "no suite fits the versions in ssl.enabled.protocols"
            )
        if hasattr(context, "set_ciphersuites"):
            context.set_ciphersuites(":".join(newer))
        elif "TLSv1.3" in enabled and len(newer) < len(cipher_suites.TLS_1_3):
            log.warning(
                "This version of Python cannot choose among the cipher suites of TLS 1.3: %s are enabled",
                ", ".join(cipher_suites.TLS_1_3),
            )
        if older:
            _set_ciphers(context, older)
    else:
        context.set_ciphers(cipher_suites.DEFAULT)
    context.minimum_version = min(_VERSIONS[version] for version in enabled)
    context.maximum_version = max(_VERSIONS[version] for version in enabled)


def _set_ciphers(context: ssl.SSLContext, names: list[str]) -> None:
    try:
        context.set_ciphers(":".join(names))
    except ssl.SSLError:
        raise ConfigError.invalid("ssl.cipher.suites", names, "OpenSSL supports none of these cipher suites") from None


# -- checks of a replacement


def _own(keys: KeyStore) -> Certificate:
    try:
        return read_certificate(keys.chain[0])
    except DerError as error:
        raise ConfigError(f"Invalid SSL key store: its certificate cannot be parsed: {error}") from None


def _ensure_compatible(old: Certificate, new: Certificate, settings: SslSettings) -> None:
    if not settings.allow_dn_changes and _canonical(old.subject) != _canonical(new.subject):
        raise ConfigError(
            f"Keystore DistinguishedName does not match: existing={old.subject}, new={new.subject}; "
            "ssl.allow.dn.changes permits it"
        )
    missing = old.alternative_names - new.alternative_names
    if not settings.allow_san_changes and missing:
        names = ", ".join(sorted(_shown_name(name) for name in missing))
        raise ConfigError(
            f"Keystore SubjectAltNames do not match: the new certificate lacks {names}; ssl.allow.san.changes "
            "permits it"
        )


def _canonical(name: str) -> str:
    return " ".join(name.casefold().split())


def _shown_name(encoded: bytes) -> str:
    """Shows a subject alternative name: a host name or address, or its encoding."""
    tag, contents = encoded[0], encoded[2:]
    if tag in {0x81, 0x82, 0x86}:  # e-mail, DNS, URI
        return contents.decode("ascii", "backslashreplace")
    if tag == 0x87 and len(contents) == 4:
        return ".".join(map(str, contents))
    return encoded.hex()


def _verify_pair(server: _Built, client: _Built) -> None:
    """Shakes hands in memory: a client with the one settings must be able to connect to a server with the other."""
    try:
        without_host = _context(client.settings, Mode.CLIENT, client.keys, client.trusted)
        without_host.check_hostname = False
        shake_hands(_context(server.settings, Mode.SERVER, server.keys, server.trusted), without_host)
    except ssl.SSLError as error:
        raise ConfigError(
            "A client SSLEngine created with the provided settings can't connect to a server SSLEngine created with "
            f"those settings: {explain_tls_error(error)}"
        ) from None


def shake_hands(server_context: ssl.SSLContext, client_context: ssl.SSLContext, host: str | None = None) -> None:
    """Completes a handshake between two contexts in memory; raises ``ssl.SSLError`` if one rejects the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=host)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_MAX_FLIGHTS):
        waiting = False
        for engine in (client, server):
            try:
                engine.do_handshake()
            except ssl.SSLWantReadError:
                waiting = True
        if not waiting:
            with suppress(ssl.SSLWantReadError):
                client.read(1)  # TLS 1.3: the server's opinion of the client's certificate comes after the handshake
            return
    raise ssl.SSLError("the handshake does not end")
