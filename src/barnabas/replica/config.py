"""The settings of a replica manager."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from barnabas.common.config_def import ConfigValues
from barnabas.common.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaManagerConfig:
    """What a broker's configuration says about its replicas; the defaults are Kafka's.

    ``min.insync.replicas`` is not among them: it is a topic's, and comes with the configuration of its logs. So does
    ``replica.high.watermark.checkpoint.interval.ms``: it is the log manager that writes the checkpoint.
    """

    broker_id: int
    replica_lag_time_max_ms: int = 30_000
    """A follower that has not caught up for so long is not in sync any more."""
    fetch_max_bytes: int = 57_671_680
    """The most that a fetch is answered with, whatever it asks for; it is for whoever makes the `FetchParams`."""
    replica_fetch_max_bytes: int = 1024 * 1024
    """How much is copied at a time when a replica moves to another log directory."""
    replica_fetch_backoff_ms: int = 1000
    num_replica_alter_log_dirs_threads: int | None = None
    """None: as many as there are log directories."""
    replica_selector_class: str | None = None
    """Who chooses the replica that a consumer reads from (KIP-392); None: it is always the leader."""
    metadata_log_dir: Path | None = None
    """Where the metadata log is: a broker cannot do without, and ends when that directory fails."""
    producer_purgatory_purge_interval_requests: int = 1000
    fetch_purgatory_purge_interval_requests: int = 1000
    delete_records_purgatory_purge_interval_requests: int = 1

    @classmethod
    def from_values(cls, values: ConfigValues, **others: Any) -> Self:
        """From a broker's parsed settings; `others` are fields that come from elsewhere, such as the broker's id."""
        return cls(
            replica_lag_time_max_ms=values.get_int("replica.lag.time.max.ms"),
            fetch_max_bytes=values.get_int("fetch.max.bytes"),
            replica_fetch_max_bytes=values.get_int("replica.fetch.max.bytes"),
            replica_fetch_backoff_ms=values.get_int("replica.fetch.backoff.ms"),
            num_replica_alter_log_dirs_threads=values.get_optional_int("num.replica.alter.log.dirs.threads"),
            replica_selector_class=values.get_optional_str("replica.selector.class"),
            producer_purgatory_purge_interval_requests=values.get_int("producer.purgatory.purge.interval.requests"),
            fetch_purgatory_purge_interval_requests=values.get_int("fetch.purgatory.purge.interval.requests"),
            delete_records_purgatory_purge_interval_requests=values.get_int(
                "delete.records.purgatory.purge.interval.requests"
            ),
            **others,
        )
