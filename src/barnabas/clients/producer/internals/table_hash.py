"""Partitions for a column of keys: a vectorized `partition_for_key`, with no Python object per key."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from barnabas._kernels import columns

_WIDE: Final = frozenset({pa.lib.Type_LARGE_BINARY, pa.lib.Type_LARGE_STRING})


def partitions_for_keys(keys: pa.Array, partition_count: int) -> npt.NDArray[np.int32]:
    """Returns the partition of each key of a binary or string array; -1 where the key is null."""
    validity, offsets, data = keys.buffers()
    column = columns.BinaryColumn(validity, offsets, data, keys.type.id in _WIDE, keys.offset, len(keys))
    found = np.empty(len(keys), np.int32)
    columns.partitions_for_keys(column, partition_count, found)
    return found
