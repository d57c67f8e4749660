# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=False
# cython: freethreading_compatible=True
"""The request header, compiled: the common case of `headers.parse_request_header`, which is its twin.

It knows the one shape that nearly all requests have (a known API, a client id in UTF-8, no tagged fields) and answers with
nothing for any other, which the twin then reads, or explains what is wrong with.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.unicode cimport PyUnicode_DecodeUTF8


def read_common_header(buffer, dict apis not None, type header_type not None, new_tuple not None):
    """The parsed header, or None if it is not of the common shape."""
    cdef Py_buffer view
    cdef const unsigned char *data
    cdef int number, version, size
    cdef int correlation_id
    cdef Py_ssize_t start
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if view.len < 10:
            return None
        data = <const unsigned char *>view.buf
        number = <short>((data[0] << 8) | data[1])
        version = <short>((data[2] << 8) | data[3])
        correlation_id = <int>(
            (<unsigned int>data[4] << 24) | (<unsigned int>data[5] << 16) | (<unsigned int>data[6] << 8) | data[7]
        )
        size = <short>((data[8] << 8) | data[9])
        found = apis.get(number)
        if found is None:
            return None
        api_key, flexible_from = <tuple>found
        start = 10
        client_id = None
        if size >= 0:
            if start + size > view.len:
                return None
            client_id = PyUnicode_DecodeUTF8(<const char *>data + start, size, NULL)
            start += size
        elif size != -1:
            return None
        if version >= <int>flexible_from:
            if start >= view.len or data[start] != 0:
                return None
            start += 1
        return new_tuple(header_type, (api_key, version, correlation_id, client_id, start))
    except UnicodeDecodeError:
        return None
    finally:
        PyBuffer_Release(&view)
