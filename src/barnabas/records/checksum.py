"""CRC-32C, the checksum of record batches, computed by the processor's own instruction where it has one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec

_crc32c: Callable[[bytes | bytearray | memoryview], int] | None = None


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """The checksum of `data`, as an unsigned 32-bit number."""
    return (_crc32c or implementation())(data)


def implementation() -> Callable[[bytes | bytearray | memoryview], int]:
    """The function that does it, for those who call it all the time."""
    global _crc32c  # noqa: PLW0603 - set once; a second thread that gets here first sets the same function
    if _crc32c is None:
        _crc32c = _load()
    return _crc32c


def _load() -> Callable[[bytes | bytearray | memoryview], int]:
    """The function from the extension module of the package ``crc32c``, without the package around it.

    That one reads its own metadata and prepares a command line when it is imported. This takes 50 ms, a seventh of what
    a broker needs to start. If it is there already, or built in another way, it is used as it is.
    """
    package = None if "crc32c" in sys.modules else find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    spec = None if places is None else PathFinder.find_spec("crc32c._crc32c", list(places))
    if spec is None or spec.loader is None:
        from crc32c import crc32c as implementation  # noqa: PLC0415 - see above

        return implementation
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.crc32c  # type: ignore[no-any-return]
