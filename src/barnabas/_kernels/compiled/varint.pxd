# Zig-zag variable-length numbers: the readers and writers of all compiled modules.

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uint8_t

from barnabas._kernels.compiled.faults cimport NO_FAULT, OVERLONG_VARINT, TRUNCATED


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int varint_size(uint64_t raw) noexcept nogil:
    cdef int size = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


cdef inline uint8_t *put_varint(uint8_t *out, uint64_t raw) noexcept nogil:
    while raw >= 0x80:
        out[0] = <uint8_t>(raw | 0x80)
        out += 1
        raw >>= 7
    out[0] = <uint8_t>raw
    return out + 1


cdef inline int get_varint(const uint8_t *data, Py_ssize_t size, Py_ssize_t *position, int32_t *value) noexcept nogil:
    cdef Py_ssize_t at = position[0]
    cdef uint32_t raw = 0
    cdef uint8_t byte
    cdef int shift = 0
    while True:
        if at >= size:
            return TRUNCATED
        byte = data[at]
        at += 1
        if shift == 28 and byte > 0x0F:
            return OVERLONG_VARINT
        raw |= <uint32_t>(byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    position[0] = at
    value[0] = <int32_t>((raw >> 1) ^ (0 - (raw & 1)))
    return NO_FAULT


cdef inline bint short_number(const uint8_t **position, int64_t *out) noexcept nogil:
    """Reads a number of up to three bytes, which must be readable; returns False if it is longer."""
    cdef const uint8_t *at = position[0]
    cdef uint64_t raw = at[0]
    if raw < 0x80:
        position[0] = at + 1
    elif at[1] < 0x80:
        raw = (raw & 0x7F) | <uint64_t> at[1] << 7
        position[0] = at + 2
    elif at[2] < 0x80:
        raw = (raw & 0x7F) | <uint64_t> (at[1] & 0x7F) << 7 | <uint64_t> at[2] << 14
        position[0] = at + 3
    else:
        return False
    out[0] = <int64_t> ((raw >> 1) ^ (0 - (raw & 1)))
    return True


cdef inline int get_varlong(const uint8_t *data, Py_ssize_t size, Py_ssize_t *position, int64_t *value) noexcept nogil:
    cdef Py_ssize_t at = position[0]
    cdef uint64_t raw = 0
    cdef uint8_t byte
    cdef int shift = 0
    while True:
        if at >= size:
            return TRUNCATED
        byte = data[at]
        at += 1
        if shift == 63 and byte > 0x01:
            return OVERLONG_VARINT
        raw |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    position[0] = at
    value[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
    return NO_FAULT
