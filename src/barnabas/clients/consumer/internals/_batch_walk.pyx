# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=False
# cython: freethreading_compatible=True
"""What the headers of fetched batches say, compiled: the twin of `_batch_walk_pure`, which finds the same."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uint8_t

cdef enum:
    OVERHEAD = 12  # base offset and length, which the length does not count
    UP_TO_EPOCH = 16
    UP_TO_LAST_OFFSET = 27


cdef inline int32_t int32_at(const uint8_t *data) noexcept nogil:
    return <int32_t> (<uint32_t> data[0] << 24 | <uint32_t> data[1] << 16 | <uint32_t> data[2] << 8 | data[3])


cdef inline int64_t int64_at(const uint8_t *data) noexcept nogil:
    return <int64_t> (<uint64_t> <uint32_t> int32_at(data) << 32 | <uint32_t> int32_at(data + 4))


def offset_after(const uint8_t[::1] data not None):
    """The offset behind the last whole batch."""
    cdef int64_t at = 0, size = data.shape[0], length, last = -1
    cdef const uint8_t *start = &data[0] if size else NULL
    while at + UP_TO_LAST_OFFSET <= size:
        length = int32_at(start + at + 8)
        if length <= 0 or at + OVERHEAD + length > size:
            break
        last = at
        at += OVERHEAD + length
    if last < 0:
        return None
    # As Python's numbers, which cannot overflow, whatever the header says.
    return (<object> int64_at(start + last)) + (<object> int32_at(start + last + 23)) + 1


def leader_epoch_before(const uint8_t[::1] data not None, offset):
    """The leader epoch of the last whole batch that begins before an offset."""
    cdef int64_t at = 0, size = data.shape[0], length, before = offset
    cdef int32_t epoch = -1
    cdef const uint8_t *start = &data[0] if size else NULL
    while at + UP_TO_EPOCH <= size:
        length = int32_at(start + at + 8)
        if length <= 0 or at + OVERHEAD + length > size or int64_at(start + at) >= before:
            break
        epoch = int32_at(start + at + OVERHEAD)
        at += OVERHEAD + length
    return epoch if epoch >= 0 else None
