"""The request header: the twin of `compiled.headers`.

The compiled parser reads the common shape of a header itself and calls `otherwise` for the rest. `otherwise` can read
every header, so the twin is just that function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Header = TypeVar("Header", bound=tuple[Any, ...])
Buffer = bytes | bytearray | memoryview


def header_parser(
    apis: dict[int, Any],  # noqa: ARG001 - what the compiled parser needs
    header_type: type[Header],
    otherwise: Callable[[Buffer], Header],
) -> Callable[[Buffer], Header]:
    """Returns the function that parses a request header into `header_type`."""
    if not issubclass(header_type, tuple):
        raise TypeError(f"{header_type} is no kind of tuple")
    return otherwise
