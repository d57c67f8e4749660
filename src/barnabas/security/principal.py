"""Principals: who a client is, once it has been authenticated."""

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
    """A kind and a name, written ``User:alice`` in ACLs and settings.

    The kind is "User" unless somebody has plugged in an authenticator that knows groups or roles.
    ``token_authenticated`` is about the connection and not about who it is, so principals are equal without it.

    >>> KafkaPrincipal.parse("User:CN=alice,O=Castle:West")
    KafkaPrincipal(type='User', name='CN=alice,O=Castle:West', token_authenticated=False)
    """

    type: str
    name: str
    token_authenticated: bool = field(default=False, compare=False)
    """Whether it came with a delegation token, with which one cannot get further tokens."""

    @classmethod
    def parse(cls, text: str) -> KafkaPrincipal:
        """Reads what ``str`` writes; a name may contain colons, a kind may not."""
        kind, colon, name = text.partition(":")
        if not colon:
            raise ValueError(f"a principal is written as type:name, such as User:alice, not as {text!r}")
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = KafkaPrincipal(USER_TYPE, "ANONYMOUS")
"""Whoever comes in over a listener that does not ask."""
WILDCARD_PRINCIPAL: Final = KafkaPrincipal(USER_TYPE, "*")
"""In an ACL: everybody."""


def serialize_principal(principal: KafkaPrincipal) -> bytes:
    """The bytes that go into an Envelope, from which the controller learns who sent the request inside."""
    version = DefaultPrincipalData.versions.highest
    data = DefaultPrincipalData(
        type=principal.type, name=principal.name, token_authenticated=principal.token_authenticated
    )
    return _VERSION.pack(version) + data.encode(version)


def deserialize_principal(data: Buffer) -> KafkaPrincipal:
    """Reads what :func:`serialize_principal` wrote; anything else is a :class:`PrincipalDeserializationError`."""
    if len(data) < _VERSION.size:
        raise PrincipalDeserializationError(f"a principal of {len(data)} bytes has no version")
    (version,) = _VERSION.unpack_from(data)
    if version not in DefaultPrincipalData.versions:
        raise PrincipalDeserializationError(f"a principal of version {version}, which this node does not know")
    try:
        read = DefaultPrincipalData.decode(memoryview(data)[_VERSION.size :], version)
    except ProtocolError as error:
        raise PrincipalDeserializationError(str(error)) from None
    return KafkaPrincipal(read.type, read.name, read.token_authenticated)
