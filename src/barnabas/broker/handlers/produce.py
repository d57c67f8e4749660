"""Produce: appends to partitions that this broker leads.

A request goes through these steps. The first three decide which of its partitions reach the log:

1. **Buckets.** A partition is unknown (UNKNOWN_TOPIC_ID for an unknown id, UNKNOWN_TOPIC_OR_PARTITION), invalid or
   accepted. Each partition needs exactly **one batch, of format v2**: anything else is INVALID_RECORD, zstd before v7
   is UNSUPPORTED_COMPRESSION_TYPE. Only the leading fields are read here; the log checks the batch itself. A batch
   whose length or format cannot be read is CORRUPT_MESSAGE, for the whole request; after a transactional batch, for
   its partition only. Kafka reads all batches to find the first transactional one, and stops there.
2. **Transactional records** need Write on the transactional id that the request names. Without it the whole request
   fails with TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
3. **Authorization.** Topics need Write. The authorizer is called once for all topics.
4. **Verification** of records that are part of a transaction: see
   :mod:`~barnabas.broker.handlers.transactional_produce`. All others skip it.
5. **Append.** The replica manager calls back when enough replicas for ``acks`` have the records: at once for 0 and 1,
   perhaps much later for -1. If a log directory is slow, it appends later, on another thread
   (:mod:`barnabas.log.dirs.log_dir_pace`), and keeps the buffer until then.
6. **Response**, with the larger of two throttle times: bytes and request time. With acks=0 there is no response. The
   connection then stays open, or is closed after an error, because nothing else would tell the client. The request
   time is not charged, because no response carries a throttle time.

If a request lists a partition twice, the second batch counts, and the partition gets one response, as in Kafka.
"""

from __future__ import annotations

import logging
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from barnabas.broker.handlers.current_leader import current_leader
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
from barnabas.protocol.message import Buffer, TooManyEntriesError
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
    COMPRESSION_MASK,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_OFFSET,
    TRANSACTIONAL_MASK,
    CompressionType,
)
from barnabas.records.compressed_batch import decompressed_bound
from barnabas.replica.append.record_appender import RecordAppender
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.results import ProduceCallback, ProduceResult
from barnabas.security.acl import AclOperation, ResourceType
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal
from barnabas.server.throttling import Throttler

logger = LimitedLogger(logging.getLogger(__name__))

ADMIN_CLIENT_ID: Final = "__admin_client"
"""Clients with this id, such as repair tools, may write to internal topics."""

_new_tuple = tuple.__new__
"""Creates a named tuple in one call; calling its class would add a Python call."""

_TOPIC_IDS: Final = 13
_LEADER_HINTS: Final = 10
_ZSTD: Final = 7
_NO_ACKS: Final = 0

_INLINE_BYTES: Final = 1 << 20
"""The largest decompressed size of the records that a network thread appends inline."""
_INLINE_ENTRIES: Final = 160
"""The most topics and partitions of a request that a network thread decodes and appends inline."""
MAX_DECOMPRESSED_BYTES: Final = 4 * MAX_BATCH_BYTES
"""The largest decompressed size of one request's records. The broker checks each byte; the sender pays nothing."""

_LEADING_FIELDS: Final = struct.Struct(">8xi4xb4xh")
"""Length, magic and attributes of a batch."""
_LENGTH: Final = struct.Struct(">8xi")
_SMALLEST_LENGTH: Final = 14
"""The smallest valid batch length, that of a message in the oldest format."""

_unpack_leading_fields = _LEADING_FIELDS.unpack_from
_LEADING_SIZE: Final = _LEADING_FIELDS.size


class ProduceHandler:
    """Handles Produce requests."""

    def __init__(
        self,
        helper: RequestHandlerHelper,
        auth: AuthHelper,
        cache: MetadataCache,
        replicas: RecordAppender,
        clock: Clock,
        transactions: Callable[[], TransactionalAppends] | None = None,
    ) -> None:
        """Without `transactions`, transactional records are appended without verification, if the log accepts them.

        It is called for the first such records: it needs the transaction coordinator, which may not exist yet.
        """
        self._helper = helper
        self._auth = auth
        self._cache = cache
        self._append_records = replicas.append_records
        self._now_ms = clock.milliseconds
        self._transactions = transactions

    def produce(self, request: Request, local: RequestLocal) -> None:
        try:
            body = request.decode(_INLINE_ENTRIES if local.inline else None)
        except TooManyEntriesError:
            if not local.inline:
                raise
            local.hand_over()
            return
        assert isinstance(body, ProduceRequest)
        if (
            self._helper.quotas.produce.is_enabled
            and not request.context.has_produced
            and self._wait_for_quota(request)
        ):
            return
        entries: dict[TopicIdPartition, Buffer] = {}
        refused: dict[TopicIdPartition, ProduceResult] = {}
        attributes = self._sort_out(request.api_version, body, entries, refused)
        transactional_id: str | None = None
        if attributes & TRANSACTIONAL_MASK:
            transactional_id = self._authorize_transactional_id(request, body)
        if self._auth.authorizer is not None:
            self._refuse_denied_topics(request, entries, refused)
        acks = body.acks
        # This keeps its arguments alive while the request waits for other replicas: they must not include records.
        respond = partial(self._respond, request, acks, refused)
        if not entries:
            respond({})
            return
        if attributes & COMPRESSION_MASK and self._is_too_much(entries, local, respond):
            return
        internal_topics_allowed = request.client_id == ADMIN_CLIENT_ID
        if transactional_id is not None and self._transactions is not None:
            self._transactions().append_records(
                transactional_id,
                TransactionSupportedOperation.for_produce(request.api_version),
                body.timeout_ms,
                acks,
                entries,
                respond,
                internal_topics_allowed=internal_topics_allowed,
            )
        else:
            self._append_records(
                body.timeout_ms,
                acks,
                entries,
                respond,
                internal_topics_allowed=internal_topics_allowed,
                holder=request,
            )
        if request.awaits_response:
            # It waits for other replicas. The records are in the log, or a delayed append keeps them, so the request
            # must not keep its whole buffer in memory.
            for topic in body.topic_data:
                for partition in topic.partition_data:
                    partition.records = None

    def _wait_for_quota(self, request: Request) -> bool:
        """Delays the first request of a connection whose quota entity is throttled; returns whether it did."""
        request.context.has_produced = True
        helper = self._helper
        quota = helper.quotas.produce
        wait_ms = quota.first_wait_ms(request)
        if wait_ms <= 0:
            return False

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
    def _is_too_much(entries: Mapping[TopicIdPartition, Buffer], local: RequestLocal, respond: ProduceCallback) -> bool:
        """Returns whether the batches decompress to more than this thread or one request may append.

        In the first case the request is handed over to the bulk lane, in the second it is refused. Either is decided by
        the first batches that are too much: a bound costs up to 1 ms, for a zstd frame of a thousand blocks.
        """
        bound = 0
        for records in entries.values():
            one = decompressed_bound(memoryview(records))
            if one > 0:
                bound += min(one, MAX_BATCH_BYTES)  # the log refuses a batch that decompresses to more
            if local.inline and (one < 0 or bound > _INLINE_BYTES):
                local.hand_over()
                return True
            if bound > MAX_DECOMPRESSED_BYTES:
                refused = ProduceResult(
                    Errors.MESSAGE_TOO_LARGE,
                    error_message=f"The records of one request may decompress to {MAX_DECOMPRESSED_BYTES} bytes; "
                    f"these claim {bound} or more",
                )
                respond(dict.fromkeys(entries, refused))
                return True
        return False

    # Sorting the partitions

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
        version: int,
        body: ProduceRequest,
        entries: dict[TopicIdPartition, Buffer],
        refused: dict[TopicIdPartition, ProduceResult],
    ) -> int:
        """Sorts the partitions of a request into those to append to and those to refuse.

        Returns the attributes of all batches, combined with "or".
        """
        topics = self._cache.image.topics
        all_attributes = 0
        for topic in body.topic_data:
            if version >= _TOPIC_IDS:
                topic_id = topic.topic_id
                found = topics.by_id.get(topic_id)
                name = "" if found is None else found.name
            else:
                name = topic.name
                found = topics.by_name.get(name)
                topic_id = topic.topic_id if found is None else found.id
            for data in topic.partition_data:
                index, records = data.index, data.records
                partition = _new_tuple(TopicIdPartition, (topic_id, name, index))
                batch: Buffer | None = None
                attributes = 0
                if records is not None and len(records) > _LEADING_SIZE:
                    length, magic, attributes = _unpack_leading_fields(records)
                    if magic == MAGIC and length + LOG_OVERHEAD == len(records):
                        batch = records
                if batch is None:
                    try:
                        _, _, attributes = first_batch(records)
                    except CorruptRecordError:
                        if not all_attributes & TRANSACTIONAL_MASK:
                            raise
                all_attributes |= attributes
                if found is None:
                    code = Errors.UNKNOWN_TOPIC_ID if version >= _TOPIC_IDS else Errors.UNKNOWN_TOPIC_OR_PARTITION
                    refused[partition] = ProduceResult(code)
                elif index not in found.partitions:
                    refused[partition] = ProduceResult(Errors.UNKNOWN_TOPIC_OR_PARTITION)
                else:
                    try:
                        entries[partition] = (
                            the_one_batch(records, version) if batch is None or version < _ZSTD else batch
                        )
                    except ApiError as error:
                        logger.debug("Produce v%d to %s is refused: %s", version, partition, error)
                        refused[partition] = ProduceResult(Errors.for_exception(error))
        return all_attributes

    def _refuse_denied_topics(
        self,
        request: Request,
        entries: dict[TopicIdPartition, Buffer],
        refused: dict[TopicIdPartition, ProduceResult],
    ) -> None:
        """Refuses the topics that the client may not write to, with one call of the authorizer.

        A denied client must not learn which topics and partitions exist. An unknown topic id is not authorized: it has
        no name.
        """
        named = [partition for partition in (*entries, *refused) if partition.topic or request.api_version < _TOPIC_IDS]
        names = [partition.topic or "" for partition in named]
        allowed = self._auth.filter_by_authorized(
            request.request_context, AclOperation.WRITE, ResourceType.TOPIC, names, str
        )
        for partition, name in zip(named, names, strict=True):
            if name not in allowed:
                entries.pop(partition, None)
                refused[partition] = ProduceResult(Errors.TOPIC_AUTHORIZATION_FAILED)

    # The response

    def _respond(
        self,
        request: Request,
        acks: int,
        refused: dict[TopicIdPartition, ProduceResult],
        results: dict[TopicIdPartition, ProduceResult],
    ) -> None:
        """Sends the response with the results of the appends. Any thread may call it, and no error may escape."""
        helper = self._helper
        try:
            if refused:
                results = {**results, **refused}
            quotas = helper.quotas
            bandwidth_ms = request_ms = throttle_time_ms = 0
            if quotas.produce.is_enabled:
                bandwidth_ms = quotas.produce.maybe_record_and_get_throttle_time_ms(
                    request, request.size, self._now_ms()
                )
            if acks != _NO_ACKS and quotas.request.is_enabled:
                request_ms = quotas.request.maybe_record_and_get_throttle_time_ms(request, self._now_ms())
            if bandwidth_ms or request_ms:
                throttle_time_ms = max(bandwidth_ms, request_ms)
                request.api_throttle_time_ms = throttle_time_ms
                larger: Throttler = quotas.produce if bandwidth_ms > request_ms else quotas.request
                helper.throttle(larger, request, throttle_time_ms)
            if acks == _NO_ACKS:
                self._end_without_response(request, results)
            else:
                helper.send(request, self._response(request, results, throttle_time_ms))
        except Exception as error:  # noqa: BLE001 - the caller is another request, or no request at all
            helper.handle_error(request, error)

    def _end_without_response(self, request: Request, results: Mapping[TopicIdPartition, ProduceResult]) -> None:
        errors = {partition: result.error for partition, result in results.items() if result.error}
        if not errors:
            self._helper.send_no_op_response_exempt_throttle(request)
            return
        logger.info(
            "Closing connection %s: a produce request with acks=0 failed, and there is no response to say so. "
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
        """Groups the results by topic, in the order of the topics' first results."""
        topics: dict[object, TopicProduceResponse] = {}
        endpoints: list[NodeEndpoint] = []
        has_ids = request.api_version >= _TOPIC_IDS
        for partition, result in results.items():
            topic_id, name, index = partition
            error, base_offset, log_append_time, log_start_offset, _, _, _ = result
            response = PartitionProduceResponse(index, error, base_offset, log_append_time, log_start_offset)
            if error:
                self._add_error(request, partition, result, response, endpoints)
            key = topic_id if has_ids else name
            topic = topics.get(key)
            if topic is None:
                topics[key] = TopicProduceResponse(name or "", topic_id, [response])
            else:
                topic.partition_responses.append(response)
        return ProduceResponse(list(topics.values()), throttle_time_ms, endpoints)

    def _add_error(
        self,
        request: Request,
        partition: TopicIdPartition,
        result: ProduceResult,
        response: PartitionProduceResponse,
        endpoints: list[NodeEndpoint],
    ) -> None:
        """Adds the details of a refused partition to its response, and the address of its leader to `endpoints`."""
        logger.debug("%r failed for %s: %s", request, partition, result.error.name)
        self._helper.channel.update_error_metrics(request, result.error)
        response.error_message = result.error_message
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=error.batch_index, batch_index_error_message=error.message)
            for error in result.record_errors
        ]
        if result.error is Errors.NOT_LEADER_OR_FOLLOWER and request.api_version >= _LEADER_HINTS:
            leader_id, leader_epoch, node = current_leader(
                self._cache, partition.topic or "", partition.partition, request.context.listener_name
            )
            response.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
            if node is not None and all(endpoint.node_id != node.id for endpoint in endpoints):
                endpoints.append(NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack))


# Parsing the leading fields of batches


def first_batch(records: Buffer | None) -> tuple[int, int, int]:
    """Returns the size, magic and attributes of the first batch; all are 0 if there is no complete batch.

    `CorruptRecordError` if the records do not begin with a batch. The attributes of older formats are 0.
    """
    if records is None:
        return 0, 0, 0
    if len(records) > _LEADING_SIZE:
        length, magic, attributes = _unpack_leading_fields(records)
        if magic == MAGIC and length + LOG_OVERHEAD == len(records):
            return len(records), MAGIC, attributes
    size = batch_size(records)
    if size == 0:
        return 0, 0, 0
    _, magic, attributes = _unpack_leading_fields(records)
    return size, magic, attributes if magic == MAGIC else 0


def batch_size(records: Buffer, start: int = 0) -> int:
    """Returns the size of the batch, of any format, at `start`; 0 if it is incomplete.

    `CorruptRecordError` if no batch begins there.
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
    """Returns the single batch of a partition's records; raises an error if the records are invalid.

    An incomplete batch after it is cut off.
    """
    size, magic, attributes = first_batch(records)
    if records is None or size == 0:
        raise InvalidRecordError(f"Produce v{version} needs a record batch for each partition")
    if magic != MAGIC:
        raise InvalidRecordError(f"Produce v{version} takes record batches of magic {MAGIC}, not {magic}")
    if version < _ZSTD and attributes & COMPRESSION_MASK == CompressionType.ZSTD:
        raise UnsupportedCompressionTypeError(f"Produce v{version} does not know zstd; v{_ZSTD} does")
    if size == len(records):
        return records
    if batch_size(records, size):
        raise InvalidRecordError(f"Produce v{version} takes one record batch for each partition, not several")
    return records[:size]
