# The numbers of `barnabas._kernels.faults`, for compiled modules.

cdef enum:
    NO_FAULT = 0
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
    TIMESTAMP_UNIT = 100
    RECORD_COUNT = 101
    CHANGED = 102
