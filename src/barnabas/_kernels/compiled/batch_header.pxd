# The header of a record batch, format 2: where its fields are, for all compiled modules.

cdef enum:
    LENGTH_AT = 8
    LOG_OVERHEAD = 12  # base offset and length, which the length does not count
    EPOCH_AT = 12
    MAGIC_AT = 16
    CRC_AT = 17
    CRC_COVERS = 21  # the checksum covers everything from here on
    ATTRIBUTES_AT = 21
    LAST_DELTA_AT = 23
    BASE_TIMESTAMP_AT = 27
    MAX_TIMESTAMP_AT = 35
    PRODUCER_ID_AT = 43
    PRODUCER_EPOCH_AT = 51
    BASE_SEQUENCE_AT = 53
    COUNT_AT = 57
    HEADER_SIZE = 61

cdef enum:
    MAGIC = 2
    APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
