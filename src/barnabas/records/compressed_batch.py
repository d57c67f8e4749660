"""Bounds the decompressed size of a batch without decompressing it."""

from __future__ import annotations

from barnabas._kernels import compressed_batch
from barnabas._kernels.pure import compressed_batch as general_scan


def decompressed_bound(batch: memoryview) -> int:
    """Returns an upper bound for the decompressed size of a batch's records: 0 if not compressed, -1 if unknown.

    The kernel reads the frames that most clients write. The general scan reads all others.
    """
    bound = compressed_batch.decompressed_bound(batch)
    return bound if bound >= 0 else general_scan.decompressed_bound(batch)


__all__ = ["decompressed_bound"]
