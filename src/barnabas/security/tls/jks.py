"""Reads Java key stores (JKS).

The format is Sun's own, of 1996, and still what many clusters have::

    magic FEEDFEED, version (1 or 2), number of entries
    entry:   tag 1 (key) or 2 (certificate), alias, creation time
             key:          protected private key, then its chain of certificates
             certificate:  [type,] DER
    SHA-1 of (password in UTF-16, "Mighty Aphrodite", all of the above)

A private key is protected by XOR with a stream of SHA-1 digests, which start from password and salt. That is weak, and
a reason to use PKCS12; here it is only undone.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Final

from barnabas.common.dataclass import dataclass, field
from barnabas.security.tls.certificate import OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, DerReader, object_identifier

MAGIC: Final = b"\xfe\xed\xfe\xed"
JCEKS_MAGIC: Final = b"\xce\xce\xce\xce"
_WHITENER: Final = b"Mighty Aphrodite"
_DIGEST: Final = 20
_KEY_PROTECTOR: Final = "1.3.6.1.4.1.42.2.17.1.1"
_KEY, _CERTIFICATE = 1, 2


class JksError(ValueError):
    """The file is damaged, or the password is wrong. The message never contains the password."""


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """A private key and its certificates, the key's own first."""

    alias: str
    protected: bytes = field(repr=False)
    chain: tuple[bytes, ...] = field(repr=False)

    def private_key(self, password: str) -> bytes:
        """Returns the key in PKCS #8; raises `JksError` if the password is wrong."""
        return _unprotect(self.protected, password, self.alias)


@dataclass(frozen=True, slots=True)
class Jks:
    """The contents of a store."""

    keys: tuple[KeyEntry, ...]
    certificates: tuple[bytes, ...]


def _java_bytes(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")


class _Input:
    """Reads Java's ``DataOutput``; lengths are checked before anything is copied."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        if count < 0 or count > len(self._data) - self._at:
            raise JksError(f"damaged key store: {count} bytes announced, {len(self._data) - self._at} left")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self) -> int:
        number: int = struct.unpack(">i", self.take(4))[0]
        return number

    def utf(self) -> str:
        return self.take(int.from_bytes(self.take(2))).decode("utf-8", "replace")

    def sized(self) -> bytes:
        return self.take(self.number())

    @property
    def left(self) -> int:
        return len(self._data) - self._at


def read_jks(data: bytes, password: str | None) -> Jks:
    """Reads a store. Without a password its integrity is not checked, as in Java."""
    if data[:4] == JCEKS_MAGIC:
        raise JksError("a JCEKS key store is not supported; convert it with keytool -importkeystore to PKCS12")
    if data[:4] != MAGIC or len(data) < 12 + _DIGEST:
        raise JksError("not a JKS key store")
    body = data[:-_DIGEST]
    if password is not None:
        digest = hashlib.sha1(_java_bytes(password) + _WHITENER + body, usedforsecurity=False).digest()
        if not hmac.compare_digest(digest, data[-_DIGEST:]):
            raise JksError("the password is wrong, or the key store was changed")
    stream = _Input(body)
    stream.take(4)
    version = stream.number()
    if version not in {1, 2}:
        raise JksError(f"unknown version of a JKS key store: {version}")
    keys: list[KeyEntry] = []
    certificates: list[bytes] = []
    for _ in range(stream.number()):
        tag, alias = stream.number(), stream.utf()
        stream.take(8)  # creation time
        if tag == _KEY:
            protected = stream.sized()
            chain = tuple(_certificate(stream, version) for _ in range(stream.number()))
            keys.append(KeyEntry(alias, protected, chain))
        elif tag == _CERTIFICATE:
            certificates.append(_certificate(stream, version))
        else:
            raise JksError(f"damaged key store: unknown entry type {tag}")
    if stream.left:
        raise JksError(f"damaged key store: {stream.left} bytes after its last entry")
    return Jks(tuple(keys), tuple(certificates))


def _certificate(stream: _Input, version: int) -> bytes:
    if version == 2 and (kind := stream.utf()) != "X.509":
        raise JksError(f"unsupported type of certificate: {kind[:20]!r}")
    return stream.sized()


def _unprotect(protected: bytes, password: str, alias: str) -> bytes:
    try:
        info = DerReader(protected).inside(SEQUENCE)
        algorithm = object_identifier(info.inside(SEQUENCE).next(OBJECT_IDENTIFIER).contents)
        sealed = info.next(OCTET_STRING).contents
    except ValueError as error:
        raise JksError(f"damaged private key {alias!r}: {error}") from None
    if algorithm != _KEY_PROTECTOR:
        raise JksError(f"the private key {alias!r} is encrypted with an unsupported algorithm ({algorithm})")
    if len(sealed) < 2 * _DIGEST:
        raise JksError(f"damaged private key {alias!r}: {len(sealed)} bytes")
    salt, encrypted, check = sealed[:_DIGEST], sealed[_DIGEST:-_DIGEST], sealed[-_DIGEST:]
    secret = _java_bytes(password)
    stream = bytearray()
    block = salt
    while len(stream) < len(encrypted):
        block = hashlib.sha1(secret + block, usedforsecurity=False).digest()
        stream += block
    number = int.from_bytes(encrypted) ^ int.from_bytes(stream[: len(encrypted)])
    key = number.to_bytes(len(encrypted))
    if not hmac.compare_digest(hashlib.sha1(secret + key, usedforsecurity=False).digest(), check):
        raise JksError(f"the password of the private key {alias!r} is wrong; see ssl.key.password")
    return key
