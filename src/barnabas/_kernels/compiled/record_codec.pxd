# The parts of the record codec for other compiled modules: the parser of a record, and the writers of its fields.

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef struct Fields:
    int64_t timestamp_delta
    int32_t offset_delta
    int32_t key_length
    Py_ssize_t key_at
    int32_t value_length
    Py_ssize_t value_at
    int32_t header_count
    Py_ssize_t headers_at
    # The detail of a fault.
    int64_t detail


cdef int parse_record(const uint8_t *data, Py_ssize_t size, Py_ssize_t *position, Fields *fields) noexcept nogil


cdef bytes as_bytes(object data)
cpdef bytes encode_headers(headers)
cdef Py_ssize_t payload_size(object key, object value, object headers) except -1
