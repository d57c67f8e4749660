# The parts of the record codec for other compiled modules: the readers and writers of a record's fields.

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t

from barnabas._kernels.compiled.record_walk cimport Field, Fields


cdef inline object field_bytes(const uint8_t *data, Field field, object view):
    """Returns a field as a slice of `view`, or a copy if that is None; None for null."""
    if field.length < 0:
        return None
    if view is None:
        return PyBytes_FromStringAndSize(<const char *>data + field.at, field.length)
    return view[field.at : field.at + field.length]


cdef tuple decode_headers(const uint8_t *data, const Fields *fields, object view)
cdef bytes as_bytes(object data)
cpdef bytes encode_headers(headers)
cdef Py_ssize_t payload_size(object key, object value, object headers) except -1
