"""Fetch: reads from partitions, for consumers and for followers.

1. **Context.** The session manager finds the partitions that the request is about: those it lists, or those of its
   session.
2. **Checks.** Followers need ClusterAction on the cluster, consumers Read on each topic (one authorization for all).
   Partitions that are unknown (UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION) or denied (TOPIC_AUTHORIZATION_FAILED) are
   *erroneous*, the others *interesting*.
3. **Read.** The replica manager calls back with the results as soon as there is enough data, or after
   ``max_wait_ms``. No more than ``fetch.max.bytes`` is read, and for a consumer no more than its quota allows in one
   window: a larger response would always be throttled, and the consumer would never get anything.
4. **Response.** One pass over the results creates a struct for each partition to report. A consumer that is over its
   quota, for bytes or for request time, gets an empty response and is throttled for the longer of the two; its session
   does not change. Followers are never throttled here: their limit was applied when the records were read.

Records stay in their file: the response refers to a region of it, which the network thread sends.

From v16 on, the response to a reader with an old leader or leader epoch contains the current leader. Readers of v5 and
before get NOT_LEADER_OR_FOLLOWER instead of KAFKA_STORAGE_ERROR, which they do not know and would fail on.

Three fields are for the metadata quorum, whose fetches do not come here, and are ignored: ``cluster_id``, and the
``replica_directory_id`` and ``high_watermark`` of a partition.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from barnabas.broker.handlers.current_leader import current_leader
from barnabas.common.clock import Clock
from barnabas.common.errors import Errors, InvalidRequestError
from barnabas.common.identifiers import Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.topics import TopicImage
from barnabas.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from barnabas.replica.broker_topic_stats import BrokerTopicStats
from barnabas.replica.fetch.fetch_context import FetchContext, response_size
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.fetch.fetch_session_manager import FetchManager, replica_id
from barnabas.replica.follower.replica_quota import UNBOUNDED_QUOTA, ReplicaQuota
from barnabas.replica.results import (
    NO_REPLICA,
    ClientMetadata,
    FetchCallback,
    FetchParams,
    FetchPartitionData,
    IsolationLevel,
)
from barnabas.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from barnabas.security.auth_helper import AuthHelper
from barnabas.security.principal import ANONYMOUS
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal

logger = logging.getLogger(__name__)

FetchInfos = Sequence[tuple[TopicIdPartition, FetchPartition]]
FetchResults = Sequence[tuple[TopicIdPartition, FetchPartitionData]]

_INLINE_PARTITIONS: Final = 256
"""The largest session, in partitions, that a network thread reads itself."""
_STORAGE_ERROR: Final = 6
_PREFERRED_REPLICA: Final = 11
_LEADER_HINTS: Final = 16
_LEADER_CHANGED: Final = frozenset({Errors.NOT_LEADER_OR_FOLLOWER, Errors.FENCED_LEADER_EPOCH})
_ISOLATION_LEVELS: Final = frozenset(IsolationLevel)
_new_tuple = tuple.__new__
"""Creates a named tuple without calling its class, which takes several times as long."""


class RecordReader(Protocol):
    """The part of the replica manager that Fetch uses."""

    def fetch_messages(
        self, params: FetchParams, fetch_infos: FetchInfos, quota: ReplicaQuota, callback: FetchCallback
    ) -> None: ...


class FetchHandler:
    """Handles Fetch requests."""

    def __init__(
        self,
        helper: RequestHandlerHelper,
        auth: AuthHelper,
        cache: MetadataCache,
        replicas: RecordReader,
        fetch_manager: FetchManager,
        stats: BrokerTopicStats,
        clock: Clock,
        *,
        fetch_max_bytes: int,
        leader_quota: ReplicaQuota = UNBOUNDED_QUOTA,
    ) -> None:
        self.helper = helper
        self.cache = cache
        self.now_ms = clock.milliseconds
        self.now_ns = clock.nanoseconds
        self.leader_quota = leader_quota
        """Limits the bytes sent to followers, for partitions with throttled replication."""
        self.stats = stats
        self._auth = auth
        self._fetch_messages = replicas.fetch_messages
        self._context_of = fetch_manager.context_of
        self._session_size = fetch_manager.session_size
        self._fetch_max_bytes = fetch_max_bytes
        self._topic_names = TopicNames(cache.image.topics.by_id)
        """Reused by all requests until the topics change."""

    def fetch(self, request: Request, local: RequestLocal) -> None:
        body = request.decode()
        assert isinstance(body, FetchRequest)
        if local.inline and body.session_id and self._session_size(body.session_id) > _INLINE_PARTITIONS:
            # A request of a few bytes reads all partitions of the session.
            local.hand_over()
            return
        version = request.api_version
        reader = replica_id(body, version)
        is_follower = reader >= 0
        if body.isolation_level not in _ISOLATION_LEVELS:
            raise InvalidRequestError(f"there is no isolation level {body.isolation_level}")
        if body.max_bytes < 0:
            raise InvalidRequestError(f"{body.max_bytes} is no number of bytes to fetch")
        topics = self.cache.image.topics
        names = self._topic_names
        if names.by_id is not topics.by_id:
            names = self._topic_names = TopicNames(topics.by_id)
        context = self._context_of(body, version, names)
        erroneous: dict[TopicIdPartition, PartitionData] = {}
        interesting: list[tuple[TopicIdPartition, FetchPartition]] = []
        denied = () if self._auth.authorizer is None else self._denied_topics(request, context, is_follower)
        by_name = topics.by_name
        # Most requests have one topic: it is looked up once for all its consecutive partitions.
        looked_up: str | None = None
        numbers: Container[int] = ()
        for asked in context.partitions():
            _, name, number = asked[0]
            if name != looked_up:
                topic = None if name is None or name in denied else by_name.get(name)
                looked_up, numbers = name, () if topic is None else topic.partitions
            if number in numbers and asked[1].partition_max_bytes >= 0:
                interesting.append(asked)
                continue
            partition = asked[0]
            if name in denied:
                error = Errors.TOPIC_AUTHORIZATION_FAILED
            elif name is None:
                error = Errors.UNKNOWN_TOPIC_ID
            elif number not in numbers:
                error = Errors.UNKNOWN_TOPIC_OR_PARTITION
            else:
                error = Errors.INVALID_REQUEST
            erroneous[partition] = _error(partition, error)
        pending = PendingFetch(self, request, context, erroneous, is_follower)
        if interesting:
            params = self._params(request, body, reader)
            quota = self.leader_quota if is_follower else UNBOUNDED_QUOTA
            self._fetch_messages(params, interesting, quota, pending.respond)
        else:
            pending.respond(())

    def _denied_topics(self, request: Request, context: FetchContext, is_follower: bool) -> set[str | None]:
        """Returns the topics that the client may not read. A follower may read all or none, even unnamed topics."""
        names = {partition.topic for partition, _ in context.partitions()}
        if is_follower:
            may = self._auth.authorize(
                request.request_context, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
            )
            return set() if may else names
        listed = [partition.topic for partition, _ in context.partitions() if partition.topic is not None]
        allowed = self._auth.filter_by_authorized(
            request.request_context, AclOperation.READ, ResourceType.TOPIC, listed, str
        )
        return names - allowed - {None}

    def _params(self, request: Request, body: FetchRequest, reader: int) -> FetchParams:
        max_bytes = body.max_bytes
        max_bytes = min(max_bytes, self._fetch_max_bytes)
        fetch_quota = self.helper.quotas.fetch
        if reader < 0 and fetch_quota.is_enabled:
            max_bytes = int(min(max_bytes, fetch_quota.max_value_in_window(request)))
        client = None
        if request.api_version >= _PREFERRED_REPLICA:
            context = request.context
            principal = context.principal
            client = _new_tuple(
                ClientMetadata,
                (
                    body.rack_id,
                    request.client_id or "",
                    context.client_address,
                    _ANONYMOUS_NAME if principal is None else str(principal),
                    context.listener_name,
                ),
            )
        state = body.replica_state
        return FetchParams(
            reader,
            -1 if state is None else state.replica_epoch,
            body.max_wait_ms,
            min(max_bytes, body.min_bytes),
            max_bytes,
            FetchParams.isolation_of(reader, body.isolation_level),
            client,
        )


_ANONYMOUS_NAME: Final = str(ANONYMOUS)


class PendingFetch:
    """The second half of a fetch: turns the results of the read into the response."""

    __slots__ = ("_context", "_erroneous", "_handler", "_is_follower", "_request")

    def __init__(
        self,
        handler: FetchHandler,
        request: Request,
        context: FetchContext,
        erroneous: dict[TopicIdPartition, PartitionData],
        is_follower: bool,
    ) -> None:
        self._handler = handler
        self._request = request
        self._context = context
        self._erroneous = erroneous
        self._is_follower = is_follower

    def respond(self, results: FetchResults) -> None:
        """Sends the response, or an error if that fails: the calling thread may not handle errors."""
        try:
            self._respond(results)
        except Exception as error:  # noqa: BLE001 - the funnel
            self._handler.helper.handle_error(self._request, error)

    def _respond(self, results: FetchResults) -> None:
        request, context, handler = self._request, self._context, self._handler
        quotas = handler.helper.quotas
        request_throttle_ms = 0
        if not self._is_follower and quotas.request.is_enabled:
            request_throttle_ms = quotas.request.maybe_record_and_get_throttle_time_ms(request, handler.now_ms())
        may_omit = context.may_omit
        updates: dict[TopicIdPartition, PartitionData] = {}
        endpoints: dict[int, NodeEndpoint] = {}
        reassigned: set[TopicIdPartition] = set()
        for partition, data in results:
            error, high_watermark, log_start_offset, records, diverging, stable, aborted, preferred, added, _ = data
            if (
                not records
                and not error
                and diverging is None
                and preferred == NO_REPLICA
                and may_omit(partition, high_watermark, log_start_offset)
            ):
                continue
            update = PartitionData(
                partition[2],
                error,
                high_watermark,
                stable,
                log_start_offset,
                None,
                None,
                None,
                None,
                preferred,
                records,
            )
            if aborted is not None:
                update.aborted_transactions = [
                    AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset) for txn in aborted
                ]
            if diverging is not None:
                update.diverging_epoch = EpochEndOffset(epoch=diverging.leader_epoch, end_offset=diverging.end_offset)
            if error:
                self._add_error(partition, error, update, endpoints)
            if added:
                reassigned.add(partition)
            updates[partition] = update
        if self._erroneous:
            updates.update(self._erroneous)
        if self._is_follower:
            self._respond_to_follower(updates, reassigned)
        elif request_throttle_ms or quotas.fetch.is_enabled:
            self._respond_within_quotas(updates, list(endpoints.values()), request_throttle_ms)
        else:
            response = context.update_and_generate_response_data(updates, list(endpoints.values()))
            self._count_bytes_out(response)
            handler.helper.send(request, response)

    def _add_error(
        self,
        partition: TopicIdPartition,
        error: Errors,
        update: PartitionData,
        endpoints: dict[int, NodeEndpoint],
    ) -> None:
        handler, request = self._handler, self._request
        if error is Errors.KAFKA_STORAGE_ERROR and request.api_version < _STORAGE_ERROR:
            update.error_code = Errors.NOT_LEADER_OR_FOLLOWER
        if error in _LEADER_CHANGED and request.api_version >= _LEADER_HINTS:
            leader_id, leader_epoch, node = current_leader(
                handler.cache, partition.topic or "", partition.partition, request.context.listener_name
            )
            update.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
            if node is not None:
                endpoints[leader_id] = NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)

    # Followers

    def _respond_to_follower(
        self, updates: dict[TopicIdPartition, PartitionData], reassigned: set[TopicIdPartition]
    ) -> None:
        handler, request = self._handler, self._request
        response = self._context.update_and_generate_response_data(updates)
        if handler.leader_quota is not UNBOUNDED_QUOTA:
            self._record_replication(response)
        self._count_errors(response)
        for topic in response.responses:
            for data in topic.partitions:
                if data.records:
                    which = TopicIdPartition(topic.topic_id, topic.topic, data.partition_index)
                    handler.stats.update_replication_bytes_out(
                        len(data.records), is_reassignment=bool(reassigned) and which in reassigned
                    )
        handler.helper.send_response_exempt_throttle(request, response)

    def _record_replication(self, response: FetchResponse) -> None:
        """Charges the bytes of throttled partitions. The quota was checked before the read."""
        quota = self._handler.leader_quota
        limited = [
            (TopicIdPartition(topic.topic_id, topic.topic, data.partition_index), data)
            for topic in response.responses
            for data in topic.partitions
            if quota.is_throttled(TopicPartition(topic.topic, data.partition_index))
        ]
        quota.record(response_size(limited, self._request.api_version) if limited else 0)

    # Consumers

    def _respond_within_quotas(
        self, updates: dict[TopicIdPartition, PartitionData], endpoints: list[NodeEndpoint], request_ms: int
    ) -> None:
        """Sends the response to a consumer, or an empty one if the consumer is throttled."""
        request, context = self._request, self._context
        helper = self._handler.helper
        quotas = helper.quotas
        now_ms = self._handler.now_ms()
        bandwidth_ms = size = 0
        if quotas.fetch.is_enabled:
            size = context.get_response_size(updates, request.api_version)
            bandwidth_ms = quotas.fetch.maybe_record_and_get_throttle_time_ms(request, size, now_ms)
        throttle_time_ms = max(bandwidth_ms, request_ms)
        if throttle_time_ms <= 0:
            response = context.update_and_generate_response_data(updates, endpoints)
            self._count_bytes_out(response)
        else:
            request.api_throttle_time_ms = throttle_time_ms
            # The records are not sent now, whichever quota is exceeded. They are charged when they are sent.
            quotas.fetch.unrecord(request, size, now_ms)
            helper.throttle(quotas.fetch if bandwidth_ms > request_ms else quotas.request, request, throttle_time_ms)
            response = context.get_throttled_response(throttle_time_ms, endpoints)
        helper.send(request, response)

    def _count_bytes_out(self, response: FetchResponse) -> None:
        """Updates the metrics of bytes that consumers read, by topic, and those of errors."""
        has_errors = bool(response.error_code)
        for topic in response.responses:
            size = 0
            for data in topic.partitions:
                if data.records:
                    size += len(data.records)
                elif data.error_code:
                    has_errors = True
            if size:
                self._handler.stats.topic_stats(topic.topic).record_bytes_out(size, self._handler.now_ns())
        if has_errors:
            self._count_errors(response)

    def _count_errors(self, response: FetchResponse) -> None:
        channel, request = self._handler.helper.channel, self._request
        if response.error_code:
            channel.update_error_metrics(request, Errors.for_code(response.error_code))
        for topic in response.responses:
            for data in topic.partitions:
                if data.error_code:
                    error = Errors.for_code(data.error_code)
                    logger.debug("%r failed for %s-%d: %s", request, topic.topic, data.partition_index, error.name)
                    channel.update_error_metrics(request, error)


def _error(partition: TopicIdPartition, error: Errors) -> PartitionData:
    """Returns the response for a partition that is not read."""
    return PartitionData(partition_index=partition.partition, error_code=error, high_watermark=-1, records=b"")


class TopicNames(Mapping[Uuid, str]):
    """Maps topic ids to names, using the topics of a metadata image."""

    __slots__ = ("by_id",)

    def __init__(self, by_id: Mapping[Uuid, TopicImage]) -> None:
        self.by_id = by_id

    def __getitem__(self, topic_id: Uuid) -> str:
        return self.by_id[topic_id].name

    def get(self, topic_id: Uuid, default: Any = None, /) -> Any:
        """Overrides ``Mapping.get`` at half the cost: a missing id raises no exception."""
        found = self.by_id.get(topic_id)
        return default if found is None else found.name

    def __iter__(self) -> Iterator[Uuid]:
        return iter(self.by_id)

    def __len__(self) -> int:
        return len(self.by_id)
