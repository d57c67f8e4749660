"""CRC-32C, the checksum of record batches, computed by the processor's own instructions where it has some.

The compiled `_checksum` does it on x86-64, at a few times the speed of the package ``crc32c``. That one takes over on
other processors, where the extension was not built, and where ``BARNABAS_PURE=1`` asks for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TypeAlias

Checksum: TypeAlias = Callable[[bytes | bytearray | memoryview, int], int]

_crc32c: Checksum | None = None
_package: Checksum | None = None


def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """The checksum of `data`, as an unsigned 32-bit number; `value` is that of what comes before them."""
    return (_crc32c or implementation())(data, value)


def implementation() -> Checksum:
    """The function that does it, for those who call it all the time."""
    global _crc32c  # noqa: PLW0603 - set once; a second thread that gets here first sets the same function
    if _crc32c is None:
        _crc32c = _compiled() or from_package()
    return _crc32c


def _compiled() -> Checksum | None:
    """Ours, unless this processor can run none of its kernels."""
    if os.environ.get("BARNABAS_PURE") == "1":
        return None
    try:
        from barnabas.records import _checksum  # noqa: PLC0415 - need not have been built
    except ImportError:
        return None
    return _checksum.crc32c if _checksum.KERNELS else None


def from_package() -> Checksum:
    """The function of the package ``crc32c``."""
    global _package  # noqa: PLW0603 - as above
    if _package is None:
        _package = _load()
    return _package


def _load() -> Checksum:
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
