# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=False
# cython: freethreading_compatible=True
"""The reading of produce requests of the usual shape, compiled. What that is, and why, is told in `plain_produce`."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint8_t

from barnabas._kernels.compiled.octets cimport int32_at, length_at

cdef enum:
    FLEXIBLE = 9
    TOPIC_IDS = 13
    LOG_OVERHEAD = 12
    MAGIC = 2
    TRANSACTIONAL_MASK = 0x10
    # Length, magic and attributes of a batch end there.
    LEADING_FIELDS = 23


def plain_produce(payload, Py_ssize_t start, int version):
    """acks, timeout, id or name of the topic, and number and batch of each partition; None if it is not that plain."""
    cdef Py_buffer buffer
    cdef const uint8_t *data
    cdef Py_ssize_t size, at = start
    cdef int64_t length, count, index
    cdef int16_t acks
    cdef int32_t timeout_ms, partition
    cdef list batches
    if version < FLEXIBLE:
        return None
    PyObject_GetBuffer(payload, &buffer, PyBUF_SIMPLE)
    try:
        data = <const uint8_t *>buffer.buf
        size = buffer.len
        # No transactional id; acks and timeout; one topic.
        if start < 0 or size - start < 8 or data[at] != 0 or data[at + 7] != 2:
            return None
        acks = <int16_t>((<uint32_t>data[at + 1] << 8) | data[at + 2])
        timeout_ms = int32_at(data + at + 3)
        at += 8
        if version >= TOPIC_IDS:
            if size - at < 16:
                return None
            topic = PyBytes_FromStringAndSize(<const char *>data + at, 16)
            at += 16
        else:
            length = length_at(data, &at, size)
            if length < 0 or length > size - at:
                return None
            try:
                topic = PyUnicode_DecodeUTF8(<const char *>data + at, length, "strict")
            except UnicodeDecodeError:
                return None
            at += length
        count = length_at(data, &at, size)
        if count < 0:
            return None
        batches = []
        for index in range(count):
            if size - at < 5:
                return None
            partition = int32_at(data + at)
            at += 4
            length = length_at(data, &at, size)
            # One batch, which is all there, of the present format, outside of transactions, and no tags behind it.
            if length <= LEADING_FIELDS or length >= size - at or data[at + length] != 0:
                return None
            if (
                data[at + 16] != MAGIC
                or <int64_t>int32_at(data + at + 8) + LOG_OVERHEAD != length
                or data[at + 22] & TRANSACTIONAL_MASK
            ):
                return None
            batches.append((partition, payload[at : at + length]))
            at += length + 1
        # No tags of the topic, none of the request, and nothing else.
        if size - at != 2 or data[at] != 0 or data[at + 1] != 0:
            return None
    finally:
        PyBuffer_Release(&buffer)
    return acks, timeout_ms, topic, batches
