# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: freethreading_compatible=True, auto_pickle=False
"""The compiled half of `barnabas.records.columns.arrow`: records sections from raw Arrow memory, and back.

Everything here works on the *records section* of a batch, the bytes after its 61-byte header, once decompressed.
Both directions go over their input twice, so that each output is allocated once, at its exact size:

    encode   `Encoder.measure` computes how many records fit and their size, `Encoder.write` writes them
    decode   `Section` checks every byte, counts, and records where fields are; `Section.fill` copies them into the
             buffers of a `ColumnSink`

Long keys and values are the exception: `plain_sections` copies them right after it computes their checksum, into
buffers of an upper bound of the size, because loading them into the processor's cache a second time takes most of the
time. The other fields of these records are copied with them. Batches in a file are read one block at a time to the
final place of the values; then only the gaps between values are closed.

The loops use no Python object and run without the GIL. They access the memory of Arrow's buffers through the buffer
protocol, so nothing is linked against Arrow's own libraries. `pure.columns` is the twin with the same classes. Both
report damage with `section_error`.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_IsContiguous, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_Check,
    PyByteArray_FromStringAndSize,
    PyByteArray_Resize,
)
from cpython.memoryview cimport PyMemoryView_Check, PyMemoryView_GET_BUFFER
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove, memset

from barnabas._kernels.compiled.batch_header cimport *
from barnabas._kernels.compiled.faults cimport *
from barnabas._kernels.compiled.octets cimport int16_at, int32_at, int64_at
from barnabas._kernels.compiled.varint cimport get_varint, get_varlong, put_varint, short_number, varint_size, zigzag
from barnabas._kernels.compiled.checksum cimport crc32c_of
from barnabas._kernels.compiled.murmur2 cimport murmur

from barnabas._kernels.faults import section_error

cdef extern from "columns.h":
    # Prefetches memory that will be read soon.
    void fetch_early(const void *address) noexcept nogil

cdef extern from "columns.h":
    # Reads `size` bytes; returns whether all could be read.
    bint read_file(int fd, void *into, size_t size, long long position) noexcept nogil

cdef extern from "recycled_memory.h" nogil:
    void *recycled_take(size_t size) noexcept
    void recycled_give(void *memory) noexcept

cdef enum:
    # How many records ahead to prefetch: the processor does not predict the lines of records of some hundred bytes.
    EARLY = 8

cdef enum:
    MAX_SECTION = 2147483647 - HEADER_SIZE
    # length, attributes, timestamp delta, offset delta, key length, value length, header count: a byte each at least.
    MIN_RECORD = 7
    # A header is at least two lengths.
    MIN_HEADER = 2
    # The bytes that a view can hold, besides the length.
    INLINE = 12

READING_ROOM = 1 << 18

cdef enum:
    # How many bytes are checksummed before their records are read.
    BLOCK = 1 << 16
    # From this size on, the GIL is released during the scan. A smaller section takes less time than it takes to get
    # the GIL back from a thread that computes.
    LONG_WALK = 1 << 17
    # A cache line. Reading from a file is a third faster if source and target have the same position in their lines,
    # and five times slower if the target is slightly ahead of the source in its page.
    LINE = 64
    # The bytes that `usual_record` reads without checking the end: four numbers of three bytes, and one byte.
    ENOUGH = 16
    # Numbers of three bytes are below this.
    SHORT_DELTA = 1 << 20

@cython.final
cdef class _Lease:
    """Holds the memory of one object through the buffer protocol."""

    cdef Py_buffer view
    cdef bint held

    def __cinit__(self, source, bint writable=False):
        self.held = False
        PyObject_GetBuffer(source, &self.view, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
        self.held = True

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef inline _Lease lease(source):
    return None if source is None else _Lease(source)


# --- encode ---------------------------------------------------------------------------------------------------------


cdef inline int64_t offset_at(const char *offsets, bint wide, int64_t index) noexcept nogil:
    # memcpy, because an Arrow buffer need not be aligned. It compiles to one load.
    cdef int32_t narrow
    cdef int64_t value
    if wide:
        memcpy(&value, offsets + index * 8, 8)
        return value
    memcpy(&narrow, offsets + index * 4, 4)
    return narrow


cdef inline bint is_valid(const uint8_t *bitmap, int64_t index) noexcept nogil:
    return bitmap == NULL or (bitmap[index >> 3] >> (index & 7)) & 1


@cython.final
cdef class BinaryColumn:
    """A binary or string Arrow array as raw memory: validity bits, 32- or 64-bit offsets, bytes.

    `first` is the array's own offset (a sliced array shares its parent's buffers), `length` its number of elements.
    """

    cdef _Lease validity_lease, offsets_lease, data_lease
    cdef const uint8_t *validity
    cdef const char *offsets
    cdef const uint8_t *data
    cdef int64_t data_size
    cdef int64_t first
    cdef int64_t length
    cdef bint wide

    def __cinit__(self, validity, offsets, data, bint wide, int64_t first, int64_t length):
        cdef int64_t width = 8 if wide else 4
        if first < 0 or length < 0:
            raise ValueError("an Arrow array cannot start or end before its buffers do")
        self.validity_lease, self.offsets_lease, self.data_lease = lease(validity), lease(offsets), lease(data)
        self.wide, self.first, self.length = wide, first, length
        self.validity = self.offsets = self.data = NULL
        self.data_size = 0
        if self.validity_lease is not None:
            self.validity = <const uint8_t *> self.validity_lease.view.buf
            if self.validity_lease.view.len * 8 < first + length:
                raise ValueError("the validity bitmap is shorter than its array")
        if length:
            if self.offsets_lease is None or self.offsets_lease.view.len < (first + length + 1) * width:
                raise ValueError("the offsets buffer is shorter than its array")
            self.offsets = <const char *> self.offsets_lease.view.buf
        if self.data_lease is not None:
            self.data = <const uint8_t *> self.data_lease.view.buf
            self.data_size = self.data_lease.view.len


cdef inline int64_t span(BinaryColumn column, int64_t index, const uint8_t **start) noexcept nogil:
    """Returns the length of element `index`, -1 for null, -2 for offsets outside the data; sets its start."""
    cdef int64_t begin, end
    index += column.first
    if not is_valid(column.validity, index):
        return -1
    begin = offset_at(column.offsets, column.wide, index)
    end = offset_at(column.offsets, column.wide, index + 1)
    if begin < 0 or end < begin or end > column.data_size:
        return -2
    start[0] = column.data + begin
    return end - begin


def partitions_for_keys(BinaryColumn keys not None, int32_t count, out):
    """Writes to `out`, 32-bit numbers, the partition of each key; -1 where the key is null."""
    cdef _Lease out_lease = _Lease(out, True)
    cdef int32_t *partitions = <int32_t *> out_lease.view.buf
    cdef const uint8_t *start = NULL
    cdef int64_t row = 0, length = 0
    if count < 1:
        raise ValueError(f"a topic of {count} partitions has none to choose from")
    if out_lease.view.len != keys.length * 4:
        raise ValueError("one 32-bit number for each key")
    with nogil:
        for row in range(keys.length):
            length = span(keys, row, &start)
            if length == -2:
                break
            partitions[row] = -1 if length < 0 else <int32_t> (murmur(start, length) & 0x7fffffff) % count
    if length == -2:
        raise ValueError(f"record {row}: the array's offsets point outside its data")


@cython.final
cdef class HeaderColumn:
    """A list of (key, value) structs per record: the list's validity and offsets over two binary columns."""

    cdef _Lease validity_lease, offsets_lease
    cdef const uint8_t *validity
    cdef const char *offsets
    cdef int64_t first
    cdef int64_t length
    cdef bint wide
    cdef BinaryColumn keys
    cdef BinaryColumn values

    def __cinit__(
        self, validity, offsets, bint wide, int64_t first, int64_t length,
        BinaryColumn keys not None, BinaryColumn values not None,
    ):
        cdef int64_t width = 8 if wide else 4
        if first < 0 or length < 0:
            raise ValueError("an Arrow array cannot start or end before its buffers do")
        self.validity_lease, self.offsets_lease = lease(validity), lease(offsets)
        self.wide, self.first, self.length = wide, first, length
        self.keys, self.values = keys, values
        self.validity = self.offsets = NULL
        if keys.length != values.length:
            raise ValueError("header keys and values differ in number")
        if self.validity_lease is not None:
            self.validity = <const uint8_t *> self.validity_lease.view.buf
            if self.validity_lease.view.len * 8 < first + length:
                raise ValueError("the validity bitmap is shorter than its array")
        if length:
            if self.offsets_lease is None or self.offsets_lease.view.len < (first + length + 1) * width:
                raise ValueError("the offsets buffer is shorter than its array")
            self.offsets = <const char *> self.offsets_lease.view.buf


cdef inline int64_t entries(HeaderColumn column, int64_t index, int64_t *begin) noexcept nogil:
    """Returns the number of headers of record `index`, -2 for offsets outside the entries; sets the first one."""
    cdef int64_t end
    index += column.first
    begin[0] = 0
    if not is_valid(column.validity, index):
        return 0
    begin[0] = offset_at(column.offsets, column.wide, index)
    end = offset_at(column.offsets, column.wide, index + 1)
    if begin[0] < 0 or end < begin[0] or end > column.keys.length:
        return -2
    return end - begin[0]


cdef inline uint8_t *put_bytes(uint8_t *out, const uint8_t *data, int64_t length) noexcept nogil:
    """Writes a length (-1 for null) and the bytes."""
    out = put_varint(out, zigzag(length))
    if length > 0:
        memcpy(out, data, length)
        out += length
    return out


cdef inline int64_t field_size(int64_t length) noexcept nogil:
    return varint_size(zigzag(length)) + (length if length > 0 else 0)


# Why a record cannot be encoded; `Encoder._refuse` has the messages.
cdef enum:
    BAD_OFFSETS = -2
    BAD_TIMESTAMP = -3
    BAD_HEADER_KEY = -4
    TOO_LARGE = -5


@cython.final
cdef class Encoder:
    """Encodes columns as records sections.

    The first record of a section gives its base timestamp, as in Kafka's own builder, and deltas count from there, so
    a record's size depends on where its batch starts. That is why `measure` takes the first record and is called per
    batch.
    """

    cdef BinaryColumn keys
    cdef BinaryColumn values
    cdef HeaderColumn headers
    cdef _Lease timestamps_lease
    cdef const char *timestamps
    cdef int64_t timestamp
    cdef readonly int64_t length

    def __cinit__(
        self, BinaryColumn keys, BinaryColumn values not None, HeaderColumn headers,
        timestamps, int64_t timestamps_first, int64_t timestamp,
    ):
        self.keys, self.values, self.headers = keys, values, headers
        self.length = values.length
        self.timestamps_lease = lease(timestamps)
        self.timestamps = NULL
        self.timestamp = timestamp
        if keys is not None and keys.length != self.length:
            raise ValueError(f"{keys.length} keys for {self.length} values")
        if headers is not None and headers.length != self.length:
            raise ValueError(f"headers of {headers.length} records for {self.length} values")
        if self.timestamps_lease is not None:
            if timestamps_first < 0 or self.timestamps_lease.view.len < (timestamps_first + self.length) * 8:
                raise ValueError("fewer timestamps than values")
            self.timestamps = <const char *> self.timestamps_lease.view.buf + timestamps_first * 8

    cdef inline int64_t timestamp_at(self, int64_t index) noexcept nogil:
        cdef int64_t value
        if self.timestamps == NULL:
            return self.timestamp
        memcpy(&value, self.timestamps + index * 8, 8)
        return value

    def base_timestamp(self, int64_t first):
        """Returns the base timestamp of a section that starts with record `first`."""
        if not 0 <= first < self.length:
            raise ValueError(f"no record {first} in {self.length}")
        return self.timestamp_at(first)

    cdef inline int64_t headers_size(self, int64_t index) noexcept nogil:
        cdef int64_t begin, count, entry, key_length, value_length, size
        cdef const uint8_t *start
        if self.headers is None:
            return 1
        count = entries(self.headers, index, &begin)
        if count < 0:
            return count
        size = varint_size(zigzag(count))
        for entry in range(begin, begin + count):
            key_length = span(self.headers.keys, entry, &start)
            if key_length == -1:
                return BAD_HEADER_KEY
            value_length = span(self.headers.values, entry, &start)
            if key_length < 0 or value_length < -1:
                return BAD_OFFSETS
            size += field_size(key_length) + field_size(value_length)
            if size > MAX_SECTION:
                return TOO_LARGE
        return size

    def measure(self, int64_t first, int64_t limit):
        """Returns how many records, from `first` on, fit in a section of at most `limit` bytes, and its exact size.

        A single record larger than the limit still counts as one: some batch must carry it.
        """
        cdef int64_t total = 0, count = 0, index, base, stamp, key_length, value_length, headers_length, size
        cdef int64_t refusal = 0
        cdef const uint8_t *start
        if not 0 <= first <= self.length:
            raise ValueError(f"no record {first} in {self.length}")
        if first == self.length:
            return 0, 0
        if limit > MAX_SECTION:
            limit = MAX_SECTION
        base = self.timestamp_at(first)
        with nogil:
            for index in range(first, self.length):
                if index - first == INT32_MAX:
                    break
                stamp = self.timestamp_at(index)
                # Only the largest possible timestamp, after a first record without one, has no delta.
                if stamp < -1 or (base == -1 and stamp == INT64_MAX):
                    refusal = BAD_TIMESTAMP
                    break
                key_length = -1 if self.keys is None else span(self.keys, index, &start)
                value_length = span(self.values, index, &start)
                if key_length < -1 or value_length < -1:
                    refusal = BAD_OFFSETS
                    break
                headers_length = self.headers_size(index)
                if headers_length < 0:
                    refusal = headers_length
                    break
                size = 1 + varint_size(zigzag(stamp - base)) + varint_size(zigzag(index - first))
                size += field_size(key_length) + field_size(value_length) + headers_length
                size += varint_size(zigzag(size))
                if total + size > limit and count > 0:
                    break
                if size > MAX_SECTION:
                    refusal = TOO_LARGE
                    break
                total += size
                count += 1
        if refusal:
            raise self._refuse(refusal, index)
        return count, total

    def _refuse(self, int64_t refusal, int64_t index):
        if refusal == BAD_TIMESTAMP:
            return ValueError(f"record {index}: timestamp {self.timestamp_at(index)} is out of range (-1 means none)")
        if refusal == BAD_HEADER_KEY:
            return ValueError(f"record {index}: a header key cannot be null")
        if refusal == TOO_LARGE:
            return ValueError(f"record {index}: larger than the {MAX_SECTION} bytes that a batch can carry")
        return ValueError(f"record {index}: the array's offsets point outside its data")

    def write(self, int64_t first, int64_t count, int64_t size, Py_ssize_t reserve, into=None):
        """Writes `reserve` zero bytes and the section of `count` records from `first`, measured at `size`.

        Returns the buffer with the largest timestamp. The buffer is `into`, if given, which is overwritten: a
        bytearray, or a memoryview of the right size.
        """
        cdef object out
        cdef Py_buffer *buffer
        cdef uint8_t *position
        cdef uint8_t *end
        cdef const uint8_t *key = NULL
        cdef const uint8_t *value = NULL
        cdef int64_t index, base, stamp, latest, key_length, value_length, headers_length, body, begin, entry, number
        cdef int64_t record_size
        cdef bint exact = True
        if not (0 <= first and 0 < count <= self.length - first and 0 <= size <= MAX_SECTION and reserve >= 0):
            raise ValueError(f"no section of {count} records from {first} in {size} bytes")
        out = into
        if PyMemoryView_Check(into):
            buffer = PyMemoryView_GET_BUFFER(into)
            if buffer.readonly or buffer.len != reserve + size or not PyBuffer_IsContiguous(buffer, b"C"):
                raise ValueError(f"{into!r} is not made for {reserve + size} bytes")
            position = <uint8_t *> buffer.buf
        else:
            if into is None:
                out = PyByteArray_FromStringAndSize(NULL, reserve + size)
            elif PyByteArray_Check(into):
                PyByteArray_Resize(out, reserve + size)
            else:
                raise TypeError(f"{into!r} is neither a bytearray nor a memoryview")
            position = <uint8_t *> PyByteArray_AS_STRING(out)
        memset(position, 0, reserve)
        position += reserve
        end = position + size
        base = latest = self.timestamp_at(first)
        with nogil:
            for index in range(first, first + count):
                stamp = self.timestamp_at(index)
                if stamp > latest:
                    latest = stamp
                key_length = -1 if self.keys is None else span(self.keys, index, &key)
                value_length = span(self.values, index, &value)
                headers_length = self.headers_size(index)
                if key_length < -1 or value_length < -1 or headers_length < 0:
                    exact = False
                    break
                body = 1 + varint_size(zigzag(stamp - base)) + varint_size(zigzag(index - first))
                body += field_size(key_length) + field_size(value_length) + headers_length
                record_size = varint_size(zigzag(body)) + body
                if record_size > end - position:
                    exact = False
                    break
                position = put_varint(position, zigzag(body))
                position[0] = 0
                position = put_varint(position + 1, zigzag(stamp - base))
                position = put_varint(position, zigzag(index - first))
                position = put_bytes(position, key, key_length)
                position = put_bytes(position, value, value_length)
                if self.headers is None:
                    position[0] = 0
                    position += 1
                    continue
                number = entries(self.headers, index, &begin)
                position = put_varint(position, zigzag(number))
                for entry in range(begin, begin + number):
                    key_length = span(self.headers.keys, entry, &key)
                    position = put_bytes(position, key, key_length)
                    value_length = span(self.headers.values, entry, &value)
                    position = put_bytes(position, value, value_length)
        if not exact or position != end:
            raise ValueError(f"{count} records from {first} do not take {size} bytes")
        return out, latest


# --- decode ---------------------------------------------------------------------------------------------------------


cdef struct Cursor:
    const uint8_t *data
    int64_t position
    int64_t end
    # The first fault, if any, and its detail.
    int fault
    int64_t detail


cdef struct Field:
    # Position and length of the bytes; -1 for null. A section has less than 2 GiB.
    int32_t start
    int32_t length


cdef struct Record:
    int64_t timestamp
    Field key
    Field value
    int32_t delta
    int32_t headers
    int32_t first_header
    int32_t end


cdef struct Header:
    Field key
    Field value


cdef struct Counts:
    # The progress and the results of a scan.
    Cursor cursor
    # The current record: its index, where it begins, and the offset delta of the previous one.
    int64_t index
    int64_t start
    int64_t before
    int64_t records
    int64_t null_keys
    int64_t key_bytes
    int64_t null_values
    int64_t value_bytes
    int64_t headers
    int64_t header_key_bytes
    int64_t null_header_values
    int64_t header_value_bytes


cdef inline bint fail(Cursor *cursor, int fault, int64_t detail) noexcept nogil:
    cursor.fault, cursor.detail = fault, detail
    return False


cdef inline bint get_number(Cursor *cursor, int64_t end, int64_t *out) noexcept nogil:
    """Reads a number of 64 bits that ends before `end`."""
    cdef Py_ssize_t position = cursor.position
    cdef int fault = get_varlong(cursor.data, end, &position, out)
    cursor.position = position
    return not fault or fail(cursor, fault, 0)


cdef inline bint get_length(Cursor *cursor, int64_t end, int64_t *out) noexcept nogil:
    """Reads a number of 32 bits that ends before `end`. Nearly all have one byte or two."""
    cdef Py_ssize_t position = cursor.position
    cdef const uint8_t *data = cursor.data
    cdef int32_t number
    cdef uint32_t raw
    cdef int fault
    if end - position >= 2 and not data[position] & data[position + 1] & 0x80:
        raw = data[position]
        cursor.position = position + 1
        if raw >= 0x80:
            raw = (raw & 0x7F) | <uint32_t> data[position + 1] << 7
            cursor.position = position + 2
        out[0] = <int64_t> (raw >> 1) ^ -<int64_t> (raw & 1)
        return True
    fault = get_varint(data, end, &position, &number)
    cursor.position, out[0] = position, number
    return not fault or fail(cursor, fault, 0)


cdef inline bint get_field(Cursor *cursor, int64_t end, Field *field) noexcept nogil:
    """Reads a length (-1 for null) and as many bytes, all before `end`."""
    cdef int64_t length
    if not get_length(cursor, end, &length):
        return False
    if length < -1 or length > end - cursor.position:
        return fail(cursor, FIELD_LENGTH, length)
    field.start, field.length = <int32_t> cursor.position, <int32_t> length
    if length > 0:
        cursor.position += length
    return True


cdef inline bint get_header(Cursor *cursor, int64_t end, Header *header) noexcept nogil:
    if not get_field(cursor, end, &header.key):
        return False
    if header.key.length < 0:
        return fail(cursor, NULL_HEADER_KEY, header.key.length)
    return get_field(cursor, end, &header.value)


@cython.final
cdef class BinarySink:
    """The buffers of one binary column under construction: validity (None if no null is coming), offsets, bytes.

    Data copied before it is counted may turn out not to fit. Then the sink is no longer `open`, and its content is
    invalid.
    """

    cdef _Lease validity_lease, offsets_lease, data_lease
    cdef uint8_t *validity
    cdef int32_t *offsets
    cdef uint8_t *data
    cdef readonly int64_t rows
    cdef readonly int64_t used
    cdef readonly bint open
    cdef int64_t max_rows
    cdef int64_t max_used

    def __cinit__(self, validity, offsets, data):
        self.offsets_lease, self.data_lease = _Lease(offsets, True), _Lease(data, True)
        self.rows = self.used = 0
        self.open = True
        self.max_rows = self.offsets_lease.view.len // 4 - 1
        self.max_used = min(self.data_lease.view.len, INT32_MAX)
        if self.max_rows < 0 or <size_t> self.offsets_lease.view.buf % 4:
            raise ValueError("the offsets of n rows take n + 1 aligned 32-bit numbers")
        self.offsets = <int32_t *> self.offsets_lease.view.buf
        self.offsets[0] = 0
        self.data = <uint8_t *> self.data_lease.view.buf
        self.validity = NULL
        if validity is not None:
            self.validity_lease = _Lease(validity, True)
            self.validity = <uint8_t *> self.validity_lease.view.buf
            if self.validity_lease.view.len * 8 < self.max_rows:
                raise ValueError("the validity bitmap is shorter than its column")
            memset(self.validity, 0, self.validity_lease.view.len)


cdef inline void set_bits(uint8_t *bitmap, int64_t first, int64_t count) noexcept nogil:
    cdef int64_t end = first + count
    while first < end and first & 7:
        bitmap[first >> 3] |= <uint8_t> (1 << (first & 7))
        first += 1
    if end - first >= 8:
        memset(bitmap + (first >> 3), 0xFF, (end - first) >> 3)
        first += (end - first) & ~<int64_t> 7
    while first < end:
        bitmap[first >> 3] |= <uint8_t> (1 << (first & 7))
        first += 1


cdef inline bint append(
    BinarySink sink, const uint8_t *data, const char *fields, int64_t count, int64_t stride, int64_t nulls
) noexcept nogil:
    """Adds a row for each of the fields, which are `stride` bytes apart; `nulls` of them are null.

    Returns False if there is no room, which cannot happen after counting, unless the input has changed. The fields may
    be in the column's own memory, after its content.
    """
    cdef int64_t row = sink.rows, used = sink.used, max_used = sink.max_used, index
    cdef uint8_t *validity = sink.validity
    cdef int32_t *offsets = sink.offsets + row + 1
    cdef const Field *field
    if count > sink.max_rows - row or (nulls and validity == NULL):
        return False
    # Nearly always all or none are null: no check per field.
    if nulls == count:
        for index in range(count):
            offsets[index] = <int32_t> used
        sink.rows = row + count
        return True
    if nulls == 0:
        for index in range(count):
            field = <const Field *> (fields + index * stride)
            # As an unsigned number, a negative length exceeds any room.
            if <uint32_t> field.length > <uint64_t> (max_used - used):
                return False
            memmove(sink.data + used, data + field.start, <uint32_t> field.length)
            used += field.length
            offsets[index] = <int32_t> used
        if validity != NULL:
            set_bits(validity, row, count)
        sink.rows, sink.used = row + count, used
        return True
    for index in range(count):
        field = <const Field *> (fields + index * stride)
        if field.length >= 0:
            if field.length > max_used - used:
                return False
            if validity != NULL:
                validity[(row + index) >> 3] |= <uint8_t> (1 << ((row + index) & 7))
            if field.length:
                memmove(sink.data + used, data + field.start, field.length)
                used += field.length
        elif validity == NULL:
            return False
        offsets[index] = <int32_t> used
    sink.rows, sink.used = row + count, used
    return True


cdef inline void append_early(
    BinarySink sink, const uint8_t *data, const char *fields, int64_t count, int64_t stride, int64_t nulls
) noexcept nogil:
    """Does `append` during the scan, and closes the sink if there is no room."""
    if sink is not None and sink.open:
        sink.open = append(sink, data, fields, count, stride, nulls)


cdef inline bint all_rows(BinarySink sink) noexcept nogil:
    return sink is None or sink.rows == sink.max_rows


cdef struct View:
    # Up to twelve bytes are stored inline. Of longer values the first four are; (buffer, start) is where all are.
    int32_t length
    uint8_t prefix[4]
    int32_t buffer
    int32_t start


@cython.final
cdef class ViewSink:
    """One column of views under construction: validity (None if no null is coming), and sixteen bytes per row.

    Rows refer to the buffer that `place` named last, by its index among the column's buffers. `referring` counts these
    rows: short values and nulls need no buffer.
    """

    cdef _Lease validity_lease, views_lease
    cdef uint8_t *validity
    cdef View *views
    cdef int64_t rows
    cdef int64_t max_rows
    cdef int32_t buffer
    cdef int64_t start
    cdef readonly int64_t referring

    def __cinit__(self, validity, views):
        self.views_lease = _Lease(views, True)
        self.views = <View *> self.views_lease.view.buf
        self.rows = self.referring = self.start = 0
        self.buffer = 0
        self.max_rows = self.views_lease.view.len // sizeof(View)
        if self.views_lease.view.len and <size_t> self.views_lease.view.buf % 4:
            raise ValueError("views are aligned")
        self.validity = NULL
        if validity is not None:
            self.validity_lease = _Lease(validity, True)
            self.validity = <uint8_t *> self.validity_lease.view.buf
            if self.validity_lease.view.len * 8 < self.max_rows:
                raise ValueError("the validity bitmap is shorter than its column")
            memset(self.validity, 0, self.validity_lease.view.len)

    def place(self, int32_t buffer, int64_t start):
        """Sets the position of the next section: byte `start` of the column's buffer of that index."""
        if buffer < 0 or not 0 <= start <= INT32_MAX:
            raise ValueError(f"no view reaches byte {start} of buffer {buffer}")
        self.buffer, self.start = buffer, start


cdef inline bint append_views(
    ViewSink sink, const uint8_t *data, int64_t size, const char *fields, int64_t count, int64_t stride
) noexcept nogil:
    """Does `append` for views of a section of `size` bytes."""
    cdef int64_t row = sink.rows, start = sink.start, referring = 0, index
    cdef uint8_t *validity = sink.validity
    cdef View *view
    cdef const Field *field
    if count > sink.max_rows - row or size > INT32_MAX - start:
        return False
    for index in range(count):
        if index + EARLY < count:
            fetch_early(data + (<const Field *> (fields + (index + EARLY) * stride)).start)
        field = <const Field *> (fields + index * stride)
        view = sink.views + row + index
        if field.length < 0:
            if validity == NULL:
                return False
            memset(view, 0, sizeof(View))
            continue
        if validity != NULL:
            validity[(row + index) >> 3] |= <uint8_t> (1 << ((row + index) & 7))
        if field.length <= INLINE:
            memset(view, 0, sizeof(View))
            view.length = field.length
            memcpy(view.prefix, data + field.start, field.length)
        else:
            view.length = field.length
            memcpy(view.prefix, data + field.start, 4)
            view.buffer = sink.buffer
            view.start = <int32_t> (start + field.start)
            referring += 1
    sink.rows = row + count
    sink.referring += referring
    return True


cdef inline bint all_views(ViewSink sink) noexcept nogil:
    return sink is None or sink.rows == sink.max_rows


@cython.final
cdef class ColumnSink:
    """The columns being filled, None for those not requested. Sections append to it one after the other.

    With `plain_sections`, records are added as soon as they are read. If their batch is invalid, its rows are removed,
    and the sink is no longer `open`.
    """

    cdef BinarySink keys
    cdef BinarySink values
    cdef ViewSink key_views
    cdef ViewSink value_views
    cdef BinarySink header_keys
    cdef BinarySink header_values
    cdef _Lease offsets_lease, timestamps_lease, types_lease, header_offsets_lease
    cdef int64_t *offsets
    cdef int64_t *timestamps
    cdef int32_t *types
    cdef int32_t *header_offsets
    cdef readonly int64_t rows
    cdef readonly bint open
    cdef int64_t max_rows

    def __cinit__(
        self, int64_t rows, keys, values, offsets, timestamps, timestamp_types,
        header_offsets, BinarySink header_keys, BinarySink header_values,
    ):
        self.max_rows, self.rows = rows, 0
        self.open = True
        if isinstance(keys, ViewSink):
            self.key_views = keys
        else:
            self.keys = keys
        if isinstance(values, ViewSink):
            self.value_views = values
        else:
            self.values = values
        self.header_keys, self.header_values = header_keys, header_values
        self.offsets = self.timestamps = NULL
        self.types = self.header_offsets = NULL
        if offsets is not None:
            self.offsets_lease = self._column(offsets, 8, rows)
            self.offsets = <int64_t *> self.offsets_lease.view.buf
        if timestamps is not None:
            self.timestamps_lease = self._column(timestamps, 8, rows)
            self.timestamps = <int64_t *> self.timestamps_lease.view.buf
        if timestamp_types is not None:
            self.types_lease = self._column(timestamp_types, 4, rows)
            self.types = <int32_t *> self.types_lease.view.buf
        if header_offsets is not None:
            if header_keys is None or header_values is None:
                raise ValueError("header lists need their keys and values")
            self.header_offsets_lease = self._column(header_offsets, 4, rows + 1)
            self.header_offsets = <int32_t *> self.header_offsets_lease.view.buf
            self.header_offsets[0] = 0

    def is_full(self):
        """Whether all expected rows are filled."""
        return (
            self.rows == self.max_rows and all_rows(self.keys) and all_rows(self.values)
            and all_views(self.key_views) and all_views(self.value_views)
            and all_rows(self.header_keys) and all_rows(self.header_values)
        )

    def _column(self, buffer, int64_t width, int64_t rows):
        held = _Lease(buffer, True)
        # An empty buffer need not be aligned: since Python 3.13 that of a bytearray is not.
        if held.view.len < rows * width or (held.view.len and <size_t> held.view.buf % <size_t> width):
            raise ValueError(f"no room for {rows} aligned numbers of {width} bytes")
        return held


@cython.final
@cython.no_gc  # it is in no cycle, and the collector would visit hundreds of them
cdef class Section:
    """One decompressed records section, fully checked, with the sizes of its columns.

    `append_timestamp` is the batch's log-append time, which replaces the timestamps of all its records, or None.
    Records before `start_offset` are checked but neither counted nor filled. Timestamps are multiplied by `scale`.

    The positions of all fields are kept for `fill`, which then parses only headers. This also makes `fill` safe on a
    buffer that another owner can write: the positions have been checked and cannot change.

    For views the caller says where the bytes stay: `source` holds them, and the section begins at `source_start`.
    """

    cdef _Lease held
    cdef const uint8_t *data
    cdef int64_t size
    cdef Record *places
    cdef int64_t count
    cdef int64_t base_offset
    cdef int64_t last_offset_delta
    cdef int64_t base_timestamp
    cdef int64_t append_timestamp
    cdef bint has_append_timestamp
    cdef int64_t start_delta
    cdef int64_t scale
    cdef int64_t max_timestamp
    # The timestamp of a usual record is `usual_timestamp` plus `usual_factor` times its delta.
    cdef bint has_usual_timestamps
    cdef int64_t usual_timestamp
    cdef int64_t usual_factor
    cdef readonly int64_t records
    cdef readonly int64_t null_keys
    cdef readonly int64_t key_bytes
    cdef readonly int64_t null_values
    cdef readonly int64_t value_bytes
    cdef readonly int64_t headers
    cdef readonly int64_t header_key_bytes
    cdef readonly int64_t null_header_values
    cdef readonly int64_t header_value_bytes
    cdef public object source
    cdef public int64_t source_start

    def __init__(
        self, data, int64_t count, int64_t base_offset, int64_t last_offset_delta, int64_t base_timestamp,
        append_timestamp, int64_t start_offset, int64_t scale,
    ):
        cdef _Lease held = _Lease(data)
        cdef bint has_append_timestamp = append_timestamp is not None
        cdef int64_t append = append_timestamp if has_append_timestamp else 0
        if scale < 1:
            raise ValueError(f"a timestamp unit of 1/{scale} ms is none")
        self.begin(
            held, 0, held.view.len, count, base_offset, last_offset_delta, base_timestamp,
            has_append_timestamp, append, start_offset, scale,
        )
        self.scan(-1, None, -1, 0)

    def __dealloc__(self):
        recycled_give(self.places)

    cdef int begin(
        self, _Lease held, int64_t start, int64_t size, int64_t count, int64_t base_offset, int64_t last_offset_delta,
        int64_t base_timestamp, bint has_append_timestamp, int64_t append_timestamp, int64_t start_offset,
        int64_t scale,
    ) except -1:
        """Stores the fields of the batch header; `scan` has to follow."""
        if self.held is not None:
            raise ValueError("a section is of one batch only")
        self.held, self.data, self.size = held, <const uint8_t *> held.view.buf + start, size
        self.count, self.base_offset, self.base_timestamp = count, base_offset, base_timestamp
        # No offset may exceed 64 bits, whatever the batch header says.
        self.last_offset_delta = last_offset_delta
        if base_offset > 0:
            self.last_offset_delta = min(last_offset_delta, INT64_MAX - base_offset)
        self.has_append_timestamp, self.append_timestamp = has_append_timestamp, append_timestamp
        if start_offset <= base_offset:
            self.start_delta = 0
        elif base_offset < 0 and start_offset > INT64_MAX + base_offset:
            self.start_delta = INT64_MAX
        else:
            self.start_delta = start_offset - base_offset
        self.scale, self.max_timestamp = scale, INT64_MAX // scale
        cdef int64_t first = append_timestamp if has_append_timestamp else base_timestamp
        self.has_usual_timestamps = (
            self.max_timestamp > SHORT_DELTA and -(self.max_timestamp - SHORT_DELTA) < first
            and first < self.max_timestamp - SHORT_DELTA
        )
        if self.has_usual_timestamps:
            self.usual_timestamp, self.usual_factor = first * scale, 0 if has_append_timestamp else scale
        if size > INT32_MAX:
            raise ValueError(f"a records section of {size} bytes is longer than a batch can be")
        if count < 0 or count > size // MIN_RECORD:
            raise section_error(RECORD_COUNT, base_offset, count, 0, size)
        # Room for one more record: the scan writes a record before it knows whether to keep it.
        self.places = <Record *> recycled_take((count + 1) * sizeof(Record))
        if self.places == NULL:
            raise MemoryError
        return 0

    cdef inline bint usual_record(self, Cursor *cursor, int64_t before, Record *record) noexcept nogil:
        """Reads a record without headers, with short numbers, and not at the end of the section: nearly every record.

        Returns False for any other, and for damage; then only `record` has changed, and the method `record` has to read
        it. No number here is longer than three bytes, so one check of the remaining bytes covers several numbers.
        """
        cdef const uint8_t *position = cursor.data + cursor.position
        cdef const uint8_t *limit = cursor.data + cursor.end
        cdef const uint8_t *end
        cdef int64_t length, timestamp, delta
        if limit - position < ENOUGH or not short_number(&position, &length):
            return False
        if length < MIN_RECORD - 1 or length > limit - position:
            return False
        end = position + length
        position += 1
        if not short_number(&position, &timestamp) or not short_number(&position, &delta):
            return False
        if delta <= before or delta > self.last_offset_delta or not short_number(&position, &length):
            return False
        if length < -1 or position > end or length > end - position:
            return False
        record.key.start, record.key.length = <int32_t> (position - cursor.data), <int32_t> length
        if length > 0:
            position += length
        if limit - position < ENOUGH or not short_number(&position, &length):
            return False
        if length < -1 or position > end or length > end - position:
            return False
        record.value.start, record.value.length = <int32_t> (position - cursor.data), <int32_t> length
        if length > 0:
            position += length
        if end - position != 1 or position[0]:
            return False
        record.timestamp = self.usual_timestamp + self.usual_factor * timestamp
        record.delta, record.headers = <int32_t> delta, 0
        record.first_header = record.end = <int32_t> (end - cursor.data)
        cursor.position = record.end
        return True

    cdef bint record(self, Cursor *cursor, int64_t before, Record *record) noexcept nogil:
        """Reads a record up to its headers; leaves the position at the first header.

        `before` is the offset delta of the previous record, which this one has to exceed.
        """
        cdef int64_t length, timestamp, delta, headers, end
        if not get_length(cursor, cursor.end, &length):
            return False
        if length < MIN_RECORD - 1 or length > cursor.end - cursor.position:
            return fail(cursor, RECORD_LENGTH, length)
        end = cursor.position + length
        # The attributes byte is unused; readers skip it, whatever its value.
        cursor.position += 1
        if (
            not get_number(cursor, end, &timestamp)
            or not get_length(cursor, end, &delta)
            or not get_field(cursor, end, &record.key)
            or not get_field(cursor, end, &record.value)
            or not get_length(cursor, end, &headers)
        ):
            return False
        if headers < 0 or headers > (end - cursor.position) // MIN_HEADER:
            return fail(cursor, HEADER_COUNT, headers)
        if self.has_append_timestamp:
            timestamp = self.append_timestamp
        elif timestamp > 0 and self.base_timestamp > INT64_MAX - timestamp:
            return fail(cursor, TIMESTAMP_RANGE, 0)
        elif timestamp < 0 and self.base_timestamp < INT64_MIN - timestamp:
            return fail(cursor, TIMESTAMP_RANGE, 0)
        else:
            timestamp += self.base_timestamp
        if self.scale != 1:
            if timestamp > self.max_timestamp or timestamp < -self.max_timestamp:
                return fail(cursor, TIMESTAMP_UNIT, timestamp)
            timestamp *= self.scale
        if delta <= before or delta > self.last_offset_delta:
            return fail(cursor, OFFSET_RANGE, delta)
        record.timestamp, record.delta, record.headers = timestamp, <int32_t> delta, <int32_t> headers
        record.first_header, record.end = <int32_t> cursor.position, <int32_t> end
        return True

    cdef bint scan(self, int64_t crc, ColumnSink sink, int fd, int64_t position) except -1:
        """Checks and counts all records; checks the checksum of the batch, unless `crc` is -1.

        Returns False if the checksum is wrong, whatever else may be wrong. A block of bytes is checksummed first, and
        its records are read while it is in the processor's cache. They are also added to the sink, if there is one. The
        rows of an invalid batch are removed again.

        With an open file, the section is read from the file, at this position, through the sink. False then also means
        that it could not be read, or is invalid: once it is in memory, another scan finds the error.
        """
        cdef Counts counts
        cdef bint intact
        cdef int64_t rows = 0, key_rows = 0, keys_used = 0, value_rows = 0, values_used = 0
        if sink is not None:
            rows = sink.rows
            if sink.keys is not None:
                key_rows, keys_used = sink.keys.rows, sink.keys.used
            if sink.values is not None:
                value_rows, values_used = sink.values.rows, sink.values.used
        if fd >= 0:
            with nogil:
                intact = self._walk_file(fd, position, crc, &counts, sink, sink.values)
        elif self.size < LONG_WALK:
            intact = self._walk(crc, &counts, sink)
        else:
            with nogil:
                intact = self._walk(crc, &counts, sink)
        if sink is not None and (not intact or counts.cursor.fault):
            # Close it: bits of removed rows are set in the validity bitmaps.
            sink.rows, sink.open = rows, False
            if sink.keys is not None:
                sink.keys.rows, sink.keys.used = key_rows, keys_used
            if sink.values is not None:
                sink.values.rows, sink.values.used = value_rows, values_used
        if not intact:
            return False
        if counts.cursor.fault:
            raise section_error(
                counts.cursor.fault, self.base_offset, counts.index, counts.start, counts.cursor.detail
            )
        self.records = counts.records
        self.null_keys, self.key_bytes = counts.null_keys, counts.key_bytes
        self.null_values, self.value_bytes = counts.null_values, counts.value_bytes
        self.headers, self.header_key_bytes = counts.headers, counts.header_key_bytes
        self.null_header_values, self.header_value_bytes = counts.null_header_values, counts.header_value_bytes
        return True

    cdef bint _walk(self, int64_t crc, Counts *counts, ColumnSink sink) except -1 nogil:
        cdef Cursor *cursor = &counts.cursor
        # The checksum also covers the last part of the header.
        cdef const uint8_t *unchecked = self.data - (HEADER_SIZE - CRC_COVERS) if crc >= 0 else self.data
        cdef const uint8_t *end = self.data + self.size
        cdef int64_t block, found = 0, copied = 0, null_keys = 0, null_values = 0
        memset(counts, 0, sizeof(Counts))
        cursor.data, cursor.end = self.data, self.size
        counts.before = -1
        while unchecked < end:
            block = min(end - unchecked, <int64_t> BLOCK)
            if crc >= 0:
                found = crc32c_of(unchecked, block, <uint32_t> found)
            unchecked += block
            self._count_to(unchecked - self.data, counts)
            if sink is not None and sink.open:
                self._copy(
                    sink, self.data, copied, counts.records - copied, counts.null_keys - null_keys,
                    counts.null_values - null_values,
                )
            copied, null_keys, null_values = counts.records, counts.null_keys, counts.null_values
        if crc >= 0 and found != crc:
            return False
        if cursor.fault:
            pass
        elif counts.index < self.count:
            counts.start = cursor.position
            fail(cursor, TRUNCATED, 0)
        elif cursor.position != cursor.end:
            counts.index = max(counts.index - 1, 0)
            fail(cursor, TRAILING_BYTES, cursor.end - cursor.position)
        return True

    cdef bint _walk_file(
        self, int fd, int64_t position, int64_t crc, Counts *counts, ColumnSink sink, BinarySink values
    ) except -1 nogil:
        """Does `_walk` for a section in a file, one block at a time.

        A block is read to the current end of the column of values, and its values are moved down to there. An
        incomplete record at the end of a block is moved in front of the next block.
        """
        cdef Cursor *cursor = &counts.cursor
        cdef int64_t block, left, used, gap, arrived = 0, found = 0, copied = 0, null_keys = 0, null_values = 0
        # Where the section would begin if all of it were in memory.
        cdef uint8_t *data = NULL
        cdef uint8_t *into
        memset(counts, 0, sizeof(Counts))
        counts.before = -1
        if crc >= 0:
            # The checksum also covers the last part of the header, which has been read.
            found = crc32c_of(self.data - (HEADER_SIZE - CRC_COVERS), HEADER_SIZE - CRC_COVERS, 0)
        while arrived < self.size:
            block = min(self.size - arrived, <int64_t> BLOCK)
            left, used = arrived - cursor.position, values.used
            into = values.data + used + left
            gap = <int64_t> ((<uint64_t> (position + arrived) - <uint64_t> into) % LINE)
            into += gap
            if left + gap + block > values.max_used - used:
                return False
            if left:
                memmove(into - left, data + cursor.position, left)
            if not read_file(fd, into, block, position + arrived):
                return False
            if crc >= 0:
                found = crc32c_of(into, block, <uint32_t> found)
            data = into - arrived
            arrived += block
            cursor.data, cursor.end = data, arrived
            self._count_to(arrived, counts)
            if cursor.fault:
                if arrived == self.size:
                    return False
                # The record may be incomplete: read it again with the next block.
                cursor.fault, cursor.position = NO_FAULT, counts.start
            self._copy(
                sink, data, copied, counts.records - copied, counts.null_keys - null_keys,
                counts.null_values - null_values,
            )
            if not sink.open or not values.open:
                return False
            copied, null_keys, null_values = counts.records, counts.null_keys, counts.null_values
        return (crc < 0 or found == crc) and counts.index == self.count and cursor.position == self.size

    cdef void _copy(
        self, ColumnSink sink, const uint8_t *data, int64_t first, int64_t count, int64_t null_keys,
        int64_t null_values,
    ) noexcept nogil:
        """Appends some records, which are in `data`, to all columns of a sink during the scan."""
        cdef const Record *places = self.places + first
        cdef int64_t stride = sizeof(Record)
        if count > sink.max_rows - sink.rows:
            sink.open = False
            return
        self._copy_numbers(sink, places, count)
        # Keys first: the memory of values may hold the section itself.
        append_early(sink.keys, data, <const char *> &places.key, count, stride, null_keys)
        append_early(sink.values, data, <const char *> &places.value, count, stride, null_values)
        sink.rows += count

    cdef inline void _copy_numbers(self, ColumnSink sink, const Record *places, int64_t count) noexcept nogil:
        cdef int64_t index, row = sink.rows
        cdef int32_t timestamp_type = 1 if self.has_append_timestamp else 0
        if sink.offsets != NULL:
            for index in range(count):
                sink.offsets[row + index] = self.base_offset + places[index].delta
        if sink.timestamps != NULL:
            for index in range(count):
                sink.timestamps[row + index] = places[index].timestamp
        if sink.types != NULL:
            for index in range(count):
                sink.types[row + index] = timestamp_type

    cdef void _count_to(self, int64_t limit, Counts *counts) noexcept nogil:
        """Reads and counts the records that begin before `limit`."""
        cdef Cursor *cursor = &counts.cursor
        cdef Record *record = self.places + counts.records
        cdef Header header
        cdef int64_t start, ordinal, ahead, key_bytes, null_values, value_bytes
        cdef bint kept
        while counts.index < self.count and cursor.position < limit and not cursor.fault:
            start = counts.start = cursor.position
            if not (self.has_usual_timestamps and self.usual_record(cursor, counts.before, record)):
                if not self.record(cursor, counts.before, record):
                    return
            # Where a later record begins if those between are as long as this one.
            ahead = record.end + EARLY * (record.end - start)
            if ahead < cursor.end:
                fetch_early(cursor.data + ahead)
            key_bytes = null_values = value_bytes = 0
            for ordinal in range(record.headers):
                if not get_header(cursor, record.end, &header):
                    return
                key_bytes += header.key.length
                if header.value.length < 0:
                    null_values += 1
                else:
                    value_bytes += header.value.length
            if cursor.position != record.end:
                fail(cursor, RECORD_SIZE, record.end - cursor.position)
                return
            # Count only now: an incomplete record will be read again.
            counts.before = record.delta
            kept = record.delta >= self.start_delta
            counts.index += 1
            if not kept:
                continue
            counts.header_key_bytes += key_bytes
            counts.null_header_values += null_values
            counts.header_value_bytes += value_bytes
            if record.key.length < 0:
                counts.null_keys += 1
            else:
                counts.key_bytes += record.key.length
            if record.value.length < 0:
                counts.null_values += 1
            else:
                counts.value_bytes += record.value.length
            counts.headers += record.headers
            counts.records += 1
            record += 1

    def fill(self, ColumnSink sink not None):
        """Appends the records to the columns of `sink`, one column after the other."""
        cdef bint room
        if self.size < LONG_WALK:
            room = self._fill(sink)
        else:
            with nogil:
                room = self._fill(sink)
        if not room:
            raise section_error(CHANGED, self.base_offset, self.records, self.size, 0)
        sink.rows += self.records

    cdef bint _fill(self, ColumnSink sink) noexcept nogil:
        cdef const uint8_t *data = self.data
        cdef const Record *places = self.places
        cdef int64_t records = self.records, stride = sizeof(Record)
        cdef int64_t size = self.size
        cdef bint room = records <= sink.max_rows - sink.rows
        if room:
            self._copy_numbers(sink, places, records)
        if room and sink.keys is not None:
            room = append(sink.keys, data, <const char *> &places.key, records, stride, self.null_keys)
        if room and sink.values is not None:
            room = append(sink.values, data, <const char *> &places.value, records, stride, self.null_values)
        if room and sink.key_views is not None:
            room = append_views(sink.key_views, data, size, <const char *> &places.key, records, stride)
        if room and sink.value_views is not None:
            room = append_views(sink.value_views, data, size, <const char *> &places.value, records, stride)
        if room and sink.header_offsets != NULL:
            room = self._fill_headers(sink)
        return room

    cdef bint _fill_headers(self, ColumnSink sink) noexcept nogil:
        cdef Cursor cursor
        cdef int32_t *ends = sink.header_offsets + sink.rows + 1
        cdef const Record *record
        cdef Header header
        cdef int64_t index, ordinal
        memset(&cursor, 0, sizeof(Cursor))
        cursor.data, cursor.end = self.data, self.size
        for index in range(self.records):
            record = self.places + index
            cursor.position = record.first_header
            for ordinal in range(record.headers):
                if not (
                    get_header(&cursor, record.end, &header)
                    and append(sink.header_keys, cursor.data, <const char *> &header.key, 1, 0, 0)
                    and append(
                        sink.header_values, cursor.data, <const char *> &header.value, 1, 0, header.value.length < 0
                    )
                ):
                    return False
            ends[index] = <int32_t> sink.header_keys.rows
        return True


# --- batches --------------------------------------------------------------------------------------------------------

cdef struct Head:
    # The fields of a batch header that are needed here.
    int64_t length
    int64_t attributes
    int64_t base_offset
    int64_t last_delta
    int64_t count


cdef inline bint read_head(const uint8_t *batch, int64_t left, Head *head) noexcept nogil:
    """Reads the header; returns False if there is no whole batch of format 2."""
    if left < HEADER_SIZE:
        return False
    head.length = LOG_OVERHEAD + <int64_t>int32_at(batch + LENGTH_AT)
    head.attributes = <int64_t>(<uint16_t>int16_at(batch + ATTRIBUTES_AT))
    head.base_offset = int64_at(batch)
    head.last_delta = int32_at(batch + LAST_DELTA_AT)
    head.count = int32_at(batch + COUNT_AT)
    return HEADER_SIZE <= head.length <= left and batch[MAGIC_AT] == MAGIC


cdef inline bint is_plain(const Head *head, int64_t start_offset, bint may_be_transactional) noexcept nogil:
    return not (
        head.attributes & ~(APPEND_TIME | TRANSACTIONAL)
        or (head.attributes & TRANSACTIONAL and not may_be_transactional)
        or head.base_offset < 0 or head.last_delta < 0 or head.base_offset >= INT64_MAX - head.last_delta
        or head.count <= 0 or head.count > (head.length - HEADER_SIZE) // MIN_RECORD
        or head.base_offset + head.last_delta < start_offset
    )


cdef inline bint is_cut_off(const uint8_t *batch, int64_t left) noexcept nogil:
    """Whether this is only the beginning of a batch, without a visible error."""
    cdef int64_t length
    if left <= MAGIC_AT or batch[MAGIC_AT] != MAGIC:
        return False
    length = LOG_OVERHEAD + <int64_t>int32_at(batch + LENGTH_AT)
    return length >= HEADER_SIZE and length > left


def plain_extent(data not None, int64_t start_offset, bint may_be_transactional):
    """See `pure.columns`."""
    cdef _Lease held = _Lease(data)
    cdef const uint8_t *batch = <const uint8_t *> held.view.buf
    cdef int64_t left = held.view.len, records = 0, size = 0
    cdef Head head
    while read_head(batch, left, &head) and is_plain(&head, start_offset, may_be_transactional):
        records += head.count
        size += head.length - HEADER_SIZE - MIN_RECORD * head.count
        batch += head.length
        left -= head.length
    return records, size, left == 0 or is_cut_off(batch, left)


def plain_sections(
    data not None, int64_t at, int64_t start_offset, int64_t scale, bint check_crc, bint may_be_transactional, source,
    bint has_views, ColumnSink sink, file=None,
):
    """Returns the sections that need no more than to be checked and read; see `pure.columns`, which finds none.

    The sink, if given, gets all columns but the headers of all sections found. If there was no room for keys or values,
    their sink is no longer `open`. If the batch after the last section was invalid, no sink is. No data is lost:
    `Section.fill` can do the same.

    With a file, an open descriptor and the position where `data` begins in it, `data` holds only the headers of the
    batches. The rest is read from the file into the memory of the sink's column of values, which must have room for
    `READING_ROOM` more bytes. `Section.fill` must then wait until the file has been read into `data`.
    """
    cdef _Lease held = _Lease(data)
    cdef const uint8_t *batch
    cdef int64_t end = held.view.len
    cdef Head head
    cdef list found = []
    cdef Section section
    cdef int fd = -1
    cdef int64_t position = 0
    next_offset = None
    if file is not None:
        fd, position = file
    if fd >= 0 and (sink is None or sink.values is None):
        raise ValueError("what is in a file goes to a column of values")
    while True:
        batch = <const uint8_t *> held.view.buf + at
        if not read_head(batch, end - at, &head) or not is_plain(&head, start_offset, may_be_transactional):
            break
        section = Section.__new__(Section)
        section.begin(
            held, at + HEADER_SIZE, head.length - HEADER_SIZE, head.count, head.base_offset, head.last_delta,
            int64_at(batch + BASE_TIMESTAMP_AT), head.attributes & APPEND_TIME, int64_at(batch + MAX_TIMESTAMP_AT),
            start_offset, scale,
        )
        if not section.scan(
            <int64_t>(<uint32_t>int32_at(batch + CRC_AT)) if check_crc else -1, sink, fd, position + at + HEADER_SIZE
        ):
            break
        if source is not None:
            section.source, section.source_start = source, at + HEADER_SIZE
        elif has_views:
            section.source = data[at + HEADER_SIZE : at + head.length]
        found.append(section)
        at += head.length
        next_offset = head.base_offset + head.last_delta + 1
    return found, at, next_offset, at == end or is_cut_off(batch, end - at)


def totals(list sections not None):
    """See `pure.columns`."""
    cdef Section section
    cdef int64_t records = 0, null_keys = 0, key_bytes = 0, null_values = 0, value_bytes = 0
    cdef int64_t headers = 0, header_key_bytes = 0, null_header_values = 0, header_value_bytes = 0
    for section in sections:
        records += section.records
        null_keys += section.null_keys
        key_bytes += section.key_bytes
        null_values += section.null_values
        value_bytes += section.value_bytes
        headers += section.headers
        header_key_bytes += section.header_key_bytes
        null_header_values += section.null_header_values
        header_value_bytes += section.header_value_bytes
    return (
        records, null_keys, key_bytes, null_values, value_bytes,
        headers, header_key_bytes, null_header_values, header_value_bytes,
    )
