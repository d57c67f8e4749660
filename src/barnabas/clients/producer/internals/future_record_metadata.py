"""The future of a record: the compiled one, or its twin in Python."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING or os.environ.get("BARNABAS_PURE") == "1":
    from barnabas.clients.producer.internals import _future_pure as _implementation
else:
    try:
        from barnabas.clients.producer.internals import _fast as _implementation
    except ImportError:
        from barnabas.clients.producer.internals import _future_pure as _implementation

ACCELERATED: Final[bool] = _implementation.__name__.endswith("_fast")
"""Whether the compiled future, and the compiled way in, are in use."""

FutureRecordMetadata = _implementation.FutureRecordMetadata

__all__ = ["ACCELERATED", "FutureRecordMetadata"]
