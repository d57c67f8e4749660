"""Chooses who looks at whole batches: the compiled `_plain_batch`, or its twin `_plain_batch_pure`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("BARNABAS_PURE") == "1":
    from barnabas.records import _plain_batch_pure as _implementation
else:
    try:
        from barnabas.records import _plain_batch as _implementation
    except ImportError:
        from barnabas.records import _plain_batch_pure as _implementation

is_plain_batch = _implementation.is_plain_batch
place_batch = _implementation.place_batch

__all__ = ["is_plain_batch", "place_batch"]
