"""Chooses who keeps the timelines of requests: the compiled `_timeline`, or its twin `_timeline_pure`.

The twin takes over where the extension was not built, and where ``BARNABAS_PURE=1`` asks for it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING or os.environ.get("BARNABAS_PURE") == "1":
    from barnabas.server import _timeline_pure as _implementation
else:
    try:
        from barnabas.server import _timeline as _implementation
    except ImportError:
        from barnabas.server import _timeline_pure as _implementation

ACCELERATED: Final[bool] = _implementation.__name__.endswith("_timeline")
"""Whether the compiled timelines are in use."""

NOT_SET = _implementation.NOT_SET
Timeline = _implementation.Timeline
TimelineRecorder = _implementation.TimelineRecorder

__all__ = ["ACCELERATED", "NOT_SET", "Timeline", "TimelineRecorder"]
