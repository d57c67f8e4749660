# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=False
# cython: freethreading_compatible=True
"""The count of a meter, compiled: the twin of `_meter_pure`, where the idea is told."""

cimport cython
from libc.math cimport exp, pow
from libc.stdint cimport int64_t

cdef int64_t TICK_NS = 5_000_000_000
cdef double[3] ALPHAS
ALPHAS[0] = 1 - exp(-5.0 / 60 / 1)
ALPHAS[1] = 1 - exp(-5.0 / 60 / 5)
ALPHAS[2] = 1 - exp(-5.0 / 60 / 15)


cdef class EventCount:
    """How many events there were, and how many per nanosecond over the last 1, 5 and 15 minutes."""

    def __init__(self, int64_t start_ns):
        self._next_tick_ns = start_ns + TICK_NS

    def add(self, int64_t events, int64_t now_ns):
        self.count_events(events, now_ns)

    cdef int count_events(self, int64_t events, int64_t now_ns) except -1:
        with cython.critical_section(self):
            if now_ns >= self._next_tick_ns:
                self._tick(now_ns)
            self._count += events
            self._uncounted += events
        return 0

    @property
    def count(self):
        return self._count

    def rate(self, Py_ssize_t which, int64_t now_ns):
        """Of the last 1, 5 or 15 minutes: `which` is the place among these."""
        cdef double found
        if not 0 <= which < 3:
            raise IndexError(f"the moving average {which} of 3")
        with cython.critical_section(self):
            if now_ns >= self._next_tick_ns:
                self._tick(now_ns)
            found = self._rates[which]
        return found

    cdef void _tick(self, int64_t now_ns) noexcept:
        cdef int64_t ticks = (now_ns - self._next_tick_ns) // TICK_NS + 1
        cdef double rate = self._uncounted / <double>TICK_NS
        cdef Py_ssize_t i
        self._next_tick_ns += ticks * TICK_NS
        for i in range(3):
            if self._started:
                self._rates[i] += ALPHAS[i] * (rate - self._rates[i])
            else:
                self._rates[i] = rate
            if ticks > 1:
                self._rates[i] *= pow(1 - ALPHAS[i], <double>(ticks - 1))
        self._started = True
        self._uncounted = 0
