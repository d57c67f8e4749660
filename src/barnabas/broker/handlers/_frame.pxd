# Numbers as the wire has them, for the answers that are written straight into a frame.

from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef inline uint8_t *put_int32(uint8_t *out, uint32_t value) noexcept nogil:
    out[0] = <uint8_t>(value >> 24)
    out[1] = <uint8_t>(value >> 16)
    out[2] = <uint8_t>(value >> 8)
    out[3] = <uint8_t>value
    return out + 4


cdef inline uint8_t *put_int64(uint8_t *out, uint64_t value) noexcept nogil:
    return put_int32(put_int32(out, <uint32_t>(value >> 32)), <uint32_t>value)
