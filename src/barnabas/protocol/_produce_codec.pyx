# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=False
# cython: freethreading_compatible=True
"""Produce as it nearly always is, compiled. What that is, and what for, is told in `produce_codec`."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_IsContiguous, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_CheckExact, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_Check, PyMemoryView_GET_BUFFER
from cpython.object cimport PyTypeObject
from cpython.unicode cimport PyUnicode_CheckExact, PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcpy

from barnabas._kernels.compiled.octets cimport int32_at, int64_at, length_at, put_int32

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef extern from *:
    """
    /* What a slot of a class holds, by its descriptor: without looking for the descriptor in the class. */
    static inline PyObject *slot_get(PyObject *slot, PyObject *owner) {
        return Py_TYPE(slot)->tp_descr_get(slot, owner, (PyObject *)Py_TYPE(owner));
    }
    static inline int slot_set(PyObject *slot, PyObject *owner, PyObject *value) {
        return Py_TYPE(slot)->tp_descr_set(slot, owner, value);
    }
    static inline PyObject *bare(PyObject *type) { return ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 0); }
    """
    object slot_get(object slot, object owner)
    int slot_set(object slot, object owner, object value) except -1
    object bare(object type)

cdef enum:
    FLEXIBLE = 9
    TOPIC_IDS = 13
    ID_SIZE = 16
    # Of the name of a topic, which has 249 characters at most.
    LONGEST_NAME = 300
    HEAD_SIZE = 8 + 5 + LONGEST_NAME + 5 + 9


cdef inline bint plain_bytes(Py_buffer *buffer) noexcept:
    """Whether what a view shows are bytes, one after the other."""
    return buffer.itemsize == 1 and PyBuffer_IsContiguous(buffer, b"C")


cdef inline Py_ssize_t put_length(uint8_t *out, uint64_t length) noexcept nogil:
    """A length as compact types have it, one too large."""
    cdef Py_ssize_t at = 0
    length += 1
    while length >= 0x80:
        out[at] = <uint8_t>(length | 0x80)
        length >>= 7
        at += 1
    out[at] = <uint8_t>length
    return at + 1


cdef class RequestEncoder:
    """An encoder of produce requests: ``encode(message, append)``."""

    cdef int _version
    cdef object _otherwise
    cdef object _request_type, _topic_type, _partition_type
    cdef object _transactional_id, _acks, _timeout_ms, _topic_data, _name, _topic_id, _partition_data, _index, _records
    cdef object _tags

    def __init__(self, request, topic, partition, int version, otherwise):
        self._version = version
        self._otherwise = otherwise
        self._request_type, self._topic_type, self._partition_type = request, topic, partition
        self._transactional_id = request.transactional_id
        self._acks = request.acks
        self._timeout_ms = request.timeout_ms
        self._topic_data = request.topic_data
        self._name = topic.name
        self._topic_id = topic.topic_id
        self._partition_data = topic.partition_data
        self._index = partition.index
        self._records = partition.records
        self._tags = request.unknown_tagged_fields

    def __call__(self, message, append):
        try:
            pieces = self._plain(message)
        except Exception:  # the other one knows what is wrong, and says it
            pieces = None
        if pieces is None:
            self._otherwise(message, append)
            return
        for piece in <list>pieces:
            append(piece)

    cdef list _plain(self, message):
        """The pieces of a plain request; None if it is not that plain."""
        cdef uint8_t head[HEAD_SIZE]
        cdef Py_ssize_t at, length
        cdef int16_t acks
        cdef const char *text
        cdef list topics, partitions, pieces
        if type(message) is not self._request_type or self._version < FLEXIBLE:
            return None
        if slot_get(self._transactional_id, message) is not None or slot_get(self._tags, message):
            return None
        topics = slot_get(self._topic_data, message)
        if topics is None or len(topics) != 1:
            return None
        topic = topics[0]
        if type(topic) is not self._topic_type or slot_get(self._tags, topic):
            return None
        acks = slot_get(self._acks, message)
        head[0] = 0
        head[1] = <uint8_t>(acks >> 8)
        head[2] = <uint8_t>acks
        put_int32(head + 3, slot_get(self._timeout_ms, message))
        head[7] = 2
        at = 8
        if self._version >= TOPIC_IDS:
            topic_id = slot_get(self._topic_id, topic)
            if not PyBytes_CheckExact(topic_id) or PyBytes_GET_SIZE(topic_id) != ID_SIZE:
                return None
            memcpy(head + at, <const char *>topic_id, ID_SIZE)
            at += ID_SIZE
        else:
            name = slot_get(self._name, topic)
            if not PyUnicode_CheckExact(name):
                return None
            text = PyUnicode_AsUTF8AndSize(name, &length)
            if length > LONGEST_NAME:
                return None
            at += put_length(head + at, length)
            memcpy(head + at, text, length)
            at += length
        partitions = slot_get(self._partition_data, topic)
        if partitions is None:
            return None
        at += put_length(head + at, len(partitions))
        pieces = []
        for partition in partitions:
            if type(partition) is not self._partition_type or slot_get(self._tags, partition):
                return None
            records = slot_get(self._records, partition)
            if PyByteArray_CheckExact(records):
                length = PyByteArray_GET_SIZE(records)
            elif PyBytes_CheckExact(records):
                length = PyBytes_GET_SIZE(records)
            elif PyMemoryView_Check(records) and plain_bytes(PyMemoryView_GET_BUFFER(records)):
                length = PyMemoryView_GET_BUFFER(records).len
            else:
                return None
            put_int32(head + at, slot_get(self._index, partition))
            at += 4
            at += put_length(head + at, length)
            pieces.append(PyBytes_FromStringAndSize(<char *>head, at))
            pieces.append(records)
            head[0] = 0
            at = 1
        # No tags of the topic, none of the request.
        head[at] = 0
        head[at + 1] = 0
        pieces.append(PyBytes_FromStringAndSize(<char *>head, at + 2))
        return pieces


cdef class ResponseDecoder:
    """A decoder of produce responses: ``decode(buffer, start, end) -> (message, position)``."""

    cdef int _version
    cdef object _otherwise
    cdef object _response_type, _topic_type, _partition_type
    cdef object _responses, _throttle_time_ms, _node_endpoints
    cdef object _name, _topic_id, _partition_responses
    cdef object _index, _error_code, _base_offset, _log_append_time_ms, _log_start_offset, _record_errors
    cdef object _error_message, _current_leader
    cdef object _tags
    cdef object _no_id

    def __init__(self, response, topic, partition, int version, otherwise):
        self._version = version
        self._otherwise = otherwise
        self._response_type, self._topic_type, self._partition_type = response, topic, partition
        self._responses = response.responses
        self._throttle_time_ms = response.throttle_time_ms
        self._node_endpoints = response.node_endpoints
        self._name = topic.name
        self._topic_id = topic.topic_id
        self._partition_responses = topic.partition_responses
        self._index = partition.index
        self._error_code = partition.error_code
        self._base_offset = partition.base_offset
        self._log_append_time_ms = partition.log_append_time_ms
        self._log_start_offset = partition.log_start_offset
        self._record_errors = partition.record_errors
        self._error_message = partition.error_message
        self._current_leader = partition.current_leader
        self._tags = response.unknown_tagged_fields
        self._no_id = bytes(ID_SIZE)

    def __call__(self, buffer, Py_ssize_t start, Py_ssize_t end):
        cdef Py_buffer view
        cdef Py_ssize_t at = start
        if self._version >= FLEXIBLE:
            PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
            try:
                message = None
                if 0 <= start <= end <= view.len:
                    message = self._plain(<const uint8_t *>view.buf, &at, end)
            except UnicodeDecodeError:
                message = None
            finally:
                PyBuffer_Release(&view)
            if message is not None:
                return message, at
        return self._otherwise(buffer, start, end)

    cdef object _plain(self, const uint8_t *data, Py_ssize_t *at, Py_ssize_t end):
        """A plain response, up to behind it; None if it is not that plain."""
        cdef int64_t topic_count, count, length
        cdef list topics, partitions
        topic_count = length_at(data, at, end)
        if topic_count < 0:
            return None
        topics = []
        for _ in range(topic_count):
            topic = bare(self._topic_type)
            if self._version >= TOPIC_IDS:
                if end - at[0] < ID_SIZE:
                    return None
                slot_set(self._name, topic, "")
                slot_set(self._topic_id, topic, PyBytes_FromStringAndSize(<const char *>data + at[0], ID_SIZE))
                at[0] += ID_SIZE
            else:
                length = length_at(data, at, end)
                if length < 0 or length > end - at[0]:
                    return None
                slot_set(self._name, topic, PyUnicode_DecodeUTF8(<const char *>data + at[0], length, "strict"))
                slot_set(self._topic_id, topic, self._no_id)
                at[0] += length
            count = length_at(data, at, end)
            if count < 0:
                return None
            partitions = []
            for _ in range(count):
                # Behind the numbers: no record errors, no message, no tags.
                if end - at[0] < 33 or data[at[0] + 30] != 1 or data[at[0] + 31] or data[at[0] + 32]:
                    return None
                partitions.append(self._partition(data + at[0]))
                at[0] += 33
            if at[0] >= end or data[at[0]]:
                return None
            at[0] += 1
            slot_set(self._partition_responses, topic, partitions)
            slot_set(self._tags, topic, None)
            topics.append(topic)
        if end - at[0] < 5 or data[at[0] + 4]:
            return None
        message = bare(self._response_type)
        slot_set(self._responses, message, topics)
        slot_set(self._throttle_time_ms, message, int32_at(data + at[0]))
        slot_set(self._node_endpoints, message, [])
        slot_set(self._tags, message, None)
        at[0] += 5
        return message

    cdef object _partition(self, const uint8_t *data):
        row = bare(self._partition_type)
        slot_set(self._index, row, int32_at(data))
        slot_set(self._error_code, row, <int16_t>(<int>data[4] << 8 | data[5]))
        slot_set(self._base_offset, row, int64_at(data + 6))
        slot_set(self._log_append_time_ms, row, int64_at(data + 14))
        slot_set(self._log_start_offset, row, int64_at(data + 22))
        slot_set(self._record_errors, row, [])
        slot_set(self._error_message, row, None)
        slot_set(self._current_leader, row, None)
        slot_set(self._tags, row, None)
        return row
