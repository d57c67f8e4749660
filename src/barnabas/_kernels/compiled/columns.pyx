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
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_Check, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.memoryview cimport PyMemoryView_Check
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove, memset

from barnabas._kernels.compiled.batch_header cimport *
from barnabas._kernels.compiled.octets cimport int16_at, int32_at, int64_at
from barnabas._kernels.compiled.record_walk cimport *
from barnabas._kernels.compiled.varint cimport put_varint, varint_size, zigzag
from barnabas._kernels.compiled.checksum cimport crc32c_of
from barnabas._kernels.compiled.murmur2 cimport murmur

from barnabas._kernels.faults import section_error

cdef extern from "columns.h":
    # Prefetches memory that will be read soon.
    void fetch_early(const void *address) noexcept nogil
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


cdef inline uint8_t *memory(_Lease held) noexcept:
    return NULL if held is None else <uint8_t *> held.view.buf


cdef inline int64_t size_of(_Lease held) noexcept:
    return 0 if held is None else held.view.len


# --- encode ---------------------------------------------------------------------------------------------------------


cdef struct Spans:
    # The validity bits and the 32- or 64-bit offsets of an Arrow array: where its elements begin and end. `first` is the
    # array's own offset (a sliced array shares its parent's buffers), `length` its number of elements.
    const uint8_t *validity
    const char *offsets
    bint wide
    int64_t first
    int64_t length


cdef int place(
    Spans *spans, _Lease validity, _Lease offsets, bint wide, int64_t first, int64_t length
) except -1:
    if first < 0 or length < 0:
        raise ValueError("an Arrow array cannot start or end before its buffers do")
    if validity is not None and size_of(validity) * 8 < first + length:
        raise ValueError("the validity bitmap is shorter than its array")
    if length and size_of(offsets) < (first + length + 1) * (8 if wide else 4):
        raise ValueError("the offsets buffer is shorter than its array")
    spans.validity, spans.offsets, spans.wide = memory(validity), <const char *> memory(offsets), wide
    spans.first, spans.length = first, length
    return 0


cdef inline int64_t offset_at(const Spans *spans, int64_t index) noexcept nogil:
    # memcpy, because an Arrow buffer need not be aligned. It compiles to one load.
    cdef int32_t narrow
    cdef int64_t value
    if spans.wide:
        memcpy(&value, spans.offsets + index * 8, 8)
        return value
    memcpy(&narrow, spans.offsets + index * 4, 4)
    return narrow


cdef inline int64_t span(const Spans *spans, int64_t index, int64_t limit, int64_t *begin) noexcept nogil:
    """Returns the length of element `index`, -1 for null, -2 for offsets outside ``0 .. limit``; sets where it begins."""
    cdef int64_t end
    index += spans.first
    if spans.validity != NULL and not (spans.validity[index >> 3] >> (index & 7)) & 1:
        return -1
    begin[0] = offset_at(spans, index)
    end = offset_at(spans, index + 1)
    if begin[0] < 0 or end < begin[0] or end > limit:
        return -2
    return end - begin[0]


@cython.final
cdef class BinaryColumn:
    """A binary or string Arrow array as raw memory: validity bits, 32- or 64-bit offsets, bytes."""

    cdef _Lease validity_lease, offsets_lease, data_lease
    cdef Spans spans
    cdef const uint8_t *data
    cdef int64_t data_size

    def __cinit__(self, validity, offsets, data, bint wide, int64_t first, int64_t length):
        self.validity_lease, self.offsets_lease, self.data_lease = lease(validity), lease(offsets), lease(data)
        place(&self.spans, self.validity_lease, self.offsets_lease, wide, first, length)
        self.data, self.data_size = memory(self.data_lease), size_of(self.data_lease)


cdef inline int64_t element(BinaryColumn column, int64_t index, const uint8_t **start) noexcept nogil:
    """Returns the length of an element as `span` does; sets where its bytes are."""
    cdef int64_t begin = 0
    cdef int64_t length = span(&column.spans, index, column.data_size, &begin)
    start[0] = column.data + begin
    return length


def partitions_for_keys(BinaryColumn keys not None, int32_t count, out):
    """Writes to `out`, 32-bit numbers, the partition of each key; -1 where the key is null."""
    cdef _Lease out_lease = _Lease(out, True)
    cdef int32_t *partitions = <int32_t *> out_lease.view.buf
    cdef const uint8_t *start = NULL
    cdef int64_t row = 0, length = 0
    if count < 1:
        raise ValueError(f"a topic of {count} partitions has none to choose from")
    if out_lease.view.len != keys.spans.length * 4:
        raise ValueError("one 32-bit number for each key")
    with nogil:
        for row in range(keys.spans.length):
            length = element(keys, row, &start)
            if length == -2:
                break
            partitions[row] = -1 if length < 0 else <int32_t> (murmur(start, length) & 0x7fffffff) % count
    if length == -2:
        raise ValueError(f"record {row}: the array's offsets point outside its data")


@cython.final
cdef class HeaderColumn:
    """A list of (key, value) structs per record: the list's validity and offsets over two binary columns."""

    cdef _Lease validity_lease, offsets_lease
    cdef Spans spans
    cdef BinaryColumn keys
    cdef BinaryColumn values

    def __cinit__(
        self, validity, offsets, bint wide, int64_t first, int64_t length,
        BinaryColumn keys not None, BinaryColumn values not None,
    ):
        self.validity_lease, self.offsets_lease, self.keys, self.values = lease(validity), lease(offsets), keys, values
        place(&self.spans, self.validity_lease, self.offsets_lease, wide, first, length)
        if keys.spans.length != values.spans.length:
            raise ValueError("header keys and values differ in number")


cdef inline int64_t entries(HeaderColumn column, int64_t index, int64_t *begin) noexcept nogil:
    """Returns the number of headers of record `index`, -2 for offsets outside the entries; sets the first one."""
    cdef int64_t count = span(&column.spans, index, column.keys.spans.length, begin)
    return 0 if count == -1 else count


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


cdef struct Row:
    # One record to encode: its fields, and the size of everything after its length.
    const uint8_t *key
    int64_t key_length
    const uint8_t *value
    int64_t value_length
    int64_t timestamp
    int64_t body


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
        self.length = values.spans.length
        self.timestamps_lease = lease(timestamps)
        self.timestamps = NULL
        self.timestamp = timestamp
        if keys is not None and keys.spans.length != self.length:
            raise ValueError(f"{keys.spans.length} keys for {self.length} values")
        if headers is not None and headers.spans.length != self.length:
            raise ValueError(f"headers of {headers.spans.length} records for {self.length} values")
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
        cdef int64_t begin = 0, count, entry, key_length, value_length, size
        cdef const uint8_t *start
        count = entries(self.headers, index, &begin)
        if count < 0:
            return count
        size = varint_size(zigzag(count))
        for entry in range(begin, begin + count):
            key_length = element(self.headers.keys, entry, &start)
            if key_length == -1:
                return BAD_HEADER_KEY
            value_length = element(self.headers.values, entry, &start)
            if key_length < 0 or value_length < -1:
                return BAD_OFFSETS
            size += field_size(key_length) + field_size(value_length)
            if size > MAX_SECTION:
                return TOO_LARGE
        return size

    cdef inline int64_t find(self, int64_t first, int64_t base, int64_t index, Row *row) noexcept nogil:
        """Finds the fields and the size of record `index` in a section from `first`; returns a refusal, or 0."""
        cdef int64_t headers_length
        row.timestamp = self.timestamp_at(index)
        # Only the largest possible timestamp, after a first record without one, has no delta.
        if row.timestamp < -1 or (base == -1 and row.timestamp == INT64_MAX):
            return BAD_TIMESTAMP
        row.key_length = -1 if self.keys is None else element(self.keys, index, &row.key)
        row.value_length = element(self.values, index, &row.value)
        if row.key_length < -1 or row.value_length < -1:
            return BAD_OFFSETS
        headers_length = 1 if self.headers is None else self.headers_size(index)
        if headers_length < 0:
            return headers_length
        row.body = 1 + varint_size(zigzag(row.timestamp - base)) + varint_size(zigzag(index - first))
        row.body += field_size(row.key_length) + field_size(row.value_length) + headers_length
        return 0

    def measure(self, int64_t first, int64_t limit):
        """Returns how many records, from `first` on, fit in a section of at most `limit` bytes, and its exact size.

        A single record larger than the limit still counts as one: some batch must carry it.
        """
        cdef int64_t total = 0, count = 0, index = first, size, refusal = 0, base
        cdef Row row
        if not 0 <= first <= self.length:
            raise ValueError(f"no record {first} in {self.length}")
        base = self.timestamp_at(first) if first < self.length else -1
        with nogil:
            for index in range(first, min(self.length, first + INT32_MAX)):
                refusal = self.find(first, base, index, &row)
                if refusal:
                    break
                size = varint_size(zigzag(row.body)) + row.body
                if total + size > min(limit, <int64_t> MAX_SECTION) and count > 0:
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
        cdef object out = into
        cdef _Lease held
        cdef uint8_t *position
        cdef uint8_t *end
        cdef const uint8_t *start = NULL
        cdef Row row
        cdef int64_t index, base, latest, begin = 0, entry, number, length
        if not (0 <= first and 0 < count <= self.length - first and 0 <= size <= MAX_SECTION and reserve >= 0):
            raise ValueError(f"no section of {count} records from {first} in {size} bytes")
        if into is None:
            out = PyByteArray_FromStringAndSize(NULL, reserve + size)
        elif PyByteArray_Check(into):
            PyByteArray_Resize(out, reserve + size)
        elif not PyMemoryView_Check(into):
            raise TypeError(f"{into!r} is neither a bytearray nor a memoryview")
        elif into.readonly or into.nbytes != reserve + size or not into.c_contiguous:
            raise ValueError(f"{into!r} is not made for {reserve + size} bytes")
        held = _Lease(out, True)
        position = <uint8_t *> held.view.buf
        memset(position, 0, reserve)
        position += reserve
        end = position + size
        base = latest = self.timestamp_at(first)
        with nogil:
            for index in range(first, first + count):
                if self.find(first, base, index, &row) or varint_size(zigzag(row.body)) + row.body > end - position:
                    end = NULL  # these are not the records that were measured
                    break
                latest = max(latest, row.timestamp)
                position = put_varint(position, zigzag(row.body))
                position[0] = 0
                position = put_varint(position + 1, zigzag(row.timestamp - base))
                position = put_varint(position, zigzag(index - first))
                position = put_bytes(position, row.key, row.key_length)
                position = put_bytes(position, row.value, row.value_length)
                number = 0 if self.headers is None else entries(self.headers, index, &begin)
                position = put_varint(position, zigzag(number))
                for entry in range(begin, begin + number):
                    length = element(self.headers.keys, entry, &start)
                    position = put_bytes(position, start, length)
                    length = element(self.headers.values, entry, &start)
                    position = put_bytes(position, start, length)
        if position != end:
            raise ValueError(f"{count} records from {first} do not take {size} bytes")
        return out, latest


# --- decode ---------------------------------------------------------------------------------------------------------


# The numbers of `Section.sizes`.
cdef enum:
    RECORDS
    NULL_KEYS
    KEY_BYTES
    NULL_VALUES
    VALUE_BYTES
    HEADERS
    HEADER_KEY_BYTES
    NULL_HEADER_VALUES
    HEADER_VALUE_BYTES
    SIZES


cdef _Lease bitmap(validity, int64_t rows):
    """Clears the validity bits of a column; None if no null is coming."""
    cdef _Lease held
    if validity is None:
        return None
    held = _Lease(validity, True)
    if held.view.len * 8 < rows:
        raise ValueError("the validity bitmap is shorter than its column")
    memset(held.view.buf, 0, held.view.len)
    return held


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
        self.validity_lease = bitmap(validity, self.max_rows)
        self.validity = memory(self.validity_lease)


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
            memmove(sink.data + used, data + field.at, <uint32_t> field.length)
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
                memmove(sink.data + used, data + field.at, field.length)
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
        self.validity_lease = bitmap(validity, self.max_rows)
        self.validity = memory(self.validity_lease)

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
            fetch_early(data + (<const Field *> (fields + (index + EARLY) * stride)).at)
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
            memcpy(view.prefix, data + field.at, field.length)
        else:
            view.length = field.length
            memcpy(view.prefix, data + field.at, 4)
            view.buffer = sink.buffer
            view.start = <int32_t> (start + field.at)
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
        self.offsets_lease = self._column(offsets, 8, rows)
        self.offsets = <int64_t *> memory(self.offsets_lease)
        self.timestamps_lease = self._column(timestamps, 8, rows)
        self.timestamps = <int64_t *> memory(self.timestamps_lease)
        self.types_lease = self._column(timestamp_types, 4, rows)
        self.types = <int32_t *> memory(self.types_lease)
        self.header_offsets_lease = self._column(header_offsets, 4, rows + 1)
        self.header_offsets = <int32_t *> memory(self.header_offsets_lease)
        if header_offsets is not None:
            if header_keys is None or header_values is None:
                raise ValueError("header lists need their keys and values")
            self.header_offsets[0] = 0

    def is_full(self):
        """Whether all expected rows are filled."""
        return (
            self.rows == self.max_rows and all_rows(self.keys) and all_rows(self.values)
            and all_views(self.key_views) and all_views(self.value_views)
            and all_rows(self.header_keys) and all_rows(self.header_values)
        )

    cdef _Lease _column(self, buffer, int64_t width, int64_t rows):
        cdef _Lease held
        if buffer is None:
            return None
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
    cdef Walk walk
    cdef Fields *places
    cdef int64_t counts[SIZES]
    cdef int64_t last_offset_delta
    cdef int64_t start_delta
    cdef int64_t scale
    cdef public object source
    cdef public int64_t source_start

    def __init__(
        self, data, int64_t count, int64_t base_offset, int64_t last_offset_delta, int64_t base_timestamp,
        append_timestamp, int64_t start_offset, int64_t scale,
    ):
        cdef _Lease held = _Lease(data)
        cdef bint has_append_timestamp = append_timestamp is not None
        cdef int64_t timestamp = append_timestamp if has_append_timestamp else base_timestamp
        if scale < 1:
            raise ValueError(f"a timestamp unit of 1/{scale} ms is none")
        self.begin(
            held, 0, held.view.len, count, base_offset, last_offset_delta, timestamp, has_append_timestamp,
            start_offset, scale,
        )
        self.scan(-1, None, -1, 0)

    def __dealloc__(self):
        recycled_give(self.places)

    @property
    def sizes(self):
        """The sizes of the columns: see `pure.columns`."""
        return tuple([self.counts[index] for index in range(SIZES)])

    cdef int begin(
        self, _Lease held, int64_t start, int64_t size, int64_t count, int64_t base_offset, int64_t last_offset_delta,
        int64_t timestamp, bint has_append_timestamp, int64_t start_offset, int64_t scale,
    ) except -1:
        """Stores the fields of the batch header; `scan` has to follow."""
        if self.held is not None:
            raise ValueError("a section is of one batch only")
        self.held, self.data, self.size = held, <const uint8_t *> held.view.buf + start, size
        begin_walk(&self.walk, self.data, size, count, base_offset, timestamp, has_append_timestamp)
        self.scale = scale
        # No offset may exceed 64 bits, whatever the batch header says.
        self.last_offset_delta = last_offset_delta
        if base_offset > 0:
            self.last_offset_delta = min(last_offset_delta, INT64_MAX - base_offset)
        if start_offset <= base_offset:
            self.start_delta = 0
        elif base_offset < 0 and start_offset > INT64_MAX + base_offset:
            self.start_delta = INT64_MAX
        else:
            self.start_delta = start_offset - base_offset
        if size > INT32_MAX:
            raise ValueError(f"a records section of {size} bytes is longer than a batch can be")
        if count < 0 or count > size // MIN_RECORD or (count == 0 and size):
            raise section_error(base_offset, RECORD_COUNT, count, 0, size)
        # Room for one more record: the scan writes a record before it knows whether to keep it.
        self.places = <Fields *> recycled_take((count + 1) * sizeof(Fields))
        if self.places == NULL:
            raise MemoryError
        return 0

    cdef bint scan(self, int64_t crc, ColumnSink sink, int fd, int64_t position) except -1:
        """Checks and counts all records; checks the checksum of the batch, unless `crc` is -1.

        Returns False if the checksum is wrong, whatever else may be wrong. A block of bytes is checksummed first, and
        its records are read while it is in the processor's cache. They are also added to the sink, if there is one. The
        rows of an invalid batch are removed again.

        With an open file, the section is read from the file, at this position, through the sink. False then also means
        that it could not be read, or is invalid: once it is in memory, another scan finds the error.
        """
        cdef int fault = NO_FAULT
        cdef bint intact
        cdef int64_t rows = 0, key_rows = 0, keys_used = 0, value_rows = 0, values_used = 0
        if sink is not None:
            rows = sink.rows
            if sink.keys is not None:
                key_rows, keys_used = sink.keys.rows, sink.keys.used
            if sink.values is not None:
                value_rows, values_used = sink.values.rows, sink.values.used
        if fd < 0 and self.size < LONG_WALK:
            intact = self._scan(crc, sink, fd, position, &fault)
        else:
            with nogil:
                intact = self._scan(crc, sink, fd, position, &fault)
        if sink is not None and (not intact or fault):
            # Close it: bits of removed rows are set in the validity bitmaps.
            sink.rows, sink.open = rows, False
            if sink.keys is not None:
                sink.keys.rows, sink.keys.used = key_rows, keys_used
            if sink.values is not None:
                sink.values.rows, sink.values.used = value_rows, values_used
        if intact and fault:
            raise section_error(
                self.walk.base_offset, fault, self.walk.index, self.walk.start, self.walk.cursor.detail
            )
        return intact

    cdef bint _scan(self, int64_t crc, ColumnSink sink, int fd, int64_t position, int *fault) except -1 nogil:
        cdef Walk *walk = &self.walk
        # Where the section would begin if all of it were in memory.
        cdef const uint8_t *data = self.data
        cdef int64_t arrived = 0, found = 0, copied = 0, null_keys = 0, null_values = 0, before = -1, block
        if crc >= 0:
            # The checksum also covers the last part of the header.
            found = crc32c_of(data - (HEADER_SIZE - CRC_COVERS), HEADER_SIZE - CRC_COVERS, 0)
        while arrived < self.size:
            block = min(self.size - arrived, <int64_t> BLOCK)
            if fd >= 0:
                data = self._read_block(fd, position + arrived, data, arrived, block, sink.values)
                if data == NULL:
                    return False
            if crc >= 0:
                found = crc32c_of(data + arrived, block, <uint32_t> found)
            arrived += block
            if not fault[0]:
                walk.cursor.data, walk.cursor.end = data, self.size if fd < 0 else arrived
                fault[0] = self._count_to(arrived, &before)
            if fault[0] and fd >= 0:
                if arrived == self.size:
                    return False
                # The record may be incomplete: read it again with the next block.
                fault[0] = NO_FAULT
                step_back(walk)
            if sink is not None and sink.open:
                self._copy(
                    sink, data, copied, self.counts[RECORDS] - copied, self.counts[NULL_KEYS] - null_keys,
                    self.counts[NULL_VALUES] - null_values,
                )
            if fd >= 0 and not (sink.open and sink.values.open):
                return False
            copied, null_keys = self.counts[RECORDS], self.counts[NULL_KEYS]
            null_values = self.counts[NULL_VALUES]
        return crc < 0 or found == crc

    cdef const uint8_t *_read_block(
        self, int fd, int64_t position, const uint8_t *data, int64_t arrived, int64_t block, BinarySink values
    ) noexcept nogil:
        """Reads a block to the current end of the column of values, to where its values are moved down later.

        An incomplete record at the end of the block before is moved in front of it. Returns where the section begins,
        as seen from the block; NULL if there is no room, or the file cannot be read.
        """
        cdef int64_t left = arrived - self.walk.cursor.position
        cdef uint8_t *into = values.data + values.used + left
        cdef int64_t gap = <int64_t> ((<uint64_t> position - <uint64_t> into) % LINE)
        into += gap
        if left + gap + block > values.max_used - values.used:
            return NULL
        if left:
            memmove(into - left, data + self.walk.cursor.position, left)
        return into - arrived if read_file(fd, into, block, position) else NULL

    cdef void _copy(
        self, ColumnSink sink, const uint8_t *data, int64_t first, int64_t count, int64_t null_keys,
        int64_t null_values,
    ) noexcept nogil:
        """Appends some records, which are in `data`, to all columns of a sink during the scan."""
        cdef const Fields *places = self.places + first
        cdef int64_t stride = sizeof(Fields)
        if count > sink.max_rows - sink.rows:
            sink.open = False
            return
        self._copy_numbers(sink, places, count)
        # Keys first: the memory of values may hold the section itself.
        append_early(sink.keys, data, <const char *> &places.key, count, stride, null_keys)
        append_early(sink.values, data, <const char *> &places.value, count, stride, null_values)
        sink.rows += count

    cdef inline void _copy_numbers(self, ColumnSink sink, const Fields *places, int64_t count) noexcept nogil:
        cdef int64_t index, row = sink.rows
        cdef int32_t timestamp_type = 1 if self.walk.has_log_append_time else 0
        if sink.offsets != NULL:
            for index in range(count):
                sink.offsets[row + index] = self.walk.base_offset + places[index].offset_delta
        if sink.timestamps != NULL:
            for index in range(count):
                sink.timestamps[row + index] = places[index].timestamp
        if sink.types != NULL:
            for index in range(count):
                sink.types[row + index] = timestamp_type

    cdef int _count_to(self, int64_t limit, int64_t *before) noexcept nogil:
        """Reads and counts the records that begin before `limit`; `before` is the offset delta of the last one."""
        cdef Walk *walk = &self.walk
        cdef int64_t *sizes = self.counts
        cdef Fields *record = self.places + sizes[RECORDS]
        cdef int64_t ahead, most = INT64_MAX // self.scale
        cdef int fault
        # At the end of the section, a missing record is read, too: that is a fault.
        while has_next(walk) and (walk.cursor.position < limit or limit == self.size):
            fault = next_record(walk, record)
            if fault:
                return fault
            # Where a later record begins if those between are as long as this one.
            ahead = record.end + EARLY * (record.end - walk.start)
            if ahead < walk.cursor.end:
                fetch_early(walk.cursor.data + ahead)
            if self.scale != 1:
                if record.timestamp > most or record.timestamp < -most:
                    return fail(&walk.cursor, TIMESTAMP_UNIT, record.timestamp)
                record.timestamp *= self.scale
            if record.offset_delta <= before[0] or record.offset_delta > self.last_offset_delta:
                return fail(&walk.cursor, OFFSET_RANGE, record.offset_delta)
            before[0] = record.offset_delta
            if record.offset_delta < self.start_delta:
                continue
            sizes[RECORDS] += 1
            if record.key.length < 0:
                sizes[NULL_KEYS] += 1
            else:
                sizes[KEY_BYTES] += record.key.length
            if record.value.length < 0:
                sizes[NULL_VALUES] += 1
            else:
                sizes[VALUE_BYTES] += record.value.length
            if record.headers:
                sizes[HEADERS] += record.headers
                sizes[HEADER_KEY_BYTES] += walk.header_sizes.key_bytes
                sizes[NULL_HEADER_VALUES] += walk.header_sizes.null_values
                sizes[HEADER_VALUE_BYTES] += walk.header_sizes.value_bytes
            record += 1
        return NO_FAULT

    def fill(self, ColumnSink sink not None):
        """Appends the records to the columns of `sink`, one column after the other."""
        cdef bint room
        if self.size < LONG_WALK:
            room = self._fill(sink)
        else:
            with nogil:
                room = self._fill(sink)
        if not room:
            raise section_error(self.walk.base_offset, CHANGED, self.counts[RECORDS], self.size, 0)
        sink.rows += self.counts[RECORDS]

    cdef bint _fill(self, ColumnSink sink) noexcept nogil:
        cdef const uint8_t *data = self.data
        cdef const Fields *places = self.places
        cdef int64_t records = self.counts[RECORDS], stride = sizeof(Fields)
        cdef int64_t size = self.size
        cdef bint room = records <= sink.max_rows - sink.rows
        if room:
            self._copy_numbers(sink, places, records)
        if room and sink.keys is not None:
            room = append(sink.keys, data, <const char *> &places.key, records, stride, self.counts[NULL_KEYS])
        if room and sink.values is not None:
            room = append(sink.values, data, <const char *> &places.value, records, stride, self.counts[NULL_VALUES])
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
        cdef const Fields *record
        cdef Header header
        cdef int64_t index, ordinal
        cursor.data = self.data
        for index in range(self.counts[RECORDS]):
            record = self.places + index
            cursor.position = record.headers_at
            for ordinal in range(record.headers):
                if (
                    read_header(&cursor, record.end, &header)
                    or not append(sink.header_keys, cursor.data, <const char *> &header.key, 1, 0, 0)
                    or not append(
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
            int64_at(batch + (MAX_TIMESTAMP_AT if head.attributes & APPEND_TIME else BASE_TIMESTAMP_AT)),
            head.attributes & APPEND_TIME, start_offset, scale,
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
    cdef int64_t sums[SIZES]
    cdef int index
    memset(sums, 0, sizeof(sums))
    for section in sections:
        for index in range(SIZES):
            sums[index] += section.counts[index]
    return tuple([sums[index] for index in range(SIZES)])
