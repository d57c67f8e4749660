# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=False
# cython: freethreading_compatible=True, binding=False
"""Records as an application gets them, compiled: the twin of `pure.consumer_record`, with the same behaviour.

It creates one object per record directly from the bytes of a fetch: the record walk finds the fields, and this module
copies them.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint64_t, uint8_t

from barnabas._kernels.compiled.record_codec cimport decode_headers, field_bytes
from barnabas._kernels.compiled.record_walk cimport Fields, Walk, begin_walk, has_next, next_record, step_back

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
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "key": self.key,
            "value": self.value,
            "headers": self.headers,
            "timestamp": self.timestamp,
            "timestamp_type": self.timestamp_type,
            "serialized_key_size": self.serialized_key_size,
            "serialized_value_size": self.serialized_value_size,
            "leader_epoch": self.leader_epoch,
        }

    def __eq__(self, other):
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return self._fields() == (<ConsumerRecord>other)._fields()

    def __hash__(self):
        return hash((self.topic, self.partition, self.offset))

    def __reduce__(self):
        return (_restore, (self._fields(),))

    def __repr__(self):
        return (
            f"ConsumerRecord(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, key={self.key!r}, "
            f"value={self.value!r}, headers={self.headers!r}, timestamp={self.timestamp})"
        )


def _restore(fields):
    return ConsumerRecord(**fields)


@cython.final
cdef class ConsumerRecordReader:
    """Reads the records of one batch, some at a time.

    Belongs to one thread. `exhausted` tells that no record is left; `next_offset` is the offset after the last record
    read.
    """

    cdef object _source
    # Its bytes are valid within `read` only: a buffer held for longer would be in the way when the collector clears an
    # unreachable consumer, whose parts it releases in any order.
    cdef Walk _walk
    cdef int64_t _start_offset
    cdef object _topic
    cdef object _timestamp_type
    cdef int32_t _partition
    cdef int32_t _leader_epoch
    cdef object _key_deserializer
    cdef object _value_deserializer
    cdef readonly int64_t next_offset

    def __cinit__(
        self, data, int32_t count, int64_t base_offset, int64_t base_timestamp, log_append_time, int64_t start_offset,
        topic, int32_t partition, int32_t leader_epoch, tuple deserializers not None,
    ):
        cdef bint has_log_append_time = log_append_time is not None
        cdef int64_t timestamp = log_append_time if has_log_append_time else base_timestamp
        self._source = data
        begin_walk(&self._walk, NULL, 0, count, base_offset, timestamp, has_log_append_time)
        self._timestamp_type = LOG_APPEND_TIME if has_log_append_time else CREATE_TIME
        self._start_offset = start_offset
        self.next_offset = start_offset
        self._topic = topic
        self._partition = partition
        self._leader_epoch = leader_epoch
        self._key_deserializer, self._value_deserializer = deserializers

    @property
    def exhausted(self):
        return not has_next(&self._walk)

    @cython.critical_section
    def read(self, list into not None, Py_ssize_t limit):
        """Appends up to `limit` records; returns the bytes that they occupy in the batch.

        Corrupt data and a failing deserializer raise at their record, after the records before it have been appended.
        Another call raises again.
        """
        cdef Py_buffer buffer
        if self._walk.cursor.data != NULL:
            raise RuntimeError("a deserializer must not read from the consumer that called it")
        PyObject_GetBuffer(self._source, &buffer, PyBUF_SIMPLE)
        try:
            self._walk.cursor.data = <const uint8_t *>buffer.buf
            self._walk.cursor.end = self._walk.size = buffer.len
            return self._read(into, limit)
        finally:
            self._walk.cursor.data = NULL
            PyBuffer_Release(&buffer)

    cdef Py_ssize_t _read(self, list into, Py_ssize_t limit) except -1:
        cdef Walk *walk = &self._walk
        cdef Fields fields
        cdef Py_ssize_t size = 0
        cdef int64_t offset
        cdef int fault
        cdef bint plain = self._key_deserializer is None and self._value_deserializer is None
        cdef ConsumerRecord record
        while limit > 0 and has_next(walk):
            fault = next_record(walk, &fields)
            if fault:
                error = record_error(fault, walk.index, walk.start, walk.cursor.detail)
                step_back(walk)
                raise error
            # Unsigned, because overflow is defined there; the caller has checked the range.
            offset = <int64_t>(<uint64_t>walk.base_offset + <uint64_t><int64_t>fields.offset_delta)
            if offset < self._start_offset:
                continue
            record = ConsumerRecord.__new__(ConsumerRecord)
            record.topic = self._topic
            record.partition = self._partition
            record.offset = offset
            record.timestamp = fields.timestamp
            record.timestamp_type = self._timestamp_type
            record.serialized_key_size = fields.key.length
            record.serialized_value_size = fields.value.length
            record.epoch = self._leader_epoch
            record.headers = decode_headers(walk.cursor.data, &fields, None) if fields.headers else ()
            record.key = field_bytes(walk.cursor.data, fields.key, None)
            record.value = field_bytes(walk.cursor.data, fields.value, None)
            if plain:
                # Bytes and strings refer to nothing, so the collector need not track the tuple.
                PyObject_GC_UnTrack(record)
            else:
                try:
                    self._deserialize(record)
                except BaseException:
                    step_back(walk)
                    raise
            self.next_offset = offset + 1
            into.append(record)
            size += walk.cursor.position - walk.start
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
