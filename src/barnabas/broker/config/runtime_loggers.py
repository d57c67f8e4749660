"""Log levels that change while the broker runs (KIP-412): the resource type BROKER_LOGGER.

Levels go by the names that Kafka's tools use. Python has no TRACE, which is anything below DEBUG here, and calls FATAL
critical. What is set is gone after a restart.

A package counts as a logger, even if nothing logs under its very name: ``barnabas.log`` stands for all of its modules.
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
        """The level with which as much is shown; where nothing at all is shown, FATAL."""
        return min((known for known in cls if known >= level), default=cls.FATAL)


def loggers() -> Mapping[str, str]:
    """All loggers and the levels in force, by name."""
    manager = logging.Logger.manager
    found = {ROOT_LOGGER: LogLevel.of(logging.root.level).name}
    for name in sorted(manager.loggerDict):
        found[name] = LogLevel.of(_effective_level(name)).name
    return found


def _effective_level(name: str) -> int:
    """Without making a logger out of a package that is none yet: that would be seen by others."""
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
        """All changes of a resource, or none and an error."""
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
            raise InvalidRequestError(f"Loggers are those of a node, named by its id, not by {name!r}.") from None
        if node_id != self._node_id:
            raise InvalidRequestError(f"This is node {self._node_id}: ask node {name} to change its loggers.")


def _check(change: AlterableConfig) -> None:
    match change.config_operation:
        case ConfigOperation.SET:
            _check_exists(change.name)
            if change.value not in LogLevel.__members__:
                raise InvalidConfigurationError(
                    f"The level of {change.name} cannot be {change.value}: it must be one of "
                    f"{', '.join(sorted(LogLevel.__members__))}."
                )
        case ConfigOperation.DELETE:
            _check_exists(change.name)
            if change.name == ROOT_LOGGER:
                raise InvalidRequestError("The root logger needs a level: set another instead.")
        case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
            raise InvalidRequestError("The level of a logger is not a list: it can be set or deleted.")
        case operation:
            raise InvalidRequestError(f"There is no operation {operation}.")


def _check_exists(name: str) -> None:
    if not logger_exists(name):
        raise InvalidConfigurationError(f"There is no logger called {name}.")


def _apply(changes: Iterable[AlterableConfig]) -> None:
    for change in changes:
        if change.config_operation == ConfigOperation.SET:
            assert change.value is not None
            _logger(change.name).setLevel(LogLevel[change.value])
            logger.warning("The level of %s is %s now", change.name, change.value)
        else:
            _logger(change.name).setLevel(logging.NOTSET)
            logger.warning("%s has no level of its own any more", change.name)
