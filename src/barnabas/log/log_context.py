"""The services and settings that all logs of a broker share."""

from __future__ import annotations

import random
from typing import Final

from barnabas.common.clock import Clock
from barnabas.common.dataclass import dataclass, field
from barnabas.common.scheduler import Scheduler
from barnabas.log.dirs.log_dir_failure import LogDirFailureChannel
from barnabas.log.dirs.log_dir_pace import LogDirPaces
from barnabas.log.producers.producer_states import ProducerStateManagerConfig

DEFAULT_MAX_TRANSACTION_TIMEOUT_MS: Final = 15 * 60 * 1000


@dataclass(frozen=True, slots=True)
class LogContext:
    """The clock, the scheduler, the channel for disk failures, and the settings that do not depend on the topic."""

    clock: Clock
    scheduler: Scheduler
    failure_channel: LogDirFailureChannel
    producer_state_config: ProducerStateManagerConfig = field(default_factory=ProducerStateManagerConfig)
    max_transaction_timeout_ms: int = DEFAULT_MAX_TRANSACTION_TIMEOUT_MS
    """``transaction.max.timeout.ms``"""
    randomness: random.Random = field(default_factory=random.Random)
    """For the jitter of rolls."""
    paces: LogDirPaces = field(default_factory=LogDirPaces)
