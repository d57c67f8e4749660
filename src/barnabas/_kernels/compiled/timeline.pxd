from libc.stdint cimport int64_t


cdef class Timeline:
    cdef public object api_key
    cdef public object client_id
    cdef public object connection_id
    cdef public object context
    cdef public object buffer
    cdef public object times
    cdef public object record_network_thread_time
    cdef public object _body
    cdef public object _pool
    cdef public object processor_id
    cdef public object api_version
    cdef public int correlation_id
    cdef public Py_ssize_t body_start
    cdef public Py_ssize_t size
    cdef public int64_t api_throttle_time_ms
    cdef public int64_t start_time_ns
    cdef public int64_t request_dequeue_time_ns
    cdef public int64_t api_local_complete_time_ns
    cdef public int64_t response_complete_time_ns
    cdef public int64_t response_dequeue_time_ns
    cdef public int64_t callback_request_dequeue_time_ns
    cdef public int64_t callback_request_complete_time_ns
    cdef bint _awaits_response

    cdef bint claim(self) except -1
    cdef int _release(self) except -1
    cdef int write_to(self, metrics, int64_t now_ns) except -1
