"""The settings of a replica manager."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from barnabas.common.config_def import ConfigValues
from barnabas.common.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaManagerConfig:
    """The replica settings of a broker; the defaults are Kafka's.

    ``min.insync.replicas`` is a topic setting, and part of the log configuration. So is
    ``replica.high.watermark.checkpoint.interval.ms``, because the log manager writes the checkpoint.
    """

    broker_id: int
    replica_lag_time_max_ms: int = 30_000
    """A follower that has not been caught up for this long is removed from the ISR."""
    fetch_max_bytes: int = 57_671_680
    """The upper limit of a fetch response, applied when the `FetchParams` are created."""
    replica_fetch_max_bytes: int = 1024 * 1024
    """How many bytes are copied at a time when a replica moves to another log directory."""
    replica_fetch_backoff_ms: int = 1000
    num_replica_alter_log_dirs_threads: int | None = None
    """None: one thread per log directory."""
    replica_selector_class: str | None = None
    """The class that selects the replica a consumer reads from (KIP-392); None: always the leader."""
    metadata_log_dir: Path | None = None
    """The directory of the metadata log. The broker exits when this directory fails."""
    producer_purgatory_purge_interval_requests: int = 1000
    fetch_purgatory_purge_interval_requests: int = 1000
    delete_records_purgatory_purge_interval_requests: int = 1

    @classmethod
    def from_values(cls, values: ConfigValues, **others: Any) -> Self:
        """Creates it from parsed broker settings; `others` are fields from other sources, such as the broker id."""
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
