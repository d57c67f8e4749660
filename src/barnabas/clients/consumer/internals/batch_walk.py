"""What the headers of fetched batches say. Chooses between the compiled walk and its twin, which find the same.

An answer of some megabytes has a batch for every 16 KiB where producers are Kafka's own: to step from one to the next
in Python would take as long as to receive them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING or os.environ.get("BARNABAS_PURE") == "1":
    from barnabas.clients.consumer.internals import _batch_walk_pure as _implementation
else:
    try:
        from barnabas.clients.consumer.internals import _batch_walk as _implementation
    except ImportError:
        from barnabas.clients.consumer.internals import _batch_walk_pure as _implementation

ACCELERATED: Final[bool] = _implementation.__name__.endswith("_batch_walk")
"""Whether the compiled walk is in use."""

offset_after = _implementation.offset_after
leader_epoch_before = _implementation.leader_epoch_before

__all__ = ["ACCELERATED", "leader_epoch_before", "offset_after"]
