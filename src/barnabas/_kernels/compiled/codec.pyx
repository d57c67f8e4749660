# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=False
# cython: freethreading_compatible=True, binding=False, auto_pickle=False
"""Decodes and encodes messages by their declaration; the twin generates Python source from it.

A `_Struct` is the declaration of a struct, resolved for one version: which fields are on the wire, in which order
and form, and the position of each in the objects of the class. Errors say only that something is wrong; the caller
finds out what it is.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.long cimport PyLong_AsLongLong, PyLong_Check, PyLong_FromLongLong
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject, PyObject_IsTrue, PyTypeObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, INT64_MIN, int8_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from types import MemberDescriptorType

from barnabas._kernels.compiled.interpreter_lock cimport let_others_run
from barnabas._kernels.compiled.octets cimport int16_at, int32_at, put_int32

from barnabas._kernels import offer_turn
from barnabas.common.errors import ProtocolError, UnsupportedVersionError
from barnabas.protocol.message import TooManyEntriesError

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    object PyType_GenericAlloc(PyTypeObject *cls, Py_ssize_t items)
    object PyNumber_Index(object number)
    void PyObject_GC_UnTrack(object)

cdef extern from "structmember.h":
    ctypedef struct PyMemberDef:
        Py_ssize_t offset
    ctypedef struct PyMemberDescrObject:
        PyMemberDef *d_member

cdef enum:
    BOOL, INT8, INT16, UINT16, INT32, UINT32, INT64, FLOAT64, UUID, STRING, BYTES, RECORDS, STRUCT, ARRAY
    # How the value of a field shows that it is not the default.
    IS_NOT_NONE, IS_TRUE, IS_NONE_OR_TRUE, IS_UNEQUAL
    COPY_UP_TO = 4096  # longer bytes are passed on as a part of their own
    ROOM = 512
    TURN = 256  # after so many elements of an array, other threads may run

cdef dict KINDS = {
    "bool": BOOL, "int8": INT8, "int16": INT16, "uint16": UINT16, "int32": INT32, "uint32": UINT32, "int64": INT64,
    "float64": FLOAT64, "uuid": UUID, "string": STRING, "bytes": BYTES, "records": RECORDS, "struct": STRUCT,
    "array": ARRAY,
}
cdef int[9] WIDTHS = [1, 1, 2, 2, 4, 4, 8, 8, 16]
cdef int64_t[7] LOWEST = [0, -(1 << 7), -(1 << 15), 0, -(1 << 31), 0, INT64_MIN]
cdef int64_t[7] HIGHEST = [1, (1 << 7) - 1, (1 << 15) - 1, (1 << 16) - 1, (1 << 31) - 1, (1LL << 32) - 1, INT64_MAX]


cdef class _Field:
    """A field in one version."""

    cdef object name, default, default_factory
    cdef int kind, element_kind, difference, tag
    cdef bint nullable, flexible, tagged
    cdef _Struct element
    cdef Py_ssize_t offset, smallest, smallest_element

    def __init__(self, declared, cls, str message, version, bint flexible):
        self.name = declared.name
        self.kind = KINDS[declared.kind]
        self.offset = offset_of(cls, declared.name)
        self.nullable = version in declared.nullable
        self.flexible = flexible if declared.flexible is None else version in declared.flexible
        self.tagged = declared.is_tagged(version)
        self.tag = -1 if declared.tag is None else declared.tag
        self.default, self.default_factory = declared.default, declared.default_factory
        self.difference = IS_UNEQUAL
        if self.default_factory is list:
            self.difference = IS_NONE_OR_TRUE if declared.nullable.lowest <= declared.nullable.highest else IS_TRUE
        elif self.default_factory is not None:
            self.default = self.default_factory()
        elif self.default is None:
            self.difference = IS_NOT_NONE
        elif self.default == 0:
            self.difference = IS_TRUE
        self.element_kind = -1
        if self.kind == STRUCT or self.kind == ARRAY and not isinstance(declared.element, str):
            self.element = _Struct(declared.element, message, version, flexible)
            self.element_kind = STRUCT
            self.smallest_element = self.element.smallest
        elif self.kind == ARRAY:
            self.element_kind = KINDS[declared.element]
            self.smallest_element = smallest_size(self.element_kind, self.flexible)
        self.smallest = smallest_size(self.kind, self.flexible)
        if self.kind == STRUCT:
            self.smallest = 1 if self.nullable else self.element.smallest

    cdef object make_default(self):
        return self.default if self.default_factory is None else self.default_factory()

    cdef bint differs(self, value) except -1:
        """Returns whether a value is not the default."""
        if self.difference == IS_NOT_NONE:
            return value is not None
        if self.difference == IS_UNEQUAL:
            return value != self.default
        return PyObject_IsTrue(value) or self.difference == IS_NONE_OR_TRUE and value is None


cdef class _Struct:
    """A struct in one version: `decode` and `encode` are the codec of a message."""

    cdef object cls
    cdef list fields, tagged, absent, lost
    cdef object message, version
    cdef bint flexible
    cdef Py_ssize_t tags_offset, smallest
    cdef int64_t max_entries, max_string

    def __init__(self, cls, str message, version, bint flexible, int64_t max_entries=0, int64_t max_string=0):
        cdef _Field field
        self.cls = cls
        self.message = message
        self.version = version
        self.flexible = flexible
        self.max_entries, self.max_string = max_entries, max_string
        self.fields, self.tagged, self.absent, self.lost = [], [], [], []
        self.tags_offset = offset_of(cls, "unknown_tagged_fields")
        self.smallest = 1 if flexible else 0
        for declared in cls.fields:
            field = _Field(declared, cls, message, version, flexible)
            if field.tagged:
                self.tagged.append(field)
            elif version in declared.versions:
                self.fields.append(field)
                self.smallest += field.smallest
            else:
                self.absent.append(field)
                if not declared.ignorable:
                    self.lost.append(field)
        self.smallest = max(self.smallest, 1)

    def decode(self, buffer, Py_ssize_t start, Py_ssize_t end, entries=None):
        """Decodes the message at `start`; returns it and the position after it."""
        cdef Input source
        cdef Py_buffer view
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if start < 0 or end > view.len:
                fail()
            source.data = <const uint8_t *>view.buf
            source.at, source.end = start, end
            source.entries = self.max_entries if entries is None else entries
            source.max_string = self.max_string
            return read_struct(self, &source, buffer), source.at
        finally:
            PyBuffer_Release(&view)

    def encode(self, message, head=None):
        """Returns the parts of the encoded message; with a `head`, those of a frame: the length, the head, the message."""
        cdef Output out
        cdef list parts = []
        cdef bytes first
        out.data, out.size, out.total, out.room, out.max_string = out.fixed, 0, 0, ROOM, self.max_string
        try:
            if head is not None:
                write_number(&out, INT32, 0)  # the length, which is known at the end
                write_bytes(&out, head)
            write_struct(self, message, &out, parts)
            flush(&out, parts)
            if head is not None:
                if out.total - 4 > HIGHEST[INT32]:
                    fail()
                first = parts[0]  # nothing else refers to it yet
                put_int32(<uint8_t *>PyBytes_AS_STRING(first), <int32_t>(out.total - 4))
            return parts
        finally:
            if out.data != out.fixed:
                PyMem_Free(out.data)


def decoder(message, version):
    """Returns ``decode(buffer, start, end, entries)`` for one version of a message."""
    return struct_of(message, version).decode


def encoder(message, version):
    """Returns ``encode(message, head)`` for one version of a message."""
    return struct_of(message, version).encode


cdef _Struct struct_of(message, version):
    max_entries = getattr(message, "max_entries", HIGHEST[INT64])
    max_string = getattr(message, "max_string", HIGHEST[INT64])
    return _Struct(message, message.__name__, version, version in message.flexible, max_entries, max_string)


cdef Py_ssize_t offset_of(cls, str name) except -1:
    descriptor = getattr(cls, name)
    if type(descriptor) is not MemberDescriptorType:
        raise TypeError(f"{cls.__name__}.{name} is no slot")
    return (<PyMemberDescrObject *>descriptor).d_member.offset


cdef Py_ssize_t smallest_size(int kind, bint flexible):
    """Returns the fewest bytes that a value can take. An array with more elements than bytes is refused unread."""
    if kind < STRING:
        return WIDTHS[kind]
    return 1 if flexible else 2 if kind == STRING else 4


cdef int fail() except -1:
    raise ProtocolError("malformed")


# Decoding

cdef struct Input:
    const uint8_t *data
    Py_ssize_t at
    Py_ssize_t end
    int64_t entries
    int64_t max_string


cdef const uint8_t *take(Input *source, Py_ssize_t size) except NULL:
    cdef const uint8_t *found = source.data + source.at
    if size < 0 or size > source.end - source.at:
        fail()
    source.at += size
    return found


cdef int64_t read_uvarint(Input *source) except -1:
    cdef int64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while shift < 35:
        byte = take(source, 1)[0]
        value |= <int64_t>(byte & 0x7F) << shift
        if byte < 128:
            break
        shift += 7
    if shift == 35 or value > HIGHEST[UINT32]:
        fail()
    return value


cdef int64_t read_length(Input *source, bint flexible, bint wide, bint nullable) except -2:
    """Returns the length of a string, bytes or array; -1 for null."""
    cdef int64_t size
    if flexible:
        size = read_uvarint(source) - 1
    else:
        size = int32_at(take(source, 4)) if wide else int16_at(take(source, 2))
    if size < (-1 if nullable else 0):
        fail()
    return size


cdef int count_entries(Input *source, int64_t count) except -1:
    """Counts elements of arrays, and the tagged fields that a struct has beyond the declared ones."""
    source.entries -= max(count, 0)
    if source.entries < 0:
        raise TooManyEntriesError("the request has more entries than allowed")
    return 0


cdef inline void put_slot(object target, Py_ssize_t offset, object value) noexcept:
    cdef PyObject **slot = <PyObject **>(<char *><PyObject *>target + offset)
    cdef PyObject *before = slot[0]
    Py_INCREF(value)
    slot[0] = <PyObject *>value
    Py_XDECREF(before)


cdef object read_struct(_Struct layout, Input *source, buffer):
    cdef _Field field
    made = PyType_GenericAlloc(<PyTypeObject *>layout.cls, 0)
    PyObject_GC_UnTrack(made)  # as `StructMemory` does: a constructor is not called
    for field in layout.absent:
        put_slot(made, field.offset, field.make_default())
    for field in layout.fields:
        put_slot(made, field.offset, read_field(field, source, buffer))
    for field in layout.tagged:
        put_slot(made, field.offset, field.make_default())
    put_slot(made, layout.tags_offset, read_tags(layout, made, source, buffer) if layout.flexible else None)
    return made


cdef object read_tags(_Struct layout, made, Input *source, buffer):
    """Reads the tagged fields; returns those that are not declared."""
    cdef int64_t tag, size, count = read_uvarint(source)
    cdef Py_ssize_t stop
    cdef _Field field
    unknown = None
    count_entries(source, count - len(layout.tagged))
    for _ in range(count):
        tag = read_uvarint(source)
        size = read_uvarint(source)
        stop = source.at + size
        if stop > source.end:
            fail()
        for field in layout.tagged:
            if field.tag == tag:
                put_slot(made, field.offset, read_field(field, source, buffer))
                break
        else:
            if unknown is None:
                unknown = {}
            unknown[tag] = PyBytes_FromStringAndSize(<const char *>take(source, size), size)
        if source.at != stop:
            fail()
    return unknown


cdef object read_field(_Field field, Input *source, buffer):
    cdef int64_t count, index
    cdef int8_t marker
    cdef list items
    if field.kind < STRUCT:
        return read_value(field.kind, field.flexible, field.nullable, source, buffer)
    if field.kind == STRUCT:
        if field.nullable:
            marker = <int8_t>take(source, 1)[0]
            if marker == 0 if field.tagged else marker < 0:
                return None
        return read_struct(field.element, source, buffer)
    count = read_length(source, field.flexible, True, field.nullable)
    if count < 0:
        return None
    if count * field.smallest_element > source.end - source.at:
        fail()
    count_entries(source, count)
    items = []
    PyObject_GC_UnTrack(items)
    for index in range(count):
        if index % TURN == TURN - 1:
            let_others_run(offer_turn)
        if field.element_kind == STRUCT:
            items.append(read_struct(field.element, source, buffer))
        else:
            items.append(read_value(field.element_kind, field.flexible, False, source, buffer))
    return items


cdef object read_value(int kind, bint flexible, bint nullable, Input *source, buffer):
    cdef int64_t size
    cdef uint64_t bits = 0
    cdef double real
    cdef Py_ssize_t start
    cdef const uint8_t *data
    if kind >= STRING:
        size = read_length(source, flexible, kind != STRING, nullable)
        if size < 0:
            return None
        if kind == STRING and size > source.max_string:
            fail()
        start = source.at
        data = take(source, size)
        if kind == STRING:
            return PyUnicode_DecodeUTF8(<const char *>data, size, NULL)
        if kind == BYTES:
            return PyBytes_FromStringAndSize(<const char *>data, size)
        return (buffer if type(buffer) is memoryview else memoryview(buffer))[start : start + size]
    data = take(source, WIDTHS[kind])
    if kind == UUID:
        return PyBytes_FromStringAndSize(<const char *>data, 16)
    for start in range(WIDTHS[kind]):
        bits = bits << 8 | data[start]
    if kind == FLOAT64:
        memcpy(&real, &bits, 8)
        return real
    if kind == BOOL:
        return bits != 0
    start = 8 * (8 - WIDTHS[kind])
    return PyLong_FromLongLong(<int64_t>(bits << start) >> start if LOWEST[kind] else <int64_t>bits)


# Encoding

cdef struct Output:
    uint8_t *data
    Py_ssize_t size
    Py_ssize_t room
    int64_t total  # bytes in all parts so far
    int64_t max_string
    uint8_t fixed[ROOM]


cdef uint8_t *reserve(Output *out, Py_ssize_t size) except NULL:
    """Returns where the next bytes go, with room for so many."""
    cdef uint8_t *grown
    if size > out.room - out.size:
        out.room = max(2 * out.room, out.size + size)
        if out.data == out.fixed:
            grown = <uint8_t *>PyMem_Malloc(out.room)
            if grown != NULL:
                memcpy(grown, out.fixed, out.size)
        else:
            grown = <uint8_t *>PyMem_Realloc(out.data, out.room)
        if grown == NULL:
            raise MemoryError()
        out.data = grown
    return out.data + out.size


cdef int flush(Output *out, list parts) except -1:
    """Ends a part."""
    if out.size:
        parts.append(PyBytes_FromStringAndSize(<const char *>out.data, out.size))
        out.total += out.size
        out.size = 0
    return 0


cdef int write_bytes(Output *out, data) except -1:
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        memcpy(reserve(out, view.len), view.buf, view.len)
        out.size += view.len
    finally:
        PyBuffer_Release(&view)
    return 0


cdef int write_uvarint(Output *out, int64_t value) except -1:
    cdef uint8_t *data = reserve(out, 10)
    while value > 127:
        data[0] = <uint8_t>(value & 0x7F | 0x80)
        data += 1
        value >>= 7
    data[0] = <uint8_t>value
    out.size = data + 1 - out.data
    return 0


cdef int write_number(Output *out, int kind, int64_t value) except -1:
    cdef uint8_t *data = reserve(out, 8)
    cdef int index
    if not LOWEST[kind] <= value <= HIGHEST[kind]:
        fail()
    for index in range(WIDTHS[kind] - 1, -1, -1):
        data[index] = <uint8_t>value
        value >>= 8
    out.size += WIDTHS[kind]
    return 0


cdef int write_length(Output *out, int64_t size, bint flexible, bint wide) except -1:
    """Writes the length of a string, bytes or array; -1 for null."""
    if flexible:
        return write_uvarint(out, size + 1)
    return write_number(out, INT32 if wide else INT16, size)


cdef inline object slot_of(object holder, Py_ssize_t offset):
    cdef PyObject *found = (<PyObject **>(<char *><PyObject *>holder + offset))[0]
    if found == NULL:
        raise AttributeError("a field is not set")
    return <object>found


cdef int write_struct(_Struct layout, value, Output *out, list parts) except -1:
    cdef _Field field
    if type(value) is not layout.cls and not isinstance(value, layout.cls):
        raise TypeError(f"expected {layout.cls.__qualname__}, got {type(value).__qualname__}")
    for field in layout.lost:
        if field.differs(slot_of(value, field.offset)):
            raise UnsupportedVersionError(
                f"{layout.message} v{layout.version} cannot carry a non-default value of "
                f"{layout.cls.__qualname__}.{field.name}, and may not drop it"
            )
    for field in layout.fields:
        write_field(field, slot_of(value, field.offset), out, parts)
    if layout.flexible:
        write_tags(layout, value, out)
    return 0


cdef int write_tags(_Struct layout, value, Output *out) except -1:
    """Writes the tagged fields that are set, declared or not, in ascending order of their tags."""
    cdef _Field field
    cdef Output one
    cdef list parts, found = None
    unknown = slot_of(value, layout.tags_offset)
    for field in layout.tagged:
        held = slot_of(value, field.offset)
        if not field.differs(held):
            continue
        parts = []
        one.data, one.size, one.total, one.room, one.max_string = one.fixed, 0, 0, ROOM, out.max_string
        try:
            write_field(field, held, &one, parts)
            flush(&one, parts)
        finally:
            if one.data != one.fixed:
                PyMem_Free(one.data)
        found = found or []
        found.append((field.tag, b"".join(parts)))
    if unknown:
        found = [*(found or ()), *unknown.items()]
        if len(dict(found)) < len(found):
            fail()
    if found is None:
        return write_number(out, INT8, 0)
    write_uvarint(out, len(found))
    for tag, data in sorted(found):
        write_uvarint(out, tag)
        write_uvarint(out, len(data))
        write_bytes(out, data)
    return 0


cdef int write_field(_Field field, value, Output *out, list parts) except -1:
    cdef int64_t done = 0
    if value is None and field.kind >= STRING:
        if not field.nullable:
            fail()
        if field.kind == STRUCT:
            return write_number(out, INT8, 0 if field.tagged else -1)
        return write_length(out, -1, field.flexible, field.kind != STRING)
    if field.kind == STRUCT:
        if field.nullable:
            write_number(out, INT8, 1)
        return write_struct(field.element, value, out, parts)
    if field.kind != ARRAY:
        return write_value(field.kind, field.flexible, value, out, parts)
    write_length(out, len(value), field.flexible, True)
    for item in value:
        done += 1
        if done % TURN == 0:
            let_others_run(offer_turn)
        if field.element_kind == STRUCT:
            write_struct(field.element, item, out, parts)
        else:
            write_value(field.element_kind, field.flexible, item, out, parts)
    return 0


cdef int write_value(int kind, bint flexible, value, Output *out, list parts) except -1:
    cdef Py_ssize_t size
    cdef const char *text
    cdef double real
    cdef int64_t bits
    if kind == BOOL:
        return write_number(out, BOOL, PyObject_IsTrue(value))
    if kind < FLOAT64:
        return write_number(out, kind, PyLong_AsLongLong(value if PyLong_Check(value) else PyNumber_Index(value)))
    if kind == STRING:
        text = PyUnicode_AsUTF8AndSize(value, &size)
        if size > out.max_string:
            fail()
        write_length(out, size, flexible, False)
        memcpy(reserve(out, size), text, size)
        out.size += size
        return 0
    if kind == FLOAT64:
        real = value
        memcpy(&bits, &real, 8)
        return write_number(out, INT64, bits)
    size = len(value)
    if kind == UUID:
        if size != 16:
            fail()
        return write_bytes(out, value)
    write_length(out, size, flexible, True)
    if kind == BYTES and size <= COPY_UP_TO:
        return write_bytes(out, value)
    flush(out, parts)
    parts.append(value)
    out.total += size
    return 0
