"""Chooses who goes over the results of fetches: the compiled `_fetch_results`, or its twin."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("BARNABAS_PURE") == "1":
    from barnabas.replica import _fetch_results_pure as _implementation
else:
    try:
        from barnabas.replica import _fetch_results as _implementation
    except ImportError:  # not built
        from barnabas.replica import _fetch_results_pure as _implementation

look_over = _implementation.look_over
answers_of = _implementation.answers_of
news_of = _implementation.news_of
bytes_by_topic = _implementation.bytes_by_topic

__all__ = ["answers_of", "bytes_by_topic", "look_over", "news_of"]
