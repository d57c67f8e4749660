"""The settings of single groups (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.coordinator.group.group_coordinator_config import GroupCoordinatorConfig

GroupOverrides = Callable[[str], Mapping[str, str]]
"""Returns the settings of a group by its ID."""


def no_overrides(_group_id: str) -> Mapping[str, str]:
    return {}


class GroupSettings:
    """Returns the effective settings of a group: its own, or the broker's."""

    __slots__ = ("_config", "_overrides")

    def __init__(self, config: GroupCoordinatorConfig, overrides: GroupOverrides = no_overrides) -> None:
        self._config = config
        self._overrides = overrides

    def session_timeout_ms(self, group_id: str) -> int:
        return self._int(group_id, "consumer.session.timeout.ms", self._config.consumer_session_timeout_ms)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return self._int(group_id, "consumer.heartbeat.interval.ms", self._config.consumer_heartbeat_interval_ms)

    def assignment_interval_ms(self, group_id: str) -> int:
        return self._int(group_id, "consumer.assignment.interval.ms", self._config.consumer_assignment_interval_ms)

    def _int(self, group_id: str, name: str, default: int) -> int:
        value = self._overrides(group_id).get(name)
        return default if value is None else int(value)
