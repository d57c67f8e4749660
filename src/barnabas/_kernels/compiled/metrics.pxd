from libc.stdint cimport int64_t

cdef enum:
    OCTAVES = 64

cdef struct Column:
    int64_t count
    double origin
    double distance
    double squares
    double low
    double high
    double zero
    double *pages[OCTAVES]


cdef class BucketTable:
    cdef Column *_columns
    cdef Py_ssize_t _size
    cdef double _alpha
    cdef double _divisor
    cdef double _weight
    cdef int64_t _epoch_ns
    cdef int64_t _tick_ns

    cdef int add_timeline(
        self,
        int64_t first,
        int64_t second,
        int64_t third,
        int64_t fourth,
        int64_t fifth,
        double aside,
        double unscaled,
        int64_t now_ns,
    ) except -1
    cdef int _check(self, Py_ssize_t column) except -1
    cdef double _scaled(self, value) except? -1
    cdef int _add(self, Column *column, double value) except -1
    cdef void _keep_time(self, int64_t now_ns) noexcept
    cdef void _rescale(self, double factor) noexcept


cdef class EventCount:
    cdef int64_t _count
    cdef int64_t _uncounted
    cdef int64_t _next_tick_ns
    cdef double _rates[3]
    cdef bint _started

    cdef int count_events(self, int64_t events, int64_t now_ns) except -1
    cdef void _tick(self, int64_t now_ns) noexcept
