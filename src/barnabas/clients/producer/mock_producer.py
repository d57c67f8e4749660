"""A producer for tests of applications: it records the records and sends nothing."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from barnabas._kernels import murmur2
from barnabas.clients.common.metadata_snapshot import MetadataSnapshot, PartitionInfo, TopicInfo
from barnabas.clients.producer.errors import IllegalStateError
from barnabas.clients.producer.internals.future_record_metadata import FutureRecordMetadata
from barnabas.clients.producer.internals.produce_request_result import ProduceRequestResult
from barnabas.clients.producer.internals.producer_batch import Callback
from barnabas.clients.producer.internals.record_input import Headers, as_headers, serialize
from barnabas.clients.producer.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from barnabas.clients.producer.partitioner import Partitioner
from barnabas.clients.producer.prepared_txn_state import PreparedTxnState
from barnabas.clients.producer.producer_record import ProducerRecord
from barnabas.clients.producer.record_metadata import RecordMetadata
from barnabas.clients.producer.serialization import as_serializer
from barnabas.clients.producer.table_metadata import TableFuture
from barnabas.common.errors import ProducerFencedError
from barnabas.common.extras import extra
from barnabas.common.identifiers import ZERO_UUID
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.metric import KafkaMetric
from barnabas.metrics.names import MetricName
from barnabas.network.client.node import Node

partition_for_key = murmur2.partition_for_key

_NODE = Node(0, "mock.test", 9092)


class _Completion:
    """A record that awaits its outcome."""

    __slots__ = ("_callback", "_metadata", "_result")

    def __init__(self, result: ProduceRequestResult, metadata: RecordMetadata, callback: Callback | None) -> None:
        self._result = result
        self._metadata = metadata
        self._callback = callback

    def complete(self, error: Exception | None) -> None:
        if error is None:
            self._result.set(self._metadata.offset, -1, None)
        else:
            self._result.set(-1, -1, lambda _index: error)
        if self._callback is not None:
            if error is None:
                self._callback(self._metadata, None)
            else:
                self._callback(RecordMetadata(*self._metadata.topic_partition, -1, -1, -1, -1), error)
        self._result.done()


class MockProducer:
    """Has the methods of a `KafkaProducer`.

    With ``auto_complete`` each record succeeds at once; without it, a test completes records with `complete_next` or
    `error_next`.

        producer = MockProducer(topics={"orders": 3}, auto_complete=False)
        future = producer.send("orders", b"...")
        producer.error_next(NotEnoughReplicasError())
        assert producer.history[0].value == b"..."

    In a transaction, records become part of the ``history`` when it is committed.
    """

    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        *,
        auto_complete: bool = True,
        key_serializer: object = None,
        value_serializer: object = None,
        partitioner: Partitioner | None = None,
    ) -> None:
        """Topics that are not named here have one partition."""
        self.auto_complete = auto_complete
        self._topics = dict(topics or {})
        self._key_serializer = as_serializer(key_serializer, {}, is_key=True)
        self._value_serializer = as_serializer(value_serializer, {}, is_key=False)
        self._partitioner = partitioner
        self._lock = threading.RLock()
        """Guards all fields. The thread that completes a record calls its callback with the lock held."""
        self._history: list[ProducerRecord] = []
        self._uncommitted: list[ProducerRecord] = []
        self._completions: deque[_Completion] = deque()
        self._offsets: dict[TopicPartition, int] = {}
        self._turn = 0
        self.consumer_group_offsets: list[dict[str, dict[TopicPartition, OffsetAndMetadata]]] = []
        """What each committed transaction has committed for consumer groups."""
        self._uncommitted_offsets: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        self.closed = False
        self.transaction_initialized = False
        self.in_transaction = False
        self.prepared_txn_state = PreparedTxnState()
        """The prepared transaction. A test sets it before `init_transactions` to simulate one that was left open."""
        self.transaction_committed = False
        self.transaction_aborted = False
        self.commit_count = 0
        self._fenced = False
        self.send_error: Exception | None = None
        """Raised by the next calls, if set; likewise the following."""
        self.flush_error: Exception | None = None
        self.close_error: Exception | None = None
        self.commit_transaction_error: Exception | None = None

    # -- test interface

    @property
    def history(self) -> list[ProducerRecord]:
        """The records that were sent and committed."""
        with self._lock:
            return list(self._history)

    @property
    def uncommitted_records(self) -> list[ProducerRecord]:
        """The records of the open transaction."""
        with self._lock:
            return list(self._uncommitted)

    @property
    def flushed(self) -> bool:
        """Whether no record awaits its outcome."""
        return not self._completions

    def clear(self) -> None:
        """Clears the history."""
        with self._lock:
            self._history.clear()
            self._uncommitted.clear()
            self._completions.clear()

    def complete_next(self) -> bool:
        """Completes the oldest waiting record; false if there is none."""
        return self._next(None)

    def error_next(self, error: Exception) -> bool:
        """Fails the oldest waiting record; false if there is none."""
        return self._next(error)

    def _next(self, error: Exception | None) -> bool:
        with self._lock:
            if not self._completions:
                return False
            self._completions.popleft().complete(error)
            return True

    def fence_producer(self) -> None:
        """Fences this producer, as if another one had taken over the transactional id."""
        self._raise_if_closed_or_fenced()
        self._fenced = True

    # -- application interface

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        callback: Callback | None = None,
    ) -> FutureRecordMetadata:
        return self.send_record(
            ProducerRecord(topic, value, key, as_headers(headers), partition, timestamp_ms), callback
        )

    def send_record(self, record: ProducerRecord, callback: Callback | None = None) -> FutureRecordMetadata:
        with self._lock:
            self._raise_if_closed_or_fenced()
            self._raise_if_prepared()
            if self.send_error is not None:
                raise self.send_error
            key = serialize(self._key_serializer, record.topic, record.headers, record.key, "key")
            value = serialize(self._value_serializer, record.topic, record.headers, record.value, "value")
            return self._accept(record, key, value, callback)[1]

    def send_table(
        self, topic: str, table: object, *, partition: int | None = None, timestamp_ms: int | None = None
    ) -> TableFuture:
        """Sends a table like `KafkaProducer`, but each row becomes a record of the ``history``, and is completed like
        one."""
        with extra("arrow", "send_table"):
            from barnabas.clients.producer.internals.table_input import TableInput
        from barnabas.clients.producer.internals.table_result import TableProgress, row_numbers

        with self._lock:
            self._raise_if_closed_or_fenced()
            if self.send_error is not None:
                raise self.send_error
            rows = TableInput(table, partition=partition, timestamp_ms=-1 if timestamp_ms is None else timestamp_ms)
            progress = TableProgress(topic)
            for number, record in enumerate(rows.records(topic)):
                result, _ = self._accept(record, record.key, record.value, None)
                progress.add(result, row_numbers(number, number + 1))
            return progress.seal()

    def _accept(
        self, record: ProducerRecord, key: bytes | None, value: bytes | None, callback: Callback | None
    ) -> tuple[ProduceRequestResult, FutureRecordMetadata]:
        with self._lock:
            where = TopicPartition(record.topic, self._partition(record, key, value))
            offset = self._offsets.get(where, 0)
            self._offsets[where] = offset + 1
            result = ProduceRequestResult(where)
            metadata = RecordMetadata(
                *where,
                offset,
                -1 if record.timestamp_ms is None else record.timestamp_ms,
                -1 if key is None else len(key),
                -1 if value is None else len(value),
            )
            future = FutureRecordMetadata(
                result, 0, metadata.timestamp_ms, metadata.serialized_key_size, metadata.serialized_value_size
            )
            (self._uncommitted if self.in_transaction else self._history).append(record)
            completion = _Completion(result, metadata, callback)
            if self.auto_complete:
                completion.complete(None)
            else:
                self._completions.append(completion)
            return result, future

    def _partition(self, record: ProducerRecord, key: bytes | None, value: bytes | None) -> int:
        count = self._topics.get(record.topic, 1)
        if record.partition is not None:
            if record.partition >= count:
                raise ValueError(
                    f"Invalid partition given with record: {record.partition} is not in the range [0...{count}]."
                )
            return record.partition
        if self._partitioner is not None:
            return self._partitioner.partition(record.topic, record.key, key, record.value, value, self._snapshot())
        if key is not None:
            return partition_for_key(key, count)
        self._turn += 1
        return (self._turn - 1) % count

    def _snapshot(self) -> MetadataSnapshot:
        return MetadataSnapshot(
            [_NODE],
            [
                TopicInfo(name, ZERO_UUID, tuple(PartitionInfo(name, index, _NODE) for index in range(count)))
                for name, count in self._topics.items()
            ],
        )

    def flush(self) -> None:
        """Completes all waiting records."""
        self._raise_if_closed_or_fenced()
        if self.flush_error is not None:
            raise self.flush_error
        while self.complete_next():
            pass

    def partitions_for(self, topic: str) -> Sequence[PartitionInfo]:
        count = self._topics.get(topic, 1)
        return tuple(PartitionInfo(topic, index, _NODE) for index in range(count))

    def metrics(self) -> dict[MetricName, KafkaMetric]:
        return {}

    def close(self, timeout: float | None = None) -> None:
        if timeout is not None and timeout < 0:
            raise ValueError("The timeout cannot be negative.")
        if self.close_error is not None:
            raise self.close_error
        self.closed = True

    # -- transactions

    def init_transactions(self, *, keep_prepared_txn: bool = False) -> None:
        self._raise_if_closed_or_fenced()
        if self.transaction_initialized:
            raise IllegalStateError("MockProducer has already been initialized for transactions.")
        self.transaction_initialized = True
        if keep_prepared_txn:
            self.in_transaction = self.prepared_txn_state.has_transaction
        else:
            self.prepared_txn_state = PreparedTxnState()

    def begin_transaction(self) -> None:
        self._raise_if_not_initialized()
        if self.in_transaction:
            raise IllegalStateError("Transaction already started")
        self.in_transaction = True
        self.transaction_committed = False
        self.transaction_aborted = False

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
    ) -> None:
        self._raise_if_no_transaction()
        self._raise_if_prepared()
        group_id = group if isinstance(group, str) else group.group_id
        for partition, offset in offsets.items():
            made = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            self._uncommitted_offsets.setdefault(group_id, {})[partition] = made

    def commit_transaction(self) -> None:
        self._raise_if_no_transaction()
        if self.commit_transaction_error is not None:
            raise self.commit_transaction_error
        self.flush()
        with self._lock:
            self._history.extend(self._uncommitted)
            self._uncommitted.clear()
            if self._uncommitted_offsets:
                self.consumer_group_offsets.append(self._uncommitted_offsets)
                self._uncommitted_offsets = {}
            self.commit_count += 1
            self.transaction_committed = True
            self.in_transaction = False
            self.prepared_txn_state = PreparedTxnState()

    def abort_transaction(self) -> None:
        self._raise_if_no_transaction()
        self.flush()
        with self._lock:
            self._uncommitted.clear()
            self._uncommitted_offsets = {}
            self.transaction_aborted = True
            self.in_transaction = False
            self.prepared_txn_state = PreparedTxnState()

    def prepare_transaction(self) -> PreparedTxnState:
        self._raise_if_no_transaction()
        self._raise_if_prepared()
        self.flush()
        self.prepared_txn_state = PreparedTxnState(1, self.commit_count)
        return self.prepared_txn_state

    def complete_transaction(self, prepared: PreparedTxnState) -> None:
        self._raise_if_not_initialized()
        if not self.prepared_txn_state.has_transaction:
            if self.in_transaction:
                raise IllegalStateError("The transaction is not prepared.")
        elif self.prepared_txn_state == prepared:
            self.commit_transaction()
        else:
            self.abort_transaction()

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        self.begin_transaction()
        try:
            yield self
        except BaseException:
            if not self._fenced and not self.closed:
                self.abort_transaction()
            raise
        self.commit_transaction()

    def _raise_if_closed_or_fenced(self) -> None:
        if self.closed:
            raise IllegalStateError("MockProducer is already closed.")
        if self._fenced:
            raise ProducerFencedError("MockProducer is fenced.")

    def _raise_if_not_initialized(self) -> None:
        self._raise_if_closed_or_fenced()
        if not self.transaction_initialized:
            raise IllegalStateError("MockProducer hasn't been initialized for transactions.")

    def _raise_if_prepared(self) -> None:
        if self.in_transaction and self.prepared_txn_state.has_transaction:
            raise IllegalStateError("The transaction is prepared: it can only be ended.")

    def _raise_if_no_transaction(self) -> None:
        self._raise_if_not_initialized()
        if not self.in_transaction:
            raise IllegalStateError("There is no open transaction.")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"MockProducer({len(self._history)} records, {len(self._completions)} waiting)"
