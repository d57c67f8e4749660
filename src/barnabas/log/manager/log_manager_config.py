"""The settings of a log manager."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from barnabas.common.config_def import ConfigValues
from barnabas.common.dataclass import dataclass, field
from barnabas.log.config.log_config_def import LONGEST
from barnabas.log.config.server_log_config import broker_topic_defaults
from barnabas.log.log_context import DEFAULT_MAX_TRANSACTION_TIMEOUT_MS
from barnabas.log.producers.producer_states import ProducerStateManagerConfig
from barnabas.log.segment.segment_damage import DamagePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class LogManagerConfig:
    """The broker's settings for its logs as a whole, with Kafka's defaults."""

    topic_defaults: Mapping[str, Any] = field(default_factory=dict)
    """The defaults for settings that a topic does not override."""
    cluster_id: str | None = None
    """Log directories of other clusters or nodes are rejected; if None, they only have to be consistent."""
    node_id: int | None = None
    cordoned_log_dirs: tuple[str, ...] = ()
    """``cordoned.log.dirs``: directories that get no new partitions; ``*`` for all of them."""
    recovery_threads_per_data_dir: int = 2
    damage_policy: DamagePolicy = DamagePolicy.OFFLINE

    initial_task_delay_ms: int = 30_000
    retention_check_ms: int = 300_000
    flush_check_ms: int = LONGEST
    flush_recovery_offset_checkpoint_ms: int = 60_000
    flush_start_offset_checkpoint_ms: int = 60_000
    high_watermark_checkpoint_ms: int = 5_000
    """``replica.high.watermark.checkpoint.interval.ms``"""
    producer_id_expiration_check_ms: int = 600_000
    """``producer.id.expiration.check.interval.ms``"""
    max_transaction_timeout_ms: int = DEFAULT_MAX_TRANSACTION_TIMEOUT_MS
    producer_state: ProducerStateManagerConfig = field(default_factory=ProducerStateManagerConfig)

    @classmethod
    def from_values(cls, values: ConfigValues, **others: Any) -> Self:
        """Creates it from a broker's parsed log settings; `others` are additional fields."""
        return cls(
            topic_defaults=broker_topic_defaults(values),
            cordoned_log_dirs=values.get_list("cordoned.log.dirs"),
            recovery_threads_per_data_dir=values.get_int("num.recovery.threads.per.data.dir"),
            initial_task_delay_ms=values.get_int("log.initial.task.delay.ms"),
            retention_check_ms=values.get_int("log.retention.check.interval.ms"),
            flush_check_ms=values.get_int("log.flush.scheduler.interval.ms"),
            flush_recovery_offset_checkpoint_ms=values.get_int("log.flush.offset.checkpoint.interval.ms"),
            flush_start_offset_checkpoint_ms=values.get_int("log.flush.start.offset.checkpoint.interval.ms"),
            **others,
        )
