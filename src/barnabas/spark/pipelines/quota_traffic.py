"""Divides recorded traffic into components: the clients that must be replayed together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from barnabas.quota.quota_limits import QuotaLimits
from barnabas.spark.pipelines.quota_proposal import BANDWIDTH_AND_TIME, ProposedLimit, limits_of, user_of
from barnabas.spark.pipelines.quota_replay import RecordedRequest

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

Client = tuple[str, str | None]
"""Principal and client id."""


class Components:
    """Disjoint sets of clients that share a limit or a connection, directly or indirectly."""

    def __init__(self) -> None:
        self._parents: dict[object, object] = {}

    def find(self, item: object) -> object:
        """Returns the representative of an item's set."""
        parent = self._parents.setdefault(item, item)
        while parent != item:
            grandparent = self._parents[parent]
            self._parents[item] = grandparent
            item, parent = parent, grandparent
        return item

    def join(self, one: object, other: object) -> None:
        self._parents[self.find(one)] = self.find(other)


def components(
    clients: Iterable[Client], shared: Iterable[Sequence[Client]], limits: Sequence[ProposedLimit]
) -> dict[Client, int]:
    """Returns a number for each client; clients with the same number must be replayed together.

    ``shared`` are clients that use one connection. The broker's own classes decide which clients share a limit.
    """
    sets = Components()
    by_quota = {}
    for kind in BANDWIDTH_AND_TIME:
        known = by_quota[kind.key] = QuotaLimits()
        for entity, limit in limits_of(limits, kind.key):
            known.update(entity, limit)
    clients = list(clients)
    for client in clients:
        principal, client_id = client
        for quota, known in by_quota.items():
            if known.levels:
                sets.join(("client", client), (quota, known.tags_of(user_of(principal), client_id or "")))
    for together in shared:
        for client in together[1:]:
            sets.join(("client", together[0]), ("client", client))
    numbers: dict[object, int] = {}
    return {
        client: numbers.setdefault(sets.find(("client", client)), len(numbers))
        for client in sorted(clients, key=lambda one: (one[0], one[1] or ""))
    }


def with_components(traffic: DataFrame, limits: Sequence[ProposedLimit]) -> DataFrame:
    """Adds the column ``component``: rows of one broker and component are replayed together."""
    from pyspark.sql import functions as sf

    client = sf.struct("principal", "client_id")
    by_connection = traffic.groupBy("node_id", "connection_id").agg(sf.collect_set(client).alias("clients"))
    sets = by_connection.select("clients").distinct().collect()
    shared = [[(one["principal"], one["client_id"]) for one in row["clients"]] for row in sets]
    numbers = components({one for together in shared for one in together}, shared, limits)
    return traffic.join(sf.broadcast(_frame(traffic.sparkSession, numbers)), _same_client(traffic)).drop(
        "_principal", "_client_id"
    )


def _frame(spark: SparkSession, numbers: dict[Client, int]) -> DataFrame:
    rows = [(principal, client_id, number) for (principal, client_id), number in numbers.items()]
    return spark.createDataFrame(rows, "_principal string, _client_id string, component int")


def _same_client(traffic: DataFrame) -> Any:
    from pyspark.sql import functions as sf

    return (traffic["principal"] == sf.col("_principal")) & traffic["client_id"].eqNullSafe(sf.col("_client_id"))


def recorded(frame: pd.DataFrame) -> list[RecordedRequest]:
    """Converts rows of the table ``traffic`` to requests to replay."""
    return [
        RecordedRequest(
            row.connection_id,
            row.api,
            row.principal,
            # Pandas represents a null string as NaN.
            row.client_id if isinstance(row.client_id, str) else None,
            int(row.start_time_us),
            int(row.answer_time_us),
            int(row.busy_us),
            int(row.send_us),
            int(row.request_bytes),
            int(row.response_bytes),
            bool(row.answered),
            1.0 / row.sample_rate,
        )
        for row in frame.itertuples(index=False)
    ]


def between(traffic: DataFrame, start_us: int | None, end_us: int | None, client_pattern: str | None) -> DataFrame:
    """Returns the traffic of a time range and of the clients that match a pattern."""
    from pyspark.sql import functions as sf

    if start_us is not None:
        traffic = traffic.where(sf.col("start_time_us") >= start_us)
    if end_us is not None:
        traffic = traffic.where(sf.col("start_time_us") < end_us)
    if client_pattern is not None:
        traffic = traffic.where(sf.coalesce("client_id", sf.lit("")).rlike(f"^(?:{client_pattern})$"))
    return traffic
