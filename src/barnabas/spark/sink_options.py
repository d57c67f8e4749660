"""Validates the options of the sink. `barnabas.spark.option_definitions` lists them.

Without two-phase commit, the broker aborts a transaction that is open for longer than ``kafka.transaction.timeout.ms``
(here 15 minutes by default, which is the brokers' default maximum). So that limits how long a batch may take, and how
long a driver may be down before rows that it had decided to commit must be written again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from barnabas.clients.producer.producer_config import CONFIG
from barnabas.common.config_def import ConfigError
from barnabas.spark.option_definitions import PASSED_ON, PREFIX, SINK, boolean, check_names
from barnabas.spark.sink_settings import TRANSACTION_TIMEOUT, SinkSettings

DEFAULT_PREFIX: Final = "barnabas-spark"


class TwoPhaseCommit(Enum):
    AUTO = "auto"
    ALWAYS = "true"
    NEVER = "false"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The validated options of a query. Sent to executors with the writer."""

    settings: SinkSettings
    topic: str | None
    exactly_once: bool
    prefix: str
    two_phase_commit: TwoPhaseCommit

    @classmethod
    def of(cls, options: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
        """Validates options; raises `ConfigError`. The keys of `options` are case-insensitive."""
        check_names(options, SINK, CONFIG.keys, "sink", PASSED_ON)
        exactly_once = boolean(options, "exactlyOnce", default=is_stream)
        settings = SinkSettings.of(options, exactly_once=exactly_once)
        topic = options.get("topic")
        if topic is not None and not topic.strip():
            raise ConfigError("Option topic is empty.", name="topic")
        prefix = options.get("transactionalIdPrefix", DEFAULT_PREFIX).strip()
        if not prefix:
            raise ConfigError("Option transactionalIdPrefix is empty.", name="transactionalIdPrefix")
        return cls(settings, None if topic is None else topic.strip(), exactly_once, prefix, _phases(options, settings))


def _phases(options: Mapping[str, str], settings: SinkSettings) -> TwoPhaseCommit:
    text = options.get("twoPhaseCommit", "auto").strip().lower()
    try:
        chosen = TwoPhaseCommit(text)
    except ValueError:
        raise ConfigError(f"twoPhaseCommit must be auto, true or false, not {text!r}.", name="twoPhaseCommit") from None
    if settings.has_transaction_timeout:
        if chosen is TwoPhaseCommit.ALWAYS:
            raise ConfigError(
                f"{PREFIX}{TRANSACTION_TIMEOUT} cannot be set if twoPhaseCommit is true: such transactions have no "
                "time-out.",
                name="twoPhaseCommit",
            )
        return TwoPhaseCommit.NEVER
    return chosen
