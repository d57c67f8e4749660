"""Chooses who looks at whole compressed batches: the compiled `_compressed_batch`, or its twin."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("BARNABAS_PURE") == "1":
    from barnabas.records import _compressed_batch_pure as _implementation
else:
    try:
        from barnabas.records import _compressed_batch as _implementation
    except ImportError:
        from barnabas.records import _compressed_batch_pure as _implementation

decompressed_bound = _implementation.decompressed_bound
size_if_plain = _implementation.size_if_plain

__all__ = ["decompressed_bound", "size_if_plain"]
