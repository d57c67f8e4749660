"""Classes of the user's that a client makes from its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.common.config_def import Type, parse_type


def load_class(setting: str, given: object) -> Any:
    """The class of a dotted name, which ``setting`` has as its value; anything else as it is."""
    return parse_type(setting, given, Type.CLASS) if isinstance(given, str) else given


def configured(setting: str, given: Any, config: Mapping[str, Any]) -> Any:
    """An instance of a plug-in that was given as a class, or by the name of one."""
    given = load_class(setting, given)
    if not isinstance(given, type):
        return given
    made: Any = given()
    if hasattr(made, "configure"):
        made.configure(config)
    return made
