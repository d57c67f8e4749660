"""The settings of a group (resource type GROUP), and their bounds.

The default of a group's setting is a setting of the broker. Two more settings of the broker are often its bounds:

    consumer.session.timeout.ms     group.consumer.session.timeout.ms           the default
                                    group.consumer.min.session.timeout.ms       the minimum
                                    group.consumer.max.session.timeout.ms       the maximum
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from barnabas.broker.config.terms import BOOLEAN, INT, MEDIUM, STRING, at_least, one_of
from barnabas.common.config_def import ConfigDef, ConfigError, ConfigValues, LambdaValidator
from barnabas.common.errors import InvalidConfigurationError

_DURATION: Final = r"by_duration:P(?=.)(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?"


def _check_offset_reset(name: str, value: object) -> None:
    text = str(value)
    if text in {"latest", "earliest"}:
        return
    duration = re.fullmatch(_DURATION, text, re.IGNORECASE)
    if duration is None or not any(float(part) for part in duration.groups() if part):
        raise ConfigError.invalid(
            name, value, "it must be latest, earliest, or by_duration: with a duration like P1DT2H3M4.5S"
        )


_OFFSET_RESET: Final = LambdaValidator(_check_offset_reset, "[latest, earliest, by_duration:PnDTnHnMn.nS]")

GROUP_CONFIG_DEF: Final = ConfigDef()
_define: Final = GROUP_CONFIG_DEF.define

# fmt: off

# Consumer groups.
_define("consumer.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM,
    "How long a member may go without a heartbeat before it is removed.")
_define("consumer.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM,
    "The interval at which members must send heartbeats.")
_define("consumer.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM,
    "The minimum time between two assignments. Changes in between are combined.")

# Share groups.
_define("share.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM,
    "How long a member may go without a heartbeat before it is removed.")
_define("share.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM,
    "The interval at which members must send heartbeats.")
_define("share.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM, "The minimum time between two assignments.")
_define("share.record.lock.duration.ms", INT, 30_000, at_least(1000), MEDIUM,
    "How long a consumer holds the acquisition lock of a record. After that the record can go to another consumer.")
_define("share.delivery.count.limit", INT, 5, at_least(2), MEDIUM,
    "How many times a record is delivered before it is archived.")
_define("share.partition.max.record.locks", INT, 2000, at_least(100), MEDIUM,
    "The maximum number of records of a partition that consumers can hold locks on.")
_define("share.auto.offset.reset", STRING, "latest", _OFFSET_RESET, MEDIUM,
    "Where a group starts in a partition that is new to it: latest, earliest, or a duration before now.")
_define("share.isolation.level", STRING, "read_uncommitted", one_of("read_committed", "read_uncommitted"), MEDIUM,
    "Whether records of open and aborted transactions are delivered.")
_define("share.renew.acknowledge.enable", BOOLEAN, True, None, MEDIUM,
    "Whether a consumer can renew the acquisition lock of a record.")

# Streams groups.
_define("streams.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM,
    "How long a member may go without a heartbeat before it is removed.")
_define("streams.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM,
    "The interval at which members must send heartbeats.")
_define("streams.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM, "The minimum time between two assignments.")
_define("streams.initial.rebalance.delay.ms", INT, 3000, at_least(0), MEDIUM,
    "How long an empty group waits for more members before its first assignment.")
_define("streams.num.standby.replicas", INT, 0, at_least(0), MEDIUM,
    "The number of standby replicas of a task's state.")

# fmt: on

_WITHOUT_SYNONYM: Final = frozenset({
    "share.auto.offset.reset",
    "share.isolation.level",
    "share.renew.acknowledge.enable",
})  # fmt: skip

GROUP_CONFIG_SYNONYMS: Final[Mapping[str, str | None]] = {
    name: None if name in _WITHOUT_SYNONYM else f"group.{name}" for name in GROUP_CONFIG_DEF.keys
}
"""The broker's setting that is the default of each setting of a group."""


def group_defaults(broker: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the defaults of group settings from the settings of a broker."""
    return {name: broker[synonym] for name, synonym in GROUP_CONFIG_SYNONYMS.items() if synonym is not None}


def _bounds(broker: Mapping[str, Any], name: str) -> tuple[tuple[str, int | None], tuple[str, int | None]]:
    kind, _, rest = name.partition(".")
    if name == "streams.num.standby.replicas":
        rest = "standby.replicas"
    lowest, highest = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"
    return (lowest, broker.get(lowest)), (highest, broker.get(highest))


def validate_group_config(settings: Mapping[str, str], broker: Mapping[str, Any]) -> None:
    """Raises `InvalidConfigurationError` if a group cannot have these settings on a broker with those."""
    for name in settings:
        if name not in GROUP_CONFIG_DEF.keys:
            raise InvalidConfigurationError(f"Unknown group config name: {name}")
    values: ConfigValues = GROUP_CONFIG_DEF.parse({**group_defaults(broker), **settings})
    for name in settings:
        if not isinstance(values[name], int) or isinstance(values[name], bool):
            continue
        (lower_name, lowest), (upper_name, highest) = _bounds(broker, name)
        if lowest is not None and values[name] < lowest:
            raise InvalidConfigurationError(f"{name} must be at least {lower_name}, which is {lowest}.")
        if highest is not None and values[name] > highest:
            raise InvalidConfigurationError(f"{name} must be at most {upper_name}, which is {highest}.")
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if not settings.keys().isdisjoint({session, heartbeat}) and values[session] <= values[heartbeat]:
            raise InvalidConfigurationError(
                f"{session} ({values[session]}) must be longer than {heartbeat} ({values[heartbeat]})."
            )
