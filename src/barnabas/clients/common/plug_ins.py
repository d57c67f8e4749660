"""Creates user classes from a client's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.common.config_def import Type, parse_type


def load_class(setting: str, given: object) -> Any:
    """Loads the class of a dotted name in ``setting``; returns other values unchanged."""
    return parse_type(setting, given, Type.CLASS) if isinstance(given, str) else given


def configured(setting: str, given: Any, config: Mapping[str, Any]) -> Any:
    """Returns an instance of a plug-in that is given as a class or a class name."""
    given = load_class(setting, given)
    if not isinstance(given, type):
        return given
    made: Any = given()
    if hasattr(made, "configure"):
        made.configure(config)
    return made
