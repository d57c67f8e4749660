# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=False
# cython: freethreading_compatible=True
"""What is done with the result of every partition of a fetch, compiled: the twin of `_fetch_results_pure`."""

from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_SIZE
from libc.stdint cimport int64_t

from barnabas.common._tuples cimport item

from barnabas.replica.results import FetchPartitionData as _FetchPartitionData

cdef object FetchPartitionData = _FetchPartitionData
cdef object new_tuple = tuple.__new__
cdef enum:
    NO_REPLICA = -1


cdef inline int check(object value, Py_ssize_t size) except -1:
    if not PyTuple_Check(value) or PyTuple_GET_SIZE(value) != size:
        raise TypeError(f"{value!r} does not have {size} parts")
    return 0


def look_over(results):
    """Bytes found, whether any of it is urgent, and how many partitions in a row each topic has."""
    cdef int64_t readable = 0, preferred
    cdef Py_ssize_t count = 0
    cdef bint urgent = False
    cdef list topics = []
    counted = None
    for entry in results:
        check(entry, 2)
        partition, result = item(entry, 0), item(entry, 1)
        check(partition, 3)
        check(result, 8)
        topic = item(partition, 1)
        if topic is not counted and topic != counted:
            if count:
                topics.append((counted, count))
            counted = topic
            count = 0
        count += 1
        if not urgent:
            preferred = item(result, 7)
            urgent = bool(item(result, 0)) or item(result, 6) is not None or preferred != NO_REPLICA
        info = item(result, 1)
        check(info, 4)
        readable += len(item(info, 1))
    if count:
        topics.append((counted, count))
    return readable, urgent, topics


def answers_of(results):
    """What a consumer is told of each."""
    cdef list answers = []
    for entry in results:
        check(entry, 2)
        result = item(entry, 1)
        check(result, 8)
        info = item(result, 1)
        check(info, 4)
        data = new_tuple(
            FetchPartitionData,
            (
                item(result, 0),
                item(result, 2),
                item(result, 3),
                item(info, 1),
                item(result, 6),
                item(result, 5),
                item(info, 3),
                item(result, 7),
                False,
            ),
        )
        answers.append((item(entry, 0), data))
    return answers


def news_of(results, may_omit):
    """Those that have something in them, or of which the reader knows less than it should."""
    cdef list news = []
    cdef int64_t preferred
    for entry in results:
        check(entry, 2)
        data = item(entry, 1)
        check(data, 9)
        preferred = item(data, 7)
        if (
            item(data, 3)
            or item(data, 0)
            or item(data, 4) is not None
            or preferred != NO_REPLICA
            or not may_omit(item(entry, 0), item(data, 1), item(data, 2))
        ):
            news.append(entry)
    return news


def bytes_by_topic(news):
    """How many bytes of records go out of each topic that has any."""
    cdef dict sizes = {}
    cdef PyObject *found
    cdef int64_t size
    for entry in news:
        check(entry, 2)
        partition, data = item(entry, 0), item(entry, 1)
        check(partition, 3)
        check(data, 9)
        size = len(item(data, 3))
        if size:
            name = item(partition, 1) or ""
            found = PyDict_GetItemWithError(sizes, name)
            if found != NULL:
                size += <int64_t><object>found
            sizes[name] = size
    return sizes
