"""Transactions: AddPartitionsToTxn (v0-5), AddOffsetsToTxn (v0-4), EndTxn (v0-5), WriteTxnMarkers (v1-2),
DescribeTransactions (v0), ListTransactions (v0-2). InitProducerId is with the other producer ids.

* **Clients** need Write on their transactional id for AddPartitionsToTxn, AddOffsetsToTxn and EndTxn; for the first
  also Write on the topics, for the second Read on the group. If one partition of a request cannot be added, because its
  topic is not allowed or does not exist, none is: the others are OPERATION_NOT_ATTEMPTED.
* **Brokers** send AddPartitionsToTxn from v4 on, for several transactions at once, each to be verified only or added
  to. The response is sent when all of them are done. They need ClusterAction, as for WriteTxnMarkers. For that, Alter
  on the cluster is also enough, so that an operator can abort a hanging transaction.
* **Tools** need Describe on the requested ids, and see only the partitions of a transaction whose topics they may
  describe. ListTransactions leaves out transactions that the client may not describe. It lists the transactions that
  this broker coordinates, so tools query all brokers.
* PRODUCER_FENCED is INVALID_PRODUCER_EPOCH for clients that do not know it: before v2 of the first three, and before v4
  of InitProducerId.
* EndTxn v5 is sent by clients of transaction version 2. Its response has the producer id and epoch of the next
  transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Final

from barnabas.common.errors import Errors, InvalidRequestError
from barnabas.common.events.gathering import Gathering
from barnabas.common.topic_names import GROUP_METADATA_TOPIC, INTERNAL_TOPICS
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.transaction.pending_complete_txn import TxnMarker
from barnabas.coordinator.transaction.transaction_coordinator import TransactionCoordinator, TransactionListing
from barnabas.coordinator.transaction.transaction_coordinator_shard import ProducerResult
from barnabas.coordinator.transaction.transaction_metadata import ProducerIdAndEpoch, TransactionMetadata
from barnabas.coordinator.transaction.transaction_version import TransactionVersion
from barnabas.coordinator.transaction.txn_marker_writer import MarkerErrors, TxnMarkerWriter
from barnabas.metadata.cache import MetadataCache
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from barnabas.protocol.messages.describe_transactions import TransactionState as DescribedTransaction
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas.protocol.messages.list_transactions import TransactionState as ListedTransaction
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.records.control import ControlRecordType
from barnabas.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal

_BATCHED: Final = 4
"""The first version of AddPartitionsToTxn that brokers send."""
_PRODUCER_FENCED_KNOWN: Final = 2


class TransactionsHandler:
    """Handles the transaction APIs."""

    def __init__(
        self,
        helper: RequestHandlerHelper,
        auth: AuthHelper,
        cache: MetadataCache,
        coordinator: TransactionCoordinator,
        markers: TxnMarkerWriter,
        group_partition_for: Callable[[str], int],
    ) -> None:
        """`group_partition_for` returns a group's partition of ``__consumer_offsets``."""
        self._helper = helper
        self._auth = auth
        self._cache = cache
        self._coordinator = coordinator
        self._markers = markers
        self._group_partition_for = group_partition_for

    # -- AddPartitionsToTxn

    def add_partitions_to_txn(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, AddPartitionsToTxnRequest)
        version = request.api_version
        if version >= _BATCHED:
            self._auth.authorize_cluster_operation(request.request_context, AclOperation.CLUSTER_ACTION)
            transactions = body.transactions
        else:
            transactions = [
                AddPartitionsToTxnTransaction(
                    transactional_id=body.v3_and_below_transactional_id,
                    producer_id=body.v3_and_below_producer_id,
                    producer_epoch=body.v3_and_below_producer_epoch,
                    topics=body.v3_and_below_topics,
                )
            ]
        by_id = {transaction.transactional_id: transaction for transaction in transactions}
        if len(by_id) < len(transactions):
            raise InvalidRequestError("A transactional id is in the request twice.")
        results: Gathering[str, Mapping[TopicPartition, Errors]] = Gathering(
            by_id, lambda all_results: self._send_added(request, all_results)
        )
        for transaction in transactions:
            self._add_partitions(request, transaction, results)
        results.release()

    def _add_partitions(
        self,
        request: Request,
        transaction: AddPartitionsToTxnTransaction,
        results: Gathering[str, Mapping[TopicPartition, Errors]],
    ) -> None:
        transactional_id = transaction.transactional_id
        partitions = [TopicPartition(topic.name, number) for topic in transaction.topics for number in topic.partitions]
        from_client = request.api_version < _BATCHED
        if from_client and not self._may(request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            results.add(transactional_id, dict.fromkeys(partitions, Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
            return
        refused = self._partitions_that_cannot_be_added(request, partitions) if from_client else {}
        for partition in partitions:
            if partition not in refused and not self._cache.contains(*partition):
                refused[partition] = Errors.UNKNOWN_TOPIC_OR_PARTITION
        if refused:
            results.add(transactional_id, {one: refused.get(one, Errors.OPERATION_NOT_ATTEMPTED) for one in partitions})
            return
        producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
        if transaction.verify_only:
            self._coordinator.verify_partitions_in_transaction(
                transactional_id, producer, partitions
            ).add_done_callback(lambda future: results.add(transactional_id, future.result()))
            return

        def on_added(future: Future[Errors]) -> None:
            error = _for_client(request, future.result())
            results.add(transactional_id, dict.fromkeys(partitions, error))

        self._coordinator.add_partitions_to_transaction(
            transactional_id,
            producer,
            partitions,
            TransactionVersion.for_add_partitions_to_txn(request.api_version),
        ).add_done_callback(on_added)

    def _partitions_that_cannot_be_added(
        self, request: Request, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Errors]:
        """Returns the partitions that the client may not write to, including all internal topics."""
        allowed = {partition.topic for partition in partitions if partition.topic not in INTERNAL_TOPICS}
        if self._auth.authorizer is not None:
            allowed = self._auth.filter_by_authorized(
                request.request_context, AclOperation.WRITE, ResourceType.TOPIC, sorted(allowed), str
            )
        return {
            partition: Errors.TOPIC_AUTHORIZATION_FAILED for partition in partitions if partition.topic not in allowed
        }

    def _send_added(self, request: Request, results: Mapping[str, Mapping[TopicPartition, Errors]]) -> None:
        def create(throttle_ms: int) -> AddPartitionsToTxnResponse:
            responses = [
                AddPartitionsToTxnResult(
                    transactional_id=transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name=topic,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=error)
                                for number, error in by_partition.items()
                            ],
                        )
                        for topic, by_partition in _by_topic(errors).items()
                    ],
                )
                for transactional_id, errors in results.items()
            ]
            if request.api_version >= _BATCHED:
                return AddPartitionsToTxnResponse(throttle_time_ms=throttle_ms, results_by_transaction=responses)
            return AddPartitionsToTxnResponse(
                throttle_time_ms=throttle_ms, results_by_topic_v3_and_below=responses[0].topic_results
            )

        self._note_errors(request, (error for errors in results.values() for error in errors.values()))
        self._helper.send_response_maybe_throttle(request, create)

    # -- AddOffsetsToTxn

    def add_offsets_to_txn(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, AddOffsetsToTxnRequest)

        def respond(error: Errors) -> None:
            self._note_errors(request, (error,))
            self._helper.send_response_maybe_throttle(
                request,
                lambda throttle_ms: AddOffsetsToTxnResponse(throttle_time_ms=throttle_ms, error_code=error),
            )

        if not self._may(request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id):
            respond(Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        elif not self._may(request, AclOperation.READ, ResourceType.GROUP, body.group_id):
            respond(Errors.GROUP_AUTHORIZATION_FAILED)
        else:
            self._coordinator.add_partitions_to_transaction(
                body.transactional_id,
                ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
                (TopicPartition(GROUP_METADATA_TOPIC, self._group_partition_for(body.group_id)),),
                TransactionVersion.TV_0,
            ).add_done_callback(lambda future: respond(_for_client(request, future.result())))

    # -- EndTxn

    def end_txn(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, EndTxnRequest)

        def respond(result: ProducerResult) -> None:
            error = _for_client(request, result.error)
            self._note_errors(request, (error,))
            self._helper.send_response_maybe_throttle(
                request,
                lambda throttle_ms: EndTxnResponse(
                    throttle_time_ms=throttle_ms,
                    error_code=error,
                    producer_id=result.producer.producer_id,
                    producer_epoch=result.producer.epoch,
                ),
            )

        if not self._may(request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id):
            respond(ProducerResult(Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
            return
        self._coordinator.end_transaction(
            body.transactional_id,
            ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
            commit=body.committed,
            client_version=TransactionVersion.for_end_txn(request.api_version),
        ).add_done_callback(lambda future: respond(future.result()))

    # -- WriteTxnMarkers

    def write_txn_markers(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, WriteTxnMarkersRequest)
        if not self._may(request, AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False):
            self._auth.authorize_cluster_operation(request.request_context, AclOperation.CLUSTER_ACTION)
        markers = [
            TxnMarker(
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                ControlRecordType.COMMIT if marker.transaction_result else ControlRecordType.ABORT,
                marker.transaction_version,
                tuple(
                    TopicPartition(topic.name, number) for topic in marker.topics for number in topic.partition_indexes
                ),
            )
            for marker in body.markers
        ]
        self._markers.write(markers, lambda errors: self._send_markers_written(request, errors))

    def _send_markers_written(self, request: Request, errors: MarkerErrors) -> None:
        self._note_errors(request, (error for by_partition in errors.values() for error in by_partition.values()))
        self._helper.send_response_exempt_throttle(
            request,
            WriteTxnMarkersResponse(
                markers=[
                    WritableTxnMarkerResult(
                        producer_id=producer_id,
                        topics=[
                            WritableTxnMarkerTopicResult(
                                name=topic,
                                partitions=[
                                    WritableTxnMarkerPartitionResult(partition_index=number, error_code=error)
                                    for number, error in by_partition.items()
                                ],
                            )
                            for topic, by_partition in _by_topic(of_producer).items()
                        ],
                    )
                    for producer_id, of_producer in errors.items()
                ]
            ),
        )

    # -- DescribeTransactions, ListTransactions

    def describe_transactions(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, DescribeTransactionsRequest)
        ids = body.transactional_ids

        def respond(found: Mapping[int, TransactionMetadata | Errors]) -> None:
            states = [self._described(request, ids[at], found[at]) for at in range(len(ids))]
            self._helper.send_response_maybe_throttle(
                request,
                lambda throttle_ms: DescribeTransactionsResponse(
                    throttle_time_ms=throttle_ms, transaction_states=states
                ),
            )

        results: Gathering[int, TransactionMetadata | Errors] = Gathering(range(len(ids)), respond)
        for at, transactional_id in enumerate(ids):
            if not self._may(request, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
                results.add(at, Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
                continue
            self._coordinator.describe_transaction(transactional_id).add_done_callback(
                lambda future, at=at: results.add(at, future.result())  # type: ignore[misc]
            )
        results.release()

    def _described(
        self, request: Request, transactional_id: str, found: TransactionMetadata | Errors
    ) -> DescribedTransaction:
        if isinstance(found, Errors):
            self._note_errors(request, (found,))
            return DescribedTransaction(transactional_id=transactional_id, error_code=found)
        topics: dict[str, list[int]] = {}
        for topic, number in sorted(found.topic_partitions):
            topics.setdefault(topic, []).append(number)
        return DescribedTransaction(
            transactional_id=transactional_id,
            transaction_state=found.state.state_name,
            transaction_timeout_ms=found.txn_timeout_ms,
            transaction_start_time_ms=found.txn_start_timestamp,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            topics=[
                TopicData(topic=topic, partitions=numbers)
                for topic, numbers in topics.items()
                if self._may(request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
            ],
        )

    def list_transactions(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, ListTransactionsRequest)

        def respond(listing: TransactionListing) -> None:
            states = [
                ListedTransaction(
                    transactional_id=one.transactional_id,
                    producer_id=one.producer_id,
                    transaction_state=one.state.state_name,
                )
                for one in listing.transactions
                if self._may(request, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, one.transactional_id)
            ]
            self._note_errors(request, (listing.error,))
            self._helper.send_response_maybe_throttle(
                request,
                lambda throttle_ms: ListTransactionsResponse(
                    throttle_time_ms=throttle_ms,
                    error_code=listing.error,
                    unknown_state_filters=list(listing.unknown_state_filters),
                    transaction_states=states,
                ),
            )

        self._coordinator.list_transactions(
            frozenset(body.producer_id_filters),
            tuple(dict.fromkeys(body.state_filters)),
            body.duration_filter,
            body.transactional_id_pattern,
        ).add_done_callback(lambda future: respond(future.result()))

    # -- helpers

    def _may(
        self,
        request: Request,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        log_if_denied: bool = True,
    ) -> bool:
        return self._auth.authorizer is None or self._auth.authorize(
            request.request_context, operation, resource_type, name, log_if_denied=log_if_denied
        )

    def _note_errors(self, request: Request, errors: Iterable[Errors]) -> None:
        for error in errors:
            if error:
                self._helper.channel.update_error_metrics(request, error)


def _for_client(request: Request, error: Errors) -> Errors:
    if error is Errors.PRODUCER_FENCED and request.api_version < _PRODUCER_FENCED_KNOWN:
        return Errors.INVALID_PRODUCER_EPOCH
    return error


def _by_topic(errors: Mapping[TopicPartition, Errors]) -> dict[str, dict[int, Errors]]:
    by_topic: dict[str, dict[int, Errors]] = {}
    for (topic, number), error in errors.items():
        by_topic.setdefault(topic, {})[number] = error
    return by_topic
