"""The group coordinator of a broker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any, Final, TypeVar

from barnabas.common.errors import (
    ApiError,
    CoordinatorNotAvailableError,
    Errors,
)
from barnabas.common.java_hash import partition_for
from barnabas.common.log_safety import LimitedLogger
from barnabas.common.topic_names import GROUP_METADATA_TOPIC
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.group.assignor.partition_assignor import PartitionAssignor
from barnabas.coordinator.group.classic.classic_rebalance import response_error_of_append
from barnabas.coordinator.group.group import GroupProgress
from barnabas.coordinator.group.group_coordinator_config import GroupCoordinatorConfig
from barnabas.coordinator.group.group_coordinator_shard import GroupCoordinatorShard
from barnabas.coordinator.group.group_metrics import GroupMetrics
from barnabas.coordinator.group.member_context import MemberContext
from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from barnabas.coordinator.runtime.timer_reaper import SystemTimerReaper
from barnabas.coordinator.runtime.transaction_end import TransactionEnd
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import MetadataImage
from barnabas.protocol.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.protocol.messages.delete_groups import DeletableGroupResult
from barnabas.protocol.messages.describe_groups import DescribedGroup
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from barnabas.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

logger = LimitedLogger(logging.getLogger(__name__))

T = TypeVar("T")
R = TypeVar("R")

MAX_GROUP_ID_BYTES: Final = 2**15 - 1
"""The longest ID in a record. A request can have a longer one. No record of such a group could be written, not even a
tombstone, and an operation on all groups, such as the expiry of offsets, would fail for all of them."""


class GroupCoordinatorService:
    """The interface for handlers: finds the partition of a group, schedules the operation, and creates the response.

    Futures of this class never fail: the response has the error code that clients of that API understand.
    """

    topic = GROUP_METADATA_TOPIC

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        runtime: CoordinatorRuntime[GroupCoordinatorShard],
        metrics: GroupMetrics,
        assignors: Sequence[PartitionAssignor],
        *,
        reaper: SystemTimerReaper | None = None,
        pool: Executor | None = None,
        is_consumer_protocol_enabled: Callable[[], bool] = lambda: True,
    ) -> None:
        """`reaper` and `pool` are closed with the service."""
        self.config = config
        self.runtime = runtime
        self._metrics = metrics
        self.assignors = assignors
        self._reaper = reaper
        self._pool = pool
        self._is_consumer_protocol_enabled = is_consumer_protocol_enabled
        self._active = False
        """Written once by the thread that starts the broker and once by the one that stops it."""
        self._num_partitions = config.offsets_topic_num_partitions

    # -- lifecycle

    def startup(self) -> None:
        """Starts to serve requests; until partitions are loaded, with NOT_COORDINATOR."""
        if self._reaper is not None:
            self._reaper.start()
        self._active = True
        logger.info("Started the group coordinator")

    def shutdown(self) -> None:
        self._active = False
        self.runtime.close()
        if self._reaper is not None:
            self._reaper.close()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._metrics.close()
        logger.info("Shut down the group coordinator")

    def on_election(self, partition: int, leader_epoch: int) -> None:
        self.runtime.schedule_load_operation(TopicPartition(self.topic, partition), leader_epoch)

    def on_resignation(self, partition: int, leader_epoch: int | None) -> None:
        self.runtime.schedule_unload_operation(TopicPartition(self.topic, partition), leader_epoch)

    def on_partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        self.runtime.schedule_write_all_operation(
            "on-partitions-deleted", lambda shard: shard.on_partitions_deleted(partitions)
        )

    def on_new_metadata_image(self, image: MetadataImage, delta: MetadataDelta) -> None:
        topic = image.topics.topic(self.topic)
        if topic is not None:
            # The setting only applies when the topic is created.
            self._num_partitions = len(topic.partitions)
        self.runtime.on_new_metadata_image(image, delta)

    def partition_for(self, group_id: str) -> int:
        return partition_for(group_id, self._num_partitions)

    def is_loading(self, partition: int) -> bool:
        """Returns whether the partition, if this broker leads it, is not loaded yet."""
        return self.runtime.is_loading(TopicPartition(self.topic, partition))

    def _partition_of(self, group_id: str) -> TopicPartition:
        return TopicPartition(self.topic, self.partition_for(group_id))

    def _problem(self, group_id: str | None, *, may_be_empty: bool = False) -> Errors | None:
        if not self._active:
            return Errors.COORDINATOR_NOT_AVAILABLE
        if group_id is None or (not group_id and not may_be_empty) or _is_too_long(group_id):
            return Errors.INVALID_GROUP_ID
        return None

    # -- classic groups

    def join_group(self, context: MemberContext, request: JoinGroupRequest) -> Future[JoinGroupResponse]:
        def failed(error: Errors) -> JoinGroupResponse:
            return JoinGroupResponse(member_id=request.member_id, error_code=error)

        problem = self._problem(request.group_id)
        config = self.config
        if problem is None and not (
            config.classic_min_session_timeout_ms <= request.session_timeout_ms <= config.classic_max_session_timeout_ms
        ):
            problem = Errors.INVALID_SESSION_TIMEOUT
        if problem is not None:
            return _done(failed(problem))
        response_future: Future[JoinGroupResponse] = Future()
        operation = self.runtime.schedule_write_operation(
            "classic-group-join",
            self._partition_of(request.group_id),
            lambda shard: shard.join_group(context, request, response_future),
        )
        _complete_with_failure(operation, response_future, lambda error: JoinGroupResponse(error_code=error))
        return response_future

    def sync_group(self, request: SyncGroupRequest) -> Future[SyncGroupResponse]:
        def failed(error: Errors) -> SyncGroupResponse:
            # A load discards pending joins; only rejoining helps.
            if error is Errors.COORDINATOR_LOAD_IN_PROGRESS:
                error = Errors.REBALANCE_IN_PROGRESS
            return SyncGroupResponse(error_code=error)

        problem = self._problem(request.group_id)
        if problem is not None:
            return _done(failed(problem))
        response_future: Future[SyncGroupResponse] = Future()
        operation = self.runtime.schedule_write_operation(
            "classic-group-sync",
            self._partition_of(request.group_id),
            lambda shard: shard.sync_group(request, response_future),
        )
        _complete_with_failure(operation, response_future, failed)
        return response_future

    def heartbeat(self, request: HeartbeatRequest) -> Future[HeartbeatResponse]:
        def failed(error: Errors) -> HeartbeatResponse:
            # An error would cause a needless rebalance of the member.
            if error is Errors.COORDINATOR_LOAD_IN_PROGRESS:
                error = Errors.NONE
            return HeartbeatResponse(error_code=error)

        problem = self._problem(request.group_id)
        if problem is not None:
            return _done(failed(problem))
        return _or_else(
            self.runtime.schedule_write_operation(
                "classic-group-heartbeat",
                self._partition_of(request.group_id),
                lambda shard: shard.heartbeat(request),
            ),
            failed,
        )

    def leave_group(self, request: LeaveGroupRequest) -> Future[LeaveGroupResponse]:
        """Removes the members in the request's list, whatever its version."""
        problem = self._problem(request.group_id)
        if problem is not None:
            return _done(LeaveGroupResponse(error_code=problem))

        def failed(error: Errors) -> LeaveGroupResponse:
            if error is not Errors.UNKNOWN_MEMBER_ID:
                return LeaveGroupResponse(error_code=error)
            # The group does not exist; each member gets that error.
            return LeaveGroupResponse(
                members=[
                    MemberResponse(member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=error)
                    for one in request.members
                ]
            )

        return _or_else(
            self.runtime.schedule_write_operation(
                "classic-group-leave",
                self._partition_of(request.group_id),
                lambda shard: shard.leave_group(request),
            ),
            failed,
        )

    # -- consumer groups

    def consumer_group_heartbeat(
        self, context: MemberContext, request: ConsumerGroupHeartbeatRequest
    ) -> Future[ConsumerGroupHeartbeatResponse]:
        if not self._active:
            return _done(ConsumerGroupHeartbeatResponse(error_code=Errors.COORDINATOR_NOT_AVAILABLE))
        if not self.serves_consumer_protocol:
            return _done(ConsumerGroupHeartbeatResponse(error_code=Errors.UNSUPPORTED_VERSION))
        if not request.group_id.strip():
            return _done(
                ConsumerGroupHeartbeatResponse(
                    error_code=Errors.INVALID_REQUEST, error_message="GroupId can't be empty."
                )
            )
        if _is_too_long(request.group_id):
            return _done(
                ConsumerGroupHeartbeatResponse(
                    error_code=Errors.INVALID_REQUEST,
                    error_message=f"GroupId must not have more than {MAX_GROUP_ID_BYTES} bytes.",
                )
            )
        operation = self.runtime.schedule_write_operation(
            "consumer-group-heartbeat",
            self._partition_of(request.group_id),
            lambda shard: shard.consumer_group_heartbeat(context, request),
        )

        def failed(error: BaseException) -> ConsumerGroupHeartbeatResponse:
            code = response_error_of_append(Errors.for_exception(error))
            # The text of any other error is for the log, not for clients.
            message = str(error) if isinstance(error, ApiError) else code.message
            return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)

        return _handle(operation, failed)

    @property
    def serves_consumer_protocol(self) -> bool:
        return "consumer" in self.config.rebalance_protocols and self._is_consumer_protocol_enabled()

    # -- administration

    def list_groups(self, request: ListGroupsRequest) -> Future[ListGroupsResponse]:
        if not self._active:
            return _done(ListGroupsResponse(error_code=Errors.COORDINATOR_NOT_AVAILABLE))
        parts = self.runtime.schedule_read_all_operation(
            "list-groups",
            lambda shard, epoch: shard.list_groups(request.states_filter, request.types_filter, epoch),
        )

        def gather() -> ListGroupsResponse:
            groups: list[ListedGroup] = []
            failure = Errors.NONE
            for part in parts:
                error = part.exception()
                if error is None:
                    groups.extend(part.result())
                    continue
                code = Errors.for_exception(error)
                # The groups of a partition that has moved are listed by its new coordinator.
                if code is not Errors.NOT_COORDINATOR:
                    failure = code
            return ListGroupsResponse(error_code=failure, groups=groups)

        return _when_all(parts, gather)

    def progress(self, wanted: Callable[[str], bool]) -> Future[list[GroupProgress]]:
        """Returns members and committed offsets of the groups whose id `wanted` accepts.

        Groups of partitions that are being loaded, or have moved to another broker, are left out.
        """
        parts = (
            self.runtime.schedule_read_all_operation("progress", lambda shard, epoch: shard.progress(wanted, epoch))
            if self._active
            else []
        )
        return _when_all(
            parts, lambda: [group for part in parts if part.exception() is None for group in part.result()]
        )

    def describe_groups(self, group_ids: Sequence[str]) -> Future[list[DescribedGroup]]:
        def failed(group_id: str, error: Errors) -> DescribedGroup:
            return DescribedGroup(group_id=group_id, error_code=error)

        return self._by_partition(
            group_ids,
            failed,
            lambda partition, ids: self.runtime.schedule_read_operation(
                "describe-groups", partition, lambda shard, epoch: shard.describe_groups(ids, epoch)
            ),
        )

    def consumer_group_describe(self, group_ids: Sequence[str]) -> Future[list[DescribedConsumerGroup]]:
        def failed(group_id: str, error: Errors) -> DescribedConsumerGroup:
            return DescribedConsumerGroup(group_id=group_id, error_code=error)

        return self._by_partition(
            group_ids,
            failed,
            lambda partition, ids: self.runtime.schedule_read_operation(
                "consumer-group-describe", partition, lambda shard, epoch: shard.describe_consumer_groups(ids, epoch)
            ),
        )

    def delete_groups(self, group_ids: Sequence[str]) -> Future[list[DeletableGroupResult]]:
        def failed(group_id: str, error: Errors) -> DeletableGroupResult:
            return DeletableGroupResult(group_id=group_id, error_code=error)

        return self._by_partition(
            group_ids,
            failed,
            lambda partition, ids: self.runtime.schedule_write_operation(
                "delete-groups", partition, lambda shard: shard.delete_groups(ids)
            ),
        )

    def _by_partition(
        self,
        group_ids: Sequence[str],
        failed: Callable[[str, Errors], R],
        schedule: Callable[[TopicPartition, list[str]], Future[list[R]]],
    ) -> Future[list[R]]:
        """Queries each partition for its groups."""
        if not self._active:
            return _done([failed(group_id, Errors.COORDINATOR_NOT_AVAILABLE) for group_id in group_ids])
        by_partition: dict[TopicPartition, list[str]] = {}
        for group_id in group_ids:
            # No group has an empty ID, but offsets may be stored under it, and must be deletable.
            by_partition.setdefault(self._partition_of(group_id), []).append(group_id)
        parts = [(ids, schedule(partition, ids)) for partition, ids in by_partition.items()]

        def gather() -> list[R]:
            found: list[R] = []
            for ids, part in parts:
                error = part.exception()
                if error is None:
                    found.extend(part.result())
                else:
                    code = response_error_of_append(Errors.for_exception(error))
                    found.extend(failed(group_id, code) for group_id in ids)
            return found

        return _when_all([part for _, part in parts], gather)

    # -- offsets

    def commit_offsets(self, context: MemberContext, request: OffsetCommitRequest) -> Future[OffsetCommitResponse]:
        def failed(error: Errors) -> OffsetCommitResponse:
            return OffsetCommitResponse(
                topics=[
                    OffsetCommitResponseTopic(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partitions=[
                            OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=error)
                            for one in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )

        problem = self._problem(request.group_id, may_be_empty=True)
        if problem is not None:
            return _done(failed(problem))
        return _or_else(
            self.runtime.schedule_write_operation(
                "commit-offset",
                self._partition_of(request.group_id),
                lambda shard: shard.commit_offset(context, request),
            ),
            failed,
        )

    def commit_transactional_offsets(
        self, context: MemberContext, request: TxnOffsetCommitRequest
    ) -> Future[TxnOffsetCommitResponse]:
        def failed(error: Errors) -> TxnOffsetCommitResponse:
            if error is Errors.NETWORK_EXCEPTION:
                # The transaction coordinator was not available; older producers retry only this error.
                error = Errors.COORDINATOR_LOAD_IN_PROGRESS
            return TxnOffsetCommitResponse(
                topics=[
                    TxnOffsetCommitResponseTopic(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partitions=[
                            TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=error)
                            for one in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )

        problem = self._problem(request.group_id)
        if problem is not None:
            return _done(failed(problem))
        return _or_else(
            self.runtime.schedule_transactional_write_operation(
                "txn-commit-offset",
                self._partition_of(request.group_id),
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                lambda shard: shard.commit_transactional_offset(context, request),
                context.api_version,
            ),
            failed,
        )

    def complete_transaction(
        self,
        partition: TopicPartition,
        end: TransactionEnd,
        timeout_ms: int | None = None,
    ) -> Future[None]:
        """Ends a transaction with offsets in a partition of ``__consumer_offsets``, for WriteTxnMarkers.

        This future may fail, with the error for the marker.
        """
        response_future: Future[None] = Future()
        if not self._active:
            response_future.set_exception(CoordinatorNotAvailableError())
            return response_future
        return self.runtime.schedule_transaction_completion("complete-transaction", partition, end, timeout_ms)

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> Future[OffsetFetchResponseGroup]:
        def failed(error: Errors) -> OffsetFetchResponseGroup:
            return OffsetFetchResponseGroup(group_id=request.group_id, error_code=error)

        problem = self._problem(request.group_id, may_be_empty=True)
        if problem is not None:
            return _done(failed(problem))
        partition = self._partition_of(request.group_id)
        operation: Future[OffsetFetchResponseGroup]
        if require_stable:
            # As a write, so that it is ordered after all pending writes.
            operation = self.runtime.schedule_write_operation(
                "fetch-stable-offsets", partition, lambda shard: shard.fetch_stable_offsets(request)
            )
        else:
            operation = self.runtime.schedule_read_operation(
                "fetch-offsets", partition, lambda shard, epoch: shard.fetch_offsets(request, epoch)
            )
        return _or_else(operation, failed)

    def delete_offsets(self, request: OffsetDeleteRequest) -> Future[OffsetDeleteResponse]:
        problem = self._problem(request.group_id)
        if problem is not None:
            return _done(OffsetDeleteResponse(error_code=problem))
        return _or_else(
            self.runtime.schedule_write_operation(
                "delete-offsets", self._partition_of(request.group_id), lambda shard: shard.delete_offsets(request)
            ),
            lambda error: OffsetDeleteResponse(error_code=error),
        )


def _is_too_long(group_id: str) -> bool:
    # A character has up to four bytes, so a usual ID is not encoded.
    return 4 * len(group_id) > MAX_GROUP_ID_BYTES and len(group_id.encode()) > MAX_GROUP_ID_BYTES


def _done(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future


def _log_unexpected(error: BaseException) -> None:
    if Errors.for_exception(error) is Errors.UNKNOWN_SERVER_ERROR:
        logger.error("A group operation failed unexpectedly", exc_info=error)


def _complete_with_failure(operation: Future[Any], response_future: Future[T], failed: Callable[[Errors], T]) -> None:
    """Completes the response with an error at once, for operations whose response may come later than they end."""

    def on_done(future: Future[Any]) -> None:
        error = future.exception()
        if error is not None and not response_future.done():
            _log_unexpected(error)
            response_future.set_result(failed(response_error_of_append(Errors.for_exception(error))))

    operation.add_done_callback(on_done)


def _or_else(operation: Future[T], failed: Callable[[Errors], T]) -> Future[T]:
    return _handle(operation, lambda error: failed(response_error_of_append(Errors.for_exception(error))))


def _handle(operation: Future[T], failed: Callable[[BaseException], T]) -> Future[T]:
    response_future: Future[T] = Future()

    def on_done(future: Future[T]) -> None:
        error = future.exception()
        if error is None:
            response_future.set_result(future.result())
        else:
            _log_unexpected(error)
            response_future.set_result(failed(error))

    operation.add_done_callback(on_done)
    return response_future


def _when_all(parts: Sequence[Future[Any]], gather: Callable[[], T]) -> Future[T]:
    """Returns the result of `gather` when all parts are done, successful or not."""
    response_future: Future[T] = Future()
    if not parts:
        response_future.set_result(gather())
        return response_future
    lock = threading.Lock()  # guards the count; nothing is called while it is held
    waiting = len(parts)

    def on_done(_: Future[Any]) -> None:
        nonlocal waiting
        with lock:
            waiting -= 1
            is_last = not waiting
        if is_last:
            response_future.set_result(gather())

    for part in parts:
        part.add_done_callback(on_done)
    return response_future
