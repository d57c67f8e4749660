"""Chooses who finds the partitions that have nothing new: the compiled `_log_ends`, or its twin."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("BARNABAS_PURE") == "1":
    from barnabas.replica import _log_ends_pure as _implementation
else:
    try:
        from barnabas.replica import _log_ends as _implementation
    except ImportError:  # not built
        from barnabas.replica import _log_ends_pure as _implementation

at_end = _implementation.at_end
ends_of = _implementation.ends_of
changed = _implementation.changed

__all__ = ["at_end", "changed", "ends_of"]
