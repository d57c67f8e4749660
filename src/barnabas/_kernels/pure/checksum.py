"""CRC-32C, the checksum of record batches: the twin of `compiled.checksum`, which calls the package ``crc32c``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Final, TypeAlias

Checksum: TypeAlias = Callable[[bytes | bytearray | memoryview, int], int]

KERNELS: Final[tuple[str, ...]] = ()
"""Our implementations for this processor: none here, the package chooses its own."""

_package: Checksum | None = None


def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """Returns the CRC-32C of `data` as an unsigned 32-bit number; `value` is the checksum of the preceding bytes."""
    return (_package or from_package())(data, value)


def choose(name: str | None) -> None:
    """Selects one of `KERNELS`, or None for the package, for tests and comparisons."""
    if name is not None:
        raise ValueError(f"no kernel {name} here, but none")


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


# Checksums are polynomials over GF(2), lowest power first in the highest bit: x^0 is 2**31.
_POLYNOMIAL: Final = 0x82F63B78
_ONE: Final = 1 << 31


def _product(first: int, second: int) -> int:
    """Multiplies two polynomials, modulo that of CRC-32C."""
    product, power = 0, _ONE
    while power:
        if first & power:
            product ^= second
        second = (second >> 1) ^ (_POLYNOMIAL if second & 1 else 0)
        power >>= 1
    return product


def combined_crc32c(first: int, second: int, length: int) -> int:
    """Returns the checksum of two consecutive pieces from their checksums; ``length`` is that of the second.

    Each following byte multiplies the state before it by x^8, so ``first`` must be multiplied by x^(8 length), which is
    a product of x^8, x^16, x^32 and so on.
    """
    factor, square = _ONE, _ONE >> 8
    while length:
        if length & 1:
            factor = _product(square, factor)
        square = _product(square, square)
        length >>= 1
    return _product(factor, first) ^ second
