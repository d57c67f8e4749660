# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=False
# cython: freethreading_compatible=True, binding=False
"""The append state of a batch, compiled: the twin of `pure.append_state`."""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_CheckExact
from cpython.tuple cimport PyTuple_CheckExact
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint64_t, uint8_t
from libc.string cimport memcpy, memset

from barnabas._kernels.compiled.record_codec cimport as_bytes, encode_headers, payload_size
from barnabas._kernels.compiled.varint cimport put_varint, varint_size, zigzag

cdef extern from "Python.h":
    Py_ssize_t PY_SSIZE_T_MAX
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1

cdef extern from "time.h" nogil:
    ctypedef long time_t
    ctypedef int clockid_t
    cdef struct timespec:
        time_t tv_sec
        long tv_nsec
    clockid_t CLOCK_REALTIME
    int clock_gettime(clockid_t clock, timespec *result)

cdef enum:
    BATCH_HEADER_SIZE = 61
    MAX_RECORD_OVERHEAD = 21
    SMALLEST_BUFFER = 512
    LARGEST_FIRST_BUFFER = 16384
    NO_LIMIT = -1


@cython.no_gc  # millions of them would slow down the collector; a listener's cycle ends with the batch
cdef class RecordFuture:
    """See `pure.append_state`."""

    cdef readonly object batch_result
    cdef readonly int64_t index
    cdef readonly int64_t timestamp_ms
    cdef readonly Py_ssize_t key_size
    cdef readonly Py_ssize_t value_size

    def __init__(self, batch_result, int64_t index, int64_t timestamp_ms, Py_ssize_t key_size, Py_ssize_t value_size):
        self.batch_result = batch_result
        self.index = index
        self.timestamp_ms = timestamp_ms
        self.key_size = key_size
        self.value_size = value_size


cdef class AppendState:
    """See `pure.append_state`.

    With the interpreter's lock, `accept` is atomic because no Python code runs in it once the batch was found open. On
    a free-threaded interpreter the critical sections make it so.
    """

    # The batch header's place, then the records, then room to grow. None once it has been taken.
    cdef bytearray _buffer
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _used
    cdef bint _open
    cdef bint _has_base_timestamp
    cdef int64_t _base_timestamp
    cdef int32_t _count
    cdef int64_t _next_delta
    cdef public Py_ssize_t max_size
    cdef public double size_factor
    cdef readonly int64_t max_timestamp
    cdef readonly int32_t offset_delta_of_max_timestamp

    # See `pure.append_state`.
    cdef public Py_ssize_t limit
    cdef public Py_ssize_t sticky_limit
    cdef Py_ssize_t _sticky_bytes
    cdef public Py_ssize_t max_record_size
    cdef public list thunks
    cdef type _future_type
    cdef object _result
    cdef object _now

    def __init__(self, base_timestamp, Py_ssize_t max_size, double size_factor):
        self._has_base_timestamp = base_timestamp is not None
        self._base_timestamp = check_timestamp(base_timestamp) if self._has_base_timestamp else -1
        self.max_size = max_size
        self.size_factor = size_factor
        self.max_timestamp = -1
        self.offset_delta_of_max_timestamp = -1
        self._capacity = min(max(max_size, SMALLEST_BUFFER), LARGEST_FIRST_BUFFER)
        self._buffer = PyByteArray_FromStringAndSize(NULL, self._capacity)
        memset(PyByteArray_AS_STRING(self._buffer), 0, BATCH_HEADER_SIZE)
        self._used = BATCH_HEADER_SIZE
        self._open = True
        self._count = 0
        self._next_delta = 0

    @property
    def base_timestamp(self):
        """The timestamp that deltas count from: the first record's, unless given; -1 before the first record."""
        return self._base_timestamp

    @property
    def record_count(self):
        return self._count

    @property
    def last_offset_delta(self):
        """The offset delta of the record appended last; -1 before the first."""
        return self._next_delta - 1

    @property
    def records_size(self):
        """The bytes of all records so far, before compression."""
        return self._used - BATCH_HEADER_SIZE

    @property
    def is_open(self):
        return self._open

    @property
    def estimated_size(self):
        """What the batch is expected to take up if it is closed now, header included."""
        return self._estimate()

    @cython.final
    cdef inline Py_ssize_t _estimate(self, Py_ssize_t more=0) noexcept:
        return BATCH_HEADER_SIZE + <Py_ssize_t>(<double>(self._used + more - BATCH_HEADER_SIZE) * self.size_factor)

    def give_futures(self, type future_type, result, now):
        """Makes `accept` create futures of this subclass of `RecordFuture`. ``now``: see `pure.append_state`."""
        if not issubclass(future_type, RecordFuture):
            raise TypeError(f"futures must be of a subclass of RecordFuture: {future_type}")
        self._future_type = future_type
        self._result = result
        self._now = now

    @cython.critical_section
    def take_sticky_bytes(self):
        """Returns the bytes that `accept` has appended for the sticky partition since the last call."""
        cdef Py_ssize_t taken = self._sticky_bytes
        self._sticky_bytes = 0
        return taken

    def add_thunk(self, index, callback, future):
        """Has ``callback`` called with the metadata of ``future`` when the batch is done."""
        if self.thunks is None:
            self.thunks = []
        self.thunks.append([index, callback, future])

    @cython.critical_section
    def append(self, timestamp_ms, key, value, headers=()):
        """Adds a record at the next offset; returns its offset delta."""
        cdef int64_t delta = self._next_delta
        self._write(delta, check_timestamp(timestamp_ms), key, value, encoded(headers), NO_LIMIT)
        return delta

    @cython.critical_section
    def append_with_delta(self, offset_delta, timestamp_ms, key, value, headers=()):
        """Adds a record with an offset delta of its own, which may leave a gap but not go back."""
        cdef int overflow = 0
        cdef int64_t delta = PyLong_AsLongLongAndOverflow(offset_delta, &overflow)
        if overflow:
            raise ValueError(f"offset delta {offset_delta} does not follow {self._next_delta - 1} within 31 bits")
        self._write(delta, check_timestamp(timestamp_ms), key, value, encoded(headers), NO_LIMIT)
        return delta

    @cython.critical_section
    def try_append(self, timestamp_ms, key, value, headers=()):
        """`append` where `has_room_for` allows it, in one call; None where it does not."""
        cdef int64_t delta = self._next_delta
        cdef int64_t timestamp = check_timestamp(timestamp_ms)
        if not self._open or not self._write(delta, timestamp, key, value, encoded(headers), PY_SSIZE_T_MAX):
            return None
        return delta

    @cython.critical_section
    def has_room_for(self, key, value, headers=(), timestamp_ms=None):
        """Whether one more record should stay within `max_size`; without a timestamp, the longest delta is assumed."""
        cdef Py_ssize_t size
        cdef uint64_t difference
        if not self._open:
            return False
        if self._count == 0:
            return True
        size = 1 + varint_size(<uint64_t>self._next_delta << 1) + payload_size(key, value, headers)
        if timestamp_ms is None:
            size += 10
        else:
            # Unsigned: it wraps for the one difference that is too large, which still comes to ten bytes.
            difference = <uint64_t>check_timestamp(timestamp_ms) - <uint64_t>self._base_timestamp
            size += varint_size(zigzag(<int64_t>difference))
        size += varint_size(<uint64_t>size << 1)
        return size <= self.max_size - self._estimate()

    @cython.critical_section
    def accept(self, timestamp_ms, key, value, headers, callback, bint sticky, bint decided=False):
        """Appends a record and returns its future, or None if the record is rejected: see `pure.append_state`."""
        cdef Py_ssize_t before
        cdef int64_t timestamp, index
        cdef bytes header_bytes
        cdef list thunk = None
        cdef type kind = self._future_type
        cdef RecordFuture future
        cdef timespec now
        if not self._open or (sticky and not decided and self._estimate() >= self.sticky_limit):
            return None
        if (key is not None and not PyBytes_CheckExact(key)) or (value is not None and not PyBytes_CheckExact(value)):
            return None
        if headers and not PyList_CheckExact(headers) and not PyTuple_CheckExact(headers):
            return None
        header_bytes = encoded(headers)
        if timestamp_ms is not None:
            timestamp = timestamp_ms
            if timestamp < 0:
                return None
        elif self._now is None:
            clock_gettime(CLOCK_REALTIME, &now)
            timestamp = <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000
        else:
            timestamp = self._now()
        future = <RecordFuture>kind.__new__(kind)  # without `__init__`: its fields are set below
        if callback is not None:
            thunk = [None, callback, future]
            if self.thunks is None:
                self.thunks = []
        # Each allocation above can run the garbage collector, and any code with it. Nothing below does, so that the
        # batch cannot be closed before the record is written and its future is complete.
        if not self._open:
            return None
        before = self._estimate()
        if sticky and not decided and before >= self.sticky_limit:
            return None
        index = self._next_delta
        if not self._write(index, timestamp, key, value, header_bytes, PY_SSIZE_T_MAX if decided else self.limit):
            return None
        if sticky:
            # The first record brings the header with it.
            self._sticky_bytes += self._estimate() - (before if self._count > 1 else 0)
        future.batch_result = self._result
        future.index = index
        future.timestamp_ms = timestamp
        future.key_size = -1 if key is None else PyBytes_GET_SIZE(key)
        future.value_size = -1 if value is None else PyBytes_GET_SIZE(value)
        if thunk is not None:
            thunk[0] = index
            self.thunks.append(thunk)
        return future

    @cython.final
    cdef inline bint _write(
        self, int64_t delta, int64_t timestamp, object key, object value, bytes header_bytes, Py_ssize_t limit
    ) except -1:
        """Writes a record; checks everything before it changes anything. With a limit, False if the record does not fit
        or makes the batch reach it."""
        cdef int64_t base
        cdef Py_ssize_t key_length = -1, value_length = -1, payload, body, size
        cdef uint64_t timestamp_delta
        cdef bytes key_bytes = None, value_bytes = None
        cdef uint8_t *out

        if not self._open:
            raise RuntimeError("this batch is closed: no more records can be appended")
        if delta < self._next_delta or delta > INT32_MAX:
            raise ValueError(f"offset delta {delta} does not follow {self._next_delta - 1} within 31 bits")
        base = self._base_timestamp if self._has_base_timestamp else timestamp
        # Both are -1 or more, so this is the one difference that 64 bits cannot hold.
        if timestamp == INT64_MAX and base == -1:
            raise ValueError(f"timestamp {timestamp} is too far from the base timestamp {base}")
        timestamp_delta = zigzag(timestamp - base)
        if key is None:
            payload = 1
        else:
            key_bytes = <bytes>key if PyBytes_CheckExact(key) else as_bytes(key)
            key_length = PyBytes_GET_SIZE(key_bytes)
            payload = varint_size(<uint64_t>key_length << 1) + key_length
        if value is None:
            payload += 1
        else:
            value_bytes = <bytes>value if PyBytes_CheckExact(value) else as_bytes(value)
            value_length = PyBytes_GET_SIZE(value_bytes)
            payload += varint_size(<uint64_t>value_length << 1) + value_length
        payload += 1 if header_bytes is None else PyBytes_GET_SIZE(header_bytes)
        body = 1 + varint_size(timestamp_delta) + varint_size(<uint64_t>delta << 1) + payload
        size = body + varint_size(<uint64_t>body << 1)
        if limit != NO_LIMIT and (
            (self._count != 0 and size > self.max_size - self._estimate()) or self._estimate(size) >= limit
        ):
            return False
        if self._used + size > INT32_MAX:
            raise ValueError(f"a record of {size} bytes makes the batch larger than 2 GiB")
        if self._used + size > self._capacity:
            self._grow(size)

        out = <uint8_t *>PyByteArray_AS_STRING(self._buffer) + self._used
        out = put_varint(out, <uint64_t>body << 1)
        out[0] = 0
        out = put_varint(out + 1, timestamp_delta)
        out = put_varint(out, <uint64_t>delta << 1)
        if key_length < 0:
            out = put_varint(out, 1)
        else:
            out = put_varint(out, <uint64_t>key_length << 1)
            memcpy(out, PyBytes_AS_STRING(key_bytes), key_length)
            out += key_length
        if value_length < 0:
            out = put_varint(out, 1)
        else:
            out = put_varint(out, <uint64_t>value_length << 1)
            memcpy(out, PyBytes_AS_STRING(value_bytes), value_length)
            out += value_length
        if header_bytes is None:
            out[0] = 0
        else:
            memcpy(out, PyBytes_AS_STRING(header_bytes), PyBytes_GET_SIZE(header_bytes))

        self._base_timestamp = base
        self._has_base_timestamp = True
        self._used += size
        self._count += 1
        self._next_delta = delta + 1
        if BATCH_HEADER_SIZE + MAX_RECORD_OVERHEAD + payload > self.max_record_size:
            self.max_record_size = BATCH_HEADER_SIZE + MAX_RECORD_OVERHEAD + payload
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.offset_delta_of_max_timestamp = <int32_t>delta
        return True

    @cython.final
    cdef int _grow(self, Py_ssize_t size) except -1:
        cdef Py_ssize_t capacity = max(self._used + size, self._capacity * 2)
        PyByteArray_Resize(self._buffer, capacity)
        self._capacity = capacity
        return 0

    @cython.critical_section
    def close_for_appends(self):
        """No more records from here on; what is there waits for `take`."""
        self._open = False

    @cython.critical_section
    def take(self, Py_ssize_t reserve):
        """All records in one buffer, behind `reserve` bytes of zeros for the header. Works once."""
        cdef bytearray buffer = self._buffer
        self._open = False
        if buffer is None:
            raise RuntimeError("the records of this batch have been taken already")
        self._buffer = None
        PyByteArray_Resize(buffer, self._used)
        # The place of a batch header is there already; any other size is for tests and pays with a copy.
        if reserve != BATCH_HEADER_SIZE:
            buffer[:BATCH_HEADER_SIZE] = bytes(reserve)
        return buffer


cdef inline int64_t check_timestamp(object timestamp_ms) except? -2:
    cdef int overflow = 0
    cdef int64_t timestamp = PyLong_AsLongLongAndOverflow(timestamp_ms, &overflow)
    if overflow or timestamp < -1:
        raise ValueError(f"invalid timestamp {timestamp_ms}")
    return timestamp


cdef inline bytes encoded(object headers):
    return encode_headers(headers) if headers else None
