# What `_compressed_batch` asks of a header, too.

from libc.stdint cimport uint8_t

cdef bint header_is_plain(const uint8_t *data, Py_ssize_t size) noexcept nogil
