"""What a record meets on its way into a batch: the compiled classes, or their twins in Python."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("BARNABAS_PURE") == "1":
    from barnabas.clients.producer.internals import _append_state_pure as _implementation
else:
    try:
        from barnabas.clients.producer.internals import _fast as _implementation
    except ImportError:
        from barnabas.clients.producer.internals import _append_state_pure as _implementation

BatchCore = _implementation.BatchCore
PartitionQueue = _implementation.PartitionQueue
PartitionerCore = _implementation.PartitionerCore
StickyPartitionInfo = _implementation.StickyPartitionInfo
TopicEntry = _implementation.TopicEntry
load_table = _implementation.load_table
scan_queues = _implementation.scan_queues
take_batches = _implementation.take_batches

__all__ = [
    "BatchCore",
    "PartitionQueue",
    "PartitionerCore",
    "StickyPartitionInfo",
    "TopicEntry",
    "load_table",
    "scan_queues",
    "take_batches",
]
