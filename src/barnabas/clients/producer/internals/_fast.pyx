# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=False
# cython: freethreading_compatible=True
"""What happens for every record, compiled: its future, and the way into a batch.

`FutureRecordMetadata` is the twin of `_future_pure`, which does all the work that is not done for every record. The
classes with the state that an append changes are the twins of those in `_append_state_pure`.
`FastSend` has no twin: whatever it does, `KafkaProducer._send` and `RecordAccumulator.append` do as well, step by step
and with explanations. It gives up, with nothing changed, as soon as something is not as usual.
"""

cimport cython
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_CheckExact
from cpython.ref cimport PyObject
from cpython.tuple cimport PyTuple_CheckExact
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint64_t

from barnabas._kernels.compiled.record_codec cimport RecordAppender

from collections import deque

from barnabas.clients.producer.internals._future_pure import FutureRecordMetadata as _Pure
from barnabas.common.clock import SystemClock
from barnabas._kernels.compiled.murmur2 import partition_for_key
from barnabas._kernels.compiled.record_codec import size_of_payload

cdef extern from "Python.h":
    PyObject *dict_get "PyDict_GetItemWithError"(object mapping, object key) except? NULL
    object sequence_item "PySequence_GetItem"(object sequence, Py_ssize_t index)
    Py_ssize_t object_size "PyObject_Size"(object container) except -1

cdef extern from "pythread.h":
    ctypedef void *PyThread_type_lock
    PyThread_type_lock PyThread_allocate_lock()
    void PyThread_free_lock(PyThread_type_lock lock)
    int PyThread_acquire_lock(PyThread_type_lock lock, int wait) nogil
    void PyThread_release_lock(PyThread_type_lock lock) nogil

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <sched.h>
    #if defined(__linux__)
    static int barnabas_core(void) { return sched_getcpu(); }
    #else
    static int barnabas_core(void) { return -1; }
    #endif
    """
    int barnabas_core() nogil

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

cdef enum:  # what `_append_to` says, besides whether to wake the I/O thread
    GIVE_UP = 2
    SWITCHED = 3

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

    def get(self, timeout=None):
        """Returns `result`: the name that kafka-python has for it."""
        return self.result(timeout)

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


# ------------------------------------------------------------------------------------------- what an append changes

@cython.final
cdef class QueueLock:
    """A `threading.Lock` that the compiled side takes and gives back without a call through Python.

    A thread that waits for it cannot be interrupted by a signal; whoever holds it does so for microseconds.
    """

    cdef PyThread_type_lock _lock
    cdef bint _taken

    def __cinit__(self):
        self._lock = PyThread_allocate_lock()
        if self._lock == NULL:
            raise MemoryError()

    def __dealloc__(self):
        if self._lock != NULL:
            PyThread_free_lock(self._lock)

    cdef void take(self) noexcept:
        if not PyThread_acquire_lock(self._lock, 0):
            with nogil:
                PyThread_acquire_lock(self._lock, 1)
        self._taken = True

    cdef void give(self) noexcept:
        self._taken = False
        PyThread_release_lock(self._lock)

    def acquire(self):
        self.take()
        return True

    def release(self):
        if not self._taken:
            raise RuntimeError("release unlocked lock")
        self.give()

    def locked(self):
        return self._taken

    def __enter__(self):
        self.take()
        return True

    def __exit__(self, kind, error, traceback):
        self.give()


@cython.final
cdef class StickyPartitionInfo:
    """See `_append_state_pure`."""

    cdef public int32_t partition
    cdef public Py_ssize_t produced_bytes

    def __init__(self, int32_t partition):
        self.partition = partition


cdef class PartitionerCore:
    """See `_append_state_pure`."""

    cdef public StickyPartitionInfo sticky


cdef class BatchCore:
    """See `_append_state_pure`."""

    cdef readonly object builder
    # The builder, if records are appended to it; None for a batch that came as a whole.
    cdef RecordAppender _appender
    cdef public object produce_future
    cdef public Py_ssize_t max_record_size
    cdef readonly Py_ssize_t ready_size
    cdef public int64_t created_ms
    cdef public int64_t drained_ms
    cdef public Py_ssize_t reserved_bytes
    cdef public int32_t attempts
    cdef public object current_leader_epoch

    def __init__(self, builder, produce_future, int64_t created_ms, Py_ssize_t reserved_bytes):
        self.builder = builder
        self._appender = <RecordAppender>builder if isinstance(builder, RecordAppender) else None
        self.produce_future = produce_future
        self.ready_size = builder.max_size
        self.created_ms = created_ms
        self.reserved_bytes = reserved_bytes

    cdef bint _is_ready(self) except -1:
        """`ProducerBatch.is_ready`."""
        cdef RecordAppender appender = self._appender
        if appender is None:
            return self.is_ready
        return not appender._open or (appender._count > 0 and appender._estimate() >= self.ready_size)


@cython.final
cdef class PartitionQueue:
    """See `_append_state_pure`."""

    cdef readonly object topic_partition
    cdef readonly QueueLock lock
    cdef readonly object batches
    cdef public bint muted

    def __init__(self, topic_partition):
        self.topic_partition = topic_partition
        self.lock = QueueLock()
        self.batches = deque()


@cython.final
cdef class TopicEntry:
    """See `_append_state_pure`."""

    cdef readonly str topic
    cdef readonly PartitionerCore partitioner
    cdef public dict queues
    cdef public object snapshot
    cdef public int32_t partition_count
    cdef public bint touched

    def __init__(self, topic, PartitionerCore partitioner not None, snapshot):
        self.topic = topic
        self.partitioner = partitioner
        self.queues = {}
        self.snapshot = snapshot


# ------------------------------------------------------------------------------------- a look at all that is waiting

def scan_queues(list rows, dict ready_nodes, list sizes, bint send_all, Py_ssize_t weigh_by, now, postponed):
    """See `_append_state_pure`."""
    cdef int64_t oldest_ms = INT64_MAX, delay_ms = INT64_MAX, wait_ms
    cdef bint leaderless = False, full = False
    cdef Py_ssize_t count, reserved
    cdef PartitionQueue queue
    cdef BatchCore batch
    for queue, leader, node_id, leader_epoch in rows:
        batches = queue.batches
        batch = None
        count = object_size(batches)
        if count:
            queue.lock.take()
            try:
                count = object_size(batches)
                if count:
                    batch = <BatchCore?>sequence_item(batches, 0)
                    full = count > 1 or batch._is_ready()
                    if weigh_by:
                        reserved = 0
                        for waiting in batches:
                            reserved += (<BatchCore?>waiting).reserved_bytes
                        count = max(count, reserved // weigh_by)
                    if batch.current_leader_epoch is not leader_epoch:
                        batch.maybe_update_leader_epoch(leader_epoch)
            finally:
                queue.lock.give()
        if batch is None:
            if leader is not None:
                sizes.append(0)
            continue
        oldest_ms = min(oldest_ms, batch.created_ms)
        if leader is None:
            leaderless = True
            continue
        sizes.append(count)
        if queue.muted or node_id in ready_nodes:
            continue
        if not batch.attempts and (full or send_all):
            ready_nodes[node_id] = leader
            continue
        wait_ms = postponed(batch, full or send_all, now)
        if wait_ms < 0:
            ready_nodes[node_id] = leader
        else:
            delay_ms = min(delay_ms, wait_ms)
    return oldest_ms, delay_ms, leaderless


def take_batches(list rows, Py_ssize_t index, Py_ssize_t max_size, int64_t now, prepare, backs_off):
    """See `_append_state_pure`."""
    cdef list ready = []
    cdef Py_ssize_t size = 0, step, count = len(rows)
    cdef PartitionQueue queue
    cdef BatchCore batch
    for step in range(count):
        if step:
            index = index + 1 if index + 1 < count else 0
        row = rows[index]
        if row is None:
            continue
        queue, epoch = row
        batches = queue.batches
        if queue.muted or not object_size(batches):
            continue
        queue.lock.take()
        try:
            if not object_size(batches):
                continue
            batch = <BatchCore?>sequence_item(batches, 0)
            if batch.current_leader_epoch is not epoch:
                batch.maybe_update_leader_epoch(epoch)
            if batch.attempts and backs_off(batch, now):
                continue
            if ready and size + <Py_ssize_t>batch.estimated_size_in_bytes > max_size:
                break
            if not prepare(batch):
                continue
            batches.popleft()
        finally:
            queue.lock.give()
        size += len(batch.close())
        ready.append(batch)
        batch.drained_ms = max(batch.drained_ms, now)
    return ready, index


def load_table(queue_sizes):
    """See `_append_state_pure`."""
    cdef list sizes = list(queue_sizes)
    cdef list table = []
    cdef int64_t most = <int64_t>max(sizes) + 1, total = 0
    for size in sizes:
        total += most - <int64_t>size
        table.append(total)
    return table


# ---------------------------------------------------------------------------------------------------- the way in

@cython.final
cdef class FastSend:
    """Appends a record to the last batch of its partition, or to a new one if there is memory for it.

    `try_send` returns None where that is not all there is to it: nothing is known about the topic, memory has to be
    waited for, something is wrong. `send` takes the long way then.
    """

    cdef object _accumulator
    cdef object _pool
    cdef object _metadata
    cdef object _sender
    cdef object _manager
    cdef object _long_way
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
        long_way,
        Py_ssize_t max_size,
        Py_ssize_t batch_size,
        bint ignore_keys,
    ):
        self._accumulator = accumulator
        self._pool = accumulator.pool
        self._metadata = metadata
        self._sender = sender
        self._manager = manager
        self._long_way = long_way
        self._milliseconds = clock.milliseconds
        self._system_clock = type(clock) is SystemClock
        self._max_size = max_size
        self._batch_size = batch_size
        self._ignore_keys = ignore_keys

    def send(self, topic, value=None, key=None, headers=None, partition=None, timestamp_ms=None, callback=None):
        """`KafkaProducer.send`."""
        future = self._append(topic, value, key, headers, partition, timestamp_ms, callback)
        if future is None:
            return self._long_way(topic, value, key, headers, partition, timestamp_ms, callback)
        return future

    def try_send(self, topic, value, key, headers, partition, timestamp_ms, callback):
        """The same, or None if the record has to take the long way."""
        return self._append(topic, value, key, headers, partition, timestamp_ms, callback)

    cdef object _append(self, topic, value, key, headers, partition, timestamp_ms, callback):
        cdef Py_ssize_t size = OVERHEAD + 1
        cdef int32_t key_size = -1, value_size = -1
        cdef int64_t timestamp
        cdef timespec now
        cdef PyObject *found
        cdef TopicEntry entry
        cdef StickyPartitionInfo sticky = None
        cdef PartitionQueue queue
        cdef FutureRecordMetadata future
        cdef int tries
        cdef int wake = 0

        found = dict_get(self._accumulator.topics, topic)
        if found == NULL:
            return None
        entry = <TopicEntry?><object>found
        if entry.snapshot is not self._metadata.snapshot:
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

        if partition is not None:
            if not 0 <= partition < entry.partition_count:
                return None
        elif key is not None and not self._ignore_keys:
            partition = partition_for_key(key, entry.partition_count)

        # A second time if somebody, or this very record, has switched to another partition; more often is rare.
        for tries in range(3):
            if partition is None:
                sticky = entry.partitioner.sticky
                if sticky is None:
                    return None
                found = dict_get(entry.queues, sticky.partition)
            else:
                found = dict_get(entry.queues, partition)
            if found == NULL:
                return None
            queue = <PartitionQueue?><object>found
            future = FutureRecordMetadata.__new__(FutureRecordMetadata)
            future._timestamp_ms = timestamp
            future._key_size = key_size
            future._value_size = value_size
            queue.lock.take()
            try:
                wake = self._append_to(entry, queue, sticky, key, value, headers, callback, size, future)
            finally:
                queue.lock.give()
            if wake == GIVE_UP:
                return None
            if wake == SWITCHED:
                continue
            entry.touched = True
            if wake:
                self._sender.wake_for_work()
            return future
        return None

    cdef int _append_to(
        self,
        TopicEntry entry,
        PartitionQueue queue,
        StickyPartitionInfo sticky,
        object key,
        object value,
        object headers,
        object callback,
        Py_ssize_t size,
        FutureRecordMetadata future,
    ) except -1:
        """With the lock of the queue held. Whether the I/O thread has to hear of it, or why it was not done."""
        cdef Py_ssize_t count = object_size(queue.batches)
        cdef Py_ssize_t before = 0, after
        cdef RecordAppender appender
        cdef BatchCore batch = None
        cdef bint ready, is_new = False

        if self._accumulator.closed:
            return GIVE_UP
        if count:
            batch = <BatchCore?>sequence_item(queue.batches, count - 1)
            appender = batch._appender
            if appender is None or not appender._open:
                batch = None
            else:
                before = appender._estimate()
        if sticky is not None and (
            entry.partitioner.sticky is not sticky
            or ((batch is None or before >= batch.ready_size) and self._switches(entry, sticky))
        ):
            return SWITCHED
        if batch is not None:
            future._index = <int32_t>appender._next_delta
            if not appender._write(appender._next_delta, future._timestamp_ms, key, value, headers, True) and not (
                self._accumulator.expand(batch, size)
                and appender._write(appender._next_delta, future._timestamp_ms, key, value, headers, True)
            ):
                appender._open = False
                batch = None
                if sticky is not None and self._switches(entry, sticky):
                    return SWITCHED
        if batch is None:
            if size > self._batch_size or not self._pool.try_allocate(self._batch_size):
                return GIVE_UP
            batch = <BatchCore?>self._accumulator.add_batch(queue, self._batch_size, self._batch_size)
            is_new = True
            count += 1
            appender = batch._appender
            before = 0
            future._index = 0
            appender._write(0, future._timestamp_ms, key, value, headers, False)
        future._result = batch.produce_future
        if callback is not None:
            batch.add_thunk(future._index, callback, future)
        if size > batch.max_record_size:
            batch.max_record_size = size
        after = appender._estimate()
        ready = after >= batch.ready_size
        if sticky is not None:
            sticky.produced_bytes += after - before
            if sticky.produced_bytes >= 2 * self._batch_size or (ready and sticky.produced_bytes >= self._batch_size):
                entry.partitioner.update_partition_info(sticky, 0, entry.snapshot, ready)
        # With a second batch in the queue, the first one is ready: a third changes nothing for the I/O thread. Neither
        # do more records in one that was ready before.
        return count <= 2 if is_new else ready and before < batch.ready_size and count == 1

    cdef bint _switches(self, TopicEntry entry, StickyPartitionInfo sticky) except -1:
        """Does a switch that was put off because the last batch was not ready: now it is, or is gone."""
        if sticky.produced_bytes < self._batch_size:
            return False
        entry.partitioner.update_partition_info(sticky, 0, entry.snapshot, True)
        return entry.partitioner.sticky is not sticky


def current_core():
    """The number of the core that this thread runs on now, -1 if the system does not say."""
    return barnabas_core()
