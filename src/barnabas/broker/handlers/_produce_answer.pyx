# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=False
# cython: freethreading_compatible=True
"""The answer to most produce requests, compiled: the twin of `_produce_answer_pure`, where the idea is told."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcpy, memset

from barnabas.broker.handlers._frame cimport put_int32, put_int64
from barnabas.common.errors import Errors

cdef enum:
    TOPIC_IDS = 13
    MOST_PARTITIONS = 126
    LONGEST_NAME = 126
    PARTITION_SIZE = 33
    END_SIZE = 6

cdef object NONE = Errors.NONE


def one_topic_answer(int version, int32_t correlation_id, dict results not None):
    """The frame for the partitions of one topic, all without an error; None if it has to be made in another way."""
    cdef Py_ssize_t count = len(results), length = 0
    cdef uint8_t *out
    cdef int64_t base_offset, append_time, log_start_offset
    cdef int32_t index
    cdef bytes text = b"", frame = None
    topic_id = name = None
    if not 0 < count <= MOST_PARTITIONS:
        return None
    for key, result in results.items():
        if not PyTuple_Check(key) or PyTuple_GET_SIZE(key) != 3 or not PyTuple_Check(result) or len(result) != 7:
            raise TypeError(f"{key!r}: {result!r} is no result of a partition")
        if <object>PyTuple_GET_ITEM(result, 0) is not NONE:
            return None
        if frame is None:
            topic_id, name = <object>PyTuple_GET_ITEM(key, 0), <object>PyTuple_GET_ITEM(key, 1)
            if version >= TOPIC_IDS:
                text = topic_id
                length = PyBytes_GET_SIZE(text)
            else:
                text = (name or "").encode()
                length = PyBytes_GET_SIZE(text)
                if length > LONGEST_NAME:
                    return None
            length += 11 + (version < TOPIC_IDS) + count * PARTITION_SIZE + END_SIZE
            frame = PyBytes_FromStringAndSize(NULL, length)
            out = put_int32(<uint8_t *>PyBytes_AS_STRING(frame), <uint32_t>(length - 4))
            out = put_int32(out, <uint32_t>correlation_id)
            out[0] = 0
            out[1] = 2
            out += 2
            if version < TOPIC_IDS:
                out[0] = <uint8_t>(PyBytes_GET_SIZE(text) + 1)
                out += 1
            memcpy(out, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
            out += PyBytes_GET_SIZE(text)
            out[0] = <uint8_t>(count + 1)
            out += 1
        elif <object>PyTuple_GET_ITEM(key, 0) != topic_id or <object>PyTuple_GET_ITEM(key, 1) != name:
            return None
        index = <object>PyTuple_GET_ITEM(key, 2)
        base_offset = <object>PyTuple_GET_ITEM(result, 1)
        append_time = <object>PyTuple_GET_ITEM(result, 2)
        log_start_offset = <object>PyTuple_GET_ITEM(result, 3)
        out = put_int32(out, <uint32_t>index)
        out[0] = out[1] = 0
        out = put_int64(out + 2, <uint64_t>base_offset)
        out = put_int64(out, <uint64_t>append_time)
        out = put_int64(out, <uint64_t>log_start_offset)
        out[0] = 1
        out[1] = out[2] = 0
        out += 3
    memset(out, 0, END_SIZE)
    return frame
