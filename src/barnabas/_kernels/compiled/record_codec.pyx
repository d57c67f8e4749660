# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=False
# cython: freethreading_compatible=True, binding=False
"""The record codec, compiled: the twin of `pure.record_codec`, with the same names and the same behaviour.

The twin describes the format of a record. Here one function, `parse_record`, reads any record from any bytes: it never
reads outside the buffer, never uses a length that it has not checked, allocates nothing, and runs without the GIL. The
reader and the walk use it. It only determines the fault of a record; `faults.record_error` has the messages.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcpy

from barnabas._kernels.compiled.faults cimport *
from barnabas._kernels.compiled.varint cimport get_varint, get_varlong, put_varint, varint_size, zigzag
from barnabas._kernels.faults import record_error

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL



# ---------------------------------------------------------------------------------------------------- numbers

cdef inline bint add_overflows(int64_t a, int64_t b) noexcept nogil:
    return (b > 0 and a > INT64_MAX - b) or (b < 0 and a < INT64_MIN - b)


# ---------------------------------------------------------------------------------------------------- parsing

cdef int parse_record(const uint8_t *data, Py_ssize_t size, Py_ssize_t *position, Fields *fields) noexcept nogil:
    """Reads and checks the record at `position`, and moves the position to its end; returns a fault, or 0."""
    cdef Py_ssize_t at = position[0]
    cdef Py_ssize_t end
    cdef int32_t length
    cdef int fault, number

    fault = get_varint(data, size, &at, &length)
    if fault:
        return fault
    if length < 0 or length > size - at:
        fields.detail = length
        return RECORD_LENGTH
    end = at + length
    if at >= size:
        return TRUNCATED
    at += 1  # the attributes, which are unused
    fault = get_varlong(data, size, &at, &fields.timestamp_delta)
    if fault:
        return fault
    fault = get_varint(data, size, &at, &fields.offset_delta)
    if fault:
        return fault

    fault = get_varint(data, size, &at, &fields.key_length)
    if fault:
        return fault
    if fields.key_length < -1:
        fields.detail = fields.key_length
        return FIELD_LENGTH
    fields.key_at = at
    if fields.key_length > 0:
        if fields.key_length > size - at:
            return TRUNCATED
        at += fields.key_length

    fault = get_varint(data, size, &at, &fields.value_length)
    if fault:
        return fault
    if fields.value_length < -1:
        fields.detail = fields.value_length
        return FIELD_LENGTH
    fields.value_at = at
    if fields.value_length > 0:
        if fields.value_length > size - at:
            return TRUNCATED
        at += fields.value_length

    fault = get_varint(data, size, &at, &fields.header_count)
    if fault:
        return fault
    if fields.header_count < 0 or fields.header_count > size - at:
        fields.detail = fields.header_count
        return HEADER_COUNT
    fields.headers_at = at
    for number in range(fields.header_count):
        fault = get_varint(data, size, &at, &length)
        if fault:
            return fault
        if length < 0:
            fields.detail = length
            return NULL_HEADER_KEY
        if length > size - at:
            return TRUNCATED
        at += length
        fault = get_varint(data, size, &at, &length)
        if fault:
            return fault
        if length < -1:
            fields.detail = length
            return FIELD_LENGTH
        if length > 0:
            if length > size - at:
                return TRUNCATED
            at += length

    if at != end:
        fields.detail = at - end
        return RECORD_SIZE
    position[0] = at
    return NO_FAULT


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


@cython.final
cdef class _RecordIterator:
    """Iterates over the records of an uncompressed records section."""

    cdef Py_buffer _buffer
    cdef bint _has_buffer
    cdef const uint8_t *_data
    cdef Py_ssize_t _size
    cdef Py_ssize_t _position
    cdef int32_t _index
    cdef int32_t _count
    cdef int64_t _base_offset
    cdef int64_t _base_timestamp
    cdef int64_t _log_append_time
    cdef bint _has_log_append_time
    # The bytes as a Python view, for slices; None if keys and values are copied.
    cdef object _view

    def __cinit__(self, data, int32_t count, int64_t base_offset, int64_t base_timestamp, log_append_time, bint copy):
        PyObject_GetBuffer(data, &self._buffer, PyBUF_SIMPLE)
        self._has_buffer = True
        self._data = <const uint8_t *>self._buffer.buf
        self._size = self._buffer.len
        self._position = 0
        self._index = 0
        self._count = count
        self._base_offset = base_offset
        self._base_timestamp = base_timestamp
        self._has_log_append_time = log_append_time is not None
        if self._has_log_append_time:
            self._log_append_time = log_append_time
        self._view = None if copy else memoryview(data)

    def __dealloc__(self):
        if self._has_buffer:
            PyBuffer_Release(&self._buffer)

    def __iter__(self):
        return self

    @cython.critical_section
    def __next__(self):
        cdef Fields fields
        cdef Py_ssize_t start = self._position
        cdef int32_t index = self._index
        cdef int fault
        cdef Record record
        if index >= self._count:
            raise StopIteration
        fields.detail = 0
        fault = parse_record(self._data, self._size, &self._position, &fields)
        if not fault:
            if not self._has_log_append_time and add_overflows(self._base_timestamp, fields.timestamp_delta):
                fault = TIMESTAMP_RANGE
            elif index == self._count - 1 and self._position != self._size:
                fault = TRAILING_BYTES
                fields.detail = self._size - self._position
        if fault:
            self._count = 0
            raise record_error(fault, index, start, fields.detail)
        self._index = index + 1

        record = Record.__new__(Record)
        # Unsigned, because overflow is defined there; the caller has checked the range.
        record.offset = <int64_t>(<uint64_t>self._base_offset + <uint64_t><int64_t>fields.offset_delta)
        if self._has_log_append_time:
            record.timestamp = self._log_append_time
        else:
            record.timestamp = self._base_timestamp + fields.timestamp_delta
        record.key = self._slice(fields.key_at, fields.key_length)
        record.value = self._slice(fields.value_at, fields.value_length)
        record.headers = self._headers(fields.headers_at, fields.header_count) if fields.header_count else ()
        record.size_in_bytes = self._position - start
        return record

    cdef inline object _slice(self, Py_ssize_t at, int32_t length):
        if length < 0:
            return None
        if self._view is None:
            return PyBytes_FromStringAndSize(<const char *>self._data + at, length)
        return self._view[at:at + length]

    cdef tuple _headers(self, Py_ssize_t at, int32_t count):
        # parse_record has checked these lengths.
        cdef list headers = []
        cdef int32_t length = 0
        cdef int number
        cdef object key
        for number in range(count):
            get_varint(self._data, self._size, &at, &length)
            key = PyUnicode_DecodeUTF8(<char *>self._data + at, length, "surrogateescape")
            at += length
            get_varint(self._data, self._size, &at, &length)
            headers.append((key, self._slice(at, length)))
            if length > 0:
                at += length
        return tuple(headers)


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
    cdef Fields fields
    cdef Py_ssize_t position = 0, start = 0
    cdef int32_t index = 0, previous = -1, offset_delta_of_highest = -1, first_without_key = -1
    cdef int64_t timestamp, lowest = -1, highest = -1
    cdef int fault = NO_FAULT
    fields.detail = 0
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        with nogil:
            for index in range(count):
                start = position
                fault = parse_record(<const uint8_t *>buffer.buf, buffer.len, &position, &fields)
                if fault:
                    break
                if fields.key_length < 0 and first_without_key < 0:
                    first_without_key = index
                if add_overflows(base_timestamp, fields.timestamp_delta):
                    fault = TIMESTAMP_RANGE
                    break
                timestamp = base_timestamp + fields.timestamp_delta
                if consecutive:
                    if fields.offset_delta != index:
                        fault = OFFSET_DELTA
                        fields.detail = fields.offset_delta
                        break
                elif not previous < fields.offset_delta <= last_offset_delta:
                    fault = OFFSET_RANGE
                    fields.detail = fields.offset_delta
                    break
                previous = fields.offset_delta
                if index == 0 or timestamp < lowest:
                    lowest = timestamp
                if index == 0 or timestamp > highest:
                    highest = timestamp
                    offset_delta_of_highest = fields.offset_delta
                if index == count - 1 and position != buffer.len:
                    fault = TRAILING_BYTES
                    fields.detail = buffer.len - position
                    break
    finally:
        PyBuffer_Release(&buffer)
    if fault:
        raise record_error(fault, index, start, fields.detail)
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
