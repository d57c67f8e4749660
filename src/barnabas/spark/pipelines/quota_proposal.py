"""Proposed limits: the output of quota-advice, and the input of quota-dry-run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Self

from barnabas.quota.quota_entity import DEFAULT, EntityName, QuotaEntity
from barnabas.quota.quota_type import ClientQuotaType

BANDWIDTH_AND_TIME: Final = (ClientQuotaType.PRODUCE, ClientQuotaType.FETCH, ClientQuotaType.REQUEST)
"""The quotas that requests are charged to. The request log does not have the number of created partitions."""


class Tenancy(Enum):
    """The kind of entity that counts as one tenant, and that limits are set for."""

    USER = "user"
    CLIENT_ID = "client-id"
    USER_CLIENT_ID = "user,client-id"

    def entity(self, user: str, client_id: str | None) -> QuotaEntity:
        """Returns the entity of a client's limit: the default client id for a client without a client id."""
        client: EntityName = client_id or DEFAULT
        if self is Tenancy.USER:
            return QuotaEntity(user, None)
        return QuotaEntity(None if self is Tenancy.CLIENT_ID else user, client)


@dataclass(frozen=True, slots=True)
class ProposedLimit:
    """A limit for an entity."""

    quota: str
    """``producer_byte_rate``, ``consumer_byte_rate`` or ``request_percentage``."""
    entity: QuotaEntity
    limit: float
    """Per second, for each broker."""

    def __post_init__(self) -> None:
        if self.quota not in {kind.key for kind in BANDWIDTH_AND_TIME}:
            known = ", ".join(kind.key for kind in BANDWIDTH_AND_TIME)
            raise ValueError(f"{self.quota!r} cannot be replayed: the request log has the charges of {known}")
        if self.limit <= 0:
            raise ValueError(f"the limit of {self.quota} must be greater than 0: {self.limit:g}")

    def to_json(self) -> dict[str, Any]:
        def name(part: EntityName) -> dict[str, Any]:
            return {"default": True} if part is DEFAULT else {"name": part}

        parts = {"user": self.entity.user, "client-id": self.entity.client_id}
        return {
            "quota": self.quota,
            "entity": {kind: name(part) for kind, part in parts.items() if part is not None},
            "limit": self.limit,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        parts: dict[str, EntityName] = {
            kind: DEFAULT if part.get("default") else part["name"] for kind, part in document["entity"].items()
        }
        return cls(document["quota"], QuotaEntity(parts.get("user"), parts.get("client-id")), float(document["limit"]))


def limits_of(proposals: Sequence[ProposedLimit], quota: str) -> list[tuple[QuotaEntity, float]]:
    """Returns the limits of one quota."""
    return [(one.entity, one.limit) for one in proposals if one.quota == quota]


def user_of(principal: str) -> str:
    """Returns the name in a principal such as ``User:alice``."""
    return principal.partition(":")[2] or principal
