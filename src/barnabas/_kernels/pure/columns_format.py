"""The limits of a records section, and the types of its buffers."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Buffer: TypeAlias = Any  # anything with the buffer protocol: pyarrow.Buffer, numpy.ndarray, bytes, memoryview
Numbers: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

# Kafka counts the bytes of a batch, its header of 61 included, in signed 32-bit numbers.
MAX_SECTION: Final = 2**31 - 1 - 61
# A header is at least two lengths.
MIN_HEADER: Final = 2
# The bytes that a view can hold inline, besides the length.
INLINE: Final = 12
# Extra size of a column of values into which batches are read: for the bytes around the values of a block, and for the
# part of a record before it.
READING_ROOM: Final = 1 << 18
