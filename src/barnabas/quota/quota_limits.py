"""The limits of one kind of quota, by entity (Q02, Q03)."""

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
    """Who has which limit.

    Two questions are asked for a request, and both have a short answer in most clusters:

    * **Is there any limit at all?** `levels` is 0 if not, and then nothing further is done. Each level has a count of
      its entities, so that it goes back to 0 when the last limit is taken away.
    * **Whose usage is it?** (`tags_of`) If limits are set at one level only, that level says it: with limits for users
      alone, all clients of a user share one sensor, whether or not that user has a limit. Only where several levels are
      in use are the eight candidates gone through, and the level of the one that is found says it.

    Which limit belongs to tags is asked only when a sensor is made or a limit changes (`limit_of`).

    A client that gives no client id is taken for one with an empty name: no entity can have that name, so it is the
    default client ids that count for it.

    Not locked: the manager changes it with its own lock held. Reading needs no lock, as each look is at one number or
    at one key.
    """

    __slots__ = ("_counts", "_limits", "levels")

    def __init__(self) -> None:
        self.levels = 0
        """The `QuotaLevel` bits in use. A plain number: it is looked at for every request."""
        self._limits: dict[QuotaEntity, float] = {}
        self._counts: Counter[QuotaLevel] = Counter()

    def update(self, entity: QuotaEntity, limit: float) -> None:
        if entity.level is QuotaLevel.NONE:
            raise ValueError("a quota needs an entity that it is for")
        if entity not in self._limits:
            self._counts[entity.level] += 1
        self._limits[entity] = limit
        self.levels |= entity.level.value

    def remove(self, entity: QuotaEntity) -> None:
        """Takes a limit away, if there is one."""
        if self._limits.pop(entity, None) is None:
            return
        self._counts[entity.level] -= 1
        if not self._counts[entity.level]:
            self.levels &= ~entity.level.value

    def tags_of(self, user: str, client_id: str) -> QuotaTags:
        """Which usage a request of this client counts for."""
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
        """The first of the eight candidates that has a limit."""
        limits = self._limits
        return next((entity for entity in precedence(user, client_id) if entity in limits), None)

    def limit_of(self, tags: QuotaTags) -> float | None:
        """The limit for the clients that share these tags; None if they have none."""
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
            # All clients of the user, or the one without a client id.
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
