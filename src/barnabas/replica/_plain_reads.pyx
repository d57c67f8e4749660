# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=False
# cython: freethreading_compatible=True
"""The reads of a consumer that is somewhere in the middle of a log, compiled. What that means is told in `plain_reads`."""

from cpython.array cimport array
from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uint8_t

from barnabas.common._tuples cimport item
from barnabas.replica._roles cimport log_to_read

from barnabas.common.errors import Errors
from barnabas.common.identifiers import ZERO_UUID as _ZERO_UUID
from barnabas.log.fetch_data_info import FetchDataInfo as _FetchDataInfo
from barnabas.log.log_offset_metadata import LogOffsetMetadata as _LogOffsetMetadata
from barnabas.network.send import FileRegion as _FileRegion
from barnabas.replica.results import NO_REPLICA as _NO_REPLICA
from barnabas.replica.results import LogReadResult as _LogReadResult

cdef extern from "unistd.h" nogil:
    ssize_t pread(int fd, void *buffer, size_t count, int64_t position)

cdef enum:
    HEADER_SIZE = 61
    LOG_OVERHEAD = 12
    MAGIC = 2
    SMALLEST_BATCH = HEADER_SIZE - LOG_OVERHEAD
    # Covers the usual distance between the entry of an index and the batch that is looked for. Behind a batch that is
    # larger than half of that, the next header is read alone.
    READ_AHEAD = 1 << 12
    # Two entries of an index are no farther apart than its interval, 4 KiB as a rule, and one batch.
    FAR_APART = 1 << 13

cdef object NONE = Errors.NONE
cdef object ZERO_UUID = _ZERO_UUID
cdef object FetchDataInfo = _FetchDataInfo
cdef object LogOffsetMetadata = _LogOffsetMetadata
cdef object LogReadResult = _LogReadResult
cdef object FileRegion = _FileRegion
cdef object NO_REPLICA = _NO_REPLICA
cdef object new_tuple = tuple.__new__


cdef inline uint32_t int32_at(const uint8_t *data) noexcept nogil:
    return (<uint32_t>data[0] << 24) | (<uint32_t>data[1] << 16) | (<uint32_t>data[2] << 8) | data[3]


cdef struct Batch:
    int64_t position
    int64_t size


cdef bint find_batch(int fd, int64_t target, int64_t position, int64_t end, Batch *found) noexcept nogil:
    """As `FileRecords.search_for_offset`; false also for what that would raise."""
    cdef uint8_t chunk[READ_AHEAD]
    cdef const uint8_t *header
    cdef int64_t at = 0, length = 0, size = 0, wanted, last
    while end - position >= HEADER_SIZE:
        if at + HEADER_SIZE > length:
            wanted = HEADER_SIZE if size > READ_AHEAD / 2 else READ_AHEAD
            wanted = min(wanted, end - position)
            length = pread(fd, chunk, wanted, position)
            if length != wanted:
                return False
            at = 0
        header = chunk + at
        size = <int64_t><int32_t>int32_at(header + 8)
        if size < SMALLEST_BATCH or header[16] != MAGIC:
            return False
        size += LOG_OVERHEAD
        if size > end - position:
            return False
        last = <int64_t>((<uint64_t>int32_at(header) << 32) | int32_at(header + 4)) + <int32_t>int32_at(header + 23)
        if last >= target:
            found.position = position
            found.size = size
            return True
        position += size
        at += size
    return False


cdef bint is_in(int fd, int64_t target, int64_t position, int64_t end, Batch *found) noexcept nogil:
    """Whether it is the batch there that has an offset. Then those before it end before that."""
    cdef uint8_t header[HEADER_SIZE]
    cdef int64_t base, size
    if end - position < HEADER_SIZE or pread(fd, header, HEADER_SIZE, position) != HEADER_SIZE:
        return False
    size = <int64_t><int32_t>int32_at(header + 8)
    base = <int64_t>((<uint64_t>int32_at(header) << 32) | int32_at(header + 4))
    if size < SMALLEST_BATCH or header[16] != MAGIC or not base <= target <= base + <int32_t>int32_at(header + 23):
        return False
    found.position = position
    found.size = size + LOG_OVERHEAD
    return found.size <= end - position


cdef int64_t indexed_position(object index, int64_t offset, int64_t *following) except -2:
    """Where to look from on, as `OffsetIndex.lookup` says; -1 if that has to be asked. And where the entry behind that
    points to, if there is one."""
    last = index.last_entry
    cdef int64_t last_offset = item(last, 0), relative
    cdef Py_ssize_t low, high, middle
    cdef array keys, values
    following[0] = -1
    if offset >= last_offset:
        return item(last, 1)
    relative = offset - <int64_t>index.base_offset
    with index._lock:
        keys = index._keys
        values = index._values
        high = len(keys)
        if (
            not high
            or len(values) != high
            or keys.ob_descr.typecode != c"q"
            or values.ob_descr.typecode != c"q"
            or index._closed
        ):
            return -1
        if relative < keys.data.as_longlongs[0]:
            # Before the first entry there is, or before the first of those that are in memory.
            return -1 if index._warm_first else 0
        low = 0
        while low < high:
            middle = (low + high) // 2
            if keys.data.as_longlongs[middle] <= relative:
                low = middle + 1
            else:
                high = middle
        if low < len(values):
            following[0] = values.data.as_longlongs[low]
        return values.data.as_longlongs[low - 1]


cdef object find_records(object log, object request, int64_t max_bytes, bint min_one_message):
    """What `UnifiedLog.read` gives, with the offsets that go with it; None if it has to be asked."""
    marks = log.watermarks
    limit = marks._high_watermark
    cdef int64_t offset = request.fetch_offset, high_watermark = item(limit, 0), limit_base = item(limit, 1)
    cdef int64_t start = marks.log_start_offset, base, position, following, end, room, available
    cdef Py_ssize_t low, high, middle
    cdef Batch found
    # At the high watermark there is nothing to read, behind it and before the start there is something to be said.
    if limit_base < 0 or not start <= offset < high_watermark or marks._first_unstable_offset is not None:
        return None
    local_log = marks._local_log
    if local_log.guard.channel.any_offline:
        return None
    log_end = item(local_log.log_end_offset_metadata, 0)
    offsets, segments = local_log.segments._table
    low, high = 0, PyTuple_GET_SIZE(offsets)
    while low < high:
        middle = (low + high) // 2
        if <int64_t>item(offsets, middle) <= offset:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return None
    base = item(offsets, low - 1)
    segment = item(segments, low - 1)
    records = segment.records
    handle = records._handle
    index = segment._offset_index.index
    if handle is None or index is None or base > limit_base:
        return None
    end = records.size_in_bytes
    position = indexed_position(index, offset, &following)
    cdef int fd = handle
    if position < 0:
        return None
    # An entry has the last offset of a batch, so the one for an offset is that of the batch before. If batches are so
    # large that each has an entry, the one that is looked for is where the next entry points to.
    if not (following - position > FAR_APART and is_in(fd, offset, following, end, &found)) and not find_batch(
        fd, offset, position, end, &found
    ):
        return None
    if base == limit_base:
        end = min(end, <int64_t>item(limit, 2))
    room = max(max_bytes, found.size) if min_one_message else max_bytes
    available = min(end - found.position, room)
    if available <= 0 or room < found.size:
        return None
    place = new_tuple(LogOffsetMetadata, (offset, base, found.position))
    info = new_tuple(FetchDataInfo, (place, FileRegion(handle, found.position, available), False, None))
    return new_tuple(
        LogReadResult, (NONE, info, high_watermark, start, log_end, high_watermark, None, NO_REPLICA)
    )


cdef object find(object partition, object request, int64_t max_bytes, bint min_one_message, bint fetch_only_leader):
    role = partition.role
    log = log_to_read(role, request, fetch_only_leader)
    if log is None:
        return None
    result = find_records(log, request, max_bytes, min_one_message)
    # There may have been an election while we read.
    return result if partition.role is role else None


def plain_read(partition, request, int64_t max_bytes, bint min_one_message, bint fetch_only_leader):
    """What `Partition.fetch_records` gives a consumer that does not care for transactions; None if it has to be asked."""
    return find(partition, request, max_bytes, min_one_message, fetch_only_leader)


def read_plain(
    fetch_infos,
    list results not None,
    Py_ssize_t index,
    dict online not None,
    int64_t limit_bytes,
    bint min_one_message,
    bint fetch_only_leader,
):
    """Fills in what is still None among the results of a fetch, from one partition on, in their order.

    Returns the number of the first one that is for `Partition.fetch_records`, and what is left of the limit then.
    """
    cdef Py_ssize_t count = len(results)
    cdef PyObject *found
    cdef int64_t max_bytes
    while index < count:
        if results[index] is None:
            asked = fetch_infos[index]
            topic_id_partition, request = asked
            topic_id, topic, number = topic_id_partition
            found = PyDict_GetItemWithError(online, (topic or "", number))
            if found == NULL:
                break
            partition = <object>found
            own_id = partition.topic_id
            if not (topic_id is own_id or topic_id == own_id or topic_id == ZERO_UUID):
                break
            max_bytes = request.partition_max_bytes
            try:
                result = find(partition, request, min(max_bytes, limit_bytes), min_one_message, fetch_only_leader)
            except Exception:  # for the other way, which knows what to do about it, to come to
                break
            if result is None:
                break
            min_one_message = False
            max_bytes = item(item(result, 1), 1).count
            limit_bytes = max(limit_bytes - max_bytes, 0)
            results[index] = (topic_id_partition, result)
        index += 1
    return index, limit_bytes, min_one_message
