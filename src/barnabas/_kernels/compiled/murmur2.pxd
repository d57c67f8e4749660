# The hash itself, for other compiled modules.

from libc.stdint cimport uint32_t, uint8_t

cdef enum:
    SEED = 0x9747b28c
    M = 0x5bd1e995


cdef inline uint32_t murmur(const uint8_t *data, Py_ssize_t length) noexcept nogil:
    cdef uint32_t h = <uint32_t>SEED ^ <uint32_t>length
    cdef uint32_t k
    cdef Py_ssize_t at = 0
    while at + 4 <= length:
        k = (<uint32_t>data[at] | <uint32_t>data[at + 1] << 8 | <uint32_t>data[at + 2] << 16
             | <uint32_t>data[at + 3] << 24)
        k = k * <uint32_t>M
        k = (k ^ (k >> 24)) * <uint32_t>M
        h = (h * <uint32_t>M) ^ k
        at += 4
    if length - at == 3:
        h ^= <uint32_t>data[at + 2] << 16
    if length - at >= 2:
        h ^= <uint32_t>data[at + 1] << 8
    if length - at >= 1:
        h = (h ^ data[at]) * <uint32_t>M
    h = (h ^ (h >> 13)) * <uint32_t>M
    return h ^ (h >> 15)
