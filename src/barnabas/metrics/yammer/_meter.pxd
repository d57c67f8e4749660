from libc.stdint cimport int64_t


cdef class EventCount:
    cdef int64_t _count
    cdef int64_t _uncounted
    cdef int64_t _next_tick_ns
    cdef double _rates[3]
    cdef bint _started

    cdef int count_events(self, int64_t events, int64_t now_ns) except -1
    cdef void _tick(self, int64_t now_ns) noexcept
