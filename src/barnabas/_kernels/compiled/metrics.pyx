# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=False
# cython: freethreading_compatible=True, binding=False
"""The buckets of histograms and the counts of meters: the twin of `pure.metrics`, which explains them.

A column keeps its weights in pages of one power of two each, allocated with the first value: request times spread over
six to eight of them, so a column takes about 8 KiB.

A critical section is the lock of the object in free-threaded Python, and costs nothing with the GIL. Inside it, no
Python object is created or called, so no other thread can run in between: numbers are converted before, results are
created after.
"""

cimport cython
from libc.math cimport exp, isfinite, ldexp, pow
from libc.stdint cimport int64_t
from libc.string cimport memcpy
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc

cdef enum:
    STEPS = 128
    STEP_BITS = 7
    LOWEST_EXPONENT = -20
    MAX_COLUMNS = 32
    LAST = OCTAVES * STEPS - 1
    DOUBLE_FRACTION_BITS = 52
    DOUBLE_BIAS = 1023

cdef double RESCALE_EXPONENT = 64.0
cdef double NEGLIGIBLE = 1e-12
cdef double SMALLEST = 2.0 ** LOWEST_EXPONENT
cdef int64_t SECOND_NS = 1_000_000_000
# A double's exponent and fraction are adjacent, so its leading bits count steps. Adding half a step rounds to the
# nearest one.
cdef int64_t HALF_STEP = (<int64_t>1) << (DOUBLE_FRACTION_BITS - STEP_BITS - 1)
cdef int64_t FIRST_STEP = (<int64_t>(DOUBLE_BIAS + LOWEST_EXPONENT)) << STEP_BITS


cdef int64_t TICK_NS = 5_000_000_000
cdef double[3] ALPHAS
ALPHAS[0] = 1 - exp(-5.0 / 60 / 1)
ALPHAS[1] = 1 - exp(-5.0 / 60 / 5)
ALPHAS[2] = 1 - exp(-5.0 / 60 / 15)


cdef class BucketTable:
    """Columns of decaying buckets that are updated together, and so share the clock and the weight."""

    def __cinit__(self, Py_ssize_t columns, double alpha, int64_t start_ns, double divisor=1.0):
        if not 1 <= columns <= MAX_COLUMNS:
            raise ValueError(f"a table of {columns} columns: from 1 to {MAX_COLUMNS} are possible")
        if not divisor > 0:
            raise ValueError(f"values divided by {divisor}")
        self._columns = <Column *>PyMem_Calloc(columns, sizeof(Column))
        if self._columns == NULL:
            raise MemoryError(f"a table of {columns} columns")
        self._size = columns
        self._alpha = alpha
        self._divisor = divisor
        self._epoch_ns = start_ns
        self._tick_ns = start_ns
        self._weight = 1.0

    def __dealloc__(self):
        cdef Py_ssize_t i, octave
        if self._columns != NULL:
            for i in range(self._size):
                for octave in range(OCTAVES):
                    PyMem_Free(self._columns[i].pages[octave])
        PyMem_Free(self._columns)

    def add_row(self, tuple values not None, int64_t now_ns):
        """Adds one value to each column; adds none if any value is not finite."""
        cdef Py_ssize_t i
        cdef double row[MAX_COLUMNS]
        if len(values) != self._size:
            raise ValueError(f"{len(values)} values for {self._size} columns")
        for i in range(self._size):
            row[i] = self._scaled(values[i])
        with cython.critical_section(self):
            self._keep_time(now_ns)
            for i in range(self._size):
                self._add(&self._columns[i], row[i])

    def add_moments(
        self, int64_t first, int64_t second, int64_t third, int64_t fourth, int64_t fifth, double aside,
        double unscaled, int64_t now_ns,
    ):
        """Adds the intervals between six moments, the last of which is now: see the twin."""
        self.add_timeline(first, second, third, fourth, fifth, aside, unscaled, now_ns)

    cdef int add_timeline(
        self, int64_t first, int64_t second, int64_t third, int64_t fourth, int64_t fifth, double aside,
        double unscaled, int64_t now_ns,
    ) except -1:
        cdef Py_ssize_t i
        cdef double row[8]
        if self._size != 8:
            raise ValueError(f"8 values for {self._size} columns")
        row[0] = (second - first) / self._divisor
        row[1] = (third - second) / self._divisor
        row[2] = (fourth - third) / self._divisor
        row[3] = aside
        row[4] = (fifth - fourth) / self._divisor
        row[5] = (now_ns - fifth) / self._divisor
        row[6] = (now_ns - first) / self._divisor
        row[7] = unscaled
        if not (isfinite(aside) and isfinite(unscaled)):
            raise ValueError(f"a histogram takes finite numbers, not {aside!r} and {unscaled!r}")
        with cython.critical_section(self):
            self._keep_time(now_ns)
            for i in range(8):
                self._add(&self._columns[i], row[i])
        return 0

    def add(self, Py_ssize_t column, value, int64_t now_ns):
        """Adds one value to one column."""
        cdef double scaled = self._scaled(value)
        self._check(column)
        with cython.critical_section(self):
            self._keep_time(now_ns)
            self._add(&self._columns[column], scaled)

    def add_all(self, Py_ssize_t column, values, int64_t now_ns):
        """Adds many values to one column; adds none if any value is not finite."""
        cdef list items = list(values)
        cdef Py_ssize_t i
        cdef Py_ssize_t count = len(items)
        cdef double *scaled = <double *>PyMem_Malloc(max(count, 1) * sizeof(double))
        if scaled == NULL:
            raise MemoryError(f"{count} values of a histogram")
        try:
            for i in range(count):
                scaled[i] = self._scaled(items[i])
            self._check(column)
            with cython.critical_section(self):
                self._keep_time(now_ns)
                for i in range(count):
                    self._add(&self._columns[column], scaled[i])
        finally:
            PyMem_Free(scaled)

    def read(self, Py_ssize_t column):
        """Returns the totals, the values of all non-empty steps in ascending order, and their weights."""
        cdef Column copy
        cdef Py_ssize_t octave, step
        cdef Py_ssize_t pages = 0
        cdef double *weights = NULL
        cdef double *page
        cdef list found_values = []
        cdef list found_weights = []
        self._check(column)
        try:
            with cython.critical_section(self):
                copy = self._columns[column]
                for octave in range(OCTAVES):
                    if copy.pages[octave] != NULL:
                        pages += 1
                weights = <double *>PyMem_Malloc(max(pages, 1) * STEPS * sizeof(double))
                if weights != NULL:
                    page = weights
                    for octave in range(OCTAVES):
                        if copy.pages[octave] != NULL:
                            memcpy(page, copy.pages[octave], STEPS * sizeof(double))
                            copy.pages[octave] = page
                            page += STEPS
            if weights == NULL:
                raise MemoryError("a copy of histogram buckets")
            if copy.zero > 0:
                found_values.append(0.0)
                found_weights.append(copy.zero)
            for octave in range(OCTAVES):
                page = copy.pages[octave]
                if page == NULL:
                    continue
                for step in range(STEPS):
                    if page[step] > 0:
                        found_values.append(ldexp(<double>(STEPS + step), <int>(octave + LOWEST_EXPONENT - STEP_BITS)))
                        found_weights.append(page[step])
        finally:
            PyMem_Free(weights)
        totals = (copy.count, copy.origin, copy.distance, copy.squares, copy.low, copy.high)
        return totals, found_values, found_weights

    cdef int _check(self, Py_ssize_t column) except -1:
        if not 0 <= column < self._size:
            raise IndexError(f"column {column} of {self._size}")
        return 0

    cdef double _scaled(self, value) except? -1:
        cdef double scaled = <double>value / self._divisor
        if not isfinite(scaled):
            raise ValueError(f"a histogram takes finite numbers, not {value!r}")
        return scaled

    cdef int _add(self, Column *column, double value) except -1:
        cdef int64_t step
        cdef double distance
        cdef double *page
        if value >= SMALLEST:
            memcpy(&step, &value, sizeof(step))
            step = ((step + HALF_STEP) >> (DOUBLE_FRACTION_BITS - STEP_BITS)) - FIRST_STEP
            if step > LAST:
                step = LAST
            page = column.pages[step >> STEP_BITS]
            if page == NULL:
                page = <double *>PyMem_Calloc(STEPS, sizeof(double))
                if page == NULL:
                    raise MemoryError("a page of histogram buckets")
                column.pages[step >> STEP_BITS] = page
            page[step & (STEPS - 1)] += self._weight
        else:
            column.zero += self._weight
        if column.count:
            if value < column.low:
                column.low = value
            elif value > column.high:
                column.high = value
        else:
            column.origin = column.low = column.high = value
        column.count += 1
        distance = value - column.origin
        column.distance += distance
        column.squares += distance * distance
        return 0

    cdef void _keep_time(self, int64_t now_ns) noexcept:
        """Updates `_weight` to the one of this second."""
        cdef int64_t seconds
        cdef double exponent
        if 0 <= now_ns - self._tick_ns < SECOND_NS:
            return
        seconds = (now_ns - self._epoch_ns) // SECOND_NS if now_ns > self._epoch_ns else 0
        exponent = self._alpha * seconds
        if exponent > RESCALE_EXPONENT:
            self._rescale(exp(-exponent))
            self._epoch_ns += seconds * SECOND_NS
            seconds = 0
            exponent = 0.0
        self._weight = exp(exponent)
        self._tick_ns = self._epoch_ns + seconds * SECOND_NS

    cdef void _rescale(self, double factor) noexcept:
        cdef Py_ssize_t i, octave, step
        cdef Column *column
        cdef double *page
        cdef bint used
        for i in range(self._size):
            column = &self._columns[i]
            column.zero *= factor
            if column.zero < NEGLIGIBLE:
                column.zero = 0
            for octave in range(OCTAVES):
                page = column.pages[octave]
                if page == NULL:
                    continue
                used = False
                for step in range(STEPS):
                    page[step] *= factor
                    if page[step] < NEGLIGIBLE:
                        page[step] = 0
                    else:
                        used = True
                if not used:
                    PyMem_Free(page)
                    column.pages[octave] = NULL


cdef class EventCount:
    """Counts events, and computes their rate per nanosecond over the last 1, 5 and 15 minutes."""

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
        """Returns the rate of the last 1, 5 or 15 minutes: `which` is the index among these."""
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
