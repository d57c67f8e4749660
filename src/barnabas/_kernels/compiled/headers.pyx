# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=False
# cython: freethreading_compatible=True, binding=False
"""The request header, compiled: the common case of `headers.parse_request_header`, which is its twin.

It reads the form that nearly all requests have: a known API, a client id in UTF-8, no tagged fields. It returns None
for any other, which the twin then reads, or refuses with a message.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8


cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject *kind, Py_ssize_t size)


cdef object common_header(buffer, dict apis, type header_type):
    """Returns the parsed header; None if it does not have the common form."""
    cdef Py_buffer view
    cdef const unsigned char *data
    cdef int number, version, size
    cdef int correlation_id
    cdef Py_ssize_t start
    cdef PyObject *found
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
        found = PyDict_GetItemWithError(apis, number)
        if found == NULL:
            return None
        api_key, flexible_from = <tuple><object>found
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
        return filled(header_type, api_key, version, correlation_id, client_id, start)
    except UnicodeDecodeError:
        return None
    finally:
        PyBuffer_Release(&view)


cdef object filled(type header_type, api_key, version, correlation_id, client_id, start):
    """Creates a named tuple without the plain tuple that its constructor would need."""
    header = PyType_GenericAlloc(<PyTypeObject *>header_type, 5)
    set_item(header, 0, api_key)
    set_item(header, 1, version)
    set_item(header, 2, correlation_id)
    set_item(header, 3, client_id)
    set_item(header, 4, start)
    return header


cdef inline void set_item(object header, Py_ssize_t index, object item) noexcept:
    Py_INCREF(item)  # the tuple takes over a reference
    PyTuple_SET_ITEM(header, index, item)


def header_parser(dict apis not None, type header_type not None, otherwise not None):
    """Returns a function that reads a header; `otherwise` reads those that do not have the common form."""
    if not issubclass(header_type, tuple):
        raise TypeError(f"{header_type} is no kind of tuple")

    def parse_request_header(buffer):
        header = common_header(buffer, apis, header_type)
        return otherwise(buffer) if header is None else header

    return parse_request_header
