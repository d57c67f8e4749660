"""Produce (v3-13): appends to partitions that are led here.

A request goes through these steps. The first three decide which of its partitions get as far as the log:

1. **Transactional records** need Write on the transactional id that the request names. Without that the request fails
   as a whole, with TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
2. **Buckets.** A partition is unknown (UNKNOWN_TOPIC_ID for an id that no topic has, UNKNOWN_TOPIC_OR_PARTITION),
   unauthorized (Write on the topic; all topics are one question to the authorizer), invalid, or goes on.
3. **One batch per partition, and of format v2**: anything else is INVALID_RECORD, zstd before v7 is
   UNSUPPORTED_COMPRESSION_TYPE. Only the first few fields are looked at here; what is in the batch is judged by the
   log that it goes to. A batch of which no reader could find the end is CORRUPT_MESSAGE, for the whole request.
4. **Verification** of records that are part of a transaction: see
   :mod:`~barnabas.broker.handlers.transactional_produce`. All others skip it.
5. **Append.** The replica manager calls back when as many replicas have it as ``acks`` asks for: at once for 0 and 1,
   perhaps much later for -1. If a log directory is slow, it appends later, on another thread
   (:mod:`barnabas.log.log_dir_pace`), and keeps the buffer until then.
6. **Answer**, with the larger of two throttle times: bytes and request time. With acks=0 there is none. The connection
   then reads on, or is closed if anything went wrong, which is all that can be done to tell the client; and its time is
   not charged, as there is no answer to put a throttle time into.

A partition that is listed twice gets the second of its batches, and one answer, like everything that is kept by
partition in Kafka.
"""

from __future__ import annotations

import logging
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from barnabas._kernels import compressed_batch
from barnabas._kernels.pure.compressed_batch import decompressed_bound as bound_of_any_frame
from barnabas.broker.handlers.current_leader import current_leader
from barnabas.broker.handlers.plain_produce import plain_produce
from barnabas.broker.handlers.produce_answer import FIRST_VERSION, one_topic_answer
from barnabas.broker.handlers.transactional_produce import TransactionalAppends
from barnabas.common.clock import Clock
from barnabas.common.errors import (
    ApiError,
    CorruptRecordError,
    Errors,
    InvalidRecordError,
    TransactionalIdAuthorizationError,
    UnsupportedCompressionTypeError,
)
from barnabas.common.log_safety import LimitedLogger
from barnabas.coordinator.transaction.add_partitions_to_txn_manager import TransactionSupportedOperation
from barnabas.log.log_validator import MAX_DECOMPRESSED_BYTES as MAX_BATCH_BYTES
from barnabas.metadata.cache import MetadataCache
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Buffer
from barnabas.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.records.batch import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_OFFSET,
    TRANSACTIONAL_MASK,
    CompressionType,
)
from barnabas.replica.fetch_session import TopicIdPartition
from barnabas.replica.results import BufferHolder, ProduceCallback, ProduceResult
from barnabas.security.acl import AclOperation, ResourceType
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.dispatch import handles
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal

decompressed_bound = compressed_batch.decompressed_bound

logger = LimitedLogger(logging.getLogger(__name__))

ADMIN_CLIENT_ID: Final = "__admin_client"
"""Whoever calls itself that may write to internal topics: tools that repair them."""

_new_tuple = tuple.__new__
"""A named tuple in one call; its class would make another one in Python."""

_TOPIC_IDS: Final = 13
_LEADER_HINTS: Final = 10
_ZSTD: Final = 7
_NO_ACKS: Final = 0

_INLINE_BYTES: Final = 1 << 20
"""What the records of a request may decompress to if a network thread is to append them, and the size of a request that
it reads as a message."""
_INLINE_PARTITIONS: Final = 128
MAX_DECOMPRESSED_BYTES: Final = 4 * MAX_BATCH_BYTES
"""What the records of one request may decompress to. Each byte of it costs a look, and its sender next to nothing."""
_CODEC_OFFSET: Final = ATTRIBUTES_OFFSET + 1

_LEADING_FIELDS: Final = struct.Struct(">8xi4xb4xh")
"""Length, magic and attributes of a batch."""
_LENGTH: Final = struct.Struct(">8xi")
_SMALLEST_LENGTH: Final = 14
"""Of a message of the oldest format. What is shorter is no length."""


class RecordAppender(Protocol):
    """What produce needs of the replica manager."""

    def append_records(
        self,
        timeout_ms: int,
        required_acks: int,
        entries: Mapping[TopicIdPartition, Buffer],
        callback: ProduceCallback,
        *,
        internal_topics_allowed: bool = False,
        holder: BufferHolder | None = None,
    ) -> None: ...


class ProduceHandler:
    """Takes in what producers send."""

    def __init__(
        self,
        helper: RequestHandlerHelper,
        auth: AuthHelper,
        cache: MetadataCache,
        replicas: RecordAppender,
        clock: Clock,
        transactions: Callable[[], TransactionalAppends] | None = None,
    ) -> None:
        """Without `transactions`, transactional records are appended as they come, if the log lets them pass.

        It is asked for with the first of them: the coordinator of transactions is behind it, and may not be there yet.
        """
        self._helper = helper
        self._auth = auth
        self._cache = cache
        self._append_records = replicas.append_records
        self._now_ms = clock.milliseconds
        self._transactions = transactions

    @handles(ApiKey.PRODUCE)
    def produce(self, request: Request, local: RequestLocal) -> None:
        if (
            self._helper.quotas.produce.is_enabled
            and not request.context.has_produced
            and self._wait_for_quota(request)
        ):
            return
        if self._auth.authorizer is None and self._produce_plain(request, local):
            return
        if local.inline and request.size > _INLINE_BYTES:
            # To read it as a message takes its time, and nobody knows yet how many partitions it has.
            local.hand_over()
            return
        body = request.body
        assert isinstance(body, ProduceRequest)
        transactional_id: str | None = None
        if _has_transactional_records(body):
            transactional_id = self._authorize_transactional_id(request, body)
        entries: dict[TopicIdPartition, Buffer] = {}
        refused: dict[TopicIdPartition, ProduceResult] = {}
        self._sort_out(request, body, entries, refused)
        acks = body.acks
        answer = self._answerer(request, acks, refused)
        if not entries:
            answer({})
            return
        if self._is_too_much(entries, local, answer):
            return
        internal_topics_allowed = request.client_id == ADMIN_CLIENT_ID
        if transactional_id is not None and self._transactions is not None:
            self._transactions().append_records(
                transactional_id,
                TransactionSupportedOperation.for_produce(request.api_version),
                body.timeout_ms,
                acks,
                entries,
                answer,
                internal_topics_allowed=internal_topics_allowed,
            )
        else:
            self._append_records(
                body.timeout_ms,
                acks,
                entries,
                answer,
                internal_topics_allowed=internal_topics_allowed,
                holder=request,
            )
        _forget_records(body)

    def _wait_for_quota(self, request: Request) -> bool:
        """Whether the first request of a connection waits, because its quota entity is throttled."""
        request.context.has_produced = True
        helper = self._helper
        quota = helper.quotas.produce
        wait_ms = quota.first_wait_ms(request)
        if wait_ms <= 0:
            return False
        _ = request.body  # decoded now: the buffer is given back when the handler returns

        def resume(local: RequestLocal) -> None:
            try:
                self.produce(request, local)
            except Exception as error:  # noqa: BLE001 - as the dispatcher does for those that do not wait
                helper.handle_error(request, error)

        if not quota.hold(request, wait_ms, lambda: helper.channel.send_callback(resume, request)):
            logger.warning(
                "Closing connection %s of client %s: its quota is exceeded, and too many requests wait for theirs",
                request.connection_id,
                request.client_id,
            )
            helper.channel.close_connection(request, {Errors.THROTTLING_QUOTA_EXCEEDED: 1})
        return True

    @staticmethod
    def _is_too_much(entries: Mapping[TopicIdPartition, Buffer], local: RequestLocal, answer: ProduceCallback) -> bool:
        """Whether the batches are more than this thread may append, or than anybody may send in one request.

        In the first case the request is handed over, in the second it is answered.
        """
        bound = 0
        known = True
        for records in entries.values():
            if records[_CODEC_OFFSET] & COMPRESSION_MASK:
                batch = memoryview(records)
                one = decompressed_bound(batch)
                if one < 0:
                    one = bound_of_any_frame(batch)  # the kernel knows what most clients write
                if one < 0:
                    known = False
                else:
                    bound += min(one, MAX_BATCH_BYTES)  # what claims more is refused when that much has come out
        if local.inline and (not known or bound > _INLINE_BYTES or len(entries) > _INLINE_PARTITIONS):
            local.hand_over()
            return True
        if bound > MAX_DECOMPRESSED_BYTES:
            refused = ProduceResult(
                Errors.MESSAGE_TOO_LARGE,
                error_message=f"The records of one request may decompress to {MAX_DECOMPRESSED_BYTES} bytes; "
                f"these claim {bound}",
            )
            answer(dict.fromkeys(entries, refused))
            return True
        return False

    def _produce_plain(self, request: Request, local: RequestLocal) -> bool:
        """Does it all for a request of the usual shape to partitions that exist; false, and nothing, for any other."""
        version = request.api_version
        buffer = request.buffer
        plain = None if buffer is None else plain_produce(buffer, request.body_start, version)
        if plain is None:
            return False
        acks, timeout_ms, key, batches = plain
        topics = self._cache.image.topics
        topic = topics.by_id.get(key) if version >= _TOPIC_IDS else topics.by_name.get(key)
        if topic is None or not batches:
            return False
        topic_id, name, partitions = topic.id, topic.name, topic.partitions
        entries: dict[TopicIdPartition, Buffer] = {}
        codecs = 0
        for index, records in batches:
            if index not in partitions:
                return False
            codecs |= records[_CODEC_OFFSET]
            entries[_new_tuple(TopicIdPartition, (topic_id, name, index))] = records
        answer = self._answerer(request, acks, None)
        if (codecs & COMPRESSION_MASK or len(entries) > _INLINE_PARTITIONS) and self._is_too_much(
            entries, local, answer
        ):
            return True
        self._append_records(
            timeout_ms,
            acks,
            entries,
            answer,
            internal_topics_allowed=request.client_id == ADMIN_CLIENT_ID,
            holder=request,
        )
        if request.unanswered:
            # It waits. Should it come to grief, its error is answered in the shape of its body, which can be read only
            # as long as there is a buffer.
            body = request.body
            assert isinstance(body, ProduceRequest)
            _forget_records(body)
        return True

    def _answerer(
        self, request: Request, acks: int, refused: Mapping[TopicIdPartition, ProduceResult] | None
    ) -> ProduceCallback:
        """Answers a request, given what became of the appends."""

        # What it refers to lives as long as the request waits for other replicas: no records must be among it.
        def answer(results: dict[TopicIdPartition, ProduceResult]) -> None:
            try:
                self._answer(request, acks, {**results, **refused} if refused else results)
            except Exception as error:  # noqa: BLE001 - on the thread of whoever calls, nobody else would answer
                self._helper.handle_error(request, error)

        return answer

    # Which partitions get as far as the log

    def _authorize_transactional_id(self, request: Request, body: ProduceRequest) -> str:
        transactional_id = body.transactional_id
        if transactional_id is None or (
            self._auth.authorizer is not None
            and not self._auth.authorize(
                request.request_context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
            )
        ):
            raise TransactionalIdAuthorizationError
        return transactional_id

    def _sort_out(
        self,
        request: Request,
        body: ProduceRequest,
        entries: dict[TopicIdPartition, Buffer],
        refused: dict[TopicIdPartition, ProduceResult],
    ) -> None:
        version = request.api_version
        topics = self._cache.image.topics
        denied = () if self._auth.authorizer is None else self._denied_topics(request, body)
        for topic in body.topic_data:
            if version >= _TOPIC_IDS:
                found = topics.by_id.get(topic.topic_id)
                name, topic_id = ("" if found is None else found.name), topic.topic_id
            else:
                found = topics.by_name.get(topic.name)
                name, topic_id = topic.name, topic.topic_id if found is None else found.id
            for data in topic.partition_data:
                partition = TopicIdPartition(topic_id, name, data.index)
                if found is None and version >= _TOPIC_IDS:
                    refused[partition] = ProduceResult(Errors.UNKNOWN_TOPIC_ID)
                elif name in denied:
                    refused[partition] = ProduceResult(Errors.TOPIC_AUTHORIZATION_FAILED)
                elif found is None or data.index not in found.partitions:
                    refused[partition] = ProduceResult(Errors.UNKNOWN_TOPIC_OR_PARTITION)
                else:
                    try:
                        entries[partition] = the_one_batch(data.records, version)
                    except ApiError as error:
                        logger.debug("%r: %s is refused: %s", request, partition, error)
                        refused[partition] = ProduceResult(Errors.for_exception(error))

    def _denied_topics(self, request: Request, body: ProduceRequest) -> set[str]:
        """The topics of a request that the client may not write to, in one question to the authorizer."""
        by_id = self._cache.image.topics.by_id
        names: list[str] = []
        for topic in body.topic_data:
            if request.api_version < _TOPIC_IDS:
                name = topic.name
            elif (found := by_id.get(topic.topic_id)) is not None:
                name = found.name
            else:
                continue
            names += [name] * len(topic.partition_data)
        allowed = self._auth.filter_by_authorized(
            request.request_context, AclOperation.WRITE, ResourceType.TOPIC, names, str
        )
        return set(names) - allowed

    # The answer

    def _answer(self, request: Request, acks: int, results: dict[TopicIdPartition, ProduceResult]) -> None:
        helper = self._helper
        quotas = helper.quotas
        bandwidth_ms = request_ms = throttle_time_ms = 0
        if quotas.produce.is_enabled:
            bandwidth_ms = quotas.produce.maybe_record_and_get_throttle_time_ms(request, request.size, self._now_ms())
        if acks != _NO_ACKS and quotas.request.is_enabled:
            request_ms = quotas.request.maybe_record_and_get_throttle_time_ms(request, self._now_ms())
        if bandwidth_ms or request_ms:
            throttle_time_ms = max(bandwidth_ms, request_ms)
            request.api_throttle_time_ms = throttle_time_ms
            helper.throttle(quotas.produce if bandwidth_ms > request_ms else quotas.request, request, throttle_time_ms)
        if acks == _NO_ACKS:
            self._end_without_answer(request, results)
            return
        if request.api_version >= FIRST_VERSION and not throttle_time_ms:
            frame = one_topic_answer(request.api_version, request.correlation_id, results)
            if frame is not None:
                helper.channel.send_parts(request, (frame,))
                return
        helper.send(request, self._response(request, results, throttle_time_ms))

    def _end_without_answer(self, request: Request, results: Mapping[TopicIdPartition, ProduceResult]) -> None:
        errors = {partition: result.error for partition, result in results.items() if result.error}
        if not errors:
            self._helper.send_no_op_response_exempt_throttle(request)
            return
        logger.info(
            "Closing connection %s: a produce request with acks=0 failed, and there is no answer to say so. "
            "Correlation id %d, client %r, partitions: %s",
            request.connection_id,
            request.correlation_id,
            request.client_id,
            ", ".join(f"{partition}: {error.name}" for partition, error in errors.items()),
        )
        self._helper.channel.close_connection(request, Counter(errors.values()))

    def _response(
        self, request: Request, results: Mapping[TopicIdPartition, ProduceResult], throttle_time_ms: int
    ) -> ProduceResponse:
        topics: dict[tuple[object, object], TopicProduceResponse] = {}
        endpoints: dict[int, NodeEndpoint] = {}
        for partition, result in results.items():
            topic_id, name, index = partition
            answer = _partition_response(index, result)
            if result.error:
                self._add_error(request, partition, result, answer, endpoints)
            topic = topics.get((topic_id, name))
            if topic is None:
                topics[topic_id, name] = TopicProduceResponse(
                    name=name or "", topic_id=topic_id, partition_responses=[answer]
                )
            else:
                topic.partition_responses.append(answer)
        return ProduceResponse(
            responses=list(topics.values()),
            throttle_time_ms=throttle_time_ms,
            node_endpoints=list(endpoints.values()),
        )

    def _add_error(
        self,
        request: Request,
        partition: TopicIdPartition,
        result: ProduceResult,
        answer: PartitionProduceResponse,
        endpoints: dict[int, NodeEndpoint],
    ) -> None:
        logger.debug("%r failed for %s: %s", request, partition, result.error.name)
        self._helper.channel.update_error_metrics(request, result.error)
        answer.error_message = result.error_message
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=error.batch_index, batch_index_error_message=error.message)
            for error in result.record_errors
        ]
        if result.error is Errors.NOT_LEADER_OR_FOLLOWER and request.api_version >= _LEADER_HINTS:
            leader_id, leader_epoch, node = current_leader(
                self._cache, partition.topic or "", partition.partition, request.context.listener_name
            )
            answer.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
            if node is not None:
                endpoints[leader_id] = NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)


def _partition_response(index: int, result: ProduceResult) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=result.error,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time,
        log_start_offset=result.log_start_offset,
    )


def _forget_records(body: ProduceRequest) -> None:
    """They are in the log by now, or on their way by themselves. Without this a request that waits would keep its whole
    buffer in memory."""
    for topic in body.topic_data:
        for partition in topic.partition_data:
            partition.records = None


# Batches as far as a broker has to look into them to find out where they belong


def _has_transactional_records(body: ProduceRequest) -> bool:
    """Whether a batch of the request is part of a transaction, going by the first one of each partition."""
    for topic in body.topic_data:
        for partition in topic.partition_data:
            records = partition.records
            if records is None:
                continue
            if len(records) > _LEADING_FIELDS.size:
                length, magic, attributes = _LEADING_FIELDS.unpack_from(records)
                if magic == MAGIC and length + LOG_OVERHEAD == len(records):
                    if attributes & TRANSACTIONAL_MASK:
                        return True
                    continue
            if batch_size(records):
                _, magic, attributes = _LEADING_FIELDS.unpack_from(records)
                if magic == MAGIC and attributes & TRANSACTIONAL_MASK:
                    return True
    return False


def batch_size(records: Buffer, start: int = 0) -> int:
    """The size of the batch, of whatever format, that begins there; 0 if there is no whole one.

    `CorruptRecordError` if that is not the beginning of a batch.
    """
    remaining = len(records) - start
    if remaining < LOG_OVERHEAD:
        return 0
    length: int = _LENGTH.unpack_from(records, start)[0]
    if length < _SMALLEST_LENGTH:
        raise CorruptRecordError(f"A record batch has {length} bytes; the smallest there can be has {_SMALLEST_LENGTH}")
    if remaining <= MAGIC_OFFSET:
        return 0
    if records[start + MAGIC_OFFSET] > MAGIC:
        raise CorruptRecordError(f"A record batch has the unknown magic {records[start + MAGIC_OFFSET]}")
    size = length + LOG_OVERHEAD
    return 0 if size > remaining else size


def the_one_batch(records: Buffer | None, version: int) -> Buffer:
    """The batch that the records of a partition must consist of; raises what is wrong with them otherwise.

    What is left of a batch behind it, if the client was cut off there, is left out.
    """
    if records is not None and version >= _ZSTD and len(records) > _LEADING_FIELDS.size:
        length, magic, _ = _LEADING_FIELDS.unpack_from(records)
        if magic == MAGIC and length + LOG_OVERHEAD == len(records):
            return records
    size = 0 if records is None else batch_size(records)
    if records is None or size == 0:
        raise InvalidRecordError(f"Produce v{version} needs a record batch for each partition")
    _, magic, attributes = _LEADING_FIELDS.unpack_from(records)
    if magic != MAGIC:
        raise InvalidRecordError(f"Produce v{version} takes record batches of magic {MAGIC}, not {magic}")
    if version < _ZSTD and attributes & COMPRESSION_MASK == CompressionType.ZSTD:
        raise UnsupportedCompressionTypeError(f"Produce v{version} does not know zstd; v{_ZSTD} does")
    if size == len(records):
        return records
    if batch_size(records, size):
        raise InvalidRecordError(f"Produce v{version} takes one record batch for each partition, not several")
    return records[:size]
