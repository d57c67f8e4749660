"""Chooses who writes the answers to most produce requests: the compiled `_produce_answer`, or its twin."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING or os.environ.get("BARNABAS_PURE") == "1":
    from barnabas.broker.handlers import _produce_answer_pure as _implementation
else:
    try:
        from barnabas.broker.handlers import _produce_answer as _implementation
    except ImportError:  # not built
        from barnabas.broker.handlers import _produce_answer_pure as _implementation

FIRST_VERSION: Final = 9
"""The first one that is flexible; what is there is for that layout alone."""

one_topic_answer = _implementation.one_topic_answer

__all__ = ["FIRST_VERSION", "one_topic_answer"]
