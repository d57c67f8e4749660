"""CRC-32C of the package ``crc32c``, where the processor has no kernel of ours."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TypeAlias

Checksum: TypeAlias = Callable[[bytes | bytearray | memoryview, int], int]

_package: Checksum | None = None


def from_package() -> Checksum:
    """Returns the function of the package ``crc32c``."""
    global _package  # noqa: PLW0603 - set once; a second thread that gets here first sets the same function
    if _package is None:
        _package = _load()
    return _package


def _load() -> Checksum:
    """Loads the extension module of the package ``crc32c`` without the package around it.

    On import the package reads its own metadata and prepares a command line, which takes 50 ms: a seventh of a broker's
    start-up time. If it is already imported, or built in another way, it is used as it is.
    """
    package = None if "crc32c" in sys.modules else find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    spec = None if places is None else PathFinder.find_spec("crc32c._crc32c", list(places))
    if spec is None or spec.loader is None:
        from crc32c import crc32c as implementation

        return implementation
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.crc32c  # type: ignore[no-any-return]
