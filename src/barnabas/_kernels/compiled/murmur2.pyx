# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: freethreading_compatible=True, binding=False
"""murmur2 of one key, and of a column of keys: the twin of `pure.murmur2`."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint32_t, uint8_t
from libc.string cimport memcpy


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


cdef class _Lease:
    """Holds the memory of one object through the buffer protocol."""

    cdef Py_buffer view
    cdef bint held

    def __cinit__(self, source, bint writable=False):
        self.held = False
        PyObject_GetBuffer(source, &self.view, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
        self.held = True

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


def partitions_for_keys(validity, offsets, data, bint wide, int64_t first, int64_t length, int32_t count, out):
    """Writes to `out`, 32-bit numbers, the partition of each key of an Arrow array; -1 where the key is null."""
    cdef _Lease validity_lease = None if validity is None else _Lease(validity)
    cdef _Lease offsets_lease = None if offsets is None else _Lease(offsets)
    cdef _Lease data_lease = None if data is None else _Lease(data)
    cdef _Lease out_lease = _Lease(out, True)
    cdef const uint8_t *bitmap = NULL
    cdef const char *bounds = NULL
    cdef const uint8_t *octets = NULL
    cdef int32_t *partitions = <int32_t *>out_lease.view.buf
    cdef int64_t size = 0, row, index, begin, end
    cdef int32_t narrow
    cdef bint inside = True
    if count < 1:
        raise ValueError(f"a topic of {count} partitions has none to choose from")
    if first < 0 or length < 0 or out_lease.view.len != length * 4:
        raise ValueError("one 32-bit number for each key")
    if validity_lease is not None:
        if validity_lease.view.len * 8 < first + length:
            raise ValueError("the validity bitmap is shorter than its array")
        bitmap = <const uint8_t *>validity_lease.view.buf
    if length:
        if offsets_lease is None or offsets_lease.view.len < (first + length + 1) * (8 if wide else 4):
            raise ValueError("the offsets buffer is shorter than its array")
        bounds = <const char *>offsets_lease.view.buf
    if data_lease is not None:
        octets = <const uint8_t *>data_lease.view.buf
        size = data_lease.view.len
    with nogil:
        for row in range(length):
            index = first + row
            if bitmap != NULL and not (bitmap[index >> 3] >> (index & 7)) & 1:
                partitions[row] = -1
                continue
            # memcpy, because an Arrow buffer need not be aligned.
            if wide:
                memcpy(&begin, bounds + index * 8, 8)
                memcpy(&end, bounds + index * 8 + 8, 8)
            else:
                memcpy(&narrow, bounds + index * 4, 4)
                begin = narrow
                memcpy(&narrow, bounds + index * 4 + 4, 4)
                end = narrow
            if begin < 0 or end < begin or end > size:
                inside = False
                break
            partitions[row] = <int32_t>(murmur(octets + begin, end - begin) & 0x7fffffff) % count
    if not inside:
        raise ValueError(f"record {row}: the array's offsets point outside its data")
