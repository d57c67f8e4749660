# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: freethreading_compatible=True, binding=False
"""murmur2 of a key: the twin of `pure.murmur2`."""

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
    """Returns the hash as in Java: a signed 32-bit number."""
    return <int32_t>hash_of(data)


def partition_for_key(key, Py_ssize_t partition_count):
    """Returns the partition, out of `partition_count`, of a key's records."""
    if partition_count < 1:
        raise ValueError(f"a topic of {partition_count} partitions has none to choose from")
    return <Py_ssize_t>(hash_of(key) & 0x7fffffff) % partition_count


def item_for_key(key, tuple items not None):
    """Returns the item of a key's partition, where `items` has one for each partition; None if the key is not bytes."""
    cdef uint32_t hash
    if not PyBytes_CheckExact(key) or not items:
        return None
    hash = murmur(<const uint8_t *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
    return items[(hash & 0x7fffffff) % <uint32_t>len(items)]
