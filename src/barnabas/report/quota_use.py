"""Usage of quotas, advised limits, and the results of a dry run of limits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from barnabas.report.table_reader import TableReader
from barnabas.report.tenancy import group_name, largest
from barnabas.report.traffic import MOST_TENANTS, SECOND_US, step_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

USAGE_COLUMNS: Final = (
    "node_id",
    "start_time",
    "end_time",
    "quota",
    "user",
    "client_id",
    "limit",
    "amount",
    "rate",
    "used_of_limit",
    "throttle_count",
    "throttle_ms",
)
ADVICE_COLUMNS: Final = (
    "quota",
    "user",
    "client_id",
    "verdict",
    "limit",
    "peak",
    "mean",
    "share",
    "fair_share",
    "capacity",
    "crowded_spans",
    "sample_rate",
    "start_time",
    "end_time",
)
DRY_RUN_COLUMNS: Final = (
    "quota",
    "user",
    "group_client_id",
    "principal",
    "client_id",
    "limit",
    "requests",
    "peak",
    "throttled",
    "throttle_ms",
    "max_throttle_ms",
    "max_behind_ms",
    "recorded_throttle_ms",
    "start_time",
    "end_time",
)


@dataclass(slots=True)
class GroupUse:
    """The usage of a group of clients that share a limit. With several brokers: the one with the highest usage."""

    quota: str
    user: str | None
    client_id: str | None
    limit: float | None = None
    """The latest limit."""
    limit_at_us: int = 0
    amount: float = 0.0
    seconds: float = 0.0
    peak: float = 0.0
    peak_of_limit: float | None = None
    throttle_count: int = 0
    throttle_ms: float = 0.0

    @property
    def name(self) -> str:
        return group_name(self.user, self.client_id)

    @property
    def mean(self) -> float:
        """Per second, in the unit of the limit, over the intervals with any usage."""
        unit = 10.0 if self.quota == "request_percentage" else 1.0
        return self.amount / unit / self.seconds if self.seconds else 0.0

    def add(self, row: Mapping[str, Any]) -> None:
        if row["end_time"] >= self.limit_at_us:
            self.limit, self.limit_at_us = row["limit"], row["end_time"]
        self.amount += row["amount"]
        self.seconds += (row["end_time"] - row["start_time"]) / SECOND_US
        self.peak = max(self.peak, row["rate"])
        if row["used_of_limit"] is not None:
            self.peak_of_limit = max(self.peak_of_limit or 0.0, row["used_of_limit"])
        self.throttle_count += row["throttle_count"]
        self.throttle_ms += row["throttle_ms"]


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """The data of the section about quotas."""

    start_us: int
    step_s: int
    steps: int
    groups: Sequence[GroupUse]
    used_of_limit: Mapping[str, Mapping[str, Array]]
    """By quota and group, per step: the highest fraction of the limit. NaN without usage."""

    @property
    def times_s(self) -> list[float]:
        return [self.start_us / SECOND_US + (number + 0.5) * self.step_s for number in range(self.steps)]


def read_quota_use(tables: TableReader) -> QuotaUse | None:
    """Returns None if ``quotas/usage`` is empty: no quotas are set, or the pipeline has not run."""
    import numpy as np  # an extra

    found = tables.read("quotas", "usage", USAGE_COLUMNS)
    if found is None:
        return None
    rows = found.to_pylist()
    groups: dict[tuple[str, str], GroupUse] = {}
    for row in rows:
        group = GroupUse(row["quota"], row["user"], row["client_id"])
        groups.setdefault((group.quota, group.name), group).add(row)
    first, last = min(row["start_time"] for row in rows), max(row["end_time"] for row in rows)
    longest_s = max(row["end_time"] - row["start_time"] for row in rows) // SECOND_US
    step = max(step_of(last - first), longest_s, 1)
    steps = max(-(-(last - first) // (step * SECOND_US)), 1)
    by_quota: dict[str, dict[str, Array]] = defaultdict(lambda: defaultdict(lambda: np.full(steps, np.nan)))
    for row in rows:
        if row["used_of_limit"] is not None:
            values = by_quota[row["quota"]][group_name(row["user"], row["client_id"])]
            middle = (row["start_time"] + row["end_time"]) // 2
            number = min((middle - first) // (step * SECOND_US), steps - 1)
            values[number] = np.fmax(values[number], row["used_of_limit"])
    shown = {}
    for quota, by_group in sorted(by_quota.items()):
        names = largest({name: float(np.nanmax(values)) for name, values in by_group.items()}, MOST_TENANTS)
        shown[quota] = {name: by_group[name] for name in names}
    ordered = sorted(
        groups.values(), key=lambda one: (one.quota, -one.throttle_ms, -(one.peak_of_limit or 0.0), one.name)
    )
    return QuotaUse(first, step, steps, ordered, shown)


@dataclass(frozen=True, slots=True)
class AdvisedLimit:
    """One row of ``quota-advice/limits``."""

    quota: str
    user: str | None
    client_id: str | None
    verdict: str
    limit: float
    peak: float
    mean: float
    share: float
    fair_share: float | None
    capacity: float
    crowded_spans: int | None
    sample_rate: float

    @property
    def name(self) -> str:
        return group_name(self.user, self.client_id)


@dataclass(frozen=True, slots=True)
class DryRunRow:
    """One row of ``quota-dry-run/summary``."""

    quota: str
    user: str | None
    client_id: str | None
    limit: float
    requests: float
    peak: float
    throttled: float
    throttle_ms: float
    max_throttle_ms: float
    max_behind_ms: float
    recorded_throttle_ms: float

    @property
    def name(self) -> str:
        return group_name(self.user, self.client_id)


@dataclass(frozen=True, slots=True)
class Advice:
    """The data of the section about advice, and its period."""

    limits: Sequence[AdvisedLimit]
    dry_run: Sequence[DryRunRow]
    start_us: int
    end_us: int


def read_advice(tables: TableReader) -> Advice | None:
    """Returns None if there is neither advice nor a dry run."""
    limits = tables.read("quota-advice", "limits", ADVICE_COLUMNS)
    tried = tables.read("quota-dry-run", "summary", DRY_RUN_COLUMNS)
    limit_rows = [] if limits is None else limits.to_pylist()
    tried_rows = [] if tried is None else tried.to_pylist()
    rows = limit_rows + tried_rows
    if not rows:
        return None
    advised = [
        AdvisedLimit(
            row["quota"],
            row["user"],
            row["client_id"],
            row["verdict"],
            row["limit"],
            row["peak"],
            row["mean"],
            row["share"],
            row["fair_share"],
            row["capacity"],
            row["crowded_spans"],
            row["sample_rate"],
        )
        for row in limit_rows
    ]
    dry = [
        DryRunRow(
            row["quota"],
            row["user"],
            row["client_id"],
            row["limit"],
            row["requests"],
            row["peak"],
            row["throttled"],
            row["throttle_ms"],
            row["max_throttle_ms"],
            row["max_behind_ms"],
            row["recorded_throttle_ms"] or 0.0,
        )
        for row in tried_rows
    ]
    return Advice(
        sorted(advised, key=lambda one: (one.quota, -one.peak, one.name)),
        sorted(dry, key=lambda one: (-one.throttle_ms, one.quota, one.name)),
        min(row["start_time"] for row in rows),
        max(row["end_time"] for row in rows),
    )
