"""The producer's public API."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from barnabas._kernels import murmur2
from barnabas.clients.common.bootstrap import bootstrap_nodes
from barnabas.clients.common.client_config import client_properties, refuse_unknown
from barnabas.clients.common.client_metrics import make_metrics, metric_value
from barnabas.clients.common.metadata_snapshot import MetadataSnapshot, PartitionInfo
from barnabas.clients.common.network_client import (
    NetworkEnvironment,
    NetworkInstruments,
    NetworkSettings,
    make_network_client,
)
from barnabas.clients.common.plug_ins import close_all, configured, load_class
from barnabas.clients.common.telemetry.client_telemetry_reporter import ClientTelemetryReporter
from barnabas.clients.producer.errors import (
    BufferExhaustedError,
    IllegalStateError,
    ProducerClosedError,
)
from barnabas.clients.producer.interceptors import ProducerInterceptor, ProducerInterceptors
from barnabas.clients.producer.internals.accumulator_config import AccumulatorConfig
from barnabas.clients.producer.internals.buffer_pool import BufferPool
from barnabas.clients.producer.internals.core_sharing import CoreSharing
from barnabas.clients.producer.internals.future_record_metadata import FutureRecordMetadata
from barnabas.clients.producer.internals.partition_queue import NO_TOPIC
from barnabas.clients.producer.internals.produce_request_result import ProduceRequestResult
from barnabas.clients.producer.internals.producer_batch import Callback
from barnabas.clients.producer.internals.producer_metadata import ProducerMetadata
from barnabas.clients.producer.internals.producer_metrics import GROUP, KafkaProducerMetrics, SenderMetrics
from barnabas.clients.producer.internals.record_accumulator import (
    NO_WAIT,
    RecordAccumulator,
)
from barnabas.clients.producer.internals.record_input import Headers, as_headers, serialize
from barnabas.clients.producer.internals.sender import Sender
from barnabas.clients.producer.internals.sender_config import SenderConfig
from barnabas.clients.producer.internals.transaction_manager import TransactionManager
from barnabas.clients.producer.internals.transaction_state import State
from barnabas.clients.producer.internals.transactional_request_result import TransactionalRequestResult
from barnabas.clients.producer.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from barnabas.clients.producer.partitioner import Partitioner
from barnabas.clients.producer.prepared_txn_state import PreparedTxnState
from barnabas.clients.producer.producer_config import CONFIG, ProducerConfig
from barnabas.clients.producer.producer_record import ProducerRecord, check_record, check_topic
from barnabas.clients.producer.record_metadata import UNKNOWN_PARTITION, RecordMetadata
from barnabas.clients.producer.serialization import Serializer, as_serializer
from barnabas.clients.producer.table_metadata import TableFuture
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import (
    ApiError,
    BarnabasError,
    InvalidTopicError,
    KafkaTimeoutError,
    RecordTooLargeError,
)
from barnabas.common.extras import extra
from barnabas.common.identifiers import Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.metric import KafkaMetric
from barnabas.metrics.names import MetricName
from barnabas.network.client.host_resolver import HostResolver, resolve_all_ips
from barnabas.network.client.network_client import NetworkClient
from barnabas.network.client.node_api_versions import ApiVersions
from barnabas.network.reactor.selectable import Selectable
from barnabas.records.batch import CompressionType
from barnabas.records.builder import estimate_size_in_bytes_upper_bound

if TYPE_CHECKING:
    from barnabas.clients.producer.internals.table_send import TableSender
    from barnabas.clients.typed_settings import ProducerSettings

item_for_key = murmur2.item_for_key
partition_for_key = murmur2.partition_for_key

log = logging.getLogger(__name__)

NETWORK_THREAD_PREFIX: Final = "kafka-producer-network-thread"


class _NotIdempotent:
    """Replaces the state machine in a producer that is not idempotent."""

    failed: Final = False


class KafkaProducer:
    """Sends records to Kafka. Thread-safe: one producer serves a whole application.

        with KafkaProducer(bootstrap_servers="localhost:9092") as producer:
            future = producer.send("orders", key=b"42", value=b"...")
            print(future.result().offset)

    ``send`` appends the record to a batch and returns at once; the producer's I/O thread sends it. ``send`` blocks in
    two cases, together for at most ``max.block.ms``: while the topic's metadata is missing, and while ``buffer.memory``
    is used up. The latter throttles an application that is faster than the network.

    By default a producer is idempotent: each record is written once, and the records of a partition in the order in
    which they were sent, even if connections or brokers fail. A record that is not written within
    ``delivery.timeout.ms`` fails.

    **Errors.** Errors of the cluster are set on the future (and passed to the callback): record too large, invalid
    topic, timeout. Errors of the *program* are raised: a key that cannot be serialized, a closed producer.

    **Callbacks** run on the I/O thread, per partition in the order of sending. A slow callback delays all sending.

    **Settings** are Kafka's, as keywords (``linger_ms=5``) or in a mapping (``{"linger.ms": 5}``). Keys and values are
    bytes unless there is a serializer: a class, an object with ``serialize()``, or a function such as
    ``str.encode``.
    """

    def __init__(  # more than ten: the plug-ins of an application, and the seams that tests replace
        self,
        config: Mapping[str, object] | None = None,
        /,
        *,
        key_serializer: object = None,
        value_serializer: object = None,
        partitioner: Partitioner | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        clock: Clock = SYSTEM_CLOCK,
        resolver: HostResolver = resolve_all_ips,
        selector: Selectable | None = None,
        random: Random | None = None,
        start_thread: bool = True,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        """``selector``, ``clock``, ``random`` and ``start_thread`` are for tests. With them, no thread runs, and
        ``producer.sender.run_once()`` runs one iteration of the I/O loop."""
        refuse_unknown(settings, CONFIG)
        properties = client_properties(config, settings)
        given_key = key_serializer or properties.pop("key.serializer", None)
        given_value = value_serializer or properties.pop("value.serializer", None)
        self.config = ProducerConfig.from_properties(properties)
        cfg = self.config
        values = cfg.values
        self._clock = clock
        self._max_block_ms = cfg.max_block_ms
        originals = {**values.originals, "client.id": cfg.client_id}
        self._key_serializer: Serializer | None = as_serializer(
            load_class("key.serializer", given_key), originals, is_key=True
        )
        self._value_serializer: Serializer | None = as_serializer(
            load_class("value.serializer", given_value), originals, is_key=False
        )
        given = values.get_optional_class("partitioner.class")
        self._partitioner = partitioner or configured("partitioner.class", given, originals)
        plugged = [
            configured("interceptor.classes", name, originals) for name in values.get_list("interceptor.classes")
        ]
        plugged += interceptors
        self._interceptors = ProducerInterceptors(plugged) if plugged else None

        self._metrics = make_metrics(values, cfg.client_id, clock)
        self._producer_metrics = KafkaProducerMetrics(self._metrics)
        self._sender_metrics = SenderMetrics(self._metrics, compresses=cfg.compression is not CompressionType.NONE)

        resolve = resolver if not values.get_int("bootstrap.resolve.timeout.ms") else None
        nodes = bootstrap_nodes(cfg.bootstrap_servers, resolve)
        random = Random() if random is None else random  # noqa: S311 - spreads load, keeps no secret
        self.api_versions = ApiVersions()
        self._telemetry: ClientTelemetryReporter | None = None
        if values.get_bool("enable.metrics.push"):
            labels = {"transactional_id": cfg.transactional_id or "", "client_rack": cfg.client_rack}
            self._telemetry = ClientTelemetryReporter("producer", self._metrics, labels, clock, random)
        self.transaction_manager: TransactionManager | None = None
        if cfg.enable_idempotence:
            self.transaction_manager = TransactionManager(
                cfg.transactional_id,
                cfg.transaction_timeout_ms,
                cfg.retry_backoff_ms,
                self.api_versions,
                enable_two_phase_commit=cfg.two_phase_commit,
                clock=clock,
            )
        self.accumulator = RecordAccumulator(
            AccumulatorConfig(
                batch_size=cfg.batch_size,
                batch_max_size=cfg.batch_max_size,
                max_request_size=cfg.max_request_size,
                linger_ms=cfg.linger_ms,
                delivery_timeout_ms=cfg.delivery_timeout_ms,
                retry_backoff_ms=cfg.retry_backoff_ms,
                retry_backoff_max_ms=cfg.retry_backoff_max_ms,
                compression=cfg.compression,
                compression_level=cfg.compression_level,
                adaptive_partitioning=cfg.adaptive_partitioning and self._partitioner is None,
                partition_availability_timeout_ms=cfg.partition_availability_timeout_ms,
                rack=cfg.client_rack if cfg.rack_aware and cfg.client_rack else None,
            ),
            BufferPool(cfg.buffer_memory, cfg.batch_size, self._metrics, clock),
            transaction_manager=self.transaction_manager,
            metrics=self._metrics,
            clock=clock,
            random=random,
        )
        self.metadata = ProducerMetadata(
            cfg.retry_backoff_ms,
            cfg.retry_backoff_max_ms,
            cfg.metadata_max_age_ms,
            cfg.metadata_max_idle_ms,
            clock=clock,
            random=random,
        )
        self.metadata.was_used = self.accumulator.take_touched
        self.metadata.bootstrap(nodes)
        self.client = self._network_client(selector, resolver, random)
        self.sender = Sender(
            self.client,
            self.metadata,
            self.accumulator,
            SenderConfig(
                acks=cfg.acks,
                retries=cfg.retries,
                max_request_size=cfg.max_request_size,
                request_timeout_ms=cfg.request_timeout_ms,
                retry_backoff_ms=cfg.retry_backoff_ms,
                max_block_ms=cfg.max_block_ms,
                guarantee_message_order=cfg.guarantee_message_order,
            ),
            self._sender_metrics,
            transaction_manager=self.transaction_manager,
            telemetry=self._telemetry,
            clock=clock,
        )
        self.accumulator.wake = self.sender.wake_for_work
        self._sender_metrics.add_gauges(
            lambda *_: float(self.client.in_flight_request_count()), lambda *_: self._metadata_age_s()
        )
        if cfg.acks != 0 and self.accumulator.config.compression is CompressionType.NONE:
            # With acks=0 there is no response that says when the broker has read the memory.
            self.accumulator.spare_buffers.share(
                lambda: self.client.has_referred, cfg.max_request_size, cfg.buffer_memory
            )
        self._is_transactional = cfg.transactional_id is not None
        self._idempotence = _NotIdempotent() if self.transaction_manager is None else self.transaction_manager.machine
        plugged_in = self._interceptors or self._key_serializer or self._value_serializer or self._partitioner
        self._open_topics = {} if plugged_in or self._is_transactional else self.accumulator.queues.topics
        """The topics whose records `send` may append to an open batch directly: there are no plug-ins to call, and no
        transaction is needed."""
        self._ignore_keys = cfg.partitioner_ignore_keys
        self._max_record_size = min(cfg.max_request_size, cfg.buffer_memory)
        self._tables: TableSender | None = None
        self._thread = threading.Thread(
            target=self.sender.run, name=f"{NETWORK_THREAD_PREFIX} | {cfg.client_id}", daemon=True
        )
        if start_thread:
            self._thread.start()
        log.debug("The producer %s has started", cfg.client_id)

    def _network_client(self, selector: Selectable | None, resolver: HostResolver, random: Random) -> NetworkClient:
        cfg, values = self.config, self.config.values
        return make_network_client(
            values,
            self.metadata,
            NetworkSettings(
                cfg.client_id,
                cfg.max_in_flight,
                cfg.request_timeout_ms,
                values.get_int("receive.buffer.bytes"),
                cfg.send_buffer_bytes,
            ),
            NetworkEnvironment(self._clock, random, resolver, selector),
            NetworkInstruments(self._metrics, "producer", self._telemetry, self._sender_metrics.throttle_time),
            self.api_versions,
        )

    def _metadata_age_s(self) -> float:
        updated_ms = self.metadata.last_successful_update_ms
        return float("nan") if updated_ms is None else (self._clock.hi_res_milliseconds() - updated_ms) / 1000

    # -- sending

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        callback: Callback | None = None,
        max_block_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """Sends a record; returns a future of its `RecordMetadata`.

        ``callback(metadata, error)`` is called when the outcome is known. Headers are pairs of a text and bytes, or a
        mapping. Without a partition the key decides, and without a key the built-in partitioner. The default timestamp
        is now. ``max_block_ms`` replaces ``max.block.ms`` for this record.
        """
        try:
            entry = self._open_topics[topic]
        except KeyError:
            entry = NO_TOPIC
        if entry.snapshot is self.metadata.snapshot and not self._idempotence.failed:
            # Fast path for most records: the topic is known, and the partition's open batch has room.
            future: FutureRecordMetadata | None
            if partition is not None:
                queue = entry.queues.get(partition) if partition < len(entry.by_partition) else None
            elif key is None or self._ignore_keys:
                future = entry.partitioner.open_batch.accept(timestamp_ms, key, value, headers, callback, True)
                if future is not None:
                    return future
                if entry.switch_partition():
                    future = entry.partitioner.open_batch.accept(timestamp_ms, key, value, headers, callback, True)
                    if future is not None:
                        return future
                queue = None
            else:
                queue = item_for_key(key, entry.by_partition)
            if queue is not None:
                future = queue.open_batch.accept(timestamp_ms, key, value, headers, callback, False)
                if future is not None:
                    return future
        if max_block_ms is None:
            max_block_ms = self._max_block_ms
        return self._do_send(topic, value, key, headers, partition, timestamp_ms, callback, max_block_ms)

    def send_nowait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        callback: Callback | None = None,
    ) -> FutureRecordMetadata | None:
        """Sends a record if that is possible without blocking; else returns None and does not accept the record.

        Interceptors see the record again when the caller retries.
        """
        self._raise_if_closed()
        snapshot = self.metadata.snapshot
        count = snapshot.partition_count(topic)
        if (count is None or (partition is not None and partition >= count)) and topic not in snapshot.invalid_topics:
            return None
        try:
            return self.send(topic, value, key, headers, partition, timestamp_ms, callback, NO_WAIT)
        except BufferExhaustedError:
            return None

    def send_record(self, record: ProducerRecord, callback: Callback | None = None) -> FutureRecordMetadata:
        """Sends a `ProducerRecord`."""
        return self.send(
            record.topic, record.value, record.key, record.headers, record.partition, record.timestamp_ms, callback
        )

    def send_table(
        self, topic: str, table: object, *, partition: int | None = None, timestamp_ms: int | None = None
    ) -> TableFuture:
        """Sends all rows of a table; returns one future of a `TableMetadata` for all of them.

            table = pa.table({"key": ["a", "b"], "value": [b"1", b"2"]})
            producer.send_table("orders", table).result().partitions
            {0: PartitionOffsets(first_offset=17, last_offset=17, count=1), 2: PartitionOffsets(...)}

        The table is a pyarrow ``Table`` or ``RecordBatch``, a pandas or polars ``DataFrame``, or any object with
        Arrow's C interface. Only the first of its columns is required:

        =============  ===============================================================================================
        ``value``      binary, or strings, which are sent as UTF-8; null is Kafka's null
        ``key``        the same
        ``headers``    a list of structs of ``key`` and ``value``, or a map, for each row
        ``timestamp``  timestamps of any unit, or milliseconds as integers; null: ``timestamp_ms``, or now
        ``partition``  integers; null: chosen by the key. Or ``partition=``, for all rows
        =============  ===============================================================================================

        Any other column or type is an error, and nothing is sent. Partitions are chosen as for single sends: by the
        same hash of the key, and without a key by the same sticky partitioner. The rows of a partition keep their
        order, and follow the records sent there before. The settings for acknowledgement, idempotence, transactions,
        compression and timeouts apply to tables. But batches do not linger, and hold up to a megabyte unless
        ``batch.size`` or ``batch.max.size`` is set.

        A table larger than ``buffer.memory`` is sent in parts, and this call blocks meanwhile, at most ``max.block.ms``
        for each batch. If that time is exceeded, or if a batch fails, the rest is not sent, and the future fails with a
        `TableSendError`. Its cause is the first error, and its ``rows`` are those not acknowledged.

        Serializers do not apply: the columns hold serialized data. Interceptors are not called, because they take
        single records. A custom partitioner is called for every row that has no partition.
        """
        if self._tables is None:
            self._tables = self._make_table_sender()
        self._raise_if_closed()
        if self._is_transactional:
            assert self.transaction_manager is not None
            self.transaction_manager.ensure_in_transaction()
        future, error = self._tables.send(topic, table, partition, timestamp_ms)
        if error is not None:
            self._sender_metrics.errors.record_unchecked()
            if self.transaction_manager is not None:
                self.transaction_manager.maybe_transition_to_error_state(error)
        return future

    def _make_table_sender(self) -> TableSender:
        # Imported late: Arrow is an extra, and loads more slowly than everything else together.
        with extra("arrow", "send_table"):
            from barnabas.clients.producer.internals.table_partitioner import TablePartitioner
            from barnabas.clients.producer.internals.table_send import TableSender

        if self._interceptors is not None:
            log.warning("send_table does not call the interceptors of producer %s", self.config.client_id)
        sharing = self.sender.core_sharing = CoreSharing.if_useful()

        def fills_here() -> None:
            if sharing is not None and self.client.has_referred:
                sharing.fills_here()

        return TableSender(
            self.accumulator,
            self.config,
            TablePartitioner(self.accumulator, self._partitioner, ignore_keys=self.config.partitioner_ignore_keys),
            lambda topic, partition: self._wait_on_metadata(topic, partition, self._max_block_ms)[0],
            lambda: self.metadata.snapshot,
            self.transaction_manager,
            self._clock,
            fills_here,
        )

    def _do_send(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
        callback: Callback | None,
        max_block_ms: int,
    ) -> FutureRecordMetadata:
        """Sends a record step by step: interceptors, metadata, serializers, partitioner, batch.

        With `NO_WAIT`, raises `BufferExhaustedError` if the record has to wait for memory.
        """
        if partition is not None or timestamp_ms is not None:
            check_record(partition, timestamp_ms)
        pairs = as_headers(headers) if headers else ()
        interceptors = self._interceptors
        if interceptors is not None:
            record = interceptors.on_send(ProducerRecord(topic, value, key, pairs, partition, timestamp_ms))
            topic, value, key, pairs = record.topic, record.value, record.key, record.headers
            partition, timestamp_ms = record.partition, record.timestamp_ms
            callback = _intercepted(interceptors, callback)
        chosen = UNKNOWN_PARTITION if partition is None else partition
        manager = self.transaction_manager
        key_serializer = self._key_serializer
        try:
            self._raise_if_closed()
            if self._is_transactional:
                assert manager is not None
                manager.ensure_in_transaction()
            snapshot, remaining_ms = self._wait_on_metadata(topic, partition, max_block_ms)
            key_bytes = None
            if key is not None or key_serializer is not None:
                key_bytes = serialize(key_serializer, topic, pairs, key, "key")
            value_bytes = serialize(self._value_serializer, topic, pairs, value, "value")
            custom = self._partitioner
            if partition is None and (key_bytes is not None or custom is not None):
                chosen = self._partition(topic, key, key_bytes, value, value_bytes, snapshot)
            size = estimate_size_in_bytes_upper_bound(key_bytes, value_bytes, pairs)
            if size > self._max_record_size:
                raise self._record_too_large(size)
            made = (timestamp_ms, key_bytes, value_bytes, pairs, callback)
            append = self.accumulator.append
            future = append(topic, chosen, made, size, snapshot, remaining_ms, abort_on_new_batch=custom is not None)
            if future is None:
                assert custom is not None
                custom.on_new_batch(topic, snapshot, chosen)
                if partition is None:
                    chosen = self._partition(topic, key, key_bytes, value, value_bytes, snapshot)
                future = append(topic, chosen, made, size, snapshot, remaining_ms)
            assert future is not None
            if manager is not None and (self._is_transactional or manager.machine.failed):
                manager.maybe_add_partition(future.batch_result.topic_partition)
            return future
        except ApiError as error:
            if max_block_ms == NO_WAIT and isinstance(error, BufferExhaustedError):
                raise
            return self._send_failed(TopicPartition(topic, chosen), error, callback)
        except Exception as error:
            if isinstance(error, BarnabasError):
                self._sender_metrics.errors.record_unchecked()
            if interceptors is not None:
                interceptors.on_send_error(TopicPartition(topic, chosen), error)
            raise

    def _send_failed(self, where: TopicPartition, error: ApiError, callback: Callback | None) -> FutureRecordMetadata:
        """Returns a future that has failed with a cluster error or a timeout.

        These errors are not raised, so that an application has one place to look for them."""
        log.debug("A record for %s was not accepted: %r", where.topic, error)
        if callback is not None:
            try:
                callback(RecordMetadata(*where, -1, -1, -1, -1), error)
            except Exception:
                log.exception("The callback of a record for %s failed", where)
        self._sender_metrics.errors.record_unchecked()
        if self.transaction_manager is not None:
            self.transaction_manager.maybe_transition_to_error_state(error)
        result = ProduceRequestResult(where)
        result.set(-1, -1, lambda _index: error)
        result.done()
        return FutureRecordMetadata(result, 0, -1, -1, -1)

    def _wait_on_metadata(self, topic: str, partition: int | None, max_wait_ms: int) -> tuple[MetadataSnapshot, int]:
        """Returns metadata that has the topic and the partition, and the remaining time to block."""
        metadata = self.metadata
        snapshot = metadata.snapshot
        entry = self.accumulator.queues.topics.get(topic)
        if (
            entry is not None
            and entry.snapshot is snapshot
            and (partition is None or partition < len(entry.by_partition))
        ):
            return snapshot, max_wait_ms
        check_topic(topic)
        now = self._clock.hi_res_milliseconds()
        if topic in snapshot.invalid_topics:
            raise InvalidTopicError(f"Invalid topics: [{topic}]", invalid_topics=[topic])
        metadata.add(topic, now)
        count = snapshot.partition_count(topic)
        if count is not None and (partition is None or partition < count):
            self.accumulator.queues.use_snapshot(topic, snapshot, count)
            return snapshot, max_wait_ms
        started_ns = self._clock.nanoseconds()
        elapsed_ms = 0
        while True:
            metadata.add(topic, now + elapsed_ms)
            version = metadata.request_update_for_topic(topic)
            self.sender.wakeup()
            try:
                metadata.await_update(version, max_wait_ms - elapsed_ms)
            except KafkaTimeoutError:
                failure = self._no_metadata(topic, partition, count, max_wait_ms)
                raise failure from failure.__cause__
            except BarnabasError as error:
                if metadata.is_closed:
                    raise ProducerClosedError("Producer closed while send in progress") from error
                raise
            snapshot = metadata.snapshot
            elapsed_ms = self._clock.hi_res_milliseconds() - now
            if elapsed_ms >= max_wait_ms:
                raise self._no_metadata(topic, partition, count, max_wait_ms)
            metadata.maybe_raise_for_topic(topic)
            count = snapshot.partition_count(topic)
            if count is not None and (partition is None or partition < count):
                break
        self._producer_metrics.metadata_wait.record_unchecked(self._clock.nanoseconds() - started_ns)
        self.accumulator.queues.use_snapshot(topic, snapshot, count)
        return snapshot, max(0, max_wait_ms - elapsed_ms)

    def _no_metadata(self, topic: str, partition: int | None, count: int | None, waited_ms: int) -> KafkaTimeoutError:
        if count is None or partition is None:
            message = f"Topic {topic} not present in metadata after {waited_ms} ms."
        else:
            message = (
                f"Partition {partition} of topic {topic} with partition count {count} is not present in metadata after "
                f"{waited_ms} ms."
            )
        silence = self.metadata.explain_silence()
        if silence:
            message = f"{message} {silence}"
        error = KafkaTimeoutError(message)
        known = self.metadata.topic_error(topic)
        if known is not None:
            error.__cause__ = known.to_exception()
        return error

    def _partition(
        self,
        topic: str,
        key: Any,
        key_bytes: bytes | None,
        value: Any,
        value_bytes: bytes | None,
        snapshot: MetadataSnapshot,
    ) -> int:
        if self._partitioner is not None:
            chosen = self._partitioner.partition(topic, key, key_bytes, value, value_bytes, snapshot)
            if chosen < 0:
                raise ValueError(
                    f"The partitioner generated an invalid partition number: {chosen}. Partition number should always "
                    "be non-negative."
                )
            return chosen
        if key_bytes is not None and not self._ignore_keys:
            count = snapshot.partition_count(topic)
            assert count is not None
            return partition_for_key(key_bytes, count)
        return UNKNOWN_PARTITION

    def _record_too_large(self, size: int) -> RecordTooLargeError:
        if size > self.config.max_request_size:
            return RecordTooLargeError(
                f"The message is {size} bytes when serialized which is larger than {self.config.max_request_size}, "
                "which is the value of the max.request.size configuration."
            )
        return RecordTooLargeError(
            f"The message is {size} bytes when serialized which is larger than the total memory buffer you have "
            "configured with the buffer.memory configuration."
        )

    def _raise_if_closed(self) -> None:
        if not self.sender.is_running:
            raise IllegalStateError("Cannot perform operation after producer has been closed")

    # -- transactions

    def _manager(self) -> TransactionManager:
        manager = self.transaction_manager
        if manager is None or not manager.is_transactional:
            raise IllegalStateError(
                "Cannot use transactional methods without enabling transactions by setting the transactional.id "
                "configuration property"
            )
        self._raise_if_closed()
        return manager

    def _await(self, result: TransactionalRequestResult) -> None:
        """Wakes the sender to send the request, and waits for its result; raises its error."""
        self.sender.wakeup()
        result.wait(self._max_block_ms)

    def init_transactions(self, *, keep_prepared_txn: bool = False) -> None:
        """Initializes transactions, once, before the first: fences older producers with this transactional id, and
        waits until their open transactions have ended.

        With `keep_prepared_txn` (KIP-939) an open transaction is kept. It must be ended by `complete_transaction`,
        `commit_transaction` or `abort_transaction` before anything else."""
        manager = self._manager()
        with self._timed(self._producer_metrics.init):
            self._await(manager.initialize_transactions(keep_prepared_txn=keep_prepared_txn))

    def begin_transaction(self) -> None:
        """Begins a transaction: read_committed consumers see all or none of the records sent until its end."""
        manager = self._manager()
        with self._timed(self._producer_metrics.begin):
            manager.begin_transaction()

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
    ) -> None:
        """Commits a consumer group's offsets in the transaction: each is the offset *after* the last record read."""
        manager = self._manager()
        if isinstance(group, str):
            group = ConsumerGroupMetadata(group)
        if not offsets:
            return
        made = {
            partition: OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            for partition, offset in offsets.items()
        }
        with self._timed(self._producer_metrics.send_offsets):
            self._await(manager.send_offsets_to_transaction(made, group))

    def commit_transaction(self) -> None:
        """Flushes and commits the transaction. After a `KafkaTimeoutError` it may be called again."""
        manager = self._manager()
        with self._timed(self._producer_metrics.commit):
            self._await(manager.begin_commit())

    def abort_transaction(self) -> None:
        """Aborts the transaction and drops records that were not sent yet."""
        manager = self._manager()
        with self._timed(self._producer_metrics.abort):
            self._await(manager.begin_abort())

    def prepare_transaction(self) -> PreparedTxnState:
        """Flushes and prepares the transaction, with ``transaction.two.phase.commit.enable`` (KIP-939).

        Nothing can be added afterwards. The transaction stays open, even if this producer fails, until it is committed
        or aborted."""
        manager = self._manager()
        with self._timed(self._producer_metrics.prepare):
            self.flush()
            return manager.prepare_transaction()

    def complete_transaction(self, prepared: PreparedTxnState) -> None:
        """Ends a prepared transaction: commits it if it equals ``prepared``, else aborts it.

        Does nothing if the transaction has already ended."""
        manager = self._manager()
        machine = manager.machine
        if machine.state is not State.PREPARED_TRANSACTION:
            if machine.has_ongoing_transaction:
                raise IllegalStateError(f"Cannot complete a transaction that is not prepared ({machine.state.name})")
            return
        if manager.transaction.prepared == prepared:
            self.commit_transaction()
        else:
            self.abort_transaction()

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """``with producer.transaction():`` commits at the end, and aborts if there was an exception."""
        self.begin_transaction()
        try:
            yield self
        except BaseException:
            manager = self.transaction_manager
            if manager is not None and not manager.machine.has_fatal_error and self.sender.is_running:
                self.abort_transaction()
            raise
        try:
            self.commit_transaction()
        except BarnabasError:
            manager = self.transaction_manager
            if manager is not None and manager.machine.has_abortable_error:
                self.abort_transaction()
            raise

    @contextmanager
    def _timed(self, sensor: Any) -> Iterator[None]:
        started = self._clock.nanoseconds()
        try:
            yield
        finally:
            sensor.record_unchecked(self._clock.nanoseconds() - started)

    # -- other operations

    def flush(self) -> None:
        """Sends all accepted records without lingering, and blocks until they have succeeded or failed."""
        if threading.current_thread() is self._thread:
            raise IllegalStateError(
                "Cannot call flush from a callback: it would wait for the very thread that it is called on"
            )
        with self._timed(self._producer_metrics.flush):
            self.accumulator.begin_flush()
            self.sender.wakeup()
            self.accumulator.await_flush_completion()

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """Returns the partitions of a topic, with their leaders. Blocks until the metadata is known."""
        self._raise_if_closed()
        return self._wait_on_metadata(topic, None, self._max_block_ms)[0].partitions_for(topic)

    def metrics(self) -> dict[MetricName, KafkaMetric]:
        """Returns all metrics by name: ``record-send-rate``, ``batch-size-avg`` and so on."""
        return self._metrics.metrics

    def metric(self, name: str, group: str = GROUP, **tags: str) -> Any:
        """Returns the current value of one metric; tags have underscores for hyphens."""
        return metric_value(self._metrics, self.config.client_id, name, group, tags)

    def client_instance_id(self, timeout: float) -> Uuid:
        """Returns this producer's client instance id for telemetry, as 16 bytes (KIP-714).

        Blocks for at most ``timeout`` seconds until the cluster has assigned it."""
        if self._telemetry is None:
            raise IllegalStateError("Telemetry is not enabled. Set config `enable.metrics.push` to `true`.")
        return self._telemetry.client_instance_id(timeout)

    @property
    def client_id(self) -> str:
        """The id that brokers see: ``client.id``, or a generated one."""
        return self.config.client_id

    def close(self, timeout: float | None = None) -> None:
        """Sends the remaining records, for at most ``timeout`` seconds, and ends the I/O thread.

        Records that are not sent by then fail. From a callback, close does not wait, and fails the remaining records.

        Without a timeout it waits until all records are written or have failed (``delivery.timeout.ms``), and then for
        an open transaction to be aborted, at most ``max.block.ms``."""
        if timeout is not None and timeout < 0:
            raise ValueError("The timeout cannot be negative.")
        from_callback = threading.current_thread() is self._thread
        if from_callback:
            if timeout != 0:
                log.warning("close() was called from a callback, which cannot wait for its own thread to end")
        elif timeout is None or timeout > 0:
            if self._telemetry is not None:
                self._telemetry.initiate_close()
            self.sender.initiate_close()
            if self._thread.is_alive():
                self._thread.join(timeout)
        if self._thread.is_alive():
            log.info("Closing the producer by force: not everything could be sent within %s s", timeout)
            self.sender.force_close()
            if not from_callback:
                self._thread.join()
        elif self.sender.is_running or self._thread.ident is None:
            # The thread was never started (a test drives the producer): run the close here.
            self.sender.force_close()
            if self._thread.ident is None:
                self.sender.run()
        if self._interceptors is not None:
            self._interceptors.close()
        self._metrics.close()
        close_all(self._key_serializer, self._value_serializer, self._partitioner)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"KafkaProducer({self.config.client_id}, {self.accumulator!r})"


def _intercepted(interceptors: ProducerInterceptors, callback: Callback | None) -> Callback:
    def both(metadata: RecordMetadata, error: Exception | None) -> None:
        interceptors.on_acknowledgement(metadata, error)
        if callback is not None:
            callback(metadata, error)

    return both
