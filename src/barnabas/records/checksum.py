"""CRC-32C, the checksum of record batches, computed by the processor's own instruction where it has one."""

from __future__ import annotations

from collections.abc import Callable

_crc32c: Callable[[bytes | bytearray | memoryview], int] | None = None


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """The checksum of `data`, as an unsigned 32-bit number.

    The package behind it takes 50 ms to import (it reads its own metadata and prepares a command line), which is too
    much for programs that only want the types of this package: so it is imported by the first checksum.
    """
    global _crc32c  # noqa: PLW0603 - set once; a second thread that gets here first sets the same function
    if _crc32c is None:
        from crc32c import crc32c as implementation  # noqa: PLC0415

        _crc32c = implementation
    return _crc32c(data)
