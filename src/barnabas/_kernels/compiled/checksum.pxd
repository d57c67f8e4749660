# CRC-32C for other compiled modules, with or without the GIL.

from libc.stdint cimport int64_t, uint32_t, uint8_t

# Returns the checksum of `size` bytes; `value` is the checksum of the preceding bytes, 0 for none. It can fail only if
# the package ``crc32c`` has to be used.
cdef int64_t crc32c_of(const uint8_t *data, size_t size, uint32_t value) except -1 nogil
