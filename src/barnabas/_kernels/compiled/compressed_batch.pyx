# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=False
# cython: freethreading_compatible=True
"""The look at a whole compressed batch in one call: the twin of `pure.compressed_batch`, which explains it.

Its records are decompressed, and then the question is the one that `record_batch` answers for a batch that never was
compressed. Nobody keeps them: those of the next batch are decompressed into the same memory, which is in the
processor's cache already and need not be cleared.

Only frames as clients write them are read here, and only as far as they are in order. Others are for `compression`,
which reads whatever the formats allow, and says what is wrong.
"""

import zlib

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBUF_WRITE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcmp, memcpy

from barnabas._kernels.compiled.checksum cimport crc32c_of
from barnabas._kernels.compiled.octets cimport int32_at, int64_at, put_int32
from barnabas._kernels.compiled.record_batch cimport Walk, begin_walk, header_is_plain, is_timely, step

cdef enum:
    HEADER_SIZE = 61
    LOG_OVERHEAD = 12
    CRC_STARTS = 21
    COMPRESSION_MASK = 7
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4
    # From this size on, other threads get a turn while the records are walked over.
    LONG_WALK = 1 << 17
    # What is larger when decompressed is rare, and gets memory of its own.
    MOST_ROOM = 4 << 20
    SMALLEST_ROOM = 1 << 16
    # As many threads as usually append at the same time.
    MOST_SPARES = 4
    LZ4_MAGIC = 0x184D2204
    LZ4_STORED = 0x80000000
    LZ4_MAX_RATIO = 255
    ZSTD_MAGIC = 0xFD2FB528
    ZSTD_BLOCK = 1 << 17
    ZSTD_USUAL_WINDOW = 1 << 23
    XERIAL_HEADER = 16
    SNAPPY_MAX_RATIO = 22
    GZIP_WBITS = 31

cdef object lz4_block = None
cdef object zstd_frame = None
cdef object snappy_size = None
cdef object snappy_block = None
cdef object DecompressionError = None
cdef list spares = []
"""Memory to decompress into that nobody uses now."""


cdef int load() except -1:
    """Makes what a batch is decompressed with known here. As in `compression`, not before there is one."""
    global lz4_block, zstd_frame, snappy_size, snappy_block, DecompressionError
    import cramjam

    lz4_block = cramjam.lz4.decompress_block_into
    zstd_frame = cramjam.zstd.decompress_into
    snappy_size = cramjam.snappy.decompress_raw_len
    snappy_block = cramjam.snappy.decompress_raw_into
    DecompressionError = cramjam.DecompressionError
    return 0


cdef inline uint32_t little32(const uint8_t *data) noexcept nogil:
    return (<uint32_t>data[3] << 24) | (<uint32_t>data[2] << 16) | (<uint32_t>data[1] << 8) | data[0]


cdef inline object readable(const uint8_t *data, Py_ssize_t size):
    return PyMemoryView_FromMemory(<char *>data, size, PyBUF_READ)


cdef inline object writable(uint8_t *data, Py_ssize_t size):
    return PyMemoryView_FromMemory(<char *>data, size, PyBUF_WRITE)


# Codecs. Each tells first how much room it may need, -1 if it does not want to; then it fills that room, and tells how
# much of it, or -1.


cdef uint32_t descriptor_hash(const uint8_t *data) noexcept nogil:
    """xxHash of the two bytes that an lz4 frame begins with, behind its magic."""
    cdef uint32_t value = <uint32_t>0x165667B1 + 2
    cdef int index
    for index in range(2):
        value += data[index] * <uint32_t>0x165667B1
        value = ((value << 11) | (value >> 21)) * <uint32_t>0x9E3779B1
    value = (value ^ (value >> 15)) * <uint32_t>0x85EBCA77
    value = (value ^ (value >> 13)) * <uint32_t>0xC2B2AE3D
    return value ^ (value >> 16)


cdef int64_t lz4_bound(const uint8_t *data, Py_ssize_t size) noexcept nogil:
    """For one frame of independent blocks without checksums or a stated size."""
    cdef int64_t bound = 0, limit, length
    cdef Py_ssize_t at = 7
    cdef uint32_t head
    # Version 1, independent blocks, and no other flag.
    if size < 11 or little32(data) != LZ4_MAGIC or data[4] != 0x60:
        return -1
    if data[5] & 0x8F or data[5] < 0x40 or ((descriptor_hash(data + 4) >> 8) & 0xFF) != data[6]:
        return -1
    limit = <int64_t>1 << (8 + 2 * (data[5] >> 4))
    while True:
        if size - at < 4:
            return -1
        head = little32(data + at)
        at += 4
        if head == 0:
            return bound if at == size else -1
        length = head & 0x7FFFFFFF
        if length > limit or length > size - at:
            return -1
        bound += length if head & <uint32_t>LZ4_STORED else min(limit, length * LZ4_MAX_RATIO)
        at += length


cdef Py_ssize_t read_lz4(const uint8_t *data, uint8_t *out, Py_ssize_t room) except -2:
    cdef Py_ssize_t at = 7, written = 0, length, limit = <Py_ssize_t>1 << (8 + 2 * (data[5] >> 4))
    cdef uint32_t head
    while True:
        head = little32(data + at)
        at += 4
        if head == 0:
            return written
        length = head & 0x7FFFFFFF
        if head & <uint32_t>LZ4_STORED:
            if length > room - written:
                return -1
            memcpy(out + written, data + at, length)
            written += length
        else:
            written += <Py_ssize_t>lz4_block(
                readable(data + at, length), writable(out + written, min(limit, room - written))
            )
        at += length


cdef int64_t zstd_bound(const uint8_t *data, Py_ssize_t size) noexcept nogil:
    """For one frame without a dictionary, whose window is of a usual size."""
    cdef int64_t bound = 0, window = -1, content_size = -1, limit
    cdef Py_ssize_t at = 5, index
    cdef uint32_t head, length
    cdef uint8_t descriptor
    cdef int size_bytes
    # The longest head there is has ten bytes more, the shortest frame not: it is for those who read any.
    if size < 18 or little32(data) != <uint32_t>ZSTD_MAGIC:
        return -1
    descriptor = data[4]
    if descriptor & 0x1B:  # bits that must be 0 or say nothing, and a dictionary
        return -1
    if not descriptor & 0x20:
        window = <int64_t>1 << (10 + (data[at] >> 3))
        window = window // 8 * (8 + (data[at] & 7))
        at += 1
    size_bytes = (0 if descriptor < 0x40 else 1 << (descriptor >> 6))
    if size_bytes == 0 and descriptor & 0x20:
        size_bytes = 1
    if size_bytes == 8:  # of a batch that has gigabytes
        return -1
    if size_bytes:
        content_size = 0
        for index in range(size_bytes):
            content_size |= <int64_t>data[at + index] << (8 * index)
        if size_bytes == 2:
            content_size += 256
        if window < 0:
            window = content_size
        at += size_bytes
    if window > ZSTD_USUAL_WINDOW:
        return -1
    limit = min(window, <int64_t>ZSTD_BLOCK)
    while True:
        if size - at < 3:
            return -1
        head = data[at] | (<uint32_t>data[at + 1] << 8) | (<uint32_t>data[at + 2] << 16)
        at += 3
        length = head >> 3
        if (head >> 1) & 3 == 0:
            bound += length
        elif (head >> 1) & 3 == 1:
            bound += min(<int64_t>length, limit)
            length = 1
        elif (head >> 1) & 3 == 2:
            bound += limit
        else:
            return -1
        if <Py_ssize_t>length > size - at:
            return -1
        at += length
        if head & 1:
            break
    if descriptor & 0x04:  # a checksum
        at += 4
    if at != size:
        return -1
    return bound if content_size < 0 else min(bound, content_size)


cdef int64_t snappy_bound(const uint8_t *data, Py_ssize_t size) except -2:
    """For blocks in the framing of Java's library, behind one header."""
    cdef int64_t bound = 0, length, claimed
    cdef Py_ssize_t at = XERIAL_HEADER
    if size < XERIAL_HEADER or memcmp(data, b"\x82SNAPPY\0", 8) or int32_at(data + 12) < 1:
        return -1
    while at < size:
        if size - at < 4:
            return -1
        length = int32_at(data + at)
        at += 4
        # The magic of another header is below 0 as a length.
        if length <= 0 or length > size - at:
            return -1
        claimed = snappy_size(readable(data + at, length))
        if claimed > length * SNAPPY_MAX_RATIO:
            return -1
        bound += claimed
        at += length
    return bound


cdef Py_ssize_t read_snappy(const uint8_t *data, Py_ssize_t size, uint8_t *out, Py_ssize_t room) except -2:
    cdef Py_ssize_t at = XERIAL_HEADER, written = 0, length
    while at < size:
        length = <Py_ssize_t><uint32_t>int32_at(data + at)
        at += 4
        written += <Py_ssize_t>snappy_block(readable(data + at, length), writable(out + written, room - written))
        at += length
    return written


cdef Py_ssize_t read_gzip(const uint8_t *data, Py_ssize_t size, uint8_t *out, Py_ssize_t room) except -2:
    """One member, whose output is copied: Python's library has no way to fill memory of somebody else."""
    decompressor = zlib.decompressobj(GZIP_WBITS)
    # With room for one byte more it gets as far as the end of the member, which comes behind the last byte of output.
    cdef bytes output = decompressor.decompress(readable(data, size), room + 1)
    if not decompressor.eof or decompressor.unused_data or PyBytes_GET_SIZE(output) > room:
        return -1
    memcpy(out, PyBytes_AS_STRING(output), PyBytes_GET_SIZE(output))
    return PyBytes_GET_SIZE(output)


cdef int64_t bound_of(int codec, const uint8_t *data, Py_ssize_t size) except -2:
    if codec == LZ4:
        return lz4_bound(data, size)
    if codec == ZSTD:
        return zstd_bound(data, size)
    if codec == SNAPPY:
        return snappy_bound(data, size)
    if codec == GZIP and size > 18:  # it ends with its size, which is believed as far as memory goes that is there
        return little32(data + size - 4)
    return -1


cdef Py_ssize_t decompressed(
    int codec, const uint8_t *data, Py_ssize_t size, uint8_t *out, Py_ssize_t room
) except -2:
    if codec == LZ4:
        return read_lz4(data, out, room)
    if codec == ZSTD:
        return zstd_frame(readable(data, size), writable(out, room))
    if codec == SNAPPY:
        return read_snappy(data, size, out, room)
    return read_gzip(data, size, out, room)


cdef bytearray memory_for(Py_ssize_t size):
    cdef bytearray found
    try:
        found = spares.pop()
    except IndexError:
        found = None
    if found is None or PyByteArray_GET_SIZE(found) < size:
        found = PyByteArray_FromStringAndSize(NULL, max(size, <Py_ssize_t>SMALLEST_ROOM))
    return found


cdef bint is_plain_inside(
    const uint8_t *header,
    const uint8_t *records,
    Py_ssize_t size,
    int64_t now_ms,
    int64_t before_max_ms,
    int64_t after_max_ms,
    bint keys_needed,
) noexcept nogil:
    """Whether the header with these records behind it would be a plain batch, if it said that it is not compressed."""
    cdef uint8_t copy[HEADER_SIZE]
    cdef Walk walk
    cdef Py_ssize_t position = 0
    cdef int32_t count = int32_at(header + 57)
    memcpy(copy, header, HEADER_SIZE)
    put_int32(copy + 8, <int32_t>(HEADER_SIZE - LOG_OVERHEAD + size))
    copy[22] &= ~COMPRESSION_MASK
    if not header_is_plain(copy, HEADER_SIZE + size):
        return False
    begin_walk(header, &walk)
    while walk.seen < count:
        if not step(records, size, &position, &walk, keys_needed):
            return False
    return position == size and is_timely(&walk, now_ms, before_max_ms, after_max_ms)


def size_if_plain(
    data,
    Py_ssize_t max_size,
    Py_ssize_t max_decompressed,
    int64_t now_ms,
    int64_t before_max_ms,
    int64_t after_max_ms,
    bint keys_needed,
):
    """The size of the records of a compressed batch, decompressed, if there is nothing to say about it; -1 if not."""
    cdef Py_buffer buffer
    cdef const uint8_t *start
    cdef const uint8_t *compressed
    cdef uint8_t *room
    cdef bytearray memory
    cdef Py_ssize_t size, length
    cdef int64_t bound
    cdef int codec
    cdef bint plain
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        start = <const uint8_t *>buffer.buf
        size = buffer.len - HEADER_SIZE
        if size <= 0 or buffer.len > max_size or <int64_t>int32_at(start + 8) + LOG_OVERHEAD != buffer.len:
            return -1
        codec = start[22] & COMPRESSION_MASK
        if codec == 0:
            return -1
        if crc32c_of(start + CRC_STARTS, buffer.len - CRC_STARTS, 0) != <uint32_t>int32_at(start + 17):
            return -1
        if lz4_block is None:
            load()
        compressed = start + HEADER_SIZE
        try:
            bound = min(bound_of(codec, compressed, size), <int64_t>MOST_ROOM)
            if bound <= 0:
                return -1
            memory = memory_for(bound)
            room = <uint8_t *>PyByteArray_AS_STRING(memory)
            length = decompressed(codec, compressed, size, room, bound)
        except (DecompressionError, zlib.error):
            return -1
        if length <= 0 or length > max_decompressed:
            plain = False
        elif length < LONG_WALK:
            plain = is_plain_inside(start, room, length, now_ms, before_max_ms, after_max_ms, keys_needed)
        else:
            with nogil:
                plain = is_plain_inside(start, room, length, now_ms, before_max_ms, after_max_ms, keys_needed)
        if len(spares) < MOST_SPARES:
            spares.append(memory)
    finally:
        PyBuffer_Release(&buffer)
    return length if plain else -1


def decompressed_bound(data):
    """The most that the records of a batch can decompress to: 0 if they are not compressed, -1 if that is not known.

    Of gzip it is what the data claims; who decompresses it must not let it become more.
    """
    cdef Py_buffer buffer
    cdef const uint8_t *start
    cdef int codec
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        if buffer.len <= HEADER_SIZE:
            return 0
        start = <const uint8_t *>buffer.buf
        codec = start[22] & COMPRESSION_MASK
        if codec == 0:
            return 0
        if lz4_block is None:
            load()
        try:
            return bound_of(codec, start + HEADER_SIZE, buffer.len - HEADER_SIZE)
        except DecompressionError:
            return -1
    finally:
        PyBuffer_Release(&buffer)
