"""The faults of records inside a batch, and the exceptions that report them.

The parser of records exists twice, compiled and pure, and both must report the same bytes in the same way. So they only
find *which* fault it is and hand over three numbers; the words are here, once.

A fault is either *damage* (the bytes do not parse: `CorruptRecordError`) or a *broken rule* (they parse, but no
producer may write them: `InvalidRecordError`).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from barnabas.common.errors import ApiError, CorruptRecordError, InvalidRecordError


class Fault(IntEnum):
    """The faults a record can have. The numbers are only an agreement with the compiled parser."""

    TRUNCATED = 1
    OVERLONG_VARINT = 2
    RECORD_LENGTH = 3
    FIELD_LENGTH = 4
    HEADER_COUNT = 5
    RECORD_SIZE = 6
    TRAILING_BYTES = 7
    TIMESTAMP_RANGE = 8
    NULL_HEADER_KEY = 9
    OFFSET_DELTA = 10
    OFFSET_RANGE = 11


# Faults that only columns can meet, numbered past those of `Fault`.
TIMESTAMP_UNIT: Final = 100
RECORD_COUNT: Final = 101
CHANGED: Final = 102
MIN_RECORD: Final = 7
"""The least bytes of a record: length, attributes, two deltas, two lengths and a header count, a byte each."""
MIN_HEADER: Final = 2
"""A header is at least two lengths."""

_DAMAGE: dict[int, str] = {
    Fault.TRUNCATED: "runs past the end of the records",
    Fault.OVERLONG_VARINT: "has a varint that is longer than its type allows",
    Fault.RECORD_LENGTH: "has a length of {detail} bytes, which the bytes that are left do not allow",
    Fault.FIELD_LENGTH: "has a field with a length of {detail} bytes",
    Fault.HEADER_COUNT: "claims {detail} headers, which the bytes that are left do not allow",
    Fault.RECORD_SIZE: "has a length that differs by {detail} bytes from what its fields take up",
    Fault.TRAILING_BYTES: "is the last one, but {detail} bytes are left after it",
    Fault.TIMESTAMP_RANGE: "has a timestamp beyond 64 bits",
}
_BROKEN_RULES: dict[int, str] = {
    Fault.NULL_HEADER_KEY: "has a header without a key (length {detail})",
    Fault.OFFSET_DELTA: "has offset delta {detail}, which is not the next one",
    Fault.OFFSET_RANGE: "has offset delta {detail}, which is outside the batch or not after the record before it",
}


def record_error(fault: int, index: int, position: int, detail: int) -> ApiError:
    """The exception for `fault`, found in record number `index`, which starts at byte `position` of the records."""
    damage = _DAMAGE.get(fault)
    words = _BROKEN_RULES[fault] if damage is None else damage
    message = f"record {index} at byte {position} {words.format(detail=detail)}"
    return InvalidRecordError(message) if damage is None else CorruptRecordError(message)


def section_error(base_offset: int, fault: int, index: int, position: int, detail: int) -> ApiError:
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
