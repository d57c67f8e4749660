"""CRC-32C, the checksum of record batches: the twin of `compiled.checksum`, which calls the package ``crc32c``."""

from __future__ import annotations

from typing import Final

from barnabas._kernels.crc32c_package import from_package

KERNELS: Final[tuple[str, ...]] = ()
"""Our implementations for this processor: none here, the package chooses its own."""


def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """Returns the CRC-32C of `data` as an unsigned 32-bit number; `value` is the checksum of the preceding bytes."""
    return from_package()(data, value)


def choose(name: str | None) -> None:
    """Selects one of `KERNELS`, or None for the package, for tests and comparisons."""
    if name is not None:
        raise ValueError(f"no kernel {name} here, but none")


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
