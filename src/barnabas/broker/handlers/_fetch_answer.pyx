# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=False
# cython: freethreading_compatible=True
"""The answer to most fetches of consumers, compiled: the twin of `_fetch_answer_pure`, where the idea is told."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from barnabas.common._tuples cimport item
from barnabas.broker.handlers._frame cimport put_int32, put_int64
from barnabas.common.errors import Errors

cdef enum:
    TOPIC_IDS = 13
    HEAD_SIZE = 19
    # Number, error, three offsets, aborted transactions, preferred replica, tags; the length of the records is apart.
    PARTITION_SIZE = 4 + 2 + 24 + 1 + 4 + 1

cdef object NONE = Errors.NONE


cdef inline uint8_t *put_uvarint(uint8_t *out, uint64_t value) noexcept nogil:
    while value > 0x7F:
        out[0] = <uint8_t>(value & 0x7F) | 0x80
        out += 1
        value >>= 7
    out[0] = <uint8_t>value
    return out + 1


cdef inline Py_ssize_t uvarint_size(uint64_t value) noexcept nogil:
    cdef Py_ssize_t size = 1
    while value > 0x7F:
        size += 1
        value >>= 7
    return size


def fetch_answer(int version, int32_t correlation_id, int32_t session_id, list results not None):
    """The frame for these partitions, in this order; None if it has to be made in another way."""
    cdef Py_ssize_t count = len(results), index, run, topics = 0, size, total = HEAD_SIZE, records_size = 0
    cdef Py_ssize_t *runs = <Py_ssize_t *>malloc((count + 1) * sizeof(Py_ssize_t))
    cdef uint8_t *memory = NULL
    cdef uint8_t *out
    cdef uint8_t *begun
    cdef bytes text
    cdef list texts = [], pieces = []
    if runs == NULL:
        raise MemoryError()
    try:
        # How many topics there are, with how many partitions each, and how long everything is.
        topic_id = name = None
        for index in range(count):
            entry = <object>PyList_GET_ITEM(results, index)
            if not PyTuple_Check(entry) or PyTuple_GET_SIZE(entry) != 2:
                raise TypeError(f"{entry!r} is no result of a partition")
            partition, data = item(entry, 0), item(entry, 1)
            if not PyTuple_Check(partition) or PyTuple_GET_SIZE(partition) != 3:
                raise TypeError(f"{partition!r} is no partition")
            if not PyTuple_Check(data) or PyTuple_GET_SIZE(data) != 9:
                raise TypeError(f"{data!r} is no result of a partition")
            if item(data, 0) is not NONE or item(data, 4) is not None or item(data, 7) != -1 or item(data, 6):
                return None
            if topics == 0 or item(partition, 0) != topic_id or item(partition, 1) != name:
                topic_id, name = item(partition, 0), item(partition, 1)
                text = topic_id if version >= TOPIC_IDS else (name or "").encode()
                texts.append(text)
                total += PyBytes_GET_SIZE(text) + 1
                if version < TOPIC_IDS:
                    total += uvarint_size(PyBytes_GET_SIZE(text) + 1)
                runs[topics] = 0
                topics += 1
            runs[topics - 1] += 1
            size = len(item(data, 3))
            records_size += size
            total += PARTITION_SIZE + uvarint_size(size + 1)
        total += uvarint_size(topics + 1) + 1
        for index in range(topics):
            total += uvarint_size(runs[index] + 1)
        memory = <uint8_t *>malloc(total)
        if memory == NULL:
            raise MemoryError()
        begun = memory
        out = put_int32(memory, <uint32_t>(total + records_size - 4))
        out = put_int32(out, <uint32_t>correlation_id)
        memset(out, 0, 7)  # no tags of the header, throttle time, error
        out = put_int32(out + 7, <uint32_t>session_id)
        out = put_uvarint(out, topics + 1)
        index = 0
        for run in range(topics):
            text = texts[run]
            if version < TOPIC_IDS:
                out = put_uvarint(out, PyBytes_GET_SIZE(text) + 1)
            memcpy(out, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
            out = put_uvarint(out + PyBytes_GET_SIZE(text), runs[run] + 1)
            while runs[run]:
                runs[run] -= 1
                entry = <object>PyList_GET_ITEM(results, index)
                index += 1
                data = item(entry, 1)
                out = put_int32(out, <uint32_t><int32_t>item(item(entry, 0), 2))
                out[0] = out[1] = 0
                out = put_int64(out + 2, <uint64_t><int64_t>item(data, 1))
                out = put_int64(out, <uint64_t><int64_t>item(data, 5))
                out = put_int64(out, <uint64_t><int64_t>item(data, 2))
                out[0] = item(data, 6) is not None
                out = put_int32(out + 1, <uint32_t>-1)
                records = item(data, 3)
                size = len(records)
                out = put_uvarint(out, size + 1)
                if size:
                    pieces.append(PyBytes_FromStringAndSize(<char *>begun, out - begun))
                    pieces.append(records)
                    begun = out
                out[0] = 0
                out += 1
            out[0] = 0
            out += 1
        out[0] = 0
        out += 1
        pieces.append(PyBytes_FromStringAndSize(<char *>begun, out - begun))
    except OverflowError:
        return None
    finally:
        free(runs)
        free(memory)
    return pieces
