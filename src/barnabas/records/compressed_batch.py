"""Bounds what a compressed batch can decompress to, without decompressing it."""

from __future__ import annotations

from barnabas._kernels import compressed_batch
from barnabas._kernels.pure import compressed_batch as general_scan


def decompressed_bound(batch: memoryview) -> int:
    """Returns the most that the records of a batch can decompress to: 0 if not compressed, -1 if unknown.

    The kernel reads the frames that most clients write. The general scan reads all others.
    """
    bound = compressed_batch.decompressed_bound(batch)
    return bound if bound >= 0 else general_scan.decompressed_bound(batch)


__all__ = ["decompressed_bound"]
