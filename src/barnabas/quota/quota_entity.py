"""The entities that client quotas can be set for, and their precedence (Q02)."""

from __future__ import annotations

from enum import Enum, IntFlag
from typing import Final, Literal, NamedTuple, TypeAlias


class _Default(Enum):
    DEFAULT = "<default>"

    def __repr__(self) -> str:
        return self.value

    __str__ = __repr__


DEFAULT: Final = _Default.DEFAULT
"""The entity of every name without a quota of its own. It is not a string, because a client may have any name."""

EntityName: TypeAlias = str | Literal[_Default.DEFAULT] | None
"""A name, the default, or None if the entity does not have this part."""


class QuotaLevel(IntFlag):
    """The parts of an entity. A manager stores the levels in use as one number (Q03)."""

    NONE = 0
    CLIENT_ID = 1
    USER = 2
    USER_CLIENT_ID = 4
    CUSTOM = 8
    """A callback determines the quotas, by unknown criteria."""


class QuotaEntity(NamedTuple):
    """A user, a client ID, or both; each by name or as default.

    >>> QuotaEntity(user="alice", client_id=DEFAULT).path
    '/config/users/alice/clients/<default>'
    """

    user: EntityName = None
    client_id: EntityName = None

    @property
    def level(self) -> QuotaLevel:
        if self.user is None:
            return QuotaLevel.NONE if self.client_id is None else QuotaLevel.CLIENT_ID
        return QuotaLevel.USER if self.client_id is None else QuotaLevel.USER_CLIENT_ID

    @property
    def has_default(self) -> bool:
        """Whether it applies to more than one user or client."""
        return self.user is DEFAULT or self.client_id is DEFAULT

    @property
    def path(self) -> str:
        """The path in Kafka's documentation."""
        users = "" if self.user is None else f"/users/{self.user}"
        clients = "" if self.client_id is None else f"/clients/{self.client_id}"
        return f"/config{users}{clients}"

    def __str__(self) -> str:
        parts = []
        if self.user is not None:
            parts.append("default user" if self.user is DEFAULT else f"user {self.user}")
        if self.client_id is not None:
            parts.append("default client-id" if self.client_id is DEFAULT else f"client-id {self.client_id}")
        return ", ".join(parts)


def precedence(user: str, client_id: str) -> tuple[QuotaEntity, ...]:
    """Returns the eight entities that can have a quota for this client, most specific first.

    The first with a limit applies.

    The user takes precedence over the client ID, because a client can choose its client ID freely.

    >>> for entity in precedence("alice", "billing"):
    ...     print(entity.path)
    /config/users/alice/clients/billing
    /config/users/alice/clients/<default>
    /config/users/alice
    /config/users/<default>/clients/billing
    /config/users/<default>/clients/<default>
    /config/users/<default>
    /config/clients/billing
    /config/clients/<default>
    """
    return (
        QuotaEntity(user, client_id),
        QuotaEntity(user, DEFAULT),
        QuotaEntity(user, None),
        QuotaEntity(DEFAULT, client_id),
        QuotaEntity(DEFAULT, DEFAULT),
        QuotaEntity(DEFAULT, None),
        QuotaEntity(None, client_id),
        QuotaEntity(None, DEFAULT),
    )


class QuotaTags(NamedTuple):
    """Identifies the clients that share a quota, as the tags of its metric: the names that the matched level uses."""

    user: str
    client_id: str


def tags_at(level: QuotaLevel, user: str, client_id: str) -> QuotaTags:
    """Returns the tags of a client whose quota was found at that level."""
    if level is QuotaLevel.USER_CLIENT_ID:
        return QuotaTags(user, client_id)
    return QuotaTags(user, "") if level is QuotaLevel.USER else QuotaTags("", client_id)
