"""The settings of the transaction coordinator."""

from __future__ import annotations

from typing import Self

from barnabas.common.config_def import ConfigValues
from barnabas.common.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """The transaction settings of a broker; the defaults are Kafka's."""

    transactional_id_expiration_ms: int = 7 * 24 * 3600 * 1000
    transaction_max_timeout_ms: int = 15 * 60 * 1000
    abort_timed_out_transactions_interval_ms: int = 10_000
    remove_expired_transactional_ids_interval_ms: int = 3_600_000
    two_phase_commit_enable: bool = False
    state_log_num_partitions: int = 50
    state_log_load_buffer_size: int = 5 * 1024 * 1024
    add_partitions_retry_backoff_ms: int = 20
    add_partitions_retry_backoff_max_ms: int = 100
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    """The backoff before markers are sent again. Not a setting."""

    @classmethod
    def from_values(cls, values: ConfigValues) -> Self:
        get_int = values.get_int
        return cls(
            transactional_id_expiration_ms=get_int("transactional.id.expiration.ms"),
            transaction_max_timeout_ms=get_int("transaction.max.timeout.ms"),
            abort_timed_out_transactions_interval_ms=get_int(
                "transaction.abort.timed.out.transaction.cleanup.interval.ms"
            ),
            remove_expired_transactional_ids_interval_ms=get_int(
                "transaction.remove.expired.transaction.cleanup.interval.ms"
            ),
            two_phase_commit_enable=bool(values["transaction.two.phase.commit.enable"]),
            state_log_num_partitions=get_int("transaction.state.log.num.partitions"),
            state_log_load_buffer_size=get_int("transaction.state.log.load.buffer.size"),
            add_partitions_retry_backoff_ms=get_int("add.partitions.to.txn.retry.backoff.ms"),
            add_partitions_retry_backoff_max_ms=get_int("add.partitions.to.txn.retry.backoff.max.ms"),
            request_timeout_ms=get_int("request.timeout.ms"),
        )
