"""Chooses who keeps the buckets of histograms: the compiled `_buckets`, or its twin `_buckets_pure`.

The twin takes over where the extension was not built, and where ``BARNABAS_PURE=1`` asks for it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from barnabas.metrics.yammer._buckets_pure import Totals

if TYPE_CHECKING or os.environ.get("BARNABAS_PURE") == "1":
    from barnabas.metrics.yammer import _buckets_pure as _implementation
else:
    try:
        from barnabas.metrics.yammer import _buckets as _implementation
    except ImportError:
        from barnabas.metrics.yammer import _buckets_pure as _implementation

ACCELERATED: Final[bool] = _implementation.__name__.endswith("_buckets")
"""Whether the compiled buckets are in use."""

BucketTable = _implementation.BucketTable

__all__ = ["ACCELERATED", "BucketTable", "Totals"]
