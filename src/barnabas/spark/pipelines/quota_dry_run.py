"""``quota-dry-run``: replays recorded traffic under other limits, to find out which clients they throttle and how long.

`quota_replay` describes the model and its limitations. This module replays all traffic in parallel: clients that share
neither a limit nor a connection are independent, and different workers replay them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from barnabas.quota.config import QuotaWindows
from barnabas.spark.pipelines.quota_proposal import ProposedLimit
from barnabas.spark.pipelines.quota_replay import ClientBehaviour, QuotaReplay
from barnabas.spark.pipelines.quota_traffic import between, recorded, with_components
from barnabas.spark.pipelines.tables import Table

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

MINUTE_US: Final = 60_000_000
_MEASURES: Final = (
    "limit double, requests double, amount double, peak double, throttled double, throttle_ms double, "
    "max_throttle_ms double, max_behind_ms double"
)
_THROTTLES: Final = (
    "window_start timestamp, node_id int, quota string, user string, group_client_id string, principal string, "
    "client_id string, " + _MEASURES
)
THROTTLES_1M: Final = Table("throttles_1m", _THROTTLES, "window_start")
SUMMARY: Final = Table(
    "summary",
    "quota string, user string, group_client_id string, principal string, client_id string, "
    + _MEASURES
    + ", recorded_throttle_ms double, start_time timestamp, end_time timestamp",
    "end_time",
)


@dataclass(frozen=True, slots=True)
class DryRunOptions:
    """The options of quota-dry-run."""

    limits: Sequence[ProposedLimit]
    behaviour: ClientBehaviour = ClientBehaviour.BACKLOG
    windows: QuotaWindows = field(default_factory=QuotaWindows)
    start_us: int | None = None
    end_us: int | None = None
    client_pattern: str | None = None

    def __post_init__(self) -> None:
        if not self.limits:
            raise ValueError("a dry run needs limits to try")


def dry_run(traffic: DataFrame, options: DryRunOptions) -> DataFrame:
    """Returns the rows of `THROTTLES_1M`: each client's use of each quota by minute, and its delays for it."""
    from pyspark.sql import functions as sf

    traffic = between(traffic, options.start_us, options.end_us, options.client_pattern)
    replay = QuotaReplay(tuple(options.limits), options.windows, options.behaviour)
    schema = _THROTTLES.replace("window_start timestamp", "minute_us bigint", 1)

    def throttles_of(key: tuple[Any, ...], frame: pd.DataFrame) -> pd.DataFrame:
        return _throttles(replay, int(key[0]), frame)

    parts = with_components(traffic, options.limits).groupBy("node_id", "component")
    replayed = parts.applyInPandas(throttles_of, schema)
    return replayed.withColumn("window_start", sf.timestamp_micros("minute_us")).drop("minute_us")


def summary(throttles: DataFrame, traffic: DataFrame, options: DryRunOptions) -> DataFrame:
    """Returns the rows of `SUMMARY`: totals over the whole time, for each client and quota."""
    from pyspark.sql import functions as sf

    traffic = between(traffic, options.start_us, options.end_us, options.client_pattern)
    client = [sf.col(name).alias(f"_{name}") for name in ("principal", "client_id")]
    was = traffic.groupBy(*client).agg(
        sf.sum(sf.col("throttle_time_ms") / sf.col("sample_rate")).alias("recorded_throttle_ms")
    )
    whole = traffic.agg(
        sf.timestamp_micros(sf.min("start_time_us")).alias("start_time"),
        sf.timestamp_micros(sf.max("answer_time_us")).alias("end_time"),
    )
    keys = ("quota", "user", "group_client_id", "principal", "client_id")
    totals = throttles.groupBy(*keys).agg(
        sf.max("limit").alias("limit"),
        *(sf.sum(name).alias(name) for name in ("requests", "amount", "throttled", "throttle_ms")),
        *(sf.max(name).alias(name) for name in ("peak", "max_throttle_ms", "max_behind_ms")),
    )
    same = (totals["principal"] == was["_principal"]) & totals["client_id"].eqNullSafe(was["_client_id"])
    joined = totals.join(was, same, "left").drop("_principal", "_client_id").crossJoin(whole)
    return joined.orderBy(sf.desc("throttle_ms"), "quota", "client_id")


def _throttles(replay: QuotaReplay, node_id: int, frame: pd.DataFrame) -> pd.DataFrame:
    """Replays the requests of one component, and sums the outcomes by client and minute."""
    import pandas as pd  # runs in Spark's workers

    rows: dict[tuple[Any, ...], _Row] = {}
    for outcome in replay.run(recorded(frame)):
        request = outcome.request
        minute = outcome.charged_us // MINUTE_US * MINUTE_US
        behind_ms = max(outcome.charged_us - request.answer_us, 0) / 1_000
        for charge in outcome.charges:
            if charge.limit is None:
                continue
            group = (charge.quota, charge.user, charge.client_id, request.principal, request.client_id)
            row = rows.setdefault((minute, node_id, *group), _Row())
            row.limit = charge.limit
            row.requests += request.weight
            row.amount += charge.amount
            row.peak = max(row.peak, charge.rate)
            row.max_behind_ms = max(row.max_behind_ms, behind_ms)
            if outcome.quota == charge.quota:
                row.throttled += request.weight
                # A sampled request stands for several, but its charge already covers all of them.
                row.throttle_ms += outcome.delay_ms
                row.max_throttle_ms = max(row.max_throttle_ms, float(outcome.delay_ms))
    names = [part.split()[0] for part in _THROTTLES.split(", ")]
    return pd.DataFrame([(*place, *row.values()) for place, row in rows.items()], columns=["minute_us", *names[1:]])


class _Row:
    __slots__ = ("amount", "limit", "max_behind_ms", "max_throttle_ms", "peak", "requests", "throttle_ms", "throttled")

    def __init__(self) -> None:
        self.limit = self.requests = self.amount = self.peak = 0.0
        self.throttled = self.throttle_ms = self.max_throttle_ms = self.max_behind_ms = 0.0

    def values(self) -> tuple[float, ...]:
        return (
            self.limit,
            self.requests,
            self.amount,
            self.peak,
            self.throttled,
            self.throttle_ms,
            self.max_throttle_ms,
            self.max_behind_ms,
        )
