# What `_compressed_batch` asks of a batch once it is not compressed any more.

from libc.stdint cimport int64_t, uint8_t

cdef bint header_is_plain(const uint8_t *data, Py_ssize_t size) noexcept nogil
cdef bint records_are_plain(
    const uint8_t *data, Py_ssize_t size, int64_t now_ms, int64_t before_max_ms, int64_t after_max_ms, bint keys_needed
) noexcept nogil
