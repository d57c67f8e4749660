# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=False
# cython: freethreading_compatible=True, binding=False
"""Records as an application gets them, compiled: the twin of `pure.consumer_record`, with the same behaviour.

It creates one object per record directly from the bytes of a fetch: the record parser finds the fields, and this module
copies them.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint64_t, uint8_t

from barnabas._kernels.compiled.faults cimport TIMESTAMP_RANGE, TRAILING_BYTES
from barnabas._kernels.compiled.record_codec cimport Fields, parse_record
from barnabas._kernels.compiled.varint cimport get_varint

from barnabas.common.serialization_errors import RecordDeserializationError
from barnabas.common.topic_partition import TopicPartition
from barnabas.common.timestamp_type import TimestampType
from barnabas._kernels.faults import record_error

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(object)

cdef object CREATE_TIME = TimestampType.CREATE_TIME
cdef object LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME


@cython.final
@cython.freelist(512)
cdef class ConsumerRecord:
    """One record of a topic, with its partition and offset."""

    cdef readonly object topic
    cdef readonly object key
    cdef readonly object value
    cdef readonly tuple headers
    cdef readonly object timestamp_type
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef readonly int32_t partition
    cdef readonly int32_t serialized_key_size
    cdef readonly int32_t serialized_value_size
    cdef int32_t epoch

    def __init__(
        self,
        topic,
        int32_t partition,
        int64_t offset,
        key=None,
        value=None,
        *,
        headers=(),
        int64_t timestamp=-1,
        timestamp_type=CREATE_TIME,
        int32_t serialized_key_size=-1,
        int32_t serialized_value_size=-1,
        leader_epoch=None,
    ):
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.key = key
        self.value = value
        self.headers = tuple(headers)
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.serialized_key_size = serialized_key_size
        self.serialized_value_size = serialized_value_size
        self.epoch = -1 if leader_epoch is None else leader_epoch

    @property
    def leader_epoch(self):
        """The epoch of the leader that wrote the record; None if unknown."""
        return None if self.epoch < 0 else self.epoch

    @property
    def topic_partition(self):
        return TopicPartition(self.topic, self.partition)

    def _fields(self):
        return (
            self.topic,
            self.partition,
            self.offset,
            self.key,
            self.value,
            self.headers,
            self.timestamp,
            self.timestamp_type,
            self.serialized_key_size,
            self.serialized_value_size,
            self.leader_epoch,
        )

    def __eq__(self, other):
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return self._fields() == (<ConsumerRecord>other)._fields()

    def __hash__(self):
        return hash((self.topic, self.partition, self.offset))

    def __reduce__(self):
        return (_restore, self._fields())

    def __repr__(self):
        return (
            f"ConsumerRecord(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, key={self.key!r}, "
            f"value={self.value!r}, headers={self.headers!r}, timestamp={self.timestamp})"
        )


def _restore(
    topic, partition, offset, key, value, headers, timestamp, timestamp_type, key_size, value_size, leader_epoch
):
    return ConsumerRecord(
        topic,
        partition,
        offset,
        key,
        value,
        headers=headers,
        timestamp=timestamp,
        timestamp_type=timestamp_type,
        serialized_key_size=key_size,
        serialized_value_size=value_size,
        leader_epoch=leader_epoch,
    )


@cython.final
cdef class ConsumerRecordReader:
    """Reads the records of one batch, some at a time.

    Belongs to one thread. `exhausted` tells that no record is left; `next_offset` is the offset after the last record
    read.
    """

    cdef object _source
    # Valid within `read` only: a buffer held for longer would be in the way when the collector clears an unreachable
    # consumer, whose parts it releases in any order.
    cdef const uint8_t *_data
    cdef Py_ssize_t _size
    cdef Py_ssize_t _position
    cdef int32_t _index
    cdef int32_t _count
    cdef int64_t _base_offset
    cdef int64_t _base_timestamp
    cdef int64_t _log_append_time
    cdef bint _has_log_append_time
    cdef int64_t _start_offset
    cdef object _topic
    cdef int32_t _partition
    cdef int32_t _leader_epoch
    cdef object _key_deserializer
    cdef object _value_deserializer
    cdef readonly int64_t next_offset

    def __cinit__(
        self,
        data,
        int32_t count,
        int64_t base_offset,
        int64_t base_timestamp,
        log_append_time,
        int64_t start_offset,
        topic,
        int32_t partition,
        int32_t leader_epoch,
        tuple deserializers not None,
    ):
        self._source = data
        self._count = count
        self._base_offset = base_offset
        self._base_timestamp = base_timestamp
        self._has_log_append_time = log_append_time is not None
        if self._has_log_append_time:
            self._log_append_time = log_append_time
        self._start_offset = start_offset
        self.next_offset = start_offset
        self._topic = topic
        self._partition = partition
        self._leader_epoch = leader_epoch
        self._key_deserializer, self._value_deserializer = deserializers

    @property
    def exhausted(self):
        return self._index >= self._count

    @cython.critical_section
    def read(self, list into not None, Py_ssize_t limit):
        """Appends up to `limit` records; returns the bytes that they occupy in the batch.

        Corrupt data and a failing deserializer raise at their record, after the records before it have been appended.
        Another call raises again.
        """
        cdef Py_buffer buffer
        PyObject_GetBuffer(self._source, &buffer, PyBUF_SIMPLE)
        try:
            self._data = <const uint8_t *>buffer.buf
            self._size = buffer.len
            return self._read(into, limit)
        finally:
            self._data = NULL
            PyBuffer_Release(&buffer)

    cdef Py_ssize_t _read(self, list into, Py_ssize_t limit) except -1:
        cdef Fields fields
        cdef Py_ssize_t start, size = 0
        cdef int64_t offset
        cdef int fault
        cdef bint plain = self._key_deserializer is None and self._value_deserializer is None
        cdef ConsumerRecord record
        fields.detail = 0
        while limit > 0 and self._index < self._count:
            start = self._position
            fault = parse_record(self._data, self._size, &self._position, &fields)
            if not fault:
                if not self._has_log_append_time and _add_overflows(self._base_timestamp, fields.timestamp_delta):
                    fault = TIMESTAMP_RANGE
                elif self._index == self._count - 1 and self._position != self._size:
                    fault = TRAILING_BYTES
                    fields.detail = self._size - self._position
            if fault:
                self._position = start
                raise record_error(fault, self._index, start, fields.detail)
            # Unsigned, because overflow is defined there; the caller has checked the range.
            offset = <int64_t>(<uint64_t>self._base_offset + <uint64_t><int64_t>fields.offset_delta)
            if offset < self._start_offset:
                self._index += 1
                continue
            record = ConsumerRecord.__new__(ConsumerRecord)
            record.topic = self._topic
            record.partition = self._partition
            record.offset = offset
            if self._has_log_append_time:
                record.timestamp = self._log_append_time
                record.timestamp_type = LOG_APPEND_TIME
            else:
                record.timestamp = self._base_timestamp + fields.timestamp_delta
                record.timestamp_type = CREATE_TIME
            record.serialized_key_size = fields.key_length
            record.serialized_value_size = fields.value_length
            record.epoch = self._leader_epoch
            record.headers = self._headers(fields.headers_at, fields.header_count) if fields.header_count else ()
            if fields.key_length >= 0:
                record.key = PyBytes_FromStringAndSize(<const char *>self._data + fields.key_at, fields.key_length)
            if fields.value_length >= 0:
                record.value = PyBytes_FromStringAndSize(
                    <const char *>self._data + fields.value_at, fields.value_length
                )
            if plain:
                # Bytes and strings refer to nothing, so the collector need not track the tuple.
                PyObject_GC_UnTrack(record)
            else:
                try:
                    self._deserialize(record)
                except BaseException:
                    self._position = start
                    raise
            self._index += 1
            self.next_offset = offset + 1
            into.append(record)
            size += self._position - start
            limit -= 1
        return size

    cdef _deserialize(self, ConsumerRecord record):
        if self._key_deserializer is not None:
            try:
                record.key = self._key_deserializer(record.topic, record.headers, record.key)
            except Exception as error:
                raise RecordDeserializationError(record.topic_partition, record.offset, "KEY") from error
        if self._value_deserializer is not None:
            try:
                record.value = self._value_deserializer(record.topic, record.headers, record.value)
            except Exception as error:
                raise RecordDeserializationError(record.topic_partition, record.offset, "VALUE") from error

    cdef tuple _headers(self, Py_ssize_t at, int32_t count):
        # parse_record has checked these lengths.
        cdef list headers = []
        cdef int32_t length = 0
        cdef int number
        cdef object key, value
        for number in range(count):
            get_varint(self._data, self._size, &at, &length)
            key = PyUnicode_DecodeUTF8(<char *>self._data + at, length, "surrogateescape")
            at += length
            get_varint(self._data, self._size, &at, &length)
            value = None
            if length >= 0:
                value = PyBytes_FromStringAndSize(<const char *>self._data + at, length)
                at += length
            headers.append((key, value))
        return tuple(headers)


cdef inline bint _add_overflows(int64_t a, int64_t b) noexcept nogil:
    return (b > 0 and a > INT64_MAX - b) or (b < 0 and a < INT64_MIN - b)
