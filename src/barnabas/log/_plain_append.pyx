# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=False
# cython: freethreading_compatible=True
"""The append of a batch that is just the next one, compiled. What that means is told in `plain_append`."""

import os

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.dict cimport PyDict_GetItemWithError
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t, uint8_t

from barnabas.common._tuples cimport item

from barnabas.common.errors import KafkaStorageError
from barnabas.log.file_records import MAX_SEGMENT_SIZE as _MAX_SEGMENT_SIZE
from barnabas.log.log_offset_metadata import LogOffsetMetadata as _LogOffsetMetadata
from barnabas.log.offset_index import OffsetPosition as _OffsetPosition
from barnabas.log.producer_state_entry import NUM_BATCHES_TO_RETAIN as _NUM_BATCHES_TO_RETAIN
from barnabas.log.producer_state_entry import BatchMetadata as _BatchMetadata
from barnabas.log.time_index import TimestampOffset as _TimestampOffset

cdef enum:
    HEADER_SIZE = 61
    TRANSACTIONAL_MASK = 0x10
    MAX_INT32 = 0x7FFFFFFF

cdef int64_t MAX_SEGMENT_SIZE = _MAX_SEGMENT_SIZE
cdef Py_ssize_t NUM_BATCHES_TO_RETAIN = _NUM_BATCHES_TO_RETAIN
cdef object LogOffsetMetadata = _LogOffsetMetadata
cdef object OffsetPosition = _OffsetPosition
cdef object TimestampOffset = _TimestampOffset
cdef object BatchMetadata = _BatchMetadata
cdef object new_tuple = tuple.__new__


cdef struct Header:
    int16_t attributes
    int32_t last_offset_delta
    int64_t max_timestamp
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence


cdef inline uint32_t int32_at(const uint8_t *data) noexcept nogil:
    return (<uint32_t>data[0] << 24) | (<uint32_t>data[1] << 16) | (<uint32_t>data[2] << 8) | data[3]


cdef inline int64_t int64_at(const uint8_t *data) noexcept nogil:
    return <int64_t>((<uint64_t>int32_at(data) << 32) | int32_at(data + 4))


cdef inline void put_int32(uint8_t *out, uint32_t value) noexcept nogil:
    out[0] = <uint8_t>(value >> 24)
    out[1] = <uint8_t>(value >> 16)
    out[2] = <uint8_t>(value >> 8)
    out[3] = <uint8_t>value


cdef object followed_entry(object state, const Header *header):
    """As `ProducerStates.entry_followed_by`."""
    producer_id = header.producer_id
    cdef dict producers = state._producers
    cdef PyObject *found = PyDict_GetItemWithError(producers, producer_id)
    if found == NULL:
        return None
    entry = <object>found
    cdef int16_t epoch = entry.producer_epoch
    cdef list batches = entry._batches
    cdef int64_t last_sequence
    if epoch != header.producer_epoch or not batches or entry.current_txn_first_offset is not None:
        return None
    last_sequence = item(<object>PyList_GET_ITEM(batches, PyList_GET_SIZE(batches) - 1), 0)
    if header.base_sequence != last_sequence + 1 or producer_id in state._verifications:
        return None
    return entry


cdef int add_next(object entry, object batch) except -1:
    """As `ProducerStateEntry.add_next`."""
    cdef list batches = entry._batches
    if PyList_GET_SIZE(batches) == NUM_BATCHES_TO_RETAIN:
        del batches[0]
    batches.append(batch)
    entry.last_timestamp = item(batch, 3)
    return 0


cdef int append_entry(object index, int64_t key, int64_t value, object entry) except -1:
    """As `AbstractIndex.append_next`."""
    cdef Py_ssize_t entries, most, limit
    with index._lock:
        if index._closed:
            index._check_open()
        keys = index._keys
        keys.append(key)
        index._values.append(value)
        entries = index._entries + 1
        index._entries = entries
        most = index._max_entries - index.kept_back
        if entries >= most:
            index.is_full = True
        index.last_entry = entry
        limit = index._warm_limit
        if <Py_ssize_t>len(keys) >= limit:
            index._write_out_and_cool_down()
    return 0


cdef int append_to_indexes(
    object segment,
    object offset_index,
    object time_index,
    int64_t base,
    int64_t last_offset,
    int64_t position,
    object largest,
) except -1:
    last = offset_index.last_entry
    cdef int64_t indexed_offset = item(last, 0), indexed_position = item(last, 1)
    cdef int64_t interval = segment._index_interval_bytes, timestamp, offset, last_timestamp, its_offset
    if position - indexed_position <= interval:
        return 0
    # What is in order needs no more checks; what is not, the index complains about.
    if last_offset > indexed_offset:
        append_entry(offset_index, last_offset - base, position, new_tuple(OffsetPosition, (last_offset, position)))
    else:
        offset_index.append(last_offset, position)
    last = time_index.last_entry
    last_timestamp, its_offset = item(last, 0), item(last, 1)
    timestamp, offset = item(largest, 0), item(largest, 1)
    if timestamp > last_timestamp:
        if offset >= its_offset:
            append_entry(time_index, timestamp, offset - base, largest)
        else:
            time_index.maybe_append(timestamp, offset)
    return 0


cdef int write(object records, object handle, object batch, int64_t position, Py_ssize_t size) except -1:
    """As `FileRecords.append_buffer`."""
    cdef Py_ssize_t written = 0
    try:
        written = os.pwrite(handle, batch, position)
    except OSError as error:
        records._failed_at(handle, position, error)
    if written != size:
        # Nothing is lost if a part of it has been written: that is written again.
        records.append(batch)
        return 0
    records._unflushed = True
    records._changed = True
    records.size_in_bytes = position + size
    return 0


def append_plain(local_log, state, leader_epochs, batch, int32_t leader_epoch):
    """Places a batch at the end of a log, writes it there, and takes note of it; the log's lock must be held.

    Returns its first offset, its last one and its largest timestamp; None, and nothing is done, if it is not that plain.
    """
    cdef Py_buffer buffer
    cdef uint8_t *start
    cdef Header header
    cdef tuple epochs = leader_epochs._entries
    cdef Py_ssize_t size
    cdef int64_t first_offset, last_offset, base, position, first_timestamp, largest_timestamp, end
    cdef int64_t segment_bytes, age, last_epoch
    entry = None
    if not epochs or not local_log._active_is_ready:
        return None
    last_epoch = item(item(epochs, PyTuple_GET_SIZE(epochs) - 1), 0)
    if last_epoch != leader_epoch:
        return None
    segments = item(local_log.segments._table, 1)
    if not segments:
        return None
    segment = item(segments, PyTuple_GET_SIZE(segments) - 1)
    records = segment.records
    handle = records._handle
    first = segment._first_timestamp
    offset_index = segment._offset_index.index
    time_index = segment._time_index.index
    largest = segment._max_timestamp
    if first is None or handle is None or offset_index is None or time_index is None or largest is None:
        return None
    if offset_index.is_full or time_index.is_full:
        return None
    config = local_log.config
    first_timestamp = first
    position = records.size_in_bytes
    base = segment.base_offset
    segment_bytes = config.segment_bytes
    age = config.max_segment_ms - segment.roll_jitter_ms
    first_offset = item(local_log.log_end_offset_metadata, 0)
    PyObject_GetBuffer(batch, &buffer, PyBUF_WRITABLE)
    try:
        size = buffer.len
        start = <uint8_t *>buffer.buf
        if size < HEADER_SIZE or size > MAX_SEGMENT_SIZE - position:
            return None
        header.attributes = <int16_t>((<uint32_t>start[21] << 8) | start[22])
        header.last_offset_delta = <int32_t>int32_at(start + 23)
        header.max_timestamp = int64_at(start + 35)
        header.producer_id = int64_at(start + 43)
        header.producer_epoch = <int16_t>((<uint32_t>start[51] << 8) | start[52])
        header.base_sequence = <int32_t>int32_at(start + 53)
        last_offset = first_offset + header.last_offset_delta
        if (
            first_timestamp < 0
            or position > segment_bytes - size
            or header.max_timestamp - first_timestamp > age
            or not 0 <= last_offset - base <= MAX_INT32
        ):
            return None
        if header.producer_id >= 0:
            if header.attributes & TRANSACTIONAL_MASK:
                return None
            entry = followed_entry(state, &header)
            if entry is None:
                return None
        put_int32(start, <uint32_t>(<uint64_t>first_offset >> 32))
        put_int32(start + 4, <uint32_t>first_offset)
        put_int32(start + 12, <uint32_t>leader_epoch)
    finally:
        PyBuffer_Release(&buffer)
    try:
        write(records, handle, batch, position, size)
        largest_timestamp = item(largest, 0)
        if header.max_timestamp > largest_timestamp:
            largest = new_tuple(TimestampOffset, (header.max_timestamp, last_offset))
            segment._max_timestamp = largest
        append_to_indexes(segment, offset_index, time_index, base, last_offset, position, largest)
    except KafkaStorageError:
        raise
    except BaseException:
        segment.truncate_to(first_offset)  # as in `LocalLog.append`
        raise
    end = records.size_in_bytes
    local_log.log_end_offset_metadata = new_tuple(LogOffsetMetadata, (last_offset + 1, base, end))
    if end >= <int64_t>records.allocate_at:
        records.allocate_ahead(segment_bytes)
    if entry is not None:
        sequence = (<int64_t>header.base_sequence + header.last_offset_delta) & MAX_INT32
        add_next(
            entry,
            new_tuple(BatchMetadata, (sequence, last_offset, header.last_offset_delta, header.max_timestamp)),
        )
    state.map_end_offset = last_offset + 1
    return first_offset, last_offset, header.max_timestamp
