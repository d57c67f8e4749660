"""The options of the sink: the stock connector's, under its names, and a few of our own.

==================================  ====================================================================================
``kafka.bootstrap.servers``         addresses of the cluster; all ``kafka.*`` options are settings of a producer
``topic``                           the topic of all rows; without it, each row has it in a column of that name
**ours**
``exactlyOnce``                     whether rows are written in transactions that the driver completes, so that readers
                                    of committed data see each row once (streams: true, batches: false). If not, a task
                                    that is retried writes its rows again, as the stock connector does
``transactionalIdPrefix``           prefix of transactional ids, and of groups that record completed batches
                                    (``barnabas-spark``). The query id follows, so two queries never share an id
``twoPhaseCommit``                  ``auto`` (default), ``true`` or ``false``: whether transactions wait for the driver
                                    without a timeout (KIP-939). ``auto``: if the cluster allows it, unless
                                    ``kafka.transaction.timeout.ms`` is set
==================================  ====================================================================================

Without two-phase commit, the broker aborts a transaction that is open for longer than ``kafka.transaction.timeout.ms``
(here 15 minutes by default, which is the brokers' default maximum). So that limits how long a batch may take, and how
long a driver may be down before rows that it had decided to commit must be written again.

Unknown options are refused.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from barnabas.common.config_def import ConfigError
from barnabas.spark.client_settings import PREFIX
from barnabas.spark.sink_settings import TRANSACTION_TIMEOUT, SinkSettings

_NAMES: Final = ("topic", "exactlyOnce", "transactionalIdPrefix", "twoPhaseCommit")
_OF_SPARK: Final = frozenset({"checkpointlocation", "path"})
"""Options that Spark passes on although they are not meant for the sink."""

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
        _check_names(options)
        exactly_once = _boolean(options, "exactlyOnce", default=is_stream)
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


def _check_names(options: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in _NAMES}
    for name in options:
        lower = name.lower()
        if lower not in known and lower not in _OF_SPARK and not lower.startswith(PREFIX):
            close = difflib.get_close_matches(lower, known, 1)
            hint = f" Did you mean {known[close[0]]}?" if close else ""
            raise ConfigError(f"There is no option {name} for this sink.{hint}", name=name)


def _boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, str(default)).strip().lower()
    if text not in {"true", "false"}:
        raise ConfigError(f"{name} must be true or false, not {options[name]!r}.", name=name)
    return text == "true"
