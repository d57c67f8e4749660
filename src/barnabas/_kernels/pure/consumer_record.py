"""Consumer records and their reader: the Python twin of the compiled kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeAlias

from barnabas._kernels.pure.record_codec import Record, iterate_records
from barnabas.common.serialization_errors import RecordDeserializationError
from barnabas.common.timestamp_type import TimestampType
from barnabas.common.topic_partition import TopicPartition

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
DeserializeFunction: TypeAlias = Callable[[str, Headers, bytes | None], Any]


@dataclass(slots=True, repr=False)
class ConsumerRecord:
    """One record of a topic, with its partition and offset."""

    topic: str
    partition: int
    offset: int
    key: Any = None
    value: Any = None
    _: KW_ONLY
    headers: Headers = ()
    timestamp: int = -1
    """Milliseconds since 1970; `timestamp_type` tells whose clock. -1: none."""
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    serialized_key_size: int = -1
    """In bytes; -1: there is no key."""
    serialized_value_size: int = -1
    leader_epoch: int | None = None
    """The epoch of the leader that wrote the record; None if unknown."""

    def __post_init__(self) -> None:
        self.headers = tuple(self.headers)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self) -> str:
        return (
            f"ConsumerRecord(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, key={self.key!r}, "
            f"value={self.value!r}, headers={self.headers!r}, timestamp={self.timestamp})"
        )


class ConsumerRecordReader:
    """Reads the records of one batch, some at a time.

    Belongs to one thread. `exhausted` tells that no record is left; `next_offset` is the offset after the last record
    read.
    """

    def __init__(
        self,
        data: bytes | bytearray | memoryview,
        count: int,
        base_offset: int,
        base_timestamp: int,
        log_append_time: int | None,
        start_offset: int,
        topic: str,
        partition: int,
        leader_epoch: int,
        deserializers: tuple[DeserializeFunction | None, DeserializeFunction | None],
    ) -> None:
        self._records = iterate_records(data, count, base_offset, base_timestamp, log_append_time, True)
        self._count = count
        self._index = 0
        self._pending: Record | Exception | None = None
        """A record that could not be delivered, or the error in its place; the next call returns to it."""
        self._start_offset = start_offset
        self.next_offset = start_offset
        self._topic = topic
        self._partition = partition
        self._leader_epoch = None if leader_epoch < 0 else leader_epoch
        self._timestamp_type = TimestampType.CREATE_TIME if log_append_time is None else TimestampType.LOG_APPEND_TIME
        self._key_deserializer, self._value_deserializer = deserializers

    @property
    def exhausted(self) -> bool:
        return self._index >= self._count

    def read(self, into: list[ConsumerRecord], limit: int) -> int:
        """Appends up to `limit` records; returns the bytes that they occupy in the batch.

        Corrupt data and a failing deserializer raise at their record, after the records before it have been appended.
        Another call raises again.
        """
        size = 0
        while limit > 0 and self._index < self._count:
            record = self._next()
            if record.offset >= self._start_offset:
                self._pending = RuntimeError("a deserializer must not read from the consumer that called it")
                try:
                    into.append(self._made(record))
                finally:
                    self._pending = record
                self._pending = None
                self.next_offset = record.offset + 1
                size += record.size_in_bytes
                limit -= 1
            self._index += 1
        return size

    def _next(self) -> Record:
        pending = self._pending
        if isinstance(pending, Exception):
            raise pending
        if pending is not None:
            return pending
        try:
            return next(self._records)
        except Exception as error:
            self._pending = error
            raise

    def _deserialized(self, deserialize: DeserializeFunction | None, part: str, record: Record, data: Any) -> Any:
        if deserialize is None:
            return data
        try:
            return deserialize(self._topic, record.headers, data)  # type: ignore[arg-type]
        except Exception as error:
            where = TopicPartition(self._topic, self._partition)
            raise RecordDeserializationError(where, record.offset, part) from error

    def _made(self, record: Record) -> ConsumerRecord:
        return ConsumerRecord(
            self._topic,
            self._partition,
            record.offset,
            self._deserialized(self._key_deserializer, "KEY", record, record.key),
            self._deserialized(self._value_deserializer, "VALUE", record, record.value),
            headers=record.headers,  # type: ignore[arg-type]
            timestamp=record.timestamp,
            timestamp_type=self._timestamp_type,
            serialized_key_size=-1 if record.key is None else len(record.key),
            serialized_value_size=-1 if record.value is None else len(record.value),
            leader_epoch=self._leader_epoch,
        )
