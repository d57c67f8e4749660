"""Chooses who writes the answers to most fetches: the compiled `_fetch_answer`, or its twin."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING or os.environ.get("BARNABAS_PURE") == "1":
    from barnabas.broker.handlers import _fetch_answer_pure as _implementation
else:
    try:
        from barnabas.broker.handlers import _fetch_answer as _implementation
    except ImportError:  # not built
        from barnabas.broker.handlers import _fetch_answer_pure as _implementation

FIRST_VERSION: Final = 12
"""The first one that is flexible; what is there is for that layout alone."""

fetch_answer = _implementation.fetch_answer

__all__ = ["FIRST_VERSION", "fetch_answer"]
