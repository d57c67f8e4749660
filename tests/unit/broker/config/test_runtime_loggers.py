"""Log levels that change while the broker runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from barnabas.broker.config.runtime_loggers import LogLevel, RuntimeLoggerManager, loggers
from barnabas.common.errors import ApiError, ClusterAuthorizationError, InvalidConfigurationError, InvalidRequestError
from barnabas.controller.configuration_control_manager import ConfigOperation
from barnabas.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource

NAME = "barnabas.testing.loggers.one"
SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    names = ("root", NAME, "barnabas.testing.loggers")
    logging.getLogger(NAME)
    before = {name: logging.getLogger(None if name == "root" else name).level for name in names}
    yield
    for name, level in before.items():
        logging.getLogger(None if name == "root" else name).setLevel(level)


def alter(
    *changes: tuple[str, int, str | None], node: str = "1", authorized: bool = True, validate_only: bool = False
) -> None:
    resource = AlterConfigsResource(
        resource_type=8,
        resource_name=node,
        configs=[
            AlterableConfig(name=name, config_operation=operation, value=value) for name, operation, value in changes
        ],
    )
    RuntimeLoggerManager(1).apply_changes(resource, authorized=authorized, validate_only=validate_only)


def test_levels_really_change() -> None:
    alter((NAME, SET, "DEBUG"))
    assert logging.getLogger(NAME).isEnabledFor(logging.DEBUG)
    assert loggers()[NAME] == "DEBUG"
    alter((NAME, SET, "ERROR"))
    assert not logging.getLogger(NAME).isEnabledFor(logging.WARNING)
    alter((NAME, DELETE, None))
    assert logging.getLogger(NAME).level == logging.NOTSET
    assert loggers()[NAME] == loggers()["root"]


def test_a_package_stands_for_its_modules() -> None:
    alter(("barnabas.testing.loggers", SET, "TRACE"))
    assert loggers()[NAME] == "TRACE"
    assert logging.getLogger(NAME).isEnabledFor(5)


def test_the_root_logger() -> None:
    alter(("root", SET, "FATAL"))
    assert logging.getLogger().level == logging.CRITICAL
    assert loggers()["root"] == "FATAL"


def test_nothing_changes_when_only_validating() -> None:
    before = loggers()[NAME]
    alter((NAME, SET, "FATAL"), validate_only=True)
    assert loggers()[NAME] == before


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("no.such.logger", SET, "INFO"), InvalidConfigurationError),
        (("no.such.logger", DELETE, None), InvalidConfigurationError),
        ((NAME, SET, "info"), InvalidConfigurationError),
        ((NAME, SET, "VERBOSE"), InvalidConfigurationError),
        ((NAME, SET, None), InvalidConfigurationError),
        (("root", DELETE, None), InvalidRequestError),
        ((NAME, ConfigOperation.APPEND, "INFO"), InvalidRequestError),
        ((NAME, ConfigOperation.SUBTRACT, "INFO"), InvalidRequestError),
        ((NAME, 9, "INFO"), InvalidRequestError),
    ],
)
def test_what_is_refused(change: tuple[str, int, str | None], error: type[ApiError]) -> None:
    before = loggers()[NAME]
    with pytest.raises(error):
        alter((NAME, SET, "FATAL"), change)
    assert loggers()[NAME] == before, "all or nothing"


def test_who_and_where() -> None:
    with pytest.raises(ClusterAuthorizationError):
        alter((NAME, SET, "INFO"), authorized=False)
    for node in ("2", "", "x"):
        with pytest.raises(InvalidRequestError):
            alter((NAME, SET, "INFO"), node=node)


@pytest.mark.parametrize(
    ("level", "name"),
    [(0, "TRACE"), (5, "TRACE"), (7, "DEBUG"), (30, "WARN"), (35, "ERROR"), (50, "FATAL"), (60, "FATAL")],
)
def test_levels_in_between(level: int, name: str) -> None:
    assert LogLevel.of(level).name == name
