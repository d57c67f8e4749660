"""Names the tenants of a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from barnabas.report.table_reader import TableReader
from barnabas.spark.pipelines.quota_proposal import Tenancy, user_of
from barnabas.spark.pipelines.quotas import NODE_APIS

NAMELESS: Final = "(no client id)"
OTHERS: Final = "others"


@dataclass(frozen=True, slots=True)
class TenantNames:
    """Names tenants in the same way as limits are set: by client ID, user, or both.

    Tenants can be combined into groups. A group has patterns as in a shell (``*``, ``?``, ``[a-z]``) for the names of
    its tenants; the first group that matches is used.
    """

    tenancy: Tenancy = Tenancy.CLIENT_ID
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    nodes: frozenset[str] = frozenset()
    """The client IDs of brokers, which are their node IDs."""

    def name(self, principal: str | None, client_id: str | None) -> str:
        """Returns the tenant of one client.

        >>> TenantNames().name("User:alice", "billing")
        'billing'
        >>> TenantNames(Tenancy.USER_CLIENT_ID).name("User:alice", "billing")
        'alice / billing'
        >>> TenantNames(groups={"finance": ["billing*", "invoices"]}).name("User:alice", "billing-7")
        'finance'
        >>> TenantNames(nodes=frozenset({"1"})).name("User:ANONYMOUS", "1")
        'broker 1'
        """
        client = f"broker {client_id}" if client_id in self.nodes else client_id or NAMELESS
        user = user_of(principal or "User:ANONYMOUS")
        name = {
            Tenancy.CLIENT_ID: client,
            Tenancy.USER: user,
            Tenancy.USER_CLIENT_ID: f"{user} / {client}",
        }[self.tenancy]
        return next(
            (group for group, patterns in self.groups.items() if any(fnmatchcase(name, one) for one in patterns)), name
        )


def parse_groups(texts: Iterable[str]) -> dict[str, list[str]]:
    """Parses groups of tenants; the same name may occur again.

    >>> parse_groups(["finance=billing*,invoices", "web=shop", "finance=tax"])
    {'finance': ['billing*', 'invoices', 'tax'], 'web': ['shop']}
    >>> parse_groups(["finance"])
    Traceback (most recent call last):
      ...
    ValueError: a group must have the form NAME=PATTERN,...: 'finance'
    """
    groups: dict[str, list[str]] = {}
    for text in texts:
        name, _, rest = text.partition("=")
        patterns = [one for one in rest.split(",") if one]
        if not name or not patterns:
            raise ValueError(f"a group must have the form NAME=PATTERN,...: {text!r}")
        groups.setdefault(name, []).extend(patterns)
    return groups


def find_nodes(tables: TableReader) -> frozenset[str]:
    """Returns the client IDs of brokers: those with requests that only nodes of a cluster send.

    A broker forwards requests of its clients to the controller with its node ID as client ID. In a report "1" is not a
    helpful name of a tenant.
    """
    import pyarrow as pa  # an extra
    import pyarrow.compute as pc

    found = tables.read("requests", "counts_1m", ("api", "client_id"))
    if found is None:
        return frozenset()
    sent_by_nodes = found.filter(pc.is_in(found["api"], value_set=pa.array(NODE_APIS)))
    return frozenset(one for one in pc.unique(sent_by_nodes["client_id"]).to_pylist() if one)


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
