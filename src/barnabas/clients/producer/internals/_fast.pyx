# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=False
# cython: freethreading_compatible=True
"""What happens for every record, compiled: its future, and the way into a batch that has room.

`FutureRecordMetadata` is the twin of `_future_pure`, which does all the work that is not done for every record.
`FastSend` has no twin: whatever it does, `KafkaProducer._send` and `RecordAccumulator.append` do as well, step by step
and with explanations. It gives up, with nothing changed, as soon as something is not as usual.
"""

cimport cython
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_CheckExact
from cpython.tuple cimport PyTuple_CheckExact
from libc.stdint cimport int32_t, int64_t, uint64_t

from barnabas.clients.producer.internals._future_pure import FutureRecordMetadata as _Pure
from barnabas.common.clock import SystemClock
from barnabas.common.murmur2 import partition_for_key
from barnabas.records.accelerator import size_of_payload

cdef extern from "time.h" nogil:
    ctypedef long time_t
    ctypedef int clockid_t
    cdef struct timespec:
        time_t tv_sec
        long tv_nsec
    clockid_t CLOCK_REALTIME
    int clock_gettime(clockid_t clock, timespec *result)

cdef enum:
    # A batch header, and a record without key, value and headers at its longest: `estimate_size_in_bytes_upper_bound`.
    OVERHEAD = 61 + 21

_exception = _Pure.exception
_value = _Pure.value
_add_done_callback = _Pure.add_done_callback
_to_concurrent = _Pure.to_concurrent
_await = _Pure.__await__
_repr = _Pure.__repr__


cdef inline Py_ssize_t size_of_length(Py_ssize_t length) noexcept nogil:
    cdef uint64_t raw = <uint64_t>length << 1
    cdef Py_ssize_t size = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


@cython.final
@cython.freelist(4096)
@cython.no_gc  # a listener makes a cycle, which the end of the batch breaks; millions of these would slow a collector
cdef class FutureRecordMetadata:
    """What ``send`` returns: see `_future_pure`."""

    cdef readonly object _result
    cdef readonly int32_t _index
    cdef readonly int64_t _timestamp_ms
    cdef readonly int32_t _key_size
    cdef readonly int32_t _value_size

    def __init__(self, result, int32_t index, int64_t timestamp_ms, int32_t key_size, int32_t value_size):
        self._result = result
        self._index = index
        self._timestamp_ms = timestamp_ms
        self._key_size = key_size
        self._value_size = value_size

    def done(self):
        return self._result.find(self._index)[0].is_done

    def cancel(self):
        """Always false: a record that was accepted is sent."""
        return False

    def cancelled(self):
        return False

    def running(self):
        return not self.done()

    def result(self, timeout=None):
        """Where the record is. Blocks until that is known; raises what went wrong, or `TimeoutError`."""
        error = _exception(self, timeout)
        if error is not None:
            raise error
        return _value(self)

    def exception(self, timeout=None):
        """What went wrong, or None. Blocks like `result`."""
        return _exception(self, timeout)

    def value(self):
        """Where the record is, for callers who know that it is known."""
        return _value(self)

    def add_done_callback(self, callback):
        """Calls ``callback(future)`` when the outcome is known, on the producer's I/O thread; at once if it is."""
        _add_done_callback(self, callback)

    def to_concurrent(self):
        """The same as a `concurrent.futures.Future`, for ``wait`` and ``as_completed``."""
        return _to_concurrent(self)

    def __await__(self):
        return _await(self)

    def __repr__(self):
        return _repr(self)


@cython.final
cdef class FastSend:
    """Appends a record to the last batch of its partition; None if that is not all there is to it."""

    cdef object _accumulator
    cdef object _metadata
    cdef object _sender
    cdef object _manager
    cdef object _milliseconds
    cdef bint _system_clock
    cdef Py_ssize_t _max_size
    cdef Py_ssize_t _batch_size
    cdef bint _ignore_keys

    def __init__(
        self,
        accumulator,
        metadata,
        sender,
        manager,
        clock,
        Py_ssize_t max_size,
        Py_ssize_t batch_size,
        bint ignore_keys,
    ):
        self._accumulator = accumulator
        self._metadata = metadata
        self._sender = sender
        self._manager = manager
        self._milliseconds = clock.milliseconds
        self._system_clock = type(clock) is SystemClock
        self._max_size = max_size
        self._batch_size = batch_size
        self._ignore_keys = ignore_keys

    def __call__(self, topic, value, key, headers, partition, timestamp_ms, callback):
        cdef Py_ssize_t size = OVERHEAD + 1
        cdef Py_ssize_t before, after, produced, count
        cdef int32_t key_size = -1, value_size = -1
        cdef int64_t timestamp
        cdef bint wake = False, full
        cdef timespec now
        cdef FutureRecordMetadata future

        entry = self._accumulator.topics.get(topic)
        if entry is None or entry.snapshot is not self._metadata.snapshot:
            return None
        if self._manager is not None and self._manager.failed:
            return None

        if key is None:
            size += 1
        elif PyBytes_CheckExact(key):
            key_size = <int32_t>PyBytes_GET_SIZE(key)
            size += size_of_length(key_size) + key_size
        else:
            return None
        if value is None:
            size += 1
        elif PyBytes_CheckExact(value):
            value_size = <int32_t>PyBytes_GET_SIZE(value)
            size += size_of_length(value_size) + value_size
        else:
            return None
        if headers is None:
            headers = ()
        elif headers:
            if not (PyList_CheckExact(headers) or PyTuple_CheckExact(headers)):
                return None
            size = OVERHEAD + <Py_ssize_t>size_of_payload(key, value, headers)
        if size > self._max_size:
            return None

        if timestamp_ms is not None:
            timestamp = timestamp_ms
            if timestamp < 0:
                return None
        elif self._system_clock:
            clock_gettime(CLOCK_REALTIME, &now)
            timestamp = <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000
        else:
            timestamp = self._milliseconds()

        partitioner = None
        sticky = None
        if partition is not None:
            if not 0 <= partition < entry.partition_count:
                return None
        elif key is not None and not self._ignore_keys:
            partition = partition_for_key(key, entry.partition_count)
        else:
            partitioner = entry.partitioner
            sticky = partitioner.sticky
            if sticky is None:
                return None
            partition = sticky.partition
        queue = entry.queues.get(partition)
        if queue is None:
            return None

        lock = queue.lock
        lock.acquire()
        try:
            if self._accumulator.closed:
                return None
            batches = queue.batches
            count = len(batches)
            if count == 0:
                return None
            batch = batches[count - 1]
            builder = batch.builder
            before = builder.estimated_size
            if sticky is not None and (partitioner.sticky is not sticky or before >= <Py_ssize_t>builder.max_size):
                return None
            index = builder.try_append(timestamp, key, value, headers)
            if index is None:
                return None
            future = FutureRecordMetadata.__new__(FutureRecordMetadata)
            future._result = batch.produce_future
            future._index = index
            future._timestamp_ms = timestamp
            future._key_size = key_size
            future._value_size = value_size
            if callback is not None:
                batch.add_thunk(index, callback, future)
            if size > <Py_ssize_t>batch.max_record_size:
                batch.max_record_size = size
            after = builder.estimated_size
            full = after >= <Py_ssize_t>builder.max_size
            wake = full and count == 1
            if sticky is not None:
                produced = <Py_ssize_t>sticky.produced_bytes + after - before
                sticky.produced_bytes = produced
                if produced >= 2 * self._batch_size or (full and produced >= self._batch_size):
                    partitioner.update_partition_info(sticky, 0, entry.snapshot, full)
        finally:
            lock.release()
        entry.touched = True
        if wake:
            self._sender.wake_for_work()
        return future
