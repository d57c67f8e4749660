# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=False
# cython: freethreading_compatible=True, binding=False
"""Checks whole batches, and walks over their headers: the twin of `pure.record_batch`, which explains it."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint32_t, uint8_t

from barnabas._kernels.compiled.batch_header cimport *
from barnabas._kernels.compiled.record_walk cimport Cursor, Fields, HeaderSizes, read_record
from barnabas._kernels.compiled.checksum cimport crc32c_of
from barnabas._kernels.compiled.octets cimport int16_at, int32_at, int64_at

cdef enum:
    # From this size on, the GIL is released. The walk over a smaller batch takes less time than that.
    LONG_WALK = 1 << 17
    # How many bytes are checksummed before their records are read.
    BLOCK = 1 << 16

cdef struct Walk:
    # The state of a walk over records: how many were read, the timestamps of the header, and those that were found.
    int64_t seen
    int64_t base
    int64_t max_timestamp
    int64_t lowest
    int64_t highest


cdef bint header_is_plain(const uint8_t *data, Py_ssize_t size) noexcept nogil:
    cdef int32_t last_delta = int32_at(data + LAST_DELTA_AT)
    cdef int16_t attributes = int16_at(data + ATTRIBUTES_AT)
    cdef int64_t producer_id = int64_at(data + PRODUCER_ID_AT)
    if int64_at(data) != 0 or <int64_t>int32_at(data + LENGTH_AT) + LOG_OVERHEAD != size or data[MAGIC_AT] != MAGIC:
        return False
    if attributes & ~TRANSACTIONAL:
        return False
    if last_delta < 0 or <int64_t>int32_at(data + COUNT_AT) != <int64_t>last_delta + 1:
        return False
    if int64_at(data + BASE_TIMESTAMP_AT) < -1 or int64_at(data + MAX_TIMESTAMP_AT) < -1:
        return False
    if producer_id >= 0:
        return int16_at(data + PRODUCER_EPOCH_AT) >= 0 and int32_at(data + BASE_SEQUENCE_AT) >= 0
    return attributes == 0


cdef void begin_walk(const uint8_t *header, Walk *walk) noexcept nogil:
    walk.seen, walk.lowest, walk.highest = 0, 0, 0
    walk.base, walk.max_timestamp = int64_at(header + BASE_TIMESTAMP_AT), int64_at(header + MAX_TIMESTAMP_AT)


cdef bint step(Cursor *cursor, Walk *walk, bint keys_needed) noexcept nogil:
    """Reads the next record; returns whether its offset is the next and its timestamp in the range of the header."""
    cdef Fields fields
    cdef HeaderSizes sizes
    cdef int64_t timestamp
    if read_record(cursor, &fields, &sizes):
        return False
    if fields.offset_delta != walk.seen or (keys_needed and fields.key.length < 0):
        return False
    # Check before adding, which could overflow: the timestamp must be between -1 and the largest of the header.
    if fields.timestamp < -1 - walk.base or (
        fields.timestamp > 0 and walk.base > walk.max_timestamp - fields.timestamp
    ):
        return False
    timestamp = walk.base + fields.timestamp
    if walk.seen == 0 or timestamp < walk.lowest:
        walk.lowest = timestamp
    if walk.seen == 0 or timestamp > walk.highest:
        walk.highest = timestamp
    walk.seen += 1
    return True


cdef bint is_timely(const Walk *walk, int64_t now_ms, int64_t before_max_ms, int64_t after_max_ms) noexcept nogil:
    """Whether the largest timestamp is that of the header, and all are close enough to the current time."""
    if walk.highest != walk.max_timestamp:
        return False
    if walk.highest < 0:
        return True
    return walk.highest - now_ms <= after_max_ms and (
        walk.lowest >= now_ms - before_max_ms or now_ms - before_max_ms <= 0
    )


cdef bint content_is_plain(
    const uint8_t *data, Py_ssize_t size, int64_t now_ms, int64_t before_max_ms, int64_t after_max_ms, bint keys_needed
) except -1 nogil:
    """Checks checksum and records. A block of bytes is checksummed first, and its records are read while it is in the
    processor's cache."""
    cdef Walk walk
    cdef Cursor cursor
    cdef Py_ssize_t summed = CRC_COVERS, block
    cdef int32_t count = int32_at(data + COUNT_AT)
    cdef int64_t crc = 0
    begin_walk(data, &walk)
    cursor.data, cursor.position, cursor.end = data, HEADER_SIZE, size
    while walk.seen < count:
        if cursor.position >= summed and summed < size:
            block = min(size - summed, <Py_ssize_t>BLOCK)
            crc = crc32c_of(data + summed, block, <uint32_t>crc)
            summed += block
        if not step(&cursor, &walk, keys_needed):
            return False
    if cursor.position != size or not is_timely(&walk, now_ms, before_max_ms, after_max_ms):
        return False
    return crc32c_of(data + summed, size - summed, <uint32_t>crc) == <uint32_t>int32_at(data + CRC_AT)


def is_plain_batch(
    data, Py_ssize_t max_size, int64_t now_ms, int64_t before_max_ms, int64_t after_max_ms, bint keys_needed
):
    """Whether a batch is valid and needs no change: see `pure.record_batch`."""
    cdef Py_buffer buffer
    cdef const uint8_t *start
    cdef bint found
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        start = <const uint8_t *>buffer.buf
        if not HEADER_SIZE < buffer.len <= max_size or not header_is_plain(start, buffer.len):
            return False
        if buffer.len < LONG_WALK:
            found = content_is_plain(start, buffer.len, now_ms, before_max_ms, after_max_ms, keys_needed)
        else:
            with nogil:
                found = content_is_plain(start, buffer.len, now_ms, before_max_ms, after_max_ms, keys_needed)
    finally:
        PyBuffer_Release(&buffer)
    return found


def offset_after(const uint8_t[::1] data not None):
    """Returns the offset after the last whole batch; None if there is no whole batch."""
    cdef int64_t at = 0, size = data.shape[0], length, last = -1
    cdef const uint8_t *start = &data[0] if size else NULL
    while at + BASE_TIMESTAMP_AT <= size:
        length = int32_at(start + at + LENGTH_AT)
        if length <= 0 or at + LOG_OVERHEAD + length > size:
            break
        last = at
        at += LOG_OVERHEAD + length
    if last < 0:
        return None
    # Python's numbers cannot overflow, whatever the header says.
    return (<object>int64_at(start + last)) + (<object>int32_at(start + last + LAST_DELTA_AT)) + 1


def leader_epoch_before(const uint8_t[::1] data not None, offset):
    """Returns the leader epoch of the last whole batch that starts before `offset`; None if it is not known."""
    cdef int64_t at = 0, size = data.shape[0], length, before = offset
    cdef int32_t epoch = -1
    cdef const uint8_t *start = &data[0] if size else NULL
    while at + MAGIC_AT <= size:
        length = int32_at(start + at + LENGTH_AT)
        if length <= 0 or at + LOG_OVERHEAD + length > size or int64_at(start + at) >= before:
            break
        epoch = int32_at(start + at + EPOCH_AT)
        at += LOG_OVERHEAD + length
    return epoch if epoch >= 0 else None


def find_batch(bytes data not None, int64_t target):
    """Returns where the first batch begins whose last offset is at least `target`, or where the search had to stop."""
    cdef int64_t at = 0, size = len(data)
    cdef const uint8_t *start = data
    cdef int32_t length, delta
    while at + HEADER_SIZE <= size:
        length, delta = int32_at(start + at + LENGTH_AT), int32_at(start + at + LAST_DELTA_AT)
        if length < HEADER_SIZE - LOG_OVERHEAD or start[at + MAGIC_AT] != MAGIC:
            break
        # Not the sum, and not for a negative delta near the largest offset: both could overflow.
        if (delta >= 0 or target <= INT64_MAX + delta) and int64_at(start + at) >= target - delta:
            break
        at += <int64_t>length + LOG_OVERHEAD
    return at
