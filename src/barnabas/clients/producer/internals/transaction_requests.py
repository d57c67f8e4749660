"""The transaction manager's requests, and the handling of their responses."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, Final

from barnabas.clients.producer.errors import CommitFailedError, TransactionError
from barnabas.clients.producer.internals.producer_batch import ProducerIdAndEpoch
from barnabas.clients.producer.internals.transaction_coordinators import CoordinatorType
from barnabas.clients.producer.internals.transactional_request_result import TransactionalRequestResult
from barnabas.clients.producer.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from barnabas.clients.producer.prepared_txn_state import PreparedTxnState
from barnabas.common.errors import (
    ApiError,
    Errors,
    GroupAuthorizationError,
    ProducerFencedError,
    TopicAuthorizationError,
)
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.client_request import ClientResponse
from barnabas.network.client.node import Node
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Request, Response
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from barnabas.protocol.versions import VersionRange

if TYPE_CHECKING:
    from barnabas.clients.producer.internals.transaction_manager import TransactionManager

log = logging.getLogger(__name__)

ADD_PARTITIONS_RETRY_BACKOFF_MS: Final = 20
"""Used while the markers of the last transaction are being written, which takes only moments."""
LAST_BEFORE_BATCHES: Final = 3
"""The last AddPartitionsToTxn version for clients: later ones are for brokers."""
INIT_PRODUCER_ID_WITH_TWO_PHASE_COMMIT: Final = 6
"""The InitProducerId version with KIP-939, still unstable."""
LAST_END_TXN_BEFORE_V2: Final = 4
LAST_TXN_OFFSET_COMMIT_BEFORE_V2: Final = 4
LAST_TXN_OFFSET_COMMIT_BY_NAME: Final = 5
_MAX_INT32: Final = 2**31 - 1


class Priority(IntEnum):
    """The order of waiting requests: the coordinator first, then the identity, and so on. A new epoch comes after the
    end of the transaction that needs it."""

    FIND_COORDINATOR = 0
    INIT_PRODUCER_ID = 1
    ADD_PARTITIONS_OR_OFFSETS = 2
    END_TXN = 3
    EPOCH_BUMP = 4


class TxnRequestHandler(ABC):
    """One request, retried until its final response, which is handled with the manager's lock held."""

    coordinator_type: CoordinatorType | None = CoordinatorType.TRANSACTION
    """The kind of its receiver; None: any node."""
    priority: Priority
    is_end_txn: ClassVar[bool] = False

    def __init__(
        self, manager: TransactionManager, operation: str, result: TransactionalRequestResult | None = None
    ) -> None:
        self.manager = manager
        self.operation = operation
        self.result = TransactionalRequestResult(operation, manager.clock) if result is None else result
        self.not_before_ms = 0
        """When to send it, after a failure."""

    @property
    def coordinator_key(self) -> str:
        assert self.manager.transactional_id is not None
        return self.manager.transactional_id

    @property
    def retry_backoff_ms(self) -> int:
        return self.manager.retry_backoff_ms

    # -- interface for the network client

    @property
    @abstractmethod
    def api_key(self) -> ApiKey:
        """The API that the request belongs to."""

    @property
    def allowed_versions(self) -> VersionRange:
        return self.api_key.stable_versions

    @abstractmethod
    def build(self, version: int) -> Request:
        """Returns the request for a version."""

    @abstractmethod
    def handle_response(self, response: Response) -> None:
        """Handles a response: completes, fails or retries the request."""

    # -- outcome

    def fatal_error(self, error: Exception) -> None:
        if not self.result.is_completed:
            self.result.fail(error)
        self.manager.transition_to_fatal_error(error)

    def abortable_error(self, error: Exception) -> None:
        if not self.result.is_completed:
            self.result.fail(error)
        self.manager.transition_to_abortable_error(error)

    def abortable_error_if_possible(self, error: Exception) -> None:
        """Makes the error abortable if the coordinator can give this producer a new epoch, else fatal."""
        manager = self.manager
        if manager.coordinators.can_handle_abortable_error:
            if manager.coordinators.need_to_trigger_epoch_bump_from_client:
                manager.require_epoch_bump()
            self.abortable_error(error)
        else:
            self.fatal_error(error)

    def reenqueue(self) -> None:
        self.manager.requests.retry(self)

    def on_complete(self, response: ClientResponse) -> None:
        manager = self.manager
        with manager.lock:
            if manager.requests.in_flight_correlation_id != response.correlation_id:
                self.fatal_error(RuntimeError("Detected more than one in-flight transactional request."))
                return
            manager.requests.in_flight_correlation_id = None
            if response.authentication_error is not None:
                self.fatal_error(response.authentication_error)
            elif response.disconnected:
                log.debug("%s: %s; will be sent again", self.operation, response.reason)
                if self.coordinator_type is not None:
                    manager.lookup_coordinator(self.coordinator_type, self.coordinator_key)
                self.reenqueue()
            elif response.version_mismatch is not None:
                self.fatal_error(response.version_mismatch)
            else:
                assert response.body is not None
                self.handle_response(response.body)

    def _handle_common(self, error: Errors) -> bool:
        """Handles errors that are common to all coordinator responses; returns false for others."""
        exception = error.to_exception()
        assert exception is not None
        if error in {Errors.COORDINATOR_NOT_AVAILABLE, Errors.NOT_COORDINATOR}:
            assert self.coordinator_type is not None
            self.manager.lookup_coordinator(self.coordinator_type, self.coordinator_key)
            self.reenqueue()
        elif error.retriable:
            self.reenqueue()
        elif error in {Errors.INVALID_PRODUCER_EPOCH, Errors.PRODUCER_FENCED}:
            # The code depends on the request version; both mean that another producer has taken over.
            self.fatal_error(ProducerFencedError())
        elif error in {
            Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            Errors.INVALID_TXN_STATE,
            Errors.INVALID_PRODUCER_ID_MAPPING,
        }:
            self.fatal_error(exception)
        elif error is Errors.UNKNOWN_PRODUCER_ID:
            self.abortable_error_if_possible(exception)
        elif error is Errors.TRANSACTION_ABORTABLE:
            self.abortable_error(exception)
        else:
            return False
        return True

    def _unexpected(self, error: Errors) -> None:
        self.fatal_error(TransactionError(f"Unexpected error in the response to {self.operation}: {error.message}"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.operation}, {self.result!r})"


class InitProducerIdHandler(TxnRequestHandler):
    """Requests the producer's identity or, with the present one, the next epoch."""

    def __init__(
        self,
        manager: TransactionManager,
        identity: ProducerIdAndEpoch,
        *,
        is_epoch_bump: bool,
        keep_prepared_txn: bool = False,
    ) -> None:
        super().__init__(manager, "InitProducerId")
        self._identity = identity
        self._is_epoch_bump = is_epoch_bump
        self._keep_prepared_txn = keep_prepared_txn
        self.priority = Priority.EPOCH_BUMP if is_epoch_bump else Priority.INIT_PRODUCER_ID
        # Without transactions, any broker can assign an id.
        self.coordinator_type = CoordinatorType.TRANSACTION if manager.is_transactional else None

    @property
    def api_key(self) -> ApiKey:
        return ApiKey.INIT_PRODUCER_ID

    @property
    def allowed_versions(self) -> VersionRange:
        """Allows only the version with two-phase commit if that is on: an older broker would abort a prepared
        transaction."""
        if self._keep_prepared_txn or self.manager.enable_two_phase_commit:
            return VersionRange(INIT_PRODUCER_ID_WITH_TWO_PHASE_COMMIT, INIT_PRODUCER_ID_WITH_TWO_PHASE_COMMIT)
        return self.api_key.stable_versions

    def build(self, version: int) -> Request:
        manager = self.manager
        # The identity may have changed since this was enqueued: an earlier EndTxn can have bumped the epoch.
        identity = manager.producer_id_and_epoch if self._is_epoch_bump else self._identity
        request = InitProducerIdRequest(
            transactional_id=manager.transactional_id,
            transaction_timeout_ms=manager.transaction_timeout_ms if manager.is_transactional else _MAX_INT32,
        )
        if version >= 3:
            request.producer_id, request.producer_epoch = identity
        if version >= INIT_PRODUCER_ID_WITH_TWO_PHASE_COMMIT:
            request.enable2_pc = manager.enable_two_phase_commit
            request.keep_prepared_txn = self._keep_prepared_txn
        return request

    def handle_response(self, response: Response) -> None:
        assert isinstance(response, InitProducerIdResponse)
        error = Errors.for_code(response.error_code)
        if error is Errors.NONE:
            self.manager.initialized(
                ProducerIdAndEpoch(response.producer_id, response.producer_epoch),
                is_epoch_bump=self._is_epoch_bump,
                kept=PreparedTxnState(response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch),
            )
            self.result.done()
        elif self.coordinator_type is None and error in {Errors.NOT_COORDINATOR, Errors.COORDINATOR_NOT_AVAILABLE}:
            self.reenqueue()
        elif error in {Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Errors.CLUSTER_AUTHORIZATION_FAILED}:
            # The permission may be granted, so that the application can retry with this producer.
            exception = error.to_exception()
            assert exception is not None
            self.abortable_error(exception)
        elif not self._handle_common(error):
            self._unexpected(error)


class AddPartitionsToTxnHandler(TxnRequestHandler):
    """Adds partitions to the transaction; before transaction version 2."""

    priority = Priority.ADD_PARTITIONS_OR_OFFSETS

    def __init__(self, manager: TransactionManager, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(manager, "AddPartitionsToTxn")
        self._partitions = partitions
        self._retry_backoff_ms = manager.retry_backoff_ms

    @property
    def api_key(self) -> ApiKey:
        return ApiKey.ADD_PARTITIONS_TO_TXN

    @property
    def allowed_versions(self) -> VersionRange:
        return VersionRange(0, LAST_BEFORE_BATCHES)

    @property
    def retry_backoff_ms(self) -> int:
        return min(self.manager.retry_backoff_ms, self._retry_backoff_ms)

    def build(self, version: int) -> Request:  # noqa: ARG002 - alike in all that are allowed
        topics: dict[str, list[int]] = {}
        for topic, partition in self._partitions:
            topics.setdefault(topic, []).append(partition)
        producer_id, epoch = self.manager.producer_id_and_epoch
        assert self.manager.transactional_id is not None
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.manager.transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=partitions) for name, partitions in topics.items()
            ],
        )

    def handle_response(self, response: Response) -> None:
        assert isinstance(response, AddPartitionsToTxnResponse)
        self._retry_backoff_ms = self.manager.retry_backoff_ms
        unauthorized: set[str] = set()
        failed: dict[TopicPartition, Errors] = {}
        included: set[TopicPartition] = set()
        for topic in response.results_by_topic_v3_and_below:
            for row in topic.results_by_partition:
                partition = TopicPartition(topic.name, row.partition_index)
                error = Errors.for_code(row.partition_error_code)
                included.add(partition)
                if error is Errors.NONE:
                    continue
                if error is Errors.CONCURRENT_TRANSACTIONS:
                    if not self.manager.transaction.partitions:
                        self._retry_backoff_ms = ADD_PARTITIONS_RETRY_BACKOFF_MS
                    self.reenqueue()
                    return
                if error is Errors.TOPIC_AUTHORIZATION_FAILED:
                    unauthorized.add(topic.name)
                elif error is Errors.OPERATION_NOT_ATTEMPTED:
                    failed[partition] = error
                elif self._handle_common(error):
                    return
                else:
                    log.error("Could not add partition %s to the transaction: %s", partition, error.name)
                    failed[partition] = error
        self.manager.transaction.partitions_added(included, successful=not unauthorized and not failed)
        if unauthorized:
            self.abortable_error(
                TopicAuthorizationError(f"Not authorized to access topics: [{', '.join(sorted(unauthorized))}]")
            )
        elif failed:
            shown = ", ".join(f"{partition}={error.name}" for partition, error in failed.items())
            self.abortable_error(TransactionError(f"Could not add partitions to transaction due to errors: {shown}"))
        else:
            self.result.done()


class FindCoordinatorHandler(TxnRequestHandler):
    """Looks up the coordinator of a transactional id or a group, on any node."""

    priority = Priority.FIND_COORDINATOR
    coordinator_type = None

    def __init__(self, manager: TransactionManager, kind: CoordinatorType, key: str) -> None:
        super().__init__(manager, "FindCoordinator")
        self._kind = kind
        self._key = key

    @property
    def api_key(self) -> ApiKey:
        return ApiKey.FIND_COORDINATOR

    def build(self, version: int) -> Request:
        if version < 4:
            return FindCoordinatorRequest(key=self._key, key_type=self._kind)
        return FindCoordinatorRequest(coordinator_keys=[self._key], key_type=self._kind)

    def handle_response(self, response: Response) -> None:
        assert isinstance(response, FindCoordinatorResponse)
        if response.coordinators:
            row = response.coordinators[0]
            code, message = row.error_code, row.error_message
            node = Node(row.node_id, row.host, row.port)
        else:
            code, message = response.error_code, response.error_message
            node = Node(response.node_id, response.host, response.port)
        error = Errors.for_code(code)
        exception = error.to_exception()
        if exception is None:
            self.manager.coordinators.set(self._kind, node)
            self.result.done()
        elif error.retriable:
            self.reenqueue()
        elif error is Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            self.fatal_error(exception)
        elif error is Errors.GROUP_AUTHORIZATION_FAILED:
            self.abortable_error(GroupAuthorizationError(f"Not authorized to access group: {self._key}"))
        elif error is Errors.TRANSACTION_ABORTABLE:
            self.abortable_error(exception)
        else:
            self.fatal_error(
                TransactionError(
                    f"Could not find a coordinator with type {self._kind.name} with key {self._key} due to unexpected "
                    f"error: {message or error.message}"
                )
            )


class EndTxnHandler(TxnRequestHandler):
    """Commits or aborts the transaction."""

    priority = Priority.END_TXN
    is_end_txn = True

    def __init__(self, manager: TransactionManager, *, committed: bool, v2: bool) -> None:
        super().__init__(manager, f"EndTxn({'commit' if committed else 'abort'})")
        self._committed = committed
        self._v2 = v2

    @property
    def api_key(self) -> ApiKey:
        return ApiKey.END_TXN

    @property
    def allowed_versions(self) -> VersionRange:
        stable = self.api_key.stable_versions
        return stable if self._v2 else VersionRange(stable.lowest, LAST_END_TXN_BEFORE_V2)

    def build(self, version: int) -> Request:  # noqa: ARG002 - alike in all
        producer_id, epoch = self.manager.producer_id_and_epoch
        assert self.manager.transactional_id is not None
        return EndTxnRequest(
            transactional_id=self.manager.transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=self._committed,
        )

    def handle_response(self, response: Response) -> None:
        assert isinstance(response, EndTxnResponse)
        manager = self.manager
        error = Errors.for_code(response.error_code)
        if error is Errors.NONE:
            if response.producer_id != -1:
                # Version 2: each transaction has its own epoch, and sequences start over.
                manager.set_producer_id_and_epoch(ProducerIdAndEpoch(response.producer_id, response.producer_epoch))
                manager.partitions.reset()
            manager.reset_transaction_state()
            self.result.done()
        elif error is Errors.TRANSACTION_ABORTABLE and not self._committed:
            failed = TransactionError("Failed to abort transaction")
            failed.__cause__ = error.to_exception()
            self.fatal_error(failed)
        elif not self._handle_common(error):
            self._unexpected(error)


class AddOffsetsToTxnHandler(TxnRequestHandler):
    """Adds a group's offsets to the transaction; the offsets themselves follow."""

    priority = Priority.ADD_PARTITIONS_OR_OFFSETS

    def __init__(
        self,
        manager: TransactionManager,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
    ) -> None:
        super().__init__(manager, "AddOffsetsToTxn")
        self._offsets = offsets
        self._group = group

    @property
    def api_key(self) -> ApiKey:
        return ApiKey.ADD_OFFSETS_TO_TXN

    def build(self, version: int) -> Request:  # noqa: ARG002 - alike in all
        producer_id, epoch = self.manager.producer_id_and_epoch
        assert self.manager.transactional_id is not None
        return AddOffsetsToTxnRequest(
            transactional_id=self.manager.transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id=self._group.group_id,
        )

    def handle_response(self, response: Response) -> None:
        assert isinstance(response, AddOffsetsToTxnResponse)
        manager = self.manager
        error = Errors.for_code(response.error_code)
        if error is Errors.NONE:
            manager.transaction.started = True
            manager.requests.push(manager.txn_offset_commit_handler(self.result, self._offsets, self._group))
        elif error is Errors.GROUP_AUTHORIZATION_FAILED:
            self.abortable_error(GroupAuthorizationError(f"Not authorized to access group: {self._group.group_id}"))
        elif not self._handle_common(error):
            self._unexpected(error)


class TxnOffsetCommitHandler(TxnRequestHandler):
    """Commits the offsets, to the coordinator of the *group*."""

    priority = Priority.ADD_PARTITIONS_OR_OFFSETS
    coordinator_type = CoordinatorType.GROUP

    def __init__(
        self,
        manager: TransactionManager,
        result: TransactionalRequestResult | None,
        group: ConsumerGroupMetadata,
        *,
        v2: bool,
    ) -> None:
        super().__init__(manager, "TxnOffsetCommit", result)
        self._group = group
        self._v2 = v2

    @property
    def coordinator_key(self) -> str:
        return self._group.group_id

    @property
    def api_key(self) -> ApiKey:
        return ApiKey.TXN_OFFSET_COMMIT

    @property
    def allowed_versions(self) -> VersionRange:
        return VersionRange(0, LAST_TXN_OFFSET_COMMIT_BY_NAME if self._v2 else LAST_TXN_OFFSET_COMMIT_BEFORE_V2)

    def build(self, version: int) -> Request:
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in self.manager.transaction.pending_offset_commits.items():
            topics.setdefault(topic, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        producer_id, epoch = self.manager.producer_id_and_epoch
        group = self._group
        assert self.manager.transactional_id is not None
        request = TxnOffsetCommitRequest(
            transactional_id=self.manager.transactional_id,
            group_id=group.group_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()],
        )
        if version >= 3:
            request.generation_id_or_member_epoch = group.generation_id
            request.member_id = group.member_id
            request.group_instance_id = group.group_instance_id
        return request

    def handle_response(self, response: Response) -> None:
        assert isinstance(response, TxnOffsetCommitResponse)
        manager = self.manager
        pending = manager.transaction.pending_offset_commits
        looked_up = False
        for topic in response.topics:
            for row in topic.partitions:
                error = Errors.for_code(row.error_code)
                if error is Errors.NONE:
                    pending.pop(TopicPartition(topic.name, row.partition_index), None)
                elif error in {Errors.COORDINATOR_NOT_AVAILABLE, Errors.NOT_COORDINATOR, Errors.REQUEST_TIMED_OUT}:
                    if not looked_up:
                        looked_up = True
                        manager.lookup_coordinator(CoordinatorType.GROUP, self._group.group_id)
                elif not error.retriable:
                    self._failed(error)
                    pending.clear()
                    return
        if pending:
            self.reenqueue()
        else:
            self.result.done()

    def _failed(self, error: Errors) -> None:
        exception: ApiError | None = error.to_exception()
        assert exception is not None
        if error is Errors.GROUP_AUTHORIZATION_FAILED:
            self.abortable_error(GroupAuthorizationError(f"Not authorized to access group: {self._group.group_id}"))
        elif error in {Errors.FENCED_INSTANCE_ID, Errors.TRANSACTION_ABORTABLE}:
            self.abortable_error(exception)
        elif error in {Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION, Errors.STALE_MEMBER_EPOCH}:
            self.abortable_error(
                CommitFailedError(
                    "Transaction offset Commit failed due to consumer group metadata mismatch: " + error.message
                )
            )
        elif error in {Errors.INVALID_PRODUCER_EPOCH, Errors.PRODUCER_FENCED}:
            self.fatal_error(ProducerFencedError())
        elif error in {Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT}:
            self.fatal_error(exception)
        else:
            self._unexpected(error)
