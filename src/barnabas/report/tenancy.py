"""Names the tenants of a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.spark.pipelines.quota_proposal import Tenancy, user_of

NAMELESS: Final = "(no client id)"
OTHERS: Final = "others"


@dataclass(frozen=True, slots=True)
class TenantNames:
    """Names tenants in the same way as limits are set: by client ID, user, or both."""

    tenancy: Tenancy = Tenancy.CLIENT_ID

    def name(self, principal: str | None, client_id: str | None) -> str:
        """Returns the tenant of one client.

        >>> TenantNames().name("User:alice", "billing")
        'billing'
        >>> TenantNames(Tenancy.USER_CLIENT_ID).name("User:alice", "billing")
        'alice / billing'
        """
        client = client_id or NAMELESS
        if self.tenancy is Tenancy.CLIENT_ID:
            return client
        user = user_of(principal or "User:ANONYMOUS")
        return user if self.tenancy is Tenancy.USER else f"{user} / {client}"


def group_name(user: str | None, client_id: str | None) -> str:
    """Names the clients that share a limit, as the broker has found it; without either, all clients.

    >>> group_name("alice", "billing"), group_name("alice", None), group_name(None, "billing"), group_name("", "")
    ('alice / billing', 'alice', 'billing', 'everybody')
    """
    return " / ".join(part for part in (user, client_id) if part) or "everybody"


def largest(amounts: Mapping[str, float], count: int) -> list[str]:
    """Returns the names with the largest amounts, in descending order, without those with nothing.

    >>> largest({"a": 1.0, "b": 3.0, "c": 0.0, "d": 2.0}, 2)
    ['b', 'd']
    """
    ordered: Iterable[tuple[str, float]] = sorted(amounts.items(), key=lambda one: (-one[1], one[0]))
    return [name for name, amount in ordered if amount > 0][:count]
