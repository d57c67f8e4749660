# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=False
# cython: freethreading_compatible=True
"""Which partitions of a fetch have nothing new, compiled: the twin of `_log_ends_pure`, where the idea is told."""

from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from barnabas.common._tuples cimport item
from barnabas.replica._roles cimport log_to_read

from barnabas.common.errors import Errors
from barnabas.common.identifiers import ZERO_UUID as _ZERO_UUID
from barnabas.log.fetch_data_info import FetchDataInfo
from barnabas.replica.results import LogReadResult

cdef object NONE = Errors.NONE
cdef object ZERO_UUID = _ZERO_UUID
cdef object make_info = FetchDataInfo
cdef object make_result = LogReadResult


cdef object plain_end(object marks, int64_t offset):
    """As `LogWatermarks.plain_end`."""
    end = marks._high_watermark
    cdef int64_t end_offset = item(end, 0), base = item(end, 1)
    if end_offset != offset or base < 0 or marks._first_unstable_offset is not None:
        return None
    local_log = marks._local_log
    cdef int64_t log_end = item(local_log.log_end_offset_metadata, 0)
    if log_end != offset or local_log.guard.channel.any_offline:
        return None
    return end


cdef object find_end(object partition, object request, bint committed, bint fetch_only_leader):
    role = partition.role
    log = log_to_read(role, request, fetch_only_leader)
    if log is None:
        return None
    marks = log.watermarks
    offset = request.fetch_offset
    end = plain_end(marks, offset)
    if end is None or partition.role is not role:
        return None
    start = marks.log_start_offset
    known = partition.committed_end_seen if committed else partition.end_seen
    if known is None or item(item(known, 1), 0) is not end or item(known, 3) != start:
        info = make_info(end, b"", False, [] if committed else None)
        known = make_result(NONE, info, offset, start, offset, offset)
        if committed:
            partition.committed_end_seen = known
        else:
            partition.end_seen = known
    return known


def at_end(partition, request, bint committed, bint fetch_only_leader):
    """What `Partition.fetch_records` gives a consumer that has read everything; None if it has to be asked."""
    return find_end(partition, request, committed, fetch_only_leader)


def ends_of(fetch_infos, dict online not None, bint committed, bint fetch_only_leader):
    """For each partition of a consumer's fetch, itself and what `at_end` says of it; None for those to be read."""
    cdef list ends = []
    cdef PyObject *found
    for topic_id_partition, request in fetch_infos:
        topic_id, topic, number = topic_id_partition
        found = PyDict_GetItemWithError(online, (topic or "", number))
        result = None
        if found != NULL:
            partition = <object>found
            own_id = partition.topic_id
            if topic_id is own_id or topic_id == own_id or topic_id == ZERO_UUID:
                result = find_end(partition, request, committed, fetch_only_leader)
        ends.append(None if result is None else (topic_id_partition, result))
    return ends


def changed(statuses, dict online not None, bint committed, bint fetch_only_leader):
    """Those partitions of a consumer's fetch that waits for which `at_end` does not say the same as before."""
    cdef list differing = []
    cdef PyObject *found
    for status in statuses:
        _, request, key, result = status
        found = PyDict_GetItemWithError(online, key)
        if found == NULL or find_end(<object>found, request, committed, fetch_only_leader) is not result:
            differing.append(status)
    return differing
