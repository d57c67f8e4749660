"""Changes log levels while the broker runs (KIP-412): the resource type BROKER_LOGGER.

Levels have the names of Kafka's tools. Python has no TRACE, which means anything below DEBUG here, and FATAL is
Python's CRITICAL. Levels are not stored: they are lost in a restart.

A package counts as a logger even if nothing logs under its name: ``barnabas.log`` means all of its modules.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from barnabas.common.errors import (
    ClusterAuthorizationError,
    InvalidConfigurationError,
    InvalidRequestError,
)
from barnabas.common.numerals import parse_integer
from barnabas.controller.configuration_control_manager import ConfigOperation

if TYPE_CHECKING:
    from barnabas.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource

logger = logging.getLogger(__name__)

ROOT_LOGGER: Final = "root"


class LogLevel(IntEnum):
    """Kafka's names with Python's numbers."""

    FATAL = logging.CRITICAL
    ERROR = logging.ERROR
    WARN = logging.WARNING
    INFO = logging.INFO
    DEBUG = logging.DEBUG
    TRACE = 5

    @classmethod
    def of(cls, level: int) -> LogLevel:
        """Returns the level that shows the same messages; FATAL if none are shown."""
        return min((known for known in cls if known >= level), default=cls.FATAL)


def loggers() -> Mapping[str, str]:
    """Returns the effective levels of all loggers by name."""
    manager = logging.Logger.manager
    found = {ROOT_LOGGER: LogLevel.of(logging.root.level).name}
    for name in sorted(manager.loggerDict):
        found[name] = LogLevel.of(_effective_level(name)).name
    return found


def _effective_level(name: str) -> int:
    """Avoids creating a logger for a package that has none, because that would change the list of loggers."""
    table = logging.Logger.manager.loggerDict
    while name:
        found = table.get(name)
        if isinstance(found, logging.Logger) and found.level:
            return found.level
        name = name.rpartition(".")[0]
    return logging.root.level


def logger_exists(name: str) -> bool:
    return name == ROOT_LOGGER or name in logging.Logger.manager.loggerDict


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT_LOGGER else logging.getLogger(name)


class RuntimeLoggerManager:
    """Changes the levels of this node's loggers."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id

    def apply_changes(self, resource: AlterConfigsResource, *, authorized: bool, validate_only: bool) -> None:
        """Applies all changes of a resource, or none if one is invalid."""
        if not authorized:
            raise ClusterAuthorizationError
        self._check_node_id(resource.resource_name)
        for change in resource.configs:
            _check(change)
        if not validate_only:
            _apply(resource.configs)

    def _check_node_id(self, name: str) -> None:
        try:
            node_id = parse_integer(name)
        except ValueError:
            raise InvalidRequestError(f"A logger resource must be named by the ID of its node: {name!r}") from None
        if node_id != self._node_id:
            raise InvalidRequestError(f"This is node {self._node_id}: send the request for node {name} to that node.")


def _check(change: AlterableConfig) -> None:
    match change.config_operation:
        case ConfigOperation.SET:
            _check_exists(change.name)
            if change.value not in LogLevel.__members__:
                raise InvalidConfigurationError(
                    f"The level of {change.name} must be one of {', '.join(sorted(LogLevel.__members__))}: "
                    f"{change.value}"
                )
        case ConfigOperation.DELETE:
            _check_exists(change.name)
            if change.name == ROOT_LOGGER:
                raise InvalidRequestError("The level of the root logger cannot be deleted: set another one.")
        case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
            raise InvalidRequestError("The level of a logger is not a list: use SET or DELETE.")
        case operation:
            raise InvalidRequestError(f"Unknown operation {operation}.")


def _check_exists(name: str) -> None:
    if not logger_exists(name):
        raise InvalidConfigurationError(f"Unknown logger {name}.")


def _apply(changes: Iterable[AlterableConfig]) -> None:
    for change in changes:
        if change.config_operation == ConfigOperation.SET:
            assert change.value is not None
            _logger(change.name).setLevel(LogLevel[change.value])
            logger.warning("Set the level of %s to %s", change.name, change.value)
        else:
            _logger(change.name).setLevel(logging.NOTSET)
            logger.warning("Removed the level of %s", change.name)
