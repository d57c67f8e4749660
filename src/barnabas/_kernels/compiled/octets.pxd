# Big-endian numbers in buffers: the byte access of all compiled modules.

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t, uint8_t


cdef inline int16_t int16_at(const uint8_t *data) noexcept nogil:
    return <int16_t>((<uint32_t>data[0] << 8) | data[1])


cdef inline int32_t int32_at(const uint8_t *data) noexcept nogil:
    return <int32_t>((<uint32_t>data[0] << 24) | (<uint32_t>data[1] << 16) | (<uint32_t>data[2] << 8) | data[3])


cdef inline int64_t int64_at(const uint8_t *data) noexcept nogil:
    return <int64_t>((<uint64_t><uint32_t>int32_at(data) << 32) | <uint32_t>int32_at(data + 4))


cdef inline void put_int32(uint8_t *out, int32_t number) noexcept nogil:
    cdef uint32_t value = <uint32_t>number
    out[0] = <uint8_t>(value >> 24)
    out[1] = <uint8_t>(value >> 16)
    out[2] = <uint8_t>(value >> 8)
    out[3] = <uint8_t>value


cdef inline void put_int64(uint8_t *out, int64_t number) noexcept nogil:
    put_int32(out, <int32_t>(<uint64_t>number >> 32))
    put_int32(out + 4, <int32_t>number)


cdef inline void put_int16(uint8_t *out, int16_t number) noexcept nogil:
    out[0] = <uint8_t>(<uint32_t>number >> 8)
    out[1] = <uint8_t>number


cdef inline int64_t length_at(const uint8_t *data, Py_ssize_t *at, Py_ssize_t size) noexcept nogil:
    """Reads the length of a compact type, which is stored plus one: -1 for null, -2 if it is not a valid length."""
    cdef uint32_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while at[0] < size and shift < 28:
        byte = data[at[0]]
        at[0] += 1
        value |= <uint32_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return <int64_t>value - 1
        shift += 7
    return -2
