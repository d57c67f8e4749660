# What `compressed_batch` asks of a header and of each record, too.

from libc.stdint cimport int64_t, uint8_t

cdef struct Walk:
    # Over the records of a batch: how many have been seen, what its header says of timestamps, and what they are.
    int64_t seen
    int64_t base
    int64_t max_timestamp
    int64_t lowest
    int64_t highest

cdef bint header_is_plain(const uint8_t *data, Py_ssize_t size) noexcept nogil

cdef void begin_walk(const uint8_t *header, Walk *walk) noexcept nogil

cdef bint step(
    const uint8_t *data, Py_ssize_t size, Py_ssize_t *position, Walk *walk, bint keys_needed
) noexcept nogil

cdef bint is_timely(const Walk *walk, int64_t now_ms, int64_t before_max_ms, int64_t after_max_ms) noexcept nogil
