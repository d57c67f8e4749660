# The record walk of all compiled modules: reads the records of a batch, one after the other.
#
# `pure.record_codec` describes the format. Nothing here reads outside the buffer, uses a length that it has not checked,
# allocates memory, or needs the GIL. A function returns the fault of a record, or 0; `faults.record_error` has the
# messages.

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint64_t, uint8_t
from libc.string cimport memset

from barnabas._kernels.compiled.faults cimport *
from barnabas._kernels.compiled.varint cimport get_varint, get_varlong, short_number

cdef extern from *:
    # Keeps the code of rare cases out of the loop.
    bint unlikely(bint condition) noexcept nogil

cdef enum:
    # length, attributes, timestamp delta, offset delta, key length, value length, header count: a byte each at least.
    MIN_RECORD = 7
    # A header is at least two lengths.
    MIN_HEADER = 2
    # The bytes that `read_usual` reads without checking the end: four numbers of three bytes, and one byte.
    ENOUGH = 16


cdef struct Field:
    # Position and length of the bytes; -1 for null. A section has less than 2 GiB.
    int32_t at
    int32_t length


cdef struct Header:
    Field key
    Field value


cdef struct Fields:
    # The delta to the batch's base timestamp; `next_record` makes it the timestamp.
    int64_t timestamp
    Field key
    Field value
    int32_t offset_delta
    int32_t headers
    int32_t headers_at
    int32_t end


cdef struct HeaderSizes:
    int64_t key_bytes
    int64_t null_values
    int64_t value_bytes


cdef struct Cursor:
    const uint8_t *data
    Py_ssize_t position
    Py_ssize_t end
    # The detail of a fault.
    int64_t detail


cdef struct Walk:
    Cursor cursor
    Py_ssize_t size
    # The record read last: its index, where it begins, and the sizes of its headers, if it has any.
    int64_t index
    Py_ssize_t start
    HeaderSizes header_sizes
    # From the batch header. `timestamp` replaces those of the records if `has_log_append_time`, otherwise it is their base.
    int64_t count
    int64_t base_offset
    int64_t timestamp
    bint has_log_append_time


cdef inline int fail(Cursor *cursor, int fault, int64_t detail) noexcept nogil:
    cursor.detail = detail
    return fault


cdef inline bint add_overflows(int64_t a, int64_t b) noexcept nogil:
    # Unsigned, because overflow is defined there: the sum then has a sign that neither number has.
    cdef int64_t total = <int64_t>(<uint64_t>a + <uint64_t>b)
    return ((a ^ total) & (b ^ total)) < 0


cdef inline int read_field(Cursor *cursor, Py_ssize_t end, Field *field) noexcept nogil:
    """Reads a length (-1 for null) and as many bytes, all before `end`."""
    cdef int fault = get_varint(cursor.data, end, &cursor.position, &field.length)
    if fault:
        return fault
    if field.length < -1 or field.length > end - cursor.position:
        return fail(cursor, FIELD_LENGTH, field.length)
    field.at = <int32_t>cursor.position
    if field.length > 0:
        cursor.position += field.length
    return NO_FAULT


cdef inline int read_header(Cursor *cursor, Py_ssize_t end, Header *header) noexcept nogil:
    cdef int fault
    header.key.length = 0
    fault = read_field(cursor, end, &header.key)
    if header.key.length < 0:
        return fail(cursor, NULL_HEADER_KEY, header.key.length)
    return fault or read_field(cursor, end, &header.value)


cdef inline bint usual_field(const uint8_t **at, const uint8_t *end, const uint8_t *data, Field *field) noexcept nogil:
    """Does `read_field` for a length of up to three bytes, which must be readable; returns False for any other."""
    cdef int64_t length
    if not short_number(at, &length) or length < -1 or at[0] > end or length > end - at[0]:
        return False
    field.at, field.length = <int32_t>(at[0] - data), <int32_t>length
    if length > 0:
        at[0] += length
    return True


cdef inline bint read_usual(Cursor *cursor, Fields *fields) noexcept nogil:
    """Does `read_record` for short numbers, not at the end of the section: nearly every record.

    Returns False for any other record, and for damage; then the cursor has not moved. No number here is longer than
    three bytes, so one check of the remaining bytes covers several numbers.
    """
    cdef const uint8_t *data = cursor.data
    cdef const uint8_t *at = data + cursor.position
    cdef const uint8_t *limit = data + cursor.end
    cdef const uint8_t *end
    cdef int64_t length, delta
    if limit - at < ENOUGH or not short_number(&at, &length) or length < MIN_RECORD - 1 or length > limit - at:
        return False
    end = at + length
    at += 1
    if not short_number(&at, &fields.timestamp) or not short_number(&at, &delta):
        return False
    if not usual_field(&at, end, data, &fields.key) or limit - at < ENOUGH:
        return False
    if not usual_field(&at, end, data, &fields.value) or at >= end or at[0] & 0x81:
        return False
    fields.offset_delta, fields.headers = <int32_t>delta, at[0] >> 1
    at += 1
    if MIN_HEADER * fields.headers > end - at if fields.headers else at != end:
        return False
    fields.headers_at, fields.end = <int32_t>(at - data), <int32_t>(end - data)
    cursor.position = at - data
    return True


cdef inline int read_any(Cursor *cursor, Fields *fields) noexcept nogil:
    """Does `read_record` for any record."""
    cdef Py_ssize_t end = min(cursor.end, <Py_ssize_t>INT32_MAX)
    cdef int32_t length
    cdef int fault = get_varint(cursor.data, end, &cursor.position, &length)
    if fault:
        return fault
    if length < MIN_RECORD - 1 or length > end - cursor.position:
        return fail(cursor, RECORD_LENGTH, length)
    end = cursor.position + length
    cursor.position += 1  # the attributes, which are unused
    fault = (
        get_varlong(cursor.data, end, &cursor.position, &fields.timestamp)
        or get_varint(cursor.data, end, &cursor.position, &fields.offset_delta)
        or read_field(cursor, end, &fields.key)
        or read_field(cursor, end, &fields.value)
        or get_varint(cursor.data, end, &cursor.position, &fields.headers)
    )
    if fault:
        return fault
    if fields.headers < 0 or fields.headers > (end - cursor.position) // MIN_HEADER:
        return fail(cursor, HEADER_COUNT, fields.headers)
    fields.headers_at, fields.end = <int32_t>cursor.position, <int32_t>end
    return NO_FAULT


cdef inline int read_headers(Cursor *cursor, const Fields *fields, HeaderSizes *sizes) noexcept nogil:
    cdef Header header
    cdef int32_t number
    cdef int fault
    memset(sizes, 0, sizeof(HeaderSizes))
    for number in range(fields.headers):
        fault = read_header(cursor, fields.end, &header)
        if fault:
            return fault
        sizes.key_bytes += header.key.length
        if header.value.length < 0:
            sizes.null_values += 1
        else:
            sizes.value_bytes += header.value.length
    return NO_FAULT


cdef inline int read_record(Cursor *cursor, Fields *fields, HeaderSizes *sizes) noexcept nogil:
    """Reads and checks the record at the cursor, and moves the cursor to its end. After a fault it is anywhere.

    Sets `sizes` only if the record has headers.
    """
    cdef int fault
    if unlikely(not read_usual(cursor, fields)):
        fault = read_any(cursor, fields)
        if fault:
            return fault
    elif not fields.headers:
        return NO_FAULT
    if fields.headers:
        fault = read_headers(cursor, fields, sizes)
        if fault:
            return fault
    if cursor.position != fields.end:
        return fail(cursor, RECORD_SIZE, fields.end - cursor.position)
    return NO_FAULT


cdef inline void begin_walk(
    Walk *walk, const uint8_t *data, Py_ssize_t size, int64_t count, int64_t base_offset, int64_t timestamp,
    bint has_log_append_time,
) noexcept nogil:
    memset(walk, 0, sizeof(Walk))
    walk.cursor.data, walk.cursor.end, walk.size = data, size, size
    walk.index, walk.count, walk.base_offset = -1, count, base_offset
    walk.timestamp, walk.has_log_append_time = timestamp, has_log_append_time


cdef inline bint has_next(const Walk *walk) noexcept nogil:
    return walk.index + 1 < walk.count


cdef inline int next_record(Walk *walk, Fields *fields) noexcept nogil:
    """Reads and checks the next record, and computes its timestamp."""
    cdef int fault
    walk.index += 1
    walk.start = walk.cursor.position
    fault = read_record(&walk.cursor, fields, &walk.header_sizes)
    if fault:
        return fault
    if walk.has_log_append_time:
        fields.timestamp = walk.timestamp
    elif add_overflows(walk.timestamp, fields.timestamp):
        return TIMESTAMP_RANGE
    else:
        fields.timestamp += walk.timestamp
    if walk.index == walk.count - 1 and walk.cursor.position != walk.size:
        return fail(&walk.cursor, TRAILING_BYTES, walk.size - walk.cursor.position)
    return NO_FAULT


cdef inline void step_back(Walk *walk) noexcept nogil:
    """Lets `next_record` read the same record again."""
    walk.index -= 1
    walk.cursor.position = walk.start
