# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: freethreading_compatible=True
"""The hash, compiled: the twin of `_murmur2_pure`, with the same names and the same behaviour."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, uint32_t, uint8_t

cdef uint32_t hash_of(object data) except? 0:
    cdef Py_buffer view
    cdef uint32_t h
    if PyBytes_CheckExact(data):
        return murmur(<const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    if isinstance(data, memoryview) and (data.format != "B" or not data.contiguous):
        data = data.tobytes()
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    h = murmur(<const uint8_t *>view.buf, view.len)
    PyBuffer_Release(&view)
    return h


def murmur2(data):
    """The hash as Java has it: a signed number of 32 bits."""
    return <int32_t>hash_of(data)


def partition_for_key(key, Py_ssize_t partition_count):
    """The partition that the records of a key go to, of so many."""
    if partition_count < 1:
        raise ValueError(f"a topic of {partition_count} partitions has none to choose from")
    return <Py_ssize_t>(hash_of(key) & 0x7fffffff) % partition_count
