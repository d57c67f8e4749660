# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=False
# cython: freethreading_compatible=True, binding=False
"""The record codec, compiled: the twin of `pure.record_codec`, with the same names and the same behaviour.

The twin describes the format of a record; `record_walk.pxd` reads it.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint64_t, uint8_t
from libc.string cimport memcpy

from barnabas._kernels.compiled.record_walk cimport *
from barnabas._kernels.compiled.varint cimport put_varint, varint_size
from barnabas._kernels.faults import record_error

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL


# ---------------------------------------------------------------------------------------------------- reading

@cython.final
@cython.no_gc  # bytes, views and strings hold no reference back: there is no cycle to collect
cdef class Record:
    """One record, read from a batch. `headers` is a tuple of ``(key, value or None)`` pairs.

    `size_in_bytes` is the record's size in the uncompressed batch. Header keys that are not UTF-8 are decoded with
    ``surrogateescape``: producers can write them, and this way they survive being written again.
    """

    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef readonly object key
    cdef readonly object value
    cdef readonly tuple headers
    cdef readonly Py_ssize_t size_in_bytes

    def __init__(
        self, int64_t offset, int64_t timestamp, key, value, tuple headers not None=(), Py_ssize_t size_in_bytes=0
    ):
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers
        self.size_in_bytes = size_in_bytes

    def _fields(self):
        return (self.offset, self.timestamp, self.key, self.value, self.headers, self.size_in_bytes)

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        return self._fields() == (<Record>other)._fields()

    def __hash__(self):
        return hash(self._fields())

    def __reduce__(self):
        return (Record, self._fields())

    def __repr__(self):
        return (
            f"Record(offset={self.offset}, timestamp={self.timestamp}, key={self.key!r}, value={self.value!r}, "
            f"headers={self.headers!r}, size_in_bytes={self.size_in_bytes})"
        )


cdef tuple decode_headers(const uint8_t *data, const Fields *fields, object view):
    """Returns the headers of a checked record; values are slices of `view`, or copies if it is None."""
    cdef list headers = []
    cdef Cursor cursor
    cdef Header header
    cdef int32_t number
    cursor.data, cursor.position = data, fields.headers_at
    for number in range(fields.headers):
        read_header(&cursor, fields.end, &header)
        key = PyUnicode_DecodeUTF8(<char *>data + header.key.at, header.key.length, "surrogateescape")
        headers.append((key, field_bytes(data, header.value, view)))
    return tuple(headers)


@cython.final
cdef class _RecordIterator:
    """Iterates over the records of an uncompressed records section."""

    cdef Py_buffer _buffer
    cdef bint _has_buffer
    cdef Walk _walk
    # The bytes as a Python view, for slices; None if keys and values are copied.
    cdef object _view

    def __cinit__(self, data, int32_t count, int64_t base_offset, int64_t base_timestamp, log_append_time, bint copy):
        cdef bint has_log_append_time = log_append_time is not None
        cdef int64_t timestamp = log_append_time if has_log_append_time else base_timestamp
        PyObject_GetBuffer(data, &self._buffer, PyBUF_SIMPLE)
        self._has_buffer = True
        begin_walk(
            &self._walk, <const uint8_t *>self._buffer.buf, self._buffer.len, count, base_offset, timestamp,
            has_log_append_time,
        )
        self._view = None if copy else memoryview(data)

    def __dealloc__(self):
        if self._has_buffer:
            PyBuffer_Release(&self._buffer)

    def __iter__(self):
        return self

    @cython.critical_section
    def __next__(self):
        cdef Walk *walk = &self._walk
        cdef Fields fields
        cdef int fault
        cdef Record record
        if not has_next(walk):
            raise StopIteration
        fault = next_record(walk, &fields)
        if fault:
            walk.count = 0
            raise record_error(fault, walk.index, walk.start, walk.cursor.detail)
        record = Record.__new__(Record)
        # Unsigned, because overflow is defined there; the caller has checked the range.
        record.offset = <int64_t>(<uint64_t>walk.base_offset + <uint64_t><int64_t>fields.offset_delta)
        record.timestamp = fields.timestamp
        record.key = field_bytes(walk.cursor.data, fields.key, self._view)
        record.value = field_bytes(walk.cursor.data, fields.value, self._view)
        record.headers = decode_headers(walk.cursor.data, &fields, self._view) if fields.headers else ()
        record.size_in_bytes = walk.cursor.position - walk.start
        return record


def iterate_records(data, count, base_offset, base_timestamp, log_append_time, copy):
    """Returns an iterator over the records of an uncompressed records section.

    With `log_append_time`, every record gets that timestamp. Without `copy`, keys and values are views of `data`.
    """
    return _RecordIterator(data, count, base_offset, base_timestamp, log_append_time, copy)


def walk_records(data, int32_t count, int64_t base_timestamp, int32_t last_offset_delta, bint consecutive):
    """Checks every record without creating objects.

    Offset deltas must be 0, 1, 2 ... if `consecutive`, and otherwise ascend within ``0 .. last_offset_delta``.
    Returns the smallest and the largest timestamp, the offset delta of the largest (the first one of several), and the
    index of the first record without a key (-1: all have one). Without records the timestamps are -1.
    """
    cdef Py_buffer buffer
    cdef Walk walk
    cdef Fields fields
    cdef int32_t previous = -1, offset_delta_of_highest = -1
    cdef int64_t lowest = -1, highest = -1, first_without_key = -1
    cdef int fault = NO_FAULT
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    begin_walk(&walk, <const uint8_t *>buffer.buf, buffer.len, count, 0, base_timestamp, False)
    with nogil:
        while has_next(&walk):
            fault = next_record(&walk, &fields)
            if fault:
                break
            if consecutive and fields.offset_delta != walk.index:
                fault = fail(&walk.cursor, OFFSET_DELTA, fields.offset_delta)
                break
            if not consecutive and not previous < fields.offset_delta <= last_offset_delta:
                fault = fail(&walk.cursor, OFFSET_RANGE, fields.offset_delta)
                break
            previous = fields.offset_delta
            if fields.key.length < 0 and first_without_key < 0:
                first_without_key = walk.index
            if walk.index == 0 or fields.timestamp < lowest:
                lowest = fields.timestamp
            if walk.index == 0 or fields.timestamp > highest:
                highest = fields.timestamp
                offset_delta_of_highest = fields.offset_delta
    PyBuffer_Release(&buffer)
    if fault:
        raise record_error(fault, walk.index, walk.start, walk.cursor.detail)
    return lowest, highest, offset_delta_of_highest, first_without_key


# ---------------------------------------------------------------------------------------------------- writing

cdef bytes as_bytes(object data):
    """Copies anything bytes-like; returns bytes unchanged."""
    return <bytes>data if PyBytes_CheckExact(data) else memoryview(data).tobytes()


cpdef bytes encode_headers(headers):
    """Encodes the header section of a record, including the count."""
    cdef list fields = []  # key, value, key, value ...: a str with cached UTF-8, bytes, or None
    cdef Py_ssize_t size, length = 0, count = 0
    cdef bytes section
    cdef uint8_t *out
    cdef const char *text
    size = 0
    for key, value in headers:
        if not isinstance(key, str):
            raise TypeError(f"a header key must be a str, not {type(key).__name__}")
        try:
            PyUnicode_AsUTF8AndSize(key, &length)
        except UnicodeEncodeError:
            key = (<str>key).encode("utf-8", "surrogateescape")
            length = PyBytes_GET_SIZE(key)
        size += varint_size(<uint64_t>length << 1) + length
        fields.append(key)
        if value is None:
            size += 1
        else:
            value = as_bytes(value)
            length = PyBytes_GET_SIZE(value)
            size += varint_size(<uint64_t>length << 1) + length
        fields.append(value)
        count += 1
    size += varint_size(<uint64_t>count << 1)
    if size > INT32_MAX:
        raise ValueError(f"headers of {size} bytes are more than a record can hold")
    section = PyBytes_FromStringAndSize(NULL, size)
    out = put_varint(<uint8_t *>PyBytes_AS_STRING(section), <uint64_t>count << 1)
    for field in fields:
        if field is None:
            out = put_varint(out, 1)
            continue
        if PyBytes_CheckExact(field):
            text = PyBytes_AS_STRING(field)
            length = PyBytes_GET_SIZE(field)
        else:
            text = PyUnicode_AsUTF8AndSize(field, &length)
        out = put_varint(out, <uint64_t>length << 1)
        memcpy(out, text, length)
        out += length
    return section


def size_of_payload(key, value, headers=()):
    """Returns the size of key, value and headers in a record, including their lengths."""
    return payload_size(key, value, headers)


cdef Py_ssize_t payload_size(object key, object value, object headers) except -1:
    cdef Py_ssize_t size = 1 if not headers else len(encode_headers(headers))
    return size + size_of_field(key) + size_of_field(value)


cdef inline Py_ssize_t size_of_field(object field) except -1:
    cdef Py_ssize_t length
    if field is None:
        return 1
    if PyBytes_CheckExact(field):
        length = PyBytes_GET_SIZE(field)
    elif isinstance(field, memoryview):
        length = field.nbytes
    else:
        length = len(field)
    return varint_size(<uint64_t>length << 1) + length
