"""Principals: the identities of authenticated clients."""

from __future__ import annotations

import struct
from typing import Final

from barnabas.common.dataclass import dataclass, field
from barnabas.common.errors import PrincipalDeserializationError, ProtocolError
from barnabas.protocol.message import Buffer
from barnabas.protocol.messages.principal import DefaultPrincipalData

USER_TYPE: Final = "User"
_VERSION: Final = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class KafkaPrincipal:
    """A type and a name, written ``User:alice`` in ACLs and settings.

    The type is "User" unless a plug-in authenticates groups or roles. ``token_authenticated`` describes the connection,
    not the identity, so comparisons ignore it.

    >>> KafkaPrincipal.parse("User:CN=alice,O=Castle:West")
    KafkaPrincipal(type='User', name='CN=alice,O=Castle:West', token_authenticated=False)
    """

    type: str
    name: str
    token_authenticated: bool = field(default=False, compare=False)
    """Whether the client used a delegation token, with which it cannot create further tokens."""

    @classmethod
    def parse(cls, text: str) -> KafkaPrincipal:
        """Parses the output of ``str``; a name may contain colons, a type may not."""
        kind, colon, name = text.partition(":")
        if not colon:
            raise ValueError(f"a principal must have the form type:name, for example User:alice: {text!r}")
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = KafkaPrincipal(USER_TYPE, "ANONYMOUS")
"""The principal of clients on a listener without authentication."""
WILDCARD_PRINCIPAL: Final = KafkaPrincipal(USER_TYPE, "*")
"""Every principal, in an ACL."""


def serialize_principal(principal: KafkaPrincipal) -> bytes:
    """Encodes a principal for an Envelope, from which the controller reads the sender of the forwarded request."""
    version = DefaultPrincipalData.versions.highest
    data = DefaultPrincipalData(
        type=principal.type, name=principal.name, token_authenticated=principal.token_authenticated
    )
    return _VERSION.pack(version) + data.encode(version)


def deserialize_principal(data: Buffer) -> KafkaPrincipal:
    """Decodes :func:`serialize_principal`; raises :class:`PrincipalDeserializationError` for anything else."""
    if len(data) < _VERSION.size:
        raise PrincipalDeserializationError(f"a serialized principal of {len(data)} bytes has no version")
    (version,) = _VERSION.unpack_from(data)
    if version not in DefaultPrincipalData.versions:
        raise PrincipalDeserializationError(f"unknown version of a serialized principal: {version}")
    try:
        read = DefaultPrincipalData.decode(memoryview(data)[_VERSION.size :], version)
    except ProtocolError as error:
        raise PrincipalDeserializationError(str(error)) from None
    return KafkaPrincipal(read.type, read.name, read.token_authenticated)
