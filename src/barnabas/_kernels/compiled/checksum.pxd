# CRC-32C for other compiled modules, with or without the GIL.

from libc.stdint cimport int64_t, uint32_t, uint8_t

# The checksum of so many bytes behind others whose checksum is `value`, 0 for none. It fails only where the processor
# has no kernel, and the package ``crc32c`` is asked instead.
cdef int64_t crc32c_of(const uint8_t *data, size_t size, uint32_t value) except -1 nogil
