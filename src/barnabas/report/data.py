"""Everything that a report is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.report.clients import ClientHealth, read_clients
from barnabas.report.cluster_state import ClusterState
from barnabas.report.latency import Latency, read_latency
from barnabas.report.quota_use import Advice, QuotaUse, read_advice, read_quota_use
from barnabas.report.table_reader import TableReader
from barnabas.report.tenancy import TenantNames
from barnabas.report.traffic import Traffic, read_traffic

STREAMS: Final = ("requests", "quotas", "telemetry")
"""The pipelines over topics."""


@dataclass(frozen=True, slots=True)
class ReportData:
    """The data of all sections; None where a pipeline has not run."""

    tables: TableReader
    traffic: Traffic | None = None
    latency: Latency | None = None
    quota_use: QuotaUse | None = None
    advice: Advice | None = None
    clients: ClientHealth | None = None
    dead_letters: Mapping[str, Mapping[str, int]] | None = None
    """By pipeline and reason."""
    cluster: ClusterState | None = None
    """Topics and groups, if a cluster was asked."""


def read_data(tables: TableReader, names: TenantNames, cluster: ClusterState | None = None) -> ReportData:
    """Reads the tables."""
    traffic = read_traffic(tables, names)
    return ReportData(
        tables,
        traffic,
        read_latency(tables, names),
        read_quota_use(tables),
        read_advice(tables),
        read_clients(tables, traffic.colors if traffic else ()),
        {name: count_dead_letters(tables, name) for name in STREAMS if name in tables.pipelines},
        cluster,
    )


def count_dead_letters(tables: TableReader, pipeline: str) -> dict[str, int]:
    """Counts the records that could not be used, by reason. Numbers in reasons differ between records, and are left
    out."""
    found = tables.read(pipeline, "dead_letters", ("topic", "reason"))
    counts: dict[str, int] = {}
    for row in [] if found is None else found.to_pylist():
        reason = f"{row['topic']}: {(row['reason'] or '').split(':')[0]}"
        counts[reason] = counts.get(reason, 0) + 1
    return counts
