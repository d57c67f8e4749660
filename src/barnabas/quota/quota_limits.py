"""The limits of one quota type, by entity (Q02, Q03)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from barnabas.quota.quota_entity import (
    DEFAULT,
    QuotaEntity,
    QuotaLevel,
    QuotaTags,
    precedence,
    tags_at,
)


class QuotaLimits:
    """Stores and looks up limits.

    A request needs two lookups, and both are short in most clusters:

    * **Does any limit exist?** If not, `levels` is 0 and nothing else happens. Each level counts its entities, so it is
      cleared when its last limit is removed.
    * **Whose usage is it?** (`tags_of`) If only one level has limits, that level decides: with limits for users only,
      all clients of a user share one sensor, whether or not that user has a limit. Only if several levels have limits
      are the eight candidates checked, and the level of the match decides.

    The limit of tags is looked up only when a sensor is created or a limit changes (`limit_of`).

    A client without a client ID is treated as one with an empty ID: no entity can have that name, so the default client
    ID applies to it.

    It has no lock: the manager changes it under its own lock. Readers need no lock, because each read is of one number
    or one key.
    """

    __slots__ = ("_counts", "_limits", "levels")

    def __init__(self) -> None:
        self.levels = 0
        """The `QuotaLevel` bits in use. An int instead of an enum, because every request reads it."""
        self._limits: dict[QuotaEntity, float] = {}
        self._counts: Counter[QuotaLevel] = Counter()

    def update(self, entity: QuotaEntity, limit: float) -> None:
        if entity.level is QuotaLevel.NONE:
            raise ValueError("a quota needs a user or a client ID")
        if entity not in self._limits:
            self._counts[entity.level] += 1
        self._limits[entity] = limit
        self.levels |= entity.level.value

    def remove(self, entity: QuotaEntity) -> None:
        """Removes a limit, if it exists."""
        if self._limits.pop(entity, None) is None:
            return
        self._counts[entity.level] -= 1
        if not self._counts[entity.level]:
            self.levels &= ~entity.level.value

    def tags_of(self, user: str, client_id: str) -> QuotaTags:
        """Returns the tags that a request of this client is charged to."""
        levels = self.levels
        if levels in (_NONE, _CLIENT_ID):
            return QuotaTags("", client_id)
        if levels == _USER:
            return QuotaTags(user, "")
        if levels == _USER_CLIENT_ID:
            return QuotaTags(user, client_id)
        found = self.match(user, client_id)
        return tags_at(QuotaLevel.CLIENT_ID if found is None else found.level, user, client_id)

    def match(self, user: str, client_id: str) -> QuotaEntity | None:
        """Returns the first of the eight candidates that has a limit."""
        limits = self._limits
        return next((entity for entity in precedence(user, client_id) if entity in limits), None)

    def limit_of(self, tags: QuotaTags) -> float | None:
        """Returns the limit of the clients that share these tags, or None."""
        user, client_id = tags
        candidates: Iterable[QuotaEntity]
        if user and client_id:
            candidates = (
                QuotaEntity(user, client_id),
                QuotaEntity(user, DEFAULT),
                QuotaEntity(DEFAULT, client_id),
                QuotaEntity(DEFAULT, DEFAULT),
            )
        elif user:
            # All clients of the user, or the client without a client ID.
            candidates = (
                QuotaEntity(user, DEFAULT),
                QuotaEntity(user, None),
                QuotaEntity(DEFAULT, DEFAULT),
                QuotaEntity(DEFAULT, None),
            )
        else:
            candidates = (QuotaEntity(None, client_id), QuotaEntity(None, DEFAULT))
        limits = self._limits
        return next((limits[entity] for entity in candidates if entity in limits), None)

    def __repr__(self) -> str:
        return f"QuotaLimits({QuotaLevel(self.levels)!r}, {len(self._limits)} limits)"


_NONE, _CLIENT_ID, _USER, _USER_CLIENT_ID = (
    level.value for level in (QuotaLevel.NONE, QuotaLevel.CLIENT_ID, QuotaLevel.USER, QuotaLevel.USER_CLIENT_ID)
)
