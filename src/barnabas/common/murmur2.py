"""murmur2: the hash that decides which partition a key belongs to.

Every client of a topic has to come to the same number for the same key, or the records of one key end up in two
partitions. So this is bit for bit the variant of Kafka's Java client: 32 bits, a fixed seed, and a result that is
made positive by dropping its sign bit.

>>> murmur2(b"kafka"), partition_for_key(b"kafka", 12)
(-798503068, 4)
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING or os.environ.get("BARNABAS_PURE") == "1":
    from barnabas.common import _murmur2_pure as _implementation
else:
    try:
        from barnabas.common import _murmur2 as _implementation
    except ImportError:
        from barnabas.common import _murmur2_pure as _implementation

ACCELERATED: Final[bool] = not _implementation.__name__.endswith("_pure")
"""Whether the compiled hash is in use."""

murmur2 = _implementation.murmur2
partition_for_key = _implementation.partition_for_key

__all__ = ["ACCELERATED", "murmur2", "partition_for_key"]
