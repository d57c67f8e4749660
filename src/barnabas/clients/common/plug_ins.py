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


def close_all(*plug_ins: Any) -> None:
    """Closes the plug-ins that have a method ``close``; raises the first error when all have been closed."""
    first: Exception | None = None
    for plug_in in plug_ins:
        try:
            if hasattr(plug_in, "close"):
                plug_in.close()
        except Exception as error:  # noqa: BLE001 - raised below
            first = first or error
    if first is not None:
        raise first
