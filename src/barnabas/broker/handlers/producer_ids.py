"""InitProducerId (v0-5, v6 unstable): assigns a producer id and an epoch to a producer.

**Without a transactional id**, any broker assigns a new id and epoch 0 to a client that may write to any topic or has
IdempotentWrite on the cluster. There is no state to continue and no producer to fence: the old id and epoch in the
request (v3 and later, both or neither) are validated but otherwise ignored, as is ``transaction_timeout_ms``. If the
broker's block of ids is used up, the response waits for the next block, so that the producer need not back off. If that
takes too long, the response is COORDINATOR_LOAD_IN_PROGRESS.

**With a transactional id**, the client needs Write on that id. Its coordinator keeps the producer id, increments the
epoch and fences the previous producer. PRODUCER_FENCED is INVALID_PRODUCER_EPOCH before v4.

**v6** (KIP-939) supports transactions that an external system commits: ``enable_2_pc`` needs TwoPhaseCommit on the id
and ``transaction.two.phase.commit.enable``, and the transaction then has no timeout. ``keep_prepared_txn`` keeps an
open transaction, and the response has its producer id and epoch in addition to the producer's own; before transaction
version 2 it is UNSUPPORTED_VERSION. (Kafka 4.3 has the field but always returns UNSUPPORTED_VERSION; this follows the
KIP.)
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Final

from barnabas.common.errors import (
    ClusterAuthorizationError,
    CoordinatorNotAvailableError,
    Errors,
    InvalidRequestError,
    TransactionalIdAuthorizationError,
)
from barnabas.coordinator.transaction.producer_id_manager import ProducerIdManager
from barnabas.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.transaction_coordinator_shard import ProducerResult
from barnabas.coordinator.transaction.transaction_metadata import NO_PRODUCER, ProducerIdAndEpoch
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal

_PRODUCER_FENCED_KNOWN: Final = 4


class ProducerIdsHandler:
    """Handles InitProducerId requests."""

    def __init__(
        self,
        helper: RequestHandlerHelper,
        auth: AuthHelper,
        producer_ids: ProducerIdManager,
        request_timeout_ms: int = 30_000,
        transactions: TransactionCoordinator | None = None,
    ) -> None:
        """Without `transactions`, this broker has no transaction coordinator."""
        self._helper = helper
        self._auth = auth
        self._producer_ids = producer_ids
        self._transactions = transactions
        self._request_timeout_ms = request_timeout_ms

    def init_producer_id(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, InitProducerIdRequest)
        self._authorize(request, body)
        expected = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
        if (expected.producer_id == NO_PRODUCER.producer_id) != (expected.epoch == NO_PRODUCER.epoch):
            raise InvalidRequestError("A producer that continues must name both its id and its epoch.")
        if body.transactional_id is None:
            ids = self._producer_ids.next_producer_id(self._request_timeout_ms)
            ids.add_done_callback(lambda future: self._respond(request, _idempotent(future)))
            return
        if not body.transactional_id:
            raise InvalidRequestError("An empty transactional id.")
        if self._transactions is None:
            raise CoordinatorNotAvailableError("There is no transaction coordinator on this broker.")
        self._transactions.init_producer_id(
            body.transactional_id,
            body.transaction_timeout_ms,
            None if expected == NO_PRODUCER else expected,
            enable_two_phase_commit=body.enable2_pc,
            keep_prepared_txn=body.keep_prepared_txn,
        ).add_done_callback(lambda future: self._respond(request, future.result()))

    def _authorize(self, request: Request, body: InitProducerIdRequest) -> None:
        if self._auth.authorizer is None:
            return
        context = request.request_context
        if body.transactional_id is not None:
            if not self._auth.authorize(
                context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id
            ) or (
                body.enable2_pc
                and not self._auth.authorize(
                    context, AclOperation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, body.transactional_id
                )
            ):
                raise TransactionalIdAuthorizationError
        elif not self._auth.authorize(
            context, AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False
        ) and not self._auth.authorize_by_resource_type(context, AclOperation.WRITE, ResourceType.TOPIC):
            raise ClusterAuthorizationError

    def _respond(self, request: Request, result: ProducerResult) -> None:
        error = result.error
        if error is Errors.PRODUCER_FENCED and request.api_version < _PRODUCER_FENCED_KNOWN:
            error = Errors.INVALID_PRODUCER_EPOCH
        if error:
            self._helper.channel.update_error_metrics(request, error)
        self._helper.send_response_maybe_throttle(
            request,
            lambda throttle_ms: InitProducerIdResponse(
                throttle_time_ms=throttle_ms,
                error_code=error,
                producer_id=result.producer.producer_id,
                producer_epoch=result.producer.epoch,
                ongoing_txn_producer_id=result.ongoing.producer_id,
                ongoing_txn_producer_epoch=result.ongoing.epoch,
            ),
        )


def _idempotent(future: Future[int]) -> ProducerResult:
    failure = future.exception()
    if failure is not None:
        return ProducerResult(Errors.for_exception(failure))
    return ProducerResult(Errors.NONE, ProducerIdAndEpoch(future.result(), 0))
