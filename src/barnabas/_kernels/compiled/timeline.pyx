# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=False
# cython: freethreading_compatible=True, binding=False, auto_pickle=False
"""The moments of a request, compiled: the twin of `pure.timeline`, which explains it."""

cimport cython
from cpython.dict cimport PyDict_GetItemWithError
from cpython.ref cimport PyObject
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int64_t

from barnabas._kernels.compiled.metrics cimport BucketTable, EventCount

cdef enum:
    UNSET = -1

NOT_SET = UNSET


cdef class Timeline:
    """All fields of a request."""

    def __init__(self, processor_id, context, header, payload, pool, int64_t start_time_ns, times):
        if not PyTuple_Check(header) or PyTuple_GET_SIZE(header) != 5:
            raise TypeError(f"a header of five parts, not {header!r}")
        self.api_key = <object>PyTuple_GET_ITEM(header, 0)
        self.api_version = <object>PyTuple_GET_ITEM(header, 1)
        self.correlation_id = <object>PyTuple_GET_ITEM(header, 2)
        self.client_id = <object>PyTuple_GET_ITEM(header, 3)
        self.body_start = <object>PyTuple_GET_ITEM(header, 4)
        self.processor_id = processor_id
        self.context = context
        self.connection_id = context.connection_id
        self.buffer = payload
        self.size = len(payload)
        self._pool = pool
        self.times = times
        self.start_time_ns = start_time_ns
        self.request_dequeue_time_ns = UNSET
        self.api_local_complete_time_ns = UNSET
        self.response_complete_time_ns = UNSET
        self.response_dequeue_time_ns = UNSET
        self.callback_request_dequeue_time_ns = UNSET
        self.callback_request_complete_time_ns = UNSET
        self._awaits_response = True

    @property
    def awaits_response(self):
        """Whether no response has ended this request yet."""
        return self._awaits_response

    def claim_response(self):
        """Whether the caller may send the one response that ends this request; true once."""
        return self.claim()

    cdef bint claim(self) except -1:
        cdef bint mine
        with cython.critical_section(self):
            mine = self._awaits_response
            self._awaits_response = False
        return mine

    def finish(self, int64_t now_ns):
        """Claims the complete response: sets T3, and ends everything still in progress."""
        if not self.claim():
            return False
        self.response_complete_time_ns = now_ns
        if self.api_local_complete_time_ns == UNSET:
            self.api_local_complete_time_ns = now_ns
        if self.callback_request_dequeue_time_ns != UNSET and self.callback_request_complete_time_ns == UNSET:
            self.callback_request_complete_time_ns = now_ns
        return True

    def handler_done(self, clock):
        """Records that the handler has returned: without a response, the request now waits for others."""
        if self.api_local_complete_time_ns == UNSET:
            self.api_local_complete_time_ns = clock()
        self._release()

    def release_buffer(self):
        """Releases the memory. Views that a handler still holds stay valid; only the count of the pool goes down."""
        self._release()

    cdef int _release(self) except -1:
        cdef bint mine
        with cython.critical_section(self):
            mine = self.buffer is not None
            self.buffer = None
        if mine and self._pool.bounded:
            self._pool.release(self.size)
        return 0

    def complete(self, int64_t network_thread_time_ns, response):
        """Ends the request: writes its timeline into the metrics."""
        if network_thread_time_ns and self.record_network_thread_time is not None:
            self.record_network_thread_time(network_thread_time_ns)
        self.times.record(self, response)

    def record_in(self, metrics, int64_t now_ns):
        """Turns six moments, the last of which is now, into the seven durations of an API's metrics."""
        self.write_to(metrics, now_ns)

    cdef int write_to(self, metrics, int64_t now_ns) except -1:
        cdef int64_t start = self.start_time_ns
        cdef int64_t dequeued = self.request_dequeue_time_ns
        cdef int64_t local = self.api_local_complete_time_ns
        cdef int64_t completed = self.response_complete_time_ns
        cdef int64_t taken = self.response_dequeue_time_ns
        cdef BucketTable table = metrics.table
        cdef dict counts = metrics.counts
        cdef PyObject *found
        if dequeued < 0 or local < 0 or local > completed or taken < completed:
            dequeued = max(dequeued, start)
            completed = now_ns if completed < 0 else max(completed, dequeued)
            local = completed if local < 0 else min(max(local, dequeued), completed)
            taken = max(taken, completed)
        if self.callback_request_dequeue_time_ns >= 0 and self.callback_request_complete_time_ns >= 0:
            local = min(
                local + self.callback_request_complete_time_ns - self.callback_request_dequeue_time_ns, completed
            )
        table.add_timeline(
            start, dequeued, local, completed, taken, self.api_throttle_time_ms, self.size, now_ns
        )
        found = PyDict_GetItemWithError(counts, self.api_version)
        count = metrics.new_count(self.api_version) if found == NULL else <object>found
        (<EventCount?>count).count_events(1, now_ns)
        return 0


cdef class TimelineRecorder:
    """Writes the timelines of requests that have ended into the metrics of their APIs."""

    cdef object _now
    cdef dict _by_api
    cdef object _new_metrics
    cdef object _twice_counted
    cdef object _second_metrics
    cdef public object listener
    cdef public int64_t untold

    def __init__(self, clock, dict by_api not None, new_metrics, twice_counted, second_metrics):
        self._now = clock
        self._by_api = by_api
        self._new_metrics = new_metrics
        self._twice_counted = twice_counted
        self._second_metrics = second_metrics

    def record(self, Timeline request not None, response):
        """Records a request that has ended: see `Timeline.record_in` for its durations."""
        cdef PyObject *found
        cdef int64_t now = self._now()
        found = PyDict_GetItemWithError(self._by_api, request.api_key)
        request.write_to(self._new_metrics(request.api_key) if found == NULL else <object>found, now)
        if request.api_key is self._twice_counted:
            request.write_to(self._second_metrics(request), now)
        if self.listener is not None:
            self.untold -= 1
            if self.untold < 0:
                self.listener(request, response, now)
