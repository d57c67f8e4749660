# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=False
# cython: freethreading_compatible=True
"""The append of a client's batch by a leader without followers, compiled. What that means is told in `plain_appends`."""

from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_SIZE
from libc.stdint cimport int64_t

from barnabas.common._tuples cimport item

from barnabas.common.errors import KafkaStorageError
from barnabas.log.plain_append import append_plain as _append_plain
from barnabas._kernels.compiled.record_batch import is_plain_batch as _is_plain_batch

cdef extern from "Python.h":
    Py_buffer *PyMemoryView_GET_BUFFER(object view)

cdef enum:
    ATTRIBUTES = 22
    COMPRESSED_OR_TRANSACTIONAL = 0x17

cdef object append_plain = _append_plain
cdef object is_plain_batch = _is_plain_batch


cdef object append_to(object log, object batch, object leader_epoch):
    cdef int64_t last_offset, recovery_point
    cdef bint moved
    local_log = log._local_log
    limits = log._validator._plain_limits
    if limits is None or local_log.guard.channel.any_offline or log._partition_metadata._dirty_topic_id is not None:
        return None
    try:
        max_size, before_max_ms, after_max_ms, keys_needed = limits
        now_ms = log._clock.milliseconds()
        if not is_plain_batch(batch, max_size, now_ms, before_max_ms, after_max_ms, keys_needed):
            return None
        with log._lock:
            if local_log.is_closed:
                return None
            appended = append_plain(local_log, log._producer_state, log.leader_epochs, batch, leader_epoch)
            if appended is None:
                return None
            last_offset = item(appended, 1)
            recovery_point = local_log.recovery_point
            if last_offset + 1 - recovery_point >= local_log.config.flush_messages:
                log.flush()
            marks = log._watermarks
            moved = marks.move_high_watermark_to_end()
            return item(appended, 0), last_offset, marks.offsets.log_start_offset, moved
    except (KafkaStorageError, OSError) as error:
        local_log.guard.reraise(f"appending to {log.topic_partition}", error)


def append_next(partition, records):
    """Appends a client's batch to a partition that is led here, and moves its high watermark.

    Returns the first and the last offset, where the log starts, and whether the high watermark has moved; None, and
    nothing is done, if it is not that plain: then it is for `Partition.append_records_to_leader`.
    """
    batch = PyMemoryView_FromObject(records)
    cdef Py_buffer *buffer = PyMemoryView_GET_BUFFER(batch)
    # Others would be looked at in vain, and then once more.
    if buffer.readonly or buffer.len <= ATTRIBUTES:
        return None
    if (<const unsigned char *>buffer.buf)[ATTRIBUTES] & COMPRESSED_OR_TRANSACTIONAL:
        return None
    with partition._lock:
        if partition._remote:
            return None
        role = partition.role
        if not PyTuple_Check(role) or PyTuple_GET_SIZE(role) != 5:
            raise TypeError(f"{role!r} is no role")
        log = item(role, 0)
        if log is None or not item(role, 1):
            return None
        return append_to(log, batch, item(role, 3))
