"""The traffic of tenants over time, and noisy tenants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from barnabas.report.table_reader import TableReader
from barnabas.report.tenancy import OTHERS, TenantNames, largest
from barnabas.spark.pipelines.quotas import FETCH, IDLE_FETCH_BYTES, IDLE_SHARE, PRODUCE, RESOURCES, SUMS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Array = npt.NDArray[np.float64]

SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
STEPS_S: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 86_400)
MOST_STEPS: Final = 120
SINGLE_REQUESTS_US: Final = 2 * 3_600 * SECOND_US
"""For longer periods the roll-up by minute is precise enough, and much smaller than the table of single requests."""
MOST_TENANTS: Final = 7
"""The number of distinguishable colors; further tenants are combined."""
NOISY: Final = 2.0
MINUTE_COLUMNS: Final = (
    "window_start",
    "node_id",
    "principal",
    "client_id",
    *SUMS,
    "max_throttle_ms",
)
REQUEST_COLUMNS: Final = (
    "timestamp",
    "api",
    "principal",
    "client_id",
    "request_bytes",
    "response_bytes",
    "throttle_time_ms",
    "sample_rate",
)
SERIES: Final = ("requests", "produced_bytes", "fetched_bytes", "throttle_ms")


@dataclass(slots=True)
class TenantTotal:
    """The totals of a tenant; estimates, unless all requests were logged."""

    name: str
    requests: float = 0.0
    produced_bytes: float = 0.0
    fetched_bytes: float = 0.0
    thread_ms: float = 0.0
    queue_ms: float = 0.0
    throttled: float = 0.0
    throttle_ms: float = 0.0
    max_throttle_ms: float = 0.0

    @property
    def moves_records(self) -> bool:
        """Whether it produced or fetched any records, judging by sizes."""
        return self.produced_bytes > 0 or self.fetched_bytes > self.requests * IDLE_FETCH_BYTES

    def add(self, row: Mapping[str, Any]) -> None:
        for name in SUMS:
            setattr(self, name, getattr(self, name) + (row[name] or 0.0))
        self.max_throttle_ms = max(self.max_throttle_ms, row["max_throttle_ms"] or 0.0)


@dataclass(frozen=True, slots=True)
class Noise:
    """A tenant that used much more than an equal share of a resource in one minute, and the effect on others."""

    minute_us: int
    node_id: int
    tenant: str
    quota: str
    amount: float
    share: float
    noise: float
    """The number of equal shares: 3 if one of 4 tenants uses 3/4."""
    others_queue_ms: float | None
    """The mean time that requests of all others waited for a handler in that minute."""


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """Amounts per second in each step, and milliseconds of throttle time in each step."""

    start_us: int
    step_s: int
    steps: int
    by_tenant: Mapping[str, Mapping[str, Array]]
    """For each of `SERIES`, the tenants in descending order of usage."""

    @property
    def times_s(self) -> list[float]:
        """The middle of each step, in seconds since 1970."""
        return [self.start_us / SECOND_US + (number + 0.5) * self.step_s for number in range(self.steps)]


@dataclass(frozen=True, slots=True)
class Traffic:
    """The data of the section about traffic."""

    start_us: int
    end_us: int
    tenants: Sequence[TenantTotal]
    series: TimeSeries
    noise: Sequence[Noise] = field(default_factory=tuple)

    @property
    def colors(self) -> list[str]:
        """The tenants with a color of their own, the same in all charts."""
        return [one.name for one in self.tenants][:MOST_TENANTS]


def read_traffic(tables: TableReader, names: TenantNames) -> Traffic | None:
    """Returns None if the pipeline ``quotas`` has seen no request yet."""
    minutes = tables.read("quotas", "tenants_1m", MINUTE_COLUMNS)
    if minutes is None:
        return None
    rows = minutes.to_pylist()
    totals: dict[str, TenantTotal] = {}
    for row in rows:
        name = names.name(row["principal"], row["client_id"])
        totals.setdefault(name, TenantTotal(name)).add(row)
    first, last = min(row["window_start"] for row in rows), max(row["window_start"] for row in rows) + MINUTE_US
    series = None
    if last - first <= SINGLE_REQUESTS_US:
        requests = tables.read("quotas", "traffic", REQUEST_COLUMNS)
        if requests is not None:
            first, last, series = _from_requests(requests, names)
    if series is None:
        series = _from_minutes(rows, first, last, names)
    tenants = sorted(totals.values(), key=lambda one: (-(one.produced_bytes + one.fetched_bytes), one.name))
    return Traffic(first, last, tenants, series, find_noise(rows, names))


def step_of(span_us: int) -> int:
    """Returns the shortest step, in seconds, that does not give too many steps.

    >>> step_of(36 * SECOND_US), step_of(3 * 3_600 * SECOND_US)
    (1, 120)
    """
    return next((step for step in STEPS_S if span_us <= step * SECOND_US * MOST_STEPS), STEPS_S[-1])


def _from_requests(requests: pa.Table, names: TenantNames) -> tuple[int, int, TimeSeries]:
    import pyarrow as pa  # an extra
    import pyarrow.compute as pc

    moments = requests["timestamp"]
    bounds = pc.min_max(moments).as_py()
    first, last = bounds["min"], bounds["max"] + 1
    step = step_of(last - first)
    first = first // (step * SECOND_US) * (step * SECOND_US)
    weight = pc.divide(1.0, requests["sample_rate"])

    def weighted(column: pa.ChunkedArray) -> pa.ChunkedArray:
        return pc.multiply(pc.cast(column, pa.float64()), weight)

    def of(api: str, column: str) -> pa.ChunkedArray:
        return pc.if_else(pc.equal(requests["api"], api), weighted(requests[column]), 0.0)

    wide = pa.table(
        {
            "step": pc.divide(pc.subtract(moments, first), step * SECOND_US),
            "principal": requests["principal"],
            "client_id": requests["client_id"],
            "requests": weight,
            "produced_bytes": of(PRODUCE, "request_bytes"),
            "fetched_bytes": of(FETCH, "response_bytes"),
            "throttle_ms": weighted(requests["throttle_time_ms"]),
        }
    )
    grouped = wide.group_by(["step", "principal", "client_id"]).aggregate([(name, "sum") for name in SERIES])
    rows = (
        (row["step"], names.name(row["principal"], row["client_id"]), {name: row[f"{name}_sum"] for name in SERIES})
        for row in grouped.to_pylist()
    )
    return first, last, _series(rows, first, last, step)


def _from_minutes(rows: Iterable[Mapping[str, Any]], first: int, last: int, names: TenantNames) -> TimeSeries:
    step = max(step_of(last - first), 60)
    parts = (
        (
            (row["window_start"] - first) // (step * SECOND_US),
            names.name(row["principal"], row["client_id"]),
            {name: row[name] or 0.0 for name in SERIES},
        )
        for row in rows
    )
    return _series(parts, first, last, step)


def _series(rows: Iterable[tuple[int, str, Mapping[str, float]]], first: int, last: int, step: int) -> TimeSeries:
    import numpy as np  # an extra

    steps = max(-(-(last - first) // (step * SECOND_US)), 1)
    found: dict[str, dict[str, Array]] = {name: defaultdict(lambda: np.zeros(steps)) for name in SERIES}
    for number, tenant, amounts in rows:
        for name, amount in amounts.items():
            if amount:
                found[name][tenant][number] += amount / (1 if name == "throttle_ms" else step)
    return TimeSeries(first, step, steps, {name: _fewer(by_tenant) for name, by_tenant in found.items()})


def _fewer(by_tenant: Mapping[str, Array]) -> dict[str, Array]:
    """Keeps the largest, and combines all others."""
    shown = largest({name: float(values.sum()) for name, values in by_tenant.items()}, len(by_tenant))
    result = {name: by_tenant[name] for name in shown[:MOST_TENANTS]}
    rest = [by_tenant[name] for name in shown[MOST_TENANTS:]]
    if rest:
        result[OTHERS] = sum(rest[1:], rest[0])
    return result


def find_noise(rows: Iterable[Mapping[str, Any]], names: TenantNames, at_least: float = NOISY) -> list[Noise]:
    """Finds the same as `barnabas.spark.pipelines.quotas.noisy_neighbours`, by tenant; the noisiest first."""
    minutes: dict[tuple[int, int], dict[str, TenantTotal]] = defaultdict(dict)
    for row in rows:
        name = names.name(row["principal"], row["client_id"])
        minutes[row["window_start"], row["node_id"]].setdefault(name, TenantTotal(name)).add(row)
    found = []
    for (minute, node_id), tenants in minutes.items():
        requests = sum(one.requests for one in tenants.values())
        queued_ms = sum(one.queue_ms for one in tenants.values())
        for quota, column in RESOURCES.items():
            used = {name: getattr(one, column) for name, one in tenants.items() if getattr(one, column) > 0}
            everything = sum(used.values())
            # A client that only waits for records is not counted: its few requests are not a share of anything.
            sharing = sum(
                tenants[name].moves_records or amount >= IDLE_SHARE * everything for name, amount in used.items()
            )
            for name, amount in used.items():
                share = amount / everything
                others = requests - tenants[name].requests
                waited = (queued_ms - tenants[name].queue_ms) / others if others > 0 else None
                if share * sharing >= at_least:
                    found.append(Noise(minute, node_id, name, quota, amount, share, share * sharing, waited))
    return sorted(found, key=lambda one: (-one.noise, one.minute_us, one.quota))
