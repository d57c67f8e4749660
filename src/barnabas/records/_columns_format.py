"""What a records section can be, and how it is said what is wrong with one."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from barnabas.common.errors import ApiError, CorruptRecordError, InvalidRecordError
from barnabas.records.damage import record_error

Buffer: TypeAlias = Any  # anything with the buffer protocol: pyarrow.Buffer, numpy.ndarray, bytes, memoryview
Numbers: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

# Kafka counts the bytes of a batch, its header of 61 included, in signed 32-bit numbers.
MAX_SECTION: Final = 2**31 - 1 - 61
# length, attributes, timestamp delta, offset delta, key length, value length, header count: a byte each at least.
MIN_RECORD: Final = 7
# A header is at least two lengths.
MIN_HEADER: Final = 2
# What a view has room for besides the length.
INLINE: Final = 12
# By how much a column of values is larger than they are if batches are read into it: for what is around the values of a
# block, and for the part of a record in front of it.
READING_ROOM: Final = 1 << 18

# Faults that only columns can meet, numbered past those of `damage.Fault`.
TIMESTAMP_UNIT: Final = 100
RECORD_COUNT: Final = 101
CHANGED: Final = 102


def section_error(fault: int, base_offset: int, index: int, position: int, detail: int) -> ApiError:
    """The exception for a fault in record `index`, at byte `position`, of the batch at `base_offset`.

    Both twins find which fault it is and leave the words to this function, so that they say the same.
    """
    error: ApiError
    if fault == TIMESTAMP_UNIT:
        error = InvalidRecordError(
            f"record {index} at byte {position} has timestamp {detail}, which does not fit timestamp[us]"
        )
    elif fault == RECORD_COUNT:
        error = CorruptRecordError(
            f"it claims {index} records, but its records section has {detail} bytes and each takes {MIN_RECORD} or more"
        )
    elif fault == CHANGED:
        error = CorruptRecordError(f"record {index} at byte {position} changed while it was being read")
    else:
        error = record_error(fault, index, position, detail)
    return type(error)(f"batch at offset {base_offset}: {error}")
