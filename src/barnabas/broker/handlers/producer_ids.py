"""InitProducerId (v0-5) of producers without a transactional id: a producer id and epoch 0.

Who may write to any topic, or has IdempotentWrite on the cluster, gets one. Without a transactional id there is nothing
to continue and nobody to fence: what a producer says of its old id and epoch (v3 and later, both or neither) is checked
for form and makes no difference, nor does ``transaction_timeout_ms``.

With a transactional id the request belongs to the transaction coordinator of that id. There is none on this broker, so
the answer is COORDINATOR_NOT_AVAILABLE, after the permission (Write on the transactional id) has been checked. No
client gets that far: FindCoordinator, by which it would find its coordinator, is not advertised either. An empty one is
INVALID_REQUEST.

If all ids at hand are used up, the answer waits for the next block instead of sending the producer into a back-off;
only when that takes too long is it COORDINATOR_LOAD_IN_PROGRESS.
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
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.dispatch import handles
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1


class ProducerIdsHandler:
    """Gives producers their identity."""

    def __init__(
        self,
        helper: RequestHandlerHelper,
        auth: AuthHelper,
        producer_ids: ProducerIdManager,
        request_timeout_ms: int = 30_000,
    ) -> None:
        self._helper = helper
        self._auth = auth
        self._producer_ids = producer_ids
        self._request_timeout_ms = request_timeout_ms

    @handles(ApiKey.INIT_PRODUCER_ID)
    def init_producer_id(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, InitProducerIdRequest)
        self._authorize(request, body)
        if (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_PRODUCER_EPOCH):
            raise InvalidRequestError("A producer that continues must name both its id and its epoch.")
        if body.transactional_id is not None:
            if not body.transactional_id:
                raise InvalidRequestError("An empty transactional id.")
            raise CoordinatorNotAvailableError("There is no transaction coordinator on this broker.")
        future = self._producer_ids.next_producer_id(self._request_timeout_ms)
        if future.done():
            self._answer(request, future)
        else:
            future.add_done_callback(lambda done: self._answer(request, done))

    def _authorize(self, request: Request, body: InitProducerIdRequest) -> None:
        if self._auth.authorizer is None:
            return
        context = request.request_context
        if body.transactional_id is not None:
            if not self._auth.authorize(
                context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id
            ):
                raise TransactionalIdAuthorizationError
        elif not self._auth.authorize(
            context, AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False
        ) and not self._auth.authorize_by_resource_type(context, AclOperation.WRITE, ResourceType.TOPIC):
            raise ClusterAuthorizationError

    def _answer(self, request: Request, future: Future[int]) -> None:
        error = future.exception()

        def create(throttle_ms: int) -> InitProducerIdResponse:
            if error is not None:
                return InitProducerIdResponse(
                    throttle_time_ms=throttle_ms,
                    error_code=Errors.for_exception(error),
                    producer_id=NO_PRODUCER_ID,
                    producer_epoch=NO_PRODUCER_EPOCH,
                )
            return InitProducerIdResponse(throttle_time_ms=throttle_ms, producer_id=future.result(), producer_epoch=0)

        if error is not None:
            self._helper.channel.update_error_metrics(request, Errors.for_exception(error))
        self._helper.send_response_maybe_throttle(request, create)
