"""Which partitions a column of keys belongs to: `partition_for_key` for all of them, with no Python object per key."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING or os.environ.get("BARNABAS_PURE") == "1":
    from barnabas.clients.producer.internals import _table_hash_pure as _implementation
else:
    try:
        from barnabas.clients.producer.internals import _table_hash as _implementation
    except ImportError:
        from barnabas.clients.producer.internals import _table_hash_pure as _implementation

ACCELERATED: Final[bool] = not _implementation.__name__.endswith("_pure")
"""Whether the compiled hash is in use."""

_WIDE: Final = frozenset({pa.lib.Type_LARGE_BINARY, pa.lib.Type_LARGE_STRING})


def partitions_for_keys(keys: pa.Array, partition_count: int) -> npt.NDArray[np.int32]:
    """The partition of each key of a binary or string array, of so many; -1 where the key is null."""
    validity, offsets, data = keys.buffers()
    found = np.empty(len(keys), np.int32)
    _implementation.partitions_for_keys(
        validity, offsets, data, keys.type.id in _WIDE, keys.offset, len(keys), partition_count, found
    )
    return found
