"""A record as an application gets it. Chooses between the compiled one and its twin, which behave alike."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING or os.environ.get("BARNABAS_PURE") == "1":
    from barnabas.clients.consumer.internals import _consumer_record_pure as _implementation
else:
    try:
        from barnabas.clients.consumer.internals import _consumer_record as _implementation
    except ImportError:
        from barnabas.clients.consumer.internals import _consumer_record_pure as _implementation

ACCELERATED: Final[bool] = _implementation.__name__.endswith("_consumer_record")
"""Whether the compiled reader is in use."""

ConsumerRecord = _implementation.ConsumerRecord
ConsumerRecordReader = _implementation.ConsumerRecordReader

__all__ = ["ACCELERATED", "ConsumerRecord", "ConsumerRecordReader"]
