"""Validates the options of the source. `barnabas.spark.option_definitions` lists them."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.common.config_def import ConfigError
from barnabas.spark.client_settings import SETTINGS, ClientSettings
from barnabas.spark.option_definitions import SOURCE, STREAM, boolean, check_names
from barnabas.spark.source_schema import column_names
from barnabas.spark.starting_points import (
    ENDING,
    LATEST_POINT,
    Point,
    ending_point,
    starting_point,
    unmatched_is_latest,
)
from barnabas.spark.subscription import Subscription
from barnabas.spark.task_planner import TaskLimits

log = logging.getLogger(__name__)

_UNITS_MS: Final = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d+)\s*([a-z]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The validated options of a query. Sent to executors with the reader."""

    client: ClientSettings
    subscription: Subscription
    start: Point | None
    """None if not set: streams start at the latest offset and batches at the earliest."""
    end: Point
    unmatched_is_latest: bool
    fail_on_data_loss: bool
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    max_bytes_per_trigger: int | None
    task_limits: TaskLimits
    fetch_offset_attempts: int
    fetch_offset_retry_interval_ms: int
    poll_timeout_ms: int
    commit_to_group: str | None
    columns: tuple[str, ...]
    push_down_filters: bool
    given: frozenset[str]
    """The names of the options that were set, for checks that depend on batch or stream."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """Validates options; raises `ConfigError`. The keys of `options` are case-insensitive."""
        check_names(options, SOURCE, SETTINGS, "source")
        if "groupIdPrefix" in options:
            log.warning("Option groupIdPrefix has no effect: readers of this source are in no group")
        client = ClientSettings.of(options)
        minimum = _positive(options, "minOffsetsPerTrigger")
        maximum = _positive(options, "maxOffsetsPerTrigger")
        if minimum is not None and maximum is not None and minimum > maximum:
            raise ConfigError(
                f"The value of minOffsetsPerTrigger ({minimum}) must not be greater than maxOffsetsPerTrigger "
                f"({maximum}).",
                name="minOffsetsPerTrigger",
            )
        if "maxTriggerDelay" in options and minimum is None:
            log.warning("Option maxTriggerDelay has no effect: minOffsetsPerTrigger, which it limits, is not set")
        attempts = _positive(options, "fetchOffset.numRetries", least=0)
        interval = _positive(options, "fetchOffset.retryIntervalMs", least=0)
        poll_timeout = _positive(options, "kafkaConsumer.pollTimeoutMs", least=0)
        return cls(
            client=client,
            subscription=Subscription.of(options),
            start=starting_point(options),
            end=ending_point(options) or LATEST_POINT,
            unmatched_is_latest=unmatched_is_latest(options),
            fail_on_data_loss=boolean(options, "failOnDataLoss", default=True),
            max_offsets_per_trigger=maximum,
            min_offsets_per_trigger=minimum,
            max_trigger_delay_ms=_duration_ms(options, "maxTriggerDelay", 15 * 60_000),
            max_bytes_per_trigger=_positive(options, "maxBytesPerTrigger"),
            task_limits=TaskLimits(
                target=_positive(options, "targetPartitions"),
                minimum=_positive(options, "minPartitions"),
                max_records=_positive(options, "maxRecordsPerPartition"),
                merge=boolean(options, "mergePartitions", default=True),
                split=boolean(options, "splitPartitions", default=True),
            ),
            fetch_offset_attempts=1 + (3 if attempts is None else attempts),
            fetch_offset_retry_interval_ms=1000 if interval is None else interval,
            poll_timeout_ms=120_000 if poll_timeout is None else poll_timeout,
            commit_to_group=_group(options, client),
            columns=column_names(options.get("columns"), boolean(options, "includeHeaders", default=False)),
            push_down_filters=boolean(options, "pushDownFilters", default=False),
            given=frozenset(one.name for one in SOURCE if one.name in options),
        )

    def check_batch(self) -> None:
        """Logs and ignores options that apply only to streams, as the stock connector does."""
        if self.start is not None:
            self.start.refuse_latest()
        for option in SOURCE:
            if option.queries == STREAM and option.name in self.given:
                log.warning("Option %s is ignored: this is a batch query", option.name)

    def check_stream(self) -> None:
        for name in ENDING:
            if name in self.given:
                raise ConfigError(f"{name} is not valid in streaming queries.", name=name)
        if "pushDownFilters" in self.given:
            log.warning("Option pushDownFilters is ignored: Spark does not push filters down into streams")


def _group(options: Mapping[str, str], client: ClientSettings) -> str | None:
    """Returns the group to commit to, or None."""
    group = options.get("groupId", "").strip() or None
    if group is not None and client.group_id is not None and group != client.group_id:
        raise ConfigError(f"groupId is {group}, but kafka.group.id is {client.group_id}.", name="groupId")
    group = group or client.group_id
    if not boolean(options, "commitOffsetsToGroup", default=group is not None):
        return None
    if group is None:
        raise ConfigError("commitOffsetsToGroup is true, but groupId is not set.", name="groupId")
    return group


def _positive(options: Mapping[str, str], name: str, *, least: int = 1) -> int | None:
    if name not in options:
        return None
    text = str(options[name]).strip()
    if not text.isdecimal() or int(text) < least:
        raise ConfigError(f"{name} must be a whole number of at least {least}, not {options[name]!r}.", name=name)
    return int(text)


def _duration_ms(options: Mapping[str, str], name: str, default_ms: int) -> int:
    """Parses a time in Spark's format: 15m, 30s, 500ms; a bare number is milliseconds."""
    if name not in options:
        return default_ms
    match = _DURATION.fullmatch(str(options[name]).strip())
    unit = (match[2].lower() or "ms") if match else ""
    if match is None or unit not in _UNITS_MS:
        raise ConfigError(f"{name} must be a time such as 15m, 30s or 500ms, not {options[name]!r}.", name=name)
    return int(int(match[1]) * _UNITS_MS[unit])
