"""``quota-advice``: computes limits from recorded traffic.

Given the ``capacity`` of a broker, it finds limits that keep the load within the capacity, and that throttle only the
tenants that cause the overload.

**Demand.** *d(tenant, span)* is the rate of a tenant in a span, per second. Spans are as long as the time that a quota
is measured over (ten seconds, with Kafka's eleven windows of one second), and start a second apart.

**Fair share.** A span in which the total demand exceeds the capacity has a max-min fair level: the highest level *l*
with ``sum over tenants of min(d, l) = capacity``. A tenant below the level gets its whole demand; each of the others
gets the level. The fair share is the minimum of the levels of all spans, on all brokers::

    capacity 100; demands 10, 30 and 90:  the level is 60, for 10 + 30 + 60 = 100

**Limits.** A tenant's ``peak`` is the highest rate that the broker would have measured (with the broker's own
arithmetic, see `quota_replay`). A limit equal to the peak never throttles. So a tenant is

* *well-behaved* if its peak is not above the fair share: the limit is ``headroom`` times the peak, but no more than
  the fair share. It would never have been throttled.
* *noisy* otherwise: the limit is the fair share.

In every span, the limits let at most the capacity of the recorded demand pass. But a throttled tenant sends the rest
later, in a span in which others may want more. `simultaneous` treats all peaks as if they were in one span. Those
limits hold for any timing, but are lower.

If the demand never exceeded the capacity, all tenants are well-behaved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from barnabas.quota.config import QuotaWindows
from barnabas.quota.quota_entity import DEFAULT, QuotaEntity
from barnabas.quota.quota_type import ClientQuotaType
from barnabas.spark.pipelines.quota_proposal import ProposedLimit, Tenancy
from barnabas.spark.pipelines.quota_replay import QuotaReplay
from barnabas.spark.pipelines.quota_traffic import between, recorded, with_components
from barnabas.spark.pipelines.quotas import FETCH, PRODUCE
from barnabas.spark.pipelines.tables import Table

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import Column, DataFrame

WELL_BEHAVED: Final = "well-behaved"
NOISY: Final = "noisy"
LIMITS: Final = Table(
    "limits",
    "quota string, user string, client_id string, verdict string, limit double, peak double, mean double, "
    "amount double, share double, fair_share double, capacity double, crowded_spans bigint, sample_rate double, "
    "start_time timestamp, end_time timestamp",
    "end_time",
)
NO_LIMIT_BUT_MEASURED: Final = 1e18
_PEAKS: Final = "node_id int, quota string, user string, client_id string, peak double"


@dataclass(frozen=True, slots=True)
class AdviceOptions:
    """The options of quota-advice."""

    capacity: Mapping[str, float]
    """The capacity of a broker per second, by quota (``producer_byte_rate`` and so on). Other quotas get no limits."""
    tenancy: Tenancy = Tenancy.CLIENT_ID
    headroom: float = 1.25
    simultaneous: bool = False
    windows: QuotaWindows = field(default_factory=QuotaWindows)
    start_us: int | None = None
    end_us: int | None = None
    client_pattern: str | None = None
    """Only clients whose id matches."""

    def __post_init__(self) -> None:
        if not self.capacity:
            raise ValueError("advice needs the capacity of a broker for at least one quota")
        if self.headroom < 1:
            raise ValueError(f"headroom must be at least 1: {self.headroom:g} would throttle well-behaved clients")
        for quota, capacity in self.capacity.items():
            ProposedLimit(quota, QuotaEntity(client_id=DEFAULT), capacity)


def advise(traffic: DataFrame, options: AdviceOptions) -> DataFrame:
    """Returns the rows of `LIMITS`, for the tenants in the table ``traffic`` of the pipeline ``quotas``."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    traffic = between(traffic, options.start_us, options.end_us, options.client_pattern)
    used = charges(traffic, options)
    per_tenant = peaks(traffic, options).groupBy("quota", "user", "client_id").agg(sf.max("peak").alias("peak"))
    if options.simultaneous:
        level = shares(per_tenant.withColumn("demand", sf.col("peak")), ["quota"], options)
        level = level.withColumn("crowded_spans", sf.lit(None).cast("bigint"))
    else:
        level = (
            shares(spans(used, options), ["quota", "node_id", "span"], options)
            .groupBy("quota")
            .agg(sf.min("fair_share").alias("fair_share"), sf.count("fair_share").alias("crowded_spans"))
        )
    totals = used.groupBy("quota", "user", "client_id").agg(
        sf.sum("amount").alias("amount"), sf.min("sample_rate").alias("sample_rate")
    )
    whole = traffic.agg(
        sf.timestamp_micros(sf.min("start_time_us")).alias("start_time"),
        sf.timestamp_micros(sf.max("answer_time_us")).alias("end_time"),
    )
    # A recording shorter than a span counts as one span. Otherwise its mean would exceed its peak.
    seconds = sf.greatest(
        (sf.unix_micros("end_time") - sf.unix_micros("start_time")) / 1_000_000.0, sf.lit(_span_seconds(options))
    )
    # Byte limits are whole numbers.
    is_bytes = sf.col("quota") != ClientQuotaType.REQUEST.key
    level = level.withColumn(
        "fair_share", sf.when(is_bytes, sf.floor("fair_share").cast("double")).otherwise(sf.col("fair_share"))
    )
    is_noisy = sf.col("peak") > sf.col("fair_share")
    room = sf.col("peak") * options.headroom
    room = sf.when(is_bytes, sf.ceil(room).cast("double")).otherwise(room)
    joined = (
        totals.join(per_tenant, ["quota", "user", "client_id"])
        .join(level.select("quota", "fair_share", "crowded_spans"), "quota", "left")
        .crossJoin(whole)
    )
    return joined.select(
        "quota",
        "user",
        "client_id",
        sf.when(is_noisy, sf.lit(NOISY)).otherwise(sf.lit(WELL_BEHAVED)).alias("verdict"),
        sf.when(is_noisy, sf.col("fair_share"))
        .otherwise(sf.least(room, sf.coalesce("fair_share", room)))
        .alias("limit"),
        "peak",
        (sf.col("amount") / seconds).alias("mean"),
        "amount",
        (sf.col("amount") / sf.sum("amount").over(Window.partitionBy("quota"))).alias("share"),
        "fair_share",
        _capacity(options).alias("capacity"),
        "crowded_spans",
        "sample_rate",
        "start_time",
        "end_time",
    ).orderBy("quota", sf.desc("amount"))


def charges(traffic: DataFrame, options: AdviceOptions) -> DataFrame:
    """Returns the amount, tenant and time of each request's charge to each quota."""
    from pyspark.sql import functions as sf

    weight = 1.0 / sf.col("sample_rate")
    busy = sf.when(sf.col("answered"), sf.col("busy_us") + sf.col("send_us")).otherwise(sf.lit(0))
    amounts: dict[str, Column] = {
        ClientQuotaType.PRODUCE.key: sf.when(sf.col("api") == PRODUCE, sf.col("request_bytes")),
        ClientQuotaType.FETCH.key: sf.when(sf.col("api") == FETCH, sf.col("response_bytes")),
        # Percent of a thread: 10 ms per second are 1 %.
        ClientQuotaType.REQUEST.key: busy / 10_000.0,
    }
    each = sf.array(
        *(
            sf.struct(sf.lit(quota).alias("quota"), (amounts[quota] * weight).alias("amount"))
            for quota in sorted(options.capacity)
        )
    )
    rows = traffic.select(
        "node_id", "sample_rate", "answer_time_us", *tenant_columns(options.tenancy), sf.explode(each).alias("_charge")
    )
    columns = ("node_id", "sample_rate", "answer_time_us", "user", "client_id", "_charge.*")
    return rows.select(*columns).where("amount > 0")


def tenant_columns(tenancy: Tenancy) -> list[Column]:
    """Returns the columns ``user`` and ``client_id`` of a tenant; empty if the tenancy does not use them."""
    from pyspark.sql import functions as sf

    user = sf.regexp_replace("principal", "^[^:]*:", "")
    client_id = sf.coalesce("client_id", sf.lit(""))
    return [
        (sf.lit("") if tenancy is Tenancy.CLIENT_ID else user).alias("user"),
        (sf.lit("") if tenancy is Tenancy.USER else client_id).alias("client_id"),
    ]


def spans(used: DataFrame, options: AdviceOptions) -> DataFrame:
    """Returns the demand of each tenant in each span, per second."""
    from pyspark.sql import functions as sf

    step = options.windows.window_seconds
    length = _span_seconds(options)
    time = sf.timestamp_micros("answer_time_us")
    # Sum by step first, as each request belongs to ten spans.
    steps = used.groupBy(
        "quota", "node_id", "user", "client_id", sf.window(time, f"{step} seconds").alias("_step")
    ).agg(sf.sum("amount").alias("amount"))
    span = sf.window(sf.col("_step.start"), f"{length} seconds", f"{step} seconds").getField("start").alias("span")
    return steps.groupBy("quota", "node_id", "user", "client_id", span).agg((sf.sum("amount") / length).alias("demand"))


def _span_seconds(options: AdviceOptions) -> int:
    return max(options.windows.samples - 1, 1) * options.windows.window_seconds


def shares(demands: DataFrame, keys: list[str], options: AdviceOptions) -> DataFrame:
    """Returns the max-min fair level of each set of demands with the same keys; null if the capacity suffices.

    With sorted demands, *d1 <= d2 <= ...*, each gets in turn an equal part of the remaining capacity:
    *c(k) = (capacity - d1 - ... - d(k-1)) / (n - k + 1)*. The part grows while *d(k)* is below it, and shrinks from the
    first *d(k)* above it. So the level is the maximum of the parts.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    everybody = Window.partitionBy(*keys)
    in_turn = everybody.orderBy("demand", "user", "client_id")
    before = sf.coalesce(sf.sum("demand").over(in_turn.rowsBetween(Window.unboundedPreceding, -1)), sf.lit(0.0))
    left = sf.count("*").over(everybody) - sf.row_number().over(in_turn) + 1
    parts = demands.withColumns(
        {
            "_capacity": _capacity(options),
            "_total": sf.sum("demand").over(everybody),
            "_part": (_capacity(options) - before) / left,
        }
    )
    level = sf.when(sf.first("_total") > sf.first("_capacity"), sf.max("_part"))
    return parts.groupBy(*keys).agg(level.alias("fair_share"))


def peaks(traffic: DataFrame, options: AdviceOptions) -> DataFrame:
    """Returns the highest rate of each tenant that a broker would have measured."""
    unlimited = [
        ProposedLimit(quota, default_entity(options.tenancy), NO_LIMIT_BUT_MEASURED) for quota in options.capacity
    ]
    replay = QuotaReplay(unlimited, options.windows)
    quotas = frozenset(options.capacity)

    def peaks_of(key: tuple[Any, ...], frame: pd.DataFrame) -> pd.DataFrame:
        import pandas as pd  # runs in Spark's workers

        found: dict[tuple[str, str, str], float] = {}
        for outcome in replay.run(recorded(frame)):
            for charge in outcome.charges:
                if charge.quota in quotas and charge.amount > 0:
                    tenant = (charge.quota, charge.user, charge.client_id)
                    found[tenant] = max(charge.rate, found.get(tenant, 0.0))
        rows = [(int(key[0]), *tenant, peak) for tenant, peak in found.items()]
        return pd.DataFrame(rows, columns=["node_id", "quota", "user", "client_id", "peak"])

    return with_components(traffic, unlimited).groupBy("node_id", "component").applyInPandas(peaks_of, _PEAKS)


def default_entity(tenancy: Tenancy) -> QuotaEntity:
    """Returns the default entity, which applies to every tenant."""
    return QuotaEntity(None if tenancy is Tenancy.CLIENT_ID else DEFAULT, None if tenancy is Tenancy.USER else DEFAULT)


def _capacity(options: AdviceOptions) -> Column:
    from pyspark.sql import functions as sf

    pairs = [sf.lit(item) for quota, capacity in options.capacity.items() for item in (quota, float(capacity))]
    return sf.create_map(*pairs)[sf.col("quota")]


def proposals(advice: DataFrame, tenancy: Tenancy) -> Iterator[ProposedLimit]:
    """Yields the advised limits, for a dry run or for the cluster."""
    for row in advice.select("quota", "user", "client_id", "limit").collect():
        yield ProposedLimit(row["quota"], tenancy.entity(row["user"], row["client_id"]), row["limit"])
