"""Chooses who does what every request needs: the compiled `_reactor`, or its twin `_reactor_pure`.

The twin takes over where the extension was not built, and where ``BARNABAS_PURE=1`` asks for it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING or os.environ.get("BARNABAS_PURE") == "1":
    from barnabas.network import _reactor_pure as _implementation
else:
    try:
        from barnabas.network import _reactor as _implementation
    except ImportError:
        from barnabas.network import _reactor_pure as _implementation

ACCELERATED: Final[bool] = _implementation.__name__.endswith("_reactor")
"""Whether the compiled reactor is in use."""

FileRegion = _implementation.FileRegion
ChannelCore = _implementation.ChannelCore
SelectorCore = _implementation.SelectorCore
SelectorStats = _implementation.SelectorStats
SendCore = _implementation.SendCore

__all__ = ["ACCELERATED", "ChannelCore", "FileRegion", "SelectorCore", "SelectorStats", "SendCore"]
