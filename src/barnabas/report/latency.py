"""The latency of requests and its parts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.report.failures import Failures, judge_failures
from barnabas.report.kll_sketch import quantiles
from barnabas.report.table_reader import ReportError, TableReader
from barnabas.report.tenancy import TenantNames

PARTS: Final = ("queue", "local", "remote", "response_queue", "send", "throttle")
"""The stacked parts; ``total`` is the sum of all but the last."""
TOTAL: Final = "total"
RANKS: Final = (0.5, 0.99, 0.999)
COLUMNS: Final = ("api", "client_id", "principal", "sample_rate", "part", "weight", "sum", "max", "sketch")
COUNT_COLUMNS: Final = ("window_start", "api", "client_id", "principal", "requests", "weight", "failed")


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """The requests of one API, of all tenants or of one."""

    api: str
    tenant: str | None
    requests: float
    failed: float
    mean_ms: Mapping[str, float]
    """By part, and in total."""
    p50: float | None
    p99: float | None
    p999: float | None
    max: float
    throttle_p99: float | None
    failures: Failures = Failures.NONE

    @property
    def time_ms(self) -> float:
        """The total time of all its requests, without throttle time."""
        return self.requests * self.mean_ms.get(TOTAL, 0.0)


@dataclass(slots=True)
class _Collected:
    weight: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    sum: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    sketches: dict[str, list[tuple[bytes, float]]] = field(default_factory=lambda: defaultdict(list))
    max: float = 0.0

    def add(self, row: Mapping[str, Any]) -> None:
        part = row["part"]
        self.weight[part] += row["weight"]
        self.sum[part] += row["sum"]
        if part == TOTAL:
            self.max = max(self.max, row["max"])
        if part in {TOTAL, "throttle"}:
            self.sketches[part].append((row["sketch"], 1.0 / row["sample_rate"]))


@dataclass(slots=True)
class _Failed:
    failed: float = 0.0
    recorded: float = 0.0
    """The failures that are in the log itself, which may be sampled."""
    minutes: set[int] = field(default_factory=set)

    def add(self, row: Mapping[str, Any]) -> None:
        if row["failed"]:
            self.failed += row["failed"]
            self.recorded += row["failed"] * row["requests"] / row["weight"]
            self.minutes.add(row["window_start"])


@dataclass(frozen=True, slots=True)
class Latency:
    """The data of the section about latency; rows with the most time first."""

    by_api: Sequence[LatencyRow]
    by_tenant: Sequence[LatencyRow]


def read_latency(tables: TableReader, names: TenantNames) -> Latency | None:
    """Returns None if the pipeline ``requests`` has seen no request yet."""
    # By the hour: the same requests as by the minute, in fewer rows.
    rows = tables.read("requests", "latency_1h", COLUMNS)
    if rows is None:
        return None
    counts = tables.read("requests", "counts_1m", COUNT_COLUMNS)
    failed: dict[tuple[str, str | None], _Failed] = defaultdict(_Failed)
    for row in [] if counts is None else counts.to_pylist():
        failed[row["api"], None].add(row)
        failed[row["api"], names.name(row["principal"], row["client_id"])].add(row)
    found: dict[tuple[str, str | None], _Collected] = defaultdict(_Collected)
    for row in rows.to_pylist():
        found[row["api"], None].add(row)
        found[row["api"], names.name(row["principal"], row["client_id"])].add(row)
    try:
        made = [_row(*key, collected, failed[key]) for key, collected in found.items()]
    except ValueError as error:
        raise ReportError(f"the table requests/latency_1h in {tables.out} cannot be read: {error}") from None
    made.sort(key=lambda one: (-one.time_ms, one.api, one.tenant or ""))
    return Latency([one for one in made if one.tenant is None], [one for one in made if one.tenant is not None])


def _row(api: str, tenant: str | None, collected: _Collected, failed: _Failed) -> LatencyRow:
    means = {
        part: collected.sum[part] / collected.weight[part] if collected.weight[part] else 0.0
        for part in (*PARTS, TOTAL)
    }
    p50, p99, p999 = quantiles(collected.sketches[TOTAL], RANKS)
    (throttle_p99,) = quantiles(collected.sketches["throttle"], RANKS[1:2])
    weight = collected.weight[TOTAL]
    verdict = judge_failures(api, weight, failed.failed, failed.recorded, len(failed.minutes))
    return LatencyRow(api, tenant, weight, failed.failed, means, p50, p99, p999, collected.max, throttle_p99, verdict)
